/**
 * Reads an actor's journal from a ULID cursor on, without waking the actor: event ids ascend within an actor, so the place is found by search
 * (galloping from the head, then bisection), and what lies before it is not read.
 */
import type { Commit } from '../../../contracts/event.ts';
import { journalSubject, partitionOf, type ActorAddress } from '../../../contracts/subjects.ts';
import { decodeCommit } from '../../runtime/commit.ts';
import type { Journal } from '../../runtime/store.ts';

/** Gallop steps, in stream sequences; other actors' messages lie between. */
const firstStep = 64;
const stepGrowth = 8;

const lastIdOf = (data: Uint8Array): string => decodeCommit(data).ev.at(-1)?.id ?? '';

/** A stream sequence after which every event with an id above `after` lies; the newest such that is a commit's. 0 = read from the start. */
const seek = async (journal: Journal, subject: string, after: string, headSeq: number): Promise<number> => {
  if (after === '') return 0;
  let below = 0;
  let above = headSeq + 1;
  for (let step = firstStep; below === 0 && above > 1; step *= stepGrowth) {
    const from = Math.max(1, above - step);
    const found = await journal.firstFrom(subject, from);
    if (found !== undefined && found.seq < above && lastIdOf(found.data) <= after) below = found.seq;
    else above = from;
  }
  while (above - below > 1 && below > 0) {
    const middle = Math.floor((below + above) / 2);
    const found = await journal.firstFrom(subject, middle);
    if (found !== undefined && found.seq < above && lastIdOf(found.data) <= after) below = found.seq;
    else above = middle;
  }
  return below;
};

export interface JournalSource {
  readonly journal: Journal;
  readonly partitions: number;
}

/** Commits that may hold events with ids above `after` (empty = all), up to the one that is the last now; the first may hold older ones too. */
export async function* commitsAfter({ journal, partitions }: JournalSource, address: ActorAddress, after: string): AsyncGenerator<Commit, void, undefined> {
  const subject = journalSubject(partitionOf(address, partitions), address);
  const head = await journal.last(subject);
  if (head === undefined || (after !== '' && lastIdOf(head.data) <= after)) return;
  for await (const messages of journal.read(subject, await seek(journal, subject, after, head.seq), head.seq)) {
    for (const message of messages) yield decodeCommit(message.data);
  }
}
