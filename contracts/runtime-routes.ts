/** Routes of a deployment's services: runtime, that is chat, sessions and their events (interface 2.16, 4.7; decisions, Deployment services; RUN). */
import { z } from 'zod';
import { branchName, clientSessionId, deploymentRoute } from './deployment.ts';
import { eventEnvelope } from './event.ts';
import { limits } from './limits.ts';
import { acceptHeader, uiChatRequest } from './ui-chat.ts';

/** How a stream of `/v1/chat` speaks. `ui_sdk`: UiPart events; where messages have `parts`, the AI SDK v6 UI message stream. */
export const streamFormats = ['native', 'openai', 'anthropic', 'ui_sdk'] as const;
export type StreamFormat = (typeof streamFormats)[number];
export const streamFormat = z.enum(streamFormats);

/** Header that names the last event a client has (WHATWG HTML, 9.2.4). */
export const lastEventHeader = 'last-event-id';
/** The id of an event. */
export const eventCursor = z.string().regex(/^[0-7][0-9A-HJKMNP-TV-Z]{25}$/, { error: 'must be the id of an event (a ULID)' });

const id = z.string().min(1).max(limits.idMaxChars);

/**
 * Body of `POST /v1/chat`. `messages` as on `/api/v1/chat/completions` or with `parts` (contracts/ui-chat.ts); the last one is the user's. Of a
 * session that is new here all of them count; of a known one those after the last `assistant` message. Several new ones of the user are one
 * message, its parts divided by an empty line; `system` messages are the turn's instructions and those of later turns without any. `tools` of the client
 * are not supported: the session's tools run here. Further fields, of which clients of chat send some, are let be.
 */
export const runtimeChatBody = z.looseObject({
  session_id: clientSessionId,
  messages: z.array(z.looseObject({ role: z.string() })).min(1).max(limits.chatMessagesMax),
  provider: z.enum(['anthropic', 'openai', 'mock']).nullish(),
  model: id.nullish(),
  branch: branchName.optional(),
  /** Repeated in a session, it begins no second turn: the answer is the first one's, from its beginning or from `Last-Event-ID` on. */
  message_id: id.optional(),
  stream_options: z.looseObject({ include_usage: z.boolean().nullish() }).nullish(),
}).superRefine(({ messages }, context) => {
  // The client's word for a model is no matter of the conversation's form.
  const { error } = uiChatRequest.safeParse({ model: 'any', messages });
  for (const { path, message } of error?.issues ?? []) context.addIssue({ code: 'custom', path: [...path], message });
  const last = messages.at(-1);
  if (error === undefined && last?.role !== 'user') context.addIssue({ code: 'custom', path: ['messages', messages.length - 1, 'role'], message: 'the last message must be from user' });
});
export type RuntimeChatBody = z.output<typeof runtimeChatBody>;

/** A whole number from 1; above `most` it is `most`. */
const whole = (most: number) => z.string().regex(/^[1-9]\d{0,8}$/, { error: 'must be a whole number from 1' }).transform((text) => Math.min(Number(text), most));

/** A session of a deployment (interface 2.16). */
export const runtimeSession = z.strictObject({
  id: z.string(), branch: z.string(), event_count: z.int(), created_at: z.iso.datetime(), last_event_at: z.iso.datetime(),
});
export type RuntimeSession = z.infer<typeof runtimeSession>;

const base = { surface: 'deployment', auth: { kind: 'deployment' }, invalidStatus: 400 } as const;
const usual = ['unauthorized', 'invalid_argument', 'rate_limited', 'overloaded', 'upstream_unavailable', 'journal_unavailable'] as const;
const ofSession = [...usual, 'session_not_found', 'branch_not_found'] as const;

export const runtimeRoutes = {
  runtime_chat: deploymentRoute({
    ...base, id: 'runtime_chat', wire: 300, console: 400, writes: true, method: 'POST', path: '/v1/chat',
    summary: 'One turn of a session, made if it is new, as server-sent events. `format` or `Accept: application/vnd.troupe.<format>+event-stream`; default `native`. '
      + 'A turn goes on when its client leaves: the same body with `Last-Event-ID` takes the stream up after that event and begins no second turn. A branch (`branch`) is spoken to as the session is.',
    query: z.strictObject({ format: streamFormat.optional() }), body: runtimeChatBody, bodyMaxBytes: limits.runtimeBodyMaxBytes, headers: [acceptHeader, lastEventHeader],
    answers: { 200: 'text' },
    errors: [...usual, 'branch_not_found', 'event_not_found', 'policy_denied', 'credits_exhausted', 'session_busy', 'conflict', 'payload_too_large', 'provider_error', 'provider_timeout'],
    serve: { by: 'stream' },
  }),
  runtime_sessions: deploymentRoute({
    ...base, id: 'runtime_sessions', wire: 301, console: 401, method: 'GET', path: '/v1/sessions',
    summary: `The deployment's sessions, the newest first, \`limit\` at a time (${limits.deploymentSessionsUsual}, at most ${limits.deploymentSessionsMax}). \`next_cursor\`, where there are more, is the next page's \`cursor\`.`,
    query: z.strictObject({ limit: whole(limits.deploymentSessionsMax).optional(), cursor: z.string().max(limits.idMaxChars).optional() }), bodyMaxBytes: 0,
    answers: { 200: z.strictObject({ sessions: z.array(runtimeSession), next_cursor: z.string().optional() }) }, errors: [...usual, 'deadline_exceeded'], serve: { by: 'daemon' },
  }),
  runtime_events: deploymentRoute({
    ...base, id: 'runtime_events', wire: 302, console: 402, method: 'GET', path: '/v1/sessions/:session/events',
    summary: `Events of a session in their order, after the cursor \`after\`, \`limit\` of them (${limits.sessionEventsUsual}, at most ${limits.sessionEventsMax}; fewer where they are long).`,
    query: z.strictObject({ after: eventCursor.optional(), limit: whole(limits.sessionEventsMax).optional(), branch: branchName.optional() }), bodyMaxBytes: 0,
    answers: { 200: z.strictObject({ events: z.array(eventEnvelope) }) }, errors: ofSession, serve: { by: 'daemon' },
  }),
  runtime_decide: deploymentRoute({
    ...base, id: 'runtime_decide', wire: 308, console: 408, writes: true, method: 'POST', path: '/v1/sessions/:session/approvals',
    summary: 'A person\'s word on a tool call that waits for it (event ApprovalRequested).',
    body: z.strictObject({ dispatch_id: id, approved: z.boolean(), branch: branchName.optional() }), bodyMaxBytes: limits.bodyMaxBytes,
    answers: { 200: z.strictObject({ dispatch_id: z.string(), approved: z.boolean() }) }, errors: [...ofSession, 'approval_unknown'], serve: { by: 'daemon' },
  }),
  runtime_cancel: deploymentRoute({
    ...base, id: 'runtime_cancel', wire: 309, console: 409, writes: true, method: 'POST', path: '/v1/sessions/:session/cancel',
    summary: 'Ends the running turn with finish reason `cancelled`. `cancelled` false: none runs.',
    body: z.strictObject({ branch: branchName.optional() }), bodyMaxBytes: limits.bodyMaxBytes,
    answers: { 200: z.strictObject({ cancelled: z.boolean() }) }, errors: ofSession, serve: { by: 'daemon' },
  }),
} as const;
