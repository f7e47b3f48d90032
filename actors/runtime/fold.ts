/**
 * The fold: journal messages → an actor's state, its own and the runtime's.
 *
 * Guarantees (design G6): the same messages give the same core, whatever was folded from a snapshot and what from the tail;
 * the chain is checked on the way: each commit must name the sequence and hash of the one before it and continue its
 * numbers, else `journal_unreadable`. Old event versions are upcast; a kind or version that the code does not know is
 * `journal_unreadable` too: the actor stays unavailable rather than wrong. A life that was forgotten (forget.ts) leaves nothing.
 * It reads no clock and no storage.
 */
import type { Commit, StoredEvent } from '../../contracts/event.ts';
import { runtimeKinds } from '../../contracts/event.ts';
import { coded, CodedError } from '../../contracts/errors.ts';
import type { ActorAddress } from '../../contracts/subjects.ts';
import type { Compiled } from './compile.ts';
import { remember, type HandledIds } from './dedup.ts';

/** An effect whose end is not journaled. */
export interface Intent {
  readonly name: string;
  readonly input: unknown;
  /** Number of the run that the current activation may make: 1 in the activation that journaled the intent, 1 more in each after it. */
  readonly attempt: number;
  readonly aborted: boolean;
}

/** Everything an activation knows of its actor. Maps exist only while they hold something: most actors have none. */
export class Core {
  /** The actor's own state. */
  state: unknown;
  /** Number of the last event, feed number of the last feed event, and the feed's mark (contracts/event.ts). */
  number = 0;
  feed = 0;
  mark = 0;
  running = false;
  /** Stream sequence and hash of the last journaled message; epoch that wrote it. */
  seq = 0;
  hash = '';
  epoch = 0;
  /** Id of the last event; the next is above it. */
  id = '';
  /** Events since the last snapshot. */
  unsaved = 0;
  effects: Map<string, Intent> | undefined = undefined;
  /** Name → Unix milliseconds. */
  reminders: Map<string, number> | undefined = undefined;
  handled: HandledIds | undefined = undefined;

  constructor(state: unknown) {
    this.state = state;
  }
}

const unreadable = (message: string, cause?: unknown): CodedError => coded('journal_unreadable', message, { cause });

const text = (value: unknown): string => {
  if (typeof value !== 'string') throw unreadable('A runtime event lacks a field.');
  return value;
};

/** Applies an event of the runtime (`$…`) that happened at `at`. */
export const foldRuntime = (core: Core, event: StoredEvent, at: number): void => {
  const { d } = event;
  switch (event.k) {
    case runtimeKinds.epoch: {
      // A new activation: what its predecessor left unfinished is at its next attempt.
      for (const [id, intent] of core.effects ?? []) core.effects?.set(id, { ...intent, attempt: intent.attempt + 1 });
      return;
    }
    case runtimeKinds.effectIntended: {
      core.effects ??= new Map();
      core.effects.set(text(d['id']), { name: text(d['name']), input: d['input'], attempt: 1, aborted: false });
      return;
    }
    case runtimeKinds.effectAborted: {
      const intent = core.effects?.get(text(d['id']));
      if (intent !== undefined) core.effects?.set(text(d['id']), { ...intent, aborted: true });
      return;
    }
    case runtimeKinds.effectEnded: {
      core.effects?.delete(text(d['id']));
      if (core.effects?.size === 0) core.effects = undefined;
      return;
    }
    case runtimeKinds.reminderSet: {
      const due = d['at'];
      if (typeof due !== 'number') throw unreadable('A reminder has no time.');
      core.reminders ??= new Map();
      core.reminders.set(text(d['name']), due);
      return;
    }
    case runtimeKinds.reminderGone: {
      core.reminders?.delete(text(d['name']));
      if (core.reminders?.size === 0) core.reminders = undefined;
      return;
    }
    case runtimeKinds.handled: {
      core.handled ??= new Map();
      const { command } = d;
      remember(core.handled, text(d['id']), { at, output: d['output'], command: typeof command === 'string' ? command : undefined });
      return;
    }
    // What it ends is the commit's business (`foldCommit`); what it begins with, of whoever folds (fork.ts).
    case runtimeKinds.forgotten: case runtimeKinds.forked: return;
    default:
      throw unreadable(`The runtime has no event ${event.k}.`);
  }
};

/** The payload of a journaled domain event in today's version. */
const payloadOf = (compiled: Compiled, event: StoredEvent): unknown => {
  const known = compiled.events.get(event.k);
  if (known === undefined) throw unreadable(`${compiled.type} has no event ${event.k}.`);
  let version = event.v ?? 1;
  if (version > known.version) throw unreadable(`${compiled.type}: event ${event.k} has version ${version}, the code knows ${known.version}.`);
  let payload: Record<string, unknown> = event.d;
  for (; version < known.version; version++) {
    const upcast = known.upcast[version];
    if (upcast === undefined) throw unreadable(`${compiled.type}: event ${event.k} has no upcast from version ${version}.`);
    payload = upcast(payload);
  }
  const parsed = known.schema.safeParse(payload);
  if (!parsed.success) throw unreadable(`${compiled.type}: an event ${event.k} does not match its schema.`, parsed.error);
  return parsed.data;
};

/** Applies one event, the next after `core.number`. Feed numbers and mark are the commit's business. */
export const foldEvent = (compiled: Compiled, core: Core, event: StoredEvent, commitTime: number): void => {
  const at = event.t ?? commitTime;
  try {
    if (event.k.startsWith('$')) foldRuntime(core, event, at);
    else {
      const known = compiled.events.get(event.k);
      const payload = payloadOf(compiled, event);
      if (known !== undefined) core.state = known.apply(core.state, payload, { id: event.id, at, number: core.number + 1 });
    }
  } catch (cause) {
    if (cause instanceof CodedError && cause.code === 'journal_unreadable') throw cause;
    throw unreadable(`${compiled.type}: event ${event.k} (number ${core.number + 1}) could not be applied.`, cause);
  }
  core.number += 1;
  core.unsaved += 1;
  core.id = event.id;
};

/** Whether a commit ends an actor's life: what follows it on the subject is a new one (forget.ts). */
export const endsLife = ({ ev }: Commit): boolean => ev.length === 1 && ev[0]?.k === runtimeKinds.forgotten;

/** Checks a commit against the core before it and applies it. `hash` is that of the message itself. */
export const foldCommit = (compiled: Compiled, core: Core, commit: Commit, seq: number, hash: string, self: ActorAddress): void => {
  // The first commit of a journal; one that follows a forgotten life names a commit that may be erased by now.
  const first = core.seq === 0 && commit.n === 1;
  if (!first && (commit.p !== core.seq || commit.h !== core.hash)) {
    throw unreadable(`Chain broken at sequence ${seq}: it follows ${commit.p}, the journal has ${core.seq}${commit.p === core.seq ? ' with another hash' : ''}.`);
  }
  if (commit.n !== core.number + 1) throw unreadable(`Numbers broken at sequence ${seq}: event ${commit.n} follows ${core.number}.`);
  if (commit.f !== core.feed + 1) throw unreadable(`Feed numbers broken at sequence ${seq}: ${commit.f} follows ${core.feed}.`);
  if (commit.e < core.epoch) throw unreadable(`Epochs broken at sequence ${seq}: ${commit.e} follows ${core.epoch}.`);
  for (const event of commit.ev) foldEvent(compiled, core, event, commit.t);
  core.feed = commit.f + commit.c - 1;
  core.mark = commit.m;
  core.running = compiled.feed && compiled.spec.running(core.state);
  core.seq = seq;
  core.hash = hash;
  core.epoch = commit.e;
  if (endsLife(commit)) restart(core, compiled, self);
};

/** The core of an actor without a journal. */
export const emptyCore = (compiled: Compiled, self: ActorAddress): Core => {
  const core = new Core(compiled.spec.initial(self));
  core.running = compiled.feed && compiled.spec.running(core.state);
  return core;
};

/** Makes a core that of an actor without a journal, but for its place on the subject. */
const restart = (core: Core, compiled: Compiled, self: ActorAddress): void => {
  const { seq, hash, epoch, id } = core;
  Object.assign(core, emptyCore(compiled, self), { seq, hash, epoch, id });
};

/** The earliest reminder's time, or undefined. */
export const earliest = (core: Core): number | undefined => {
  let due: number | undefined;
  for (const at of core.reminders?.values() ?? []) if (due === undefined || at < due) due = at;
  return due;
};
