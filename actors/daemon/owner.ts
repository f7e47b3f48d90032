/**
 * Whose session a sid is, read from the journal: the actor is not activated to be watched.
 *
 * Guarantee: the answer comes from the event that made the session, which never changes; it is remembered (bounded). A sid
 * without such an event is nobody's. Only for a journal whose beginning was trimmed is the actor itself asked.
 */
import { LRUCache } from 'lru-cache';
import { limits } from '../../contracts/limits.ts';
import { sessionEvents, type BranchPast, type SessionDeployment } from '../../contracts/session.ts';
import { addressTokens, type ActorAddress } from '../../contracts/subjects.ts';
import { decodeCommit } from '../runtime/commit.ts';
import type { Journal } from '../runtime/store.ts';

export interface Owners {
  /** True if the session exists and is this user's, or its deployment's and so of everybody who reaches `address`. Throws `journal_unavailable`. */
  owns(address: ActorAddress, subject: string, sub: string): Promise<boolean>;
}

export interface OwnersOptions {
  readonly journal: Journal;
  /** Asked for a session whose beginning is no longer in the journal. Absent = it is nobody's. */
  readonly askActor?: (address: ActorAddress, sub: string) => Promise<boolean>;
}

/** Of a deployment's session: everybody of the organization, whose members alone reach its address. */
const anybody = Symbol('anybody');
type Owner = string | typeof anybody;

/** What the first commits say: what made the session, that nobody made it, or that the beginning is gone. */
export type Found = Made | { readonly name: 'nobody' } | { readonly name: 'trimmed' };
export interface Made {
  readonly name: 'made';
  readonly user_id: string;
  readonly deployment?: SessionDeployment | undefined;
  /** Of a branch: where the events of before are. */
  readonly past?: readonly BranchPast[] | undefined;
}

/** What makes a session: of its own, or as a branch of another. */
const creations = {
  SessionCreated: sessionEvents.SessionCreated.pick({ user_id: true, deployment: true }).loose(),
  BranchCreated: sessionEvents.BranchCreated.pick({ user_id: true, deployment: true, past: true }).loose(),
} as const;
const isCreation = (kind: string): kind is keyof typeof creations => Object.hasOwn(creations, kind);

/** The beginning of a session's journal. Throws `journal_unavailable`. */
export const findCreation = async (journal: Pick<Journal, 'firstFrom'>, subject: string): Promise<Found> => {
  let from = 0;
  // The first commits may hold only the records of activations that ended before the session was made.
  for (let commits = 0; commits < limits.hubCreationCommitsMax; commits++) {
    const message = await journal.firstFrom(subject, from);
    if (message === undefined) return { name: 'nobody' };
    const commit = decodeCommit(message.data);
    for (const { k, d } of commit.ev) if (isCreation(k)) return { name: 'made', ...creations[k].parse(d) };
    if (commits === 0 && commit.n > 1) return { name: 'trimmed' };
    from = message.seq + 1;
  }
  return { name: 'nobody' };
};

export const createOwners = ({ journal, askActor }: OwnersOptions): Owners => {
  const remembered = new LRUCache<string, { readonly owner: Owner }>({ max: limits.hubOwnersMax });
  const isOf = (owner: Owner, sub: string): boolean => owner === anybody || owner === sub;

  return {
    owns: async (address, subject, sub) => {
      const key = addressTokens(address);
      const known = remembered.get(key) ?? remembered.get(`${key} ${sub}`);
      if (known !== undefined) return isOf(known.owner, sub);
      const found = await findCreation(journal, subject);
      switch (found.name) {
        case 'nobody':
          return false;
        case 'made': {
          const owner = found.deployment === undefined ? found.user_id : anybody;
          remembered.set(key, { owner });
          return isOf(owner, sub);
        }
        case 'trimmed': {
          // Of this user alone: whether it is theirs or a deployment's remains unknown.
          const owns = (await askActor?.(address, sub)) ?? false;
          if (owns) remembered.set(`${key} ${sub}`, { owner: sub });
          return owns;
        }
      }
    },
  };
};
