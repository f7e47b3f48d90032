/**
 * One stream on the link: its credit (L5), its client's texts, its end (L6). The connection that carries it writes the frames.
 */
import { closeCodes } from '../../contracts/close.ts';
import { limits } from '../../contracts/limits.ts';
import type { AnyRoute } from '../../contracts/platform-routes.ts';
import type { Outlet } from './watcher.ts';

export interface StreamEvents {
  /** One client text message. */
  onText(text: string): void;
  /** The stream may be sent more than before. */
  onRoom(): void;
  /** The next bytes of the request's body, a view that is good for this call; none at all = it is complete. */
  onBody?(bytes: Buffer): void;
  /** It ended by the gateway or with the connection; nothing can be sent any more. */
  onEnd(): void;
}

/** A stream as its server sees it. */
export interface Stream {
  readonly id: number;
  readonly peer: Outlet;
  readonly route: AnyRoute;
  readonly token: string;
  readonly body: Buffer;
  /** Bytes of credit. May be negative after an oversized text (L5). */
  readonly credit: number;
  /** True if a text (or a batch) of that many bytes may be sent now, as far as credit goes. */
  room(bytes: number, texts: number): boolean;
  /** Lets so many further bytes of the request's body come. */
  grant(bytes: number): void;
  /** Sets who hears of it; before, texts that arrive are kept (at most `limits.linkStreamCommandsMax`). If it has ended already, `onEnd` is called at once. */
  listen(events: StreamEvents): void;
  close(code: number, reason: string): void;
}

/** The connection, as its streams see it. */
export interface StreamHost extends Outlet {
  closeStream(stream: PeerStream, code: number, reason: string): void;
  grantBody(stream: PeerStream, bytes: number): void;
}

/** A stream while it lives: what the connection keeps of it. */
export class PeerStream implements Stream {
  readonly id: number;
  readonly peer: StreamHost;
  readonly route: AnyRoute;
  readonly token: string;
  readonly body: Buffer;
  credit: number = limits.linkInitialCreditBytes;
  #events: StreamEvents | undefined;
  #early: string[] = [];
  #ended = false;
  /** Bytes of body that were granted and have not come. */
  #bodyCredit = 0;
  #bodyComplete = false;

  constructor(peer: StreamHost, id: number, route: AnyRoute, token: string, body: Buffer) {
    this.peer = peer;
    this.id = id;
    this.route = route;
    this.token = token;
    this.body = body;
  }

  room(bytes: number, texts: number): boolean {
    return bytes <= this.credit || (texts === 1 && this.credit >= limits.linkInitialCreditBytes);
  }

  listen(events: StreamEvents): void {
    this.#events = events;
    const early = this.#early;
    this.#early = [];
    for (const text of early) if (!this.#ended) events.onText(text);
    if (this.#ended) events.onEnd();
  }

  close(code: number, reason: string): void {
    this.peer.closeStream(this, code, reason);
  }

  grant(bytes: number): void {
    if (this.#ended || this.#bodyComplete || bytes <= 0) return;
    this.#bodyCredit += bytes;
    this.peer.grantBody(this, bytes);
  }

  /** False: nobody granted that. */
  onBody(bytes: Buffer): boolean {
    if (this.#bodyComplete || bytes.length > this.#bodyCredit || this.#events === undefined) return false;
    this.#bodyCredit -= bytes.length;
    this.#bodyComplete = bytes.length === 0;
    this.#events.onBody?.(bytes);
    return true;
  }

  onText(text: string): void {
    if (this.#events !== undefined) this.#events.onText(text);
    else if (this.#early.length < limits.linkStreamCommandsMax) this.#early.push(text);
    else this.close(closeCodes.upstream_unavailable.code, closeCodes.upstream_unavailable.reason);
  }

  onCredit(bytes: number): void {
    // More than a queue's worth is of no use and would let a broken peer overflow the count.
    this.credit = Math.min(this.credit + bytes, limits.linkQueueMaxBytes);
    this.#events?.onRoom();
  }

  onEnd(): void {
    this.#ended = true;
    this.#events?.onEnd();
  }
}
