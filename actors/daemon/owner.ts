/**
 * Whose session a sid is, read from the journal: the actor is not activated to be watched.
 *
 * Guarantee: the answer comes from the event that made the session, which never changes; it is remembered (bounded). A sid
 * without such an event is nobody's. Only for a journal whose beginning was trimmed is the actor itself asked.
 */
import { LRUCache } from 'lru-cache';
import { limits } from '../../contracts/limits.ts';
import { sessionEvents } from '../../contracts/session.ts';
import { addressTokens, type ActorAddress } from '../../contracts/subjects.ts';
import { decodeCommit } from '../runtime/commit.ts';
import type { Journal } from '../runtime/store.ts';

export interface Owners {
  /** True if the session exists and is this user's. Throws `journal_unavailable`. */
  owns(address: ActorAddress, subject: string, sub: string): Promise<boolean>;
}

export interface OwnersOptions {
  readonly journal: Journal;
  /** Asked for a session whose beginning is no longer in the journal. Absent = it is nobody's. */
  readonly askActor?: (address: ActorAddress, sub: string) => Promise<boolean>;
}

/** What the first commits say: the owner's user id, that nobody made it, or that the beginning is gone. */
type Found = { readonly name: 'owner'; readonly sub: string } | { readonly name: 'nobody' } | { readonly name: 'trimmed' };

const creation = sessionEvents.SessionCreated.pick({ user_id: true }).loose();

export const createOwners = ({ journal, askActor }: OwnersOptions): Owners => {
  const remembered = new LRUCache<string, string>({ max: limits.hubOwnersMax });

  const find = async (subject: string): Promise<Found> => {
    let from = 0;
    // The first commits may hold only the records of activations that ended before the session was made.
    for (let commits = 0; commits < limits.hubCreationCommitsMax; commits++) {
      const message = await journal.firstFrom(subject, from);
      if (message === undefined) return { name: 'nobody' };
      const commit = decodeCommit(message.data);
      const created = commit.ev.find((event) => event.k === 'SessionCreated');
      if (created !== undefined) return { name: 'owner', sub: creation.parse(created.d).user_id };
      if (commits === 0 && commit.n > 1) return { name: 'trimmed' };
      from = message.seq + 1;
    }
    return { name: 'nobody' };
  };

  return {
    owns: async (address, subject, sub) => {
      const key = addressTokens(address);
      const known = remembered.get(key);
      if (known !== undefined) return known === sub;
      const found = await find(subject);
      switch (found.name) {
        case 'nobody':
          return false;
        case 'owner':
          remembered.set(key, found.sub);
          return found.sub === sub;
        case 'trimmed': {
          const owns = (await askActor?.(address, sub)) ?? false;
          if (owns) remembered.set(key, sub);
          return owns;
        }
      }
    },
  };
};
