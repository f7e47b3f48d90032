/**
 * `defineActor`: the author's view of an actor. Types are inferred end to end; an actor type is one value of this shape.
 *
 * Guarantees an author can rely on:
 * A1  Handlers are synchronous and run one at a time per actor; a turn sees the state with its own events applied.
 * A2  A handler that throws commits nothing. A `CodedError` reaches the caller with its code; anything else is a bug: the
 *     caller gets `internal_error` and the activation restarts from its journal.
 * A3  The reply, the feed and every effect, tell, reminder and timer of a turn happen only after the journal acknowledged it.
 * A4  State is a pure fold of the events: `apply` must not read a clock, a random source or anything outside its arguments,
 *     and must not change its arguments (give a new value instead; unchanged parts may be shared).
 * A5  An effect whose end is not journaled is resumed by the next activation as its `once` says.
 */
import type { z } from 'zod';
import type { Principal } from '../../contracts/capability.ts';
import { limits } from '../../contracts/limits.ts';
import type { ActorAddress } from '../../contracts/subjects.ts';

/** An event's schema, with its version and how older versions become this one. `upcast[n]` turns version n into n + 1. */
export interface VersionedEvent<S extends z.ZodType = z.ZodType> {
  readonly version: number;
  readonly schema: S;
  readonly upcast: Readonly<Record<number, (old: Record<string, unknown>) => Record<string, unknown>>>;
}
export type EventSpec = z.ZodType | VersionedEvent;
export type EventSpecs = Readonly<Record<string, EventSpec>>;
export type PayloadOf<E> = E extends VersionedEvent<infer S> ? z.output<S> : E extends z.ZodType ? z.output<E> : never;

/** Who may call a command: `public` = routes and NATS clients too, `system` = other actors and the daemon, `self` = only this actor. */
export type Access = 'public' | 'system' | 'self';

export interface Turn<State, Events extends EventSpecs, Effects> {
  readonly self: ActorAddress;
  /** With the events this turn has emitted applied. */
  readonly state: State;
  /** Unix milliseconds, fixed for the turn. */
  readonly now: number;
  readonly principal: Principal;
  /** A new ULID, ascending within the actor. */
  newId(): string;
  emit<K extends keyof Events & string>(kind: K, payload: PayloadOf<Events[K]>): void;
  /** Journals the intent of an effect; it runs after the commit. Gives its id (also its idempotency key). */
  effect<K extends keyof Effects & string>(name: K, input: EffectInput<Effects[K]>): string;
  /** Aborts a running effect after the commit; its outcome arrives as a failure with code `aborted`. Unknown ids are ignored. */
  abort(effectId: string): void;
  /** A durable tell to another actor, sent after the commit, at least once, with an id that makes it effective once. */
  tell(target: ActorAddress, command: string, input: unknown): void;
  /** Sets or replaces a durable reminder: the `reminders` handler of that name runs at or after the time, once. */
  remind(name: string, when: { readonly inMs: number } | { readonly atMs: number }): void;
  forget(name: string): void;
  /** A timer that is lost with the activation: the command (access `self`) is called with the input after the time. Setting the same command again replaces it. */
  timer(command: string, afterMs: number, input: unknown): void;
}

export type Outcome<Output> =
  | { readonly ok: true; readonly output: Output }
  | { readonly ok: false; readonly code: string; readonly message: string };

/** What an effect may use while it runs. */
export interface EffectContext<State> {
  readonly self: ActorAddress;
  /** The same over every attempt: give it to the outside world as idempotency key. */
  readonly id: string;
  /** 1 on the first run, more after a host was lost. */
  readonly attempt: number;
  /** Aborted at the deadline, on `turn.abort`, on hand-over and on a stop. */
  readonly signal: AbortSignal;
  /** The actor's committed state now. */
  state(): State;
  /** Calls one of the actor's own commands (access `self` allowed) and waits for its commit. Throws `fenced` if the activation is gone: stop then. */
  call(command: string, input: unknown): Promise<unknown>;
  /** Asks another actor, as the system. The effect's id and `step` form the idempotency key. */
  ask(target: ActorAddress, command: string, input: unknown, step?: string): Promise<unknown>;
}

/** What happens to an effect that a crash interrupted: run again, fail with `interrupted`, or look up what became of it. */
export type Once = 'at-least' | 'at-most' | 'lookup';

export interface EffectSpec<State, T, I extends z.ZodType, O extends z.ZodType> {
  readonly input: I;
  readonly output: O;
  readonly once: Once;
  readonly deadlineMs?: number;
  readonly run: (context: EffectContext<State>, input: z.output<I>) => Promise<z.output<O>>;
  /** For `once: 'lookup'`: what became of the effect; undefined = it never happened, run it. */
  readonly lookup?: (context: EffectContext<State>, input: z.output<I>) => Promise<Outcome<z.output<O>> | undefined>;
  /**
   * The turn that takes the outcome; its events are committed together with the effect's end. If they are too much for a commit (or
   * too many effects or reminders), it is called again with a failure of that code (`commit_too_large`, `overloaded`, …).
   */
  readonly done: (turn: T, outcome: Outcome<z.output<O>>, input: z.output<I>) => void;
}
/** The part of an effect that callers see. */
export interface EffectShape<I extends z.ZodType> {
  readonly input: I;
}
export type EffectInput<E> = E extends EffectShape<infer I> ? z.input<I> : never;

/** After which event of which actor of the same organization and type another one's life begins. */
export interface ForkPoint {
  readonly key: string;
  /** Number of the event, from 1. */
  readonly number: number;
}

export interface CommandSpec<T, I extends z.ZodType, O extends z.ZodType> {
  readonly input: I;
  readonly output: O;
  /**
   * Makes a fork (fork.ts): if nothing was ever journaled of the actor, the turn sees the state that the origin had there, and its first commit
   * says so. On any other actor it is a command like others. A refusal leaves nothing. The handler must emit an event.
   */
  readonly fork?: (input: z.output<I>) => ForkPoint;
  /** Default `public`. */
  readonly access?: Access;
  readonly handle: (turn: T, input: z.output<I>) => z.output<O>;
}
/** A command as callers see it. */
export interface CommandShape<I extends z.ZodType = z.ZodType, O extends z.ZodType = z.ZodType> {
  readonly input: I;
  readonly output: O;
}

/** Effects are declared before commands exist, so their `done` sees a turn whose effects are named by string. */
type DoneTurn<State, Events extends EventSpecs> = Turn<State, Events, Record<string, EffectShape<z.ZodType>>>;

export interface ActorSpec<
  Type extends string, State, Events extends EventSpecs, Effects, Commands,
> {
  /** Folder name of the actor; a subject token. */
  readonly type: Type;
  readonly events: Events;
  /** State before the first event. */
  readonly initial: (self: ActorAddress) => State;
  readonly apply: { readonly [K in keyof Events]: (state: State, payload: PayloadOf<Events[K]>, meta: EventMeta) => State };
  readonly effects?: (
    effect: <I extends z.ZodType, O extends z.ZodType>(
      spec: EffectSpec<State, DoneTurn<State, Events>, I, O>,
    ) => EffectSpec<State, DoneTurn<State, Events>, I, O>,
  ) => Effects;
  readonly commands: (
    command: <I extends z.ZodType, O extends z.ZodType>(
      spec: CommandSpec<Turn<State, Events, Effects>, I, O>,
    ) => CommandSpec<Turn<State, Events, Effects>, I, O>,
  ) => Commands;
  /** Handlers of reminders, by name. */
  readonly reminders?: Readonly<Record<string, (turn: Turn<State, Events, Effects>) => void>>;
  /** The last turn before the actor passivates for idleness; it may emit. Not run on hand-over or shutdown. */
  readonly onIdle?: (turn: Turn<State, Events, Effects>) => void;
  /** Events that form the public feed (numbered from 1), and when the feed's mark stands still: while `running`, the mark stays where the run began. */
  readonly feed?: { readonly kinds: readonly (keyof Events & string)[]; readonly running?: (state: State) => boolean };
  /** Changing it makes snapshots of older code be ignored; raise it when `apply` or the state's shape changes. Default 1. */
  readonly stateVersion?: number;
  /** Milliseconds without a message before the actor passivates. Default `limits.idleMs`. An actor with running effects never idles. */
  readonly idleMs?: number;
  /** Events between two snapshots. Default `limits.snapshotEvery`. */
  readonly snapshotEvery?: number;
  /** Waiting messages. Default `limits.mailboxMax`. */
  readonly mailboxMax?: number;
  /**
   * Milliseconds without a commit after which the actor is forgotten: its journal and snapshot are erased, and it begins anew when somebody
   * asks again. At least `limits.dedupTtlMs`; absent = never. For actors whose state by then means what the initial one does, and that no
   * feed watches. One with a reminder is not forgotten.
   */
  readonly forgetAfterMs?: number;
}

export interface EventMeta {
  readonly id: string;
  /** Unix milliseconds of the commit. */
  readonly at: number;
  /** Number of the event in the actor, from 1. */
  readonly number: number;
}

/** A finished definition: what the engine runs and what references are typed by. */
export interface ActorDefinition<Type extends string = string, State = unknown, Events extends EventSpecs = EventSpecs, Commands = unknown> {
  readonly type: Type;
  /** For the engine only. */
  readonly spec: ErasedSpec;
  /** Types only; never set. */
  readonly types?: { readonly state: State; readonly events: Events; readonly commands: Commands };
}

/** A definition as the engine sees it, its types erased once, here. */
export interface ErasedTurn extends Turn<unknown, Record<string, z.ZodType>, Record<string, EffectShape<z.ZodType>>> {}
export interface ErasedEffect {
  readonly input: z.ZodType;
  readonly output: z.ZodType;
  readonly once: Once;
  readonly deadlineMs?: number;
  readonly run: (context: EffectContext<unknown>, input: unknown) => Promise<unknown>;
  readonly lookup?: (context: EffectContext<unknown>, input: unknown) => Promise<Outcome<unknown> | undefined>;
  readonly done: (turn: ErasedTurn, outcome: Outcome<unknown>, input: unknown) => void;
}
export interface ErasedCommand {
  readonly input: z.ZodType;
  readonly output: z.ZodType;
  readonly fork?: (input: unknown) => ForkPoint;
  readonly access: Access;
  readonly handle: (turn: ErasedTurn, input: unknown) => unknown;
}
export interface ErasedSpec {
  readonly type: string;
  readonly events: Readonly<Record<string, VersionedEvent>>;
  readonly initial: (self: ActorAddress) => unknown;
  readonly apply: Readonly<Record<string, (state: unknown, payload: unknown, meta: EventMeta) => unknown>>;
  readonly effects: Readonly<Record<string, ErasedEffect>>;
  readonly commands: Readonly<Record<string, ErasedCommand>>;
  readonly reminders: Readonly<Record<string, (turn: ErasedTurn) => void>>;
  readonly onIdle: ((turn: ErasedTurn) => void) | undefined;
  readonly feedKinds: ReadonlySet<string>;
  readonly running: (state: unknown) => boolean;
  readonly stateVersion: number;
  readonly idleMs: number;
  readonly snapshotEvery: number;
  readonly mailboxMax: number;
  /** Undefined = never. */
  readonly forgetAfterMs: number | undefined;
}

/** `ref.ask.withdraw(input)` → promise of the output; `ref.tell.withdraw(input)` → resolves when the message is durable. */
export type Ask<Commands> = {
  readonly [K in keyof Commands]: Commands[K] extends CommandShape<infer I, infer O>
    ? (input: z.input<I>, options?: AskOptions) => Promise<z.output<O>>
    : never;
};
export type Tell<Commands> = {
  readonly [K in keyof Commands]: Commands[K] extends CommandShape<infer I> ? (input: z.input<I>, options?: TellOptions) => Promise<void> : never;
};
export interface AskOptions {
  /** A repeat with the same key gets the first answer again and changes nothing (remembered `limits.dedupTtlMs`). */
  readonly idempotencyKey?: string;
  /** Default `limits.askDeadlineMs`. */
  readonly deadlineMs?: number;
  readonly principal?: Principal;
  readonly signal?: AbortSignal;
}
export interface TellOptions {
  /** Default a new ULID. A repeat with the same id takes effect once. */
  readonly id?: string;
}
export interface ActorReference<Commands> {
  readonly address: ActorAddress;
  readonly ask: Ask<Commands>;
  readonly tell: Tell<Commands>;
}

const versioned = (event: EventSpec): VersionedEvent =>
  'upcast' in event ? event : { version: 1, schema: event, upcast: {} };

/**
 * Makes an actor type of its parts. Throws (a bug) when a feed kind has no event, an upcast is missing for an older version,
 * `forgetAfterMs` is too short or goes with a feed, or a name starts with `$` (the runtime's own).
 */
export const defineActor = <
  const Type extends string, State, Events extends EventSpecs,
  Commands extends Readonly<Record<string, CommandShape>>,
  Effects extends Readonly<Record<string, EffectShape<z.ZodType>>> = Record<never, never>,
>(spec: ActorSpec<Type, State, Events, Effects, Commands>): ActorDefinition<Type, State, Events, Commands> => {
  const events = Object.fromEntries(Object.entries(spec.events).map(([kind, event]) => [kind, versioned(event)]));
  for (const [kind, event] of Object.entries(events)) {
    for (let v = 1; v < event.version; v++) {
      if (event.upcast[v] === undefined) throw new TypeError(`${spec.type}: event ${kind} has no upcast from version ${v}`);
    }
  }
  const commands = spec.commands((c) => c);
  const effects = spec.effects?.((e) => e) ?? {};
  const own = [...Object.keys(events), ...Object.keys(commands), ...Object.keys(effects), ...Object.keys(spec.reminders ?? {})];
  const reserved = own.find((name) => name.startsWith('$'));
  if (reserved !== undefined) throw new TypeError(`${spec.type}: ${reserved} starts with $, which is the runtime's`);
  for (const kind of spec.feed?.kinds ?? []) {
    if (!Object.hasOwn(events, kind)) throw new TypeError(`${spec.type}: feed kind ${kind} is not an event`);
  }
  if (spec.forgetAfterMs !== undefined && !(spec.forgetAfterMs >= limits.dedupTtlMs)) throw new TypeError(`${spec.type}: forgetAfterMs is less than message ids are remembered`);
  if (spec.forgetAfterMs !== undefined && spec.feed !== undefined) throw new TypeError(`${spec.type}: an actor with a feed cannot be forgotten, its watchers count on its numbers`);
  // The one place where an author's types are erased: from here on the engine handles unknown values, checked by the schemas.
  const erased = {
    type: spec.type,
    events,
    initial: spec.initial,
    apply: spec.apply,
    effects,
    commands: Object.fromEntries(Object.entries(commands).map(([name, c]) => [name, { access: 'public', ...c }])),
    reminders: spec.reminders ?? {},
    onIdle: spec.onIdle,
    feedKinds: new Set<string>(spec.feed?.kinds ?? []),
    running: spec.feed?.running ?? (() => false),
    stateVersion: spec.stateVersion ?? 1,
    idleMs: spec.idleMs ?? limits.idleMs,
    snapshotEvery: spec.snapshotEvery ?? limits.snapshotEvery,
    mailboxMax: spec.mailboxMax ?? limits.mailboxMax,
    forgetAfterMs: spec.forgetAfterMs,
  };
  return { type: spec.type, spec: erased as unknown as ErasedSpec };
};
