/**
 * A request's body on its way through: read from the client as fast as whoever takes it says, never held whole.
 *
 * Guarantees: nothing is given on that was not allowed, in pieces of at most `limits.linkBodyPieceBytes`; while nobody takes it the client is not
 * read (what one read of the listener brings comes still: receive-buffer.ts); what waits here counts among the bodies of the process (bodies.ts). A connection that is left paused would never be read again: `drop` comes before every answer.
 */
import { coded } from '../contracts/errors.ts';
import { limits } from '../contracts/limits.ts';
import type { HeldBody } from './bodies.ts';
import { ByteQueue } from './byte-queue.ts';

/** What takes a body. */
export interface BodySink {
  /** The next bytes: a view, good for this call. */
  piece(bytes: Uint8Array): void;
  /** That was all of it. */
  end(): void;
  /** Its rest will not come: `payload_too_large`, `overloaded`. */
  fail(error: Error): void;
}

/** The request, as the listener has it. */
export interface BodyConnection {
  onData(handler: (chunk: ArrayBuffer, isLast: boolean) => void): unknown;
  pause(): void;
  resume(): void;
}

export interface BodySourceOptions {
  readonly maxBytes: number;
  readonly held: HeldBody;
  /** The client has gone. */
  readonly gone: AbortSignal;
}

type Phase =
  | { readonly name: 'waiting' | 'failed' }
  | { readonly name: 'flowing'; readonly sink: BodySink }
  | { readonly name: 'dropping'; bytes: number; readonly settle: (complete: boolean) => void };

export class BodySource {
  readonly #connection: BodyConnection;
  readonly #options: BodySourceOptions;
  #phase: Phase = { name: 'waiting' };
  readonly #queue = new ByteQueue();
  #bytes = 0;
  #allowed = 0;
  #complete = false;
  #told = false;
  #paused = false;

  /** To be made before the request's handler returns. */
  constructor(connection: BodyConnection, options: BodySourceOptions) {
    this.#connection = connection;
    this.#options = options;
    connection.onData((chunk, isLast) => this.#onData(chunk, isLast));
    this.#flow();
  }

  /** Gives what comes to the sink, as far as it is allowed. Once. */
  start(sink: BodySink): void {
    if (this.#phase.name === 'waiting') this.#phase = { name: 'flowing', sink };
    this.#pass();
  }

  /** So many further bytes may be given on. */
  allow(bytes: number): void {
    this.#allowed += bytes;
    this.#pass();
  }

  /**
   * Takes nothing more of it. Resolves with whether the body has come to its end, after at most `limits.bodyDropMaxBytes` or
   * `limits.bodyDropMs`: what a client still sends behind an answer may keep it from seeing that.
   */
  drop(): Promise<boolean> {
    this.#give(this.#queue.length);
    this.#queue.drop();
    const { promise, resolve } = Promise.withResolvers<boolean>();
    const timer = setTimeout(() => settle(false), limits.bodyDropMs);
    const settle = (complete: boolean): void => {
      clearTimeout(timer);
      resolve(complete);
    };
    this.#phase = { name: 'dropping', bytes: 0, settle };
    this.#flow();
    if (this.#complete || this.#options.gone.aborted) settle(this.#complete);
    else this.#options.gone.addEventListener('abort', () => settle(false), { once: true });
    return promise;
  }

  #onData(chunk: ArrayBuffer, isLast: boolean): void {
    this.#complete = isLast;
    this.#bytes += chunk.byteLength;
    const phase = this.#phase;
    if (phase.name === 'dropping') {
      phase.bytes += chunk.byteLength;
      if (isLast || phase.bytes > limits.bodyDropMaxBytes) phase.settle(isLast);
      return;
    }
    if (phase.name === 'failed') return;
    if (this.#bytes > this.#options.maxBytes) return this.#fail(coded('payload_too_large'));
    if (!this.#options.held.take(chunk.byteLength)) return this.#fail(coded('overloaded'));
    // Copied: the listener takes the chunk back when this call returns.
    this.#queue.push(new Uint8Array(chunk));
    this.#pass();
  }

  #pass(): void {
    const phase = this.#phase;
    if (phase.name === 'flowing') {
      while (this.#allowed > 0 && this.#queue.length > 0) {
        const piece = this.#queue.take(Math.min(this.#allowed, limits.linkBodyPieceBytes));
        this.#allowed -= piece.length;
        this.#give(piece.length);
        phase.sink.piece(piece);
      }
      if (this.#complete && this.#queue.length === 0 && !this.#told) {
        this.#told = true;
        phase.sink.end();
      }
    }
    this.#flow();
  }

  /** Reads the client or does not. */
  #flow(): void {
    const paused = this.#phase.name !== 'dropping' && !this.#complete && (this.#allowed === 0 || this.#queue.length >= limits.bodyHeldBytes);
    if (paused === this.#paused || this.#options.gone.aborted) return;
    this.#paused = paused;
    if (paused) this.#connection.pause();
    else this.#connection.resume();
  }

  #fail(error: Error): void {
    const phase = this.#phase;
    this.#phase = { name: 'failed' };
    if (phase.name === 'flowing') phase.sink.fail(error);
  }

  #give(bytes: number): void {
    this.#options.held.give(bytes);
  }
}
