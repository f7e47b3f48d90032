/**
 * The past, replayed: a pure fold of commits up to an event, for forks, inspection and the proof that state is nothing but
 * its events (design G6). It reads no storage; the caller brings the messages.
 */
import { coded } from '../../contracts/errors.ts';
import type { ActorAddress } from '../../contracts/subjects.ts';
import { decodeCommit, hashOf } from './commit.ts';
import { compile } from './compile.ts';
import type { ActorDefinition } from './define.ts';
import { forkOf } from './fork.ts';
import { emptyCore, foldCommit, foldEvent, type Core } from './fold.ts';
import type { StoredMessage } from './store.ts';

/**
 * The core of an actor after event number `upTo` (default: the last), from all its messages in order. The chain is checked.
 * Throws `journal_unreadable`, and `sequence_retired` if the actor has fewer events.
 */
export const replay = (definition: ActorDefinition, self: ActorAddress, messages: Iterable<Pick<StoredMessage, 'seq' | 'data'>>, upTo?: number): Core => {
  const compiled = compile(definition);
  const core = emptyCore(compiled, self);
  for (const message of messages) {
    const commit = decodeCommit(message.data);
    // Its past is not among these messages.
    if (core.number === 0 && forkOf(commit) !== undefined) throw coded('journal_unreadable', 'A fork cannot be replayed without its origin.');
    if (upTo === undefined || commit.n + commit.ev.length - 1 <= upTo) {
      foldCommit(compiled, core, commit, message.seq, hashOf(message.data), self);
      continue;
    }
    for (const event of commit.ev) {
      if (core.number >= upTo) return core;
      foldEvent(compiled, core, event, commit.t);
    }
  }
  if (upTo !== undefined && core.number < upTo) throw coded('sequence_retired');
  return core;
};
