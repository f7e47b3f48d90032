/**
 * The processes of the stream benchmarks: nats-server, the product's daemon with a session type that emits on demand, the
 * product's gateway from its own main, uWebSockets.js alone for the floor, load clients.
 *
 * `stop` leaves no process and no file. All share this machine's processors: figures say who used how much.
 */
import { generateKeyPairSync, randomBytes } from 'node:crypto';
import { rmSync } from 'node:fs';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { ensureCertificate } from '../../deploy/start/certificate.ts';
import { daemonSocket, writeDaemonConfig, writeGatewayConfig } from '../../deploy/start/config-files.ts';
import { signDevToken } from '../../deploy/start/dev-file.ts';
import { freePort } from '../harness/port.ts';
import { gatewayReady } from '../../deploy/start/probe.ts';
import { testProcess, type TestProcess } from '../harness/process.ts';
import type { ClientJobs } from './client-part.ts';
import type { Settings } from './figure.ts';
import { startBenchNats, type BenchNats } from './nats.ts';
import { profileArgs, startPart, type Part } from './part.ts';
import type { SessionJobs } from './session-part.ts';
import { sub } from './sessions.ts';
import type { UwsJobs } from './uws-part.ts';

const root = dirname(dirname(dirname(fileURLToPath(import.meta.url))));
/** No limit of the edge is what is measured here. */
const unlimited = 1_000_000_000;

/** Where a load client connects. */
export interface Target {
  readonly port: number;
  readonly ca: string;
  readonly token: string;
}

export interface BenchStack {
  readonly nats: BenchNats;
  readonly daemon: Part<SessionJobs>;
  readonly gateway: TestProcess;
  readonly uws: Part<UwsJobs>;
  readonly target: Target;
  readonly floorTarget: Target;
  /** A further load client. */
  client(name: string): Promise<Part<ClientJobs>>;
  stop(): Promise<void>;
}

export const startBenchStack = async (settings: Settings, gatewayArgs: readonly string[] = []): Promise<BenchStack> => {
  const folder = await mkdtemp(join(tmpdir(), 'troupe-bench-'));
  const file = (name: string): string => join(folder, name);
  const started: { stop(): Promise<void> }[] = [];
  const net = (): void => rmSync(folder, { recursive: true, force: true });
  process.once('exit', net);
  const stop = async (): Promise<void> => {
    for (const each of started.splice(0).toReversed()) await each.stop();
    process.off('exit', net);
    await rm(folder, { recursive: true, force: true });
  };
  const keep = <T extends { stop(): Promise<void> }>(each: T): T => {
    started.push(each);
    return each;
  };
  try {
    const audience = 'troupe-gateway';
    const devSecret = randomBytes(32).toString('base64url');
    const keys = generateKeyPairSync('ec', { namedCurve: 'P-256' });
    const run = file('run');
    await mkdir(run, { mode: 0o700 });
    const write = (name: string, content: string): Promise<void> => writeFile(file(name), content, { mode: 0o600 });
    await Promise.all([
      write('dev-secret', devSecret),
      write('master.key', randomBytes(32).toString('base64')),
      write('capability.key', keys.privateKey.export({ type: 'pkcs8', format: 'pem' }).toString()),
      write('capability.pub', keys.publicKey.export({ type: 'spki', format: 'pem' }).toString()),
    ]);
    const certificate = await ensureCertificate(folder);
    const nats = keep(await startBenchNats(settings));

    writeDaemonConfig(file('daemon.toml'), {
      host: 'bench-0', log_level: 'warn', socket_path: daemonSocket(run, 0), master_key_path: file('master.key'),
      nats: { url: nats.url, sync: settings.sync ? 'always' : 'default' },
      capability: { public_key_path: file('capability.pub'), issuer: audience },
      models: { default: 'mock', registry: [{ id: 'mock', provider: 'mock' }] },
    });
    const daemon = keep(await startPart<SessionJobs>('./session-part.ts', { name: 'daemon', profiles: settings.profiles, nodeArgs: ['--expose-gc'] }));
    await daemon.run('start', { configPath: file('daemon.toml') });

    const port = await freePort();
    const opsPort = await freePort();
    writeGatewayConfig(file('gateway.toml'), {
      name: audience, log_level: 'warn', console: false,
      listen: { host: '127.0.0.1', port }, ops: { host: '127.0.0.1', port: opsPort },
      tls: { cert_path: certificate.certPath, key_path: certificate.keyPath },
      auth: { dev_mode: true, dev_secret_path: file('dev-secret') },
      capability: { key_path: file('capability.key') },
      upstream: { socket_path: run },
      limits: { sockets_per_user: 1_000_000, per_user_capacity: unlimited, per_user_refill_per_sec: unlimited, per_ip_capacity: unlimited, per_ip_refill_per_sec: unlimited },
    });
    const gateway = keep(testProcess({
      name: 'gateway', args: ['--no-warnings', ...profileArgs(settings.profiles, 'gateway'), ...gatewayArgs, join(root, 'gateway', 'main.ts'), '--config', file('gateway.toml')],
      probe: () => gatewayReady(opsPort),
    }));
    await gateway.start();

    const uws = keep(await startPart<UwsJobs>('./uws-part.ts', { name: 'uws', profiles: settings.profiles, nodeArgs: ['--expose-gc'] }));
    const floor = await uws.run('start', { certPath: certificate.certPath, keyPath: certificate.keyPath });
    const ca = await readFile(certificate.caPath, 'utf8');
    const token = await signDevToken(devSecret, { sub, audience, ttlSec: 3_600 });
    return {
      nats, daemon, gateway, uws, target: { port, ca, token }, floorTarget: { port: floor.port, ca, token },
      client: async (name) => keep(await startPart<ClientJobs>('./client-part.ts', { name, profiles: settings.profiles })),
      stop,
    };
  } catch (error) {
    await stop();
    throw error;
  }
};
