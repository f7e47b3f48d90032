/**
 * The daemon's Unix socket: one owner, clean start after a crash, only admitted processes.
 *
 * Guarantees:
 * K1  Two daemons never serve the same path: the owner holds an exclusive flock(2) on `<path>.lock`, which the kernel gives
 *     back when the process dies however it dies. Everything below happens under it, so two that start at once cannot both win.
 * K2  A socket file that nobody answers (ECONNREFUSED) is removed; one that somebody answers is not: `socket_in_use`.
 * K3  The path appears only when it is bound, has its final mode and owner, and accepts: it is bound beside and renamed.
 * K4  A process that is not admitted is cut off before a byte of it is read.
 * Modes: the folder is made 0700 and the socket 0600; with `gids` 0710 and 0660 for the first of them. An existing folder must
 * belong to another user or be writable by group or others, for then the socket could be replaced.
 */
import { chmod, chown, lstat, mkdir, open, rename, stat, unlink, type FileHandle } from 'node:fs/promises';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { dirname } from 'node:path';
import koffi from 'koffi';
import { coded } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { encodeFrame, FrameReader, frameType, hello, linkVersion } from '../../contracts/link.ts';
import type { Log } from './log.ts';
import { admits, type PeerLookup, type PeerRule } from './peer.ts';

export interface SocketOptions {
  readonly path: string;
  /** Who is admitted besides the daemon's own uid. */
  readonly rule: PeerRule;
  readonly lookup: PeerLookup;
  readonly log: Log;
  readonly release: string;
  /** Milliseconds a process that holds the path has to say hello. Default `limits.linkHelloMs`. */
  readonly helloMs?: number;
}

export interface ClaimedSocket {
  readonly path: string;
  /** Binds the path; each admitted process's socket is handed over paused. */
  listen(onSocket: (socket: Socket) => void): Promise<void>;
  /** Takes no more connections, removes the path and gives the claim up. Sockets that live are their owner's to close. */
  close(): Promise<void>;
}

/** `sun_path` of unix(7) holds 108 bytes with its final zero. */
const pathMaxBytes = 107;

/**
 * Claims the path for this process, before anything is started that must not run twice. Throws `socket_in_use` with a sentence that
 * names the path and who holds it, `forbidden` for an unsafe folder, `bad_request` for an unusable path.
 */
export const claimSocket = async (options: SocketOptions): Promise<ClaimedSocket> => {
  const { path, rule, log } = options;
  const beside = `${path}.new`;
  if (Buffer.byteLength(beside) > pathMaxBytes) {
    throw coded('bad_request', `The socket path ${path} is too long: at most ${pathMaxBytes - 4} bytes are possible.`);
  }
  const gid = rule.gids[0];
  if (gid === undefined && rule.uids.some((uid) => uid !== 0 && uid !== ownUid())) {
    log.warn({ path }, 'allowed_uids name other users, but without allowed_gids the socket file is open to the daemon\'s own user only');
  }
  await prepareFolder(dirname(path), gid);
  const lock = await acquireLock(options);
  try {
    await clearPath(options);
  } catch (error) {
    await lock.close();
    throw error;
  }
  let server: Server | undefined;
  return {
    path,
    listen: async (onSocket) => {
      server = createServer({ pauseOnConnect: true }, (socket) => receive(socket, options, onSocket));
      await removeIfThere(beside);
      await listen(server, beside);
      // A failed accept (too many open files) must not end the process; the next one may pass.
      server.on('error', (error) => log.error({ path, err: error }, 'the daemon socket could not accept'));
      await chmod(beside, gid === undefined ? 0o600 : 0o660);
      if (gid !== undefined) await chown(beside, -1, gid);
      await rename(beside, path);
    },
    close: async () => {
      // Not awaited: it ends with the last connection, but the listening stops at once.
      server?.close();
      if (server !== undefined) await removeIfThere(path);
      await lock.close();
    },
  };
};

const receive = (socket: Socket, options: SocketOptions, onSocket: (socket: Socket) => void): void => {
  const { lookup, rule, log } = options;
  // Until its owner listens, a reset of the peer must not be an uncaught error.
  socket.on('error', () => socket.destroy());
  try {
    const peer = lookup(socket);
    if (!admits(rule, peer, ownUid())) {
      log.warn({ uid: peer.uid, gid: peer.gid, pid: peer.pid, code: 'peer_refused' }, 'process not admitted to the socket');
      socket.destroy();
      return;
    }
  } catch {
    log.warn({ code: 'peer_refused' }, 'process not admitted to the socket: it cannot be identified');
    socket.destroy();
    return;
  }
  onSocket(socket);
};

const ownUid = (): number => {
  const uid = process.geteuid?.();
  if (uid === undefined) throw coded('peer_refused', 'This system has no user ids.');
  return uid;
};

const prepareFolder = async (folder: string, gid: number | undefined): Promise<void> => {
  const made = await mkdir(folder, { recursive: true, mode: 0o700 });
  if (made !== undefined) {
    await chmod(folder, gid === undefined ? 0o700 : 0o710);
    if (gid !== undefined) await chown(folder, -1, gid);
    return;
  }
  const { mode, uid } = await stat(folder);
  if (uid !== 0 && uid !== ownUid()) throw coded('forbidden', `The folder ${folder} belongs to uid ${uid}, who could replace the daemon's socket.`);
  if ((mode & 0o022) === 0) return;
  throw coded('forbidden', `The folder ${folder} is writable by others (mode ${(mode & 0o7777).toString(8)}), who could replace the daemon's socket. Make it 0700 or 0710.`);
};

/** LOCK_EX | LOCK_NB of sys/file.h. */
const exclusiveNow = 2 | 4;

const acquireLock = async (options: SocketOptions): Promise<FileHandle> => {
  const { path } = options;
  const file = await open(`${path}.lock`, 'a+', 0o600);
  try {
    const flock: (fd: number, operation: number) => number = koffi.load(null).func('int flock(int fd, int operation)');
    if (flock(file.fd, exclusiveNow) === 0) {
      await file.truncate(0);
      await file.write(`${process.pid}\n`);
      return file;
    }
    const holder = (await file.readFile('utf8')).trim() || 'unknown';
    const found = await probe(options);
    if (found.name === 'answers') throw inUse(path, `the daemon with pid ${found.pid} serves it`);
    if (found.name === 'silent') throw inUse(path, `the process with pid ${holder} accepts connections on it but does not answer`);
    throw inUse(path, `the daemon with pid ${holder} holds its lock (it is starting or stopping)`);
  } catch (error) {
    await file.close();
    throw error;
  }
};

const inUse = (path: string, why: string) => coded('socket_in_use', `The socket ${path} is in use: ${why}.`);

/** With the lock held: removes what a crash left, refuses what somebody still answers or what is no socket. */
const clearPath = async (options: SocketOptions): Promise<void> => {
  const { path, log } = options;
  const found = await lstat(path).catch(ignoreMissing);
  if (found === undefined) return;
  if (!found.isSocket()) throw coded('bad_request', `${path} exists and is not a socket. It was left as it is.`);
  const answer = await probe(options);
  switch (answer.name) {
    case 'nobody':
      await removeIfThere(path);
      log.info({ path }, 'stale socket removed');
      return;
    case 'answers':
      throw inUse(path, `the daemon with pid ${answer.pid} serves it`);
    case 'silent':
      throw inUse(path, 'a process accepts connections on it but does not answer');
  }
};

type Probe = { readonly name: 'nobody' } | { readonly name: 'answers'; readonly pid: number } | { readonly name: 'silent' };

/** Says hello on the path and looks who answers. */
const probe = (options: SocketOptions): Promise<Probe> =>
  new Promise((resolve, reject) => {
    const socket = connect({ path: options.path });
    const end = (result: Probe): void => {
      clearTimeout(timer);
      socket.destroy();
      resolve(result);
    };
    const timer = setTimeout(() => end({ name: 'silent' }), options.helloMs ?? limits.linkHelloMs);
    const reader = new FrameReader((frame) => {
      if (frame.type === frameType.hello) end({ name: 'answers', pid: pidOf(frame.payload) });
    });
    socket.on('connect', () => {
      const own = { version: linkVersion, role: 'daemon', release: options.release, pid: process.pid };
      socket.write(encodeFrame(frameType.hello, 0, JSON.stringify(own)));
    });
    socket.on('data', (chunk: Buffer) => {
      try {
        reader.push(chunk);
      } catch {
        end({ name: 'silent' });
      }
    });
    // Somebody accepted and closed without hello: it lives, but it is no daemon that admits us.
    socket.on('end', () => end({ name: 'silent' }));
    socket.on('error', (error: NodeJS.ErrnoException) => {
      if (error.code === 'ECONNREFUSED' || error.code === 'ENOENT') end({ name: 'nobody' });
      else if (error.code === 'ECONNRESET' || error.code === 'EPIPE' || error.code === 'EAGAIN') end({ name: 'silent' });
      else {
        clearTimeout(timer);
        reject(coded('forbidden', `The socket ${options.path} cannot be looked at: ${error.code ?? 'unknown error'}.`, { cause: error }));
      }
    });
  });

const pidOf = (payload: Buffer): number => {
  const parsed = hello.safeParse(JSON.parse(payload.toString('utf8')));
  return parsed.success ? parsed.data.pid : 0;
};

const listen = (server: Server, path: string): Promise<void> =>
  new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen({ path }, () => {
      server.removeListener('error', reject);
      resolve();
    });
  });

const ignoreMissing = (error: NodeJS.ErrnoException): undefined => {
  if (error.code === 'ENOENT') return undefined;
  throw error;
};

const removeIfThere = async (path: string): Promise<void> => {
  await unlink(path).catch(ignoreMissing);
};
