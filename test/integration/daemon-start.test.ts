/**
 * A daemon's start while its NATS connection breaks: at each command of the start, before the server has it and before its answer is
 * there (daemon.ts). The start goes on; only a NATS that stays away or refuses ends it, with a sentence.
 */
import assert from 'node:assert/strict';
import { generateKeyPairSync, randomBytes } from 'node:crypto';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { readDaemonConfig, readSecrets } from '../../actors/daemon/config.ts';
import { startDaemon, type Daemon } from '../../actors/daemon/daemon.ts';
import type { CodedError } from '../../contracts/errors.ts';
import { writeDaemonConfig } from '../../deploy/start/config-files.ts';
import { socketAccepts } from '../../deploy/start/probe.ts';
import { silent } from '../harness/log.ts';
import { startNats, type NatsServer } from '../harness/nats.ts';
import { startProxy, type Proxy } from '../harness/proxy.ts';

const partitions = 4;

interface Bench {
  readonly server: NatsServer;
  readonly proxy: Proxy;
  readonly socketPath: string;
  /** A daemon in this process, whose way to NATS is the proxy; stopped with the bench. */
  start(startMs?: number): Promise<Daemon>;
  stop(): Promise<void>;
}

/** An empty nats-server behind a proxy, and what a daemon needs to start on it. */
const bench = async (t: TestContext, jetstream = true): Promise<Bench> => {
  const folder = await mkdtemp(join(tmpdir(), 'troupe-daemon-start-'));
  const server = await startNats({ jetstream });
  const proxy = await startProxy(server.port);
  const keys = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const file = (name: string): string => join(folder, name);
  await mkdir(file('run'), { mode: 0o700 });
  await writeFile(file('capability.pub'), keys.publicKey.export({ type: 'spki', format: 'pem' }));
  await writeFile(file('master.key'), randomBytes(32).toString('base64'), { mode: 0o600 });
  const socketPath = join(file('run'), 'd0.sock');
  writeDaemonConfig(file('daemon.toml'), {
    host: 'starting', socket_path: socketPath, master_key_path: file('master.key'), partitions, lease_ttl_ms: 2_000,
    nats: { url: proxy.url }, capability: { public_key_path: file('capability.pub') },
    models: { default: 'mock', registry: [{ id: 'mock', provider: 'mock' }] },
  });
  const config = await readDaemonConfig(file('daemon.toml'));
  const secrets = await readSecrets(config);
  let daemon: Daemon | undefined;
  let stopped: Promise<void> | undefined;
  const stop = async (): Promise<void> => {
    await daemon?.close();
    await proxy.stop();
    await server.stop();
    await rm(folder, { recursive: true });
  };
  const once = (): Promise<void> => (stopped ??= stop());
  t.after(once);
  return {
    server, proxy, socketPath,
    start: async (startMs) => (daemon = await startDaemon({ config, secrets, log: silent, ...(startMs === undefined ? {} : { startMs }) })),
    stop: once,
  };
};

/** What goes over the wire for the first time in each step of a start, in order. */
const commands = [
  'PUB $JS.API.STREAM.INFO.JOURNAL', 'PUB $JS.API.STREAM.CREATE.JOURNAL', 'PUB $JS.API.STREAM.CREATE.INBOX', 'PUB $JS.API.STREAM.CREATE.KV_hosts',
  'PUB $JS.API.STREAM.CREATE.OBJ_blobs', 'PUB $JS.API.STREAM.INFO.OBJ_blobs', 'PUB $JS.API.STREAM.MSG.GET.KV_hosts', 'PUB $KV.hosts.starting',
  'PUB $JS.API.DIRECT.GET.KV_hosts', 'PUB $JS.API.DIRECT.GET.KV_partitions', 'PUB $KV.partitions.1',
] as const;

for (const what of ['unsent', 'unanswered'] as const) {
  test(`daemon start - the connection is cut at each command of the start, which is ${what}: it starts, with every partition`, { timeout: 120_000 }, async (t) => {
    for (const command of commands) {
      const b = await bench(t);
      const cut = b.proxy.cutAt(command, what);
      const daemon = await b.start();
      await Promise.all([cut, daemon.host.ready]);
      assert.equal(daemon.host.owned().length, partitions, command);
      assert.ok(await socketAccepts(b.socketPath), command);
      await b.stop();
    }
  });
}

test('daemon start - nats-server killed while the daemon joins the cluster, and started again: it starts', { timeout: 60_000 }, async (t) => {
  const b = await bench(t);
  const restarted = b.proxy.cutAt('PUB $KV.hosts.starting', 'unsent').then(() => b.server.restart());
  const daemon = await b.start();
  await Promise.all([restarted, daemon.host.ready]);
  assert.equal(daemon.host.owned().length, partitions);
});

test('daemon start - a NATS that goes away and stays away ends the start with journal_unavailable and leaves the path free', { timeout: 60_000 }, async (t) => {
  for (const command of ['PUB $JS.API.STREAM.CREATE.INBOX', 'PUB $JS.API.STREAM.MSG.GET.KV_hosts', 'PUB $KV.hosts.starting']) {
    const b = await bench(t);
    const away = b.proxy.cutAt(command, 'unsent').then(() => b.proxy.refuse());
    await assert.rejects(b.start(500), { code: 'journal_unavailable' }, command);
    await away;
    b.proxy.resume();
    await b.start();
    await b.stop();
  }
});

test('daemon start - what NATS refuses for good ends the start with its sentence, however much patience there is', { timeout: 60_000 }, async (t) => {
  const patient = 2 ** 30;
  const bare = await bench(t, false);
  await assert.rejects(bare.start(patient), { code: 'upstream_unavailable', message: 'The NATS server runs without JetStream, which holds the journal.' });
  const other = await bench(t);
  const daemon = await other.start();
  const { connection } = daemon.host.stores.lean;
  const { config } = (await connection.request('$JS.API.STREAM.INFO.OBJ_blobs')).json<{ config: object }>();
  await connection.request('$JS.API.STREAM.UPDATE.OBJ_blobs', JSON.stringify({ ...config, max_msgs: 5 }));
  await daemon.close();
  await assert.rejects(other.start(patient), (error: CodedError) => {
    assert.deepEqual([error.code, error.message], ['conflict', 'Stream OBJ_blobs exists with max_msgs = 5, but -1 is configured.']);
    return true;
  });
});
