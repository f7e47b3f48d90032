/**
 * Close codes, reconnect rule and subprotocols of the session WebSocket (decisions, Edge gateway; WSS-030 to WSS-050).
 *
 * Plain values: nothing here imports a schema library, so that the browser bundle can hold them. `stream.ts` gives them on.
 */

/** Close codes with the reason the `closing` frame before them carries. */
export const closeCodes = {
  normal: { code: 1000, reason: 'normal' },
  going_away: { code: 1001, reason: 'going_away' },
  missed_pongs: { code: 1002, reason: 'protocol_error:missed_pongs' },
  unsupported: { code: 1003, reason: 'unsupported' },
  invalid_payload: { code: 1007, reason: 'invalid_payload' },
  token_expired: { code: 1008, reason: 'policy_violation:token_expired' },
  too_big: { code: 1009, reason: 'too_big' },
  internal_error: { code: 1011, reason: 'internal_error' },
  rate_limited: { code: 4001, reason: 'rate_limit:per_user' },
  slow_consumer: { code: 4002, reason: 'backpressure:slow_consumer' },
  upstream_unavailable: { code: 4004, reason: 'upstream_unavailable' },
  sequence_retired: { code: 4005, reason: 'sequence_retired' },
  session_not_found: { code: 4010, reason: 'session_not_found' },
} as const;
export type CloseName = keyof typeof closeCodes;

/** A client reconnects after these and after a connection that broke without a close frame (1006); after no other. */
export const reconnectCodes: ReadonlySet<number> = new Set([1001, 1006, 1011, 4002, 4004]);

export const subprotocols = { plain: 'troupe.v1', bearerPrefix: 'bearer.' } as const;
