/**
 * What a client has asked for and not yet seen done. After a reconnect all of it is sent again; the server takes a repeated
 * `message_id`, approval or cancel once only, so that a crash loses no message and runs none twice.
 *
 * O1  A message stays until the end of its turn was seen: turns run in order, so the oldest message is settled by the next
 *     FINISH or ERROR after it was written. A turn that already ran for someone else when it was written is not counted.
 * O2  An approval or cancel of a call stays until the call's TOOL_RESULT or the end of the turn; a cancel of the running
 *     turn until the turn's end.
 * O3  Both lists are bounded (`clientOutboxMax`, `clientDecisionsMax`); over it `session_busy` is thrown.
 *
 * Not covered: the stream does not say whose turn ended. When several clients write to one session at the same moment, an
 * end may be credited to the wrong one of them; nothing runs twice, but a message lost in a crash just then is not repeated.
 */
import { coded } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import type { WireOutbound } from '../../contracts/stream.ts';
import type { StreamEvent } from './frame.ts';

/** A message whose turn has not ended. Plain data: may be stored and given to a new stream of the same session. */
export interface PendingMessage {
  readonly messageId: string;
  readonly content: string;
  /** `sha256:<64 hex>` of an attachment. */
  readonly attachment?: string;
  /** Ends of turns up to this seq_no are not this message's. */
  readonly after: number;
  /** A turn of someone else ran when the message was written: its end is passed over. */
  readonly behindOther: boolean;
}

/** How a message's turn ended. */
export type TurnEnd =
  | { readonly kind: 'finish'; readonly seqNo: number; readonly reason: Extract<StreamEvent, { agent_kind: 'FINISH' }>['payload']['finish_reason']; readonly usage: Extract<StreamEvent, { agent_kind: 'FINISH' }>['payload']['usage'] }
  | { readonly kind: 'error'; readonly seqNo: number; readonly code: string; readonly message: string }
  /** The stream ended first; the message may still run. */
  | { readonly kind: 'closed' };

interface Decision {
  readonly kind: 'approve_dispatch' | 'cancel_dispatch';
  /** Empty = the running turn. */
  readonly dispatchId: string;
  readonly callId: string | undefined;
}

export class Outbox {
  readonly #messages: PendingMessage[];
  readonly #ends = new Map<string, (end: TurnEnd) => void>();
  #decisions: Decision[] = [];
  /** dispatch_id → call_id of approvals that wait. */
  readonly #waiting = new Map<string, string>();
  #running = false;

  constructor(pending: readonly PendingMessage[]) {
    this.#messages = pending.slice(0, limits.clientOutboxMax);
  }

  get pending(): readonly PendingMessage[] {
    return this.#messages;
  }

  /** Adds a message written when `lastSeqNo` was the last event seen. Throws `session_busy` at the bound. */
  add(message: { messageId: string; content: string; attachment?: string }, lastSeqNo: number): { frame: WireOutbound; ended: Promise<TurnEnd> } {
    if (this.#messages.length >= limits.clientOutboxMax) throw coded('session_busy');
    const pending: PendingMessage = { ...message, after: lastSeqNo, behindOther: this.#running && this.#messages.length === 0 };
    const frame = messageFrame(pending);
    this.#messages.push(pending);
    const ended = new Promise<TurnEnd>((resolve) => { this.#ends.set(pending.messageId, resolve); });
    return { frame, ended };
  }

  /** Keeps an approval or cancel; undefined when the same one is kept already. Throws `session_busy` at the bound. */
  decide(kind: Decision['kind'], dispatchId: string): WireOutbound {
    const frame: WireOutbound = { kind, dispatch_id: dispatchId };
    const known = this.#decisions.some((d) => d.kind === kind && d.dispatchId === dispatchId);
    // Without a turn there is nothing whose effect could be awaited: said once, not kept.
    if (known || (!this.#running && this.#messages.length === 0)) return frame;
    if (this.#decisions.length >= limits.clientDecisionsMax) throw coded('session_busy');
    this.#decisions.push({ kind, dispatchId, callId: this.#waiting.get(dispatchId) });
    return frame;
  }

  /** Takes an event into account; true if something was settled. */
  take(event: StreamEvent): boolean {
    switch (event.agent_kind) {
      case 'TOKEN':
      case 'TOOL_CALL_PENDING':
        this.#running = true;
        return false;
      case 'APPROVAL_REQUIRED':
        this.#running = true;
        this.#waiting.set(event.payload.dispatch_id, event.payload.call_id);
        return false;
      case 'TOOL_RESULT': {
        this.#running = true;
        const { call_id } = event.payload;
        for (const [dispatch, call] of this.#waiting) if (call === call_id) this.#waiting.delete(dispatch);
        const before = this.#decisions.length;
        this.#decisions = this.#decisions.filter((d) => d.callId !== call_id);
        return this.#decisions.length !== before;
      }
      case 'FINISH':
        return this.#endTurn({ kind: 'finish', seqNo: event.seq_no, reason: event.payload.finish_reason, usage: event.payload.usage });
      case 'ERROR': {
        const end: TurnEnd = { kind: 'error', seqNo: event.seq_no, code: event.payload.code, message: event.payload.message };
        // A refused message never had a turn, and the one refused is the one that came last; the running turn goes on.
        return event.record.kind === 'MessageRefused' ? this.#settle(this.#messages.length - 1, end) : this.#endTurn(end);
      }
      case 'HIBERNATE':
        this.#running = false;
        return false;
    }
  }

  /** Frames to send again on a new connection, in order; without the cancel of the running turn. */
  unsettled(): WireOutbound[] {
    return [
      ...this.#messages.map(messageFrame),
      ...this.#decisions.filter((d) => d.dispatchId !== '').map((d): WireOutbound => ({ kind: d.kind, dispatch_id: d.dispatchId })),
    ];
  }

  /** Whether a cancel of the running turn waits for its effect. It names no turn, so it is repeated only when the replay is over. */
  get cancelsTurn(): boolean {
    return this.#decisions.some((d) => d.dispatchId === '');
  }

  /** The stream is over: nobody waits any longer. The messages stay readable in `pending`. */
  end(): void {
    for (const resolve of this.#ends.values()) resolve({ kind: 'closed' });
    this.#ends.clear();
  }

  #endTurn(end: Exclude<TurnEnd, { kind: 'closed' }>): boolean {
    this.#running = false;
    this.#waiting.clear();
    const hadDecisions = this.#decisions.length > 0;
    this.#decisions = [];
    const oldest = this.#messages[0];
    if (oldest?.behindOther === true && end.seqNo > oldest.after) {
      this.#messages[0] = { ...oldest, after: end.seqNo, behindOther: false };
      return true;
    }
    return this.#settle(0, end) || hadDecisions;
  }

  #settle(index: number, end: Exclude<TurnEnd, { kind: 'closed' }>): boolean {
    const message = this.#messages[index];
    if (message === undefined || end.seqNo <= message.after) return false;
    this.#messages.splice(index, 1);
    this.#ends.get(message.messageId)?.(end);
    this.#ends.delete(message.messageId);
    return true;
  }
}

const messageFrame = (m: PendingMessage): WireOutbound => ({
  kind: 'send_message', content: m.content, message_id: m.messageId,
  ...(m.attachment === undefined ? {} : { attachment_blob_ref: m.attachment }),
});

/** Bytes a message takes as a frame; over `limits.clientFrameMaxBytes` its content must go as an attachment. */
export const frameBytes = (frame: WireOutbound): number => new TextEncoder().encode(JSON.stringify(frame)).length;
