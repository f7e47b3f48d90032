/**
 * An activation: one actor in memory on the host that owns it. Its mailbox, its turns, its commits, its end.
 *
 * Guarantees (design G1, G2, G5; "A turn"):
 * T1  One turn at a time. Turns run on the speculative core as messages arrive; what they emit waits for its commit (writer.ts).
 * T2  While the writer has no room messages wait in the mailbox, then they are refused with `mailbox_full`.
 * T3  Past its deadline, or once its caller gave up, a message whose turn has not begun is dropped.
 * T4  A failed append ends the activation: everybody waiting gets its code, effects are aborted, nothing more is committed.
 * T5  A bug in a handler drops its turn; turns before it are committed and answered, then the activation recovers from its
 *     journal after a pause. The mailbox and running effects stay.
 * Phases: activating → ready ⇄ failing → … ; stopping (hand-over) → gone. Fields stay few: an idle actor is mostly its state.
 */
import type { Principal } from '../../contracts/capability.ts';
import { coded, CodedError } from '../../contracts/errors.ts';
import { runtimeKinds, type StoredEvent } from '../../contracts/event.ts';
import { limits } from '../../contracts/limits.ts';
import type { ActorAddress } from '../../contracts/subjects.ts';
import { refusalOf } from '../../contracts/validate.ts';
import type { Alarm } from './alarm.ts';
import type { Batch } from './batch.ts';
import type { Compiled } from './compile.ts';
import { handledBefore } from './dedup.ts';
import type { ErasedCommand, Outcome } from './define.ts';
import { EffectRunner, type EffectOwner } from './effects.ts';
import type { Core, Intent } from './fold.ts';
import type { ForkBase } from './fork.ts';
import { dueReminders, endEffect, fireReminder, reportBug, type InternalTurns } from './internal.ts';
import { Mailbox, overdue, type Item } from './mailbox.ts';
import type { Message } from './message.ts';
import { recover } from './recover.ts';
import { nameOf } from './name.ts';
import type { Resident, Site } from './site.ts';
import { Timers } from './timers.ts';
import { ActiveTurn, type TimerRequest } from './turn.ts';
import { Writer, type WriterOwner } from './writer.ts';

const self: Principal = { kind: 'self' };

type Phase = 'activating' | 'ready' | 'failing' | 'stopping' | 'gone';

export class Activation implements EffectOwner, WriterOwner, InternalTurns, Resident {
  readonly self: ActorAddress;
  /** The actor's address tokens. */
  readonly key: string;
  readonly partition: number;
  readonly epoch: number;
  readonly compiled: Compiled;
  /** The host's list of activations by last use. */
  previous: Resident | undefined = undefined;
  next: Resident | undefined = undefined;
  usedAt = 0;
  /** Whether the host has noted it for `pump`. */
  kicked = false;

  readonly site: Site;
  #phase: Phase = 'activating';
  #writer: Writer | undefined = undefined;
  #mailbox: Mailbox | undefined = undefined;
  #waiting = 0;
  #inTurn = false;
  #leaving = false;
  #effects: EffectRunner | undefined = undefined;
  #timers: Timers | undefined = undefined;
  #trouble: { count: number; at: number; alarm: Alarm | undefined } | undefined = undefined;
  #stop: { readonly done: Promise<void>; readonly resolve: () => void; readonly error: CodedError } | undefined = undefined;

  constructor(site: Site, compiled: Compiled, address: ActorAddress, key: string, partition: number, epoch: number) {
    this.site = site;
    this.compiled = compiled;
    this.self = { org: address.org, type: address.type, key: address.key };
    this.key = key;
    this.partition = partition;
    this.epoch = epoch;
  }

  get core(): Core {
    return this.#ready.core;
  }

  get committed(): unknown {
    return this.#writer?.committed;
  }

  /** Nothing is under way and nothing waits: it may passivate. */
  get quiet(): boolean {
    const writer = this.#writer;
    return this.#phase === 'ready' && writer !== undefined && writer.quiet && this.#mailbox === undefined && writer.core.effects === undefined && this.#timers?.empty !== false;
  }

  /** It was told to stop, or has ended. */
  get stopping(): boolean {
    return this.#phase === 'stopping' || this.#phase === 'gone';
  }

  get gone(): boolean {
    return this.#phase === 'gone';
  }

  /** Whether a turn may run now (T2). */
  get #room(): boolean {
    return this.#phase === 'ready' && !this.#inTurn && this.#writer?.room === true;
  }

  // --- the mailbox ---------------------------------------------------------------------------------------------------

  /** Takes a message whose input is parsed. Gives the answer. `base`: what the actor begins with if it has no past (fork.ts). */
  take(message: Message, command: ErasedCommand, input: unknown, base?: ForkBase): Promise<unknown> {
    this.site.touched(this);
    this.#leaving = false;
    if (this.stopping) return Promise.reject(this.#stop?.error ?? coded('not_owner'));
    // What the actor's own effects and timers have to say must not be shut out by callers.
    const max = this.compiled.spec.mailboxMax + (message.principal.kind === 'self' ? limits.mailboxOwnMax : 0);
    if (this.#waiting >= max) return Promise.reject(coded('mailbox_full'));
    if (this.#room && this.#mailbox === undefined) return this.#command(message, command, input, base);
    return new Promise((resolve, reject) => {
      this.#enqueue({ kind: 'command', message, command, input, base, resolve, reject });
      this.wait(1);
    });
  }

  /** Calls one of the actor's own commands: from its effects and timers. */
  call(command: string, input: unknown): Promise<unknown> {
    const spec = this.compiled.commands.get(command);
    if (spec === undefined) return Promise.reject(coded('unknown_command'));
    const parsed = spec.input.safeParse(input);
    if (!parsed.success) return Promise.reject(refusalOf(parsed.error));
    return this.take({ address: this.self, command, input, principal: self }, spec, parsed.data);
  }

  outcome(id: string, outcome: Outcome<unknown>): void {
    if (this.stopping) return;
    this.#enqueue({ kind: 'outcome', id, outcome, tries: 0 });
    this.site.touched(this);
    this.site.kick(this);
  }

  /** Runs the reminders that are due; resolves when they are committed. */
  wake(): Promise<void> {
    if (this.stopping) return Promise.reject(coded('not_owner'));
    return new Promise((resolve, reject) => {
      // The answer may be a promise that rejects (the activation is lost before the commit): it must not be dropped.
      this.#enqueue({ kind: 'wake', resolve: (answer) => { Promise.resolve(answer).then(() => { resolve(); }, reject); }, reject });
      this.site.touched(this);
      this.site.kick(this);
    });
  }

  /** Answers those whose deadline has passed or who gave up. */
  sweep(monotonic: number): void {
    if (this.#mailbox !== undefined) this.wait(-this.#mailbox.sweep(monotonic));
    this.#writer?.expire(monotonic);
  }

  #enqueue(item: Item): void {
    (this.#mailbox ??= new Mailbox()).push(item);
    if (item.kind !== 'idle') this.#leaving = false;
  }

  /** For the writer too: more (or fewer) messages wait. */
  wait(more: number): void {
    if (more === 0) return;
    const before = this.#waiting;
    this.#waiting += more;
    this.site.counts.waiting += more;
    if (before === 0) this.site.waits(this, true);
    else if (this.#waiting === 0) this.site.waits(this, false);
  }

  // --- activation ----------------------------------------------------------------------------------------------------

  /** Recovers the actor from its journal. `careful`: it failed before. */
  begin(careful: boolean): void {
    this.#phase = 'activating';
    const owner = (): boolean => this.#phase === 'activating' && this.site.owns(this.partition, this.epoch);
    this.site.admit((done) => {
      const recovered = this.#phase === 'activating' ? recover({ site: this.site, actor: this, careful, owner }) : Promise.reject(coded('not_owner'));
      recovered.then(
        ({ core, opening }) => { this.#recovered(core, opening); },
        (error: unknown) => { this.#unrecovered(error); },
      ).finally(done);
    });
  }

  #recovered(core: Core, opening: StoredEvent | undefined): void {
    if (this.#phase === 'gone') return;
    if (this.#phase === 'stopping') {
      this.#leave();
      return;
    }
    if (!this.site.owns(this.partition, this.epoch)) {
      this.discard(coded('not_owner'), undefined);
      return;
    }
    this.#phase = 'ready';
    this.#writer = new Writer(this.site, this, core, opening);
    for (const id of core.effects?.keys() ?? []) {
      // An outcome that waits since before a restart of this activation is the truth about its effect.
      if (this.#mailbox?.holdsOutcome(id) !== true) this.#runner().start(id, true);
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
    this.site.log.error({ ...nameOf(this.self), err: error }, 'actor cannot be activated: a bug; it stays unavailable');
    // Where and how it is broken is for the log only.
    const failure = coded(error instanceof CodedError ? 'journal_unreadable' : 'internal_error');
    this.discard(failure, failure);
  }

  // --- turns ---------------------------------------------------------------------------------------------------------

  #turn(principal: Principal, writer: Writer): ActiveTurn {
    this.site.counts.turns += 1;
    const now = this.site.clock.now();
    return new ActiveTurn(this.compiled, writer.core, this.self, principal, now, writer.stamp(now), this.site.ulids);
  }

  get #ready(): Writer {
    if (this.#writer === undefined) throw new TypeError('A turn needs a recovered activation');
    return this.#writer;
  }

  #command(message: Message, command: ErasedCommand, input: unknown, base: ForkBase | undefined): Promise<unknown> {
    const writer = this.#ready;
    const { id } = message;
    if (id !== undefined) {
      const handled = handledBefore(writer.core.handled, id, this.site.clock.now());
      if (handled?.command !== undefined && handled.command !== message.command) {
        return writer.answer(coded('conflict', 'The message id was used for another command.'), true, message.deadlineAt);
      }
      if (handled !== undefined) return writer.answer(handled.output, false, message.deadlineAt);
    }
    const turn = this.#turn(message.principal, writer);
    let output: unknown;
    if (base !== undefined && writer.fresh) turn.fork(base);
    this.#inTurn = true;
    try {
      const parsed = command.output.safeParse(command.handle(turn, input));
      if (!parsed.success) throw new TypeError(`${this.compiled.type}: the output of ${message.command} does not match its schema`, { cause: parsed.error });
      output = parsed.data;
      if (id !== undefined) turn.record(runtimeKinds.handled, { id, command: message.command, ...(output === undefined ? {} : { output }) });
      writer.absorb(turn);
    } catch (error) {
      turn.end();
      if (error instanceof CodedError) return writer.answer(error, true, message.deadlineAt);
      return Promise.reject(this.#bug(error, message.command));
    } finally {
      this.#inTurn = false;
    }
    return writer.answer(output, false, message.deadlineAt);
  }

  /** A turn without a caller. Gives whether it happened; a refusal is logged and given back. */
  run(what: string, handler: (turn: ActiveTurn) => void): 'done' | 'bug' | CodedError {
    const writer = this.#ready;
    const turn = this.#turn(self, writer);
    this.#inTurn = true;
    try {
      handler(turn);
      writer.absorb(turn);
      return 'done';
    } catch (error) {
      turn.end();
      if (error instanceof CodedError) {
        this.site.log.warn({ ...nameOf(this.self), turn: what, code: error.code, reason: error.message }, 'turn refused');
        return error;
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
        this.wait(-1);
        const late = overdue(item.message, this.site.clock.monotonic());
        if (late === undefined) item.resolve(this.#command(item.message, item.command, item.input, item.base));
        else item.reject(late);
        return;
      }
      case 'outcome':
        this.#mailbox?.pushFront(endEffect(this, item.id, item.outcome, item.tries));
        return;
      case 'reminder':
        this.#mailbox?.pushFront(fireReminder(this, item.name, item.tries));
        return;
      case 'wake': {
        const due = dueReminders(this);
        // Needless: the index is behind the journal.
        if (due.length === 0) this.#ready.checkIndex();
        this.#mailbox?.pushFront([...due, { ...item, kind: 'woken' }]);
        return;
      }
      case 'woken':
        item.resolve(this.#ready.answer(undefined, false, undefined));
        return;
      case 'idle': {
        const { onIdle } = this.compiled.spec;
        if (onIdle !== undefined && this.#leaving && this.run('onIdle', onIdle) === 'bug') {
          // It was about to leave anyway, and leaving is a restart.
          this.#phase = 'ready';
        }
        return;
      }
    }
  }

  /** T5. Gives what the caller is told. */
  #bug(error: unknown, what: string): CodedError {
    if (this.#phase === 'ready') {
      this.#phase = 'failing';
      this.site.kick(this);
    }
    return reportBug(this, error, what);
  }

  // --- commits -------------------------------------------------------------------------------------------------------

  /** Does what can be done: turns, then the next commit, then what had to wait for both. */
  pump(): void {
    while (this.#mailbox !== undefined && this.#room) {
      const item = this.#mailbox.shift();
      if (item === undefined) break;
      this.#item(item);
    }
    if (this.#mailbox?.empty === true) this.#mailbox = undefined;
    if (this.#phase === 'activating' || this.#phase === 'gone' || this.#writer?.step() === true) return;
    if (this.#phase === 'failing') this.#restart();
    else if (this.#phase === 'stopping' || (this.#leaving && this.quiet)) this.#leave();
  }

  acknowledged(batch: Batch): void {
    if (batch.starts !== undefined) for (const id of batch.starts) this.#runner().start(id, false);
    if (batch.aborts !== undefined) for (const id of batch.aborts) this.#effects?.abort(id);
    if (batch.timers !== undefined) this.setTimers(batch.timers);
  }

  // --- effects and timers ----------------------------------------------------------------------------------------------

  #runner(): EffectRunner {
    this.#effects ??= new EffectRunner(this.site, this);
    return this.#effects;
  }

  intent(id: string): Intent | undefined {
    return this.#writer?.core.effects?.get(id);
  }

  serves(): boolean {
    return !this.stopping && this.site.owns(this.partition, this.epoch);
  }

  /** Timers of a committed turn, or of one that had nothing to commit. */
  setTimers(requests: readonly TimerRequest[]): void {
    this.#timers ??= new Timers(this.site, this);
    this.#timers.set(requests);
  }

  // --- the end ---------------------------------------------------------------------------------------------------------

  #restart(): void {
    const { alarms, clock } = this.site;
    const now = clock.monotonic();
    const trouble = this.#trouble ??= { count: 0, at: now, alarm: undefined };
    trouble.count = now - trouble.at > 2 * limits.restartMaxMs ? 1 : trouble.count + 1;
    trouble.at = now;
    this.#phase = 'activating';
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
    if (this.compiled.spec.onIdle !== undefined && this.#ready.core.seq > 0) this.#enqueue({ kind: 'idle' });
    this.pump();
    return true;
  }

  /** Hand-over and drain: what has run is committed and answered, the rest is refused with `error`. Resolves when nothing more can be committed. */
  stop(error: CodedError): Promise<void> {
    if (this.#stop !== undefined) return this.#stop.done;
    if (this.#phase === 'gone') return Promise.resolve();
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#stop = { done: promise, resolve, error };
    const recovering = this.#phase === 'activating' && this.#trouble?.alarm === undefined;
    this.#phase = 'stopping';
    this.#refuseMailbox(error);
    this.#halt(coded('fenced'));
    if (!recovering) this.pump();
    return promise;
  }

  /** Ends at once: whoever waits gets `error`. `failure` keeps the actor unavailable for a while. */
  discard(error: CodedError, failure: CodedError | undefined): void {
    if (this.#phase === 'gone') return;
    this.#phase = 'gone';
    this.#refuseMailbox(error);
    this.#writer?.fail(error);
    this.#halt(error);
    this.site.ended(this, failure);
    this.#stop?.resolve();
  }

  #leave(): void {
    const saved = this.#writer?.save();
    this.#phase = 'gone';
    this.#halt(coded('fenced'));
    this.site.ended(this, undefined);
    const stop = this.#stop;
    if (stop === undefined) return;
    if (saved === undefined) stop.resolve();
    else void saved.then(stop.resolve);
  }

  #refuseMailbox(error: CodedError): void {
    const mailbox = this.#mailbox;
    this.#mailbox = undefined;
    if (mailbox !== undefined) this.wait(-mailbox.refuse(error));
  }

  /** Effects and timers end with the activation; the next owner resumes the effects. */
  #halt(reason: CodedError): void {
    this.#effects?.stop(reason);
    this.#effects = undefined;
    this.#timers?.stop();
    this.#timers = undefined;
    this.site.alarms.cancel(this.#trouble?.alarm);
  }
}
