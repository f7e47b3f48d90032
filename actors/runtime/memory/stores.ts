/** All stores of a cluster in process: what several engines of one test share. */
import type { Feed, Inbox } from '../store.ts';
import { createMemoryJournal, type MemoryJournal } from './journal.ts';
import { createMemoryLastValue, type MemoryLastValue } from './last-value.ts';

export interface InboxMessage {
  readonly subject: string;
  readonly id: string;
  readonly data: Uint8Array;
}

export interface MemoryInbox extends Inbox {
  /** What was sent and not taken, in order. */
  readonly messages: readonly InboxMessage[];
  /** Acknowledges a message: it is gone. */
  take(message: InboxMessage): void;
}

export interface MemoryStores {
  readonly journal: MemoryJournal;
  readonly snapshots: MemoryLastValue;
  readonly reminders: MemoryLastValue;
  readonly inbox: MemoryInbox;
  readonly feed: Feed;
}

const createMemoryInbox = (): MemoryInbox => {
  const messages: InboxMessage[] = [];
  const ids = new Set<string>();
  return {
    messages,
    async send(subject, id, data) {
      if (ids.has(id)) return;
      ids.add(id);
      messages.push({ subject, id, data });
    },
    take(message) {
      const at = messages.indexOf(message);
      if (at >= 0) messages.splice(at, 1);
    },
  };
};

/** `now`: Unix milliseconds for the messages' times. Default the system's clock. */
export const createMemoryStores = (now: () => number = () => Date.now()): MemoryStores => {
  const { journal, feed } = createMemoryJournal(now);
  return { journal, feed, snapshots: createMemoryLastValue(now), reminders: createMemoryLastValue(now), inbox: createMemoryInbox() };
};
