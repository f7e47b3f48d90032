/**
 * An activation: one actor in memory on the host that owns it. Its mailbox, its turns, its commits, its end.
 *
 * Guarantees (design G1, G2, G5; "A turn"):
 * T1  One turn at a time. Turns run on the speculative core as messages arrive; what they emit waits in a batch.
 * T2  One append is under way at a time, fenced by the sequence of the one before; what arrives meanwhile forms the next
 *     commit. At most one sealed and one open batch wait behind it, then messages wait in the mailbox, then `mailbox_full`.
 * T3  An answer (a refusal, a read) is given only after the commits it may have seen; with none under way, at once.
 * T4  A failed append ends the activation: everybody waiting gets its code, effects are aborted, nothing more is committed.
 * T5  A bug in a handler drops its turn; turns before it are committed and answered, then the activation recovers from its
 *     journal after a pause. The mailbox and running effects stay.
 * Phases: activating → ready ⇄ failing → … ; stopping (hand-over) → gone. Fields stay few: an idle actor is mostly its state.
 */
import { randomUUID } from 'node:crypto';
import type { Principal } from '../../contracts/capability.ts';
import { coded, CodedError } from '../../contracts/errors.ts';
import { runtimeKinds, type StoredEvent } from '../../contracts/event.ts';
import { limits } from '../../contracts/limits.ts';
import { journalSubject, snapshotSubject, type ActorAddress } from '../../contracts/subjects.ts';
import { refusalOf } from '../../contracts/validate.ts';
import type { Alarm } from './alarm.ts';
import { Batch, eventsMaxBytes } from './batch.ts';
import { encodeEvents, encodeParts, hashOf } from './commit.ts';
import type { Compiled } from './compile.ts';
import { handledBefore } from './dedup.ts';
import type { ErasedCommand, Outcome } from './define.ts';
import { EffectRunner, type EffectOwner } from './effects.ts';
import { earliest, type Core, type Intent } from './fold.ts';
import type { Message } from './message.ts';
import { recover } from './recover.ts';
import { nameOf, type Site } from './site.ts';
import { encodeBody, encodeSnapshot, jsonFault } from './snapshot.ts';
import { ActiveTurn, tellEffect, type TimerRequest } from './turn.ts';

/** Bytes of one turn's events; leaves room for the epoch record that may open the commit. */
const turnMaxBytes = eventsMaxBytes - 1024;

const self: Principal = { kind: 'self' };

interface Settle {
  readonly resolve: (value: unknown) => void;
  readonly reject: (error: unknown) => void;
}
type Item =
  | ({ readonly kind: 'command'; readonly message: Message; readonly command: ErasedCommand; readonly input: unknown } & Settle)
  | { readonly kind: 'outcome'; readonly id: string; readonly outcome: Outcome<unknown>; readonly tries: number }
  | { readonly kind: 'reminder'; readonly name: string; readonly tries: number }
  | ({ readonly kind: 'wake' | 'woken' } & Settle)
  | { readonly kind: 'idle' };

type Phase = 'activating' | 'ready' | 'failing' | 'stopping' | 'gone';

export class Activation implements EffectOwner {
  readonly self: ActorAddress;
  /** The actor's address tokens. */
  readonly key: string;
  readonly partition: number;
  readonly epoch: number;
  readonly compiled: Compiled;
  /** The host's list of activations by last use. */
  previous: Activation | undefined = undefined;
  next: Activation | undefined = undefined;
  usedAt = 0;
  /** Whether the host has noted it for `pump`. */
  kicked = false;

  readonly #site: Site;
  #phase: Phase = 'activating';
  #core: Core | undefined = undefined;
  #committed: unknown = undefined;
  #queue: Item[] | undefined = undefined;
  #waiting = 0;
  #open: Batch | undefined = undefined;
  #sealed: Batch | undefined = undefined;
  #inflight: Batch | undefined = undefined;
  /** An append or a write of the reminder index is under way. */
  #busy = false;
  #inTurn = false;
  #leaving = false;
  /** The reminder index has to be brought to what was committed. */
  #index: 'check' | 'write' | undefined = undefined;
  /** The earliest committed reminder. */
  #due: number | undefined = undefined;
  #effects: EffectRunner | undefined = undefined;
  #timers: Map<string, Alarm> | undefined = undefined;
  #trouble: { count: number; at: number; alarm: Alarm | undefined } | undefined = undefined;
  #stop: { readonly done: Promise<void>; readonly resolve: () => void; readonly error: CodedError } | undefined = undefined;

  constructor(site: Site, compiled: Compiled, address: ActorAddress, key: string, partition: number, epoch: number) {
    this.#site = site;
    this.compiled = compiled;
    this.self = { org: address.org, type: address.type, key: address.key };
    this.key = key;
    this.partition = partition;
    this.epoch = epoch;
  }

  get committed(): unknown {
    return this.#committed;
  }

  /** Nothing is under way and nothing waits: it may passivate. */
  get quiet(): boolean {
    return this.#phase === 'ready' && !this.#busy && !this.#pending && !this.#queue?.length && this.#index === undefined
      && this.#core?.effects === undefined && !this.#timers?.size;
  }

  get #pending(): boolean {
    return this.#sealed !== undefined || (this.#open !== undefined && this.#open.turns > 0);
  }

  /** Whether a turn may run now (T2). */
  get #room(): boolean {
    return this.#phase === 'ready' && !this.#inTurn && this.#sealed === undefined && this.#open?.full !== true;
  }

  // --- the mailbox ---------------------------------------------------------------------------------------------------

  /** Takes a message whose input is parsed. Gives the answer. */
  take(message: Message, command: ErasedCommand, input: unknown, monotonic: number): Promise<unknown> {
    this.#site.touched(this);
    this.#leaving = false;
    if (this.#phase === 'stopping' || this.#phase === 'gone') return Promise.reject(this.#stop?.error ?? coded('not_owner'));
    if (message.signal?.aborted === true) return Promise.reject(coded('aborted'));
    if (message.deadlineAt !== undefined && message.deadlineAt <= monotonic) return Promise.reject(coded('deadline_exceeded'));
    if (this.#waiting >= this.compiled.spec.mailboxMax) return Promise.reject(coded('mailbox_full'));
    if (this.#room && !this.#queue?.length) return this.#command(message, command, input);
    return new Promise((resolve, reject) => {
      this.#enqueue({ kind: 'command', message, command, input, resolve, reject });
      this.#wait(1);
    });
  }

  /** Calls one of the actor's own commands: from its effects and timers. */
  call(command: string, input: unknown): Promise<unknown> {
    const spec = this.compiled.commands.get(command);
    if (spec === undefined) return Promise.reject(coded('unknown_command'));
    const parsed = spec.input.safeParse(input);
    if (!parsed.success) return Promise.reject(refusalOf(parsed.error));
    return this.take({ address: this.self, command, input, principal: self }, spec, parsed.data, this.#site.clock.monotonic());
  }

  outcome(id: string, outcome: Outcome<unknown>): void {
    if (this.#phase === 'stopping' || this.#phase === 'gone') return;
    this.#enqueue({ kind: 'outcome', id, outcome, tries: 0 });
    this.#site.touched(this);
    this.#site.kick(this);
  }

  /** Runs the reminders that are due; resolves when they are committed. */
  wake(): Promise<void> {
    if (this.#phase === 'stopping' || this.#phase === 'gone') return Promise.reject(coded('not_owner'));
    return new Promise((resolve, reject) => {
      this.#enqueue({ kind: 'wake', resolve: () => { resolve(); }, reject });
      this.#site.touched(this);
      this.#site.kick(this);
    });
  }

  /** Answers those whose deadline has passed or who gave up. */
  sweep(monotonic: number): void {
    const queue = this.#queue;
    if (queue !== undefined) {
      const over = (item: Item): boolean => item.kind === 'command' && (item.message.signal?.aborted === true || (item.message.deadlineAt ?? Infinity) <= monotonic);
      const late = queue.filter(over);
      if (late.length > 0) this.#queue = queue.filter((item) => !over(item));
      for (const item of late) if (item.kind === 'command') item.reject(coded(item.message.signal?.aborted === true ? 'aborted' : 'deadline_exceeded'));
      this.#wait(-late.length);
    }
    for (const batch of [this.#inflight, this.#sealed, this.#open]) {
      if (batch !== undefined) this.#wait(-batch.expire(monotonic, () => coded('deadline_exceeded')));
    }
  }

  #enqueue(item: Item): void {
    (this.#queue ??= []).push(item);
    if (item.kind !== 'idle') this.#leaving = false;
  }

  #wait(more: number): void {
    if (more === 0) return;
    const before = this.#waiting;
    this.#waiting += more;
    this.#site.counts.waiting += more;
    if (before === 0) this.#site.waits(this, true);
    else if (this.#waiting === 0) this.#site.waits(this, false);
  }

  // --- activation ----------------------------------------------------------------------------------------------------

  /** Recovers the actor from its journal. `careful`: it failed before. */
  begin(careful: boolean): void {
    const { journal, snapshots, clock, ulids, log, host } = this.#site;
    this.#phase = 'activating';
    recover({
      journal, snapshots, ulids, log, host, careful,
      compiled: this.compiled,
      self: this.self,
      partition: this.partition,
      epoch: this.epoch,
      now: () => clock.now(),
      owner: () => this.#phase === 'activating' && this.#site.owns(this.partition, this.epoch),
    }).then(
      ({ core, opening }) => { this.#recovered(core, opening); },
      (error: unknown) => { this.#unrecovered(error); },
    );
  }

  #recovered(core: Core, opening: StoredEvent | undefined): void {
    if (this.#phase === 'gone') return;
    if (this.#phase === 'stopping') {
      this.#leave();
      return;
    }
    if (!this.#site.owns(this.partition, this.epoch)) {
      this.discard(coded('not_owner'), undefined);
      return;
    }
    this.#phase = 'ready';
    this.#core = core;
    this.#committed = core.state;
    if (opening !== undefined) {
      const part = encodeEvents([opening]);
      this.#open = new Batch(core);
      this.#open.add(part, part.length);
      core.number += 1;
      core.unsaved += 1;
      core.id = opening.id;
    }
    this.#due = earliest(core);
    if (this.#due !== undefined) this.#index = 'write';
    for (const id of core.effects?.keys() ?? []) {
      // An outcome that waits since before a restart of this activation is the truth about its effect.
      if (!this.#queue?.some((item) => item.kind === 'outcome' && item.id === id)) this.#runner().start(id, true);
    }
    this.pump();
  }

  #unrecovered(error: unknown): void {
    if (this.#phase === 'gone') return;
    if (this.#phase === 'stopping') {
      this.discard(this.#stop?.error ?? coded('not_owner'), undefined);
      return;
    }
    if (error instanceof CodedError && error.code !== 'journal_unreadable') {
      this.discard(error, undefined);
      return;
    }
    this.#site.log.error({ ...nameOf(this.self), err: error }, 'actor cannot be activated: a bug; it stays unavailable');
    const failure = error instanceof CodedError ? error : coded('internal_error');
    this.discard(failure, failure);
  }

  // --- turns ---------------------------------------------------------------------------------------------------------

  #turn(principal: Principal, core: Core): ActiveTurn {
    this.#site.counts.turns += 1;
    const now = this.#site.clock.now();
    const open = this.#open;
    const stamp = open !== undefined && open.turns > 0 && open.time !== now ? now : undefined;
    return new ActiveTurn(this.compiled, core, this.self, principal, now, stamp, this.#site.ulids);
  }

  get #ready(): Core {
    if (this.#core === undefined) throw new TypeError('A turn needs a recovered activation');
    return this.#core;
  }

  #command(message: Message, command: ErasedCommand, input: unknown): Promise<unknown> {
    const core = this.#ready;
    const { id } = message;
    if (id !== undefined) {
      const handled = handledBefore(core.handled, id, this.#site.clock.now());
      if (handled !== undefined) return this.#answer(handled.output, false, message.deadlineAt);
    }
    const turn = this.#turn(message.principal, core);
    let output: unknown;
    this.#inTurn = true;
    try {
      const parsed = command.output.safeParse(command.handle(turn, input));
      if (!parsed.success) throw new TypeError(`${this.compiled.type}: the output of ${message.command} does not match its schema`, { cause: parsed.error });
      output = parsed.data;
      if (id !== undefined) turn.record(runtimeKinds.handled, output === undefined ? { id } : { id, output });
      this.#absorb(turn);
    } catch (error) {
      turn.end();
      if (error instanceof CodedError) return this.#answer(error, true, message.deadlineAt);
      return Promise.reject(this.#bug(error, message.command));
    } finally {
      this.#inTurn = false;
    }
    return this.#answer(output, false, message.deadlineAt);
  }

  /** A turn without a caller. Gives whether it happened; a refusal is logged and `declined`. */
  #internal(what: string, run: (turn: ActiveTurn) => void): 'done' | 'declined' | 'bug' {
    const turn = this.#turn(self, this.#ready);
    this.#inTurn = true;
    try {
      run(turn);
      this.#absorb(turn);
      return 'done';
    } catch (error) {
      turn.end();
      if (error instanceof CodedError) {
        this.#site.log.warn({ ...nameOf(this.self), turn: what, code: error.code, reason: error.message }, 'turn refused');
        return 'declined';
      }
      this.#bug(error, what);
      return 'bug';
    } finally {
      this.#inTurn = false;
    }
  }

  #item(item: Item): void {
    switch (item.kind) {
      case 'command': {
        this.#wait(-1);
        const { message } = item;
        if (message.signal?.aborted === true) item.reject(coded('aborted'));
        else if (message.deadlineAt !== undefined && message.deadlineAt <= this.#site.clock.monotonic()) item.reject(coded('deadline_exceeded'));
        else item.resolve(this.#command(message, item.command, item.input));
        return;
      }
      case 'outcome': {
        this.#outcome(item.id, item.outcome, item.tries);
        return;
      }
      case 'reminder': {
        this.#reminder(item.name, item.tries);
        return;
      }
      case 'wake': {
        const now = this.#site.clock.now();
        const due = [...(this.#ready.reminders ?? [])].filter(([, at]) => at <= now).sort(([, a], [, b]) => a - b);
        // Needless: the index is behind the journal.
        if (due.length === 0) this.#index ??= 'check';
        this.#queue?.unshift(...due.map(([name]): Item => ({ kind: 'reminder', name, tries: 0 })), { kind: 'woken', resolve: item.resolve, reject: item.reject });
        return;
      }
      case 'woken': {
        item.resolve(this.#answer(undefined, false, undefined));
        return;
      }
      case 'idle': {
        const { onIdle } = this.compiled.spec;
        if (onIdle !== undefined && this.#leaving && this.#internal('onIdle', onIdle) === 'bug') {
          // It was about to leave anyway, and leaving is a restart.
          this.#phase = 'ready';
        }
        return;
      }
    }
  }

  #outcome(id: string, outcome: Outcome<unknown>, tries: number): void {
    const intent = this.#ready.effects?.get(id);
    if (intent === undefined) return;
    const spec = this.compiled.effects.get(intent.name);
    const end = (turn: ActiveTurn): void => {
      turn.record(runtimeKinds.effectEnded, outcome.ok ? { id, ok: true } : { id, ok: false, code: outcome.code });
    };
    const done = this.#internal(`done of ${intent.name}`, (turn) => {
      end(turn);
      if (spec !== undefined && intent.name !== tellEffect && tries < limits.poisonTriesMax) spec.done(turn, outcome, spec.input.parse(intent.input));
    });
    if (done === 'bug') this.#again({ kind: 'outcome', id, outcome, tries: tries + 1 }, tries);
    else if (done === 'declined') this.#internal(`end of ${intent.name}`, end);
  }

  #reminder(name: string, tries: number): void {
    const at = this.#ready.reminders?.get(name);
    if (at === undefined || at > this.#site.clock.now()) return;
    const handler = this.compiled.reminders.get(name);
    if (handler === undefined) this.#site.log.error({ ...nameOf(this.self), reminder: name }, 'reminder given up: the code does not know it');
    const done = this.#internal(`reminder ${name}`, (turn) => {
      turn.gone(name);
      if (handler !== undefined && tries < limits.poisonTriesMax) handler(turn);
    });
    if (done === 'bug') this.#again({ kind: 'reminder', name, tries: tries + 1 }, tries);
    else if (done === 'declined') this.#internal(`end of reminder ${name}`, (turn) => { turn.gone(name); });
  }

  #again(item: Item, tries: number): void {
    if (tries + 1 >= limits.poisonTriesMax) this.#site.log.error({ ...nameOf(this.self), item: item.kind }, 'handler given up: every run ended in a bug');
    (this.#queue ??= []).unshift(item);
  }

  /** T5. Gives what the caller is told. */
  #bug(error: unknown, what: string): CodedError {
    const correlationId = randomUUID();
    this.#site.log.error({ ...nameOf(this.self), turn: what, correlation_id: correlationId, err: error }, 'bug in a handler: nothing of the turn is committed');
    if (this.#phase === 'ready') {
      this.#phase = 'failing';
      this.#site.kick(this);
    }
    return coded('internal_error', undefined, { details: { correlation_id: correlationId } });
  }

  /** Puts a turn's events into a batch and makes the core what it is after the turn. Throws `commit_too_large`. */
  #absorb(turn: ActiveTurn): void {
    const core = this.#ready;
    if (turn.events === undefined) {
      turn.absorb();
      const after = this.#last;
      if (turn.timers !== undefined) {
        if (after === undefined) this.#setTimers(turn.timers);
        else after.timers = [...(after.timers ?? []), ...turn.timers];
      }
      return;
    }
    const part = encodeEvents(turn.events);
    const bytes = Buffer.byteLength(part);
    if (bytes > turnMaxBytes) throw coded('commit_too_large');
    if (this.#open !== undefined && this.#open.turns > 0 && this.#open.bytes + bytes + 1 > eventsMaxBytes) {
      this.#sealed = this.#open;
      this.#open = undefined;
    }
    const batch = this.#open ??= new Batch(core);
    if (batch.turns === 0) batch.time = turn.now;
    const due = turn.absorb();
    batch.add(part, bytes);
    batch.turns += 1;
    batch.after(core);
    if (turn.reminds) {
      batch.reminds = true;
      batch.due = due;
    }
    if (turn.starts !== undefined) batch.starts = batch.starts === undefined ? turn.starts : [...batch.starts, ...turn.starts];
    if (turn.aborts !== undefined) batch.aborts = [...(batch.aborts ?? []), ...turn.aborts];
    if (turn.timers !== undefined) batch.timers = [...(batch.timers ?? []), ...turn.timers];
    if (!this.#busy) this.#site.kick(this);
  }

  /** The last batch that is not acknowledged. */
  get #last(): Batch | undefined {
    return this.#open !== undefined && this.#open.turns > 0 ? this.#open : this.#sealed ?? this.#inflight;
  }

  /** T3. */
  #answer(value: unknown, failed: boolean, deadlineAt: number | undefined): Promise<unknown> {
    const batch = this.#last;
    // oxlint-disable-next-line prefer-promise-reject-errors -- `value` is a CodedError when `failed`
    if (batch === undefined) return failed ? Promise.reject(value) : Promise.resolve(value);
    return new Promise((resolve, reject) => {
      batch.waiters.push({ resolve, reject, value, failed, deadlineAt, settled: false });
      this.#wait(1);
    });
  }

  // --- commits -------------------------------------------------------------------------------------------------------

  /** Does what can be done: turns, then the next commit, then what had to wait for both. */
  pump(): void {
    for (let queue = this.#queue; queue !== undefined && queue.length > 0 && this.#room; queue = this.#queue) {
      const item = queue.shift();
      if (item !== undefined) this.#item(item);
    }
    if (this.#queue?.length === 0) this.#queue = undefined;
    if (this.#busy || this.#phase === 'activating' || this.#phase === 'gone') return;
    if (this.#index !== undefined && this.#phase !== 'stopping') this.#writeIndex(this.#index);
    else if (this.#sealed !== undefined) this.#commit(this.#sealed);
    else if (this.#open !== undefined && this.#open.turns > 0) this.#commit(this.#open);
    else if (this.#phase === 'failing') this.#restart();
    else if (this.#phase === 'stopping') this.#leave();
    else if (this.#leaving && this.quiet) this.#leave();
  }

  #commit(batch: Batch): void {
    const site = this.#site;
    if (!site.owns(this.partition, this.epoch)) {
      this.discard(coded('not_owner'), undefined);
      return;
    }
    if (site.counts.appends >= limits.appendsMax) {
      site.park(this);
      return;
    }
    if (batch === this.#sealed) this.#sealed = undefined;
    else this.#open = undefined;
    this.#inflight = batch;
    this.#busy = true;
    site.counts.appends += 1;
    const { due } = batch;
    if (due !== undefined && due < (site.reminders.known(this.key) ?? Infinity)) {
      // Before the commit (reminders.ts M1).
      site.reminders.put(this.key, this.self, this.partition, due).then(
        () => {
          if (this.#phase !== 'gone' && site.owns(this.partition, this.epoch)) this.#append(batch);
          else this.#lost(coded('not_owner'));
        },
        (error: unknown) => { this.#lost(error); },
      );
    } else this.#append(batch);
  }

  #append(batch: Batch): void {
    const core = this.#ready;
    const data = encodeParts({
      v: 1, e: this.epoch, n: batch.number, f: batch.feed, c: batch.feedEnd - batch.feed + 1, m: batch.mark, p: core.seq, h: core.hash, t: batch.time,
    }, batch.parts);
    const appended = this.#site.journal.append(journalSubject(this.partition, this.self), data, core.seq);
    // While the append is under way.
    const hash = hashOf(data);
    const body = this.#pending || core.unsaved < this.compiled.spec.snapshotEvery ? undefined : this.#snapshotBody(core);
    appended.then(
      (seq) => { this.#acknowledged(batch, seq, hash, body); },
      (error: unknown) => { this.#lost(error); },
    );
  }

  #acknowledged(batch: Batch, seq: number, hash: string, body: string | undefined): void {
    const site = this.#site;
    site.counts.appends -= 1;
    site.counts.commits += 1;
    site.unpark();
    if (this.#phase === 'gone') return;
    const core = this.#ready;
    core.seq = seq;
    core.hash = hash;
    core.epoch = this.epoch;
    this.#committed = batch.state;
    this.#inflight = undefined;
    this.#busy = false;
    this.#wait(-batch.answer());
    for (const id of batch.starts ?? []) this.#runner().start(id, false);
    for (const id of batch.aborts ?? []) this.#effects?.abort(id);
    if (batch.timers !== undefined) this.#setTimers(batch.timers);
    if (body !== undefined) this.#saveSnapshot(body);
    if (batch.reminds) {
      this.#due = batch.due;
      this.#index ??= 'check';
    }
    this.pump();
  }

  #lost(error: unknown): void {
    this.#site.counts.appends -= 1;
    this.#site.unpark();
    if (this.#phase === 'gone') return;
    if (error instanceof CodedError) {
      this.#site.log.warn({ ...nameOf(this.self), code: error.code }, 'append failed: the activation ends');
      this.discard(error, undefined);
      return;
    }
    this.#site.log.error({ ...nameOf(this.self), err: error }, 'append failed without a code: the activation ends');
    this.discard(coded('internal_error'), undefined);
  }

  /** Brings the reminder index to the committed reminders. What waits for its commit is the commit's business (M1). */
  #writeIndex(mode: 'check' | 'write'): void {
    const { reminders, log } = this.#site;
    this.#index = undefined;
    const due = this.#due;
    if (!this.#site.owns(this.partition, this.epoch) || (mode === 'check' && due === reminders.known(this.key))) {
      this.pump();
      return;
    }
    this.#busy = true;
    const write = due === undefined
      ? reminders.delete(this.key, this.self, this.partition)
      : reminders.put(this.key, this.self, this.partition, due);
    write.catch((error: unknown) => {
      log.warn({ ...nameOf(this.self), err: error }, 'reminder index not written; the actor may be woken needlessly');
      if (due !== undefined && this.#phase !== 'gone') reminders.expect(this.key, this.self, this.partition, due);
    }).finally(() => {
      this.#busy = false;
      this.pump();
    });
  }

  // --- effects and timers ----------------------------------------------------------------------------------------------

  #runner(): EffectRunner {
    this.#effects ??= new EffectRunner(this.#site, this);
    return this.#effects;
  }

  intent(id: string): Intent | undefined {
    return this.#core?.effects?.get(id);
  }

  serves(): boolean {
    return this.#phase !== 'stopping' && this.#phase !== 'gone' && this.#site.owns(this.partition, this.epoch);
  }

  #setTimers(requests: readonly TimerRequest[]): void {
    const { alarms, clock, log } = this.#site;
    this.#timers ??= new Map();
    const timers = this.#timers;
    for (const { command, afterMs, input } of requests) {
      alarms.cancel(timers.get(command));
      timers.set(command, alarms.set(clock.monotonic() + afterMs, () => {
        timers.delete(command);
        this.call(command, input).catch((error: unknown) => {
          log.warn({ ...nameOf(this.self), command, err: error }, 'timer failed');
        });
      }));
    }
  }

  // --- snapshots -------------------------------------------------------------------------------------------------------

  #snapshotBody(core: Core): string | undefined {
    const { checked, refused } = this.#site.snapshotTypes;
    const { type } = this.compiled;
    if (refused.has(type)) return undefined;
    if (!checked.has(type)) {
      checked.add(type);
      const fault = jsonFault(core.state);
      if (fault !== undefined) {
        refused.add(type);
        this.#site.log.error({ ...nameOf(this.self), fault }, 'state is not JSON: actors of this type are not snapshotted');
        return undefined;
      }
    }
    core.unsaved = 0;
    return encodeBody(this.compiled, core);
  }

  #saveSnapshot(body: string): Promise<void> {
    const data = encodeSnapshot(body, this.#ready);
    if (data.byteLength > limits.commitMaxBytes) {
      this.#site.log.warn({ ...nameOf(this.self), bytes: data.byteLength }, 'snapshot too large, not written');
      return Promise.resolve();
    }
    return this.#site.snapshots.put(snapshotSubject(this.partition, this.self), data).catch((error: unknown) => {
      this.#site.log.warn({ ...nameOf(this.self), err: error }, 'snapshot not written');
    });
  }

  // --- the end ---------------------------------------------------------------------------------------------------------

  #restart(): void {
    const { alarms, clock } = this.#site;
    const now = clock.monotonic();
    const trouble = this.#trouble ??= { count: 0, at: now, alarm: undefined };
    trouble.count = now - trouble.at > 2 * limits.restartMaxMs ? 1 : trouble.count + 1;
    trouble.at = now;
    this.#phase = 'activating';
    this.#open = undefined;
    const delayMs = Math.min(limits.restartBaseMs * 2 ** (trouble.count - 1), limits.restartMaxMs);
    trouble.alarm = alarms.set(now + delayMs, () => {
      trouble.alarm = undefined;
      if (this.#phase === 'stopping') this.#leave();
      else if (this.#phase === 'activating') this.begin(true);
    });
  }

  /** The idle actor's way out: its last turn, then it is forgotten. Gives whether it is on its way. */
  passivate(): boolean {
    if (!this.quiet) return false;
    this.#leaving = true;
    // An actor without a journal has nothing to say goodbye to.
    if (this.compiled.spec.onIdle !== undefined && this.#ready.seq > 0) this.#enqueue({ kind: 'idle' });
    this.pump();
    return true;
  }

  /** Hand-over and drain: what has run is committed and answered, the rest is refused with `error`. Resolves when nothing more can be committed. */
  stop(error: CodedError): Promise<void> {
    if (this.#stop !== undefined) return this.#stop.done;
    if (this.#phase === 'gone') return Promise.resolve();
    let resolve = (): void => undefined;
    const done = new Promise<void>((r) => { resolve = r; });
    this.#stop = { done, resolve, error };
    const recovering = this.#phase === 'activating' && this.#trouble?.alarm === undefined;
    this.#phase = 'stopping';
    this.#refuseQueue(error);
    this.#halt(coded('fenced'));
    if (!recovering) this.pump();
    return done;
  }

  /** Ends at once: whoever waits gets `error`. `failure` keeps the actor unavailable for a while. */
  discard(error: CodedError, failure: CodedError | undefined): void {
    if (this.#phase === 'gone') return;
    this.#phase = 'gone';
    this.#refuseQueue(error);
    for (const batch of [this.#inflight, this.#sealed, this.#open]) if (batch !== undefined) this.#wait(-batch.fail(error));
    this.#halt(error);
    this.#site.ended(this, failure);
    this.#stop?.resolve();
  }

  #leave(): void {
    const core = this.#core;
    const saves = core !== undefined && core.seq > 0 && core.unsaved >= Math.min(this.compiled.spec.snapshotEvery, limits.snapshotIdleEvents);
    const body = saves ? this.#snapshotBody(core) : undefined;
    const saved = body === undefined ? undefined : this.#saveSnapshot(body);
    this.#phase = 'gone';
    this.#halt(coded('fenced'));
    this.#site.ended(this, undefined);
    const stop = this.#stop;
    if (stop === undefined) return;
    if (saved === undefined) stop.resolve();
    else saved.finally(stop.resolve);
  }

  #refuseQueue(error: CodedError): void {
    const queue = this.#queue ?? [];
    this.#queue = undefined;
    for (const item of queue) {
      if (item.kind === 'command') this.#wait(-1);
      if (item.kind === 'command' || item.kind === 'wake' || item.kind === 'woken') item.reject(error);
    }
  }

  /** Effects and timers end with the activation; the next owner resumes the effects. */
  #halt(reason: CodedError): void {
    this.#effects?.stop(reason);
    this.#effects = undefined;
    for (const alarm of this.#timers?.values() ?? []) this.#site.alarms.cancel(alarm);
    this.#timers = undefined;
    this.#site.alarms.cancel(this.#trouble?.alarm);
  }
}
