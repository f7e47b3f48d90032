/** Readers of the projections while Postgres is gone, hangs, and comes back: refused at once instead of waiting out their callers. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CodedError } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { openReaders } from '../../actors/projections/readers.ts';
import { benches, codeOf, Lines, waitMs, write } from '../harness/projection-bench.ts';
import { startProxy } from '../harness/proxy.ts';

const servers = benches();
const gone = /^Postgres cannot be reached: lists/;
const back = /^Postgres answers again/;

/** The message tells which bound was met: the look, or the statement's own. */
const messageOf = (error: unknown): string => (error instanceof CodedError ? `${error.code}: ${error.message}` : String(error));
const refused = 'upstream_unavailable: Postgres cannot be reached.';

test('readers - a Postgres that hangs is found out while its statements wait, all who wait are refused together, and it serves again when it answers', { timeout: 90_000 }, async (t) => {
  const b = await servers.bench(t);
  const proxy = await startProxy(Number(new URL(b.url).port));
  t.after(() => proxy.stop());
  const lines = new Lines();
  const url = new URL(b.url);
  url.port = String(proxy.port);
  const readers = openReaders({ postgresUrl: url.href, name: 'readers', log: lines.log });
  t.after(() => readers.close());
  const one = (): Promise<unknown> => readers.run((sql) => sql`select 1 as n`);
  assert.deepEqual([...(await one()) as object[]], [{ n: 1 }]);

  proxy.stall();
  const down = lines.next(({ text }) => gone.test(text));
  const waiting = Array.from({ length: 12 }, () => one().then(() => 'served', messageOf));
  await down;
  assert.deepEqual(await Promise.all(waiting), Array.from({ length: 12 }, () => refused));
  assert.equal(readers.up, false);
  // Known to be gone: the statement is not even made.
  let made = 0;
  assert.equal(await readers.run(async (sql) => { made += 1; return sql`select 1`; }).then(() => 'served', messageOf), refused);
  assert.equal(made, 0);

  const up = lines.next(({ text }) => back.test(text));
  proxy.resume();
  await up;
  // What hung on the old connections is given up with them.
  assert.deepEqual(await Promise.all(Array.from({ length: 12 }, () => one().then(() => 'served', messageOf))), Array.from({ length: 12 }, () => 'served'));
});

test('readers - a server that is slow, or has no connection to spare, keeps its readers', { timeout: 90_000 }, async (t) => {
  const b = await servers.bench(t);
  const lines = new Lines();
  const url = new URL(b.url);
  const readers = openReaders({ postgresUrl: url.href, name: 'slow', log: lines.log });
  t.after(() => readers.close());
  await readers.run((sql) => sql`select 1`);
  // Longer than the time after which it is looked for; and whoever looks is told that there are too many connections.
  await b.sql.unsafe(`alter database ${url.pathname.slice(1)} allow_connections true connection limit 0`);
  await b.sql`create role limited login password 'x'`;
  const asLimited = new URL(b.url);
  asLimited.username = 'limited';
  asLimited.password = 'x';
  const turnedAway = openReaders({ postgresUrl: asLimited.href, name: 'limited', log: lines.log });
  t.after(() => turnedAway.close());
  assert.match(await turnedAway.run((sql) => sql`select 1`).then(() => 'served', messageOf), /^upstream_unavailable: Postgres does not serve \(53300/);
  assert.equal(turnedAway.up, true);

  const seconds = limits.postgresSuspectMs * 2 / 1_000;
  assert.equal((await readers.run((sql) => sql`select 'slept' as it, pg_sleep(${seconds})::text`))[0]?.['it'], 'slept');
  assert.equal(readers.up, true);
  assert.deepEqual(lines.log.lines.filter(({ text }) => gone.test(text)), []);
});

test('readers - of projections whose Postgres is killed: a list that waits is refused, one that is asked for later too, and all is there after', { timeout: 90_000 }, async (t) => {
  const b = await servers.bench(t);
  const { projections, lines } = b.start();
  await write(b, 2, 1);
  await projections.caughtUp('sessions', undefined, waitMs);
  const down = lines.next(({ text }) => gone.test(text));
  await servers.server.kill('SIGKILL');
  assert.equal(await projections.caughtUp('sessions', undefined, waitMs).then(() => 'there', codeOf), 'upstream_unavailable');
  await down;
  assert.equal(await projections.caughtUp('sessions', undefined, waitMs).then(() => 'there', messageOf), refused);
  let made = 0;
  assert.equal(await projections.read(async () => { made += 1; return made; }).then(() => 'served', messageOf), refused);
  assert.equal(made, 0);
  const up = lines.next(({ text }) => back.test(text));
  await servers.server.start();
  await up;
  await write(b, 2, 1);
  await projections.caughtUp('sessions', undefined, waitMs);
  await b.requireRows();
});
