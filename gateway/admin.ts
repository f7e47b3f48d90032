/**
 * The admin socket: one JSON line a request, one a reply, over a Unix socket of mode 0660 (decisions, Edge gateway).
 *
 * Guarantees: a peer that is not admitted is answered `peer_refused` before a byte of it is read; lines are bounded
 * (`adminLineMaxBytes`), connections too; requests of one connection are answered in order. It offers no TCP listener.
 */
import { chmod, chown, unlink } from 'node:fs/promises';
import { connect, createServer, type Socket } from 'node:net';
import { adminRequest, type AdminReply, type AdminRequest } from '../contracts/admin.ts';
import { coded, CodedError, refuse, shown } from '../contracts/errors.ts';
import { limits } from '../contracts/limits.ts';
import { parseJson, parseValue } from '../contracts/validate.ts';
import type { Admission } from './admission.ts';
import type { Log } from './log.ts';

/** One operation each; what it resolves with is the reply's `result`, what it rejects with the reply's error. */
export type AdminOps = { readonly [Op in AdminRequest['op']]: (request: Extract<AdminRequest, { op: Op }>) => unknown };

export interface AdminOptions {
  readonly socketPath: string;
  /** Numeric group of the socket file, so that the admitted can reach it. undefined = the process's own. */
  readonly gid: number | undefined;
  readonly admission: Admission;
  readonly ops: AdminOps;
  readonly log: Log;
}

export interface Admin {
  close(): Promise<void>;
}

/** Rejects with `socket_in_use` if a process answers on the path. */
export const startAdmin = async (options: AdminOptions): Promise<Admin> => {
  const { socketPath, log } = options;
  const open = new Set<Socket>();
  const server = createServer({ pauseOnConnect: true }, (socket) => {
    socket.on('error', (error) => log.debug({ error: error.message }, 'admin connection failed'));
    if (open.size >= limits.adminConnectionsMax) return void socket.destroy();
    open.add(socket);
    socket.on('close', () => open.delete(socket));
    const fd = descriptorOf(socket);
    if (fd === undefined || !options.admission.admits(fd)) {
      socket.end(line(failure(coded('peer_refused', 'Only the configured group may use this socket.'))));
      return;
    }
    converse(socket, options).catch((error: unknown) => log.debug({ error: String(error) }, 'admin connection ended'));
  });
  await clearStale(socketPath);
  await new Promise<void>((resolve, reject) => {
    server.once('error', (error) => reject(refuse('bad_config', `admin.socket_path: ${error.message}`)));
    server.listen(socketPath, resolve);
  });
  server.on('error', (error) => log.error({ error: error.message }, 'admin socket failed'));
  if (options.gid !== undefined) {
    await chown(socketPath, process.geteuid?.() ?? -1, options.gid).catch((error: unknown) =>
      log.warn({ socketPath, error: String(error) }, 'the admin socket keeps its group: members may be unable to open it'));
  }
  await chmod(socketPath, 0o660);
  return {
    close: () => new Promise((resolve) => {
      server.close(() => resolve());
      for (const socket of open) socket.destroy();
    }),
  };
};

const descriptorOf = (socket: Socket): number | undefined => {
  const handle: unknown = Reflect.get(socket, '_handle');
  const fd: unknown = typeof handle === 'object' && handle !== null ? Reflect.get(handle, 'fd') : undefined;
  return typeof fd === 'number' && fd >= 0 ? fd : undefined;
};

/** Removes a socket file nobody answers on. */
const clearStale = async (path: string): Promise<void> => {
  const found = await new Promise<'free' | 'stale' | 'served'>((resolve, reject) => {
    const probe = connect(path);
    probe.once('connect', () => {
      probe.destroy();
      resolve('served');
    });
    probe.once('error', (error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT') resolve('free');
      else if (error.code === 'ECONNREFUSED') resolve('stale');
      else reject(refuse('bad_config', `admin.socket_path: ${error.message}`));
    });
  });
  if (found === 'served') throw coded('socket_in_use', `Another process serves the admin socket ${path}.`);
  if (found === 'stale') await unlink(path);
};

const failure = (error: unknown): AdminReply => {
  const { code, message } = shown(error);
  return { ok: false, error: { code, message } };
};

const line = (reply: AdminReply): string => `${JSON.stringify(reply)}\n`;

/** Reads lines and answers them in order, one at a time, until the peer ends. */
const converse = async (socket: Socket, options: AdminOptions): Promise<void> => {
  let rest: Buffer = Buffer.alloc(0);
  for await (const chunk of socket as AsyncIterable<Buffer>) {
    rest = rest.length === 0 ? chunk : Buffer.concat([rest, chunk]);
    for (let end = rest.indexOf(0x0a); end >= 0; end = rest.indexOf(0x0a)) {
      const text = rest.toString('utf8', 0, end);
      rest = rest.subarray(end + 1);
      if (end > limits.adminLineMaxBytes) return void socket.end(line(failure(tooLong())));
      if (text.trim() === '') continue;
      const reply = await perform(text, options);
      if (!socket.write(line(reply))) await new Promise((resolve) => socket.once('drain', resolve).once('close', resolve));
    }
    if (rest.length > limits.adminLineMaxBytes) return void socket.end(line(failure(tooLong())));
  }
};

const tooLong = (): CodedError => coded('bad_request', 'The line is too long.');

const known: ReadonlySet<unknown> = new Set(adminRequest.options.map((option) => option.shape.op.value));

const perform = async (text: string, { ops, log }: AdminOptions): Promise<AdminReply> => {
  try {
    const value = parseJson(text);
    if (typeof value !== 'object' || value === null || !('op' in value)) throw coded('bad_request', 'A request is a JSON object with op.');
    if (!known.has(value.op)) throw coded('unknown_op');
    const request = parseValue(adminRequest, value);
    const result = await run(ops, request);
    log.info({ op: request.op }, 'admin operation');
    return { ok: true, result };
  } catch (error) {
    if (!(error instanceof CodedError)) log.error({ error: String(error) }, 'admin operation failed');
    return failure(error);
  }
};

const run = (ops: AdminOps, request: AdminRequest): unknown => {
  switch (request.op) {
    case 'health':
      return ops.health(request);
    case 'jwks_flush':
      return ops.jwks_flush(request);
    case 'jwks_dump':
      return ops.jwks_dump(request);
    case 'rate_limit_inspect':
      return ops.rate_limit_inspect(request);
    case 'rate_limit_override':
      return ops.rate_limit_override(request);
    case 'drain':
      return ops.drain(request);
    case 'cert_reload':
      return ops.cert_reload(request);
  }
};
