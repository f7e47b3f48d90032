/**
 * The index of reminders: which actor has to be woken when, durable as one last value per actor with its earliest reminder.
 * The truth is the actor's journal (`$reminder.set`, `$reminder.gone`); the index only says whom to look at.
 *
 * Guarantees:
 * M1  The entry is written before the commit that makes a reminder earlier than it, and taken away only after the commit
 *     that leaves none: a wake may be needless, none is lost.
 * M2  A partition's entries are loaded when it is taken; what is overdue, by a second or a month, wakes at once, at most
 *     `limits.wakesMax` at a time. An actor that cannot be woken is tried again with growing pauses.
 * M3  An activation writes the entry again when it begins, so that what a former owner wrote late does not stand.
 * Kept in memory: one small entry per actor with a reminder in the partitions held.
 */
import { z } from 'zod';
import { limits } from '../../contracts/limits.ts';
import { parseStateSubject, reminderSubject, wildcards, type ActorAddress } from '../../contracts/subjects.ts';
import type { Alarm, Alarms } from './alarm.ts';
import type { Log } from './log.ts';
import { nameOf } from './name.ts';
import type { Clock, LastValue } from './store.ts';

const entryValue = z.object({ at: z.number() });

interface Entry {
  readonly self: ActorAddress;
  readonly partition: number;
  /** What the index holds, Unix milliseconds. */
  at: number;
  alarm: Alarm | undefined;
  retryMs: number;
}

export interface ReminderIndexOptions {
  readonly store: LastValue;
  readonly clock: Clock;
  /** On the wall clock. */
  readonly alarms: Alarms;
  readonly log: Log;
  /** Activates the actor if need be and lets it run what is due. */
  readonly wake: (self: ActorAddress) => Promise<void>;
  readonly holds: (partition: number) => boolean;
}

export class ReminderIndex {
  readonly #options: ReminderIndexOptions;
  readonly #entries = new Map<string, Entry>();
  readonly #due: string[] = [];
  #waking = 0;
  #closed = false;

  constructor(options: ReminderIndexOptions) {
    this.#options = options;
  }

  get size(): number {
    return this.#entries.size;
  }

  /** What the index is known to hold for the actor: Unix milliseconds, or undefined. */
  known(key: string): number | undefined {
    return this.#entries.get(key)?.at;
  }

  /** Writes the entry and sets the alarm. `key` = the actor's address tokens. */
  async put(key: string, self: ActorAddress, partition: number, at: number): Promise<void> {
    await this.#options.store.put(reminderSubject(partition, self), Buffer.from(JSON.stringify({ at })));
    if (this.#options.holds(partition)) this.#note(key, self, partition, at);
  }

  /** Sets the alarm only: the actor has a reminder at `at`, but the index could not be written. */
  expect(key: string, self: ActorAddress, partition: number, at: number): void {
    const entry = this.#entries.get(key);
    if (entry !== undefined) this.#arm(key, entry, at);
    else if (this.#options.holds(partition)) {
      this.#note(key, self, partition, at);
      const added = this.#entries.get(key);
      // The index holds nothing: the next commit with a reminder has to write it.
      if (added !== undefined) added.at = Number.POSITIVE_INFINITY;
    }
  }

  /** A write failed and may yet have happened: what the index holds is not known any more. */
  doubt(key: string): void {
    const entry = this.#entries.get(key);
    if (entry !== undefined) entry.at = Number.POSITIVE_INFINITY;
  }

  async delete(key: string, self: ActorAddress, partition: number): Promise<void> {
    await this.#options.store.delete(reminderSubject(partition, self));
    this.#drop(key);
  }

  /** Loads a partition just taken. Keeps trying until it has the list or the partition is gone. */
  load(partition: number): void {
    this.#load(partition, limits.restartBaseMs);
  }

  #load(partition: number, waitMs: number): void {
    const { store, alarms, clock, log, holds } = this.#options;
    store.list(wildcards.reminders(partition)).then((messages) => {
      if (this.#closed || !holds(partition)) return;
      for (const { subject, data } of messages) {
        try {
          const { partition: n, ...self } = parseStateSubject(subject);
          const { at } = entryValue.parse(JSON.parse(Buffer.from(data).toString('utf8')));
          const key = subject.split('.').slice(2).join('.');
          // An actor that is active already knows better.
          if (n === partition && !this.#entries.has(key)) this.#note(key, self, partition, at);
        } catch (error) {
          log.error({ subject, err: error }, 'reminder entry cannot be read, skipped');
        }
      }
    }, (error: unknown) => {
      if (this.#closed || !holds(partition)) return;
      log.warn({ partition, err: error }, 'reminders cannot be listed, trying again');
      alarms.set(clock.now() + waitMs, () => { this.#load(partition, Math.min(waitMs * 2, limits.restartMaxMs)); });
    });
  }

  /** Forgets a partition that was given away; its entries stay stored. */
  unload(partition: number): void {
    for (const [key, entry] of this.#entries) if (entry.partition === partition) this.#drop(key);
  }

  close(): void {
    this.#closed = true;
    for (const key of this.#entries.keys()) this.#drop(key);
  }

  #note(key: string, self: ActorAddress, partition: number, at: number): void {
    let entry = this.#entries.get(key);
    if (entry === undefined) {
      entry = { self, partition, at, alarm: undefined, retryMs: limits.restartBaseMs };
      this.#entries.set(key, entry);
    }
    entry.at = at;
    this.#arm(key, entry, at);
  }

  #drop(key: string): void {
    const entry = this.#entries.get(key);
    if (entry === undefined) return;
    this.#options.alarms.cancel(entry.alarm);
    this.#entries.delete(key);
  }

  #arm(key: string, entry: Entry, at: number): void {
    this.#options.alarms.cancel(entry.alarm);
    entry.alarm = this.#options.alarms.set(at, () => {
      entry.alarm = undefined;
      this.#due.push(key);
      this.#wakeNext();
    });
  }

  #wakeNext(): void {
    while (this.#waking < limits.wakesMax && !this.#closed) {
      const key = this.#due.shift();
      if (key === undefined) return;
      const entry = this.#entries.get(key);
      // Dropped, or set anew, since it became due.
      if (entry === undefined || entry.alarm !== undefined) continue;
      this.#waking += 1;
      this.#options.wake(entry.self).then(() => {
        entry.retryMs = limits.restartBaseMs;
      }, (error: unknown) => {
        if (this.#entries.get(key) !== entry || entry.alarm !== undefined) return;
        this.#options.log.warn({ ...nameOf(entry.self), err: error, retryMs: entry.retryMs }, 'actor cannot be woken for its reminder, trying again');
        this.#arm(key, entry, this.#options.clock.now() + entry.retryMs);
        entry.retryMs = Math.min(entry.retryMs * 2, limits.wakeRetryMaxMs);
      }).finally(() => {
        this.#waking -= 1;
        this.#wakeNext();
      });
    }
  }
}
