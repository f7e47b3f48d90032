/**
 * The completion actor: the requests of one conversation of public chat (contract: contracts/completion.ts).
 *
 * Guarantees
 * C1  A request, its text, its tool calls, their results, its end and what it cost are journaled before anything of them reaches a wire (G2).
 * C2  Every completion that began ends in exactly one CompletionFinished or CompletionFailed, with one UsageMetered in the same commit,
 *     after which no event of it follows: also when it is cancelled, when its host is lost, and when the model does not answer.
 * C3  The model step keeps M1-M3 of providers/step.ts: what was said before a lost host is not said again. A tool that ended is never run
 *     again; one that a lost host interrupted is, only if it is idempotent (loop.ts C4-C6).
 * The text of one request never enters another's prompt. While a client is held to be slow the model is not read (`pace`).
 */
import { setTimeout as pause } from 'node:timers/promises';
import { z } from 'zod';
import { completionCommands, completionEvents, completionPrompt, type CompletionPrompt } from '../../contracts/completion.ts';
import { coded } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import type { Blobs } from '../blobs/blobs.ts';
import { runStep, type StepResult } from '../providers/step.ts';
import { defineActor, type EffectContext } from '../runtime/define.ts';
import { runCall } from '../tools/call.ts';
import { begin, cancel, requireWaiting, resume, stepDone, takeCall, toolDone, type CallInput, type LoopDeps, type StepInput } from './loop.ts';
import { argumentsOf, fold, initialCompletions, runningOf, type CompletionState, type Running } from './state.ts';

export interface CompletionDeps extends LoopDeps {
  readonly blobs: Pick<Blobs, 'get'>;
  /** Default `limits.completionHoldMs`. */
  readonly holdMs?: number;
}

const nothing = z.strictObject({});
/** Intents of before there were steps have none. */
const stepInput = z.strictObject({ id: z.string(), step: z.int().nonnegative().default(0) });
const stepOutput = z.strictObject({
  finish_reason: z.enum(['stop', 'length', 'content_filter', 'tool_calls', 'other']),
  usage: z.strictObject({ input_tokens: z.int().nonnegative(), output_tokens: z.int().nonnegative() }),
  counted: z.boolean(),
  failed: z.strictObject({ code: z.string(), message: z.string() }).optional(),
});
const callInput = z.strictObject({ id: z.string(), call_id: z.string() });

/** The completion if this step of it streams; `aborted` if it is over. */
const streaming = (state: CompletionState, { id, step }: StepInput): Running => {
  const found = runningOf(state, id);
  if (found === undefined || found.step !== step || found.phase !== 'model') throw coded('aborted', 'The completion is over.');
  return found;
};

const storedPrompt = async (context: EffectContext<CompletionState>, of: Running, blobs: Pick<Blobs, 'get'>): Promise<CompletionPrompt> => {
  if (of.prompt !== null) return of.prompt;
  if (of.blob === null) throw new TypeError('a completion was journaled without its prompt');
  const bytes = await blobs.get(context.self.org, of.blob);
  return completionPrompt.parse(JSON.parse(new TextDecoder().decode(bytes)));
};

/** What the model reads: the request with the results of decided calls in their places, then what this completion has said and done. */
const messagesOf = (prompt: CompletionPrompt, of: Running): CompletionPrompt['messages'] => [
  ...prompt.messages.map((message) => {
    const told = message.role === 'tool' && Object.hasOwn(of.answers, message.call_id) ? of.answers[message.call_id] : undefined;
    return message.role === 'tool' && told !== undefined ? { ...message, ...told } : message;
  }),
  ...of.said,
];

/** Resolves when the client takes again, at the latest after `holdMs`. */
const taking = async (context: EffectContext<CompletionState>, step: StepInput, holdMs: number = limits.completionHoldMs): Promise<void> => {
  const end = performance.now() + holdMs;
  while (streaming(context.state(), step).held && performance.now() < end) {
    await pause(limits.completionHoldLookMs, undefined, { signal: context.signal }).catch(() => { throw coded('aborted'); });
  }
};

const runModel = (deps: CompletionDeps) => async (context: EffectContext<CompletionState>, input: StepInput): Promise<StepResult> => {
  const of = streaming(context.state(), input);
  const model = deps.registry.get(of.model);
  if (model === undefined) throw coded('model_not_supported');
  const prompt = await storedPrompt(context, of, deps.blobs);
  return runStep({
    signal: context.signal,
    progress: () => {
      const now = streaming(context.state(), input);
      return { text: now.text, calls: now.calls.length, promptChars: now.promptChars + now.saidChars };
    },
    prompt: async () => ({
      model, messages: messagesOf(prompt, of), tools: prompt.tools, options: prompt.options,
      maxOutputTokens: Math.min(prompt.maxOutputTokens ?? model.maxOutputTokens, model.maxOutputTokens),
    }),
    write: async (at, text) => {
      await context.call('delta', { ...input, at, text });
      // Until then nothing further is written, so that the provider is not read beyond `deltaBufferBytes`.
      await taking(context, input, deps.holdMs);
    },
    call: (call) => context.call('tool_call', { ...input, ...call }),
  });
};

const runTool = (deps: CompletionDeps) => async (context: EffectContext<CompletionState>, { id, call_id: callId }: CallInput): Promise<{ result: unknown }> => {
  const of = runningOf(context.state(), id);
  const call = of?.calls.find(({ call_id: one }) => one === callId);
  if (of === undefined || call?.status !== 'running') throw coded('aborted');
  // What its tools remember and file is the asker's, over all of their conversations with this payer.
  return runCall(deps.tools, { name: call.name, arguments: argumentsOf(call.arguments) }, context, { org: context.self.org, type: 'agent', key: `chat-${of.by}` });
};

export const completion = (deps: CompletionDeps) => {
  const tool = { input: callInput, output: z.strictObject({ result: z.unknown() }), deadlineMs: limits.toolDeadlineMs, run: runTool(deps) };
  return defineActor({
    type: 'completion',
    events: completionEvents,
    initial: initialCompletions,
    apply: fold,
    stateVersion: 2,
    effects: (effect) => ({
      model: effect({
        input: stepInput, output: stepOutput, once: 'at-least', deadlineMs: limits.modelDeadlineMs, run: runModel(deps),
        done: (turn, outcome, input) => stepDone(turn, deps, outcome, input),
      }),
      tool: effect({ ...tool, once: 'at-least', done: (turn, outcome, input) => toolDone(turn, deps, outcome, input) }),
      tool_once: effect({ ...tool, once: 'at-most', done: (turn, outcome, input) => toolDone(turn, deps, outcome, input) }),
    }),
    commands: (command) => ({
      start: command({
        ...completionCommands.start, access: 'system',
        handle: (turn, input) => {
          const { state } = turn;
          if (runningOf(state, input.id) !== undefined) return {};
          // First: the call may wait in another actor, which is not busy.
          requireWaiting(state, input.approvals);
          if (Object.keys(state.running).length >= limits.completionsPerActorMax) {
            throw coded('session_busy', 'Too many requests of this conversation are under way.', { details: { retry_after: 1 } });
          }
          if (deps.registry.get(input.model) === undefined) throw coded('model_not_supported');
          begin(turn, deps, input);
          return {};
        },
      }),
      cancel: command({ ...completionCommands.cancel, access: 'system', handle: (turn, { id }) => ({ known: cancel(turn, deps, id) }) }),
      pace: command({
        ...completionCommands.pace, access: 'system',
        handle: (turn, { id, held }) => {
          const of = runningOf(turn.state, id);
          if (of !== undefined && of.held !== held) turn.emit('CompletionPaced', { id, held });
          return { known: of !== undefined };
        },
      }),
      describe: command({
        ...completionCommands.describe, access: 'system',
        handle: ({ state }) => ({ running: Object.keys(state.running).length, completions: state.completions, usage: state.usage }),
      }),
      /** Text of a running step, at its place. `aborted` if it is over, `conflict` if another writer was here. */
      delta: command({
        input: z.strictObject({ ...stepInput.shape, at: z.int().nonnegative(), text: z.string() }), output: nothing, access: 'self',
        handle: (turn, { id, step, at, text }) => {
          if (streaming(turn.state, { id, step }).text.length !== at) throw coded('conflict', 'The text was written already.');
          turn.emit('CompletionDelta', { id, text });
          return {};
        },
      }),
      /** A tool call of a running step that is final. */
      tool_call: command({
        input: z.strictObject({ ...stepInput.shape, call_id: z.string(), name: z.string(), arguments: z.unknown() }), output: nothing, access: 'self',
        handle: (turn, { id, step, ...call }) => {
          takeCall(turn, deps, id, streaming(turn.state, { id, step }), call);
          return {};
        },
      }),
    }),
    reminders: {
      resume: (turn) => {
        if (Object.keys(turn.state.running).length > 0) turn.remind(resume, { inMs: limits.turnWakeMs });
      },
    },
  });
};
