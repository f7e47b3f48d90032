/** The gateway's admin socket: one JSON line a request, one a reply (decisions, Edge gateway; rules ADM-001 to ADM-020). */
import { z } from 'zod';

const bucketKind = z.enum(['user', 'ip']);

export const adminRequest = z.discriminatedUnion('op', [
  z.strictObject({ op: z.literal('health') }),
  z.strictObject({ op: z.literal('jwks_flush') }),
  z.strictObject({ op: z.literal('jwks_dump') }),
  /** All buckets that are not full (at most 1,000), or the one named. */
  z.strictObject({ op: z.literal('rate_limit_inspect'), kind: bucketKind.optional(), key: z.string().max(512).optional() }),
  /** Replaces the limit of one key; `null` removes the override. */
  z.strictObject({
    op: z.literal('rate_limit_override'), kind: bucketKind, key: z.string().min(1).max(512),
    capacity: z.number().positive().nullable(), refill_per_sec: z.number().positive().nullable(),
  }),
  /** Stops accepting, waits for streams at most `timeout_ms`, then closes what is left with 1001. */
  z.strictObject({ op: z.literal('drain'), timeout_ms: z.int().positive().max(600_000).optional() }),
  z.strictObject({ op: z.literal('cert_reload') }),
]);
export type AdminRequest = z.infer<typeof adminRequest>;

export const adminReply = z.union([
  z.strictObject({ ok: z.literal(true), result: z.unknown() }),
  z.strictObject({ ok: z.literal(false), error: z.strictObject({ code: z.string(), message: z.string() }) }),
]);
export type AdminReply = z.infer<typeof adminReply>;
