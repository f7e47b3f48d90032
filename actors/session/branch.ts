/**
 * A session becomes a branch of another one: the turn behind the command `branch`, which the runtime gives the origin's state (runtime/fork.ts).
 *
 * Guarantees: a branch begins with the state that its origin had after the event it names, but for a running turn, what waits and what was counted
 * (state.ts, BranchCreated). The origin learns nothing of it. Nothing that the origin had begun outside goes on in the branch.
 */
import type { z } from 'zod';
import { coded } from '../../contracts/errors.ts';
import type { sessionCommands } from '../../contracts/session.ts';
import type { LoopTurn } from './loop.ts';

type Branch = typeof sessionCommands.branch;

export const branch = (turn: LoopTurn, { deployment, from, past, user_id, effects }: z.output<Branch['input']>): z.output<Branch['output']> => {
  const { key, session, model } = turn.state;
  // Only an actor without a past sees its origin's state, and no actor is its own origin.
  if (key !== from || key === turn.self.key) throw coded('conflict', 'The session has a branch of this name.');
  const origin = past.at(-1);
  if (session === null || origin === undefined) throw coded('session_not_found');
  turn.emit('BranchCreated', {
    sid: turn.self.key, deployment, from_branch: origin.branch, from_sid: origin.sid, at: origin.at, past, past_count: origin.count,
    user_id, agent_id: session.agent_id, model, effects,
  });
  return { created_at: turn.now };
};
