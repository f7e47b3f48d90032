/**
 * The hot path to NATS: requests over one long-lived inbox subscription with a callback, without a timer, a subscription
 * or an iterator per call (four times the throughput of the client's own `request`, see notes on fast paths).
 *
 * Guarantees
 * N1  Every request settles once: with its answer, or coded by its time-out, its signal, a lost connection or `close`.
 * N2  At most `maxInFlight` requests are open; more are refused with `overloaded`.
 * N3  A request made while the connection is down waits and is sent when it is back; what was sent before the loss is
 *     rejected at once, because its answer can no longer be told from silence. The caller decides whether to repeat it.
 * It does not repeat anything, and an answer that comes after its request was settled is dropped.
 */
import { createInbox, errors as natsErrors, type Msg, type MsgHdrs, type NatsConnection } from 'nats';
import { coded, CodedError } from '../../../contracts/errors.ts';
import { limits } from '../../../contracts/limits.ts';

export interface LeanOptions {
  /** Default `limits.remoteAsksMax` + `limits.appendsMax`. */
  readonly maxInFlight?: number;
}

export interface LeanRequestOptions {
  readonly headers?: MsgHdrs;
  /** Milliseconds until `deadline_exceeded`, rounded up to `limits.requestSweepMs`. */
  readonly timeoutMs: number;
  /** Aborting it rejects with `aborted`; what was sent may still take effect. */
  readonly signal?: AbortSignal;
}

export interface LeanManyOptions extends LeanRequestOptions {
  /** Called with each answer; true ends the request, a thrown coded error rejects it. `timeoutMs` counts anew from each answer. */
  readonly onMessage: (message: Msg) => boolean;
}

export interface Lean {
  /**
   * Sends and waits for one answer, whose `data` is a view into a receive buffer.
   * Throws `overloaded` (N2), `no_owner` (nobody subscribes: nothing was done), `deadline_exceeded` (time-out or lost
   * connection: it may have taken effect), `aborted`, `payload_too_large`, `draining` (closed before it was sent),
   * `interrupted` (closed while it was in flight).
   */
  request(subject: string, data: Uint8Array | string, options: LeanRequestOptions): Promise<Msg>;
  /** Sends and takes answers until `onMessage` says that was the last. Resolves with the last; throws as `request` does. */
  requestMany(subject: string, data: Uint8Array | string, options: LeanManyOptions): Promise<Msg>;
  /** Sends without waiting, at most once. False when the connection is down or closed: nothing was sent. */
  publish(subject: string, data: Uint8Array | string, options?: { readonly headers?: MsgHdrs; readonly reply?: string }): boolean;
  /** Resolves when the server has handled what was sent before, over any reconnect. Throws `deadline_exceeded`, `draining`. */
  settled(timeoutMs: number): Promise<void>;
  /** Calls back each time the connection is there again after a loss and the server has all subscriptions. Gives the function that ends it. */
  onReconnect(callback: () => void): () => void;
  readonly connected: boolean;
  readonly inFlight: number;
  /** The connection it works on; its owner closes it. */
  readonly connection: NatsConnection;
  /** Rejects what is in flight and ends the subscription. The connection stays. */
  close(): void;
}

interface Unsent {
  readonly subject: string;
  readonly data: Uint8Array | string;
  readonly headers: MsgHdrs | undefined;
}

interface Pending {
  /** Monotonic milliseconds. */
  deadlineAt: number;
  readonly timeoutMs: number;
  readonly resolve: (message: Msg) => void;
  readonly reject: (error: CodedError) => void;
  readonly many: LeanManyOptions | undefined;
  /** Set while it waits for the connection. */
  unsent: Unsent | undefined;
  /** Ends the listening on the caller's signal. */
  readonly unlisten: (() => void) | undefined;
}

const timedOut = (): CodedError => coded('deadline_exceeded');
const lost = (): CodedError => coded('deadline_exceeded', 'The connection was lost before the answer came. The request may have taken effect.');

/** What the client library throws when it is asked to send, as our codes. */
const sendFault = (error: unknown): CodedError => {
  if (error instanceof natsErrors.InvalidArgumentError) return coded('payload_too_large', undefined, { cause: error });
  if (error instanceof natsErrors.InvalidSubjectError) return coded('bad_request', 'The subject is malformed.', { cause: error });
  if (error instanceof natsErrors.ClosedConnectionError || error instanceof natsErrors.DrainingConnectionError) {
    return coded('draining', 'The connection to NATS is closed.', { cause: error });
  }
  return coded('internal_error', undefined, { cause: error });
};

/** True for the server's answer that nobody subscribes to the subject (status 503, no data). */
const noResponders = (message: Msg): boolean => message.data.length === 0 && message.headers?.code === 503;

/**
 * Makes the request path of a connection. One per connection is enough; `close` it before the connection is closed. Make it as soon as
 * the connection is there: it follows losses from then on, and takes a connection that is lost already for a good one until it returns.
 */
export const createLean = (nc: NatsConnection, options: LeanOptions = {}): Lean => {
  const maxInFlight = options.maxInFlight ?? limits.remoteAsksMax + limits.appendsMax;
  const inbox = createInbox();
  const prefix = `${inbox}.`;
  const prefixLength = prefix.length;
  const pending = new Map<number, Pending>();
  const reconnected = new Set<() => void>();
  const publishOptions = (headers: MsgHdrs | undefined, reply: string | undefined): { headers?: MsgHdrs; reply?: string } => {
    // The library fills the object it is given, so each call gets its own.
    if (headers === undefined) return reply === undefined ? {} : { reply };
    return reply === undefined ? { headers } : { headers, reply };
  };
  let lastToken = 0;
  let losses = 0;
  let state: 'up' | 'down' | 'closed' = 'up';
  let timer: NodeJS.Timeout | undefined;
  let timerAt = Infinity;

  const take = (token: number): Pending | undefined => {
    const entry = pending.get(token);
    if (entry === undefined) return undefined;
    pending.delete(token);
    entry.unlisten?.();
    return entry;
  };
  const arm = (at: number, now: number): void => {
    if (at >= timerAt) return;
    if (timer !== undefined) clearTimeout(timer);
    timerAt = at;
    timer = setTimeout(sweep, Math.max(at - now, limits.requestSweepMs));
    timer.unref();
  };
  /** One timer for all: it fires at the earliest deadline there was, ends what is over and arms for the next. */
  const sweep = (): void => {
    timer = undefined;
    timerAt = Infinity;
    const now = performance.now();
    let next = Infinity;
    for (const [token, entry] of pending) {
      if (entry.deadlineAt <= now) take(token)?.reject(timedOut());
      else if (entry.deadlineAt < next) next = entry.deadlineAt;
    }
    if (next !== Infinity) arm(next, now);
  };
  const rejectAll = (which: (entry: Pending) => CodedError | undefined): void => {
    for (const [token, entry] of pending) {
      const error = which(entry);
      if (error !== undefined) take(token)?.reject(error);
    }
  };

  const onReply = (error: Error | null, message: Msg): void => {
    if (error !== null) {
      // The subscription itself failed (no permission for the inbox): no answer can come any more.
      rejectAll(() => coded('internal_error', undefined, { cause: error }));
      return;
    }
    const token = Number.parseInt(message.subject.slice(prefixLength), 36);
    const entry = pending.get(token);
    if (entry === undefined) return;
    if (noResponders(message)) { take(token)?.reject(coded('no_owner')); return; }
    if (entry.many === undefined) { take(token)?.resolve(message); return; }
    try {
      if (entry.many.onMessage(message)) take(token)?.resolve(message);
      else entry.deadlineAt = performance.now() + entry.timeoutMs;
    } catch (cause) {
      // Thrown into the library's parser it would end the connection's reader.
      take(token)?.reject(cause instanceof CodedError ? cause : coded('internal_error', undefined, { cause }));
    }
  };
  const subscription = nc.subscribe(`${prefix}*`, { callback: onReply });

  const send = (token: number, subject: string, data: Uint8Array | string, headers: MsgHdrs | undefined): void => {
    nc.publish(subject, data, publishOptions(headers, prefix + token.toString(36)));
  };
  const onDown = (): void => {
    if (state !== 'up') return;
    state = 'down';
    rejectAll((entry) => (entry.unsent === undefined ? lost() : undefined));
  };
  const onUp = (): void => {
    if (state !== 'down') return;
    state = 'up';
    for (const [token, entry] of pending) {
      const { unsent } = entry;
      if (unsent === undefined) continue;
      entry.unsent = undefined;
      try {
        send(token, unsent.subject, unsent.data, unsent.headers);
      } catch (error) {
        take(token)?.reject(sendFault(error));
      }
    }
    void announce(++losses);
  };
  /**
   * Tells that the connection is back, once the server has our subscriptions again: told earlier, a listener that then
   * reads what it missed would miss what comes between its reading and the server's taking the subscription.
   */
  const announce = async (loss: number): Promise<void> => {
    while (state === 'up' && loss === losses) {
      try {
        await echo(limits.appendAckMs);
      } catch (error) {
        if (error instanceof CodedError && error.code === 'deadline_exceeded') continue;
        return;
      }
      for (const callback of reconnected) callback();
      return;
    }
  };
  const close = (): void => {
    if (state === 'closed') return;
    state = 'closed';
    if (timer !== undefined) clearTimeout(timer);
    timerAt = -Infinity;
    rejectAll((entry) => (entry.unsent === undefined ? coded('interrupted') : coded('draining')));
    reconnected.clear();
    if (!nc.isClosed()) subscription.unsubscribe();
  };
  const follow = async (): Promise<void> => {
    for await (const status of nc.status()) {
      if (status.type === 'disconnect') onDown();
      else if (status.type === 'reconnect') onUp();
      if (state === 'closed') return;
    }
  };
  void follow().finally(close);

  const start = (subject: string, data: Uint8Array | string, request: LeanRequestOptions, many: LeanManyOptions | undefined): Promise<Msg> => {
    if (state === 'closed') return Promise.reject(coded('draining'));
    const { signal } = request;
    if (signal?.aborted === true) return Promise.reject(coded('aborted'));
    return new Promise<Msg>((resolve, reject) => {
      const token = ++lastToken;
      let unlisten: (() => void) | undefined;
      if (signal !== undefined) {
        const onAbort = (): void => { take(token)?.reject(coded('aborted')); };
        signal.addEventListener('abort', onAbort, { once: true });
        unlisten = () => signal.removeEventListener('abort', onAbort);
      }
      const now = performance.now();
      const deadlineAt = now + request.timeoutMs;
      pending.set(token, {
        deadlineAt, timeoutMs: request.timeoutMs, resolve, reject, many, unlisten,
        unsent: state === 'up' ? undefined : { subject, data, headers: request.headers },
      });
      arm(deadlineAt, now);
      if (state !== 'up') return;
      try {
        send(token, subject, data, request.headers);
      } catch (error) {
        take(token)?.reject(sendFault(error));
      }
    });
  };

  const bounded = (subject: string, data: Uint8Array | string, request: LeanRequestOptions, many: LeanManyOptions | undefined): Promise<Msg> =>
    (pending.size >= maxInFlight && state !== 'closed' ? Promise.reject(coded('overloaded')) : start(subject, data, request, many));

  /** A message to our own inbox: when it comes back, the server has handled everything sent before it. */
  const echo = (timeoutMs: number): Promise<Msg> => start(prefix + (lastToken + 1).toString(36), '', { timeoutMs }, undefined);

  const settled = async (timeoutMs: number): Promise<void> => {
    const deadlineAt = performance.now() + timeoutMs;
    for (;;) {
      try {
        await echo(deadlineAt - performance.now());
        return;
      } catch (error) {
        // A lost connection is asked again: the request then waits for it to be back.
        if (!(error instanceof CodedError) || error.code !== 'deadline_exceeded' || performance.now() >= deadlineAt) throw error;
      }
    }
  };

  return {
    request: (subject, data, request) => bounded(subject, data, request, undefined),
    requestMany: (subject, data, request) => bounded(subject, data, request, request),
    publish: (subject, data, { headers, reply } = {}) => {
      if (state !== 'up') return false;
      try {
        nc.publish(subject, data, publishOptions(headers, reply));
        return true;
      } catch (error) {
        const fault = sendFault(error);
        if (fault.code === 'draining') return false;
        throw fault;
      }
    },
    settled,
    onReconnect: (callback) => {
      reconnected.add(callback);
      return () => { reconnected.delete(callback); };
    },
    get connected() { return state === 'up'; },
    get inFlight() { return pending.size; },
    connection: nc,
    close,
  };
};
