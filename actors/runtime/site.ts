/**
 * What an activation needs of the host it lives on: storage, time, identity, the host's counters and its bookkeeping of
 * activations. The engine makes one; nothing here knows a domain or NATS.
 */
import type { CodedError } from '../../contracts/errors.ts';
import type { ActorAddress } from '../../contracts/subjects.ts';
import type { Alarms } from './alarm.ts';
import type { Log } from './log.ts';
import type { Sender } from './message.ts';
import type { ReminderIndex } from './reminders.ts';
import type { Clock, Journal, LastValue } from './store.ts';
import type { Ulids } from './ulid.ts';

/** Counters of the host; activations change them. */
export interface Counts {
  turns: number;
  commits: number;
  /** Effects that run. */
  effects: number;
  /** Appends under way. */
  appends: number;
  /** Messages that wait for their turn or their commit. */
  waiting: number;
}

/** What the host runs again later: at the end of the task, or when an append ends. */
export interface Parked {
  kicked: boolean;
  pump(): void;
}

/** An activation, as its host keeps it: in a list by last use. */
export interface Resident extends Parked {
  readonly self: ActorAddress;
  readonly key: string;
  previous: Resident | undefined;
  next: Resident | undefined;
  /** Monotonic milliseconds. */
  usedAt: number;
  /** It may passivate. */
  readonly quiet: boolean;
  passivate(): boolean;
  /** Answers those whose deadline has passed. */
  sweep(monotonic: number): void;
}

export interface Site {
  readonly host: string;
  readonly partitions: number;
  readonly journal: Journal;
  readonly snapshots: LastValue;
  readonly reminders: ReminderIndex;
  readonly sender: Sender;
  readonly clock: Clock;
  readonly ulids: Ulids;
  readonly log: Log;
  /** On the monotonic clock. */
  readonly alarms: Alarms;
  readonly counts: Counts;
  /** Types whose state JSON would change: they are snapshotted no more (logged once). */
  readonly snapshotTypes: { readonly refused: Set<string> };
  /** Whether the host may commit for the partition under the epoch: held, and the lease is good. */
  owns(partition: number, epoch: number): boolean;
  /** Runs the activation's `pump` at the end of the current task, once. */
  kick(activation: Parked): void;
  /** Begins a recovery, at once or when few enough are under way (`limits.recoveriesMax`); `start` calls `done` at its end. */
  admit(start: (done: () => void) => void): void;
  /** The host has as many appends under way as it may: `pump` is run when one ends. */
  park(activation: Parked): void;
  /** An append ended. */
  unpark(): void;
  /** The activation was used: it is the last to be passivated. */
  touched(activation: Resident): void;
  /** Messages wait in the activation, or none do any more: who waits is looked at for deadlines. */
  waits(activation: Resident, some: boolean): void;
  /** The activation ended. `failure` keeps the actor unavailable for a while. */
  ended(activation: Resident, failure: CodedError | undefined): void;
}
