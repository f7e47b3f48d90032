/**
 * The session actor's contract: what may be asked of it, what it journals, and which of its events form the stream that a
 * WebSocket shows. Key = sid. Source: interface 2.13-2.16, decisions (Edge gateway, Deployment services: event kinds).
 */
import { z } from 'zod';
import { agentPayloads, usage, type AgentKind } from './stream.ts';
import { limits } from './limits.ts';

/** Answer of create and resume: the gateway chat session (2.13). */
export const chatSession = z.strictObject({
  sid: z.string(),
  agent_id: z.string(),
  user_id: z.string(),
  project_id: z.string(),
  created_at_unix: z.int(),
});
export type ChatSession = z.infer<typeof chatSession>;

export const sendInput = z.strictObject({
  user_id: z.string(),
  content: z.string(),
  attachment_blob_ref: z.string().optional(),
  message_id: z.string().min(1).max(limits.idMaxChars).optional(),
});

/** Commands other parts of the system call. */
export const sessionCommands = {
  /** Makes the session. Refused with `conflict` if the key is taken. */
  create: {
    input: z.strictObject({
      user_id: z.string(), project_id: z.string(), label: z.string().optional(), model: z.string().optional(),
    }),
    output: chatSession,
  },
  /** The session again, for its owner. `session_not_found` for anyone else. Never changes the pinned model. */
  resume: { input: z.strictObject({ user_id: z.string() }), output: chatSession },
  /** Starts a turn, or queues behind the running one. */
  send: {
    input: sendInput,
    output: z.strictObject({ accepted: z.enum(['running', 'queued', 'duplicate', 'busy']) }),
  },
  /** Lets a waiting tool call run. Repeating it, or an unknown id, changes nothing (`known: false`). */
  approve: {
    input: z.strictObject({ user_id: z.string(), dispatch_id: z.string() }),
    output: z.strictObject({ known: z.boolean() }),
  },
  /** Stops a waiting tool call; with an empty id, the running turn. */
  cancel: {
    input: z.strictObject({ user_id: z.string(), dispatch_id: z.string() }),
    output: z.strictObject({ known: z.boolean() }),
  },
  /** What the session is, for reading surfaces. */
  describe: {
    input: z.strictObject({ user_id: z.string() }),
    output: z.strictObject({
      session: chatSession, label: z.string().nullable(), model: z.string(),
      state: z.enum(['idle', 'running', 'waiting_approval']), queued: z.int(), turns: z.int(), usage,
    }),
  },
} as const;

/** A session as a list shows it. Usage is that of ended turns. */
export const sessionSummary = z.strictObject({
  sid: z.string(), agent_id: z.string(), project_id: z.string(), label: z.string().nullable(), model: z.string(),
  state: z.enum(['idle', 'running', 'waiting_approval']),
  created_at: z.iso.datetime(), last_event_at: z.iso.datetime(), turns: z.int(), usage,
});
export type SessionSummary = z.infer<typeof sessionSummary>;

/** A page of the caller's own sessions, newest first. */
export const sessionList = z.strictObject({
  sessions: z.array(sessionSummary),
  /** `cursor` of the next page; null after the last. */
  next_cursor: z.string().nullable(),
  /** False: the list may lack what happened last; ask again later. */
  current: z.boolean(),
});
export type SessionList = z.infer<typeof sessionList>;

const runId = z.string();

/** Events in the journal, by kind. The names are those of decisions.md; the payloads' first fields are the wire's. */
export const sessionEvents = {
  SessionCreated: z.strictObject({
    user_id: z.string(), project_id: z.string(), label: z.string().nullable(), model: z.string(),
    agent_id: z.string(), created_at_unix: z.int(),
  }),
  UserMessage: z.strictObject({
    content: z.string(), attachment_blob_ref: z.string().optional(), message_id: z.string().optional(), user_id: z.string(),
  }),
  /** A message over the queue's bound; shown as ERROR. */
  MessageRefused: z.strictObject({ code: z.string(), message: z.string(), message_id: z.string().optional() }),
  /** The head of the queue becomes the running turn. */
  RunStarted: z.strictObject({ run_id: runId }),
  /** A model call of the run begins; `effect_id` names it, so that a cancel can abort it after any restart. */
  StepStarted: z.strictObject({ run_id: runId, step: z.int().nonnegative(), effect_id: z.string() }),
  TextDelta: z.strictObject({ text: z.string(), run_id: runId, step: z.int() }),
  ToolCall: z.strictObject({
    call_id: z.string(), tool_name: z.string(), arguments: z.unknown(), run_id: runId, step: z.int(), needs_approval: z.boolean(),
  }),
  ApprovalRequested: z.strictObject({ dispatch_id: z.string(), call_id: z.string(), preview: z.string(), run_id: runId }),
  ApprovalGranted: z.strictObject({ dispatch_id: z.string(), call_id: z.string(), run_id: runId }),
  ApprovalDenied: z.strictObject({ dispatch_id: z.string(), call_id: z.string(), run_id: runId }),
  /** A tool begins to run, approved where it has to be. */
  ToolStarted: z.strictObject({ call_id: z.string(), run_id: runId, effect_id: z.string() }),
  ToolResult: z.strictObject({
    call_id: z.string(), tool_name: z.string(), result: z.unknown(), is_error: z.boolean(), run_id: runId,
  }),
  /** One model step ended: its text is complete. */
  AssistantMessage: z.strictObject({ run_id: runId, step: z.int(), content: z.string(), usage }),
  RunFinished: z.strictObject({
    finish_reason: agentPayloads.FINISH.shape.finish_reason, usage, run_id: runId,
  }),
  RunErrored: z.strictObject({ code: z.string(), message: z.string(), run_id: runId, usage }),
  /** The metering event of a turn that somebody's credits pay for: exactly one, in the commit that ends the turn. `by` = the session's user. */
  UsageMetered: z.strictObject({ id: runId, by: z.string(), model: z.string(), usage }),
  SessionHibernated: z.strictObject({}),
} as const;
export type SessionEventKind = keyof typeof sessionEvents;

/** Kinds that form the stream: event kind → agent_kind. Which payload fields a client sees is `wirePayload`. */
export const sessionFeed = {
  TextDelta: 'TOKEN',
  RunFinished: 'FINISH',
  RunErrored: 'ERROR',
  MessageRefused: 'ERROR',
  ToolCall: 'TOOL_CALL_PENDING',
  ToolResult: 'TOOL_RESULT',
  ApprovalRequested: 'APPROVAL_REQUIRED',
  SessionHibernated: 'HIBERNATE',
} as const satisfies Partial<Record<SessionEventKind, AgentKind>>;

const agentKindOf: Readonly<Record<string, AgentKind>> = sessionFeed;

/** The agent_kind a journaled event is shown as, or undefined if it is not part of the stream. */
export const feedKind = (kind: string): AgentKind | undefined => (Object.hasOwn(agentKindOf, kind) ? agentKindOf[kind] : undefined);

const wireFields: Readonly<Record<AgentKind, readonly string[]>> = {
  TOKEN: Object.keys(agentPayloads.TOKEN.shape),
  FINISH: Object.keys(agentPayloads.FINISH.shape),
  ERROR: Object.keys(agentPayloads.ERROR.shape),
  TOOL_CALL_PENDING: Object.keys(agentPayloads.TOOL_CALL_PENDING.shape),
  TOOL_RESULT: Object.keys(agentPayloads.TOOL_RESULT.shape),
  APPROVAL_REQUIRED: Object.keys(agentPayloads.APPROVAL_REQUIRED.shape),
  HIBERNATE: [],
};

/** The payload a client sees: exactly the fields of `agentPayloads[agent]`. */
export const wirePayload = (agent: AgentKind, payload: Readonly<Record<string, unknown>>): Record<string, unknown> => {
  const shown: Record<string, unknown> = {};
  for (const field of wireFields[agent]) shown[field] = payload[field];
  return shown;
};
