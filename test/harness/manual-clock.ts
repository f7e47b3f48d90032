/**
 * A clock that stands still until a test moves it: `advance` fires what falls due, in order. Wall and monotonic time move
 * together from the real wall time at its making, so that tokens signed with the real clock are in force.
 */
import type { Clock } from '../../gateway/clock.ts';

interface Due {
  atMs: number;
  readonly everyMs: number | undefined;
  readonly call: () => void;
}

export interface ManualClock extends Clock {
  advance(ms: number): void;
  /** Timers that wait. */
  readonly waiting: number;
}

export const manualClock = (): ManualClock => {
  const startMs = Date.now();
  let nowMs = 0;
  const due = new Set<Due>();
  const add = (ms: number, everyMs: number | undefined, call: () => void): (() => void) => {
    const entry: Due = { atMs: nowMs + ms, everyMs, call };
    due.add(entry);
    return () => void due.delete(entry);
  };
  return {
    wallMs: () => startMs + nowMs,
    monotonicMs: () => nowMs,
    after: (ms, call) => add(ms, undefined, call),
    every: (ms, call) => add(ms, ms, call),
    advance: (ms) => {
      const endMs = nowMs + ms;
      for (;;) {
        const next = [...due].filter((entry) => entry.atMs <= endMs).sort((a, b) => a.atMs - b.atMs)[0];
        if (next === undefined) break;
        nowMs = next.atMs;
        if (next.everyMs === undefined) due.delete(next);
        else next.atMs += next.everyMs;
        next.call();
      }
      nowMs = endMs;
    },
    get waiting() {
      return due.size;
    },
  };
};
