/**
 * `POST /api/chat` (interface 4.2; decisions, Chat): the completions of chat.ts, said in the shapes of contracts/ui-chat.ts.
 *
 * Guarantees: it refuses, counts, meters and journals exactly as chat.ts does, because that runs it. Of AI SDK v6's stream every text
 * that was begun is ended before `finish` or `error`, every step before `finish`; a model that fails is an `error` chunk there even before the first word, as that
 * library shows its text to the person. Everywhere else a failure before the first byte has its status.
 */
import type { z } from 'zod';
import { sseData } from '../../../contracts/chat.ts';
import { chatRoutes } from '../../../contracts/chat-routes.ts';
import type { completionEvents } from '../../../contracts/completion.ts';
import {
  acceptHeader, acceptsEvents, approvalsOf, completionOf, hasParts, uiFailure, uiPartFailure, uiStreamHeader, type UiAnswer, type UiChatRequest, type UiChunk, type UiFinish, type UiPart,
} from '../../../contracts/ui-chat.ts';
import { parseArguments } from '../../providers/provider.ts';
import { collected, streamed, type ChatReader, type ChatWriter, type RunChat } from './chat.ts';
import type { AnswerHead } from './chat-wire.ts';
import type { StreamAnswer } from './stream-answer.ts';
import type { StreamHandler } from './stream-serve.ts';
import { bodyOf } from './typed.ts';

type Finished = z.output<typeof completionEvents.CompletionFinished>;
type ToolCall = z.output<typeof completionEvents.CompletionToolCall>;
type ToolResult = z.output<typeof completionEvents.CompletionToolResult>;

const route = chatRoutes.uiChat;

const finishOf = (reason: Finished['finish_reason']): UiFinish => {
  switch (reason) {
    case 'stop':
    case 'length':
    case 'other':
      return reason;
    case 'content_filter': return 'content-filter';
    case 'tool_calls': return 'tool-calls';
    case 'cancelled': return 'other';
  }
};
const usageOf = ({ usage }: Finished): UiAnswer['usage'] => ({ inputTokens: usage.input_tokens, outputTokens: usage.output_tokens });
const callOf = ({ call_id: toolCallId, name: toolName, arguments: text }: ToolCall) => ({ toolCallId, toolName, args: parseArguments(text) });

const resultOf = ({ call_id: toolCallId, name: toolName, result }: ToolResult) => ({ toolCallId, toolName, result });

/** The answer as one JSON. */
export const wholeUiAnswer = ({ id, model }: AnswerHead, content: string, calls: readonly ToolCall[], end: Finished, results: readonly ToolResult[] = []): UiAnswer => ({
  id, model, content, usage: usageOf(end), finishReason: finishOf(end.finish_reason), ...(calls.length === 0 ? {} : { toolCalls: calls.map(callOf) }),
  ...(results.length === 0 ? {} : { toolResults: results.map(resultOf) }),
});

/** UiPart events: the default stream. */
export const uiParts = ({ id }: Pick<AnswerHead, 'id'>): ChatWriter => {
  const say = (part: UiPart): string => sseData(part);
  return {
    headers: {},
    text: (text) => say({ type: 'text-delta', id, text }),
    toolCall: (call) => say({ type: 'tool-call', ...callOf(call) }),
    toolResult: (result) => say({ type: 'tool-result', ...resultOf(result) }),
    finished: (end) => say({ type: 'finish', finishReason: finishOf(end.finish_reason), usage: usageOf(end) }),
    failed: (error, begun) => (begun ? say(uiPartFailure(error)) : undefined),
  };
};

/** The AI SDK v6 UI message stream. `messageId`: of the message that the answer is, or goes on with. */
export const uiMessageStream = ({ id, model }: Pick<AnswerHead, 'id' | 'model'>, messageId: string): ChatWriter => {
  const say = (...chunks: readonly UiChunk[]): string => chunks.map((chunk) => sseData(chunk)).join('');
  let begun = false;
  let inStep = false;
  let inText = false;
  let texts = 0;
  const textId = (): string => `${id}-${texts}`;

  const start = (): string => {
    if (begun) return '';
    begun = true;
    return say({ type: 'start', messageId });
  };
  const startStep = (): string => {
    if (inStep) return '';
    inStep = true;
    return start() + say({ type: 'start-step' });
  };
  const endText = (): string => {
    if (!inText) return '';
    inText = false;
    return say({ type: 'text-end', id: textId() });
  };
  const endStep = (): string => {
    if (!inStep) return '';
    const text = endText();
    inStep = false;
    return text + say({ type: 'finish-step' });
  };
  const startText = (): string => {
    if (inText) return '';
    inText = true;
    texts += 1;
    return startStep() + say({ type: 'text-start', id: textId() });
  };
  return {
    headers: uiStreamHeader,
    step: () => endStep() + startStep(),
    text: (text) => startText() + say({ type: 'text-delta', id: textId(), delta: text }),
    toolCall: (call) => {
      const { toolCallId, toolName, args: input } = callOf(call);
      return startStep() + endText() + say({ type: 'tool-input-available', toolCallId, toolName, input });
    },
    toolResult: ({ call_id: toolCallId, result: output }) => start() + say({ type: 'tool-output-available', toolCallId, output }),
    approval: ({ call_id: toolCallId }) => startStep() + endText() + say({ type: 'tool-approval-request', approvalId: toolCallId, toolCallId }),
    finished: (end) => startStep() + endStep() + say({ type: 'finish', finishReason: finishOf(end.finish_reason), messageMetadata: { model, usage: usageOf(end) } }) + sseData('[DONE]'),
    failed: (error) => startStep() + endText() + say(uiFailure(error)),
  };
};

/** An answer that goes on with the last message (results of its tools came) is that message still, else the library would show two. */
export const messageIdOf = ({ messages }: UiChatRequest, id: string): string => {
  const last = messages.at(-1);
  return last?.role === 'assistant' && last.id !== undefined && last.id !== '' ? last.id : id;
};

const readerOf = (answer: StreamAnswer, head: AnswerHead, body: UiChatRequest, accept: string): ChatReader => {
  if (hasParts(body) && body.stream !== false) return streamed(answer, uiMessageStream(head, messageIdOf(body, head.id)));
  if (body.stream === true || acceptsEvents(accept)) return streamed(answer, uiParts(head));
  return collected(answer, (said, calls, end, results) => wholeUiAnswer(head, said, calls, end, results));
};

export const uiChatHandlers = (run: RunChat): Readonly<Record<string, StreamHandler>> => ({
  [route.id]: (request, answer) => {
    const body = bodyOf(route, request);
    return run(request, {
      body: (defaultModel) => completionOf(body, body.model ?? defaultModel),
      here: { approvals: approvalsOf(body) },
      reader: (head) => readerOf(answer, head, body, request.context.headers?.[acceptHeader] ?? ''),
    });
  },
});
