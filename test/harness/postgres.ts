/**
 * A real Postgres for tests: one cluster per call on a free port and a temporary folder, without fsync, removed by `stop()`.
 * Started the way `npm start` does it (also as root), so that path is tested too.
 */
import { randomBytes } from 'node:crypto';
import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ensureCluster, postgresChild, postgresPlace, postgresUrl } from '../../deploy/start/postgres.ts';
import { freePort } from './port.ts';
import { testProcess, type TestProcess } from './process.ts';

export interface PostgresServer extends Pick<TestProcess, 'pid' | 'kill' | 'start' | 'lines'> {
  readonly url: string;
  stop(): Promise<void>;
}

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
    kill: (signal) => server.kill(signal), start: () => server.start(), lines: () => server.lines(),
    stop: async () => {
      // SIGINT = fast shutdown; SIGTERM would wait for the clients.
      if (server.running) await server.kill('SIGINT');
      await rm(folder, { recursive: true, force: true });
    },
  };
};
