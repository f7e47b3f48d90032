/**
 * Recovery: from the journal to a core that this host owns (design G1; notes/jetstream 5, 9).
 *
 * R1  The epoch record is appended with the sequence of the subject's last message (a leader read) as expectation. Once it
 *     is acknowledged, whoever wrote before cannot append any more, and everything before it has been read.
 * R2  Everything between snapshot and epoch record is read and folded, its chain checked; a snapshot that does not stand on
 *     this journal is ignored, never trusted.
 * R3  An actor without a journal gets its epoch record with its first commit: that append expects sequence 0 and so fences
 *     as well. Asking after actors that do not exist writes nothing.
 *     The same where the journal's last message ends a life that was forgotten (forget.ts): the first commit expects that message.
 * R4  A journal whose last epoch is newer than ours belongs to another host: `not_owner`, nothing is appended.
 * Two round trips: last message and snapshot together, then the epoch record and the tail together.
 */
import type { Commit, StoredEvent } from '../../contracts/event.ts';
import { runtimeKinds } from '../../contracts/event.ts';
import { coded, CodedError } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { journalSubject, snapshotSubject, type ActorAddress } from '../../contracts/subjects.ts';
import { decodeCommit, encodeCommit, hashOf } from './commit.ts';
import type { Compiled } from './compile.ts';
import { emptyCore, endsLife, foldCommit, type Core } from './fold.ts';
import { forkBase, forkOf } from './fork.ts';
import { nameOf } from './name.ts';
import type { Site } from './site.ts';
import { decodeSnapshot } from './snapshot.ts';
import type { StoredMessage } from './store.ts';

export interface RecoveryInput {
  readonly site: Pick<Site, 'journal' | 'snapshots' | 'ulids' | 'log' | 'host' | 'clock' | 'partitions'>;
  readonly actor: { readonly compiled: Compiled; readonly self: ActorAddress; readonly partition: number; readonly epoch: number };
  /** After a failed activation: fold first, append then, so that retries do not grow a journal that cannot be read. */
  readonly careful: boolean;
  /** Whether this host may still append: asked before each append. */
  readonly owner: () => boolean;
}

const epochEvent = (input: RecoveryInput, floor: string): StoredEvent =>
  ({ id: input.site.ulids.after(floor), k: runtimeKinds.epoch, d: { host: input.site.host } });

/** A fork begins with the past of its origin. */
const begin = async ({ site, actor: { compiled, self } }: RecoveryInput, core: Core, first: Commit): Promise<void> => {
  const origin = forkOf(first);
  if (origin !== undefined) core.state = (await forkBase(site, compiled, self, origin)).state;
};

const foldMessage = ({ compiled, self }: RecoveryInput['actor'], core: Core, message: StoredMessage, commit: Commit): void =>
  foldCommit(compiled, core, commit, message.seq, hashOf(message.data), self);

/** Folds what lies between the core and `last`, and `last`. */
const foldUpTo = async (input: RecoveryInput, core: Core, last: StoredMessage, lastCommit: Commit): Promise<void> => {
  if (core.seq === last.seq) {
    if (core.hash !== hashOf(last.data)) throw coded('journal_unreadable', 'The snapshot stands on another journal.');
    return;
  }
  if (lastCommit.p > core.seq) {
    const subject = journalSubject(input.actor.partition, input.actor.self);
    for await (const messages of input.site.journal.read(subject, core.seq, lastCommit.p)) {
      for (const message of messages) {
        const commit = decodeCommit(message.data);
        if (core.number === 0) await begin(input, core, commit);
        foldMessage(input.actor, core, message, commit);
      }
    }
  }
  if (core.number === 0) await begin(input, core, lastCommit);
  foldMessage(input.actor, core, last, lastCommit);
};

const foldFrom = async (input: RecoveryInput, base: Core | undefined, last: StoredMessage, lastCommit: Commit): Promise<Core> => {
  if (base !== undefined) {
    try {
      await foldUpTo(input, base, last, lastCommit);
      return base;
    } catch (error) {
      if (!(error instanceof CodedError) || error.code !== 'journal_unreadable') throw error;
      input.site.log.warn({ ...nameOf(input.actor.self), reason: error.message }, 'snapshot ignored: it does not stand on the journal');
    }
  }
  const core = emptyCore(input.actor.compiled, input.actor.self);
  await foldUpTo(input, core, last, lastCommit);
  return core;
};

/**
 * Gives the core and, for an actor without a journal, the epoch event that must open its first commit.
 * Throws `not_owner`, `fenced` (others kept appending), `journal_unavailable`, `journal_unreadable`.
 */
export const recover = async (input: RecoveryInput): Promise<{ core: Core; opening: StoredEvent | undefined }> => {
  const subject = journalSubject(input.actor.partition, input.actor.self);
  const [found, snapshot] = await Promise.all([
    input.site.journal.last(subject),
    input.site.snapshots.get(snapshotSubject(input.actor.partition, input.actor.self)),
  ]);
  if (found === undefined && snapshot !== undefined) {
    if (input.actor.compiled.spec.forgetAfterMs === undefined) throw coded('journal_unreadable', 'There is a snapshot of a journal that is gone.');
    input.site.log.warn(nameOf(input.actor.self), 'snapshot ignored: the actor was forgotten');
  }
  if (found === undefined) return { core: emptyCore(input.actor.compiled, input.actor.self), opening: epochEvent(input, '') };
  let last = found;
  let base = snapshot === undefined ? undefined : decodeSnapshot(input.actor.compiled, snapshot.data);
  if (base !== undefined && base.seq > last.seq) {
    input.site.log.warn(nameOf(input.actor.self), 'snapshot ignored: it is ahead of the journal');
    base = undefined;
  }
  for (let tries = 1; ; tries++) {
    const lastCommit = decodeCommit(last.data);
    if (lastCommit.e > input.actor.epoch) throw coded('not_owner');
    if (endsLife(lastCommit)) {
      const id = lastCommit.ev.at(-1)?.id ?? '';
      const core = Object.assign(emptyCore(input.actor.compiled, input.actor.self), { seq: last.seq, hash: hashOf(last.data), epoch: lastCommit.e, id });
      return { core, opening: epochEvent(input, id) };
    }
    const record: Commit = {
      v: 1,
      e: input.actor.epoch,
      n: lastCommit.n + lastCommit.ev.length,
      f: lastCommit.f + lastCommit.c,
      c: 0,
      m: lastCommit.m,
      p: last.seq,
      h: hashOf(last.data),
      t: input.site.clock.now(),
      ev: [epochEvent(input, lastCommit.ev.at(-1)?.id ?? '')],
    };
    const data = encodeCommit(record);
    const expected = last.seq;
    const append = async (): Promise<number | undefined> => {
      if (!input.owner()) throw coded('not_owner');
      try {
        return await input.site.journal.append(subject, data, expected);
      } catch (error) {
        if (error instanceof CodedError && error.code === 'fenced') return undefined;
        throw error;
      }
    };
    let seq: number | undefined;
    if (input.careful) {
      base = await foldFrom(input, base, last, lastCommit);
      seq = await append();
    } else {
      // Both are awaited even if one fails: nothing of this activation may still be on its way afterwards.
      const [appended, folded] = await Promise.allSettled([append(), foldFrom(input, base, last, lastCommit)]);
      if (folded.status === 'rejected') throw folded.reason;
      if (appended.status === 'rejected') throw appended.reason;
      base = folded.value;
      seq = appended.value;
    }
    if (seq !== undefined) {
      foldCommit(input.actor.compiled, base, record, seq, hashOf(data), input.actor.self);
      return { core: base, opening: undefined };
    }
    if (tries >= limits.epochTriesMax) throw coded('fenced');
    const moved = await input.site.journal.last(subject);
    if (moved === undefined) throw coded('journal_unreadable', 'The journal lost its messages.');
    last = moved;
  }
};
