/**
 * One session's stream as a client holds it: connects, reads, proves, reconnects, repeats what was not seen done.
 *
 * C1  Every event is given to `onEvent` once, in order. `seq_no` is contiguous or the stream ends as `broken`: a gap or a
 *     repeat is shown and counted, never papered over.
 * C2  It reconnects with `last_seq_no` after the codes of `reconnectCodes` (1006 included) and after no other
 *     (decisions, Edge gateway; WSS-050), with full jitter, giving up after `clientAttemptsMax` attempts that restored nothing.
 * C3  A connection counts as restored when an event arrived on it, or when it has answered and lasted `clientSettleMs`: a
 *     gateway accepts and answers pings also while its daemon is away, and closes with 4004 a moment later.
 * C4  A silent connection is pinged and, without an answer, given up: a half-open one is found in at most
 *     `clientPingMs` + `clientPongMs`.
 * C5  Messages, approvals and cancels are repeated after a reconnect as `outbox.ts` says.
 *
 * It does not store anything: give `lastSeqNo` and `pending` to a later stream to go on after a restart of the client.
 */
import { CodedError, coded } from '../../contracts/errors.ts';
import { closeCodes, reconnectCodes, subprotocols } from '../../contracts/close.ts';
import { limits } from '../../contracts/limits.ts';
import type { WireOutbound } from '../../contracts/stream.ts';
import { backoffMs } from './backoff.ts';
import { realClock, type Clock } from './clock.ts';
import { decodeFrame, type StreamEvent } from './frame.ts';
import { endingOf, type FinalState, type StreamSocket, type StreamSocketConstructor, type StreamState } from './state.ts';
import { frameBytes, Outbox, type PendingMessage, type TurnEnd } from './outbox.ts';

export interface StreamCounts {
  readonly delivered: number;
  readonly lost: number;
  readonly repeated: number;
  readonly reconnects: number;
}

export interface Reconnected {
  /** Milliseconds from the loss (or the first attempt that failed) to the first frame on the connection that restored it. */
  readonly downMs: number;
  readonly attempts: number;
  readonly lost: number;
  readonly repeated: number;
}

export interface SessionStreamOptions {
  /** Of the gateway: http(s) or ws(s). */
  readonly url: string;
  readonly sid: string;
  /** Tier 1 bearer, asked for anew with every connection. A `CodedError` that it throws ends the stream if its retry is `never`. */
  readonly token: () => string | Promise<string>;
  readonly WebSocket: StreamSocketConstructor;
  /** Replay from the next event on; 0 = from the first. Absent: live from now plus the running turn so far, and what passes before the first event was seen cannot be proven. */
  readonly lastSeqNo?: number;
  readonly onEvent: (event: StreamEvent) => void;
  readonly onState?: (state: StreamState) => void;
  readonly onReconnected?: (reconnected: Reconnected) => void;
  /** Messages of an earlier stream of this session that had not ended; `onPending` gives them after every change. */
  readonly pending?: readonly PendingMessage[];
  readonly onPending?: (pending: readonly PendingMessage[]) => void;
  /** Asked when a connection could not be opened, since a browser does not say why: a refusal with retry `never` ends the stream. */
  readonly diagnose?: () => Promise<unknown>;
  readonly clock?: Clock;
}

export interface SessionStream {
  readonly state: StreamState;
  readonly counts: StreamCounts;
  /** seq_no of the last event given to `onEvent`. */
  readonly lastSeqNo: number | undefined;
  readonly pending: readonly PendingMessage[];
  /** Throws `session_busy` at the bound of waiting messages, `payload_too_large` over a frame (use an attachment). Sent at once or as soon as connected. */
  send(content: string, options?: { messageId?: string; attachment?: string }): { readonly messageId: string; readonly ended: Promise<TurnEnd> };
  approve(dispatchId: string): void;
  /** Denies a waiting call; without an id, cancels the running turn. */
  cancel(dispatchId?: string): void;
  /** The network is back or the page is seen again: connect now if waiting, else check the connection now. */
  wake(): void;
  /** Stops now. */
  close(reason?: string): void;
  /** The last state. Never rejects. */
  readonly closed: Promise<FinalState>;
}

/** One connection, or the wait for it. Exactly one is current; what an older one still says is not heard. */
interface Connection {
  socket: StreamSocket | undefined;
  opened: boolean;
  /** A frame has arrived on it. */
  heard: boolean;
  heardAt: number;
  /** C3. */
  restored: boolean;
  closing: string | undefined;
  readonly timers: Map<'connect' | 'settle' | 'beat' | 'quiet' | 'quietMax' | 'retry', () => void>;
}

/** Close code of a connection that ended without a close frame (RFC 6455, 7.1.5). */
const broke = 1006;

export const openSession = (options: SessionStreamOptions): SessionStream => new Stream(options);

class Stream implements SessionStream {
  readonly #options: SessionStreamOptions;
  readonly #clock: Clock;
  readonly #outbox: Outbox;
  readonly closed: Promise<FinalState>;
  readonly #resolveClosed: (state: FinalState) => void;
  #state: StreamState = { kind: 'connecting', attempt: 0 };
  #connection: Connection | undefined;
  #lastSeqNo: number | undefined;
  #delivered = 0;
  #lost = 0;
  #repeated = 0;
  #reconnects = 0;
  /** Attempts since a connection was last restored; and since when there is none. */
  #attempts = 0;
  #downSince: number | undefined;

  constructor(options: SessionStreamOptions) {
    this.#options = options;
    this.#clock = options.clock ?? realClock;
    this.#outbox = new Outbox(options.pending ?? []);
    this.#lastSeqNo = options.lastSeqNo;
    const { promise, resolve } = Promise.withResolvers<FinalState>();
    this.closed = promise;
    this.#resolveClosed = resolve;
    this.#connect();
  }

  get state(): StreamState { return this.#state; }
  get counts(): StreamCounts {
    return { delivered: this.#delivered, lost: this.#lost, repeated: this.#repeated, reconnects: this.#reconnects };
  }
  get lastSeqNo(): number | undefined { return this.#lastSeqNo; }
  get pending(): readonly PendingMessage[] { return this.#outbox.pending; }

  send(content: string, { messageId = crypto.randomUUID(), attachment }: { messageId?: string; attachment?: string } = {}): { messageId: string; ended: Promise<TurnEnd> } {
    const message = { messageId, content, ...(attachment === undefined ? {} : { attachment }) };
    const bytes = frameBytes({ kind: 'send_message', content, message_id: messageId, ...(attachment === undefined ? {} : { attachment_blob_ref: attachment }) });
    if (bytes > limits.clientFrameMaxBytes) {
      throw coded('payload_too_large', `A message may take ${limits.clientFrameMaxBytes} bytes as a frame; this one takes ${bytes}. Send it as an attachment.`);
    }
    if (this.#final() !== undefined) return { messageId, ended: Promise.resolve({ kind: 'closed' }) };
    const { frame, ended } = this.#outbox.add(message, this.#lastSeqNo ?? 0);
    this.#say(frame);
    this.#options.onPending?.(this.#outbox.pending);
    return { messageId, ended };
  }

  approve(dispatchId: string): void {
    this.#say(this.#outbox.decide('approve_dispatch', dispatchId));
  }

  cancel(dispatchId = ''): void {
    this.#say(this.#outbox.decide('cancel_dispatch', dispatchId));
  }

  wake(): void {
    const connection = this.#connection;
    if (connection === undefined) return;
    if (this.#state.kind === 'waiting') this.#connect();
    else if (connection.opened) this.#ping(connection);
  }

  close(reason?: string): void {
    if (this.#final() !== undefined) return;
    const { code, reason: normal } = closeCodes.normal;
    this.#say(reason === undefined ? { kind: 'close' } : { kind: 'close', reason });
    this.#end({ kind: 'closed', code, reason: reason ?? normal });
  }

  #final(): FinalState | undefined {
    return this.#state.kind === 'closed' || this.#state.kind === 'broken' ? this.#state : undefined;
  }

  #enter(state: StreamState): void {
    this.#state = state;
    this.#options.onState?.(state);
  }

  /** Sends if connected; what must not be lost is in the outbox and goes out when the next connection opens. */
  #say(frame: WireOutbound): void {
    const socket = this.#connection?.opened === true ? this.#connection.socket : undefined;
    if (socket?.readyState === 1) socket.send(JSON.stringify(frame));
  }

  #connect(): void {
    this.#abandon();
    this.#attempts += 1;
    const connection: Connection = { socket: undefined, opened: false, heard: false, heardAt: 0, restored: false, closing: undefined, timers: new Map() };
    this.#connection = connection;
    this.#arm(connection, 'connect', limits.clientConnectMs, () => { this.#lose(connection, broke, 'connect_timeout'); });
    this.#enter({ kind: 'connecting', attempt: this.#attempts });
    void this.#dial(connection);
  }

  async #dial(connection: Connection): Promise<void> {
    let token: string;
    try {
      token = await this.#options.token();
    } catch (error) {
      if (error instanceof CodedError && error.entry.retry === 'never') this.#refuse(connection, error);
      else this.#lose(connection, broke, 'no_token');
      return;
    }
    if (this.#connection !== connection) return;
    const url = new URL('/v1/agent/stream', this.#options.url);
    url.protocol = url.protocol.replace('http', 'ws');
    url.searchParams.set('sid', this.#options.sid);
    if (this.#lastSeqNo !== undefined) url.searchParams.set('last_seq_no', String(this.#lastSeqNo));
    // A browser cannot set a header here, so the bearer goes as a subprotocol; the plain one is what the server answers.
    const socket = new this.#options.WebSocket(url.href, [subprotocols.plain, subprotocols.bearerPrefix + token]);
    connection.socket = socket;
    const current = (): boolean => this.#connection === connection;
    socket.addEventListener('open', () => { if (current()) this.#opened(connection); });
    socket.addEventListener('message', ({ data }) => { if (current()) this.#hear(connection, data); });
    // What went wrong is said by the close event that follows.
    socket.addEventListener('error', () => undefined);
    socket.addEventListener('close', ({ code, reason }) => {
      if (current()) this.#lose(connection, code === 1005 ? closeCodes.normal.code : code, connection.closing ?? reason);
    });
  }

  #opened(connection: Connection): void {
    connection.opened = true;
    connection.heardAt = this.#clock.now();
    this.#disarm(connection, 'connect');
    this.#enter({ kind: 'open' });
    if (this.#connection !== connection) return;
    for (const frame of this.#outbox.unsettled()) this.#say(frame);
    if (this.#outbox.cancelsTurn) {
      this.#arm(connection, 'quietMax', limits.clientReplayMaxMs, () => { this.#repeatCancel(connection); });
      this.#awaitQuiet(connection);
    }
    // Asks for a frame at once: it proves that someone behind the gateway's socket answers.
    this.#ping(connection);
  }

  #awaitQuiet(connection: Connection): void {
    this.#arm(connection, 'quiet', limits.clientReplayQuietMs, () => { this.#repeatCancel(connection); });
  }

  #repeatCancel(connection: Connection): void {
    this.#disarm(connection, 'quiet');
    this.#disarm(connection, 'quietMax');
    if (this.#outbox.cancelsTurn) this.#say({ kind: 'cancel_dispatch', dispatch_id: '' });
  }

  #ping(connection: Connection): void {
    this.#say({ kind: 'ping', seq_no: this.#lastSeqNo ?? 0 });
    const asked = this.#clock.now();
    this.#arm(connection, 'beat', limits.clientPongMs, () => {
      if (connection.heard && connection.heardAt >= asked) this.#listen(connection);
      else this.#lose(connection, broke, 'no_answer');
    });
  }

  /** Pings when nothing has been heard for `clientPingMs`. */
  #listen(connection: Connection): void {
    const silent = this.#clock.now() - connection.heardAt;
    if (silent >= limits.clientPingMs) this.#ping(connection);
    else this.#arm(connection, 'beat', limits.clientPingMs - silent, () => { this.#listen(connection); });
  }

  #hear(connection: Connection, data: unknown): void {
    const frame = typeof data === 'string' && data.length <= limits.clientReceiveMaxBytes ? decodeFrame(data) : undefined;
    if (frame === undefined) {
      this.#end({ kind: 'broken', problem: 'frame', expected: 0, got: 0 });
      return;
    }
    connection.heardAt = this.#clock.now();
    if (frame.kind === 'closing') {
      connection.closing = frame.reason;
      return;
    }
    if (frame.kind === 'agent_event' && !this.#follows(frame.event)) return;
    connection.heard = true;
    if (frame.kind === 'pong') {
      const answeredAt = connection.heardAt;
      if (!connection.restored && !connection.timers.has('settle')) {
        this.#arm(connection, 'settle', limits.clientSettleMs, () => { this.#restored(connection, answeredAt); });
      }
      return;
    }
    if (!connection.restored) this.#restored(connection, connection.heardAt);
    if (this.#connection !== connection) return;
    this.#lastSeqNo = frame.event.seq_no;
    this.#delivered += 1;
    const settled = this.#outbox.take(frame.event);
    if (connection.timers.has('quiet')) this.#awaitQuiet(connection);
    this.#options.onEvent(frame.event);
    if (settled) this.#options.onPending?.(this.#outbox.pending);
  }

  /** C1: whether the event is the next one; ends the stream if not. */
  #follows({ seq_no: got }: StreamEvent): boolean {
    const expected = this.#lastSeqNo === undefined ? got : this.#lastSeqNo + 1;
    if (got === expected) return true;
    if (got > expected) this.#lost += got - expected;
    else this.#repeated += 1;
    this.#end({ kind: 'broken', problem: got > expected ? 'gap' : 'repeat', expected, got });
    return false;
  }

  #restored(connection: Connection, at: number): void {
    this.#disarm(connection, 'settle');
    connection.restored = true;
    const attempts = this.#attempts;
    this.#attempts = 0;
    if (this.#downSince === undefined) return;
    const downMs = at - this.#downSince;
    this.#downSince = undefined;
    this.#reconnects += 1;
    this.#options.onReconnected?.({ downMs, attempts, lost: this.#lost, repeated: this.#repeated });
  }

  /** The connection is gone: comes back, or ends. */
  #lose(connection: Connection, code: number, reason: string): void {
    if (this.#connection !== connection) return;
    if (!reconnectCodes.has(code)) {
      const error = endingOf(code, reason);
      this.#end({ kind: 'closed', code, reason, ...(error === undefined ? {} : { error }) });
      return;
    }
    this.#downSince ??= this.#clock.now();
    if (this.#attempts >= limits.clientAttemptsMax) {
      this.#end({ kind: 'closed', code, reason, error: coded('upstream_unavailable', `No answer after ${this.#attempts} attempts.`) });
      return;
    }
    this.#abandon();
    const next: Connection = { socket: undefined, opened: false, heard: false, heardAt: 0, restored: false, closing: undefined, timers: new Map() };
    this.#connection = next;
    const attempt = this.#attempts + 1;
    const retryInMs = backoffMs(attempt, this.#clock.random());
    this.#arm(next, 'retry', retryInMs, () => { this.#connect(); });
    this.#enter({ kind: 'waiting', attempt, retryInMs, code, reason });
    if (!connection.opened) void this.#diagnose();
  }

  async #diagnose(): Promise<void> {
    try {
      await this.#options.diagnose?.();
    } catch (error) {
      // Anything else is the outage itself, which the next attempt meets again.
      if (error instanceof CodedError && error.entry.kind === 'refusal' && error.entry.retry === 'never' && this.#connection?.heard === false) {
        this.#refuse(this.#connection, error);
      }
    }
  }

  #refuse(connection: Connection, error: CodedError): void {
    if (this.#connection === connection) this.#end({ kind: 'closed', code: broke, reason: error.code, error });
  }

  #end(state: FinalState): void {
    this.#abandon();
    this.#outbox.end();
    this.#enter(state);
    this.#resolveClosed(state);
  }

  #abandon(): void {
    const connection = this.#connection;
    if (connection === undefined) return;
    this.#connection = undefined;
    for (const disarm of connection.timers.values()) disarm();
    connection.timers.clear();
    // Its close event may take long when the peer is gone; nobody listens to it any more.
    if (connection.socket !== undefined && connection.socket.readyState < 2) connection.socket.close(closeCodes.normal.code);
  }

  #arm(connection: Connection, name: Parameters<Connection['timers']['get']>[0], ms: number, run: () => void): void {
    this.#disarm(connection, name);
    connection.timers.set(name, this.#clock.after(ms, () => {
      connection.timers.delete(name);
      if (this.#connection === connection) run();
    }));
  }

  #disarm(connection: Connection, name: Parameters<Connection['timers']['get']>[0]): void {
    connection.timers.get(name)?.();
    connection.timers.delete(name);
  }
}
