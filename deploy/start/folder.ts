/**
 * The folder `.troupe`: where everything that `npm start` makes and keeps lies, and how a private file is written.
 *
 * Guarantee: the folder is 0700 and every file written through `writePrivate` 0600 from its first byte; a file is replaced
 * whole (rename), so a reader or a crash never meets half of one. It decides nothing about the content.
 */
import { randomBytes } from 'node:crypto';
import { chmodSync, existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { z } from 'zod';

/** Bytes of a Unix socket's path that every system takes (Linux 108, macOS 104, both with the final zero). */
const socketPathMaxBytes = 103;

export interface Folder {
  readonly path: string;
  readonly secrets: string;
  readonly tls: string;
  readonly data: string;
  readonly log: string;
  readonly run: string;
  readonly natsConfig: string;
  readonly daemonConfig: string;
  readonly gatewayConfig: string;
  readonly devFile: string;
  /** The development account (account.ts). */
  readonly accountFile: string;
  /** The development deployment (deployment.ts). */
  readonly deploymentFile: string;
  /** Mails in place of being sent. */
  readonly outbox: string;
  /** Folder of the sockets: `run`, or a private folder in the system's temporary one where that path is too long. */
  readonly sockets: string;
}

/** What must stay the same from start to start. Ports are wishes: a taken one is replaced. */
export const state = z.strictObject({
  /** Names this folder among others on the machine. */
  id: z.string().regex(/^[a-f0-9]{16}$/),
  natsPort: z.int(),
  postgresPort: z.int(),
  opsPort: z.int(),
  mailPort: z.int(),
  deploymentPort: z.int(),
  /** Fixed once the journal exists. */
  journalStreams: z.int(),
});
export type State = z.infer<typeof state>;

const privateFolder = (path: string): string => {
  mkdirSync(path, { recursive: true, mode: 0o700 });
  chmodSync(path, 0o700);
  return path;
};

/** Writes a file of mode 0600, whole or not at all. */
export const writePrivate = (path: string, content: string | Uint8Array): void => {
  const draft = `${path}.${randomBytes(4).toString('hex')}.tmp`;
  writeFileSync(draft, content, { mode: 0o600, flag: 'wx' });
  renameSync(draft, path);
};

/** The file's content, or what `make` gives, written first. */
export const keepOrMake = (path: string, make: () => string): string => {
  if (existsSync(path)) {
    const kept = readFileSync(path, 'utf8');
    if (kept !== '') return kept;
  }
  const made = make();
  writePrivate(path, made);
  return made;
};

/** Makes `<parent>/.troupe` with its subfolders where they are missing. */
export const openFolder = (parent: string): Folder => {
  const path = privateFolder(join(parent, '.troupe'));
  const run = privateFolder(join(path, 'run'));
  const longest = Buffer.byteLength(join(run, 'daemon', 'd000.sock'));
  const id = keepOrMake(join(path, 'id'), () => randomBytes(8).toString('hex'));
  return {
    path, run,
    secrets: privateFolder(join(path, 'secrets')),
    tls: privateFolder(join(path, 'tls')),
    data: privateFolder(join(path, 'data')),
    log: privateFolder(join(path, 'log')),
    natsConfig: join(privateFolder(join(path, 'nats')), 'nats.conf'),
    daemonConfig: join(path, 'daemon.toml'),
    gatewayConfig: join(path, 'gateway.toml'),
    devFile: join(path, 'dev.json'),
    accountFile: join(path, 'account.json'),
    deploymentFile: join(path, 'deployment.json'),
    outbox: privateFolder(join(path, 'mail')),
    sockets: longest <= socketPathMaxBytes ? run : privateFolder(join(tmpdir(), `troupe-${id}`)),
  };
};

/** The state kept from the start before, with `initial` for what is new. */
export const loadState = (folder: Folder, initial: Omit<State, 'id'>): State => {
  const file = join(folder.path, 'state.json');
  const id = readFileSync(join(folder.path, 'id'), 'utf8');
  if (!existsSync(file)) return { id, ...initial };
  return state.parse({ ...initial, ...JSON.parse(readFileSync(file, 'utf8')) as object, id });
};

export const saveState = (folder: Folder, value: State): void =>
  writePrivate(join(folder.path, 'state.json'), `${JSON.stringify(value, null, 2)}\n`);

/** The `.troupe` at or above a folder, or undefined. */
export const findFolder = (from: string): string | undefined => {
  for (let at = from; ; at = dirname(at)) {
    if (existsSync(join(at, '.troupe'))) return join(at, '.troupe');
    if (dirname(at) === at) return undefined;
  }
};
