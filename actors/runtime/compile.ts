/**
 * A definition prepared once for the engine: names looked up in maps (never on an object's prototype), schemas checked for
 * what a journal cannot hold.
 *
 * Guarantee: an event or effect schema with a date, bigint, map, set, symbol or transform is refused when the host
 * starts: such a value would not survive JSON, and the actor could not be activated again.
 */
import { z } from 'zod';
import type { ActorDefinition, ErasedCommand, ErasedEffect, ErasedSpec, EventMeta, VersionedEvent } from './define.ts';

export interface CompiledEvent extends VersionedEvent {
  readonly kind: string;
  readonly feed: boolean;
  readonly apply: (state: unknown, payload: unknown, meta: EventMeta) => unknown;
}

export interface Compiled {
  readonly type: string;
  readonly spec: ErasedSpec;
  readonly events: ReadonlyMap<string, CompiledEvent>;
  readonly commands: ReadonlyMap<string, ErasedCommand>;
  readonly effects: ReadonlyMap<string, ErasedEffect>;
  readonly reminders: ReadonlyMap<string, ErasedSpec['reminders'][string]>;
  /** Whether it has a feed at all: without one nothing is numbered or marked. */
  readonly feed: boolean;
}

const unjournalable: ReadonlySet<string> = new Set(['bigint', 'date', 'map', 'set', 'symbol', 'nan', 'promise', 'function', 'transform', 'file']);

const requireJson = (schema: z.ZodType, io: 'input' | 'output', where: string): void => {
  z.toJSONSchema(schema, {
    io,
    unrepresentable: 'any',
    override: ({ zodSchema }) => {
      const { type } = zodSchema._zod.def;
      if (unjournalable.has(type)) throw new TypeError(`${where}: a ${type} cannot be journaled as JSON`);
    },
  });
};

export const compile = (definition: ActorDefinition): Compiled => {
  const { spec } = definition;
  const events = new Map<string, CompiledEvent>();
  for (const [kind, event] of Object.entries(spec.events)) {
    requireJson(event.schema, 'output', `${spec.type}: event ${kind}`);
    const apply = spec.apply[kind];
    if (apply === undefined) throw new TypeError(`${spec.type}: event ${kind} has no apply`);
    events.set(kind, { kind, version: event.version, schema: event.schema, upcast: event.upcast, apply, feed: spec.feedKinds.has(kind) });
  }
  for (const [name, effect] of Object.entries(spec.effects)) {
    requireJson(effect.input, 'input', `${spec.type}: effect ${name}`);
    if (effect.once === 'lookup' && effect.lookup === undefined) throw new TypeError(`${spec.type}: effect ${name} has no lookup`);
  }
  return {
    type: spec.type,
    spec,
    events,
    commands: new Map(Object.entries(spec.commands)),
    effects: new Map(Object.entries(spec.effects)),
    reminders: new Map(Object.entries(spec.reminders)),
    feed: spec.feedKinds.size > 0,
  };
};
