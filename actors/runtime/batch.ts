/**
 * A batch: the turns that will be one commit (group commit), and those who wait for it.
 *
 * Guarantee: a waiter is settled exactly once, by the commit's acknowledgement, by its failure, or at its deadline. A batch
 * holds at most `limits.commitTurnsMax` turns and `limits.commitMaxBytes` bytes.
 */
import type { CodedError } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import type { Core } from './fold.ts';
import type { ActiveTurn, TimerRequest } from './turn.ts';

/** Bytes of a commit besides its events, rounded up. */
const headMaxBytes = 512;
/** Bytes of events that fit into one commit. */
export const eventsMaxBytes = limits.commitMaxBytes - headMaxBytes;

export interface Waiter {
  readonly resolve: (value: unknown) => void;
  readonly reject: (error: unknown) => void;
  /** What to answer once the commit is acknowledged. */
  readonly value: unknown;
  readonly failed: boolean;
  readonly deadlineAt: number | undefined;
  settled: boolean;
}

export class Batch {
  /** Of its first event. */
  readonly number: number;
  readonly feed: number;
  /** Unix milliseconds of its first turn. */
  time = 0;
  turns = 0;
  bytes = 0;
  readonly parts: string[] = [];
  readonly waiters: Waiter[] = [];
  starts: string[] | undefined = undefined;
  aborts: string[] | undefined = undefined;
  timers: TimerRequest[] | undefined = undefined;
  /** Whether its turns touched reminders, and the earliest one after them. */
  reminds = false;
  due: number | undefined = undefined;
  /** The core after its last turn. */
  state: unknown;
  feedEnd = 0;
  mark = 0;

  /** The batch that continues `core`. */
  constructor(core: Core) {
    this.number = core.number + 1;
    this.feed = core.feed + 1;
    this.after(core);
  }

  get full(): boolean {
    return this.turns >= limits.commitTurnsMax || this.bytes >= eventsMaxBytes;
  }

  add(part: string, bytes: number): void {
    this.parts.push(part);
    this.bytes += bytes + 1;
  }

  /** Notes what a turn wants done after the commit. `core` is the core after it, `due` the earliest reminder if it touched any. */
  take(turn: ActiveTurn, due: number | undefined, core: Core): void {
    this.turns += 1;
    this.after(core);
    if (turn.reminds) {
      this.reminds = true;
      this.due = due;
    }
    if (turn.starts !== undefined) this.starts = this.starts === undefined ? turn.starts : [...this.starts, ...turn.starts];
    if (turn.aborts !== undefined) this.aborts = this.aborts === undefined ? turn.aborts : [...this.aborts, ...turn.aborts];
    if (turn.timers !== undefined) this.timers = this.timers === undefined ? turn.timers : [...this.timers, ...turn.timers];
  }

  after(core: Core): void {
    this.state = core.state;
    this.feedEnd = core.feed;
    this.mark = core.mark;
  }

  /** The commit is acknowledged: everybody gets their answer. Gives how many waited. */
  answer(): number {
    let settled = 0;
    for (const waiter of this.waiters) {
      if (waiter.settled) continue;
      waiter.settled = true;
      settled += 1;
      if (waiter.failed) waiter.reject(waiter.value);
      else waiter.resolve(waiter.value);
    }
    return settled;
  }

  /** The commit will not be acknowledged. */
  fail(error: CodedError): number {
    let settled = 0;
    for (const waiter of this.waiters) {
      if (waiter.settled) continue;
      waiter.settled = true;
      settled += 1;
      waiter.reject(error);
    }
    return settled;
  }

  /** Those who wait no longer get `error`; the turn may yet be committed. */
  expire(now: number, error: () => CodedError): number {
    let settled = 0;
    for (const waiter of this.waiters) {
      if (waiter.settled || waiter.deadlineAt === undefined || waiter.deadlineAt > now) continue;
      waiter.settled = true;
      settled += 1;
      waiter.reject(error());
    }
    return settled;
  }
}
