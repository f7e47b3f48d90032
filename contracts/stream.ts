/**
 * The WebSocket of a session: envelopes, close codes, subprotocols (interface 2.15, 4.6; decisions, Edge gateway).
 *
 * JSON text frames tagged by `kind`, the snake_case of the envelope's name. `seq_no` counts a session's feed from 1 and
 * is contiguous, so that a client can prove that nothing was lost or repeated.
 */
import { z } from 'zod';
import { limits } from './limits.ts';

const dispatchId = z.string().max(limits.idMaxChars);

export const sendMessage = z.strictObject({
  kind: z.literal('send_message'),
  content: z.string(),
  attachment_blob_ref: z.string().regex(/^sha256:[0-9a-f]{64}$/).optional(),
  /** Repeated within 24 h in a session, it does not run a second turn. */
  message_id: z.string().min(1).max(limits.idMaxChars).optional(),
});
export const approveDispatch = z.strictObject({ kind: z.literal('approve_dispatch'), dispatch_id: dispatchId.min(1) });
/** Empty `dispatch_id` = the running turn. */
export const cancelDispatch = z.strictObject({ kind: z.literal('cancel_dispatch'), dispatch_id: dispatchId });
export const ping = z.strictObject({ kind: z.literal('ping'), seq_no: z.int().nonnegative() });
export const close = z.strictObject({ kind: z.literal('close'), reason: z.string().max(limits.idMaxChars).optional() });

/** Client to server. */
export const wireOutbound = z.discriminatedUnion('kind', [sendMessage, approveDispatch, cancelDispatch, ping, close]);
export type WireOutbound = z.infer<typeof wireOutbound>;
export const outboundKinds: ReadonlySet<string> = new Set(['send_message', 'approve_dispatch', 'cancel_dispatch', 'ping', 'close']);

export const agentKind = z.enum([
  'TOKEN', 'FINISH', 'ERROR', 'TOOL_CALL_PENDING', 'TOOL_RESULT', 'APPROVAL_REQUIRED', 'HIBERNATE',
]);
export type AgentKind = z.infer<typeof agentKind>;

export const usage = z.strictObject({
  input_tokens: z.int().nonnegative(),
  output_tokens: z.int().nonnegative(),
  cost_cents: z.int().nonnegative(),
});

/** Payload of `record` by agent_kind. */
export const agentPayloads = {
  TOKEN: z.strictObject({ text: z.string() }),
  FINISH: z.strictObject({ finish_reason: z.enum(['stop', 'length', 'content_filter', 'cancelled', 'other']), usage }),
  ERROR: z.strictObject({ code: z.string(), message: z.string() }),
  TOOL_CALL_PENDING: z.strictObject({ call_id: z.string(), tool_name: z.string(), arguments: z.unknown() }),
  TOOL_RESULT: z.strictObject({ call_id: z.string(), tool_name: z.string(), result: z.unknown(), is_error: z.boolean() }),
  APPROVAL_REQUIRED: z.strictObject({ dispatch_id: z.string(), call_id: z.string(), preview: z.string() }),
  HIBERNATE: z.strictObject({}),
} as const satisfies Record<AgentKind, z.ZodType>;

export const record = z.strictObject({
  session_id: z.string(),
  /** Equal to the event's seq_no. */
  sequence: z.int().positive(),
  /** Kind of the journaled event (`TextDelta`, `RunFinished` …). */
  kind: z.string(),
  at: z.iso.datetime(),
  payload: z.record(z.string(), z.unknown()),
});

export const agentEvent = z.strictObject({
  kind: z.literal('agent_event'),
  seq_no: z.int().positive(),
  record,
  agent_kind: agentKind,
});
export const pong = z.strictObject({ kind: z.literal('pong'), seq_no: z.int().nonnegative() });
export const closing = z.strictObject({ kind: z.literal('closing'), reason: z.string() });

/** Server to client. */
export const wireInbound = z.discriminatedUnion('kind', [agentEvent, pong, closing]);
export type AgentEvent = z.infer<typeof agentEvent>;
export type WireInbound = z.infer<typeof wireInbound>;

// Kept apart because the browser client needs them without the schemas.
export { closeCodes, reconnectCodes, subprotocols, type CloseName } from './close.ts';

/** The frame a server sends for one feed event, as text. `payloadJson` is the payload already encoded. */
export const encodeAgentEvent = (sid: string, seqNo: number, kind: string, at: string, agent: AgentKind, payload: unknown): string =>
  `{"kind":"agent_event","seq_no":${seqNo},"record":{"session_id":${JSON.stringify(sid)},"sequence":${seqNo},"kind":${JSON.stringify(kind)},"at":"${at}","payload":${JSON.stringify(payload)}},"agent_kind":"${agent}"}`;
