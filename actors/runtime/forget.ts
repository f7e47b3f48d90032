/**
 * Forgetting: an actor to which nothing has happened for its type's `forgetAfterMs` is as if it had never been.
 *
 * Guarantees
 * F1  Its journal first gets a last commit, `$forgotten`, appended as every other (fenced): so it was quiet until then, and this host owned it.
 *     After that commit a new life may begin at any moment, on any host; it stands on nothing of before (fold.ts, recover.ts R3).
 * F2  Then snapshot, reminder entry and journal up to that commit are erased. Done late, twice or by half it harms nothing: what is
 *     left ends with `$forgotten`, and what follows is not touched.
 * F3  While it is done here nobody activates the actor here (engine.ts).
 * Unfinished effects of an actor that nobody has activated for so long are forgotten with it.
 */
import type { Commit } from '../../contracts/event.ts';
import { runtimeKinds } from '../../contracts/event.ts';
import { coded, CodedError } from '../../contracts/errors.ts';
import { journalSubject, snapshotSubject, type ActorAddress } from '../../contracts/subjects.ts';
import { decodeCommit, encodeCommit, hashOf } from './commit.ts';
import { endsLife } from './fold.ts';
import type { Site } from './site.ts';

export interface ForgetInput {
  readonly site: Pick<Site, 'journal' | 'snapshots' | 'reminders' | 'ulids' | 'clock' | 'owns'>;
  readonly actor: { readonly self: ActorAddress; readonly key: string; readonly partition: number; readonly epoch: number };
  /** Stream sequence of the commit after which nothing has happened. */
  readonly seq: number;
}

/** False = something has happened since. Throws `not_owner`, `journal_unavailable`. */
export const forgetActor = async ({ site, actor, seq }: ForgetInput): Promise<boolean> => {
  const { self, key, partition, epoch } = actor;
  const subject = journalSubject(partition, self);
  const last = await site.journal.last(subject);
  if (last === undefined || last.seq !== seq) return false;
  const before = decodeCommit(last.data);
  if (before.e > epoch) throw coded('not_owner');
  let upTo = last.seq;
  if (!endsLife(before)) {
    const end: Commit = {
      v: 1, e: epoch, n: before.n + before.ev.length, f: before.f + before.c, c: 0, m: before.m, p: last.seq, h: hashOf(last.data), t: site.clock.now(),
      ev: [{ id: site.ulids.after(before.ev.at(-1)?.id ?? ''), k: runtimeKinds.forgotten, d: {} }],
    };
    if (!site.owns(partition, epoch)) throw coded('not_owner');
    try {
      upTo = await site.journal.append(subject, encodeCommit(end), last.seq);
    } catch (error) {
      if (error instanceof CodedError && error.code === 'fenced') return false;
      throw error;
    }
  }
  // The journal last: as long as it is there, whoever looks finds what is left to do.
  await site.snapshots.delete(snapshotSubject(partition, self));
  await site.reminders.delete(key, self, partition);
  await site.journal.erase(subject, upTo);
  return true;
};
