/**
 * Follows the journal of a session: reads it from its beginning, then reads on whenever it is told that something happened (`poke`), and from
 * time to time, since not everything is told of.
 *
 * Guarantees: one request at a time and at most one in `limits.inspectorPaceMs`; every event once, in the journal's order; at most
 * `limits.inspectorEventsMax` of them. A failure is shown and tried again at the next look, but for a refusal, which ends it.
 */
import { CodedError } from '../../../../contracts/errors.ts';
import { limits } from '../../../../contracts/limits.ts';
import { problemOf, type Problem } from '../desk.ts';
import type { Envelope } from './services.ts';

export interface Journal {
  readonly events: readonly Envelope[];
  /** The beginning has been read up to what was its end. */
  readonly complete: boolean;
  /** There may be more than this page takes. */
  readonly full: boolean;
  readonly problem: Problem | undefined;
}

export interface FollowingWorld {
  /** A page of events after this one. */
  readonly page: (after: string | undefined) => Promise<readonly Envelope[]>;
  readonly onChange: (journal: Journal) => void;
  /** Calls after so many milliseconds; gives what stops it. */
  readonly later: (call: () => void, ms: number) => () => void;
  /** Milliseconds, monotonic. */
  readonly now: () => number;
}

export class Following {
  readonly #world: FollowingWorld;
  #journal: Journal = { events: [], complete: false, full: false, problem: undefined };
  #reading = false;
  #wanted = false;
  #ended = false;
  #lastAt = -Infinity;
  #stop: () => void = () => undefined;

  constructor(world: FollowingWorld) {
    this.#world = world;
    void this.#read();
  }

  /** Something happened in the session. */
  poke(): void {
    if (this.#ended) return;
    if (this.#reading) this.#wanted = true;
    else this.#in(Math.max(0, this.#lastAt + limits.inspectorPaceMs - this.#world.now()));
  }

  close(): void {
    this.#ended = true;
    this.#stop();
  }

  #in(ms: number): void {
    this.#stop();
    this.#stop = this.#world.later(() => { void this.#read(); }, ms);
  }

  async #read(): Promise<void> {
    this.#reading = true;
    this.#wanted = false;
    this.#lastAt = this.#world.now();
    let found: number | undefined;
    try {
      const events = await this.#world.page(this.#journal.events.at(-1)?.id);
      found = events.length;
      const room = limits.inspectorEventsMax - this.#journal.events.length;
      this.#set({ events: found === 0 ? this.#journal.events : [...this.#journal.events, ...events.slice(0, room)], full: found >= room, problem: undefined });
    } catch (error) {
      const problem = problemOf(error);
      if (error instanceof CodedError && error.entry.kind === 'refusal' && error.code !== 'rate_limited') this.#ended = true;
      this.#set({ problem });
    } finally {
      this.#reading = false;
    }
    if (found === 0 && !this.#journal.complete) this.#set({ complete: true });
    if (this.#ended || this.#journal.full) {
      this.#ended = true;
      return;
    }
    // The beginning is read without a pause.
    if (!this.#journal.complete && found !== undefined) this.#in(0);
    else this.#in(this.#wanted ? limits.inspectorPaceMs : limits.inspectorLookMs);
  }

  #set(change: Partial<Journal>): void {
    this.#journal = { ...this.#journal, ...change };
    this.#world.onChange(this.#journal);
  }
}
