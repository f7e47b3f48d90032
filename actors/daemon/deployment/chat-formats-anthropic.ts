/**
 * Format `anthropic` of `/v1/chat`: the events of that vendor's Messages API as its client library reads them, one text block a step. Tools run
 * here: their calls are not shown, since a client would take them for calls that it has to answer. What was read and written is known at the end
 * only: `message_delta` has both counts.
 */
import type { z } from 'zod';
import type { sessionEvents } from '../../../contracts/session.ts';
import type { AnswerHead } from '../platform/chat-wire.ts';
import type { TurnTeller } from './chat-formats-turn.ts';

const stopReasons = { stop: 'end_turn', length: 'max_tokens', content_filter: 'refusal', cancelled: 'end_turn', other: 'end_turn' } as const satisfies
  Record<z.output<typeof sessionEvents.RunFinished>['finish_reason'], string>;

const say = (event: { readonly type: string; readonly [field: string]: unknown }): string => `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`;

export const anthropicTeller = ({ id, model }: Pick<AnswerHead, 'id' | 'model'>): TurnTeller => {
  let begun = false;
  let index = -1;
  let at: number | undefined;

  const start = (): string => {
    if (begun) return '';
    begun = true;
    return say({
      type: 'message_start',
      message: { id, type: 'message', role: 'assistant', model, content: [], stop_reason: null, stop_sequence: null, usage: { input_tokens: 0, output_tokens: 0 } },
    });
  };
  const stopBlock = (): string => (at === undefined ? '' : say({ type: 'content_block_stop', index }));
  const startBlock = (step: number): string => {
    if (at === step) return '';
    const before = start() + stopBlock();
    at = step;
    index += 1;
    return before + say({ type: 'content_block_start', index, content_block: { type: 'text', text: '' } });
  };
  return {
    text: ({ text, step }) => startBlock(step) + say({ type: 'content_block_delta', index, delta: { type: 'text_delta', text } }),
    toolCall: () => '',
    toolResult: () => '',
    approval: () => '',
    finished: ({ finish_reason: reason, usage: { input_tokens, output_tokens } }) => start() + stopBlock()
      + say({ type: 'message_delta', delta: { stop_reason: stopReasons[reason], stop_sequence: null }, usage: { input_tokens, output_tokens } })
      + say({ type: 'message_stop' }),
    failed: ({ message }) => say({ type: 'error', error: { type: 'api_error', message } }),
  };
};
