/**
 * One gateway on the link: its hello, its requests and its streams, over one accepted socket.
 *
 * Guarantees (L1-L7 of contracts/link.ts, the daemon's half):
 * P1  A request is answered exactly once, unless it was cancelled or the connection ended; past its deadline it is answered
 *     with 504 and its signal fires, whatever its handler still does.
 * P2  A stream is sent data only against its credit (`room`), and nobody should read data for it while the peer is `full`.
 * P3  What a gateway can make wait here is bounded: requests, streams, client texts (by who takes them), queued bytes. A
 *     gateway that takes no answers is not read any further.
 * P4  Broken frames, a wrong version, a missing hello or silence end the connection and everything on it.
 * It knows routes only as the numbers of the closed table; what they mean is the handlers' affair.
 */
import type { Socket } from 'node:net';
import { coded, CodedError, errorEntry, shown } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import {
  decodeClose, decodeRequest, encodeClose, encodeCredit, encodeData, encodeFrame, encodeResponse, FrameReader, frameType, hello, linkVersion, type Frame, type Hello,
} from '../../contracts/link.ts';
import { FrameBatch } from '../../contracts/link-batch.ts';
import { anyRouteByWire } from '../../contracts/platform-routes.ts';
import { closeCodes } from '../../contracts/close.ts';
import { RunningCall, type Answer, type Call } from './link-call.ts';
import { PeerStream, type Stream } from './link-stream.ts';
import type { Log } from './log.ts';

export interface PeerHandlers {
  /** Resolves with the answer; whatever it throws becomes an error answer. */
  request(call: Call): Promise<Answer>;
  open(stream: Stream): void;
}

export interface PeerOptions {
  readonly self: Hello;
  readonly log: Log;
  readonly handlers: PeerHandlers;
  readonly helloMs: number;
  /** A gateway silent for three of these is gone: it pings once in each. */
  readonly pingMs: number;
  readonly onReady: (peer: LinkPeer) => void;
  readonly onEnd: (peer: LinkPeer) => void;
  /** It leaves and its last request has been answered. */
  readonly onIdle: () => void;
  /** The queue towards the gateway has emptied after it was `full`. */
  readonly onDrain: (peer: LinkPeer) => void;
}

type Phase =
  | { readonly name: 'greeting'; readonly timer: NodeJS.Timeout }
  | { readonly name: 'ready'; readonly gateway: Hello }
  | { readonly name: 'ended' };

const sweepMs = 50;
/** Streams one data frame can address (u16). */
const multicastMax = 0xffff;

export class LinkPeer {
  readonly #options: PeerOptions;
  readonly #socket: Socket;
  readonly #reader: FrameReader;
  readonly #batch: FrameBatch;
  readonly #calls = new Map<number, RunningCall>();
  readonly #streams = new Map<number, PeerStream>();
  #phase: Phase;
  #sweep: NodeJS.Timeout | undefined;
  #silence: NodeJS.Timeout | undefined;
  #heard = true;
  #silentFor = 0;
  #leaving = false;
  #wasFull = false;

  /** The socket is paused and its peer admitted; from here on it is read. */
  constructor(socket: Socket, options: PeerOptions) {
    this.#socket = socket;
    this.#options = options;
    this.#reader = new FrameReader((frame) => this.#onFrame(frame));
    this.#batch = new FrameBatch((bytes) => this.#socket.write(bytes));
    this.#phase = { name: 'greeting', timer: setTimeout(() => this.#end(coded('protocol_error', 'The gateway said no hello.')), options.helloMs) };
    socket.on('data', (chunk: Buffer) => this.#onData(chunk));
    socket.on('drain', () => this.#onDrain());
    socket.on('error', (cause) => this.#end(coded('upstream_unavailable', undefined, { cause })));
    socket.on('close', () => this.#end(undefined));
    socket.resume();
  }

  get ready(): boolean {
    return this.#phase.name === 'ready';
  }

  get calls(): number {
    return this.#calls.size;
  }

  get streams(): number {
    return this.#streams.size;
  }

  /** True while so much waits for the gateway that no source should be read for its streams. */
  get full(): boolean {
    if (this.#queuedBytes() < limits.linkHighWaterBytes) return false;
    this.#wasFull = true;
    return true;
  }

  /** One data frame to streams of this peer. Every stream must have `room` for it. */
  send(streams: readonly { readonly id: number }[], texts: readonly Buffer[], bytes: number): void {
    const ids: number[] = [];
    for (const stream of streams) {
      const own = this.#streams.get(stream.id);
      if (own === undefined) continue;
      own.credit -= bytes;
      ids.push(own.id);
    }
    for (let at = 0; at < ids.length; at += multicastMax) {
      this.#batch.add(encodeData(ids.length <= multicastMax ? ids : ids.slice(at, at + multicastMax), texts));
    }
  }

  closeStream(stream: Stream, code: number, reason: string): void {
    if (this.#streams.get(stream.id) !== stream) return;
    this.#streams.delete(stream.id);
    this.#batch.add(encodeClose(stream.id, code, reason));
  }

  grantBody(stream: Stream, bytes: number): void {
    if (this.#streams.get(stream.id) === stream) this.#batch.add(encodeCredit(stream.id, bytes));
  }

  /** Says which partitions this daemon owns. */
  announce(frame: Buffer): void {
    if (this.#phase.name === 'ready') this.#batch.add(frame);
  }

  /** Says goaway: requests and streams that come after it are refused; what runs may finish. */
  leave(reason: string): void {
    if (this.#leaving) return;
    this.#leaving = true;
    if (this.#phase.name === 'ready') this.#batch.add(encodeFrame(frameType.goaway, 0, reason));
  }

  /** Ends every stream of this peer, told to its server too. */
  closeStreams(code: number, reason: string): void {
    for (const stream of this.#streams.values()) {
      this.closeStream(stream, code, reason);
      stream.onEnd();
    }
  }

  /** Ends the connection; what was written still leaves. */
  close(): void {
    this.#batch.flush();
    this.#end(undefined, true);
  }

  #queuedBytes(): number {
    return this.#batch.bytes + this.#socket.writableLength;
  }

  #onData(chunk: Buffer): void {
    try {
      this.#reader.push(chunk);
    } catch (error) {
      this.#end(error instanceof CodedError ? error : coded('internal_error', undefined, { cause: error }));
      return;
    }
    if (this.#queuedBytes() > limits.linkQueueMaxBytes) {
      this.#wasFull = true;
      this.#socket.pause();
    }
  }

  #onDrain(): void {
    if (this.#socket.isPaused() && this.#phase.name !== 'ended') this.#socket.resume();
    if (!this.#wasFull) return;
    this.#wasFull = false;
    this.#options.onDrain(this);
  }

  #onFrame(frame: Frame): void {
    this.#heard = true;
    switch (this.#phase.name) {
      case 'ended':
        return;
      case 'greeting':
        this.#onHello(frame, this.#phase.timer);
        return;
      case 'ready':
        this.#onReady(frame);
        return;
    }
  }

  #onHello(frame: Frame, timer: NodeJS.Timeout): void {
    if (frame.type !== frameType.hello) throw coded('protocol_error', 'The first frame is not hello.');
    const { self } = this.#options;
    // Ours goes out in any case: a peer of another version, or another daemon that looks who is here, learns it from this.
    this.#batch.add(encodeFrame(frameType.hello, 0, JSON.stringify(self)));
    const peer = readHello(frame.payload);
    if (peer.version !== linkVersion) {
      const problem = coded('version_mismatch', `The gateway (release ${peer.release}, pid ${peer.pid}) speaks link version ${peer.version}, this daemon ${linkVersion}.`);
      this.#batch.add(encodeFrame(frameType.goaway, 0, 'version_mismatch'));
      this.#batch.flush();
      this.#end(problem, true);
      return;
    }
    if (peer.role !== 'gateway') {
      this.#batch.flush();
      this.#end(undefined, true);
      return;
    }
    clearTimeout(timer);
    this.#phase = { name: 'ready', gateway: peer };
    this.#silence = setInterval(() => this.#onSilenceDue(), this.#options.pingMs);
    if (this.#leaving) this.#batch.add(encodeFrame(frameType.goaway, 0, 'draining'));
    this.#options.onReady(this);
  }

  #onReady(frame: Frame): void {
    switch (frame.type) {
      case frameType.request:
        this.#onRequest(frame);
        return;
      case frameType.cancel: {
        const call = this.#calls.get(frame.id);
        this.#calls.delete(frame.id);
        call?.abort(coded('aborted'));
        this.#settled();
        return;
      }
      case frameType.open:
        this.#onOpen(frame);
        return;
      case frameType.data:
        this.#onText(frame);
        return;
      case frameType.body: {
        // Unknown ids crossed our close.
        const stream = this.#streams.get(frame.id);
        if (stream?.onBody(frame.payload) === false) throw coded('protocol_error', 'The gateway sent more of a body than its credit.');
        return;
      }
      case frameType.credit:
        if (frame.payload.length !== 4) throw coded('protocol_error');
        this.#streams.get(frame.id)?.onCredit(frame.payload.readUInt32BE(0));
        return;
      case frameType.close: {
        decodeClose(frame.payload);
        const stream = this.#streams.get(frame.id);
        this.#streams.delete(frame.id);
        stream?.onEnd();
        return;
      }
      case frameType.ping:
        this.#batch.add(encodeFrame(frameType.pong, 0));
        return;
      case frameType.pong:
      case frameType.goaway:
        // A gateway that leaves asks nothing more; it closes when its streams have ended.
        return;
      case frameType.hello:
      case frameType.response:
      case frameType.owns:
        throw coded('protocol_error', 'The gateway sent a frame that is the daemon\'s.');
    }
  }

  #onRequest(frame: Frame): void {
    const { id } = frame;
    if (this.#calls.has(id) || this.#streams.has(id)) throw coded('protocol_error', 'The id is in use.');
    const request = decodeRequest(frame.payload);
    const route = anyRouteByWire.get(request.route);
    if (route === undefined) return this.#refuse(id, coded('unknown_route'));
    if (this.#leaving) return this.#refuse(id, coded('draining'));
    if (this.#calls.size >= limits.linkRequestsMax) return this.#refuse(id, coded('overloaded'));
    const waitMs = Math.min(request.deadlineMs, limits.upstreamDeadlineMs);
    const call = new RunningCall(route, request.token, request.body, performance.now() + waitMs);
    this.#calls.set(id, call);
    this.#sweep ??= setInterval(() => this.#sweepDeadlines(), sweepMs);
    this.#options.handlers.request(call).then(
      (answer) => this.#answer(id, call, answer.status, answer.body),
      (error: unknown) => this.#fail(id, call, error),
    );
  }

  #answer(id: number, call: RunningCall, status: number, body: string | Uint8Array): void {
    if (this.#calls.get(id) !== call) return;
    this.#calls.delete(id);
    let frame: Buffer;
    try {
      frame = encodeResponse(id, status, body);
    } catch (error) {
      this.#options.log.error({ route: call.route.id, code: shown(error).code }, 'answer too large for the link');
      frame = encodeError(id, coded('internal_error'));
    }
    this.#batch.add(frame);
    this.#settled();
  }

  #fail(id: number, call: RunningCall, error: unknown): void {
    if (this.#calls.get(id) !== call) return;
    this.#calls.delete(id);
    this.#batch.add(encodeError(id, error));
    this.#settled();
  }

  #settled(): void {
    if (this.#leaving && this.#calls.size === 0) this.#options.onIdle();
  }

  #refuse(id: number, error: CodedError): void {
    this.#batch.add(encodeError(id, error));
  }

  #onOpen(frame: Frame): void {
    const { id } = frame;
    if (this.#calls.has(id) || this.#streams.has(id)) throw coded('protocol_error', 'The id is in use.');
    const request = decodeRequest(frame.payload);
    const route = anyRouteByWire.get(request.route);
    if (route === undefined || route.serve.by !== 'stream') {
      this.#batch.add(encodeClose(id, closeCodes.internal_error.code, closeCodes.internal_error.reason));
      return;
    }
    if (this.#leaving || this.#streams.size >= limits.linkStreamsMax) {
      this.#batch.add(encodeClose(id, closeCodes.upstream_unavailable.code, closeCodes.upstream_unavailable.reason));
      return;
    }
    // Copied: a stream lives long and must not keep the receive buffer.
    const stream = new PeerStream(this, id, route, request.token, Buffer.from(request.body));
    this.#streams.set(id, stream);
    this.#options.handlers.open(stream);
  }

  #onText(frame: Frame): void {
    const stream = this.#streams.get(frame.id);
    // Unknown ids crossed our close.
    if (stream === undefined) return;
    if (frame.payload.length <= limits.clientFrameMaxBytes) {
      stream.onText(frame.payload.toString('utf8'));
      return;
    }
    this.closeStream(stream, closeCodes.too_big.code, closeCodes.too_big.reason);
    stream.onEnd();
  }

  #sweepDeadlines(): void {
    if (this.#calls.size === 0) {
      clearInterval(this.#sweep);
      this.#sweep = undefined;
      return;
    }
    const now = performance.now();
    for (const [id, call] of this.#calls) {
      if (call.deadlineAt > now) continue;
      const late = coded('deadline_exceeded');
      this.#fail(id, call, late);
      call.abort(late);
    }
  }

  #onSilenceDue(): void {
    this.#silentFor = this.#heard ? 0 : this.#silentFor + 1;
    this.#heard = false;
    // Not counted while we ourselves do not read.
    if (this.#silentFor >= 3 && !this.#socket.isPaused()) this.#end(coded('upstream_timeout', 'The gateway is silent.'));
  }

  #end(error: CodedError | undefined, written = false): void {
    if (this.#phase.name === 'ended') return;
    if (this.#phase.name === 'greeting') clearTimeout(this.#phase.timer);
    this.#phase = { name: 'ended' };
    clearInterval(this.#sweep);
    clearInterval(this.#silence);
    this.#batch.stop();
    if (written) this.#linger();
    else this.#socket.destroy();
    if (error !== undefined) this.#options.log.warn({ code: error.code, reason: error.message }, 'gateway connection ended');
    const gone = coded('aborted', undefined, { cause: error });
    for (const call of this.#calls.values()) call.abort(gone);
    this.#calls.clear();
    const streams = [...this.#streams.values()];
    this.#streams.clear();
    for (const stream of streams) stream.onEnd();
    this.#options.onEnd(this);
  }

  /** Half-closes and waits for the gateway's end: a gateway that writes into a closed socket would lose the frames it has not read. */
  #linger(): void {
    this.#socket.removeAllListeners('data');
    this.#socket.resume();
    this.#socket.end();
    const patience = setTimeout(() => { this.#socket.destroy(); }, limits.linkLingerMs);
    this.#socket.once('close', () => { clearTimeout(patience); });
  }
}

const encodeError = (id: number, error: unknown): Buffer => {
  const body = shown(error);
  return encodeResponse(id, errorEntry(body.code).http, JSON.stringify(body));
};

const readHello = (payload: Buffer): Hello => {
  let value: unknown;
  try {
    value = JSON.parse(payload.toString('utf8'));
  } catch (cause) {
    throw coded('protocol_error', undefined, { cause });
  }
  const parsed = hello.safeParse(value);
  if (parsed.success) return parsed.data;
  // A later version may say hello with other fields; its version is all that must be read.
  if (typeof value === 'object' && value !== null && 'version' in value && typeof value.version === 'number') {
    return { version: value.version, role: 'gateway', release: 'unknown', pid: 0 };
  }
  throw coded('protocol_error');
};
