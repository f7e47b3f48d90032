/**
 * Chat for user interfaces, `POST /api/chat` (interface 4.2; decisions, Chat): what is taken and the three shapes it is answered in.
 *
 * A request with messages of `content` is answered in UiPart events or, without streaming, as one JSON. One whose messages have `parts` comes
 * from AI SDK v6's own transport and is answered in that library's UI message stream (`ai` 6, `uiMessageChunkSchema`), closed to the chunk
 * types named here. Everything else is a chat request as contracts/chat.ts has it: the conversation passes the same rules.
 *
 * Tools are the client's, as on `/api/v1/chat/completions`: none runs here. So a tool's result reaches an answer only as part of the
 * conversation the client sends, and `tool-result`, `tool-output-available` and `tool-approval-request` are shapes without a sender yet.
 */
import { z } from 'zod';
import { completionRequest, isShallow, type ChatMessage, type CompletionRequest } from './chat.ts';
import { limits } from './limits.ts';

const note = z.string().max(limits.chatNoteMaxChars);
const value = z.unknown().refine(isShallow, 'is nested too deeply');
const isTool = (type: string): boolean => type === 'dynamic-tool' || type.startsWith('tool-');
/** Of a message's history or look: nothing that the model is told. */
const isSilent = (type: string): boolean => type === 'reasoning' || type === 'step-start' || type.startsWith('source-') || type.startsWith('data-');

/** A part of a message as AI SDK v6 keeps it. What only that library reads is let be. */
const uiPart = z.looseObject({
  type: z.string().min(1).max(limits.chatNoteMaxChars),
  text: z.string().optional(),
  toolCallId: z.string().min(1).max(limits.idMaxChars).optional(),
  toolName: z.string().optional(),
  state: z.string().optional(),
  input: value.optional(),
  output: value.optional(),
  errorText: z.string().optional(),
  approval: z.looseObject({ reason: z.string().optional() }).optional(),
}).superRefine((part, context) => {
  const wrong = (path: string, problem: string): void => context.addIssue({ code: 'custom', path: [path], message: problem });
  if (part.type === 'text') {
    if (part.text === undefined) wrong('text', 'a part of type text has one');
  } else if (isTool(part.type)) {
    if (part.toolCallId === undefined) wrong('toolCallId', 'a tool call has one');
    if (part.type === 'dynamic-tool' && part.toolName === undefined) wrong('toolName', 'a tool call has one');
  } else if (!isSilent(part.type)) {
    wrong('type', part.type === 'file' ? 'files and images are not supported' : 'is no type of a part');
  }
});
type UiMessagePart = z.output<typeof uiPart>;

const uiMessage = z.looseObject({
  role: z.string(),
  /** Of a message without `parts`, as on `/api/v1/chat/completions`. */
  content: z.unknown().optional(),
  parts: z.array(uiPart).max(limits.chatMessagesMax).optional(),
  id: note.optional(),
});
type UiMessage = z.output<typeof uiMessage>;

const fields = z.looseObject({
  /** Needed unless messages have `parts`; then the organization's default. */
  model: z.string().min(1).max(limits.idMaxChars).nullish(),
  messages: z.array(uiMessage).min(1).max(limits.chatMessagesMax),
  /** True: events. Parts are always answered with events, unless it is false. */
  stream: z.boolean().nullish(),
  /** The client's own, as on `/api/v1/chat/completions`. */
  tools: completionRequest.shape.tools,
});
type Fields = z.output<typeof fields>;

/** AI SDK v6's own transport speaks. */
export const hasParts = ({ messages }: Pick<Fields, 'messages'>): boolean => messages.some(({ parts }) => parts !== undefined);

const textOf = (parts: readonly UiMessagePart[]): string => parts.map((part) => (part.type === 'text' ? part.text ?? '' : '')).join('');
const asText = (said: unknown): string => (typeof said === 'string' ? said : JSON.stringify(said ?? null));

/** What a tool answered; undefined while it has not: a vendor takes no call without its result, so such a call is left out. */
const resultOf = (part: UiMessagePart): string | undefined => {
  switch (part.state) {
    case 'output-available': return asText(part.output);
    case 'output-error': return part.errorText ?? 'The tool failed.';
    case 'output-denied': return part.approval?.reason ?? 'The call was denied.';
    default: return undefined;
  }
};

const stepOf = (parts: readonly UiMessagePart[]): ChatMessage[] => {
  const calls = parts.filter((part) => isTool(part.type)).flatMap((part) => {
    const result = resultOf(part);
    const name = part.type === 'dynamic-tool' ? part.toolName ?? '' : part.type.slice('tool-'.length);
    return result === undefined ? [] : [{ id: part.toolCallId ?? '', name, arguments: asText(part.input ?? {}), result }];
  });
  const content = textOf(parts);
  if (content === '' && calls.length === 0) return [];
  return [
    {
      role: 'assistant', content,
      ...(calls.length === 0 ? {} : { tool_calls: calls.map(({ id, name, arguments: text }) => ({ id, type: 'function' as const, function: { name, arguments: text } })) }),
    },
    ...calls.map(({ id, result }): ChatMessage => ({ role: 'tool', tool_call_id: id, content: result })),
  ];
};

/** The parts of an assistant's message by its steps: the model's calls, their results, what it said then. */
const stepsOf = (parts: readonly UiMessagePart[]): UiMessagePart[][] => {
  const steps: UiMessagePart[][] = [[]];
  for (const part of parts) {
    if (part.type === 'step-start') steps.push([]);
    else steps.at(-1)?.push(part);
  }
  return steps;
};

/** Messages of one message; one without parts is looked at as it is. */
const messagesOf = ({ role, parts, content }: UiMessage): unknown[] => {
  if (parts === undefined) return [{ role, content }];
  return role === 'assistant' ? stepsOf(parts).flatMap(stepOf) : [{ role, content: textOf(parts) }];
};

/** The chat request it stands for. A message of the chat shape keeps its further fields (tool calls, names). */
const rawCompletion = (request: Fields, model: string): { readonly messages: readonly unknown[]; readonly from: readonly number[]; readonly body: object } => {
  const spread = request.messages.map((message) => (hasParts(request) ? messagesOf(message) : [message]));
  const messages = spread.flat();
  return { messages, from: spread.flatMap((some, at) => some.map(() => at)), body: { model, messages, tools: request.tools } };
};

/** Body of `POST /api/chat`. Further fields, of which AI SDK's transport sends some (`id`, `trigger`, `messageId`), are let be. */
export const uiChatRequest = fields.superRefine((request, context) => {
  const withParts = hasParts(request);
  if (!withParts && typeof request.model !== 'string') context.addIssue({ code: 'custom', path: ['model'], message: 'is needed' });
  const { body, from } = rawCompletion(request, request.model ?? 'default');
  const parsed = completionRequest.safeParse(body);
  for (const { path, message } of parsed.error?.issues ?? []) {
    const [field, at, ...rest] = path;
    // A message of parts has become others: its own place is named.
    const own = withParts && field === 'messages' && typeof at === 'number' ? ['messages', from[at] ?? 0] : [field, at, ...rest].filter((step) => step !== undefined);
    context.addIssue({ code: 'custom', path: own, message });
  }
});
export type UiChatRequest = z.output<typeof uiChatRequest>;

/** A request that passed `uiChatRequest` as a chat request of this model. */
export const completionOf = (request: UiChatRequest, model: string): CompletionRequest => completionRequest.parse(rawCompletion(request, model).body);

/** The header whose media types may ask for events. */
export const acceptHeader = 'accept';
/** `text/event-stream` is named and not refused (RFC 9110, 12.5.1). */
export const acceptsEvents = (accept: string): boolean => accept.split(',').some((entry) => {
  const [type = '', ...params] = entry.split(';').map((text) => text.trim().toLowerCase());
  return type === 'text/event-stream' && !params.some((param) => /^q=0(\.0{0,3})?$/.test(param));
});

const usage = z.strictObject({ inputTokens: z.int(), outputTokens: z.int() });
export const uiFinish = z.enum(['stop', 'length', 'content-filter', 'tool-calls', 'other']);
export type UiFinish = z.output<typeof uiFinish>;
const toolCall = z.strictObject({ toolCallId: z.string(), toolName: z.string(), args: z.unknown() });
const problem = z.strictObject({ code: z.string(), message: z.string() });

/** Answer without streaming. `toolCalls` only if there are any. */
export const uiAnswer = z.strictObject({ id: z.string(), model: z.string(), content: z.string(), usage, finishReason: uiFinish, toolCalls: z.array(toolCall).optional() });
export type UiAnswer = z.output<typeof uiAnswer>;

/** One event of the default stream. `finish` or `error` comes once, last. `args`: a value, or the model's text where it is no JSON. */
export const uiPartEvent = z.discriminatedUnion('type', [
  z.strictObject({ type: z.literal('text-delta'), id: z.string(), text: z.string() }),
  z.strictObject({ type: z.literal('tool-call'), ...toolCall.shape }),
  z.strictObject({ type: z.literal('tool-result'), toolCallId: z.string(), toolName: z.string(), result: z.unknown() }),
  z.strictObject({ type: z.literal('finish'), finishReason: uiFinish, usage }),
  z.strictObject({ type: z.literal('error'), error: problem }),
]);
export type UiPart = z.output<typeof uiPartEvent>;

/** One chunk of the AI SDK v6 stream; `[DONE]` follows a `finish`, nothing an `error`. */
export const uiChunk = z.discriminatedUnion('type', [
  z.strictObject({ type: z.literal('start'), messageId: z.string() }),
  z.strictObject({ type: z.literal('start-step') }),
  z.strictObject({ type: z.literal('text-start'), id: z.string() }),
  z.strictObject({ type: z.literal('text-delta'), id: z.string(), delta: z.string() }),
  z.strictObject({ type: z.literal('text-end'), id: z.string() }),
  z.strictObject({ type: z.literal('tool-input-available'), toolCallId: z.string(), toolName: z.string(), input: z.unknown() }),
  z.strictObject({ type: z.literal('tool-output-available'), toolCallId: z.string(), output: z.unknown() }),
  z.strictObject({ type: z.literal('tool-approval-request'), approvalId: z.string(), toolCallId: z.string() }),
  z.strictObject({ type: z.literal('finish-step') }),
  z.strictObject({ type: z.literal('finish'), finishReason: uiFinish, messageMetadata: z.strictObject({ model: z.string(), usage }) }),
  z.strictObject({ type: z.literal('error'), errorText: z.string() }),
]);
export type UiChunk = z.output<typeof uiChunk>;

/** Names the AI SDK v6 stream to its readers. */
export const uiStreamHeader = { 'x-vercel-ai-ui-message-stream': 'v1' } as const;
/** An answer with these headers is one. */
export const isUiStream = (headers: Readonly<Record<string, unknown>>): boolean => headers['x-vercel-ai-ui-message-stream'] !== undefined;

interface Failure {
  readonly code: string;
  readonly message: string;
}
/** The last event of a stream that failed. */
export const uiPartFailure = ({ code, message }: Failure): UiPart => ({ type: 'error', error: { code, message } });
export const uiFailure = ({ message }: Failure): UiChunk => ({ type: 'error', errorText: message });
