/**
 * One WebSocket and its link stream (interface 2.15, 4.6; decisions, Edge gateway).
 *
 * Guarantees:
 * E1  Bytes from the link go to the socket as they are: neither parsed nor copied here.
 * E2  Every close by the server is preceded by a `closing` frame with the same reason.
 * E3  The daemon is granted again only what the socket has taken below `socketHighWaterBytes`; a socket that stays above
 *     it for `slowMs` without taking a byte closes with 4002. Nothing is dropped silently.
 * E4  A frame reaches the daemon only if it is text, at most 64 KiB, within the user's rate, and a valid envelope.
 * It keeps no position and no event: a client that comes back says where it was.
 */
import { limits } from '../contracts/limits.ts';
import { routes } from '../contracts/routes.ts';
import { closeCodes, outboundKinds, wireOutbound, type CloseName, type WireOutbound } from '../contracts/stream.ts';
import { addressTokens } from '../contracts/subjects.ts';
import type { Capabilities } from './capability.ts';
import { timerMaxMs, type Clock } from './clock.ts';
import type { Creditor, Credits } from './credit.ts';
import type { Gate } from './gate.ts';
import type { Link, LinkStream } from './link.ts';
import type { Log } from './log.ts';
import type { Metrics } from './metrics.ts';
import type { Upgrade } from './upgrade.ts';

/** The socket as server.ts gives it (uWebSockets.js' WebSocket fits). After `end` it must not be touched. */
export interface ClientSocket {
  /** 0 = kept because the peer takes no more now, 1 = written, 2 = dropped: the bound of kept bytes is reached. */
  send(message: string | Uint8Array, isBinary?: boolean): number;
  getBufferedAmount(): number;
  cork(write: () => void): unknown;
  ping(): number;
  end(code: number, reason: string): void;
}

export interface StreamOptions {
  readonly link: Link;
  readonly capabilities: Capabilities;
  readonly gate: Gate;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: Metrics;
  readonly credits: Credits;
  /** Milliseconds between two pings. */
  readonly heartbeatMs: number;
  /** Milliseconds above the high water mark without taking a byte. */
  readonly slowMs: number;
}

const byCode: ReadonlyMap<number, CloseName> = new Map(
  (Object.keys(closeCodes) as CloseName[]).map((name) => [closeCodes[name].code, name]),
);
const closingText: ReadonlyMap<CloseName, string> = new Map(
  (Object.keys(closeCodes) as CloseName[]).map((name) => [name, JSON.stringify({ kind: 'closing', reason: closeCodes[name].reason })]),
);

export class StreamConnection implements Creditor {
  readonly #options: StreamOptions;
  readonly #upgrade: Upgrade;
  /** undefined before the socket is open and after it has ended. */
  #socket: ClientSocket | undefined;
  #stream: LinkStream | undefined;
  #openedAtMs = 0;
  #unanswered = 0;
  #stopHeartbeat: (() => void) | undefined;
  #stopExpiry: (() => void) | undefined;
  #stopSlow: (() => void) | undefined;
  #tookAtMs = 0;
  /** Bytes given to the socket that have not been granted again. */
  #owed = 0;

  constructor(options: StreamOptions, upgrade: Upgrade) {
    this.#options = options;
    this.#upgrade = upgrade;
  }

  opened(socket: ClientSocket): void {
    const { identity, sid, lastSeqNo } = this.#upgrade;
    const { capabilities, clock, link, heartbeatMs } = this.#options;
    this.#socket = socket;
    this.#openedAtMs = clock.monotonicMs();
    this.#stopHeartbeat = clock.every(heartbeatMs, () => this.#beat());
    this.#watchExpiry(identity.exp);
    // oxlint-disable-next-line no-unnecessary-condition -- #watchExpiry may have closed it.
    if (this.#socket === undefined) return;
    this.#stream = link.open(routes.stream, {
      token: capabilities.forAgent(identity.sub, identity.org, identity),
      body: JSON.stringify(lastSeqNo === undefined ? { sid } : { sid, last_seq_no: lastSeqNo }),
      ...this.#partition(),
      onTexts: (texts, bytes) => this.#write(texts, bytes),
      onClose: (code) => this.close(byCode.get(code) ?? 'internal_error'),
    });
  }

  /** A client's frame; `message` is valid during the call only. */
  message(message: ArrayBuffer, isBinary: boolean): void {
    if (this.#socket === undefined) return;
    if (isBinary) return this.close('unsupported');
    if (message.byteLength > limits.clientFrameMaxBytes) return this.close('too_big');
    try {
      this.#options.gate.takeUser(this.#upgrade.identity.sub);
    } catch {
      // takeUser refuses for one reason only, and on a stream that reason is a close code.
      return this.close('rate_limited');
    }
    const text = Buffer.from(message).toString('utf8');
    const envelope = readEnvelope(text);
    if (typeof envelope === 'string') return this.close(envelope);
    switch (envelope.kind) {
      case 'ping':
        this.#socket.send(`{"kind":"pong","seq_no":${envelope.seq_no}}`);
        return;
      case 'close':
        return this.close('normal');
      case 'send_message':
      case 'approve_dispatch':
      case 'cancel_dispatch':
        this.#stream?.send(text);
        return;
    }
  }

  pong(): void {
    this.#unanswered = 0;
  }

  /** The socket took bytes it had kept. */
  drained(): void {
    if (this.#socket === undefined) return;
    this.#tookAtMs = this.#options.clock.monotonicMs();
    this.#settle(this.#socket);
  }

  /** The socket has ended, by either side. */
  ended(code: number): void {
    const { clock, metrics } = this.#options;
    this.#upgrade.release();
    this.#forget();
    const { normal } = closeCodes;
    this.#stream?.close(normal.code, normal.reason);
    this.#stream = undefined;
    metrics.closes.add(byCode.has(code) ? code : 'other');
    metrics.socket.observe((clock.monotonicMs() - this.#openedAtMs) / 1_000);
  }

  /** Ends the stream from this side: closing frame, close code, and the daemon's half. Does nothing if it has ended. */
  close(name: CloseName): void {
    const socket = this.#socket;
    if (socket === undefined) return;
    const { code, reason } = closeCodes[name];
    this.#forget();
    this.#stream?.close(code, reason);
    this.#stream = undefined;
    socket.cork(() => {
      socket.send(closingText.get(name) ?? '');
      socket.end(code, reason);
    });
  }

  /** Grants what is owed if the socket keeps up. Called by `Credits`, and when a quarter of the window has gathered. */
  grant(): void {
    if (this.#owed === 0 || this.#socket === undefined) return;
    if (this.#socket.getBufferedAmount() > limits.socketHighWaterBytes) return;
    const bytes = this.#owed;
    this.#owed = 0;
    this.#stream?.credit(bytes);
  }

  #write(texts: readonly Buffer[], bytes: number): void {
    const socket = this.#socket;
    if (socket === undefined) return;
    let dropped = false;
    const [only] = texts;
    if (texts.length === 1 && only !== undefined) {
      dropped = socket.send(only, false) === 2;
    } else {
      socket.cork(() => {
        for (const text of texts) if (socket.send(text, false) === 2) dropped = true;
      });
    }
    // Kept bytes are bounded by the granted credit; a daemon that ignores it is cut here rather than believed.
    if (dropped) return this.close('slow_consumer');
    this.#owed += bytes;
    this.#settle(socket);
  }

  /** Decides by the kept bytes: grant soon, or watch for a reader that has stopped. */
  #settle(socket: ClientSocket): void {
    const { clock, credits, slowMs } = this.#options;
    if (socket.getBufferedAmount() > limits.socketHighWaterBytes) {
      if (this.#stopSlow !== undefined) return;
      this.#tookAtMs = clock.monotonicMs();
      this.#stopSlow = clock.after(slowMs, () => this.#checkSlow());
      return;
    }
    this.#stopSlow?.();
    this.#stopSlow = undefined;
    if (this.#owed >= limits.linkInitialCreditBytes / 4) this.grant();
    else if (this.#owed > 0) credits.soon(this);
  }

  #checkSlow(): void {
    this.#stopSlow = undefined;
    if (this.#socket === undefined) return;
    const { clock, slowMs } = this.#options;
    const idleMs = clock.monotonicMs() - this.#tookAtMs;
    if (idleMs >= slowMs) return this.close('slow_consumer');
    this.#stopSlow = clock.after(slowMs - idleMs, () => this.#checkSlow());
  }

  #beat(): void {
    if (this.#socket === undefined) return;
    if (this.#unanswered >= limits.missedPongsMax) return this.close('missed_pongs');
    this.#unanswered += 1;
    this.#socket.ping();
  }

  /** A token that was let in within its leeway has until the end of it. */
  #watchExpiry(exp: number): void {
    const { clock } = this.#options;
    const nowMs = clock.wallMs();
    const endMs = (exp * 1_000 > nowMs ? exp : exp + limits.tokenLeewaySec) * 1_000;
    if (endMs <= nowMs) return this.close('token_expired');
    this.#stopExpiry = clock.after(Math.min(endMs - nowMs, timerMaxMs), () => {
      if (clock.wallMs() >= endMs) this.close('token_expired');
      else this.#watchExpiry(exp);
    });
  }

  #partition(): { partitionKey?: string } {
    const { identity, sid } = this.#upgrade;
    try {
      return { partitionKey: addressTokens({ org: identity.org, type: 'session', key: sid }) };
    } catch (error) {
      // Not an address: no session can have it, so any daemon may say so.
      this.#options.log.debug({ error: String(error) }, 'stream without partition');
      return {};
    }
  }

  #forget(): void {
    this.#socket = undefined;
    this.#owed = 0;
    this.#stopHeartbeat?.();
    this.#stopExpiry?.();
    this.#stopSlow?.();
    this.#stopHeartbeat = this.#stopExpiry = this.#stopSlow = undefined;
  }
}

/** The envelope, or the name of the close its fault leads to. */
const readEnvelope = (text: string): WireOutbound | 'unsupported' | 'invalid_payload' => {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    // Not JSON: 1007 (decisions, Edge gateway).
    return 'invalid_payload';
  }
  if (typeof value !== 'object' || value === null || !('kind' in value) || typeof value.kind !== 'string') return 'invalid_payload';
  if (!outboundKinds.has(value.kind)) return 'unsupported';
  const parsed = wireOutbound.safeParse(value);
  return parsed.success ? parsed.data : 'invalid_payload';
};
