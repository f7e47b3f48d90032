/**
 * The runtime's storage over one NATS connection, wired together. The streams must exist (`ensureStreams`), the server
 * must have been checked (`checkServer`). Closing `lean` ends all of it; the connection belongs to the caller.
 */
import type { NatsConnection } from 'nats';
import type { Feed, Inbox, Journal, LastValue } from '../store.ts';
import { streams } from '../../../contracts/subjects.ts';
import { createNatsFeed } from './feed.ts';
import { createNatsInbox } from './inbox.ts';
import { createNatsJournal } from './journal.ts';
import { createNatsLastValue } from './last-value.ts';
import { createLean, type Lean } from './lean.ts';
import type { StreamPlan } from './streams.ts';

export interface Stores {
  readonly journal: Journal;
  readonly snapshots: LastValue;
  readonly reminders: LastValue;
  readonly inbox: Inbox;
  readonly feed: Feed;
}

export interface NatsStores extends Stores {
  readonly lean: Lean;
}

/** `ackMs` and `deadlineMs`: the journal's waits, where they shall differ from `limits`. */
export interface NatsStoresOptions extends StreamPlan {
  readonly ackMs?: number;
  readonly deadlineMs?: number;
}

/** Wires the stores on a connection; one `lean` serves them all, and the cluster part's requests. */
export const createNatsStores = (nc: NatsConnection, options: NatsStoresOptions): NatsStores => {
  const lean = createLean(nc);
  return {
    lean,
    journal: createNatsJournal(lean, options),
    snapshots: createNatsLastValue(lean, streams.snapshot, options.replicas),
    reminders: createNatsLastValue(lean, streams.reminder, options.replicas),
    inbox: createNatsInbox(lean),
    feed: createNatsFeed(lean),
  };
};
