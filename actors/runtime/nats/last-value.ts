/**
 * Last value per subject over a stream that keeps one message a subject (SNAPSHOT, REMINDER).
 *
 * `get` is exact: a direct read where there is one copy, else the leader's. `list` is direct and may still hold what was
 * just deleted, but its end is confirmed with the leader, because a reminder that is not in the list is not fired by the
 * host that just took the partition. Writes are unfenced: after an unanswered write an older value may arrive late and win.
 * Both are allowed, because neither snapshots nor the reminder index are the truth.
 */
import { coded } from '../../../contracts/errors.ts';
import { limits } from '../../../contracts/limits.ts';
import type { LastValue, StoredMessage } from '../store.ts';
import { apiError } from './ack.ts';
import type { Lean } from './lean.ts';
import { publishStored } from './publish.ts';
import { directGet, forward, leaderLast, readTimes } from './read.ts';
import { untilAnswered } from './retry.ts';

/** Makes the last-value store on a stream that exists, kept in so many copies. Each call waits at most three times `limits.appendAckMs`, then `journal_unavailable`. */
export const createNatsLastValue = (lean: Lean, stream: string, replicas: number): LastValue => ({
  get: (subject) => (replicas === 1 ? directGet(lean, stream, { last_by_subj: subject }) : leaderLast(lean, stream, subject)),
  put: async (subject, data) => { await publishStored(lean, subject, data); },
  delete: (subject) =>
    untilAnswered(readTimes.deadlineMs, limits.appendAckMs, async (timeoutMs) => {
      const answer = await lean.request(`$JS.API.STREAM.PURGE.${stream}`, JSON.stringify({ filter: subject }), { timeoutMs });
      const body: unknown = JSON.parse(answer.string());
      const error = apiError(body);
      if (error?.code === 503) throw coded('no_owner', error.description);
      if (error !== undefined) throw coded('journal_unavailable', `${stream} refused to delete: ${error.description}.`);
    }),
  list: async (filter) => {
    // A value that is replaced while we read moves to the end: we meet it again there, and the later one counts.
    const values = new Map<string, StoredMessage>();
    for await (const batch of forward(lean, stream, filter, 1, Infinity)) {
      for (const message of batch) values.set(message.subject, message);
    }
    return [...values.values()];
  },
});
