/** Projections over a real journal and a real Postgres: rows that follow, never older than asked, rebuilt the same, listed to their owner only. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { connect } from 'nats';
import { listSessions } from '../../actors/projections/session-list.ts';
import { benches, codeOf, waitMs, write } from '../harness/projection-bench.ts';
import { projectedJournal, type ProjectedJournal } from '../harness/projected.ts';

const servers = benches();

test('projections - rows follow the journal of every stream, and a row says what its session is doing', { timeout: 60_000 }, async (t) => {
  const b = await servers.bench(t);
  await write(b, 6, 3);
  const { projections } = b.start();
  await projections.caughtUp('sessions', undefined, waitMs);
  await b.requireRows();
  const [first] = b.journal.sessions;
  assert.ok(first);
  const stateAfter = async (events: Parameters<ProjectedJournal['commit']>[1]): Promise<unknown> => {
    await b.journal.commit(first, events);
    await projections.waitFor('sessions', first.position, waitMs);
    const [row] = await b.sql`select state, turns from troupe.sessions where sid = ${first.sid}`;
    return [row?.['state'], row?.['turns']];
  };
  const ask = { dispatch_id: 'd', call_id: 'c', run_id: 'r' };
  assert.deepEqual(await stateAfter([{ k: 'RunStarted', d: { run_id: 'r' } }]), ['running', '4']);
  assert.deepEqual(await stateAfter([{ k: 'ApprovalRequested', d: { ...ask, preview: '' } }, { k: 'ApprovalRequested', d: { ...ask, call_id: 'c2', preview: '' } }]), ['waiting_approval', '4']);
  assert.deepEqual(await stateAfter([{ k: 'ApprovalGranted', d: ask }]), ['waiting_approval', '4']);
  assert.deepEqual(await stateAfter([{ k: 'ApprovalDenied', d: { ...ask, call_id: 'c2' } }]), ['running', '4']);
  // The end of another turn than the running one changes nothing.
  const usage = { input_tokens: 1, output_tokens: 1, cost_cents: 1 };
  assert.deepEqual(await stateAfter([{ k: 'RunErrored', d: { code: 'x', message: 'x', usage, run_id: 'other' } }]), ['running', '4']);
  assert.deepEqual(await stateAfter([{ k: 'RunErrored', d: { code: 'x', message: 'x', usage, run_id: 'r' } }]), ['idle', '4']);
});

test('projections - a reader that asks for a commit gets rows that hold it, or is told that they do not', { timeout: 60_000 }, async (t) => {
  const b = await servers.bench(t);
  const { projections, lines } = b.start();
  await lines.state('running');
  for (let i = 0; i < 20; i++) {
    const session = await b.journal.create('ada', { label: `l${i}` });
    await projections.waitFor('sessions', session.position, waitMs);
    const page = await projections.read((sql) => listSessions(sql, { org: 'u-ada', userId: 'ada', limit: 1 }));
    assert.equal(page.sessions[0]?.sid, session.sid);
  }
  const position = b.journal.sessions.at(-1)?.position;
  assert.ok(position);
  await assert.rejects(projections.waitFor('sessions', { ...position, seq: position.seq + 1 }, 200), { code: 'deadline_exceeded' });
});

test('projections - rebuilt from the journal, by any process, the rows are the same', { timeout: 60_000 }, async (t) => {
  const b = await servers.bench(t);
  await write(b, 10, 3);
  const one = b.start({ host: 'one' });
  await one.lines.state('running');
  await one.projections.caughtUp('sessions', undefined, waitMs);
  const rows = await b.rows();
  assert.equal(rows.length, 10);
  await b.sql`update troupe.sessions set turns = 999, label = 'spoilt'`;
  await b.sql`insert into troupe.sessions select 'x', sid, user_id, project_id, label, model, agent_id, created_at, last_event_at, state from troupe.sessions limit 1`;
  await one.projections.rebuild('sessions', waitMs);
  assert.deepEqual(await b.rows(), rows);
  // The process that does not run it may ask, too; while it is rebuilt it takes what is new.
  const two = b.start({ host: 'two' });
  await two.lines.state('waiting');
  await b.sql`update troupe.sessions set turns = 999`;
  const rebuilt = two.projections.rebuild('sessions', waitMs);
  await write(b, 2, 1);
  await rebuilt;
  await one.projections.caughtUp('sessions', undefined, waitMs);
  await b.requireRows();
});

test('projections - a journal that is not the one before starts the rows anew', { timeout: 60_000 }, async (t) => {
  const b = await servers.bench(t);
  await write(b, 4, 1);
  const one = b.start();
  await one.projections.caughtUp('sessions', undefined, waitMs);
  await one.projections.close();
  const nc = await connect({ servers: servers.nats.url });
  t.after(() => nc.close());
  for (const stream of ['JOURNAL_0', 'JOURNAL_1']) await nc.request(`$JS.API.STREAM.DELETE.${stream}`, '');
  const fresh = await projectedJournal(nc);
  t.after(() => fresh.close());
  // Longer than the old one: that it is another shows in nothing but when it was made.
  for (let i = 0; i < 24; i++) await fresh.turn(await fresh.create('eve'));
  const two = b.start();
  await two.lines.next(({ text }) => text.startsWith('the journal is not the one'));
  await two.projections.caughtUp('sessions', undefined, waitMs);
  assert.deepEqual((await b.rows()).map((row) => row['sid']).toSorted(), fresh.sessions.map(({ sid }) => sid).toSorted());
});

test('projections - what cannot be read or shown hides nothing else', { timeout: 60_000 }, async (t) => {
  const b = await servers.bench(t);
  const good = await b.journal.create('ada', { label: `nul \u0000 half \ud800 ${'long '.repeat(100)}` });
  await b.journal.spoil(good);
  await b.journal.commit(good, [{ k: 'RunStarted', d: { run_id: 7 } }]);
  await b.journal.turn(good);
  await b.journal.create('nobody\u0000', { org: 'u-ada' });
  const last = await b.journal.create('ada');
  const { projections, lines } = b.start();
  await projections.caughtUp('sessions', undefined, waitMs);
  const page = await projections.read((sql) => listSessions(sql, { org: 'u-ada', userId: 'ada', limit: 10 }));
  assert.deepEqual(page.sessions.map(({ sid, turns }) => [sid, turns]), [[last.sid, 0], [good.sid, 1]]);
  assert.equal(page.sessions[1]?.label?.length, 256);
  assert.equal((await b.rows()).length, 2);
  assert.equal(projections.runners.get('sessions')?.leftOut, 1);
  assert.deepEqual(lines.log.lines.filter(({ level }) => level === 'error').length, 2);
});

test('projections - a list holds the caller\'s own sessions only, newest first, whole over its pages', { timeout: 60_000 }, async (t) => {
  const b = await servers.bench(t);
  const atMs = 1_800_000_000_000;
  // Seven made in the same millisecond: the cursor tells them apart.
  for (let i = 0; i < 7; i++) await b.journal.create('ada', { org: 'acme', atMs });
  for (let i = 0; i < 5; i++) await b.journal.create('ada', { org: 'acme', atMs: atMs + i });
  await b.journal.create('eve', { org: 'acme', atMs });
  await b.journal.create('ada', { org: 'other', atMs });
  const { projections } = b.start();
  await projections.caughtUp('sessions', undefined, waitMs);
  const list = (cursor?: string, org = 'acme', userId = 'ada') => projections.read((sql) => listSessions(sql, { org, userId, limit: 5, cursor }));
  const seen: string[] = [];
  const times: string[] = [];
  let cursor: string | undefined;
  let pages = 0;
  do {
    const page = await list(cursor);
    seen.push(...page.sessions.map(({ sid }) => sid));
    times.push(...page.sessions.map(({ created_at }) => created_at));
    cursor = page.nextCursor ?? undefined;
    pages += 1;
    // One made while the pages are turned is newer than all of them, and moves none.
    if (pages === 1) await projections.waitFor('sessions', (await b.journal.create('ada', { org: 'acme', atMs: atMs + 99 })).position, waitMs);
  } while (cursor !== undefined);
  assert.equal(pages, 3);
  assert.deepEqual(times, times.toSorted().toReversed());
  assert.deepEqual(seen.toSorted(), b.journal.sessions.filter(({ org, user }) => org === 'acme' && user === 'ada').slice(0, 12).map(({ sid }) => sid).toSorted());
  assert.deepEqual((await list(undefined, 'acme', 'eve')).sessions.length, 1);
  // Ada's cursor in Eve's hand shows Eve's, and no list is anybody else's.
  const adas = (await list()).nextCursor ?? undefined;
  assert.equal((await list(adas, 'acme', 'eve')).sessions.every(({ sid }) => b.journal.sessions.find((s) => s.sid === sid)?.user === 'eve'), true);
  assert.deepEqual((await list(undefined, 'acme', 'a%')).sessions, []);
  for (const bad of ['x', Buffer.from('1.').toString('base64url'), Buffer.from('99999999999999999.a').toString('base64url'), 'é']) {
    assert.equal(await list(bad).then(() => 'taken', codeOf), 'bad_request', bad);
  }
});

