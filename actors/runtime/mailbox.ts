/**
 * The mailbox of an activation: what waits for its turn, in order. Commands come from callers; the rest is the runtime's own
 * and bounded elsewhere (effects, reminders).
 *
 * Guarantee: each item leaves once: it gets its turn, or its caller an error. Bounds are the activation's business.
 */
import { coded, type CodedError } from '../../contracts/errors.ts';
import type { ErasedCommand, Outcome } from './define.ts';
import type { ForkBase } from './fork.ts';
import type { Message } from './message.ts';

interface Settle {
  readonly resolve: (value: unknown) => void;
  readonly reject: (error: unknown) => void;
}

export type Item =
  | ({ readonly kind: 'command'; readonly message: Message; readonly command: ErasedCommand; readonly input: unknown; readonly base: ForkBase | undefined } & Settle)
  /** An effect's outcome; `tries` runs of its `done` have ended in a bug. */
  | { readonly kind: 'outcome'; readonly id: string; readonly outcome: Outcome<unknown>; readonly tries: number }
  | { readonly kind: 'reminder'; readonly name: string; readonly tries: number }
  /** Puts the reminders that are due before itself, then (`woken`) waits for their commit. */
  | ({ readonly kind: 'wake' | 'woken' } & Settle)
  | { readonly kind: 'idle' };

/** Why a message is not worth a turn (any more): `aborted`, `deadline_exceeded`, or undefined. */
export const overdue = (message: Message, monotonic: number): CodedError | undefined => {
  if (message.signal?.aborted === true) return coded('aborted');
  return message.deadlineAt !== undefined && message.deadlineAt <= monotonic ? coded('deadline_exceeded') : undefined;
};

export class Mailbox {
  #items: Item[] = [];

  get empty(): boolean {
    return this.#items.length === 0;
  }

  push(item: Item): void {
    this.#items.push(item);
  }

  /** Puts items before all others, in their order. */
  pushFront(items: readonly Item[]): void {
    this.#items.unshift(...items);
  }

  shift(): Item | undefined {
    return this.#items.shift();
  }

  holdsOutcome(id: string): boolean {
    return this.#items.some((item) => item.kind === 'outcome' && item.id === id);
  }

  /** Answers callers who wait no longer; gives how many. */
  sweep(monotonic: number): number {
    let answered = 0;
    const kept: Item[] = [];
    for (const item of this.#items) {
      const late = item.kind === 'command' ? overdue(item.message, monotonic) : undefined;
      if (item.kind !== 'command' || late === undefined) kept.push(item);
      else {
        answered += 1;
        item.reject(late);
      }
    }
    if (answered > 0) this.#items = kept;
    return answered;
  }

  /** Empties it; every caller gets `error`. Gives how many commands waited. */
  refuse(error: CodedError): number {
    const items = this.#items;
    this.#items = [];
    let commands = 0;
    for (const item of items) {
      if (item.kind === 'command') commands += 1;
      if (item.kind === 'command' || item.kind === 'wake' || item.kind === 'woken') item.reject(error);
    }
    return commands;
  }
}
