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

/** The deployment that a session belongs to (contracts/deployment.ts), with its client's names for the session. */
export const sessionDeployment = z.strictObject({ id: z.string(), session_id: z.string(), branch: z.string() });
export type SessionDeployment = z.infer<typeof sessionDeployment>;

/** A journal that holds part of a branch's past: its branch's events up to `at`, which with those of the journals before it are `count` that clients see. */
export const branchPast = z.strictObject({ sid: z.string(), branch: z.string(), at: z.string(), count: z.int().nonnegative() });
export type BranchPast = z.infer<typeof branchPast>;
/** Journals of a branch's past, the oldest first: at least the one it was forked from. */
const branchPasts = z.array(branchPast).min(1).max(limits.forkDepthMax);
/** Whether a branch is offered tools that act outside of its session. */
export const branchEffects = z.enum(['armed', 'disarmed']);

const importedCall = z.strictObject({ call_id: z.string(), name: z.string(), arguments: z.unknown() });
/** A message of before the session, as its client brought it. */
export const importedMessage = z.discriminatedUnion('role', [
  z.strictObject({ role: z.literal('user'), text: z.string() }),
  z.strictObject({ role: z.literal('assistant'), text: z.string(), calls: z.array(importedCall) }),
  z.strictObject({ role: z.literal('tool'), call_id: z.string(), name: z.string(), text: z.string(), is_error: z.boolean() }),
]);
export type ImportedMessage = z.infer<typeof importedMessage>;

/** What makes a deployment's session where there is none yet. `user_id`: who asks (`dep_…`, or `usr_…` of a person). */
export const sessionOpening = z.strictObject({ deployment: sessionDeployment, agent_id: z.string(), user_id: z.string(), model: z.string() });
export type SessionOpening = z.infer<typeof sessionOpening>;

/** A memory of a session (interface 2.16). `at`: Unix milliseconds. */
export const sessionMemory = z.strictObject({ id: z.string(), fact: z.string(), source: z.string(), relevance: z.number(), at: z.int() });
export type SessionMemory = z.infer<typeof sessionMemory>;

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
  /**
   * A deployment's client speaks (the daemon's command). Makes the session, with `earlier` as its history, where there is none yet; then starts a
   * turn of `content`, or queues it: `run_id` names it. `earlier` of a known session is let be. With the id of an event, `last_event_id`, of a turn
   * of the same content, or with a `message_id` of the last `limits.sessionTurnsKept` turns, nothing is begun: `resumed`, and the run that was.
   * `from`: id of the first event of that turn. Refused with `session_busy`, `model_not_supported`; `conflict` for the `message_id` of an older turn.
   */
  converse: {
    input: z.strictObject({
      session: sessionOpening, earlier: z.array(importedMessage), content: z.string(),
      /** Takes the place of the instructions, from this turn on; absent = as before. */
      system: z.string().optional(),
      message_id: z.string().min(1).max(limits.idMaxChars).optional(), last_event_id: z.string().optional(),
    }),
    output: z.strictObject({ run_id: z.string(), from: z.string(), resumed: z.boolean() }),
  },
  /**
   * Stores a memory; makes the session where `session` says how and there is none. An `id` that is known changes nothing. Refused with
   * `memory_full` (bounds: `limits.sessionMemoriesMax`, `sessionMemoryMaxChars`), `session_not_found`.
   */
  remember: {
    input: z.strictObject({
      session: sessionOpening.optional(), id: z.string().optional(),
      fact: z.string().min(1).max(limits.memoryFactMaxChars), source: z.string().max(limits.memorySourceMaxChars), relevance: z.number(),
    }),
    output: sessionMemory,
  },
  /**
   * Makes this actor a branch of the session `from` (a key), as that was after its event `number`; `past` says where readers find the events of
   * before, the last of them being `from`. `conflict` if the key is taken, `session_not_found` if `from` was no session there.
   * `created_at`: Unix milliseconds.
   */
  branch: {
    input: z.strictObject({
      deployment: sessionDeployment, from: z.string(), number: z.int().positive(), past: branchPasts, user_id: z.string(), effects: branchEffects,
    }),
    output: z.strictObject({ created_at: z.int() }),
  },
  /** Oldest first. Journals nothing. `session_not_found` where nobody made it. */
  memories: { input: z.strictObject({}), output: z.strictObject({ memories: z.array(sessionMemory) }) },
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
    /** Of a deployment's session; then anybody of the organization may watch it and speak in it. */
    deployment: sessionDeployment.optional(),
  }),
  /**
   * The first event of a branch, in its own journal; nothing is journaled where it was forked from. What is before it is in the journals of `past`:
   * of each the events up to its `at`. `past_count`: how many of them clients see. `user_id`: who branched.
   */
  BranchCreated: z.strictObject({
    sid: z.string(), deployment: sessionDeployment, from_branch: z.string(), from_sid: z.string(), at: z.string(), past: branchPasts, past_count: z.int().nonnegative(),
    user_id: z.string(), agent_id: z.string(), model: z.string(), effects: branchEffects,
  }),
  /** What was said before the session was made, as its client told it. */
  HistoryImported: z.strictObject({ messages: z.array(importedMessage) }),
  UserMessage: z.strictObject({
    content: z.string(), attachment_blob_ref: z.string().optional(), message_id: z.string().optional(), user_id: z.string(),
    /** Of a deployment's client: the run that this message will be, its model where it is not the session's, its instructions where they are new. */
    run_id: z.string().optional(), model: z.string().optional(), system: z.string().optional(),
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
  /** A session that hibernated takes a message. */
  SessionResumed: z.strictObject({}),
  MemoryStored: z.strictObject({ id: z.string(), session_id: z.string(), fact: z.string(), source: z.string(), relevance: z.number() }),
} as const;
export type SessionEventKind = keyof typeof sessionEvents;

/** Kinds that are the machinery's: when a model call or a tool begins, and what a turn is charged. */
const internalKinds: ReadonlySet<string> = new Set<SessionEventKind>(['StepStarted', 'ToolStarted', 'UsageMetered']);
/** True for an event that a deployment's clients see, count and resume by; the runtime's own (`$…`) and the machinery's are not among them. */
export const isClientKind = (kind: string): boolean => !kind.startsWith('$') && !internalKinds.has(kind);

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
