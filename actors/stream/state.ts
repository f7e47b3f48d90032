/**
 * What a client stream remembers: its last event and the idempotency keys of the last 24 hours. The pure fold. Bounded by
 * `limits.idempotencyKeysMax`; keys are kept in chunks, so that neither an append nor forgetting touches all of them.
 */
import type { z } from 'zod';
import type { clientStreamEvents } from '../../contracts/client-stream.ts';
import { limits } from '../../contracts/limits.ts';

type Appended = z.output<(typeof clientStreamEvents)['Appended']>;

/** Hashes of keys with the ids of their events. */
export interface Keys {
  /** Unix milliseconds of the first and the last of them. */
  readonly from: number;
  readonly to: number;
  readonly count: number;
  readonly ids: Readonly<Record<string, string>>;
}

export interface StreamState {
  readonly streamId: string;
  /** Empty = no event yet. */
  readonly lastId: string;
  readonly count: number;
  /** Oldest first. */
  readonly keys: readonly Keys[];
}

export const initialStream = (): StreamState => ({ streamId: '', lastId: '', count: 0, keys: [] });

/** Those that are still to be remembered at a time. Whole chunks go when their newest is too old, so a key may be known a little longer. */
export const remembered = (keys: readonly Keys[], now: number): readonly Keys[] => (keys[0] !== undefined && keys[0].to <= now - limits.idempotencyTtlMs ? keys.filter(({ to }) => to > now - limits.idempotencyTtlMs) : keys);

export const keysCount = (keys: readonly Keys[]): number => keys.reduce((sum, { count }) => sum + count, 0);

/** Id of the event that a key was given with, if it is remembered. */
export const eventOfKey = (keys: readonly Keys[], key: string): string | undefined => {
  for (const { ids } of keys) if (Object.hasOwn(ids, key)) return ids[key];
  return undefined;
};

const withKeys = (keys: readonly Keys[], at: number, fresh: Readonly<Record<string, string>>): readonly Keys[] => {
  const added = Object.keys(fresh).length;
  if (added === 0) return keys;
  const last = keys.at(-1);
  // A chunk lives no longer than an hour beyond its oldest key.
  if (last === undefined || last.count + added > limits.idempotencyChunkMax || at - last.from > 3_600_000) return [...keys, { from: at, to: at, count: added, ids: fresh }];
  return [...keys.slice(0, -1), { from: last.from, to: at, count: last.count + added, ids: { ...last.ids, ...fresh } }];
};

export const fold = {
  Appended: (state: StreamState, { stream_id, at, events }: Appended): StreamState => ({
    streamId: stream_id, lastId: events.at(-1)?.id ?? state.lastId, count: state.count + events.length,
    keys: withKeys(remembered(state.keys, at), at, Object.fromEntries(events.flatMap(({ id, key }) => (key === undefined ? [] : [[key, id] as const])))),
  }),
} as const;
