/** The embedded servers as `npm start` runs them: who may do what on NATS, and Postgres, also when root starts it. */
import assert from 'node:assert/strict';
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'node:test';
import { connect, PermissionViolationError, type NatsConnection } from 'nats';
import postgres from 'postgres';
import { integrator, natsConfig } from '../../deploy/start/nats.ts';
import { freePort } from '../harness/port.ts';
import { ensureCluster, postgresPlace, reachableCopy } from '../../deploy/start/postgres.ts';
import { natsGreets } from '../../deploy/start/probe.ts';
import { natsServerPath } from '../harness/nats.ts';
import { startPostgres } from '../harness/postgres.ts';
import { testProcess } from '../harness/process.ts';

test('start - the integrator on NATS reaches its organization and nothing else', async (t) => {
  const path = mkdtempSync(join(tmpdir(), 'troupe-start-nats-'));
  const port = await freePort();
  const config = join(path, 'nats.conf');
  writeFileSync(config, natsConfig({ port, storePath: join(path, 'store'), synced: true, orgs: ['dev'], daemonPassword: 'a"b\\c', integratorPassword: 'only-mine' }));
  const server = testProcess({ name: 'nats', file: natsServerPath(), args: ['--config', config], probe: () => natsGreets(port) });
  await server.start();
  const open = (user: string, pass: string, inboxPrefix?: string): Promise<NatsConnection> =>
    connect({ servers: `127.0.0.1:${port}`, user, pass, reconnect: false, ...(inboxPrefix === undefined ? {} : { inboxPrefix }) });
  const daemon = await open('daemon', 'a"b\\c');
  const outsider = await open(integrator.user, 'only-mine', integrator.inboxPrefix);
  t.after(async () => {
    await Promise.all([daemon.close(), outsider.close()]);
    await server.stop();
    rmSync(path, { recursive: true, force: true });
  });

  daemon.subscribe('actor.>', { callback: (_error, message) => { message.respond('played'); } });
  await daemon.flush();
  const answer = await outsider.request('actor.dev.agent.ada.recall', '{}', { timeout: 5_000 });
  assert.equal(answer.string(), 'played');

  const status = outsider.status()[Symbol.asyncIterator]();
  const refused = async (): Promise<string> => {
    for (;;) {
      const next = await status.next();
      assert.ok(next.done !== true);
      if (next.value.type === 'error' && next.value.error instanceof PermissionViolationError) return next.value.error.message;
    }
  };
  for (const subject of ['actor.acme.agent.ada.recall', 'part.1.dev.agent.ada.recall', 'journal.1.dev.agent.ada', 'events.dev.agent.ada', '$JS.API.STREAM.DELETE.JOURNAL_0']) {
    outsider.publish(subject, '{}');
    assert.match(await refused(), new RegExp(`Publish to "${subject.replaceAll(/[.$]/g, '\\$&')}"`));
  }
  for (const subject of ['>', '_INBOX.>', 'events.acme.>', 'journal.>', 'actor.dev.>']) {
    outsider.subscribe(subject, { callback: () => undefined });
    assert.match(await refused(), /Subscription to/, subject);
  }
  outsider.subscribe('events.dev.>', { callback: () => undefined });
  outsider.publish('$SRV.PING', '');
  await outsider.flush();
});

test('start - Postgres comes up, keeps its data over a kill, and lets nobody in without the password', async (t) => {
  const server = await startPostgres();
  t.after(() => server.stop());
  const write = postgres(server.url, { max: 1, onnotice: () => undefined });
  await write`create table kept (n int primary key)`;
  await write`insert into kept values (42)`;
  const [locale] = await write<{ datlocale: string }[]>`select datlocale from pg_database where datname = current_database()`;
  assert.equal(locale?.datlocale, 'C.UTF-8');
  await write.end();
  await server.kill('SIGKILL');
  await server.start();
  const read = postgres(server.url, { max: 1 });
  assert.deepEqual([...await read<{ n: number }[]>`select n from kept`], [{ n: 42 }]);
  await read.end();
  const wrong = new URL(server.url);
  wrong.password = 'guess';
  const stranger = postgres(wrong.href, { max: 1 });
  await assert.rejects(stranger`select 1`, { code: '28P01' });
  await stranger.end();
});

test('start - a cluster whose making was interrupted is made anew, a finished one is kept', async (t) => {
  const path = mkdtempSync(join(tmpdir(), 'troupe-start-pg-'));
  t.after(() => rmSync(path, { recursive: true, force: true }));
  chmodSync(path, 0o755);
  const place = postgresPlace(path, () => path);
  mkdirSync(place.dataPath);
  writeFileSync(join(place.dataPath, 'PG_VERSION'), '18\n');
  writeFileSync(`${place.dataPath}.making`, '');
  assert.deepEqual(await ensureCluster(place, 'pw'), { made: true });
  assert.deepEqual(await ensureCluster(place, 'pw'), { made: false });
});

test('start - binaries in a private home are copied to where the account of Postgres can reach them, once per version', (t) => {
  const path = mkdtempSync(join(tmpdir(), 'troupe-start-home-'));
  t.after(() => rmSync(path, { recursive: true, force: true }));
  chmodSync(path, 0o755);
  const home = join(path, 'home');
  const shared = join(path, 'shared');
  const native = join(home, 'package', 'native');
  mkdirSync(join(native, 'bin'), { recursive: true });
  mkdirSync(shared);
  writeFileSync(join(native, 'bin', 'postgres'), 'one', { mode: 0o755 });
  writeFileSync(join(home, 'package', 'package.json'), '{"version":"1.2.3"}');
  const nobody = { uid: 65_534, gid: 65_534 };
  assert.equal(reachableCopy(native, shared, nobody), native);
  chmodSync(home, 0o700);
  const copy = reachableCopy(native, shared, nobody);
  assert.equal(copy, join(shared, 'native-1.2.3'));
  assert.equal(readFileSync(join(copy, 'bin', 'postgres'), 'utf8'), 'one');
  writeFileSync(join(copy, 'bin', 'postgres'), 'kept');
  assert.equal(reachableCopy(native, shared, nobody), copy);
  assert.equal(readFileSync(join(copy, 'bin', 'postgres'), 'utf8'), 'kept');
});
