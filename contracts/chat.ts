/**
 * Public chat in the common chat-completions shape (interface 4.2; decisions, Chat): what is taken, what is answered, how errors look.
 *
 * Guarantees: a field of that shape is honoured or refused by its name; one whose value means what is done anyway (`n` 1, a penalty of 0)
 * is honoured. Text only: images, audio and files are refused. An error's `code` is always text.
 */
import { z } from 'zod';
import { limits } from './limits.ts';
import { isShallow } from './nesting.ts';

const note = z.string().max(limits.chatNoteMaxChars);
const toolName = z.string().regex(/^[a-zA-Z0-9_-]{1,64}$/);

const parts = z.array(z.strictObject({ type: z.literal('text'), text: z.string() })).min(1).max(limits.chatMessagesMax);
const content = z.union([z.string(), parts], { error: 'must be text, or parts of type text: images, audio and files are not supported' });

const toolCall = z.strictObject({
  id: z.string().min(1).max(limits.idMaxChars), type: z.literal('function'),
  function: z.strictObject({ name: toolName, arguments: z.string() }),
});
/** As a client echoes what it was given: empty fields of answers are taken. */
const assistantMessage = z.strictObject({
  role: z.literal('assistant'), content: content.nullish(), name: note.optional(), tool_calls: z.array(toolCall).max(limits.chatToolsMax).nullish(),
  refusal: z.null().optional(), audio: z.null().optional(), function_call: z.null().optional(), annotations: z.array(z.unknown()).max(0).nullish(),
});
const message = z.discriminatedUnion('role', [
  z.strictObject({ role: z.literal('system'), content }),
  z.strictObject({ role: z.literal('developer'), content }),
  z.strictObject({ role: z.literal('user'), content, name: note.optional() }),
  assistantMessage,
  z.strictObject({ role: z.literal('tool'), content, tool_call_id: z.string().min(1).max(limits.idMaxChars) }),
]);
export type ChatMessage = z.output<typeof message>;

const tool = z.strictObject({
  type: z.literal('function'),
  function: z.strictObject({
    name: toolName, description: z.string().optional(), parameters: z.record(z.string(), z.unknown()).refine(isShallow, 'is nested too deeply').optional(), strict: z.boolean().nullish(),
  }),
});

/** Counted before any is looked at: each bad one would be a problem of its own. */
const few = (pairs: unknown, context: z.core.$RefinementCtx): unknown => {
  if (typeof pairs === 'object' && pairs !== null && Object.keys(pairs).length > 16) context.addIssue({ code: 'custom', message: 'at most 16 pairs' });
  return pairs;
};

const fields = {
  model: z.string().min(1).max(limits.idMaxChars),
  messages: z.array(message).min(1).max(limits.chatMessagesMax),
  stream: z.boolean().nullish(),
  stream_options: z.strictObject({ include_usage: z.boolean().nullish(), include_obfuscation: z.literal(false).nullish() }).nullish(),
  tools: z.array(tool).max(limits.chatToolsMax).nullish(),
  tool_choice: z.union([
    z.enum(['none', 'auto', 'required']), z.strictObject({ type: z.literal('function'), function: z.strictObject({ name: toolName }) }),
  ]).nullish(),
  temperature: z.number().min(0).max(2).nullish(),
  top_p: z.number().min(0).max(1).nullish(),
  max_tokens: z.int().positive().nullish(),
  max_completion_tokens: z.int().positive().nullish(),
  stop: z.union([note.min(1), z.array(note.min(1)).max(4)]).nullish(),
  user: note.nullish(),
  metadata: z.preprocess(few, z.record(z.string().max(64), z.string().max(512))).nullish(),
  // Only what is done anyway.
  n: z.literal(1).nullish(),
  frequency_penalty: z.literal(0).nullish(),
  presence_penalty: z.literal(0).nullish(),
  logprobs: z.literal(false).nullish(),
  parallel_tool_calls: z.literal(true).nullish(),
  response_format: z.strictObject({ type: z.literal('text') }).nullish(),
  modalities: z.array(z.literal('text')).max(1).nullish(),
};

/** Body of `POST /api/v1/chat/completions`. */
export const completionRequest = z.looseObject(fields).superRefine((request, context) => {
  const wrong = (path: (string | number)[], problem: string): void => context.addIssue({ code: 'custom', path, message: problem });
  const foreign = Object.keys(request).filter((name) => !Object.hasOwn(fields, name));
  for (const name of foreign.slice(0, limits.issuesMax)) wrong([name], 'is not supported here');
  const { messages, tools, tool_choice: choice } = request;
  const last = messages.at(-1);
  if (last?.role !== 'user' && last?.role !== 'tool') wrong(['messages', messages.length - 1, 'role'], 'the last message must be from user or tool');
  // A vendor takes a call once and answers to it once: which of two would count is nobody's to guess.
  const open = new Set<string>();
  const answered = new Set<string>();
  for (const [at, one] of messages.entries()) {
    if (one.role === 'assistant') {
      const calls = one.tool_calls ?? [];
      for (const [nth, { id }] of calls.entries()) {
        if (calls.findIndex((call) => call.id === id) !== nth) wrong(['messages', at, 'tool_calls', nth, 'id'], 'is the id of another call of this message');
        open.add(id);
        answered.delete(id);
      }
    }
    if (one.role !== 'tool') continue;
    if (!open.delete(one.tool_call_id)) wrong(['messages', at, 'tool_call_id'], answered.has(one.tool_call_id) ? 'names a tool call that has its result' : 'names no tool call before it');
    answered.add(one.tool_call_id);
  }
  const names = (tools ?? []).map((offered) => offered.function.name);
  const twice = names.findIndex((name, at) => names.indexOf(name) !== at);
  if (twice >= 0) wrong(['tools', twice, 'function', 'name'], 'is the name of another tool');
  if (choice === 'required' && names.length === 0) wrong(['tool_choice'], 'there are no tools');
  if (typeof choice === 'object' && choice !== null && !names.includes(choice.function.name)) wrong(['tool_choice'], 'names none of the tools');
});
export type CompletionRequest = z.output<typeof completionRequest>;

/** Headers of a chat request that the daemon is told. `troupe-organization`: `org_…` or `personal`. `x-session-id`: keeps a conversation on one actor. */
export const chatHeaders = { organization: 'troupe-organization', session: 'x-session-id' } as const;

export const completionUsage = z.strictObject({ prompt_tokens: z.int(), completion_tokens: z.int(), total_tokens: z.int() });
const finishReason = z.enum(['stop', 'length', 'content_filter', 'tool_calls']);
export type ChatFinish = z.output<typeof finishReason>;

/** Answer without streaming. */
export const chatCompletion = z.strictObject({
  id: z.string(), object: z.literal('chat.completion'), created: z.int(), model: z.string(),
  choices: z.array(z.strictObject({
    index: z.literal(0), finish_reason: finishReason, logprobs: z.null(),
    message: z.strictObject({ role: z.literal('assistant'), content: z.string().nullable(), refusal: z.null(), tool_calls: z.array(toolCall).optional() }),
  })).length(1),
  usage: completionUsage,
});
export type ChatCompletion = z.output<typeof chatCompletion>;

/** One chunk of a streamed answer. */
export const chatChunk = z.strictObject({
  id: z.string(), object: z.literal('chat.completion.chunk'), created: z.int(), model: z.string(),
  choices: z.array(z.strictObject({
    index: z.literal(0), finish_reason: finishReason.nullable(), logprobs: z.null(),
    delta: z.strictObject({
      role: z.literal('assistant').optional(), content: z.string().optional(), refusal: z.null().optional(),
      tool_calls: z.array(z.strictObject({
        index: z.int(), id: z.string().optional(), type: z.literal('function').optional(),
        function: z.strictObject({ name: z.string().optional(), arguments: z.string() }),
      })).optional(),
    }),
  })).max(1),
  usage: completionUsage.nullable().optional(),
});
export type ChatChunk = z.output<typeof chatChunk>;

export const modelList = z.strictObject({
  object: z.literal('list'),
  data: z.array(z.strictObject({ id: z.string(), object: z.literal('model'), created: z.int(), owned_by: z.string() })),
});

const errorTypes: Readonly<Record<number, string>> = { 401: 'authentication_error', 403: 'permission_error', 404: 'not_found_error', 429: 'rate_limit_error' };

/** The error body of this endpoint, and of a chunk that ends a stream. `param`: the field at fault. */
export const chatError = (status: number, error: { readonly code: string; readonly message: string; readonly param?: string | undefined }): object => ({
  error: {
    message: error.message, type: errorTypes[status] ?? (status >= 500 ? 'api_error' : 'invalid_request_error'), code: error.code,
    param: error.param === undefined || error.param === '' ? null : error.param,
  },
});

/** One event of a stream (WHATWG HTML, 9.2.6): the value on one line. */
export const sseData = (value: object | '[DONE]'): string => `data: ${typeof value === 'string' ? value : JSON.stringify(value)}\n\n`;
/** Keeps proxies from closing a silent stream; readers ignore it. */
export const sseComment = ': still here\n\n';
export const sseType = 'text/event-stream';
