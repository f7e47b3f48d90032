/**
 * The model effect: one step of a turn. It reads the provider and hands text and tool calls to the session as they come, by
 * the session's own commands; it holds nothing that a crash may take.
 *
 * Guarantees
 * M1  Text goes into the journal in order and once: a re-issued call is told what was said, and repeats are stripped.
 * M2  Once a tool call of the step is journaled the model is not asked again for that step: after a crash or a broken stream
 *     the step ends with the calls it has, so a call is never made twice in other words.
 * M3  What the provider sent before a failure is committed before the failure is reported.
 */
import { z } from 'zod';
import { coded } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import type { Blobs } from '../blobs/blobs.ts';
import { ProviderFault, type ToolOffer } from '../providers/provider.ts';
import type { RegisteredModel, Registry } from '../providers/registry.ts';
import type { EffectContext } from '../runtime/define.ts';
import type { Tools } from '../tools/tool.ts';
import { deltas, type Deltas } from './deltas.ts';
import { stripper } from './overlap.ts';
import { buildPrompt, estimateUsage } from './prompt.ts';
import type { Run, SessionState } from './state.ts';

export const stepInput = z.strictObject({ run_id: z.string(), step: z.int().nonnegative() });
export type StepInput = z.infer<typeof stepInput>;

export const stepOutput = z.strictObject({
  finish_reason: z.enum(['stop', 'length', 'content_filter', 'tool_calls', 'other']),
  usage: z.strictObject({ input_tokens: z.int().nonnegative(), output_tokens: z.int().nonnegative() }),
});
export type StepOutput = z.infer<typeof stepOutput>;

export interface ModelDeps {
  readonly registry: Registry;
  readonly tools: Tools;
  readonly blobs: Blobs;
  readonly instructions: string;
}

/** The run if this step of it still streams; `aborted` if it was cancelled or has gone on. */
export const streamingRun = (state: SessionState, step: StepInput): Run => {
  const { run } = state;
  if (run === null || run.run_id !== step.run_id || run.step !== step.step || run.phase !== 'model') throw coded('aborted', 'The step is over.');
  return run;
};

const offers = (tools: Tools): ToolOffer[] =>
  [...tools.values()].map((t) => ({ name: t.name, description: t.description, parameters: t.schema }));

/** What a text takes in the journal: control characters grow sixfold. */
const jsonBytes = (text: string): number => Buffer.byteLength(JSON.stringify(text)) - 2;

/** Reads one stream to its end. Gives undefined when the step must stop here (bounds reached, M2). */
const read = async (
  context: EffectContext<SessionState>, input: StepInput, model: RegisteredModel, deps: ModelDeps, out: Deltas,
): Promise<StepOutput> => {
  const state = context.state();
  const said = streamingRun(state, input).text;
  const messages = await buildPrompt(state.history, {
    org: context.self.org, instructions: deps.instructions, blobs: deps.blobs, signal: context.signal,
    maxTokens: Math.max(1, model.contextTokens - model.maxOutputTokens),
  });
  const strip = stripper(model.provider.continues === 'exact' ? '' : said);
  let chars = said.length;
  let bytes = jsonBytes(said);
  let calls = 0;
  const estimate = (): StepOutput['usage'] => estimateUsage(messages.reduce((sum, m) => sum + m.text.length, 0), chars);
  const give = async (text: string): Promise<boolean> => {
    let room = text.slice(0, Math.max(0, limits.stepTextMaxChars - chars));
    let size = jsonBytes(room);
    for (; room !== '' && bytes + size > limits.stepTextMaxBytes; size = jsonBytes(room)) room = room.slice(0, room.length >> 1);
    chars += room.length;
    bytes += size;
    await out.push(room);
    return room.length === text.length;
  };
  const parts = model.provider.stream({
    model: model.upstream, messages, said, tools: offers(deps.tools), maxOutputTokens: model.maxOutputTokens, signal: context.signal,
  });
  for await (const part of parts) {
    switch (part.kind) {
      case 'text':
        if (!await give(strip.push(part.text))) return { finish_reason: 'length', usage: estimate() };
        break;
      case 'tool_call':
        await give(strip.end());
        await out.flush();
        await context.call('tool_call', { ...input, call_id: part.call_id, tool_name: part.name, arguments: part.arguments });
        if (++calls >= limits.stepToolCallsMax) return { finish_reason: 'tool_calls', usage: estimate() };
        break;
      case 'end':
        await give(strip.end());
        return { finish_reason: part.finish_reason, usage: part.usage ?? estimate() };
    }
  }
  throw new ProviderFault('provider_error', 'The model stopped without an end.', true);
};

/** Runs one step. Errors: `aborted`, `model_not_supported`, `blob_not_found`, `provider_error`, `provider_timeout`. */
export const runStep = async (context: EffectContext<SessionState>, input: StepInput, deps: ModelDeps): Promise<StepOutput> => {
  const begun = streamingRun(context.state(), input);
  const model = deps.registry.get(context.state().model);
  if (model === undefined) throw coded('model_not_supported');
  const out = deltas(begun.text.length, async (at, text) => context.call('delta', { ...input, at, text }));
  for (let resumes = 0; ; resumes++) {
    const run = streamingRun(context.state(), input);
    if (run.calls.length > 0) {
      return { finish_reason: 'tool_calls', usage: estimateUsage(context.state().historyChars, run.text.length) };
    }
    try {
      const output = await read(context, input, model, deps, out);
      await out.flush();
      return output;
    } catch (error) {
      if (context.signal.aborted) throw coded('aborted');
      await out.flush();
      if (!(error instanceof ProviderFault) || !error.resumable || resumes >= limits.modelResumesMax) throw error;
    }
  }
};
