/**
 * Format `openai` of `/v1/chat`: chunks as that vendor's client library reads them. The texts of a turn's steps are one message, divided by an
 * empty line. Tools run here: their calls are not shown, since a client would take them for calls that it has to answer.
 */
import { chatError, sseData } from '../../../contracts/chat.ts';
import { errorEntry } from '../../../contracts/errors.ts';
import { ChunkWriter, type AnswerHead } from '../platform/chat-wire.ts';
import type { TurnTeller } from './chat-formats-turn.ts';

export const openaiTeller = (head: AnswerHead, withUsage: boolean): TurnTeller => {
  const chunks = new ChunkWriter(head, withUsage);
  let at: number | undefined;
  return {
    text: ({ text, step }) => {
      const divided = at !== undefined && at !== step;
      at = step;
      return chunks.text(divided ? `\n\n${text}` : text);
    },
    toolCall: () => '',
    toolResult: () => '',
    approval: () => '',
    finished: ({ finish_reason, usage }) => chunks.finished({ id: head.id, finish_reason, usage }),
    failed: ({ code, message }) => sseData(chatError(errorEntry(code).http, { code, message })),
  };
};
