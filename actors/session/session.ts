/**
 * The session actor: one conversation of one user with one agent. Key = sid; contract: contracts/session.ts.
 *
 * Guarantees: the loop's L1-L4, the model effect's M1-M3. A message id counts once in 24 hours. Only the owner sees that a
 * session exists. After any crash the next activation goes on where the journal ends: text that was said is not said again, a
 * finished tool is not run again, a tool that must not run twice is reported as interrupted.
 *
 * It does not know who watches: its feed (sessionFeed) is served from the journal.
 */
import { z } from 'zod';
import { coded } from '../../contracts/errors.ts';
import { idOf, isOrganizationId } from '../../contracts/ids.ts';
import { limits } from '../../contracts/limits.ts';
import { sessionCommands, sessionEvents, sessionFeed, type ChatSession, type SessionEventKind } from '../../contracts/session.ts';
import type { Principal } from '../../contracts/capability.ts';
import type { ActorAddress } from '../../contracts/subjects.ts';
import type { Blobs } from '../blobs/blobs.ts';
import type { Registry } from '../providers/registry.ts';
import { webhookAddress } from '../organization/notify.ts';
import { defineActor, type EffectContext, type Turn } from '../runtime/define.ts';
import { runCall } from '../tools/call.ts';
import { branch } from './branch.ts';
import { converse, remember, wake } from './converse.ts';
import { activity, approve, cancelRun, deny, resume, resumed, startNext, stepDone, takeCall, toolDone, totalUsage } from './loop.ts';
import { runStep, stepInput, stepOutput, streamingRun } from './model.ts';
import { requireGate } from './regulate.ts';
import { fold, initialSession, seenIds, type SessionState } from './state.ts';
import { toolsOf, type SessionTools } from './tools.ts';

export interface SessionDeps extends SessionTools {
  readonly registry: Registry;
  readonly blobs: Blobs;
  /** Milliseconds without a message before the session hibernates. Default `limits.sessionIdleMs`. */
  readonly idleMs?: number;
  /** What the model is told first. */
  readonly instructions?: string;
  /** Whether turns are paid for with credits: where there are accounts. Default false. */
  readonly metered?: boolean;
}

const defaultInstructions = 'You are a helpful assistant. Use the tools you are offered where they help, and say plainly when one failed or was not allowed.';

const feedKinds = Object.keys(sessionFeed).filter((kind): kind is SessionEventKind => Object.hasOwn(sessionEvents, kind));

const toolInput = z.strictObject({ run_id: z.string(), call_id: z.string() });
const nothing = z.strictObject({});

/** The session, if it is the caller's: their own, or one of a deployment of the organization they come from; to anyone else it does not exist. */
const owned = (turn: { readonly self: ActorAddress; readonly state: SessionState; readonly principal: Principal }, userId: string): ChatSession => {
  const { session, deployment } = turn.state;
  const { principal } = turn;
  const self = principal.kind !== 'user' || principal.sub === userId;
  const theirs = deployment === null ? session?.user_id === userId : principal.kind !== 'user' || principal.org === turn.self.org;
  if (session === null || !theirs || !self) throw coded('session_not_found');
  return session;
};

const runTool = (deps: SessionDeps) => async (context: EffectContext<SessionState>, input: z.infer<typeof toolInput>): Promise<{ result: unknown }> => {
  const state = context.state();
  const call = state.run?.run_id === input.run_id ? state.run.calls.find((c) => c.call_id === input.call_id) : undefined;
  if (call === undefined || call.status !== 'running' || state.session === null) throw coded('aborted');
  const tools = toolsOf(deps, state);
  if (deps.metered === true) {
    await requireGate(context, { operations: ['tool_execution', ...(tools.get(call.name)?.operations ?? [])], about: `tool ${call.name}` });
  }
  return runCall(tools, call, context, { org: context.self.org, type: 'agent', key: state.session.agent_id }, state.deployment);
};

/** The organization's webhook learns that a session has come to rest (AUD-012): ids and counts, nothing of what was said. */
const tellFinished = (turn: Pick<Turn<SessionState, typeof sessionEvents, Record<never, never>>, 'self' | 'state' | 'now' | 'newId' | 'tell' | 'remind'>, of: ChatSession): void => {
  const { org } = turn.self;
  if (!isOrganizationId(org)) return;
  const { input_tokens: inputTokens, output_tokens: outputTokens, cost_cents: costCents } = turn.state.usage;
  turn.tell(webhookAddress(org), 'notify', {
    id: idOf('evt', turn.newId()), type: 'session.finished', created: new Date(turn.now).toISOString(),
    data: { sessionId: of.sid, userId: of.user_id, agentId: of.agent_id, projectId: of.project_id, turns: turn.state.turns, usage: { inputTokens, outputTokens, costCents } },
  });
  // If its host is lost before it is sent, the activation that this makes sends it.
  turn.remind(resume, { inMs: limits.turnWakeMs });
};

/** The session actor's definition. */
export const session = (deps: SessionDeps) => {
  const model = { ...deps, instructions: deps.instructions ?? defaultInstructions };
  const tool = {
    input: toolInput, output: z.strictObject({ result: z.unknown() }), deadlineMs: limits.toolDeadlineMs, run: runTool(deps),
  };
  return defineActor({
    type: 'session',
    events: sessionEvents,
    initial: (self: ActorAddress): SessionState => initialSession(self.key),
    apply: fold,
    stateVersion: 3,
    idleMs: deps.idleMs ?? limits.sessionIdleMs,
    feed: { kinds: feedKinds, running: (state) => state.run !== null },
    effects: (effect) => ({
      model: effect({
        input: stepInput, output: stepOutput, once: 'at-least', deadlineMs: limits.modelDeadlineMs,
        run: async (context, input) => runStep(context, input, model),
        done: (turn, outcome, input) => stepDone(turn, deps, outcome, input),
      }),
      tool: effect({ ...tool, once: 'at-least', done: (turn, outcome, input) => toolDone(turn, deps, outcome, input) }),
      tool_once: effect({ ...tool, once: 'at-most', done: (turn, outcome, input) => toolDone(turn, deps, outcome, input) }),
    }),
    commands: (command) => ({
      create: command({
        ...sessionCommands.create,
        handle: (turn, input) => {
          if (turn.principal.kind === 'user' && turn.principal.sub !== input.user_id) throw coded('user_id_mismatch');
          if (turn.state.session !== null) throw coded('conflict');
          const named = input.model?.trim() ?? '';
          const chosen = named === '' ? deps.registry.defaultModel : named;
          if (deps.registry.get(chosen) === undefined) throw coded('model_not_supported');
          const agentId = `agent-${turn.self.key}`;
          turn.emit('SessionCreated', {
            user_id: input.user_id, project_id: input.project_id, label: input.label ?? null, model: chosen,
            agent_id: agentId, created_at_unix: Math.floor(turn.now / 1_000),
          });
          turn.tell({ org: turn.self.org, type: 'agent', key: agentId }, 'provision', {
            user_id: input.user_id, project_id: input.project_id, name: input.label ?? 'Assistant',
          });
          return owned(turn, input.user_id);
        },
      }),
      resume: command({ ...sessionCommands.resume, handle: (turn, input) => owned(turn, input.user_id) }),
      send: command({
        ...sessionCommands.send,
        handle: (turn, input) => {
          owned(turn, input.user_id);
          const { message_id: id } = input;
          if (id !== undefined && seenIds(turn.state.seen, turn.now).some((s) => s.id === id)) return { accepted: 'duplicate' as const };
          if (turn.state.run !== null && turn.state.queue.length >= limits.sessionQueueMax) {
            const busy = coded('session_busy');
            turn.emit('MessageRefused', { code: busy.code, message: busy.message, ...(id === undefined ? {} : { message_id: id }) });
            return { accepted: 'busy' as const };
          }
          const queued = turn.state.run !== null;
          wake(turn);
          turn.emit('UserMessage', input);
          startNext(turn);
          return { accepted: queued ? 'queued' as const : 'running' as const };
        },
      }),
      approve: command({
        ...sessionCommands.approve,
        handle: (turn, input) => {
          owned(turn, input.user_id);
          wake(turn);
          return { known: approve(turn, deps, input.dispatch_id) };
        },
      }),
      cancel: command({
        ...sessionCommands.cancel,
        handle: (turn, input) => {
          owned(turn, input.user_id);
          wake(turn);
          return { known: input.dispatch_id === '' ? cancelRun(turn, deps) : deny(turn, deps, input.dispatch_id) };
        },
      }),
      describe: command({
        ...sessionCommands.describe,
        handle: (turn, input) => {
          const { state } = turn;
          return {
            session: owned(turn, input.user_id), label: state.label, model: state.model, state: activity(state),
            queued: state.queue.length, turns: state.turns, usage: totalUsage(state),
          };
        },
      }),
      converse: command({ ...sessionCommands.converse, access: 'system', handle: (turn, input) => converse(turn, deps, input) }),
      remember: command({ ...sessionCommands.remember, access: 'system', handle: (turn, input) => remember(turn, input) }),
      branch: command({
        ...sessionCommands.branch, access: 'system',
        fork: ({ from, number }) => ({ key: from, number }),
        handle: (turn, input) => branch(turn, input),
      }),
      memories: command({
        ...sessionCommands.memories, access: 'system',
        handle: ({ state }) => {
          if (state.session === null) throw coded('session_not_found');
          return { memories: [...state.memories] };
        },
      }),
      /** Text of the running step, at its place. `aborted` if the step is over, `conflict` if another writer was here. */
      delta: command({
        input: z.strictObject({ ...stepInput.shape, at: z.int().nonnegative(), text: z.string() }), output: nothing, access: 'self',
        handle: (turn, input) => {
          if (streamingRun(turn.state, input).text.length !== input.at) throw coded('conflict', 'The text was written already.');
          turn.emit('TextDelta', { text: input.text, run_id: input.run_id, step: input.step });
          return {};
        },
      }),
      /** A tool call of the running step that is final. `aborted` if the step is over. */
      tool_call: command({
        input: z.strictObject({ ...stepInput.shape, call_id: z.string(), tool_name: z.string(), arguments: z.unknown() }), output: nothing, access: 'self',
        handle: (turn, input) => {
          streamingRun(turn.state, input);
          takeCall(turn, deps, { run_id: input.run_id, step: input.step }, input);
          return {};
        },
      }),
    }),
    reminders: { resume: (turn) => resumed(turn) },
    onIdle: (turn) => {
      if (turn.state.session === null || !turn.state.awake) return;
      turn.emit('SessionHibernated', {});
      if (deps.metered === true) tellFinished(turn, turn.state.session);
    },
  });
};

export type SessionCommands = NonNullable<ReturnType<typeof session>['types']>['commands'];
