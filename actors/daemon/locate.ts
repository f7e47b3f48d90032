/**
 * Finds where in the journal a `seq_no` stands, without reading what lies between: commits carry their first `seq_no`, so the
 * stream can be searched. Galloping from the head (a reconnecting client is near it), then bisection; a few reads of one message each.
 */
import { coded } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { decodeCommit } from '../runtime/commit.ts';
import type { Journal } from '../runtime/store.ts';

/** Gallop steps, in stream sequences; other actors' messages lie between. */
const firstStep = 64;
const stepGrowth = 8;

/**
 * A stream sequence after which the event `seqNo` and all later ones lie, with at most a batch of older ones before it.
 * `headSeq` = stream sequence of a commit of the subject at or after the event. Throws `sequence_retired` when the event is no longer
 * in the journal.
 */
export const locate = async (journal: Journal, subject: string, seqNo: number, headSeq: number): Promise<number> => {
  // Near the start: reading from the beginning costs no more than looking for a place.
  if (seqNo <= limits.replayBatchCommits) return 0;
  const probe = async (from: number): Promise<{ seq: number; first: number }> => {
    const found = await journal.firstFrom(subject, from);
    if (found === undefined) throw coded('sequence_retired');
    return { seq: found.seq, first: decodeCommit(found.data).f };
  };

  let below: { seq: number; first: number } | undefined;
  let above = headSeq + 1;
  for (let step = firstStep; below === undefined; step *= stepGrowth) {
    const from = Math.max(1, above - step);
    const found = await probe(from);
    if (found.first <= seqNo) below = found;
    else if (from === 1) throw coded('sequence_retired');
    else above = from;
  }
  while (seqNo - below.first > limits.replayBatchCommits && above - below.seq > 1) {
    const middle = Math.floor((below.seq + above) / 2);
    const found = await probe(middle);
    if (found.seq < above && found.first <= seqNo) below = found;
    else above = middle;
  }
  return below.seq - 1;
};
