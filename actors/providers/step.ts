/**
 * One model step, whoever asks for it: the provider is read, its text and tool calls are given to the actor as they come, and what
 * breaks on the way is taken up again. It holds nothing that a crash may take.
 *
 * Guarantees
 * M1  Text is written in order and once: a re-issued call is told what was said, and repeats are stripped.
 * M2  Once a tool call of the step is journaled the model is not asked again for that step: after a crash or a broken stream
 *     the step ends with the calls it has, so a call is never made twice in other words.
 * M3  What the provider sent before a failure is committed before the failure is reported.
 */
import { coded } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { deltas, type Deltas } from './deltas.ts';
import { stripper } from './overlap.ts';
import { estimateTokens, estimateUsage } from './price.ts';
import { ProviderFault, type CallOptions, type PromptMessage, type StepEnd, type TokenCount, type ToolOffer } from './provider.ts';
import type { RegisteredModel } from './registry.ts';

/** What the provider is asked. */
export interface StepPrompt {
  readonly model: RegisteredModel;
  readonly messages: readonly PromptMessage[];
  readonly tools: readonly ToolOffer[];
  readonly maxOutputTokens: number;
  readonly options?: CallOptions | undefined;
}

/** The step as its actor keeps it. */
export interface Step {
  readonly signal: AbortSignal;
  /** What of it is committed; `promptChars` = characters of what the model reads, as far as the actor knows. Throws `aborted` when it is over. */
  progress(): { readonly text: string; readonly calls: number; readonly promptChars: number };
  /** Made anew for each attempt. */
  prompt(): Promise<StepPrompt>;
  /** Commits text at its place (UTF-16 units from the start of the step's text). */
  write(at: number, text: string): Promise<unknown>;
  /** Commits a tool call that is final. */
  call(call: { readonly call_id: string; readonly name: string; readonly arguments: unknown }): Promise<unknown>;
}

export interface StepResult {
  readonly finish_reason: StepEnd;
  readonly usage: TokenCount;
  /** Whether the provider counted the tokens; else they are estimated. */
  readonly counted: boolean;
  /** The call failed after the provider had begun to answer: what it read and wrote until then is used. */
  readonly failed?: { readonly code: string; readonly message: string } | undefined;
}

/** What a text takes in the journal: control characters grow sixfold. */
const jsonBytes = (text: string): number => Buffer.byteLength(JSON.stringify(text)) - 2;

/** Reads one stream to its end, or to a bound. */
const read = async (step: Step, out: Deltas): Promise<StepResult> => {
  const { text: said } = step.progress();
  const { model, messages, tools, maxOutputTokens, options } = await step.prompt();
  const strip = stripper(model.provider.continues === 'exact' ? '' : said);
  let chars = said.length;
  let bytes = jsonBytes(said);
  let calls = 0;
  const estimate = (): TokenCount => estimateUsage(messages.reduce((sum, m) => sum + m.text.length, 0), chars);
  // A call that takes a reply up counts what it says itself; what was said before the break was used as well, and nobody has counted that.
  const withSaid = (counted: TokenCount): TokenCount =>
    (model.provider.continues === 'exact' ? counted : { ...counted, output_tokens: counted.output_tokens + estimateTokens(said.length) });
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
    model: model.upstream, messages, said, tools, maxOutputTokens, signal: step.signal, ...(options === undefined ? {} : { options }),
  });
  for await (const part of parts) {
    switch (part.kind) {
      case 'text':
        if (!await give(strip.push(part.text))) return { finish_reason: 'length', usage: estimate(), counted: false };
        break;
      case 'tool_call':
        await give(strip.end());
        await out.flush();
        await step.call({ call_id: part.call_id, name: part.name, arguments: part.arguments });
        if (++calls >= limits.stepToolCallsMax) return { finish_reason: 'tool_calls', usage: estimate(), counted: false };
        break;
      case 'end':
        await give(strip.end());
        return { finish_reason: part.finish_reason, usage: part.usage === undefined ? estimate() : withSaid(part.usage), counted: part.usage !== undefined };
    }
  }
  throw new ProviderFault('provider_error', 'The model stopped without an end.', true);
};

/** Runs one step. Errors: `aborted`; `provider_error`, `provider_timeout` of a provider that never began; what `prompt`, `write` and `call` throw. */
export const runStep = async (step: Step): Promise<StepResult> => {
  const out = deltas(step.progress().text.length, (at, text) => step.write(at, text));
  let begun = false;
  for (let resumes = 0; ; resumes++) {
    const { text, calls, promptChars } = step.progress();
    if (calls > 0) return { finish_reason: 'tool_calls', usage: estimateUsage(promptChars, text.length), counted: false };
    try {
      const result = await read(step, out);
      await out.flush();
      return result;
    } catch (error) {
      if (step.signal.aborted) throw coded('aborted');
      await out.flush();
      if (!(error instanceof ProviderFault)) throw error;
      begun ||= error.begun;
      if (error.resumable && resumes < limits.modelResumesMax) continue;
      if (!begun) throw error;
      return { finish_reason: 'other', usage: estimateUsage(promptChars, step.progress().text.length), counted: false, failed: { code: error.code, message: error.message } };
    }
  }
};
