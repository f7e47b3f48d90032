/**
 * Alarms: many times to wake at, one timer of the platform. A binary heap over a clock that is an argument, so that tests
 * drive it and a month-long outage is one step.
 *
 * Guarantees: an alarm runs at or after its time, earliest first, once; cancelling leaves nothing behind. The timer sleeps
 * at most `limits.alarmMaxWaitMs`, then the clock is read again: a clock that jumps is noticed by then. Alarms do not keep
 * the process alive.
 */
import { limits } from '../../contracts/limits.ts';

/** Calls `run` after `delayMs`; the result cancels it. */
export type Arm = (delayMs: number, run: () => void) => () => void;

export const systemArm: Arm = (delayMs, run) => {
  const timer = setTimeout(run, delayMs);
  timer.unref();
  return () => { clearTimeout(timer); };
};

export interface Alarm {
  readonly at: number;
  readonly run: () => void;
  /** Place in the heap; -1 = not set (any more). */
  place: number;
}

export class Alarms {
  readonly #now: () => number;
  readonly #arm: Arm;
  readonly #heap: Alarm[] = [];
  #armedFor = Number.POSITIVE_INFINITY;
  #disarm: (() => void) | undefined;
  #closed = false;

  /** `now` is in the unit and origin of the alarms' times (Unix or monotonic milliseconds). */
  constructor(now: () => number, arm: Arm) {
    this.#now = now;
    this.#arm = arm;
  }

  get size(): number {
    return this.#heap.length;
  }

  set(at: number, run: () => void): Alarm {
    const alarm: Alarm = { at, run, place: -1 };
    if (this.#closed) return alarm;
    this.#up(alarm, this.#heap.length);
    if (this.#heap[0] === alarm) this.#rearm();
    return alarm;
  }

  cancel(alarm: Alarm | undefined): void {
    if (alarm === undefined || alarm.place < 0) return;
    const { place } = alarm;
    alarm.place = -1;
    const last = this.#heap.pop();
    if (last === undefined || last === alarm) return;
    const parent = this.#heap[(place - 1) >> 1];
    if (place > 0 && parent !== undefined && last.at < parent.at) this.#up(last, place);
    else this.#down(last, place);
  }

  close(): void {
    this.#closed = true;
    this.#disarm?.();
    this.#disarm = undefined;
    for (const alarm of this.#heap) alarm.place = -1;
    this.#heap.length = 0;
  }

  #rearm(): void {
    const first = this.#heap[0];
    if (first === undefined || (this.#disarm !== undefined && this.#armedFor <= first.at)) return;
    this.#disarm?.();
    this.#armedFor = first.at;
    const delayMs = Math.min(Math.max(Math.ceil(first.at - this.#now()), 0), limits.alarmMaxWaitMs);
    this.#disarm = this.#arm(delayMs, () => { this.#fire(); });
  }

  #fire(): void {
    this.#disarm = undefined;
    this.#armedFor = Number.POSITIVE_INFINITY;
    const now = this.#now();
    // At most what was set when it began: an alarm that sets another for at once must not keep the loop busy.
    for (let left = this.#heap.length; left > 0 && !this.#closed; left--) {
      const first = this.#heap[0];
      if (first === undefined || first.at > now) break;
      this.cancel(first);
      first.run();
    }
    if (!this.#closed) this.#rearm();
  }

  #up(alarm: Alarm, from: number): void {
    let place = from;
    while (place > 0) {
      const above = (place - 1) >> 1;
      const parent = this.#heap[above];
      if (parent === undefined || parent.at <= alarm.at) break;
      this.#heap[place] = parent;
      parent.place = place;
      place = above;
    }
    this.#heap[place] = alarm;
    alarm.place = place;
  }

  #down(alarm: Alarm, from: number): void {
    let place = from;
    for (;;) {
      let below = 2 * place + 1;
      const left = this.#heap[below];
      if (left === undefined) break;
      const right = this.#heap[below + 1];
      const child = right !== undefined && right.at < left.at ? right : left;
      if (child === right) below += 1;
      if (child.at >= alarm.at) break;
      this.#heap[place] = child;
      child.place = place;
      place = below;
    }
    this.#heap[place] = alarm;
    alarm.place = place;
  }
}
