/**
 * The regulation actor: a deployment's homeostatic state, modes and gates. Contract: contracts/regulation.ts.
 *
 * Guarantees
 * H1  State is a fold of this journal: any split into snapshot and tail gives the same (REG-004). An observation counts once, by its id.
 * H2  A mode changes by ModeChanged only: in the turn in which a ratio has been past a threshold for the hold, at once when nothing is left. A
 *     reminder notes the time when nothing else happens.
 * H3  A gate that warns or blocks is journaled before its answer is known to anybody.
 */
import { regulationCommands, regulationEvents } from '../../contracts/regulation.ts';
import { limits } from '../../contracts/limits.ts';
import { defineActor, type PayloadOf, type Turn } from '../runtime/define.ts';
import { gatingOf, judge } from './gates.ts';
import { homeostasisOf, trustOf } from './readings.ts';
import { fold, initialRegulation, modeDue, nextChange, ratioOf, type RegulationState } from './state.ts';

type RegulationEvents = typeof regulationEvents;
interface RegulationTurn extends Pick<Turn<RegulationState, RegulationEvents, Record<never, never>>, 'state' | 'now' | 'remind' | 'forget'> {
  emit<K extends keyof RegulationEvents>(kind: K, payload: PayloadOf<RegulationEvents[K]>): void;
}

const change = 'change';

/** Journals the mode that is due, and sets the reminder for the next that may be. */
const regulate = (turn: RegulationTurn): void => {
  const to = modeDue(turn.state);
  const { mode: from } = turn.state;
  if (to !== from) {
    const ratio = ratioOf(turn.state);
    turn.emit('ModeChanged', { from, to, ratio: Number.isFinite(ratio) ? ratio : null, at: turn.state.now });
  }
  const next = nextChange(turn.state);
  if (next === undefined) turn.forget(change);
  else turn.remind(change, { atMs: next });
};

/** The regulation actor's definition. */
export const regulation = () => defineActor({
  type: 'regulation',
  events: regulationEvents,
  initial: initialRegulation,
  apply: fold,
  commands: (command) => ({
    begin: command({
      ...regulationCommands.begin, access: 'system',
      handle: (turn, { agent_id, hold_ms }) => {
        if (turn.state.agentId === '') turn.emit('RegulationBegun', { agent_id, hold_ms, at: turn.now });
        return {};
      },
    }),
    observe: command({
      ...regulationCommands.observe, access: 'system',
      handle: (turn, { observations }) => {
        for (const seen of observations) {
          // A clock that runs ahead must not move the deployment's time.
          if (!turn.state.seen.includes(seen.id)) turn.emit('Observed', { ...seen, at: Math.min(seen.at, turn.now) });
        }
        regulate(turn);
        return {};
      },
    }),
    gate: command({
      ...regulationCommands.gate, access: 'system',
      handle: (turn, { operations, about, balance_cents, context }) => {
        if (turn.state.balance !== balance_cents) turn.emit('Observed', { kind: 'balance', id: `balance-${turn.now}`, at: turn.now, cents: balance_cents });
        else if (turn.now - turn.state.now >= limits.regulationTickMs) turn.emit('Ticked', { at: turn.now });
        regulate(turn);
        const answer = judge(turn.state, operations, context);
        if (answer.decision !== 'allow' && answer.operation !== null && answer.explanation !== null) {
          turn.emit('GateTriggered', {
            operation: answer.operation, decision: answer.decision, mode: answer.mode, about, explanation: answer.explanation, at: turn.state.now,
          });
        }
        return answer;
      },
    }),
    state: command({
      ...regulationCommands.state, access: 'system',
      handle: ({ state }) => ({ state: homeostasisOf(state), gating: gatingOf(state), trust: trustOf(state, state.agentId), begun: state.begunAt !== null }),
    }),
    history: command({
      ...regulationCommands.history, access: 'system',
      handle: ({ state }) => ({ modes: [...state.modes], gates: [...state.gates] }),
    }),
  }),
  reminders: {
    [change]: (turn) => {
      turn.emit('Ticked', { at: turn.now });
      regulate(turn);
    },
  },
});
