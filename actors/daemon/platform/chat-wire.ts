/**
 * A completion's events in the shape of its clients: chunks of a stream, or one whole answer (contracts/chat.ts).
 *
 * Guarantee: role first, then content and tool calls in the order of the journal, then the chunk with `finish_reason`, then usage where it
 * was asked for, then `[DONE]`; all of one id, model and time.
 */
import type { z } from 'zod';
import { sseData, type ChatChunk, type ChatCompletion, type ChatFinish } from '../../../contracts/chat.ts';
import type { completionEvents } from '../../../contracts/completion.ts';

type Finished = z.output<typeof completionEvents.CompletionFinished>;
type ToolCall = z.output<typeof completionEvents.CompletionToolCall>;
type Delta = ChatChunk['choices'][number]['delta'];

export interface AnswerHead {
  readonly id: string;
  /** Unix seconds. */
  readonly created: number;
  readonly model: string;
}

/** What a client is told of why it ended. */
const finishOf = (reason: Finished['finish_reason'], calls: number): ChatFinish => {
  switch (reason) {
    case 'length':
    case 'content_filter':
      return reason;
    case 'stop':
    case 'tool_calls':
    case 'other':
    case 'cancelled':
      return calls > 0 ? 'tool_calls' : 'stop';
  }
};

const usageOf = ({ input_tokens: prompt, output_tokens: completion }: Finished['usage']): ChatCompletion['usage'] =>
  ({ prompt_tokens: prompt, completion_tokens: completion, total_tokens: prompt + completion });

/** Chunks as event-stream text. */
export class ChunkWriter {
  readonly #head: AnswerHead;
  readonly #withUsage: boolean;
  #begun = false;
  #calls = 0;

  constructor(head: AnswerHead, withUsage: boolean) {
    this.#head = head;
    this.#withUsage = withUsage;
  }

  text(text: string): string {
    return this.#role() + this.#chunk({ content: text }, null);
  }

  toolCall({ index, call_id: id, name, arguments: text }: ToolCall): string {
    this.#calls += 1;
    return this.#role()
      + this.#chunk({ tool_calls: [{ index, id, type: 'function', function: { name, arguments: '' } }] }, null)
      + this.#chunk({ tool_calls: [{ index, function: { arguments: text } }] }, null);
  }

  finished({ finish_reason: reason, usage }: Finished): string {
    const last = this.#role() + this.#chunk({}, finishOf(reason, this.#calls));
    const counted = this.#withUsage ? sseData({ ...this.#common(), choices: [], usage: usageOf(usage) } satisfies ChatChunk) : '';
    return last + counted + sseData('[DONE]');
  }

  #role(): string {
    if (this.#begun) return '';
    this.#begun = true;
    return this.#chunk({ role: 'assistant', content: '', refusal: null }, null);
  }

  #chunk(delta: Delta, finish: ChatFinish | null): string {
    const chunk: ChatChunk = {
      ...this.#common(), choices: [{ index: 0, delta, logprobs: null, finish_reason: finish }], ...(this.#withUsage ? { usage: null } : {}),
    };
    return sseData(chunk);
  }

  #common(): Pick<ChatChunk, 'id' | 'object' | 'created' | 'model'> {
    const { id, created, model } = this.#head;
    return { id, object: 'chat.completion.chunk', created, model };
  }
}

/** The whole answer. */
export const wholeAnswer = (head: AnswerHead, text: string, calls: readonly ToolCall[], { finish_reason: reason, usage }: Finished): ChatCompletion => ({
  id: head.id, object: 'chat.completion', created: head.created, model: head.model,
  choices: [{
    index: 0, finish_reason: finishOf(reason, calls.length), logprobs: null,
    message: {
      role: 'assistant', content: text === '' && calls.length > 0 ? null : text, refusal: null,
      ...(calls.length === 0 ? {} : {
        tool_calls: calls.map((call) => ({ id: call.call_id, type: 'function' as const, function: { name: call.name, arguments: call.arguments } })),
      }),
    },
  }],
  usage: usageOf(usage),
});
