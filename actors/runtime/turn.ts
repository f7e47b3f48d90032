/**
 * One turn: what a handler sees and what it leaves behind. The engine makes one, runs the handler, and either absorbs it
 * into the core or drops it.
 *
 * Guarantees (define.ts A1, A2): nothing of a turn is visible outside until `absorb`; dropping it needs no undoing, because
 * the core keeps its old references. A turn that is over refuses every further use, so a handler that kept it and calls it
 * from a promise finds out. Events are validated as they are emitted: what is journaled can be read again.
 */
import type { Principal } from '../../contracts/capability.ts';
import { coded } from '../../contracts/errors.ts';
import { runtimeKinds, type StoredEvent } from '../../contracts/event.ts';
import { limits } from '../../contracts/limits.ts';
import type { ActorAddress } from '../../contracts/subjects.ts';
import type { Compiled } from './compile.ts';
import type { ErasedTurn } from './define.ts';
import { earliest, foldRuntime, type Core } from './fold.ts';
import type { ForkBase } from './fork.ts';
import type { Ulids } from './ulid.ts';

/** Name of the runtime's own effect that sends a durable tell. */
export const tellEffect = '$tell';

export interface TimerRequest {
  readonly command: string;
  readonly afterMs: number;
  readonly input: unknown;
}

export class ActiveTurn implements ErasedTurn {
  readonly self: ActorAddress;
  readonly now: number;
  readonly principal: Principal;
  state: unknown;
  /** What it leaves behind; undefined = nothing. */
  events: StoredEvent[] | undefined = undefined;
  timers: TimerRequest[] | undefined = undefined;
  /** Ids of effects to start and to abort once it is committed. */
  starts: string[] | undefined = undefined;
  aborts: string[] | undefined = undefined;
  reminds = false;

  readonly #compiled: Compiled;
  readonly #core: Core;
  readonly #ulids: Ulids;
  /** Time to write into the events; undefined = the commit's. */
  readonly #stamp: number | undefined;
  #open = true;
  #number: number;
  #feed: number;
  #mark: number;
  #running: boolean;
  #id: string;
  #reminders: Set<string> | undefined = undefined;

  constructor(compiled: Compiled, core: Core, self: ActorAddress, principal: Principal, now: number, stamp: number | undefined, ulids: Ulids) {
    this.self = self;
    this.now = now;
    this.principal = principal;
    this.state = core.state;
    this.#compiled = compiled;
    this.#core = core;
    this.#ulids = ulids;
    this.#stamp = stamp;
    this.#number = core.number;
    this.#feed = core.feed;
    this.#mark = core.mark;
    this.#running = core.running;
    this.#id = core.id;
  }

  /** Whether something has to be journaled. Timers alone need no journal. */
  get changed(): boolean {
    return this.events !== undefined;
  }

  newId(): string {
    this.#require();
    this.#id = this.#ulids.after(this.#id);
    return this.#id;
  }

  emit(kind: string, payload: unknown): void {
    this.#require();
    const event = this.#compiled.events.get(kind);
    if (event === undefined) throw new TypeError(`${this.#compiled.type} has no event ${kind}`);
    const parsed = event.schema.safeParse(payload);
    if (!parsed.success) throw new TypeError(`${this.#compiled.type}: the payload of ${kind} does not match its schema`, { cause: parsed.error });
    const data = parsed.data;
    if (typeof data !== 'object' || data === null || Array.isArray(data)) throw new TypeError(`${this.#compiled.type}: the payload of ${kind} is not an object`);
    const id = this.newId();
    this.state = event.apply(this.state, data, { id, at: this.now, number: this.#number + 1 });
    this.#push({ id, k: kind, v: event.version === 1 ? undefined : event.version, t: this.#stamp, d: { ...data } });
    if (!this.#compiled.feed) return;
    const head = this.#feed;
    if (event.feed) this.#feed += 1;
    const running = this.#compiled.spec.running(this.state);
    // The mark stays before the event that began the run, so that a watcher without a position sees the whole run.
    if (running && !this.#running) this.#mark = head;
    else if (!running) this.#mark = this.#feed;
    this.#running = running;
  }

  effect(name: string, input: unknown): string {
    const effect = this.#compiled.effects.get(name);
    if (effect === undefined) throw new TypeError(`${this.#compiled.type} has no effect ${name}`);
    const parsed = effect.input.safeParse(input);
    if (!parsed.success) throw new TypeError(`${this.#compiled.type}: the input of effect ${name} does not match its schema`, { cause: parsed.error });
    return this.#intend(name, input);
  }

  tell(target: ActorAddress, command: string, input: unknown): void {
    const { org, type, key } = target;
    this.#intend(tellEffect, { target: { org, type, key }, command, input });
  }

  abort(effectId: string): void {
    this.#require();
    const intent = this.#core.effects?.get(effectId);
    if ((intent === undefined || intent.aborted) && this.starts?.includes(effectId) !== true) return;
    this.record(runtimeKinds.effectAborted, { id: effectId });
    (this.aborts ??= []).push(effectId);
  }

  remind(name: string, when: { readonly inMs: number } | { readonly atMs: number }): void {
    this.#require();
    if (!this.#compiled.reminders.has(name)) throw new TypeError(`${this.#compiled.type} has no reminder ${name}`);
    const at = Math.ceil('atMs' in when ? when.atMs : this.now + when.inMs);
    if (!Number.isSafeInteger(at)) throw new TypeError(`${this.#compiled.type}: reminder ${name} has no time`);
    const names = this.#names();
    if (!names.has(name) && names.size >= limits.remindersPerActorMax) throw coded('too_many_reminders');
    names.add(name);
    this.reminds = true;
    this.record(runtimeKinds.reminderSet, { name, at });
  }

  forget(name: string): void {
    this.#require();
    if (this.#names().delete(name)) this.gone(name);
  }

  timer(command: string, afterMs: number, input: unknown): void {
    this.#require();
    if (!this.#compiled.commands.has(command)) throw new TypeError(`${this.#compiled.type} has no command ${command}`);
    if (!Number.isFinite(afterMs)) throw new TypeError(`${this.#compiled.type}: timer ${command} has no time`);
    (this.timers ??= []).push({ command, afterMs, input });
  }

  /** For the engine: a reminder fired or was forgotten. */
  gone(name: string): void {
    this.#reminders?.delete(name);
    this.reminds = true;
    this.record(runtimeKinds.reminderGone, { name });
  }

  /** For the engine: an event of the runtime. */
  record(kind: string, d: Readonly<Record<string, unknown>>): void {
    this.#push({ id: this.newId(), k: kind, v: undefined, t: this.#stamp, d });
  }

  /** For the engine: the actor's life begins here, as a fork. */
  fork({ key, number, state, id }: ForkBase): void {
    this.state = state;
    this.#running = this.#compiled.feed && this.#compiled.spec.running(state);
    if (id > this.#id) this.#id = id;
    this.record(runtimeKinds.forked, { key, number });
  }

  /** For the engine: the turn is over; every further use is a bug. */
  end(): void {
    this.#open = false;
  }

  /** For the engine: the turn happened. Makes the core what it is after it; gives the earliest reminder if it touched any. */
  absorb(): number | undefined {
    const core = this.#core;
    this.#open = false;
    core.state = this.state;
    core.number = this.#number;
    core.feed = this.#feed;
    core.mark = this.#mark;
    core.running = this.#running;
    core.id = this.#id;
    if (this.events !== undefined) {
      core.unsaved += this.events.length;
      for (const event of this.events) if (event.k.charCodeAt(0) === 36) foldRuntime(core, event, this.now);
    }
    return this.reminds ? earliest(core) : undefined;
  }

  #require(): void {
    if (!this.#open) throw new TypeError(`${this.#compiled.type}: a turn was used after its end`);
  }

  #push(event: StoredEvent): void {
    this.#number += 1;
    (this.events ??= []).push(event);
  }

  #intend(name: string, input: unknown): string {
    this.#require();
    if ((this.#core.effects?.size ?? 0) + (this.starts?.length ?? 0) >= limits.effectsPendingMax) {
      throw coded('overloaded', 'The actor has too many unfinished effects.');
    }
    const id = this.newId();
    this.record(runtimeKinds.effectIntended, { id, name, input });
    (this.starts ??= []).push(id);
    return id;
  }

  #names(): Set<string> {
    this.#reminders ??= new Set(this.#core.reminders?.keys());
    return this.#reminders;
  }
}
