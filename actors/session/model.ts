/**
 * The model effect: one step of a turn (providers/step.ts, whose M1-M3 it keeps), with the session's history as prompt and the
 * session's own commands for what comes.
 */
import { z } from 'zod';
import { coded } from '../../contracts/errors.ts';
import type { Blobs } from '../blobs/blobs.ts';
import { estimateTokens } from '../providers/price.ts';
import type { PromptMessage } from '../providers/provider.ts';
import type { Registry } from '../providers/registry.ts';
import { runStep as runModel } from '../providers/step.ts';
import type { EffectContext } from '../runtime/define.ts';
import { offersOf } from '../tools/call.ts';
import { walletCommands } from '../../contracts/wallet.ts';
import { walletAddress } from '../wallet/address.ts';
import { memoryNote } from './memories.ts';
import { buildPrompt, charsOf } from './prompt.ts';
import { modelOperations, requireGate } from './regulate.ts';
import type { Run, SessionState } from './state.ts';
import { toolsOf, type SessionTools } from './tools.ts';

export const stepInput = z.strictObject({ run_id: z.string(), step: z.int().nonnegative() });
export type StepInput = z.infer<typeof stepInput>;

export const stepOutput = z.strictObject({
  finish_reason: z.enum(['stop', 'length', 'content_filter', 'tool_calls', 'other']),
  usage: z.strictObject({ input_tokens: z.int().nonnegative(), output_tokens: z.int().nonnegative() }),
  failed: z.strictObject({ code: z.string(), message: z.string() }).optional(),
});
export type StepOutput = z.infer<typeof stepOutput>;

export interface ModelDeps extends SessionTools {
  readonly registry: Registry;
  readonly blobs: Blobs;
  readonly instructions: string;
  /** Whether turns are paid for with credits. */
  readonly metered?: boolean;
}

/** The run if this step of it still streams; `aborted` if it was cancelled or has gone on. */
export const streamingRun = (state: SessionState, step: StepInput): Run => {
  const { run } = state;
  if (run === null || run.run_id !== step.run_id || run.step !== step.step || run.phase !== 'model') throw coded('aborted', 'The step is over.');
  return run;
};

/** A turn starts only with a positive balance (decisions, Billing); one that has begun goes to its end. Throws `credits_exhausted`. */
const requireBalance = async (context: EffectContext<SessionState>, input: StepInput): Promise<void> => {
  const { text, calls } = streamingRun(context.state(), input);
  const wallet = walletAddress(context.self.org);
  if (wallet === undefined || input.step > 0 || text !== '' || calls.length > 0) return;
  const { remaining } = walletCommands.balance.output.parse(await context.ask(wallet, 'balance', {}, `balance-${context.attempt}`));
  if (remaining <= 0) throw coded('credits_exhausted');
};

/** What the model is told first: the client's own instructions, else the installation's; then the memories that fit the message. */
const instructionsOf = ({ system, memories, history }: SessionState, usual: string): string =>
  (system ?? usual) + memoryNote(memories, history.findLast(({ role }) => role === 'user')?.text ?? '');

/** Runs one step. Errors: `aborted`, `credits_exhausted`, `policy_denied`, `model_not_supported`, `blob_not_found`, `provider_error`, `provider_timeout`. */
export const runStep = async (context: EffectContext<SessionState>, input: StepInput, deps: ModelDeps): Promise<StepOutput> => {
  const { model: modelId, text, calls } = streamingRun(context.state(), input);
  const model = deps.registry.get(modelId);
  if (model === undefined) throw coded('model_not_supported');
  const tools = toolsOf(deps, context.state());
  const prompt = async (): Promise<PromptMessage[]> => buildPrompt(context.state().history, {
    org: context.self.org, instructions: instructionsOf(context.state(), deps.instructions), blobs: deps.blobs, signal: context.signal,
    maxTokens: Math.max(1, model.contextTokens - model.maxOutputTokens),
  });
  let built: PromptMessage[] | undefined;
  if (deps.metered === true) {
    if (context.state().deployment !== null && text === '' && calls.length === 0) {
      built = await prompt();
      const share = estimateTokens(charsOf(built)) / model.contextTokens;
      const remaining = await requireGate(context, { operations: modelOperations(deps.registry, model, share), about: `model ${model.id}`, context: share });
      if (remaining <= 0 && input.step === 0) throw coded('credits_exhausted');
    } else {
      await requireBalance(context, input);
    }
  }
  const { finish_reason, usage, failed } = await runModel({
    signal: context.signal,
    progress: () => {
      const state = context.state();
      const run = streamingRun(state, input);
      return { text: run.text, calls: run.calls.length, promptChars: state.historyChars };
    },
    prompt: async () => ({
      model, tools: offersOf(tools), maxOutputTokens: model.maxOutputTokens,
      messages: built ?? await prompt(),
    }),
    write: (at, text) => context.call('delta', { ...input, at, text }),
    call: (call) => context.call('tool_call', { ...input, call_id: call.call_id, tool_name: call.name, arguments: call.arguments }),
  });
  return { finish_reason, usage, ...(failed === undefined ? {} : { failed }) };
};
