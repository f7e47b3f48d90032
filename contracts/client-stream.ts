/**
 * The stream actor's contract: one event stream of a deployment's client (interface 4.7; decisions, Deployment services; JRN). Org = the
 * organization, key = hex SHA-256 of `streamSeed` (contracts/deployment.ts). For the daemon only (access `system`).
 */
import { z } from 'zod';
import { limits } from './limits.ts';

/** Checked by the daemon: the payload is an object, the checksum that of its canonical JSON. `key`: hash of the idempotency key. */
const given = z.strictObject({
  kind: z.string().min(1).max(limits.eventKindMaxChars), payload: z.record(z.string(), z.unknown()), checksum: z.string().length(64),
  key: z.string().min(1).max(limits.idMaxChars).optional(), metadata: z.record(z.string(), z.unknown()).optional(),
});

export const clientStreamCommands = {
  /**
   * Appends all that is new in one commit. `sequence_conflict`: the last event is another one than `expected_last_id` (empty = there is none).
   * `rate_limited`: too many idempotency keys are remembered. `stored[i]` names what stands for the i-th event; `known`: it did before.
   */
  append: {
    input: z.strictObject({ stream_id: z.string(), events: z.array(given).min(1).max(limits.appendEventsMax), expected_last_id: z.string().max(limits.idMaxChars).optional() }),
    output: z.strictObject({
      stored: z.array(z.strictObject({ id: z.string(), timestamp: z.int(), known: z.boolean() })), last_id: z.string(),
    }),
  },
  /** Journals nothing. `last_id` empty = there are no events. */
  describe: { input: z.strictObject({}), output: z.strictObject({ last_id: z.string(), count: z.int() }) },
} as const;

export const clientStreamEvents = {
  /** One append, whole (JRN-013). */
  Appended: z.strictObject({
    stream_id: z.string(), at: z.int(),
    events: z.array(z.strictObject({ id: z.string(), ...given.shape })),
  }),
} as const;
