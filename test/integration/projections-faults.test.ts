/** Projections through lost connections, lost answers, second runners and a database that goes away: exactly once, one at a time. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { closePostgres, openPostgres } from '../../actors/projections/postgres.ts';
import { benches, codeOf, waitMs, write } from '../harness/projection-bench.ts';
import { startProxy } from '../harness/proxy.ts';

const servers = benches();

test('projections - a connection that ends between the rows and their commit writes nothing, and everything is written once after', { timeout: 60_000 }, async (t) => {
  const b = await servers.bench(t);
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
  const b = await servers.bench(t);
  await write(b, 24, 2);
  const proxy = await startProxy(Number(new URL(b.url).port));
  t.after(() => proxy.stop());
  const url = new URL(b.url);
  url.port = String(proxy.port);
  let cuts = 0;
  let applied = 0;
  b.start({
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
  // Looked at past the proxy: an answer to a reader must not be taken for the answer to COMMIT.
  const last = new Map<string, number>();
  for (const { position: { stream, seq } } of b.journal.sessions) last.set(stream, Math.max(seq, last.get(stream) ?? 0));
  const written = async (): Promise<boolean> => {
    const [table] = await b.sql`select to_regclass('troupe.projection_checkpoints') as made`;
    if (table?.['made'] === null) return false;
    const rows = await b.sql`select stream, seq from troupe.projection_checkpoints`;
    return rows.length === last.size && rows.every((row) => Number(row['seq']) >= (last.get(String(row['stream'])) ?? 0));
  };
  while (!await written());
  assert.equal(cuts, 2);
  // Two streams, each written in one batch: nothing was applied again although both answers were lost.
  assert.equal(applied, 2);
  await b.requireRows();
});

test('projections - of two, one runs; when it ends the other goes on, and each commit counts once', { timeout: 60_000 }, async (t) => {
  const b = await servers.bench(t);
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
  const b = await servers.bench(t);
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

test('projections - commits that somebody else has written meanwhile are not written again', { timeout: 60_000 }, async (t) => {
  const b = await servers.bench(t);
  const session = await b.journal.create('ada');
  await b.journal.turn(session);
  let taken = false;
  let armed = false;
  const { projections, lines } = b.start({
    source: {
      ...b.journal.source,
      next: async (stream, type, from) => {
        const batch = await b.journal.source.next(stream, type, from);
        const to = batch.at(-1)?.seq;
        if (armed && !taken && to !== undefined) {
          taken = true;
          // What another runner's transaction leaves: the checkpoint beyond these commits.
          await b.sql`update troupe.projection_checkpoints set seq = ${to} where projection = 'sessions' and stream = ${stream}`;
        }
        return batch;
      },
    },
  });
  await projections.waitFor('sessions', session.position, waitMs);
  const begunAnew = lines.next(({ text }) => text === 'a projection begins where its checkpoints are now');
  armed = true;
  await b.journal.turn(session);
  await begunAnew;
  await b.journal.turn(session);
  await projections.waitFor('sessions', session.position, waitMs);
  // The turns before and after; of the one between at most the half that was not in the batch somebody else took.
  const [row] = await b.sql`select turns, input_tokens from troupe.sessions`;
  assert.deepEqual([row?.['turns'], ['14', '21'].includes(String(row?.['input_tokens']))], ['2', true]);
});

test('projections - a connection that came back by itself is not taken for the one that held the lock', { timeout: 60_000 }, async (t) => {
  const b = await servers.bench(t);
  let armed = false;
  let ended = false;
  const { projections, lines } = b.start({
    host: 'back',
    source: {
      ...b.journal.source,
      next: async (stream, type, from) => {
        const batch = await b.journal.source.next(stream, type, from);
        if (armed && !ended && batch.length > 0) {
          ended = true;
          await b.sql`select pg_terminate_backend(pid, 5000) from pg_stat_activity where application_name = 'troupe back sessions'`;
        }
        return batch;
      },
    },
  });
  await lines.state('running');
  armed = true;
  const session = await b.journal.create('ada');
  await b.journal.turn(session);
  await projections.waitFor('sessions', session.position, waitMs);
  assert.equal(ended, true);
  // Whoever writes holds the lock.
  const [held] = await b.sql`
    select count(*)::int as n from pg_locks l join pg_stat_activity a using (pid)
    where l.locktype = 'advisory' and l.granted and a.application_name = 'troupe back sessions'`;
  assert.equal(held?.['n'], 1);
  await b.requireRows();
});

test('projections - the server ends the silent connection of a paused process', { timeout: 60_000 }, async (t) => {
  const b = await servers.bench(t);
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

test('projections - without Postgres the journal goes on, the status says why, and what was missed is there after', { timeout: 90_000 }, async (t) => {
  const b = await servers.bench(t);
  const { projections, lines } = b.start();
  await lines.state('running');
  await write(b, 2, 1);
  await projections.caughtUp('sessions', undefined, waitMs);
  const down = lines.next(({ text }) => text.startsWith('a projection does not run'));
  await servers.server.kill('SIGKILL');
  await down;
  assert.deepEqual(projections.status(), { sessions: 'upstream_unavailable' });
  await write(b, 2, 2);
  const gone = lines.next(({ text }) => text.startsWith('Postgres cannot be reached'));
  assert.equal(await projections.caughtUp('sessions', undefined, waitMs).then(() => 'there', codeOf), 'upstream_unavailable');
  await gone;
  const again = lines.next(({ text }) => text === 'Postgres answers again');
  const up = lines.next(({ fields }) => typeof fields === 'object' && fields !== null && 'state' in fields && fields.state === 'running');
  await servers.server.start();
  await Promise.all([up, again]);
  await projections.caughtUp('sessions', undefined, waitMs);
  await b.requireRows();
  assert.ok(!JSON.stringify(lines.log.lines).includes(new URL(b.url).password), 'the password is in no log line');
});
