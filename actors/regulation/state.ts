/**
 * What regulation knows of a deployment and how events change it: the pure fold.
 *
 * Time is that of events (`at`, never going back); nothing here reads a clock. Bounded: the latest `limits.regulationOutcomesMax` outcomes of
 * `limits.regulationWindowMs`, spending by hour over `limits.regulationBurnMs`, the last ids and history entries.
 */
import type { z } from 'zod';
import { limits } from '../../contracts/limits.ts';
import type { GateTriggered, Mode, ModeChange, Observation, regulationEvents, RegulationEventKind } from '../../contracts/regulation.ts';

type Payload<K extends RegulationEventKind> = z.output<(typeof regulationEvents)[K]>;

/** How a turn or a tool call went. */
export interface Outcome {
  readonly at: number;
  readonly ok: boolean;
  readonly latency: number;
  readonly turn: boolean;
}

/** One threshold of the ratio with its hysteresis: on which side it counts as being, and since when the ratio has been on the other. */
export interface Side {
  readonly above: boolean;
  /** Event time; null = the ratio is on the side that counts. */
  readonly since: number | null;
}

export interface RegulationState {
  readonly agentId: string;
  /** Event time of the first event; null = nothing happened yet. */
  readonly begunAt: number | null;
  readonly holdMs: number;
  /** The latest event time. */
  readonly now: number;
  readonly seen: readonly string[];
  readonly outcomes: readonly Outcome[];
  /** Share of the model's context that the latest turn used. */
  readonly context: number;
  /** Spent cents by hour of event time (whole hours since the epoch), oldest first. */
  readonly burn: readonly (readonly [hour: number, cents: number])[];
  /** Cents left; null = not known yet. */
  readonly balance: number | null;
  readonly mode: Mode;
  /** Of the thresholds in `thresholds`, in their order. */
  readonly sides: readonly [Side, Side, Side];
  readonly modes: readonly ModeChange[];
  readonly gates: readonly GateTriggered[];
}

/** Ratio from which on a mode is Sovereign, Conserving, and (exclusive) Hustle; below the last: Hibernate (REG-006). */
export const thresholds = [2, 1, 0] as const;

const onSide: Side = { above: true, since: null };

export const initialRegulation = (): RegulationState => ({
  agentId: '', begunAt: null, holdMs: limits.regulationHoldMs, now: 0, seen: [], outcomes: [], context: 0, burn: [], balance: null,
  mode: 'Sovereign', sides: [onSide, onSide, onSide], modes: [], gates: [],
});

const hourMs = 3_600_000;

/** Cents spent over the last 30 days of event time. */
export const burned = (state: RegulationState): number => state.burn.reduce((sum, [, cents]) => sum + cents, 0);

/** Balance over burn; infinite without burn, and while no balance is known (REG-007). */
export const ratioOf = (state: RegulationState): number => {
  const { balance } = state;
  if (balance === null) return Infinity;
  if (balance <= 0) return 0;
  const spent = burned(state);
  return spent === 0 ? Infinity : balance / spent;
};

const isAbove = (ratio: number, threshold: number): boolean => (threshold === 0 ? ratio > 0 : ratio >= threshold);

const sideAt = (side: Side, above: boolean, now: number, holdMs: number): Side => {
  if (above === side.above) return side.since === null ? side : { above, since: null };
  const since = side.since ?? now;
  return now - since >= holdMs ? { above, since: null } : { above: side.above, since };
};

/** The sides of the thresholds by now. Falling to nothing counts at once (REG-010); everything else after the hold (REG-008). */
const sidesOf = (state: RegulationState): RegulationState['sides'] => {
  const ratio = ratioOf(state);
  const at = (index: 0 | 1 | 2): Side => {
    const threshold = thresholds[index];
    const above = isAbove(ratio, threshold);
    return sideAt(state.sides[index], above, state.now, threshold === 0 && !above ? 0 : state.holdMs);
  };
  return [at(0), at(1), at(2)];
};

/** The mode that the sides stand for; `state.mode` follows by ModeChanged. */
export const modeDue = ({ sides: [two, one, nothing] }: RegulationState): Mode =>
  (!nothing.above ? 'Hibernate' : !one.above ? 'Hustle' : !two.above ? 'Conserving' : 'Sovereign');

/** Event time at which a threshold that was crossed will count; undefined = none was. */
export const nextChange = ({ sides, holdMs }: RegulationState): number | undefined => {
  const due = sides.flatMap(({ since }) => (since === null ? [] : [since + holdMs]));
  return due.length === 0 ? undefined : Math.min(...due);
};

/** Time goes on to `at`: what is too old counts no more, and thresholds that were crossed long enough do. Time never goes back. */
const advance = (state: RegulationState, at: number): RegulationState => {
  const now = Math.max(state.now, at);
  const oldest = Math.floor((now - limits.regulationBurnMs) / hourMs);
  const next = {
    ...state, now, begunAt: state.begunAt ?? now,
    outcomes: state.outcomes.filter((outcome) => now - outcome.at <= limits.regulationWindowMs),
    burn: state.burn[0] !== undefined && state.burn[0][0] <= oldest ? state.burn.filter(([hour]) => hour > oldest) : state.burn,
  };
  return { ...next, sides: sidesOf(next) };
};

const settle = (state: RegulationState): RegulationState => ({ ...state, sides: sidesOf(state) });

const withOutcome = (state: RegulationState, outcome: Outcome): RegulationState =>
  (state.now - outcome.at > limits.regulationWindowMs ? state : { ...state, outcomes: [...state.outcomes, outcome].slice(-limits.regulationOutcomesMax) });

const withBurn = (state: RegulationState, at: number, cents: number): RegulationState => {
  const hour = Math.floor(at / hourMs);
  if (cents === 0 || hour <= Math.floor((state.now - limits.regulationBurnMs) / hourMs)) return state;
  const before = state.burn.filter(([other]) => other < hour);
  const after = state.burn.filter(([other]) => other > hour);
  const same = state.burn.find(([other]) => other === hour)?.[1] ?? 0;
  return { ...state, burn: [...before, [hour, same + cents], ...after] };
};

const observed = (state: RegulationState, seen: Observation): RegulationState => {
  const { at } = seen;
  switch (seen.kind) {
    case 'turn': {
      const spent = withBurn({ ...state, context: seen.context }, at, seen.cost_cents);
      return seen.counts ? withOutcome(spent, { at, ok: seen.ok, latency: seen.latency_ms, turn: true }) : spent;
    }
    case 'tool':
      return withOutcome(state, { at, ok: seen.ok, latency: seen.latency_ms, turn: false });
    case 'spent':
      return withBurn(state, at, seen.cost_cents);
    case 'balance':
      return { ...state, balance: seen.cents };
  }
};

export const fold = {
  RegulationBegun: (state: RegulationState, { agent_id, hold_ms, at }: Payload<'RegulationBegun'>): RegulationState =>
    ({ ...advance(state, at), agentId: agent_id, holdMs: hold_ms }),
  Observed: (state: RegulationState, seen: Payload<'Observed'>): RegulationState => {
    const at = advance(state, seen.at);
    // A balance is what it is, however often it is told.
    const ids = seen.kind === 'balance' ? state.seen : [...state.seen, seen.id].slice(-limits.regulationSeenMax);
    return settle({ ...observed(at, seen), seen: ids });
  },
  ModeChanged: (state: RegulationState, change: Payload<'ModeChanged'>): RegulationState =>
    ({ ...state, mode: change.to, modes: [...state.modes, change].slice(-limits.regulationHistoryMax) }),
  GateTriggered: (state: RegulationState, gate: Payload<'GateTriggered'>): RegulationState =>
    ({ ...state, gates: [...state.gates, gate].slice(-limits.regulationHistoryMax) }),
  Ticked: (state: RegulationState, { at }: Payload<'Ticked'>): RegulationState => advance(state, at),
} as const;
