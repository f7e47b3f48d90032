/**
 * A clock and a timer that a test drives: time stands until it is advanced.
 *
 * Guarantee: `advance` runs every timer that comes due on the way, in order, each at its own time, and lets what it started
 * finish (promises, immediates) before time moves on. `jump` is an outage: time passes and nothing runs until it is over.
 */
import { setImmediate as immediate } from 'node:timers/promises';
import type { Arm } from '../alarm.ts';
import type { Clock } from '../store.ts';

export interface ManualClock extends Clock {
  readonly arm: Arm;
  advance(ms: number): Promise<void>;
  jump(ms: number): void;
}

interface Timer {
  readonly at: number;
  readonly run: () => void;
}

/** Starts at `startMs`, Unix milliseconds; the monotonic clock starts at 0. */
export const createManualClock = (startMs = Date.UTC(2030, 0, 1)): ManualClock => {
  let elapsed = 0;
  const timers = new Set<Timer>();
  const nextDue = (until: number): Timer | undefined => {
    let next: Timer | undefined;
    for (const timer of timers) if (timer.at <= until && (next === undefined || timer.at < next.at)) next = timer;
    return next;
  };
  return {
    now: () => startMs + elapsed,
    monotonic: () => elapsed,
    arm: (delayMs, run) => {
      const timer: Timer = { at: elapsed + delayMs, run };
      timers.add(timer);
      return () => { timers.delete(timer); };
    },
    jump(ms) { elapsed += ms; },
    async advance(ms) {
      const until = elapsed + ms;
      for (let timer = nextDue(until); timer !== undefined; timer = nextDue(until)) {
        timers.delete(timer);
        elapsed = Math.max(elapsed, timer.at);
        timer.run();
        await immediate();
      }
      elapsed = until;
      await immediate();
    },
  };
};
