/**
 * A real Postgres for tests: one cluster per call on a free port and a temporary folder, without fsync, removed by `stop()`.
 * Started the way `npm start` does it (also as root), so that path is tested too.
 */
import { randomBytes } from 'node:crypto';
import { chmod, mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { ensureCluster, postgresChild, postgresPlace, postgresUrl } from '../../deploy/start/postgres.ts';
import { freePort } from './port.ts';
import { testProcess, type TestProcess } from './process.ts';

export interface PostgresServer extends Pick<TestProcess, 'pid' | 'kill' | 'start' | 'lines'> {
  readonly url: string;
  stop(): Promise<void>;
}

/** Processes of a server's connections and of its own work; none where the system does not say. */
const childrenOf = async (pid: number): Promise<readonly string[]> => {
  const text = await readFile(`/proc/${pid}/task/${pid}/children`, 'utf8').catch(() => '');
  return text.split(' ').filter((child) => child !== '');
};

/** False also for one that has ended and that nobody has asked after. */
const runs = async (pid: string): Promise<boolean> => {
  const stat = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '');
  return stat !== '' && !/\) [ZX] /.test(stat);
};

export const startPostgres = async (): Promise<PostgresServer> => {
  const folder = await mkdtemp(join(tmpdir(), 'troupe-postgres-'));
  // Root's server process runs as another user, who must be able to walk in.
  await chmod(folder, 0o755);
  const password = randomBytes(16).toString('hex');
  const place = postgresPlace(folder, () => folder);
  const port = await freePort();
  await ensureCluster(place, password);
  const spec = postgresChild(place, { port, password, flags: ['fsync=off'] });
  const server = testProcess({ name: 'postgres', file: spec.file, args: spec.args, probe: spec.probe, ...(spec.as === undefined ? {} : { as: spec.as }) });
  await server.start();
  return {
    url: postgresUrl(port, password),
    get pid(): number { return server.pid; },
    kill: async (signal) => {
      const own = server.pid === undefined ? [] : await childrenOf(server.pid);
      const code = await server.kill(signal);
      // They outlive a killed postmaster by a moment, and no other starts while they hold its memory.
      while ((await Promise.all(own.map(runs))).includes(true)) await setTimeout(5);
      return code;
    },
    start: () => server.start(), lines: () => server.lines(),
    stop: async () => {
      // SIGINT = fast shutdown; SIGTERM would wait for the clients.
      if (server.running) await server.kill('SIGINT');
      await rm(folder, { recursive: true, force: true });
    },
  };
};
