/**
 * A transaction whose connection is lost at any of its statements, ended or reset by the server: it is refused, leaves nothing or all,
 * and the process lives. A real Postgres behind a forwarder that cuts at a statement.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect as dial, createServer, type AddressInfo, type Socket } from 'node:net';
import { after, before, test, type TestContext } from 'node:test';
import { answered, closePostgres, openPostgres, transaction } from '../../actors/projections/postgres.ts';
import type { Sql } from '../../actors/projections/postgres.ts';
import { startPostgres, type PostgresServer } from '../harness/postgres.ts';

let server: PostgresServer;
before(async () => { server = await startPostgres(); });
after(() => server.stop());

type Cut = 'end' | 'reset';
interface Line {
  readonly url: string;
  /** At the next client bytes that hold this text: they are not forwarded, and the client's connection ends so. */
  cutAt(text: string, how: Cut): void;
  /** Ends the client's connections so, now. */
  cut(how: Cut): void;
}

const openLine = async (t: TestContext, url: string): Promise<Line> => {
  const to = Number(new URL(url).port);
  const clients = new Set<Socket>();
  let aim: { readonly text: string; readonly how: Cut } | undefined;
  const drop = (client: Socket, how: Cut): void => { if (how === 'end') client.end(); else client.resetAndDestroy(); };
  const listener = createServer((client) => {
    const postgres = dial(to, '127.0.0.1');
    clients.add(client);
    client.on('data', (bytes) => {
      if (aim !== undefined && bytes.includes(aim.text)) {
        const { how } = aim;
        aim = undefined;
        drop(client, how);
        return;
      }
      postgres.write(bytes);
    });
    postgres.pipe(client, { end: false });
    for (const [socket, other] of [[client, postgres], [postgres, client]] as const) {
      socket.on('error', () => undefined);
      socket.once('close', () => { clients.delete(client); other.destroy(); });
    }
  });
  listener.listen(0, '127.0.0.1');
  await once(listener, 'listening');
  t.after(() => { for (const client of clients) client.destroy(); listener.close(); });
  return {
    url: url.replace(`:${to}/`, `:${(listener.address() as AddressInfo).port}/`),
    cutAt: (text, how) => { aim = { text, how }; },
    cut: (how) => { for (const client of clients) drop(client, how); },
  };
};

const table = async (t: TestContext, name: string): Promise<{ readonly sql: Sql; readonly rows: () => Promise<number[]> }> => {
  const sql = openPostgres(server.url, { name: 'direct', max: 1 });
  t.after(() => closePostgres(sql));
  await sql.unsafe(`create table public.${name} (n integer)`);
  return { sql, rows: async () => (await sql<{ n: number }[]>`select n from public.${sql(name)} order by n`).map(({ n }) => n) };
};

/** Turns of the event loop in which what a lost connection leaves behind would have run. */
const loopTurns = async (): Promise<void> => {
  for (let i = 0; i < 8; i += 1) await new Promise((resolve) => { setImmediate(resolve); });
};

for (const how of ['end', 'reset'] as const) {
  test(`transaction - the connection's ${how} at any statement is refused, leaves nothing half, and ends no process; a new one serves`, { timeout: 60_000 }, async (t) => {
    const { rows } = await table(t, `at_${how}`);
    const line = await openLine(t, server.url);
    const work = (sql: Sql) => answered(transaction(sql, async (tx) => {
      await tx`insert into public.${tx(`at_${how}`)} values (${1})`;
      const [found] = await tx<{ n: number }[]>`select count(*)::int as n from public.${tx(`at_${how}`)}`;
      await tx`insert into public.${tx(`at_${how}`)} values (2)`;
      return found?.n;
    }));
    for (const at of ['begin', 'values ($1)', 'count(*)', 'values (2)', 'commit']) {
      const sql = openPostgres(line.url, { name: 'cut', max: 1, bare: true });
      await sql`select 1`;
      line.cutAt(at, how);
      await assert.rejects(work(sql), { code: 'upstream_unavailable' }, at);
      await loopTurns();
      assert.deepEqual(await rows(), [], at);
      await closePostgres(sql);
    }
    const sql = openPostgres(line.url, { name: 'after', max: 1 });
    t.after(() => closePostgres(sql));
    assert.equal(await work(sql), 1);
    assert.deepEqual(await rows(), [1, 2]);
  });

  test(`transaction - the connection's ${how} between two statements lets no further statement through`, { timeout: 60_000 }, async (t) => {
    const { rows } = await table(t, `between_${how}`);
    const line = await openLine(t, server.url);
    const sql = openPostgres(line.url, { name: 'cut', max: 1 });
    t.after(() => closePostgres(sql));
    const inside = Promise.withResolvers<void>();
    const goOn = Promise.withResolvers<void>();
    const ended = Promise.withResolvers<unknown>();
    const running = answered(transaction(sql, async (tx) => {
      await tx`insert into public.${tx(`between_${how}`)} values (1)`;
      inside.resolve();
      await goOn.promise;
      try {
        await tx`insert into public.${tx(`between_${how}`)} values (2)`;
      } catch (error) {
        ended.resolve(error);
        throw error;
      }
    }));
    await inside.promise;
    line.cut(how);
    await assert.rejects(running, { code: 'upstream_unavailable' });
    goOn.resolve();
    assert.equal((await ended.promise as { code?: string }).code, 'upstream_unavailable');
    await loopTurns();
    assert.deepEqual(await rows(), []);
  });
}

test('transaction - what the work throws rolls back and is thrown; the connection serves on', { timeout: 60_000 }, async (t) => {
  const { sql, rows } = await table(t, 'thrown');
  const failure = new TypeError('the work is wrong');
  await assert.rejects(transaction(sql, async (tx) => {
    await tx`insert into public.thrown values (1)`;
    throw failure;
  }), failure);
  await assert.rejects(answered(transaction(sql, async (tx) => {
    await tx`insert into public.thrown values (2)`;
    await tx`insert into public.thrown values (${'no number'})`;
  })), { code: 'internal_error' });
  assert.deepEqual(await rows(), []);
  assert.equal(await transaction(sql, async (tx) => { await tx`insert into public.thrown values (3)`; return 'done'; }), 'done');
  assert.deepEqual(await rows(), [3]);
});
