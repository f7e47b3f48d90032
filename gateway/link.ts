/**
 * The gateway's link to the daemons of its machine: one connection per daemon socket, calls and streams over them.
 *
 * Guarantees: a lost socket is dialled again for ever (jittered, `linkRedialMinMs` … `linkRedialMaxMs`), so a restarted daemon
 * is found without a restart here; the folder is looked at again every `linkRescanMs`, so a new daemon is found too, and both at once
 * when the last daemon that took calls leaves, so that daemons may be restarted one after the other; a call goes to the daemon that owns its partition where one does, else to the one with least running; it is never queued for a
 * daemon that is not there: with none connected the answer is `upstream_unavailable` at once.
 * Does not retry calls: whether a repeat is safe is the caller's knowledge.
 */
import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { coded, CodedError } from '../contracts/errors.ts';
import { limits } from '../contracts/limits.ts';
import { closeCodes } from '../contracts/stream.ts';
import { partitionOfTokens } from '../contracts/subjects.ts';
import { Connection, type LinkAnswer, type LinkLog, type LinkOpen, type LinkRequest, type LinkRoute, type LinkStream } from './link-connection.ts';

export type { LinkAnswer, LinkLog, LinkOpen, LinkRequest, LinkRoute, LinkStream } from './link-connection.ts';

export interface LinkOptions {
  /** A daemon's socket, or a folder of numbered ones (`d0.sock`, `d1.sock` …). It need not exist yet. */
  readonly socketPath: string;
  /** Product version, told to the daemon. */
  readonly release: string;
  readonly log: LinkLog;
  /** Milliseconds a request may take unless it says otherwise. Default `limits.upstreamDeadlineMs`. */
  readonly deadlineMs?: number;
  /** Default `limits.linkPingMs`. */
  readonly pingMs?: number;
  /** Default `limits.linkHelloMs`. */
  readonly helloMs?: number;
  /** Default `limits.linkRescanMs`. */
  readonly rescanMs?: number;
  /** 0 … 1, for the jitter. Default `Math.random`. */
  readonly random?: () => number;
}

export interface LinkState {
  /** Daemons that take new calls. */
  readonly connected: number;
  /** Sockets known. */
  readonly sockets: number;
}

export interface Link {
  /** Rejects with `upstream_unavailable`, `upstream_timeout`, `overloaded`, `aborted`, `frame_too_large`, `bad_bearer`. */
  request(route: LinkRoute, request: LinkRequest): Promise<LinkAnswer>;
  /** Never throws: a stream that cannot be opened ends with 4004 through `onClose`, on a later turn of the event loop. */
  open(route: LinkRoute, open: LinkOpen): LinkStream;
  state(): LinkState;
  /** Called with every change of `state`; gives the way to stop. */
  onState(callback: (state: LinkState) => void): () => void;
  /** Refuses new calls, waits for what runs, closes. */
  drain(): Promise<void>;
  close(): void;
}

type Target =
  | { readonly name: 'waiting'; readonly timer: NodeJS.Timeout; readonly failures: number }
  | { readonly name: 'dialled'; readonly connection: Connection; readonly failures: number };

const numbered = /^d(\d{1,6})\.sock$/;

/** Starts connecting; resolves nothing, waits for nothing. See `Link`. */
export const connectLink = (options: LinkOptions): Link => {
  const { log, socketPath } = options;
  const deadlineMs = options.deadlineMs ?? limits.upstreamDeadlineMs;
  const random = options.random ?? Math.random;
  const targets = new Map<string, Target>();
  const callbacks = new Set<(state: LinkState) => void>();
  let ready: readonly Connection[] = [];
  let accepting = true;
  let closed = false;
  let shownState = '';
  let rescan: NodeJS.Timeout | undefined;

  const state = (): LinkState => ({ connected: ready.length, sockets: targets.size });

  const changed = (): void => {
    const found: Connection[] = [];
    for (const target of targets.values()) {
      if (target.name === 'dialled' && target.connection.phase === 'ready') found.push(target.connection);
    }
    ready = found;
    const now = `${ready.length}/${targets.size}`;
    if (now === shownState) return;
    shownState = now;
    for (const callback of callbacks) callback(state());
  };

  const onChange = (path: string, connection: Connection): void => {
    const target = targets.get(path);
    if (target?.name !== 'dialled' || target.connection !== connection) return;
    const before = ready.length;
    switch (connection.phase) {
      case 'ready':
        if (target.failures !== 0) targets.set(path, { ...target, failures: 0 });
        break;
      case 'ended':
        redial(path, target.failures, connection);
        break;
      case 'dialling':
      case 'leaving':
        break;
    }
    changed();
    if (before > 0 && ready.length === 0 && accepting) seek(path);
  };

  const redial = (path: string, failures: number, ended: Connection): void => {
    const fields = { socket: path, code: ended.error?.code };
    if (ended.error?.code === 'version_mismatch') log.warn({ ...fields, reason: ended.error.message }, 'link refused');
    else if (failures === 0 && !closed) log.info(fields, 'link lost');
    if (closed || !accepting) {
      targets.delete(path);
      return;
    }
    const ceiling = Math.min(limits.linkRedialMaxMs, limits.linkRedialMinMs * 2 ** Math.min(failures, 10));
    const floor = ended.error?.code === 'version_mismatch' ? limits.linkRedialMaxMs / 2 : limits.linkRedialMinMs / 2;
    const waitMs = Math.max(floor, Math.round(random() * ceiling));
    targets.set(path, { name: 'waiting', failures: failures + 1, timer: setTimeout(() => dial(path, failures + 1), waitMs) });
  };

  const dial = (path: string, failures: number): void => {
    const connection = new Connection({
      socketPath: path, release: options.release,
      pingMs: options.pingMs ?? limits.linkPingMs, helloMs: options.helloMs ?? limits.linkHelloMs,
      onChange: (c) => onChange(path, c),
    });
    targets.set(path, { name: 'dialled', connection, failures });
  };

  /** Nobody takes calls any more: who else may be there is not left to timers. The socket just lost keeps its wait. */
  const seek = (lost: string): void => {
    for (const [path, target] of targets) {
      if (path === lost || target.name !== 'waiting') continue;
      clearTimeout(target.timer);
      dial(path, target.failures);
    }
    scanAgain();
  };

  const scan = async (): Promise<void> => {
    const found = await findSockets(socketPath);
    if (closed || !accepting) return;
    if (found.length > limits.linkSocketsMax) log.warn({ socketPath, found: found.length }, 'too many daemon sockets, the rest is not used');
    const paths = new Set(found.slice(0, limits.linkSocketsMax));
    for (const path of paths) if (!targets.has(path)) dial(path, 0);
    for (const [path, target] of targets) {
      // A socket that is gone from the folder is no longer dialled; a connection that lives on it lives on.
      if (target.name === 'waiting' && !paths.has(path)) {
        clearTimeout(target.timer);
        targets.delete(path);
      }
    }
    changed();
  };

  const scanAgain = (): void => {
    scan().catch((error: unknown) => log.warn({ socketPath, error: String(error) }, 'daemon sockets could not be listed')).finally(() => {
      clearTimeout(rescan);
      if (!closed && accepting) rescan = setTimeout(scanAgain, options.rescanMs ?? limits.linkRescanMs);
    });
  };
  scanAgain();

  /** The owner of the partition if it takes the call, else the one with least running that takes it. */
  const choose = (kind: 'request' | 'stream', partitionKey: string | undefined): Connection => {
    if (!accepting) throw coded('upstream_unavailable');
    let best: Connection | undefined;
    for (const connection of ready) {
      if (!connection.accepts(kind)) continue;
      if (partitionKey !== undefined && connection.partitions > 0 && connection.owns(partitionOfTokens(partitionKey, connection.partitions))) return connection;
      if (best === undefined || connection.running < best.running) best = connection;
    }
    if (best === undefined) throw coded(ready.length === 0 ? 'upstream_unavailable' : 'overloaded');
    return best;
  };

  const stop = (): void => {
    accepting = false;
    clearTimeout(rescan);
    for (const [path, target] of targets) {
      if (target.name !== 'waiting') continue;
      clearTimeout(target.timer);
      targets.delete(path);
    }
  };

  return {
    request: (route, request) => {
      // Not an async function: on this path a promise more is a tenth of the cost of a call.
      try {
        return choose('request', request.partitionKey).request(route, request, request.deadlineMs ?? deadlineMs);
      } catch (error) {
        return Promise.reject(error instanceof CodedError ? error : coded('internal_error', undefined, { cause: error }));
      }
    },
    open: (route, open) => {
      try {
        return choose('stream', open.partitionKey).open(route, open, deadlineMs);
      } catch (error) {
        log.debug({ error: String(error) }, 'stream not opened');
        return refused(open);
      }
    },
    state,
    onState: (callback) => {
      callbacks.add(callback);
      return () => callbacks.delete(callback);
    },
    drain: async () => {
      stop();
      const connections = [...targets.values()].flatMap((target) => (target.name === 'dialled' ? [target.connection] : []));
      await Promise.all(connections.map((connection) => connection.drain()));
      closed = true;
    },
    close: () => {
      closed = true;
      stop();
      for (const target of targets.values()) if (target.name === 'dialled') target.connection.close();
    },
  };
};

/** A stream that ends as soon as the caller has its handle. */
const refused = (open: LinkOpen): LinkStream => {
  let live = true;
  setImmediate(() => {
    if (live) open.onClose(closeCodes.upstream_unavailable.code, closeCodes.upstream_unavailable.reason);
  });
  return {
    send: () => undefined,
    body: () => undefined,
    credit: () => undefined,
    close: () => {
      live = false;
    },
  };
};

/** The path itself, or the numbered sockets in it if it is a folder. A path that does not exist is a socket to come. */
const findSockets = async (path: string): Promise<string[]> => {
  const found = await stat(path).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return undefined;
    throw error;
  });
  if (found?.isDirectory() !== true) return [path];
  const names = (await readdir(path)).flatMap((name) => {
    const number = numbered.exec(name)?.[1];
    return number === undefined ? [] : [{ name, number: Number(number) }];
  });
  return names.sort((a, b) => a.number - b.number).map(({ name }) => join(path, name));
};
