/**
 * Turns without a caller: an effect's outcome, a reminder. Nobody can be told that they failed, so each has a way out.
 *
 * Guarantees: the handler's events are committed together with the effect's end (the reminder's going). A handler that
 * refuses loses its events and the effect ends all the same, logged; an outcome that the runtime's bounds refuse (too large a
 * commit, too many effects) is told once more as a failure with that code; a handler that ends in a bug is run again after the restart,
 * `limits.poisonTriesMax` times, then it is given up, logged.
 */
import { randomUUID } from 'node:crypto';
import { coded, CodedError } from '../../contracts/errors.ts';
import { runtimeKinds } from '../../contracts/event.ts';
import { limits } from '../../contracts/limits.ts';
import type { ActorAddress } from '../../contracts/subjects.ts';
import type { Compiled } from './compile.ts';
import type { Outcome } from './define.ts';
import type { Core } from './fold.ts';
import type { Item } from './mailbox.ts';
import { nameOf } from './name.ts';
import type { Site } from './site.ts';
import { tellEffect, type ActiveTurn } from './turn.ts';

export interface InternalTurns {
  readonly self: ActorAddress;
  readonly compiled: Compiled;
  readonly core: Core;
  readonly site: Site;
  /** Runs a turn as the actor itself. Gives the coded error it threw; `bug`: the activation will restart. */
  run(what: string, handler: (turn: ActiveTurn) => void): 'done' | 'bug' | CodedError;
}

/** Logs a bug under a new correlation id and gives what its caller is told. */
export const reportBug = (actor: Pick<InternalTurns, 'self' | 'site'>, error: unknown, what: string): CodedError => {
  const correlationId = randomUUID();
  actor.site.log.error({ ...nameOf(actor.self), turn: what, correlation_id: correlationId, err: error }, 'bug in a handler: nothing of the turn is committed');
  return coded('internal_error', undefined, { details: { correlation_id: correlationId } });
};

/** The reminders whose time has come, the earliest first. */
export const dueReminders = (turns: InternalTurns): Item[] => {
  const now = turns.site.clock.now();
  const due = [...(turns.core.reminders ?? [])].filter(([, at]) => at <= now).sort(([, a], [, b]) => a - b);
  return due.map(([name]) => ({ kind: 'reminder', name, tries: 0 }));
};

const given = (turns: InternalTurns, tries: number): boolean => {
  if (tries < limits.poisonTriesMax) return false;
  turns.site.log.error({ ...nameOf(turns.self), tries }, 'handler given up: every run ended in a bug');
  return true;
};

/** What a turn is refused with when its events or intents are too much. */
const bounds: ReadonlySet<string> = new Set(['commit_too_large', 'overloaded', 'too_many_reminders']);

/** Gives the item to put back, if the handler has to be run again. */
export const endEffect = (turns: InternalTurns, id: string, outcome: Outcome<unknown>, tries: number): Item[] => {
  const intent = turns.core.effects?.get(id);
  if (intent === undefined) return [];
  const spec = turns.compiled.effects.get(intent.name);
  const end = (turn: ActiveTurn): void => {
    turn.record(runtimeKinds.effectEnded, outcome.ok ? { id, ok: true } : { id, ok: false, code: outcome.code });
  };
  if (spec === undefined || intent.name === tellEffect || given(turns, tries)) {
    turns.run(`end of ${intent.name}`, end);
    return [];
  }
  const take = (taken: Outcome<unknown>): 'done' | 'bug' | CodedError => turns.run(`done of ${intent.name}`, (turn) => {
    end(turn);
    spec.done(turn, taken, spec.input.parse(intent.input));
  });
  let done = take(outcome);
  // Our bounds refused it, not the handler: it is told, else whoever waits for the outcome would wait for ever.
  if (outcome.ok && done instanceof CodedError && bounds.has(done.code)) done = take({ ok: false, code: done.code, message: done.message });
  if (done instanceof CodedError) turns.run(`end of ${intent.name}`, end);
  return done === 'bug' ? [{ kind: 'outcome', id, outcome, tries: tries + 1 }] : [];
};

/** Gives the item to put back, if the handler has to be run again. */
export const fireReminder = (turns: InternalTurns, name: string, tries: number): Item[] => {
  const at = turns.core.reminders?.get(name);
  // Set anew or forgotten since it became due.
  if (at === undefined || at > turns.site.clock.now()) return [];
  const handler = turns.compiled.reminders.get(name);
  const gone = (turn: ActiveTurn): void => { turn.gone(name); };
  if (handler === undefined) turns.site.log.error({ ...nameOf(turns.self), reminder: name }, 'reminder given up: the code does not know it');
  if (handler === undefined || given(turns, tries)) {
    turns.run(`end of reminder ${name}`, gone);
    return [];
  }
  const done = turns.run(`reminder ${name}`, (turn) => {
    gone(turn);
    handler(turn);
  });
  if (done instanceof CodedError) turns.run(`end of reminder ${name}`, gone);
  return done === 'bug' ? [{ kind: 'reminder', name, tries: tries + 1 }] : [];
};
