/**
 * The stream actor: appends of a client to one of its event streams. Contract: contracts/client-stream.ts.
 *
 * Guarantees
 * E1  Ids are ULIDs of this actor and strictly grow in append order, also in one batch and one millisecond (JRN-004).
 * E2  An append is one event of the journal: whole or not at all (JRN-013). Of two with the same expectation one succeeds (JRN-011).
 * E3  A key that is remembered is not stored again; its event is named instead (JRN-012, JRN-020). An append whose events are all known is
 *     answered even if the stream has gone on since: it is a retry.
 */
import { clientStreamCommands, clientStreamEvents } from '../../contracts/client-stream.ts';
import { coded } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { defineActor } from '../runtime/define.ts';
import { decodeTime } from 'ulid';
import { eventOfKey, fold, initialStream, keysCount, remembered } from './state.ts';

/** The stream actor's definition. */
export const stream = () => defineActor({
  type: 'stream',
  events: clientStreamEvents,
  initial: initialStream,
  apply: fold,
  commands: (command) => ({
    append: command({
      ...clientStreamCommands.append, access: 'system',
      handle: (turn, { stream_id, events, expected_last_id }) => {
        const { state, now } = turn;
        const keys = remembered(state.keys, now);
        const inBatch = new Map<string, string>();
        const fresh: { id: string; kind: string; payload: Record<string, unknown>; checksum: string; key?: string | undefined; metadata?: Record<string, unknown> | undefined }[] = [];
        const stored = events.map((event) => {
          const before = event.key === undefined ? undefined : eventOfKey(keys, event.key) ?? inBatch.get(event.key);
          if (before !== undefined) return { id: before, known: true };
          const id = turn.newId();
          if (event.key !== undefined) inBatch.set(event.key, id);
          fresh.push({ id, ...event });
          return { id, known: false };
        });
        if (fresh.length > 0) {
          if (expected_last_id !== undefined && expected_last_id !== state.lastId) {
            throw coded('sequence_conflict', undefined, { details: { last_id: state.lastId } });
          }
          if (inBatch.size > 0 && keysCount(keys) + inBatch.size > limits.idempotencyKeysMax) {
            throw coded('rate_limited', `A stream takes ${limits.idempotencyKeysMax} idempotency keys in 24 hours. Append without keys, or to another stream.`);
          }
          turn.emit('Appended', { stream_id, at: now, events: fresh });
        }
        return { stored: stored.map(({ id, known }) => ({ id, known, timestamp: decodeTime(id) })), last_id: turn.state.lastId };
      },
    }),
    describe: command({
      ...clientStreamCommands.describe, access: 'system',
      handle: ({ state }) => ({ last_id: state.lastId, count: state.count }),
    }),
  }),
});
