/**
 * One connection of the gateway to one daemon socket: hello, requests, streams, pings, end.
 *
 * Guarantees (L1-L7 of contracts/link.ts, the gateway's half):
 * C1  Every request ends exactly once: answered, timed out (`upstream_timeout`), cancelled (`aborted`) or lost with the
 *     connection (`upstream_unavailable`). A request given up here is cancelled there.
 * C2  Every stream ends exactly once: by `onClose`, or by the caller's own `close`.
 * C3  What waits is bounded: requests, streams and queued bytes; beyond, `overloaded`.
 * C4  A daemon that breaks the protocol, sends more than its credit, or answers no ping loses the connection.
 * It does not dial again: that is link.ts.
 */
import { connect, type Socket } from 'node:net';
import { coded, CodedError } from '../contracts/errors.ts';
import { limits } from '../contracts/limits.ts';
import {
  decodeClose, decodeData, decodeResponse, encodeClose, encodeCredit, encodeFrame, encodeRequest, FrameReader, frameType, hello,
  linkVersion, owns, type Frame, type Hello,
} from '../contracts/link.ts';
import { FrameBatch } from '../contracts/link-batch.ts';
import { closeCodes } from '../contracts/stream.ts';

/** What the link writes about its own life; pino fits. */
export interface LinkLog {
  debug(fields: object, message: string): void;
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
}

/** What the link needs of an entry of contracts/routes.ts. */
export interface LinkRoute {
  readonly wire: number;
}

export interface LinkAnswer {
  /** HTTP status the daemon gave. */
  readonly status: number;
  /** A view into the receive buffer: write it out or copy it, do not keep it. */
  readonly body: Buffer;
}

export interface LinkRequest {
  /** The capability; empty where the route needs none. */
  readonly token: string;
  readonly body: Uint8Array | string;
  /** Milliseconds. Default: the link's `deadlineMs`. */
  readonly deadlineMs?: number;
  /** Address tokens of the actor the call is for; its partition's owner is preferred. Absent = any daemon. */
  readonly partitionKey?: string;
  readonly signal?: AbortSignal;
}

export interface LinkOpen {
  readonly token: string;
  readonly body: Uint8Array | string;
  readonly partitionKey?: string;
  /** Finished WebSocket texts, in order, views into the receive buffer; `bytes` = their total, to be given back with `credit`. */
  readonly onTexts: (texts: readonly Buffer[], bytes: number) => void;
  /** The daemon takes so many further bytes of the request's body. Absent = the request has none that is streamed. */
  readonly onGrant?: (bytes: number) => void;
  /** Once, with a close code of contracts/stream.ts. Not called after the caller's own `close`. */
  readonly onClose: (code: number, reason: string) => void;
}

export interface LinkStream {
  /** One client text message towards the daemon. After the end: ignored. */
  send(text: string | Buffer): void;
  /** The next bytes of the request's body, no more than was granted; none at all = it is complete. After the end: ignored. */
  body(bytes: Uint8Array): void;
  /** Grants this many further bytes. */
  credit(bytes: number): void;
  close(code: number, reason: string): void;
}

interface Pending {
  readonly deadlineAt: number;
  readonly resolve: (answer: LinkAnswer) => void;
  readonly reject: (error: CodedError) => void;
  readonly signal: AbortSignal | undefined;
  readonly onAbort: (() => void) | undefined;
}

interface Open {
  credit: number;
  readonly onTexts: LinkOpen['onTexts'];
  readonly onGrant: LinkOpen['onGrant'];
  readonly onClose: LinkOpen['onClose'];
}

type Phase =
  | { readonly name: 'dialling' }
  /** `leaving`: the daemon said goaway; what runs goes on, nothing new is sent here. */
  | { readonly name: 'ready' | 'leaving'; readonly peer: Hello }
  | { readonly name: 'ended' };

export interface ConnectionOptions {
  readonly socketPath: string;
  readonly release: string;
  readonly pingMs: number;
  readonly helloMs: number;
  /** The connection became ready, leaves, ended, or its partitions changed. `error` says why it ended. */
  readonly onChange: (connection: Connection) => void;
}

/** Milliseconds between two sweeps for passed deadlines: no timer per call. */
const sweepMs = 50;

export class Connection {
  readonly socketPath: string;
  readonly #options: ConnectionOptions;
  readonly #socket: Socket;
  readonly #reader: FrameReader;
  readonly #batch: FrameBatch;
  readonly #pending = new Map<number, Pending>();
  readonly #open = new Map<number, Open>();
  readonly #helloTimer: NodeJS.Timeout;
  #sweep: NodeJS.Timeout | undefined;
  #ping: NodeJS.Timeout | undefined;
  #phase: Phase = { name: 'dialling' };
  #partitions = 0;
  #owned: ReadonlySet<number> = new Set();
  #lastId = 0;
  #unanswered = 0;
  /** Called when nothing runs any more, while draining. */
  #onIdle: (() => void) | undefined;
  /** Why it ended; `version_mismatch` makes the next dial slow. */
  error: CodedError | undefined;

  constructor(options: ConnectionOptions) {
    this.#options = options;
    this.socketPath = options.socketPath;
    this.#reader = new FrameReader((frame) => this.#onFrame(frame));
    this.#socket = connect({ path: options.socketPath });
    this.#batch = new FrameBatch((bytes) => this.#socket.write(bytes));
    this.#helloTimer = setTimeout(() => this.#end(coded('upstream_timeout', 'The daemon said no hello.')), options.helloMs);
    this.#socket.on('connect', () => {
      const own: Hello = { version: linkVersion, role: 'gateway', release: options.release, pid: process.pid };
      this.#socket.write(encodeFrame(frameType.hello, 0, JSON.stringify(own)));
    });
    this.#socket.on('data', (chunk: Buffer) => {
      try {
        this.#reader.push(chunk);
      } catch (error) {
        this.#end(error instanceof CodedError ? error : coded('protocol_error', undefined, { cause: error }));
      }
    });
    this.#socket.on('error', (cause) => this.#end(coded('upstream_unavailable', undefined, { cause })));
    this.#socket.on('close', () => this.#end(coded('upstream_unavailable')));
  }

  get phase(): Phase['name'] {
    return this.#phase.name;
  }

  /** Requests and streams that run. */
  get running(): number {
    return this.#pending.size + this.#open.size;
  }

  /** Partitions of the daemon's cluster; 0 before hello. */
  get partitions(): number {
    return this.#partitions;
  }

  owns(partition: number): boolean {
    return this.#owned.has(partition);
  }

  /** True if a further request or stream would be taken. */
  accepts(kind: 'request' | 'stream'): boolean {
    if (this.#phase.name !== 'ready') return false;
    if (this.#queuedBytes() > limits.linkQueueMaxBytes) return false;
    return kind === 'request' ? this.#pending.size < limits.linkRequestsMax : this.#open.size < limits.linkStreamsMax;
  }

  /** Rejects with `upstream_unavailable`, `upstream_timeout`, `overloaded`, `aborted`, `frame_too_large`. */
  request(route: LinkRoute, request: LinkRequest, deadlineMs: number): Promise<LinkAnswer> {
    return new Promise((resolve, reject: (error: CodedError) => void) => {
      if (!this.accepts('request')) {
        reject(coded(this.#phase.name === 'ready' ? 'overloaded' : 'upstream_unavailable'));
        return;
      }
      const { signal } = request;
      if (signal?.aborted === true) {
        reject(coded('aborted'));
        return;
      }
      const id = this.#nextId();
      let frame: Buffer;
      try {
        frame = encodeRequest(frameType.request, id, { route: route.wire, deadlineMs, token: request.token, body: request.body });
      } catch (error) {
        reject(error instanceof CodedError ? error : coded('internal_error', undefined, { cause: error }));
        return;
      }
      const onAbort = signal === undefined ? undefined : (): void => this.#giveUp(id, coded('aborted'));
      if (onAbort !== undefined) signal?.addEventListener('abort', onAbort, { once: true });
      this.#pending.set(id, { deadlineAt: performance.now() + deadlineMs, resolve, reject, signal, onAbort });
      this.#sweep ??= setInterval(() => this.#sweepDeadlines(), sweepMs);
      this.#batch.add(frame);
    });
  }

  /** Throws `upstream_unavailable` or `overloaded` when nothing new is taken, `frame_too_large`, `bad_bearer`. */
  open(route: LinkRoute, open: LinkOpen, deadlineMs: number): LinkStream {
    if (!this.accepts('stream')) throw coded(this.#phase.name === 'ready' ? 'overloaded' : 'upstream_unavailable');
    const id = this.#nextId();
    this.#batch.add(encodeRequest(frameType.open, id, { route: route.wire, deadlineMs, token: open.token, body: open.body }));
    this.#open.set(id, { credit: limits.linkInitialCreditBytes, onTexts: open.onTexts, onGrant: open.onGrant, onClose: open.onClose });
    return {
      send: (text) => {
        if (!this.#open.has(id)) return;
        if (this.#queuedBytes() > limits.linkQueueMaxBytes) {
          // The daemon takes no bytes: dropping this message silently would lose it, so the client is told to come back.
          const { upstream_unavailable: lost } = closeCodes;
          this.#batch.add(encodeClose(id, lost.code, lost.reason));
          this.#endStream(id, lost.code, lost.reason);
          return;
        }
        this.#batch.add(encodeFrame(frameType.data, id, text));
      },
      // What may wait here is bounded by the grants.
      body: (bytes) => {
        if (this.#open.has(id)) this.#batch.add(encodeFrame(frameType.body, id, bytes));
      },
      credit: (bytes) => {
        const stream = this.#open.get(id);
        if (stream === undefined || bytes <= 0) return;
        stream.credit += bytes;
        this.#batch.add(encodeCredit(id, bytes));
      },
      close: (code, reason) => {
        if (!this.#open.delete(id)) return;
        this.#batch.add(encodeClose(id, code, reason));
        this.#settled();
      },
    };
  }

  /** Says goaway and resolves when everything that runs has ended; then the connection is closed. */
  drain(): Promise<void> {
    if (this.#phase.name === 'ended') return Promise.resolve();
    if (this.#phase.name === 'dialling') {
      this.#end(coded('draining'));
      return Promise.resolve();
    }
    this.#phase = { ...this.#phase, name: 'leaving' };
    this.#batch.add(encodeFrame(frameType.goaway, 0, 'draining'));
    return new Promise((resolve) => {
      this.#onIdle = () => {
        this.#onIdle = undefined;
        this.#batch.flush();
        this.#end(coded('draining'), true);
        resolve();
      };
      this.#settled();
    });
  }

  close(): void {
    this.#end(coded('draining'));
  }

  #queuedBytes(): number {
    return this.#batch.bytes + this.#socket.writableLength;
  }

  #nextId(): number {
    do this.#lastId = this.#lastId >= 0xffff_ffff ? 1 : this.#lastId + 1;
    while (this.#pending.has(this.#lastId) || this.#open.has(this.#lastId));
    return this.#lastId;
  }

  #onFrame(frame: Frame): void {
    this.#unanswered = 0;
    switch (this.#phase.name) {
      case 'ended':
        return;
      case 'dialling':
        this.#onHello(frame);
        return;
      case 'ready':
      case 'leaving':
        this.#onServed(frame);
        return;
    }
  }

  #onHello(frame: Frame): void {
    if (frame.type !== frameType.hello) throw coded('protocol_error', 'The first frame is not hello.');
    const peer = readJson(frame.payload, hello);
    if (peer.version !== linkVersion) {
      throw coded('version_mismatch', `The daemon (release ${peer.release}) speaks link version ${peer.version}, this gateway ${linkVersion}.`);
    }
    if (peer.role !== 'daemon') throw coded('protocol_error', 'The peer is not a daemon.');
    clearTimeout(this.#helloTimer);
    this.#partitions = peer.partitions ?? 0;
    this.#phase = { name: 'ready', peer };
    this.#ping = setInterval(() => this.#onPingDue(), this.#options.pingMs);
    this.#options.onChange(this);
  }

  #onServed(frame: Frame): void {
    switch (frame.type) {
      case frameType.response:
        this.#onResponse(frame);
        return;
      case frameType.data:
        this.#onData(frame);
        return;
      case frameType.close: {
        const { code, reason } = decodeClose(frame.payload);
        this.#endStream(frame.id, code, reason);
        return;
      }
      case frameType.owns:
        this.#owned = new Set(readJson(frame.payload, owns).partitions);
        this.#options.onChange(this);
        return;
      case frameType.credit:
        if (frame.payload.length !== 4) throw coded('protocol_error');
        // Unknown ids crossed our close.
        this.#open.get(frame.id)?.onGrant?.(frame.payload.readUInt32BE(0));
        return;
      case frameType.goaway:
        if (this.#phase.name !== 'ready') return;
        this.#phase = { ...this.#phase, name: 'leaving' };
        this.#options.onChange(this);
        return;
      case frameType.ping:
        this.#batch.add(encodeFrame(frameType.pong, 0));
        return;
      case frameType.pong:
        return;
      case frameType.hello:
      case frameType.request:
      case frameType.cancel:
      case frameType.open:
      case frameType.body:
        throw coded('protocol_error', 'The daemon sent a frame that is the gateway\'s.');
    }
  }

  #onResponse(frame: Frame): void {
    const pending = this.#take(frame.id);
    // Unknown ids are answers that crossed a cancel.
    if (pending === undefined) return;
    pending.resolve(decodeResponse(frame.payload));
    this.#settled();
  }

  #onData(frame: Frame): void {
    const { streams, texts, bytes } = decodeData(frame.payload);
    for (const id of streams) {
      const stream = this.#open.get(id);
      // Unknown ids are data that crossed our close.
      if (stream === undefined) continue;
      const whole = texts.length === 1 && stream.credit >= limits.linkInitialCreditBytes;
      if (bytes > stream.credit && !whole) throw coded('protocol_error', 'The daemon sent more than its credit.');
      stream.credit -= bytes;
      stream.onTexts(texts, bytes);
    }
  }

  #take(id: number): Pending | undefined {
    const pending = this.#pending.get(id);
    if (pending === undefined) return undefined;
    this.#pending.delete(id);
    if (pending.onAbort !== undefined) pending.signal?.removeEventListener('abort', pending.onAbort);
    return pending;
  }

  #giveUp(id: number, error: CodedError): void {
    const pending = this.#take(id);
    if (pending === undefined) return;
    this.#batch.add(encodeFrame(frameType.cancel, id));
    pending.reject(error);
    this.#settled();
  }

  #endStream(id: number, code: number, reason: string): void {
    const stream = this.#open.get(id);
    if (stream === undefined) return;
    this.#open.delete(id);
    stream.onClose(code, reason);
    this.#settled();
  }

  /** Something ended: a drain ends when nothing runs any more. */
  #settled(): void {
    if (this.#onIdle !== undefined && this.running === 0) this.#onIdle();
  }

  #sweepDeadlines(): void {
    if (this.#pending.size === 0) {
      clearInterval(this.#sweep);
      this.#sweep = undefined;
      return;
    }
    const now = performance.now();
    for (const [id, pending] of this.#pending) {
      if (pending.deadlineAt <= now) this.#giveUp(id, coded('upstream_timeout'));
    }
  }

  #onPingDue(): void {
    if (this.#unanswered >= 2) {
      this.#end(coded('upstream_timeout', 'The daemon answered two pings with nothing.'));
      return;
    }
    this.#unanswered += 1;
    this.#batch.add(encodeFrame(frameType.ping, 0));
  }

  /** `written`: what was written before (a goaway, a close) still leaves, nothing more is read. */
  #end(error: CodedError, written = false): void {
    if (this.#phase.name === 'ended') return;
    this.#phase = { name: 'ended' };
    this.error = error;
    clearTimeout(this.#helloTimer);
    clearInterval(this.#sweep);
    clearInterval(this.#ping);
    this.#batch.stop();
    if (written) this.#socket.destroySoon();
    else this.#socket.destroy();
    for (const id of this.#pending.keys()) this.#take(id)?.reject(coded('upstream_unavailable', undefined, { cause: error }));
    const { upstream_unavailable: lost } = closeCodes;
    for (const id of this.#open.keys()) this.#endStream(id, lost.code, lost.reason);
    this.#settled();
    this.#options.onChange(this);
  }
}

const readJson = <T>(payload: Buffer, schema: { safeParse(value: unknown): { success: true; data: T } | { success: false } }): T => {
  let value: unknown;
  try {
    value = JSON.parse(payload.toString('utf8'));
  } catch (cause) {
    throw coded('protocol_error', undefined, { cause });
  }
  const parsed = schema.safeParse(value);
  if (!parsed.success) throw coded('protocol_error');
  return parsed.data;
};
