/**
 * Forks: an actor whose life begins with the state another one had after one of its events. Nothing of the past is copied: `$forked` names it, and
 * whoever folds the fork folds that past first (design G6).
 *
 * Guarantees
 * B1  A fork has the state of its origin and nothing else of it: no unfinished effect, reminder, remembered id or feed number.
 * B2  The past of an actor cannot change, so the state at an event is the same whenever and wherever it is folded. An origin that was erased
 *     makes its forks unavailable (`journal_unreadable`), unless a snapshot stands.
 * B3  A fork of a fork is one; at most `limits.forkDepthMax` of them, then `fork_too_deep`.
 */
import { runtimeKinds, type Commit, type StoredEvent } from '../../contracts/event.ts';
import { coded } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { journalSubject, partitionOf, type ActorAddress } from '../../contracts/subjects.ts';
import { decodeCommit, hashOf } from './commit.ts';
import type { Compiled } from './compile.ts';
import type { ForkPoint } from './define.ts';
import { emptyCore, foldCommit, foldEvent, type Core } from './fold.ts';
import type { Journal } from './store.ts';

export interface ForkSource {
  readonly journal: Pick<Journal, 'last' | 'read'>;
  readonly partitions: number;
}

/** What a fork begins with. */
export interface ForkBase extends ForkPoint {
  readonly state: unknown;
  /** Of the event it forks at: ids of the fork are above it. */
  readonly id: string;
}

const isForked = ({ k }: StoredEvent): boolean => k === runtimeKinds.forked;

/** Where the actor whose first commit this is was forked from. Throws `journal_unreadable`. */
export const forkOf = (commit: Commit): ForkPoint | undefined => {
  const { key, number } = commit.ev.find(isForked)?.d ?? {};
  if (key === undefined && number === undefined) return undefined;
  if (typeof key !== 'string' || typeof number !== 'number') throw coded('journal_unreadable', 'A fork does not say where it begins.');
  return { key, number };
};

/**
 * The core of an actor after event `upTo` (default: the last). Throws `sequence_retired` if it has fewer events, `journal_unreadable`,
 * `journal_unavailable`, `fork_too_deep`.
 */
export const coreAt = async (source: ForkSource, compiled: Compiled, self: ActorAddress, upTo?: number, depth = 0): Promise<Core> => {
  if (depth > limits.forkDepthMax) throw coded('fork_too_deep');
  const subject = journalSubject(partitionOf(self, source.partitions), self);
  const core = emptyCore(compiled, self);
  const head = await source.journal.last(subject);
  if (head === undefined) {
    if (upTo === undefined) return core;
    throw coded('sequence_retired');
  }
  for await (const messages of source.journal.read(subject, 0, head.seq)) {
    for (const { data, seq } of messages) {
      const commit = decodeCommit(data);
      const origin = core.number === 0 ? forkOf(commit) : undefined;
      if (origin !== undefined) core.state = (await forkBase(source, compiled, self, origin, depth + 1)).state;
      if (upTo === undefined || commit.n + commit.ev.length - 1 <= upTo) {
        foldCommit(compiled, core, commit, seq, hashOf(data), self);
      } else {
        for (const event of commit.ev) if (core.number < upTo) foldEvent(compiled, core, event, commit.t);
      }
      if (upTo !== undefined && core.number >= upTo) return core;
    }
  }
  if (upTo !== undefined && core.number < upTo) throw coded('sequence_retired');
  return core;
};

/** What `self` begins with as a fork of another actor of its organization and type. Errors: `coreAt`'s. */
export const forkBase = async (source: ForkSource, compiled: Compiled, self: ActorAddress, point: ForkPoint, depth = 0): Promise<ForkBase> => {
  const { state, id } = await coreAt(source, compiled, { ...self, key: point.key }, point.number, depth);
  return { ...point, state, id };
};
