/**
 * Where in a session's journals an event is that clients of a branch see: to fork there, and to show the state there. Read from the journals alone.
 *
 * Guarantee: only what clients of the branch see is found, its past among it; a place never changes.
 */
import { coded } from '../../../contracts/errors.ts';
import { eventCursor } from '../../../contracts/runtime-routes.ts';
import { journalSubject, partitionOf, type ActorAddress } from '../../../contracts/subjects.ts';
import { decodeCommit } from '../../runtime/commit.ts';
import { commitsAfter, type JournalSource } from './after.ts';
import type { PastJournal, SessionBranch } from './branch.ts';
import { clientEvents } from './envelope.ts';
import { journalEvents } from './events.ts';
import { justBelow } from './follow.ts';

export interface Place {
  /** The branch whose journal holds the event, and where that is. */
  readonly branch: string;
  readonly address: ActorAddress;
  /** Of the event. */
  readonly id: string;
  readonly number: number;
  /** Number of the last event up to which the state is folded: the event's own, or at the head what the machinery journaled after it. */
  readonly upTo: number;
  /** Journals before that one. */
  readonly past: readonly PastJournal[];
}

/** Throws `event_not_found`, `journal_unavailable`. */
export const findPlace = async (source: JournalSource, of: SessionBranch, id: string): Promise<Place> => {
  if (!eventCursor.safeParse(id).success) throw coded('event_not_found');
  // Ids ascend over the journals, one after the other.
  const nth = of.past.findIndex(({ upTo }) => id <= upTo);
  const { branch, address } = of.past[nth] ?? of;
  const past = nth < 0 ? of.past : of.past.slice(0, nth);
  for await (const { event, number } of journalEvents(source, address, justBelow(id))) {
    if (event.id === id) return { branch, address, id, number, upTo: number, past };
    break;
  }
  throw coded('event_not_found');
};

/** The last event of a branch's own journal, which has at least the one that made it. Throws `journal_unavailable`. */
export const findHead = async ({ journal, partitions }: JournalSource, { branch, address, past }: SessionBranch): Promise<Place> => {
  const subject = journalSubject(partitionOf(address, partitions), address);
  let message = await journal.last(subject);
  let upTo: number | undefined;
  while (message !== undefined) {
    const commit = decodeCommit(message.data);
    upTo ??= commit.n + commit.ev.length - 1;
    const seen = clientEvents(commit).at(-1);
    if (seen !== undefined) return { branch, address, id: seen.event.id, number: seen.number, upTo, past };
    message = commit.p === 0 ? undefined : await journal.firstFrom(subject, commit.p);
  }
  throw coded('session_not_found');
};

/** How many events clients see up to a place. Reads the journal that it is in up to there. */
export const countUpTo = async (source: JournalSource, { address, number, past }: Place): Promise<number> => {
  let count = past.at(-1)?.count ?? 0;
  for await (const commit of commitsAfter(source, address, '')) {
    if (commit.n > number) break;
    count += clientEvents(commit).filter((seen) => seen.number <= number).length;
  }
  return count;
};
