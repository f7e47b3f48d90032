/**
 * Snapshots: a core as bytes and back.
 *
 * Guarantees: a snapshot is an optimisation, never the truth. One of another `stateVersion`, or one that cannot be decoded,
 * is as if it were not there. What JSON would change (a Map, a Date, NaN) is never written: `jsonFault` finds it, so that a
 * state from a snapshot equals the state from the events.
 * It names the sequence and hash of the journal message it stands on; recover.ts checks them against the journal.
 */
import { z } from 'zod';
import type { Compiled } from './compile.ts';
import { limits } from '../../contracts/limits.ts';
import { Core } from './fold.ts';
import { unpack } from './pack.ts';

const count = z.int().min(0);
const stored = z.strictObject({
  v: z.literal(1),
  stateVersion: z.int(),
  seq: count,
  hash: z.string(),
  epoch: count,
  number: count,
  feed: count,
  mark: count,
  running: z.boolean(),
  id: z.string(),
  state: z.unknown(),
  effects: z.array(z.tuple([z.string(), z.strictObject({ name: z.string(), input: z.unknown(), attempt: count, aborted: z.boolean() })])),
  reminders: z.array(z.tuple([z.string(), z.number()])),
  handled: z.array(z.tuple([z.string(), z.strictObject({ at: z.number(), output: z.unknown().optional(), command: z.string().optional() })])),
});

/** The core without its place in the journal, encoded while it is exactly what the commit under way will leave. */
export const encodeBody = (compiled: Compiled, core: Core): string =>
  JSON.stringify({
    v: 1,
    stateVersion: compiled.spec.stateVersion,
    number: core.number,
    feed: core.feed,
    mark: core.mark,
    running: core.running,
    id: core.id,
    state: core.state,
    effects: [...(core.effects ?? [])],
    reminders: [...(core.reminders ?? [])],
    handled: [...(core.handled ?? [])],
  }).slice(0, -1);

/** The snapshot of a body at its place, known once the journal has acknowledged the commit. */
export const encodeSnapshot = (body: string, place: Pick<Core, 'seq' | 'hash' | 'epoch'>): Uint8Array =>
  Buffer.from(`${body},"seq":${place.seq},"hash":"${place.hash}","epoch":${place.epoch}}`);

/** Undefined = cannot be used: another state version, or not a snapshot. */
export const decodeSnapshot = (compiled: Compiled, data: Uint8Array): Core | undefined => {
  let value: unknown;
  try {
    const plain = unpack(data, limits.snapshotPlainMaxBytes);
    value = JSON.parse(Buffer.from(plain.buffer, plain.byteOffset, plain.byteLength).toString('utf8'));
  } catch {
    return undefined;
  }
  const parsed = stored.safeParse(value);
  if (!parsed.success || parsed.data.stateVersion !== compiled.spec.stateVersion) return undefined;
  const s = parsed.data;
  const core = new Core(s.state);
  core.number = s.number;
  core.feed = s.feed;
  core.mark = s.mark;
  core.running = s.running;
  core.seq = s.seq;
  core.hash = s.hash;
  core.epoch = s.epoch;
  core.id = s.id;
  if (s.effects.length > 0) core.effects = new Map(s.effects.map(([id, { input, ...intent }]) => [id, { ...intent, input }]));
  if (s.reminders.length > 0) core.reminders = new Map(s.reminders);
  if (s.handled.length > 0) core.handled = new Map(s.handled.map(([id, { at, output, command }]) => [id, { at, output, command }]));
  return core;
};

/** Path of the first value that JSON would change or drop, or undefined if there is none. Absent and undefined are alike. */
export const jsonFault = (value: unknown, path = 'state'): string | undefined => {
  switch (typeof value) {
    case 'string': case 'boolean': case 'undefined': return undefined;
    case 'number': return Number.isFinite(value) && !Object.is(value, -0) ? undefined : path;
    case 'object': {
      if (value === null) return undefined;
      if (Array.isArray(value)) {
        for (const [i, item] of value.entries()) {
          const fault = item === undefined ? `${path}[${i}]` : jsonFault(item, `${path}[${i}]`);
          if (fault !== undefined) return fault;
        }
        return undefined;
      }
      const prototype: unknown = Object.getPrototypeOf(value);
      if (prototype !== Object.prototype && prototype !== null) return path;
      for (const [key, item] of Object.entries(value)) {
        const fault = jsonFault(item, `${path}.${key}`);
        if (fault !== undefined) return fault;
      }
      return undefined;
    }
    default: return path;
  }
};
