/**
 * What an activation needs of the host it lives on: storage, time, identity, the host's counters and its bookkeeping of
 * activations. The engine makes one; nothing here knows a domain or NATS.
 */
import type { CodedError } from '../../contracts/errors.ts';
import type { ActorAddress } from '../../contracts/subjects.ts';
import type { Activation } from './activation.ts';
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

export interface Site {
  readonly host: string;
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
  /** Types whose state JSON would change: they are never snapshotted (logged once). `checked` types are known to be good. */
  readonly snapshotTypes: { readonly checked: Set<string>; readonly refused: Set<string> };
  /** Whether the host may commit for the partition under the epoch: held, and the lease is good. */
  owns(partition: number, epoch: number): boolean;
  /** Runs the activation's `pump` at the end of the current task, once. */
  kick(activation: Parked): void;
  /** The host has as many appends under way as it may: `pump` is run when one ends. */
  park(activation: Parked): void;
  /** An append ended. */
  unpark(): void;
  /** The activation was used: it is the last to be passivated. */
  touched(activation: Activation): void;
  /** Messages wait in the activation, or none do any more: who waits is looked at for deadlines. */
  waits(activation: Activation, some: boolean): void;
  /** The activation ended. `failure` keeps the actor unavailable for a while. */
  ended(activation: Activation, failure: CodedError | undefined): void;
}

export const nameOf = (self: ActorAddress): { org: string; type: string; key: string } => ({ org: self.org, type: self.type, key: self.key });
