/**
 * Routes of a deployment's services: branches of a session, and its state at any event (decisions, Deployment services; RUN-025 to RUN-027).
 *
 * A branch is a session of its own from its fork on: `/v1/chat`, events, memory, approvals and cancel take its name as `branch`. It has the events up to its
 * fork; nothing is copied, and the branch it was forked from does not learn of it. Of a turn that ran there it keeps what was said; its open tool calls have an
 * error as result. Over the gateway's WebSocket its `seq_no` counts from 1 at the fork.
 */
import { z } from 'zod';
import { branchName, deploymentRoute } from './deployment.ts';
import { limits } from './limits.ts';
import { runtimeSession } from './runtime-routes.ts';
import { branchEffects } from './session.ts';
import { usage } from './stream.ts';

/** The id of an event as a client names it: one that cannot be any is not found, as one that is none. */
const eventName = z.string().max(limits.idMaxChars);

/** `from`, `at`: the branch whose journal holds the event that it was forked at, and that event's id; null for `main`. `event_count` counts the past too. */
export const sessionBranch = runtimeSession.extend({ from: z.string().nullable(), at: z.string().nullable(), effects: branchEffects });
export type SessionBranchShown = z.infer<typeof sessionBranch>;

const shownCall = z.strictObject({ call_id: z.string(), name: z.string(), arguments: z.unknown() });
const shownMessage = z.discriminatedUnion('role', [
  z.strictObject({ role: z.literal('user'), text: z.string(), attachment_blob_ref: z.string().optional() }),
  z.strictObject({ role: z.literal('assistant'), text: z.string(), calls: z.array(shownCall) }),
  z.strictObject({ role: z.literal('tool'), call_id: z.string(), name: z.string(), text: z.string(), is_error: z.boolean() }),
]);

/** A session's state after an event, as its actor folds it: what the model would be told next, and what is under way. */
export const sessionState = z.strictObject({
  model: z.string(), system: z.string().nullable(), effects: branchEffects,
  history: z.array(shownMessage),
  memories: z.array(z.strictObject({ id: z.string(), fact: z.string(), source: z.string(), relevance: z.number(), timestamp: z.int() })),
  run: z.strictObject({
    run_id: z.string(), model: z.string(), step: z.int(), phase: z.enum(['model', 'tools']), text: z.string(), started_at: z.int(), usage,
    calls: z.array(shownCall.extend({ status: z.enum(['final', 'waiting', 'granted', 'denied', 'running', 'ended']), needs_approval: z.boolean() })),
  }).nullable(),
  queue: z.array(z.strictObject({ text: z.string() })),
  usage, turns: z.int(),
});
export type SessionStateShown = z.infer<typeof sessionState>;

export const sessionBranches = z.strictObject({ branches: z.array(sessionBranch) });
/** `branch`, `number`: whose journal the event is in, and its number there. */
export const sessionStateAt = z.strictObject({ at: z.string(), branch: z.string(), number: z.int(), cut: z.boolean(), state: sessionState });

const base = { surface: 'deployment', auth: { kind: 'deployment' }, serve: { by: 'daemon' }, invalidStatus: 400 } as const;
const usual = ['unauthorized', 'invalid_argument', 'rate_limited', 'overloaded', 'upstream_unavailable', 'journal_unavailable', 'session_not_found'] as const;

export const branchRoutes = {
  branch_create: deploymentRoute({
    ...base, id: 'branch_create', wire: 303, console: 403, writes: true, method: 'POST', path: '/v1/sessions/:session/branches',
    summary: 'A new branch of a session, forked after the event `at` (default: the last one) of the branch `from` (default `main`) or of its past. '
      + 'Its turns are offered only tools that act nowhere outside of the session, unless `allow_effects`.',
    body: z.strictObject({ name: branchName, at: eventName.optional(), from: branchName.optional(), allow_effects: z.boolean().optional() }), bodyMaxBytes: limits.bodyMaxBytes,
    answers: { 201: sessionBranch }, errors: [...usual, 'branch_not_found', 'event_not_found', 'conflict', 'too_many_branches', 'fork_too_deep', 'deadline_exceeded'],
  }),
  branch_list: deploymentRoute({
    ...base, id: 'branch_list', wire: 304, console: 404, method: 'GET', path: '/v1/sessions/:session/branches', summary: 'The branches of a session: `main`, then the oldest first.',
    bodyMaxBytes: 0, answers: { 200: sessionBranches }, errors: [...usual, 'deadline_exceeded'],
  }),
  session_state: deploymentRoute({
    ...base, id: 'session_state', wire: 305, console: 405, method: 'GET', path: '/v1/sessions/:session/state',
    summary: 'What a session was after the event `at` (default: what it is now): history, memories, running turn, queue, usage. `number`: of the event in its branch\'s journal. '
      + `Texts of more than ${limits.sessionStateTextMaxChars} characters are cut; then \`cut\` is true.`,
    query: z.strictObject({ at: eventName.optional(), branch: branchName.optional() }), bodyMaxBytes: 0,
    answers: { 200: sessionStateAt },
    errors: [...usual, 'branch_not_found', 'event_not_found'],
  }),
} as const;
