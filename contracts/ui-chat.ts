/**
 * Chat for user interfaces, `POST /api/chat` (interface 4.2; decisions, Chat): what is taken and the three shapes it is answered in.
 *
 * A request with messages of `content` is answered in UiPart events or, without streaming, as one JSON. One whose messages have `parts` comes
 * from AI SDK v6's own transport and is answered in that library's UI message stream (`ai` 6, `uiMessageChunkSchema`), closed to the chunk
 * types named here. Everything else is a chat request as contracts/chat.ts has it: the conversation passes the same rules.
 *
 * Tools are the client's, as on `/api/v1/chat/completions`, and those of this installation (configuration `tools.chat`), which run on the
 * server, step after step, within one answer; of a name that both have, the client's counts. A call of ours that a person must allow ends the
 * answer with finish reason `tool-calls`; it waits, and the next request that ends with the person's word goes on with it:
 * - AI SDK v6: the part has an `approval` with `id` and `approved` (state `approval-responded`), as that library's `addToolApprovalResponse` makes it.
 * - Messages of `content`: `{role: 'tool', tool_call_id, content: [{type: 'tool-approval-response', approved, reason?}]}`, after the assistant's
 *   message with the call. A call that has no `tool-result` and is none of the client's tools waits for this.
 * A failed or denied call has `{error: {code, message}}` as its result.
 */
import { z } from 'zod';
import { completionRequest, type ChatMessage, type CompletionRequest } from './chat.ts';
import type { Approval } from './completion.ts';
import { limits } from './limits.ts';
import { isNoDeeper, isShallow } from './nesting.ts';

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
  approval: z.looseObject({ id: z.string().optional(), approved: z.boolean().optional(), reason: z.string().max(limits.chatNoteMaxChars).optional() }).optional(),
}).superRefine((part, context) => {
  const wrong = (path: string, problem: string): void => context.addIssue({ code: 'custom', path: [path], message: problem });
  if (part.type === 'text') {
    if (part.text === undefined) wrong('text', 'a part of type text has one');
  } else if (isTool(part.type)) {
    if (part.toolCallId === undefined) wrong('toolCallId', 'a tool call has one');
    if (part.state === 'approval-responded' && part.approval?.approved === undefined) wrong('approval', 'says whether it was approved');
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

/** A tool call's part that brings a person's word. */
const isDecided = (part: UiMessagePart): boolean => isTool(part.type) && part.state === 'approval-responded';

/** What a tool answered; undefined while it has not: a vendor takes no call without its result, so such a call is left out. `decides`: of the conversation's end, where a decided call has its result to come. */
const resultOf = (part: UiMessagePart, decides: boolean): string | undefined => {
  switch (part.state) {
    case 'approval-responded': return decides ? '' : part.approval?.approved === false ? 'The call was denied.' : undefined;
    case 'output-available': return asText(part.output);
    case 'output-error': return part.errorText ?? 'The tool failed.';
    case 'output-denied': return part.approval?.reason ?? 'The call was denied.';
    default: return undefined;
  }
};

const stepOf = (parts: readonly UiMessagePart[], decides: boolean): ChatMessage[] => {
  const calls = parts.filter((part) => isTool(part.type)).flatMap((part) => {
    const result = resultOf(part, decides);
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

/** Messages of one message; one without parts is looked at as it is. `last`: the conversation ends with it. */
const messagesOf = ({ role, parts, content }: UiMessage, last: boolean): unknown[] => {
  if (parts === undefined) return [{ role, content }];
  return role === 'assistant' ? stepsOf(parts).flatMap((step) => stepOf(step, last)) : [{ role, content: textOf(parts) }];
};

const decision = z.strictObject({ type: z.literal('tool-approval-response'), approved: z.boolean(), reason: note.optional() });
const decisionMessage = z.looseObject({ role: z.literal('tool'), tool_call_id: z.string().min(1).max(limits.idMaxChars), content: z.tuple([decision]) });

/** The person's words that a conversation ends with, by their calls. */
export const approvalsOf = (request: Fields): readonly Approval[] => {
  const last = request.messages.at(-1);
  if (hasParts(request)) {
    return (last?.role === 'assistant' ? last.parts ?? [] : []).filter(isDecided).map(({ toolCallId = '', approval }) =>
      ({ call_id: toolCallId, approved: approval?.approved === true, ...(approval?.reason === undefined ? {} : { reason: approval.reason }) }));
  }
  return request.messages.flatMap((message) => {
    const { data } = decisionMessage.safeParse(message);
    return data === undefined ? [] : data.content.map(({ approved, reason }) => ({ call_id: data.tool_call_id, approved, ...(reason === undefined ? {} : { reason }) }));
  });
};

/** A message that brings a person's word has its call's result to come. */
const withoutDecision = (message: UiMessage): unknown => (decisionMessage.safeParse(message).success ? { ...message, content: '' } : message);

/** The first message that brings a person's word before the conversation's end: what it would decide on is over. */
const lateDecision = (request: Fields): number => {
  if (hasParts(request)) return -1;
  const end = request.messages.findLastIndex(({ role }) => role !== 'tool');
  return request.messages.findIndex((message, at) => at < end && decisionMessage.safeParse(message).success);
};

/** The chat request it stands for. A message of the chat shape keeps its further fields (tool calls, names). */
const rawCompletion = (request: Fields, model: string): { readonly messages: readonly unknown[]; readonly from: readonly number[]; readonly body: object } => {
  const spread = request.messages.map((message, at) =>
    (hasParts(request) ? messagesOf(message, at === request.messages.length - 1) : [withoutDecision(message)]));
  const messages = spread.flat();
  return { messages, from: spread.flatMap((some, at) => some.map(() => at)), body: { model, messages, tools: request.tools } };
};

/** Body of `POST /api/chat`. Further fields, of which AI SDK's transport sends some (`id`, `trigger`, `messageId`), are let be. */
export const uiChatRequest = fields.superRefine((request, context) => {
  // What was found too deep before is told, but not kept from here.
  if (!isNoDeeper(request, limits.bodyDepthMax)) {
    context.addIssue({ code: 'custom', path: [], message: 'is nested too deeply' });
    return;
  }
  const withParts = hasParts(request);
  if (!withParts && typeof request.model !== 'string') context.addIssue({ code: 'custom', path: ['model'], message: 'is needed' });
  const late = lateDecision(request);
  if (late >= 0) context.addIssue({ code: 'custom', path: ['messages', late, 'content'], message: 'an answer to an approval is taken at the end of the conversation only; put the result in its place' });
  const decided = approvalsOf(request).map(({ call_id: id }) => id);
  if (new Set(decided).size < decided.length) context.addIssue({ code: 'custom', path: ['messages', request.messages.length - 1], message: 'decides on a call twice' });
  if (decided.length > limits.completionApprovalsMax) context.addIssue({ code: 'custom', path: ['messages', request.messages.length - 1], message: `decides on more than ${limits.completionApprovalsMax} calls` });
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

const toolResult = z.strictObject({ toolCallId: z.string(), toolName: z.string(), result: z.unknown() });

/** Answer without streaming. `toolCalls` and the `toolResults` of those that ran here only if there are any. */
export const uiAnswer = z.strictObject({
  id: z.string(), model: z.string(), content: z.string(), usage, finishReason: uiFinish, toolCalls: z.array(toolCall).optional(), toolResults: z.array(toolResult).optional(),
});
export type UiAnswer = z.output<typeof uiAnswer>;

/** One event of the default stream. `finish` or `error` comes once, last. `args`: a value, or the model's text where it is no JSON. */
export const uiPartEvent = z.discriminatedUnion('type', [
  z.strictObject({ type: z.literal('text-delta'), id: z.string(), text: z.string() }),
  z.strictObject({ type: z.literal('tool-call'), ...toolCall.shape }),
  z.strictObject({ type: z.literal('tool-result'), ...toolResult.shape }),
  z.strictObject({ type: z.literal('finish'), finishReason: uiFinish, usage }),
  z.strictObject({ type: z.literal('error'), error: problem }),
]);
export type UiPart = z.output<typeof uiPartEvent>;

/** One chunk of the AI SDK v6 stream; `[DONE]` follows a `finish`, nothing an `error`. Outputs of calls that a person allowed or denied come before the first step. */
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
