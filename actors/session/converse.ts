/**
 * A deployment's client speaks to its session, or stores a memory in it: the turns behind the commands `converse` and `remember`.
 *
 * Guarantees: the session is made once, with the history that its first request brought; what a later request repeats of it is let be. A message that a
 * client says again, to take its answer up where it was cut, begins no second turn: it is known by its `message_id`, or by an event of its turn
 * together with the same text.
 */
import type { z } from 'zod';
import { coded } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import type { sessionCommands, SessionMemory, SessionOpening } from '../../contracts/session.ts';
import { startNext, type LoopDeps, type LoopTurn } from './loop.ts';
import { requireRoom } from './memories.ts';
import { digestOf, seenIds, type SessionState, type TurnBeginning } from './state.ts';

type Converse = typeof sessionCommands.converse;
type Remember = typeof sessionCommands.remember;

/** A session that hibernated says that it is there again. */
export const wake = (turn: Pick<LoopTurn, 'state' | 'emit'>): void => {
  if (turn.state.session !== null && !turn.state.awake) turn.emit('SessionResumed', {});
};

/** It is the deployment's, whoever spoke first. */
const open = (turn: LoopTurn, { deployment, agent_id, model }: SessionOpening): void => {
  turn.emit('SessionCreated', { user_id: deployment.id, project_id: deployment.id, label: null, model, agent_id, created_at_unix: Math.floor(turn.now / 1_000), deployment });
  turn.tell({ org: turn.self.org, type: 'agent', key: agent_id }, 'provision', { user_id: deployment.id, project_id: deployment.id, name: 'Agent' });
};

/** The turn that the client had begun before, or undefined. */
const begun = ({ beginnings }: SessionState, { content, message_id: id, last_event_id: last }: z.output<Converse['input']>): TurnBeginning | undefined => {
  if (id !== undefined) return beginnings.findLast((one) => one.message_id === id);
  if (last === undefined) return undefined;
  const digest = digestOf(content);
  return beginnings.findLast((one) => one.digest === digest && one.from <= last);
};

export const converse = (turn: LoopTurn, deps: LoopDeps, input: z.output<Converse['input']>): z.output<Converse['output']> => {
  const { session: opening, earlier, content, system, message_id: id } = input;
  const known = begun(turn.state, input);
  if (known !== undefined) return { run_id: known.run_id, from: known.from, resumed: true };
  if (id !== undefined && seenIds(turn.state.seen, turn.now).some((seen) => seen.id === id)) throw coded('conflict', 'This message was taken long ago: read its events.');
  if (deps.registry.get(opening.model) === undefined) throw coded('model_not_supported');
  if (turn.state.run !== null && turn.state.queue.length >= limits.sessionQueueMax) throw coded('session_busy');

  if (turn.state.session === null) {
    open(turn, opening);
    if (earlier.length > 0) turn.emit('HistoryImported', { messages: earlier });
  }
  wake(turn);
  const given = turn.state.queue.findLast((message) => message.system !== undefined)?.system ?? turn.state.system;
  const run_id = turn.newId();
  turn.emit('UserMessage', {
    content, user_id: opening.user_id, run_id, ...(id === undefined ? {} : { message_id: id }),
    ...(opening.model === turn.state.model ? {} : { model: opening.model }), ...(system === undefined || system === given ? {} : { system }),
  });
  const from = turn.state.beginnings.at(-1)?.from ?? '';
  startNext(turn);
  return { run_id, from, resumed: false };
};

export const remember = (turn: LoopTurn, { session: opening, id, fact, source, relevance }: z.output<Remember['input']>): SessionMemory => {
  const known = id === undefined ? undefined : turn.state.memories.find((memory) => memory.id === id);
  if (known !== undefined) return known;
  requireRoom(turn.state, fact);
  if (turn.state.session === null) {
    if (opening === undefined) throw coded('session_not_found');
    open(turn, opening);
  }
  const { deployment } = turn.state;
  if (deployment === null) throw coded('forbidden', 'Only a deployment\'s session has memories of its own.');
  wake(turn);
  const stored = { id: id ?? turn.newId(), fact, source, relevance };
  turn.emit('MemoryStored', { ...stored, session_id: deployment.session_id });
  return { ...stored, at: turn.now };
};
