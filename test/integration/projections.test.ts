/** Projections over a real journal and a real Postgres: exactly once, one at a time, never older than asked, and rebuilt the same. */
import assert from 'node:assert/strict';
import { after, before, test, type TestContext } from 'node:test';
import postgres from 'postgres';
import { connect, type NatsConnection } from 'nats';
import { CodedError } from '../../contracts/errors.ts';
import { closePostgres, openPostgres } from '../../actors/projections/postgres.ts';
import { listSessions } from '../../actors/projections/session-list.ts';
import { startProjections, type Projections } from '../../actors/projections/projections.ts';
import { sessionsProjection } from '../../actors/projections/sessions.ts';
import type { Projection } from '../../actors/projections/projection.ts';
import { projectedJournal, type ProjectedJournal } from '../harness/projected.ts';
import { recorder, type Recorded } from '../harness/log.ts';
import { startNats, type NatsServer } from '../harness/nats.ts';
import { startPostgres, type PostgresServer } from '../harness/postgres.ts';
import { startProxy } from '../harness/proxy.ts';

const waitMs = 30_000;
let nats: NatsServer;
let server: PostgresServer;
let databases = 0;

before(async () => { [nats, server] = await Promise.all([startNats(), startPostgres()]); });
after(async () => { await Promise.all([nats.stop(), server.stop()]); });

/** Calls back with the log's lines, and resolves when one fits. */
class Lines {
  readonly #waits = new Set<{ readonly fits: (line: Recorded) => boolean; readonly resolve: (line: Recorded) => void }>();
  readonly log = recorder((line) => {
    for (const wait of this.#waits) {
      if (!wait.fits(line)) continue;
      this.#waits.delete(wait);
      wait.resolve(line);
    }
  });
  next(fits: (line: Recorded) => boolean): Promise<Recorded> {
    return new Promise((resolve) => this.#waits.add({ fits, resolve }));
  }
  /** Said already or to come: a runner is in this state. */
  state(name: string): Promise<Recorded> {
    const fits = ({ fields }: Recorded): boolean => typeof fields === 'object' && fields !== null && 'state' in fields && fields.state === name;
    const said = this.log.lines.find(fits);
    return said === undefined ? this.next(fits) : Promise.resolve(said);
  }
}

interface Bench {
  readonly url: string;
  readonly sql: postgres.Sql;
  readonly journal: ProjectedJournal;
  start(options?: { readonly url?: string; readonly host?: string; readonly projection?: (real: Projection) => Projection }): { readonly projections: Projections; readonly lines: Lines };
  /** Every row, without what is not the journal's. */
  rows(): Promise<Record<string, unknown>[]>;
  /** What the rows must say of each written session. */
  requireRows(): Promise<void>;
}

/** A database and a journal of the test's own. */
const bench = async (t: TestContext): Promise<Bench> => {
  databases += 1;
  const name = `t${databases}`;
  const root = postgres(server.url, { max: 1 });
  await root.unsafe(`create database ${name}`);
  await root.end();
  const url = server.url.replace(/\/[^/]*$/, `/${name}`);
  const sql = postgres(url, { max: 2, onnotice: () => undefined, backoff: () => 0.05 });
  const started: Projections[] = [];
  const nc: NatsConnection = await connect({ servers: nats.url });
  // A journal of its own: streams are one a server, so the old ones go.
  for (const stream of ['JOURNAL_0', 'JOURNAL_1']) await nc.request(`$JS.API.STREAM.DELETE.${stream}`, '');
  const journal = await projectedJournal(nc);
  t.after(async () => {
    await Promise.all(started.map((projections) => projections.close()));
    journal.close();
    await nc.close();
    await sql.end({ timeout: 1 });
  });
  const rows = async (): Promise<Record<string, unknown>[]> => [...await sql`select * from troupe.sessions order by org, sid`];
  return {
    url, sql, journal, rows,
    start: ({ url: at = url, host = 'h', projection = (real: Projection): Projection => real } = {}) => {
      const lines = new Lines();
      const projections = startProjections({
        postgresUrl: at, source: journal.source, host, log: lines.log,
        projections: [projection(sessionsProjection({ upcast: (event) => event.d, onBroken: ({ seq }) => lines.log.error({ seq }, 'broken') }))],
      });
      started.push(projections);
      return { projections, lines };
    },
    requireRows: async () => {
      const found = new Map((await rows()).map((row) => [`${String(row['org'])}/${String(row['sid'])}`, row]));
      assert.equal(found.size, journal.sessions.length);
      for (const session of journal.sessions) {
        const row = found.get(`${session.org}/${session.sid}`);
        assert.ok(row, session.sid);
        assert.deepEqual(
          [row['user_id'], row['turns'], row['input_tokens'], row['cost_cents'], row['state']],
          [session.user, String(session.turns), String(session.inputTokens), String(session.cents), 'idle'], session.sid,
        );
      }
    },
  };
};

const write = async ({ journal }: Bench, sessions: number, turns: number): Promise<void> => {
  for (let s = 0; s < sessions; s++) {
    const session = await journal.create(`user-${s % 3}`);
    for (let i = 0; i < turns; i++) await journal.turn(session);
  }
};

const codeOf = (error: unknown): string => (error instanceof CodedError ? error.code : String(error));

test('projections - rows follow the journal of every stream, and a row says what its session is doing', { timeout: 60_000 }, async (t) => {
  const b = await bench(t);
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

test('projections - a connection that ends between the rows and their commit writes nothing, and everything is written once after', { timeout: 60_000 }, async (t) => {
  const b = await bench(t);
  await write(b, 8, 4);
  let kills = 0;
  const { projections } = b.start({
    projection: (real) => ({
      ...real,
      apply: async (tx, commits) => {
        await real.apply(tx, commits);
        if (kills >= 3) return;
        kills += 1;
        const [row] = await tx<{ pid: number }[]>`select pg_backend_pid() as pid`;
        await b.sql`select pg_terminate_backend(${row?.pid ?? 0})`;
      },
    }),
  });
  await projections.caughtUp('sessions', undefined, waitMs);
  assert.equal(kills, 3);
  await b.requireRows();
});

test('projections - a commit whose answer is lost is not written again', { timeout: 60_000 }, async (t) => {
  const b = await bench(t);
  await write(b, 24, 2);
  const proxy = await startProxy(Number(new URL(b.url).port));
  t.after(() => proxy.stop());
  const url = new URL(b.url);
  url.port = String(proxy.port);
  let cuts = 0;
  let applied = 0;
  const { projections } = b.start({
    url: url.href,
    projection: (real) => ({
      ...real,
      apply: async (tx, commits) => {
        applied += 1;
        await real.apply(tx, commits);
        if (cuts >= 2) return;
        cuts += 1;
        // What the server answers from here on, the answer to COMMIT, is thrown away; then the connection breaks.
        proxy.dropReplies();
        void proxy.dropped().then(() => {
          proxy.cut();
          proxy.resume();
        });
      },
    }),
  });
  // Readers go through the same proxy, so their connections break too.
  const there = async (): Promise<void> => projections.caughtUp('sessions', undefined, waitMs).catch((error: unknown) => {
    if (codeOf(error) !== 'upstream_unavailable') throw error;
    return there();
  });
  await there();
  assert.equal(cuts, 2);
  // Two streams, each written in one batch: nothing was applied again although both answers were lost.
  assert.equal(applied, 2);
  await b.requireRows();
});

test('projections - of two, one runs; when it ends the other goes on, and each commit counts once', { timeout: 60_000 }, async (t) => {
  const b = await bench(t);
  await write(b, 3, 2);
  const one = b.start({ host: 'one' });
  await one.lines.state('running');
  const two = b.start({ host: 'two' });
  await two.lines.state('waiting');
  assert.deepEqual([one.projections.status(), two.projections.status()], [{ sessions: 'running' }, { sessions: 'waiting' }]);
  await write(b, 3, 2);
  // The one that waits answers its readers all the same.
  await two.projections.caughtUp('sessions', undefined, waitMs);
  await b.requireRows();
  await one.projections.close();
  await two.lines.state('running');
  await write(b, 3, 2);
  await two.projections.caughtUp('sessions', undefined, waitMs);
  await b.requireRows();
  assert.deepEqual(two.projections.status(), { sessions: 'running' });
});

test('projections - one that lost its lock writes nothing more, although it still thinks it runs', { timeout: 60_000 }, async (t) => {
  const b = await bench(t);
  const session = await b.journal.create('ada');
  const held = Promise.withResolvers<undefined>();
  const arrived = Promise.withResolvers<undefined>();
  let holding = true;
  const one = b.start({
    host: 'one',
    projection: (real) => ({
      ...real,
      apply: async (tx, commits) => {
        if (holding && commits.some(({ commit }) => commit.ev.some(({ k }) => k === 'RunStarted'))) {
          holding = false;
          arrived.resolve(undefined);
          await held.promise;
        }
        await real.apply(tx, commits);
      },
    }),
  });
  await one.lines.state('running');
  await one.projections.waitFor('sessions', session.position, waitMs);
  const two = b.start({ host: 'two' });
  await two.lines.state('waiting');
  await b.journal.turn(session);
  await arrived.promise;
  // As the server does to a paused process: its session ends, its lock is free.
  const refused = one.lines.next(({ level, text }) => level === 'warn' && text.startsWith('a projection does not run'));
  await b.sql`select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'troupe one sessions'`;
  await two.lines.state('running');
  await two.projections.waitFor('sessions', session.position, waitMs);
  held.resolve(undefined);
  await refused;
  await b.requireRows();
});

test('projections - the server ends the silent connection of a paused process', { timeout: 60_000 }, async (t) => {
  const b = await bench(t);
  const { lines } = b.start({ host: 'lease' });
  await lines.state('running');
  // Asked of the server, as the connection that holds the lock has it: the test does not wait for it to pass.
  const [held] = await b.sql`
    select count(*)::int as n from pg_locks l join pg_stat_activity a using (pid)
    where l.locktype = 'advisory' and l.granted and a.application_name = 'troupe lease sessions'`;
  assert.equal(held?.['n'], 1);
  const leased = openPostgres(b.url, { name: 'x', max: 1, lease: true });
  t.after(() => closePostgres(leased));
  const [settings] = await leased`select current_setting('idle_session_timeout') as idle, current_setting('idle_in_transaction_session_timeout') as tx, current_setting('lock_timeout') as lock`;
  assert.deepEqual({ ...settings }, { idle: '15s', tx: '15s', lock: '8s' });
});

test('projections - a reader that asks for a commit gets rows that hold it, or is told that they do not', { timeout: 60_000 }, async (t) => {
  const b = await bench(t);
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
  const b = await bench(t);
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
  const b = await bench(t);
  await write(b, 4, 1);
  const one = b.start();
  await one.projections.caughtUp('sessions', undefined, waitMs);
  await one.projections.close();
  const nc = await connect({ servers: nats.url });
  t.after(() => nc.close());
  for (const stream of ['JOURNAL_0', 'JOURNAL_1']) await nc.request(`$JS.API.STREAM.DELETE.${stream}`, '');
  const fresh = await projectedJournal(nc);
  t.after(() => fresh.close());
  const session = await fresh.create('eve');
  const two = b.start();
  await two.lines.next(({ text }) => text.startsWith('the journal is not the one'));
  await two.projections.waitFor('sessions', session.position, waitMs);
  assert.deepEqual((await b.rows()).map((row) => row['sid']), [session.sid]);
});

test('projections - what cannot be read or shown hides nothing else', { timeout: 60_000 }, async (t) => {
  const b = await bench(t);
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
  const b = await bench(t);
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

test('projections - without Postgres the journal goes on, the status says why, and what was missed is there after', { timeout: 90_000 }, async (t) => {
  const b = await bench(t);
  const { projections, lines } = b.start();
  await lines.state('running');
  await write(b, 2, 1);
  await projections.caughtUp('sessions', undefined, waitMs);
  const down = lines.next(({ text }) => text.startsWith('a projection does not run'));
  await server.kill('SIGKILL');
  await down;
  assert.deepEqual(projections.status(), { sessions: 'upstream_unavailable' });
  await write(b, 2, 2);
  assert.equal(await projections.caughtUp('sessions', undefined, waitMs).then(() => 'there', codeOf), 'upstream_unavailable');
  const up = lines.next(({ fields }) => typeof fields === 'object' && fields !== null && 'state' in fields && fields.state === 'running');
  await server.start();
  await up;
  await projections.caughtUp('sessions', undefined, waitMs);
  await b.requireRows();
  assert.ok(!JSON.stringify(lines.log.lines).includes(new URL(b.url).password), 'the password is in no log line');
});
