/**
 * The writer of an activation: turns go in, commits go out (group commit), answers come back when they may.
 *
 * Guarantees (design G1, G2, G5):
 * W1  One append is under way at a time, fenced by the sequence of the one before; what arrives meanwhile forms the next
 *     commit. At most one sealed and one open batch wait behind it.
 * W2  An answer (a refusal and a read too) is given only after the commits it may have seen; with none under way, at once.
 * W3  The reminder index is written before a commit that makes a reminder earlier, and after one that makes it later
 *     (reminders.ts M1), never at the same time as an append.
 * W4  A snapshot is taken only while the core is exactly what the commit under way leaves.
 * It ends nothing itself: a failed append is the activation's business.
 */
import { coded, CodedError } from '../../contracts/errors.ts';
import type { StoredEvent } from '../../contracts/event.ts';
import { limits } from '../../contracts/limits.ts';
import { journalSubject, snapshotSubject, type ActorAddress } from '../../contracts/subjects.ts';
import { Batch, eventsMaxBytes } from './batch.ts';
import { encodeEvents, encodeParts, hashOf } from './commit.ts';
import type { Compiled } from './compile.ts';
import { earliest, type Core } from './fold.ts';
import { nameOf } from './name.ts';
import { pack } from './pack.ts';
import type { Parked, Site } from './site.ts';
import { encodeBody, encodeSnapshot, jsonFault } from './snapshot.ts';
import type { ActiveTurn, TimerRequest } from './turn.ts';

/** Room that one turn's events leave for the epoch record that may open the commit. */
const openingMaxBytes = 1024;

/** Whether a turn's events fit into a commit: as they are, or packed. */
const fits = (part: string, bytes: number): boolean => bytes <= eventsMaxBytes - openingMaxBytes
  || (bytes <= limits.turnEventsMaxBytes && (pack(Buffer.from(part), 0)?.byteLength ?? Infinity) <= limits.packedMaxBytes - 2 * openingMaxBytes);

/** The activation, as its writer sees it. */
export interface WriterOwner extends Parked {
  readonly self: ActorAddress;
  readonly key: string;
  readonly partition: number;
  readonly epoch: number;
  readonly compiled: Compiled;
  /** Ended: acknowledgements come too late. */
  readonly gone: boolean;
  readonly stopping: boolean;
  wait(more: number): void;
  /** A commit is in the journal and its callers are answered. */
  acknowledged(batch: Batch): void;
  setTimers(timers: readonly TimerRequest[]): void;
  discard(error: CodedError, failure: undefined): void;
}

export class Writer {
  readonly core: Core;
  /** The actor's state as committed. */
  committed: unknown;

  readonly #site: Site;
  readonly #owner: WriterOwner;
  #open: Batch | undefined = undefined;
  #sealed: Batch | undefined = undefined;
  #inflight: Batch | undefined = undefined;
  /** An append or a write of the reminder index is under way. */
  #busy = false;
  /** The reminder index has to be compared with (or written as) what was committed. */
  #index: 'check' | 'write' | undefined = undefined;
  /** The first commit of its life has not begun. */
  #unopened = false;
  /** The earliest committed reminder, Unix milliseconds. */
  #due: number | undefined;

  /** `opening`: the epoch record of an actor without a journal, which opens its first commit (recover.ts R3). */
  constructor(site: Site, owner: WriterOwner, core: Core, opening: StoredEvent | undefined) {
    this.#site = site;
    this.#owner = owner;
    this.core = core;
    this.committed = core.state;
    this.#due = earliest(core);
    // A former owner may have written late (reminders.ts M3).
    if (this.#due !== undefined) this.#index = 'write';
    if (opening === undefined) return;
    this.#unopened = true;
    const part = encodeEvents([opening]);
    this.#open = new Batch(core);
    this.#open.add(part, Buffer.byteLength(part));
    core.number += 1;
    core.unsaved += 1;
    core.id = opening.id;
  }

  /** Whether a turn may run now (W1). */
  get room(): boolean {
    return this.#sealed === undefined && this.#open?.full !== true;
  }

  /** Nothing was ever journaled of the actor's life, and no turn waits to be. */
  get fresh(): boolean {
    return this.#unopened && this.#open?.turns === 0;
  }

  /** Nothing is under way and nothing waits for a commit. */
  get quiet(): boolean {
    return !this.#busy && !this.#pending && this.#index === undefined;
  }

  get #pending(): boolean {
    return this.#sealed !== undefined || (this.#open !== undefined && this.#open.turns > 0);
  }

  /** The last batch that is not acknowledged. */
  get #last(): Batch | undefined {
    return this.#open !== undefined && this.#open.turns > 0 ? this.#open : this.#sealed ?? this.#inflight;
  }

  /** The time that events of a turn at `now` have to carry: undefined where it is their commit's. */
  stamp(now: number): number | undefined {
    const open = this.#open;
    return open !== undefined && open.turns > 0 && open.time !== now ? now : undefined;
  }

  /** Puts a turn's events into a batch and makes the core what it is after the turn. Throws `commit_too_large`. */
  absorb(turn: ActiveTurn): void {
    const { core } = this;
    if (turn.events === undefined) {
      turn.absorb();
      const after = this.#last;
      if (turn.timers === undefined) return;
      if (after === undefined) this.#owner.setTimers(turn.timers);
      else after.timers = after.timers === undefined ? turn.timers : [...after.timers, ...turn.timers];
      return;
    }
    const part = encodeEvents(turn.events);
    const bytes = Buffer.byteLength(part);
    if (!fits(part, bytes)) throw coded('commit_too_large');
    if (this.#open !== undefined && this.#open.turns > 0 && this.#open.bytes + bytes + 1 > eventsMaxBytes) {
      this.#sealed = this.#open;
      this.#open = undefined;
    }
    const batch = this.#open ??= new Batch(core);
    if (batch.turns === 0) batch.time = turn.now;
    const due = turn.absorb();
    batch.add(part, bytes);
    batch.take(turn, due, core);
    if (!this.#busy) this.#site.kick(this.#owner);
  }

  /** W2. `value` is an error if `failed`. */
  answer(value: unknown, failed: boolean, deadlineAt: number | undefined): Promise<unknown> {
    const batch = this.#last;
    // oxlint-disable-next-line prefer-promise-reject-errors -- `value` is a CodedError when `failed`
    if (batch === undefined) return failed ? Promise.reject(value) : Promise.resolve(value);
    return new Promise((resolve, reject) => {
      batch.waiters.push({ resolve, reject, value, failed, deadlineAt, settled: false });
      this.#owner.wait(1);
    });
  }

  /** Those who waited too long for a commit get `deadline_exceeded`; it may yet happen. */
  expire(monotonic: number): void {
    for (const batch of [this.#inflight, this.#sealed, this.#open]) {
      if (batch !== undefined) this.#owner.wait(-batch.expire(monotonic, () => coded('deadline_exceeded')));
    }
  }

  /** The activation ended: everybody who waits gets `error`. */
  fail(error: CodedError): void {
    // The append under way may yet be stored, so its callers must not be told that nothing was done (`not_owner`, `draining`).
    const unsure = error.entry.retry === 'safe' ? coded('interrupted', 'The host lost the actor while the change was being stored. It may have taken effect.') : error;
    if (this.#inflight !== undefined) this.#owner.wait(-this.#inflight.fail(unsure));
    for (const batch of [this.#sealed, this.#open]) if (batch !== undefined) this.#owner.wait(-batch.fail(error));
  }

  /** Begins the next write, if there is one. Gives whether something is under way. */
  step(): boolean {
    if (this.#busy) return true;
    if (this.#index !== undefined && !this.#owner.stopping) {
      const mode = this.#index;
      this.#index = undefined;
      if (this.#writeIndex(mode)) return true;
    }
    const next = this.#sealed ?? (this.#open !== undefined && this.#open.turns > 0 ? this.#open : undefined);
    if (next === undefined) return false;
    this.#commit(next);
    return true;
  }

  /** The reminder index woke the actor for nothing: it is to be brought up to date. */
  checkIndex(): void {
    this.#index ??= 'check';
  }

  // --- commits -------------------------------------------------------------------------------------------------------

  #commit(batch: Batch): void {
    const site = this.#site;
    const { key, self, partition, epoch } = this.#owner;
    if (!site.owns(partition, epoch)) {
      this.#owner.discard(coded('not_owner'), undefined);
      return;
    }
    if (site.counts.appends >= limits.appendsMax) {
      site.park(this.#owner);
      return;
    }
    this.#unopened = false;
    if (batch === this.#sealed) this.#sealed = undefined;
    else this.#open = undefined;
    this.#inflight = batch;
    this.#busy = true;
    site.counts.appends += 1;
    const { due } = batch;
    if (due === undefined || due >= (site.reminders.known(key) ?? Infinity)) {
      this.#append(batch);
      return;
    }
    site.reminders.put(key, self, partition, due).then(
      () => {
        if (!this.#owner.gone && site.owns(partition, epoch)) this.#append(batch);
        else this.#lost(coded('not_owner'));
      },
      (error: unknown) => { this.#lost(error); },
    );
  }

  #append(batch: Batch): void {
    const { core } = this;
    const { compiled, self, partition, epoch } = this.#owner;
    const plain = encodeParts({
      v: 1, e: epoch, n: batch.number, f: batch.feed, c: batch.feedEnd - batch.feed + 1, m: batch.mark, p: core.seq, h: core.hash, t: batch.time,
    }, batch.parts);
    const data = pack(plain, limits.commitMaxBytes);
    if (data === undefined) {
      // `absorb` has looked at it: a bug.
      this.#lost(coded('commit_too_large'));
      return;
    }
    const appended = this.#site.journal.append(journalSubject(partition, self), data, core.seq);
    // While the append is under way.
    const hash = hashOf(data);
    const body = this.#pending || core.unsaved < compiled.spec.snapshotEvery ? undefined : this.#snapshotBody();
    appended.then(
      (seq) => { this.#acknowledged(batch, seq, hash, body); },
      (error: unknown) => { this.#lost(error); },
    );
  }

  #acknowledged(batch: Batch, seq: number, hash: string, body: string | undefined): void {
    const site = this.#site;
    const owner = this.#owner;
    const { core } = this;
    site.counts.appends -= 1;
    site.counts.commits += 1;
    site.unpark();
    if (owner.gone) return;
    core.seq = seq;
    core.hash = hash;
    core.epoch = owner.epoch;
    this.committed = batch.state;
    this.#inflight = undefined;
    this.#busy = false;
    owner.wait(-batch.answer());
    if (body !== undefined) void this.#saveSnapshot(body);
    if (batch.reminds) {
      this.#due = batch.due;
      this.#index ??= 'check';
    }
    owner.acknowledged(batch);
    owner.pump();
  }

  #lost(error: unknown): void {
    const { log, counts } = this.#site;
    counts.appends -= 1;
    this.#site.unpark();
    const { self } = this.#owner;
    if (this.#owner.gone) return;
    if (error instanceof CodedError) log.warn({ ...nameOf(self), code: error.code }, 'append failed: the activation ends');
    else log.error({ ...nameOf(self), err: error }, 'append failed without a code: the activation ends');
    this.#owner.discard(error instanceof CodedError ? error : coded('internal_error'), undefined);
  }

  // --- the reminder index ----------------------------------------------------------------------------------------------

  /** Brings it to the committed reminders; what waits for its commit is that commit's business. Gives whether a write began. */
  #writeIndex(mode: 'check' | 'write'): boolean {
    const { reminders, log } = this.#site;
    const { key, self, partition, epoch } = this.#owner;
    const due = this.#due;
    if (!this.#site.owns(partition, epoch)) return false;
    if (mode === 'check' && due === reminders.known(key)) {
      // The index is right, but its alarm may have run, and the actor was not ready for it.
      if (due !== undefined) reminders.expect(key, self, partition, due);
      return false;
    }
    this.#busy = true;
    const write = due === undefined ? reminders.delete(key, self, partition) : reminders.put(key, self, partition, due);
    write.catch((error: unknown) => {
      log.warn({ ...nameOf(self), err: error }, 'reminder index not written; the actor may be woken needlessly');
      reminders.doubt(key);
      if (due !== undefined && !this.#owner.gone) reminders.expect(key, self, partition, due);
    }).finally(() => {
      this.#busy = false;
      this.#owner.pump();
    });
    return true;
  }

  // --- snapshots -------------------------------------------------------------------------------------------------------

  /** A last snapshot, if enough has happened. Only while quiet (W4). Resolves when it is stored, or is known not to be. */
  save(): Promise<void> | undefined {
    const { core } = this;
    if (core.seq === 0 || core.unsaved < Math.min(this.#owner.compiled.spec.snapshotEvery, limits.snapshotIdleEvents)) return undefined;
    const body = this.#snapshotBody();
    return body === undefined ? undefined : this.#saveSnapshot(body);
  }

  #snapshotBody(): string | undefined {
    const { refused } = this.#site.snapshotTypes;
    const { compiled, self } = this.#owner;
    if (refused.has(compiled.type)) return undefined;
    // Each time: a state may hold what JSON cannot only later on, or only in one actor of the type.
    const fault = jsonFault(this.core.state);
    if (fault !== undefined) {
      refused.add(compiled.type);
      this.#site.log.error({ ...nameOf(self), fault }, 'state is not JSON: actors of this type are not snapshotted');
      return undefined;
    }
    this.core.unsaved = 0;
    return encodeBody(compiled, this.core);
  }

  async #saveSnapshot(body: string): Promise<void> {
    const { log, snapshots } = this.#site;
    const { self, partition } = this.#owner;
    const plain = encodeSnapshot(body, this.core);
    const data = plain.byteLength > limits.snapshotPlainMaxBytes ? undefined : pack(plain, limits.commitMaxBytes);
    if (data === undefined) {
      log.warn({ ...nameOf(self), bytes: plain.byteLength }, 'snapshot too large, not written');
      return;
    }
    try {
      await snapshots.put(snapshotSubject(partition, self), data);
    } catch (error) {
      log.warn({ ...nameOf(self), err: error }, 'snapshot not written');
    }
  }
}
