/**
 * The arithmetic of allowances: two windows, what is left of them, and what is held ahead. Pure; times are Unix milliseconds.
 *
 * Guarantees
 * A1  `used` of a window never grows beyond the limit it is asked under, so no more pass in it than the lowest limit asked last.
 * A2  Held ahead by anybody plus held ahead and lost (its window ended first) is at most 1 % of a limit when more is given ahead.
 * A3  A clock that goes back by less than a window reopens none: what began in the near future is current.
 */
import type { AllowanceTaken, Take, TakeOutput } from '../../contracts/allowance.ts';
import { limits } from '../../contracts/limits.ts';

export const minuteMs = 60_000;
export const dayMs = 86_400_000;
/** One of so many of a limit may be held ahead, and so be refused early (decisions, Billing). */
const aheadOneOf = 100;

export interface Window {
  readonly startMs: number;
  /** Counted in it, held ahead included. */
  readonly used: number;
  /** Of these: taken ahead by processes that did not use them before they ended. */
  readonly lost: number;
}

/** What one process did last in the current minute. */
export interface Taker {
  readonly ask: number;
  readonly granted: number;
  readonly ahead: number;
  /** Taken ahead and not known to be used. */
  readonly held: number;
}

export interface AllowanceState {
  readonly minute: Window;
  readonly day: Window;
  /** Processes that took in the current minute, at most `limits.allowanceTakersMax`. */
  readonly takers: Readonly<Record<string, Taker>>;
}

/** Ended long ago. */
const none: Window = { startMs: 0, used: 0, lost: 0 };
export const noAllowance: AllowanceState = { minute: none, day: none, takers: {} };

/** Where the window at a time begins: that of the one that is there, or of a new one. A3. */
const currentStart = (window: Window, now: number, lengthMs: number, startMs: number): number =>
  (Math.abs(now - window.startMs) < lengthMs ? window.startMs : startMs);

const heldBy = (takers: AllowanceState['takers']): number => Object.values(takers).reduce((sum, { held }) => sum + held, 0);

const losing = (window: Window, count: number): Window => (count === 0 ? window : { ...window, lost: window.lost + count });

/** The state once windows that have ended are replaced. What was held ahead ends with the first of its windows, and is lost to the other. */
export const at = (state: AllowanceState, minuteStartMs: number, dayStartMs: number): AllowanceState => {
  const sameMinute = state.minute.startMs === minuteStartMs;
  const sameDay = state.day.startMs === dayStartMs;
  if (sameMinute && sameDay) return state;
  const held = heldBy(state.takers);
  return {
    minute: sameMinute ? losing(state.minute, held) : { startMs: minuteStartMs, used: 0, lost: 0 },
    day: sameDay ? losing(state.day, held) : { startMs: dayStartMs, used: 0, lost: 0 },
    takers: {},
  };
};

/** The fold. */
export const taken = (before: AllowanceState, e: AllowanceTaken): AllowanceState => {
  const state = at(before, e.minute, e.day);
  const count = e.granted + e.ahead;
  const known = Object.hasOwn(state.takers, e.by) ? state.takers[e.by] : undefined;
  const remembered = known !== undefined || Object.keys(state.takers).length < limits.allowanceTakersMax;
  const taker: Taker = { ask: e.ask, granted: e.granted, ahead: e.ahead, held: (known?.held ?? 0) - e.used + e.ahead };
  return {
    minute: { ...state.minute, used: state.minute.used + count },
    day: { ...state.day, used: state.day.used + count },
    takers: remembered ? { ...state.takers, [e.by]: taker } : state.takers,
  };
};

/** What a `take` does: its answer, and the event to journal; none for a repeat and for a refusal. */
export interface Decision {
  readonly output: TakeOutput;
  readonly event: AllowanceTaken | undefined;
}

const room = (window: Window, limit: number): number => (limit === -1 ? Number.POSITIVE_INFINITY : Math.max(0, limit - window.used));

const aheadRoom = (window: Window, limit: number, held: number): number =>
  (limit === -1 ? Number.POSITIVE_INFINITY : Math.max(0, Math.floor(limit / aheadOneOf) - window.lost - held));

/** Decides a `take` at a time. */
export const take = (before: AllowanceState, asked: Take, now: number): Decision => {
  const { count, perMinute, perDay, by } = asked;
  const state = at(before, currentStart(before.minute, now, minuteMs, now), currentStart(before.day, now, dayMs, now - (now % dayMs)));
  const taker = Object.hasOwn(state.takers, by) ? state.takers[by] : undefined;

  const answer = (after: AllowanceState, granted: number, ahead: number): TakeOutput => {
    const ends = { minute: after.minute.startMs + minuteMs, day: after.day.startMs + dayMs };
    const left = { minute: room(after.minute, perMinute), day: room(after.day, perDay) };
    const name = left.minute < left.day || (left.minute === left.day && ends.minute > ends.day) ? 'minute' : 'day';
    const limit = name === 'minute' ? perMinute : perDay;
    return {
      granted, ahead, limit,
      remaining: limit === -1 ? -1 : left[name],
      resetAtMs: ends[name],
      retryAfterMs: Math.max(0, ends[name] - now),
      goodForMs: Math.max(0, Math.min(ends.minute, ends.day) - now),
    };
  };

  // Answered before, and the answer was lost; an older one is a late copy that nobody waits for.
  if (taker !== undefined && asked.ask === taker.ask) return { output: answer(state, taker.granted, taker.ahead), event: undefined };
  if (taker !== undefined && asked.ask < taker.ask) return { output: answer(state, 0, 0), event: undefined };

  const left = Math.min(room(state.minute, perMinute), room(state.day, perDay));
  const granted = Math.min(count, left);
  if (granted === 0) return { output: answer(state, 0, 0), event: undefined };
  const used = Math.min(asked.used, taker?.held ?? 0);
  const held = heldBy(state.takers) - used;
  // A process that cannot be remembered gets nothing ahead: nobody would know of it. Half of what is left, so that others get some too.
  const remembered = taker !== undefined || Object.keys(state.takers).length < limits.allowanceTakersMax;
  const spare = Math.min(aheadRoom(state.minute, perMinute, held), aheadRoom(state.day, perDay, held));
  const ahead = granted === count && remembered ? Math.min(asked.ahead, left - granted, spare === 1 ? 1 : Math.floor(spare / 2)) : 0;
  const event = { by, ask: asked.ask, granted, ahead, used, minute: state.minute.startMs, day: state.day.startMs };
  return { output: answer(taken(state, event), granted, ahead), event };
};
