/**
 * A whole Troupe for end-to-end tests: a real nats-server, real daemon and gateway processes started from source, on free
 * ports and a temporary folder, with a certificate of their own.
 *
 * Guarantee: when the test (or `stop()`) ends, no process, socket or file is left; when the test failed, the last output of
 * each process is in its report. Several gateways get a port each, or one together (`onePort`).
 */
import { generateKeyPairSync, randomBytes } from 'node:crypto';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { ensureCertificate } from '../../deploy/start/certificate.ts';
import { daemonSocket, writeDaemonConfig, writeGatewayConfig, type DaemonInput, type GatewayInput } from '../../deploy/start/config-files.ts';
import { signDevToken } from '../../deploy/start/dev-file.ts';
import { gatewayHealthy, gatewayReady, socketAccepts } from '../../deploy/start/probe.ts';
import { groupName } from '../../deploy/start/group.ts';
import { startNats, type NatsServer } from './nats.ts';
import { freePort } from './port.ts';
import { testProcess, type TestProcess } from './process.ts';

/** Milliseconds between two looks, and in all: a gateway dials a daemon again within a second, and two cores may be busy with others. */
const lookEveryMs = 10;
const linkedMs = 30_000;
const root = dirname(dirname(dirname(fileURLToPath(import.meta.url))));

/** What a test context offers; `node:test`'s fits. Without one, call `stop()` yourself. */
export interface TestScope {
  after(fn: () => Promise<void>): void;
  readonly passed?: boolean;
  diagnostic?(text: string): void;
}

export interface StackOptions {
  /** Default 1 each. */
  readonly daemons?: number;
  readonly gateways?: number;
  /** All gateways listen on one port (SO_REUSEPORT). */
  readonly onePort?: boolean;
  /** Port of the first gateway (of all of them with `onePort`), where it must be known beforehand; default a free one. */
  readonly port?: number;
  /** Tier 1 tokens are checked against this JWKS; default: HS256 with the stack's development secret. */
  readonly jwksUrl?: string;
  /** The platform's own gateway tokens are identities too; needs `gateway.platform`. */
  readonly platformIdentity?: boolean;
  readonly sync?: 'always';
  /** Further lines of nats-server configuration. */
  readonly natsConfig?: string;
  /** Gets every line of every process as it is written. */
  readonly onLine?: (process: string, line: string) => void;
  /** Further keys, or other values, of each configuration. */
  readonly daemon?: Partial<DaemonInput> | ((index: number) => Partial<DaemonInput>);
  readonly gateway?: Partial<GatewayInput> | ((index: number) => Partial<GatewayInput>);
  /** Further environment of the daemons. */
  readonly daemonEnvironment?: Readonly<Record<string, string>>;
  /** Further environment of the gateways. */
  readonly gatewayEnvironment?: Readonly<Record<string, string>>;
  /** Milliseconds an upstream call of a gateway may take; default the product's. */
  readonly deadlineMs?: (gateway: number) => number | undefined;
  /** NATS URL the daemons are given, e.g. a proxy's; default the server's own. */
  readonly natsUrl?: (url: string) => Promise<string> | string;
}

export interface GatewayProcess extends TestProcess {
  readonly port: number;
  readonly opsPort: number;
  /** `https://localhost:<port>` and `wss://localhost:<port>`. */
  readonly url: string;
  readonly wsUrl: string;
  readonly adminSocket: string;
}

export interface DaemonProcess extends TestProcess {
  readonly host: string;
  readonly socketPath: string;
}

export interface TestStack {
  readonly folder: string;
  readonly nats: NatsServer;
  readonly daemons: readonly DaemonProcess[];
  readonly gateways: readonly GatewayProcess[];
  /** Of the first gateway. */
  readonly url: string;
  readonly wsUrl: string;
  readonly ca: Buffer;
  readonly caPath: string;
  /** `iss` of capabilities and `aud` of Tier 1 tokens. */
  readonly audience: string;
  readonly devSecret: string;
  /** A Tier 1 token (HS256). `ttlSec` default one hour. */
  token(sub: string, org?: string, ttlSec?: number): Promise<string>;
  /** The last output of every process, for a failure's report. */
  report(): string;
  stop(): Promise<void>;
}

const settings = <T>(given: T | ((index: number) => T) | undefined, index: number): T | Record<never, never> =>
  given instanceof Function ? given(index) : given ?? {};

/** Resolves when the gateway has its link to so many daemons. A healthy one has; one that ends rejects. */
export const linked = async (gateway: GatewayProcess, daemons: number): Promise<void> => {
  const deadline = performance.now() + linkedMs;
  for (;;) {
    const answer = await fetch(`http://127.0.0.1:${gateway.opsPort}/metrics`);
    const last = /^troupe_gateway_daemons (\d+)$/m.exec(await answer.text())?.[1] ?? 'no';
    if (Number(last) === daemons) return;
    if (performance.now() > deadline) throw new Error(`${gateway.name} is linked to ${last} of ${daemons} daemons after ${linkedMs} ms`);
    await pause(lookEveryMs);
  }
};

export const startStack = async (scope: TestScope | undefined, options: StackOptions = {}): Promise<TestStack> => {
  const folder = await mkdtemp(join(tmpdir(), 'troupe-stack-'));
  const file = (name: string): string => join(folder, name);
  const processes: TestProcess[] = [];
  let nats: NatsServer | undefined;

  const report = (): string => processes.map((p) => `--- ${p.name}${p.crashed === undefined ? '' : ` (${p.crashed})`}\n${p.lines().slice(-40).join('\n')}`).join('\n');
  const stop = async (): Promise<void> => {
    // Gateways first: their daemons should still be there for the drain.
    for (const kind of ['gateway', 'daemon']) await Promise.all(processes.filter((p) => p.name.startsWith(kind)).map((p) => p.stop()));
    await nats?.stop();
    await rm(folder, { recursive: true, force: true });
  };
  scope?.after(async () => {
    if (scope.passed === false) scope.diagnostic?.(report());
    await stop();
  });

  try {
    const audience = 'troupe-gateway';
    const devSecret = randomBytes(32).toString('base64url');
    const keys = generateKeyPairSync('ec', { namedCurve: 'P-256' });
    const socketFolder = file('run');
    await mkdir(socketFolder, { mode: 0o700 });
    const write = (name: string, content: string): Promise<void> => writeFile(file(name), content, { mode: 0o600 });
    const [server, certificate] = await Promise.all([
      startNats({ ...(options.sync === undefined ? {} : { sync: options.sync }), ...(options.natsConfig === undefined ? {} : { config: options.natsConfig }) }).then((started) => { nats = started; return started; }),
      ensureCertificate(folder),
      write('dev-secret', devSecret),
      write('master.key', randomBytes(32).toString('base64')),
      write('capability.key', keys.privateKey.export({ type: 'pkcs8', format: 'pem' }).toString()),
      write('capability.pub', keys.publicKey.export({ type: 'spki', format: 'pem' }).toString()),
    ]);
    const natsUrl = await options.natsUrl?.(server.url) ?? server.url;

    const daemons = Array.from({ length: options.daemons ?? 1 }, (_, index): DaemonProcess => {
      const host = `test-${index}`;
      const socketPath = daemonSocket(socketFolder, index);
      const config = file(`daemon-${index}.toml`);
      writeDaemonConfig(config, {
        host, log_level: 'info', socket_path: socketPath, master_key_path: file('master.key'),
        nats: { url: natsUrl, sync: options.sync ?? 'default' },
        capability: { public_key_path: file('capability.pub'), issuer: audience },
        models: { default: 'mock', registry: [{ id: 'mock', provider: 'mock' }] },
        ...settings(options.daemon, index),
      });
      const daemon = testProcess({
        name: `daemon-${index}`, onLine: (line) => options.onLine?.(`daemon-${index}`, line), args: [join(root, 'actors', 'daemon', 'main.ts'), '--config', config], probe: () => socketAccepts(socketPath),
        ...(options.daemonEnvironment === undefined ? {} : { env: options.daemonEnvironment }),
      });
      processes.push(daemon);
      return Object.defineProperties(daemon, Object.getOwnPropertyDescriptors({ host, socketPath })) as DaemonProcess;
    });

    const shared = options.onePort === true ? options.port ?? await freePort() : undefined;
    const group = groupName();
    const gateways: GatewayProcess[] = [];
    for (let index = 0; index < (options.gateways ?? 1); index++) {
      const port = shared ?? (index === 0 ? options.port : undefined) ?? await freePort();
      const opsPort = await freePort();
      const adminSocket = file(`admin-${index}.sock`);
      const config = file(`gateway-${index}.toml`);
      const deadlineMs = options.deadlineMs?.(index);
      writeGatewayConfig(config, {
        name: audience, log_level: 'info',
        listen: { host: '127.0.0.1', port }, ops: { host: '127.0.0.1', port: opsPort },
        tls: { cert_path: certificate.certPath, key_path: certificate.keyPath },
        auth: {
          ...(options.jwksUrl === undefined ? { dev_mode: true, dev_secret_path: file('dev-secret') } : { jwks_url: options.jwksUrl }),
          platform: options.platformIdentity === true,
        },
        capability: { key_path: file('capability.key') },
        upstream: { socket_path: socketFolder, ...(deadlineMs === undefined ? {} : { deadline_ms: deadlineMs }) },
        admin: { socket_path: adminSocket, group },
        ...settings(options.gateway, index),
      });
      const gateway = testProcess({
        name: `gateway-${index}`, onLine: (line) => options.onLine?.(`gateway-${index}`, line), args: [join(root, 'gateway', 'main.ts'), '--config', config], probe: async () => await gatewayReady(opsPort) && gatewayHealthy(port, certificate.caPath),
        ...(options.gatewayEnvironment === undefined ? {} : { env: options.gatewayEnvironment }),
      });
      processes.push(gateway);
      gateways.push(Object.defineProperties(gateway, Object.getOwnPropertyDescriptors({
        port, opsPort, adminSocket, url: `https://localhost:${port}`, wsUrl: `wss://localhost:${port}`,
      })) as GatewayProcess);
    }
    await Promise.all(processes.map((p) => p.start()));
    // A gateway is ready with one daemon; the test may take away any.
    await Promise.all(gateways.map((gateway) => linked(gateway, daemons.length)));

    return {
      folder, nats: server, daemons, gateways,
      url: gateways[0]?.url ?? '', wsUrl: gateways[0]?.wsUrl ?? '',
      ca: await readFile(certificate.caPath), caPath: certificate.caPath, audience, devSecret,
      token: (sub, org, ttlSec = 3_600) => signDevToken(devSecret, { sub, audience, ttlSec, ...(org === undefined ? {} : { org }) }),
      report, stop,
    };
  } catch (error) {
    if (scope === undefined) await stop();
    throw error;
  }
};
