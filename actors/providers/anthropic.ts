/**
 * Anthropic's messages over the official client.
 *
 * A tool call is final when its content block stops; the step ends with `message_stop`, a stream that ends before it broke.
 * A cut reply is taken up by asking, not by a prefilled assistant message, which newer models refuse.
 * The client's own retries, logging and environment variables are off: vendor.ts retries, nothing logs, keys are arguments.
 */
import Anthropic, { APIError } from '@anthropic-ai/sdk';
import type { ContentBlockParam, MessageCreateParamsStreaming, MessageParam, RawMessageStreamEvent, ToolChoice } from '@anthropic-ai/sdk/resources/messages';
import { limits } from '../../contracts/limits.ts';
import { parseArguments, ProviderFault, type CallOptions, type Part, type PromptMessage, type Provider, type ProviderCall, type StepEnd } from './provider.ts';
import { goOnInstruction, vendorDefaults, vendorStream, type VendorError, type VendorOptions } from './vendor.ts';

export interface AnthropicOptions {
  readonly apiKey: string;
  /** Default the vendor's. */
  readonly baseUrl?: string | undefined;
  readonly vendor?: Partial<VendorOptions>;
}

const vendorUrl = 'https://api.anthropic.com';

const isRecord = (value: unknown): value is Record<string, unknown> => typeof value === 'object' && value !== null && !Array.isArray(value);

/** Content blocks of a message; empty text blocks are refused by the vendor and left out. */
const blocks = (message: Exclude<PromptMessage, { role: 'system' }>): ContentBlockParam[] => {
  const text: ContentBlockParam[] = message.text === '' ? [] : [{ type: 'text', text: message.text }];
  switch (message.role) {
    case 'user': return text.length > 0 ? text : [{ type: 'text', text: '(empty message)' }];
    case 'tool': return [{ type: 'tool_result', tool_use_id: message.call_id, content: message.text, is_error: message.is_error }];
    case 'assistant': return [...text, ...message.calls.map((c): ContentBlockParam => ({
      type: 'tool_use', id: c.call_id, name: c.name, input: isRecord(c.arguments) ? c.arguments : { text: c.arguments },
    }))];
  }
};

/** User and assistant messages in turn: neighbours of one role (several tool results) become one message. */
const toMessages = (call: ProviderCall): MessageParam[] => {
  const made: { role: 'user' | 'assistant'; content: ContentBlockParam[] }[] = [];
  const add = (message: Exclude<PromptMessage, { role: 'system' }>): void => {
    const content = blocks(message);
    if (content.length === 0) return;
    const role = message.role === 'assistant' ? 'assistant' : 'user';
    const last = made.at(-1);
    if (last?.role === role) last.content.push(...content);
    else made.push({ role, content });
  };
  for (const message of call.messages) if (message.role !== 'system') add(message);
  if (call.said.trim() !== '') {
    add({ role: 'assistant', text: call.said, calls: [] });
    add({ role: 'user', text: goOnInstruction });
  }
  return made;
};

const statusOfType: Readonly<Record<string, number>> = {
  invalid_request_error: 400, authentication_error: 401, permission_error: 403, not_found_error: 404, request_too_large: 413,
  rate_limit_error: 429, api_error: 500, timeout_error: 504, overloaded_error: 529,
};

const readError = (error: unknown): VendorError => {
  if (!(error instanceof APIError)) return { status: undefined, headers: undefined };
  const { status, headers }: { status: number | undefined; headers: Headers | undefined } = error;
  const { type }: { type: string | null | undefined } = error;
  return { status: status ?? (type === null || type === undefined ? undefined : statusOfType[type] ?? 500), headers };
};

const endOf = (reason: string | null): StepEnd => {
  switch (reason) {
    case 'end_turn': case 'stop_sequence': return 'stop';
    case 'max_tokens': case 'model_context_window_exceeded': return 'length';
    case 'tool_use': return 'tool_calls';
    case 'refusal': return 'content_filter';
    default: return 'other';
  }
};

async function* parts(events: AsyncIterable<RawMessageStreamEvent>): AsyncGenerator<Part> {
  let open: { readonly id: string; readonly name: string; arguments: string } | undefined;
  let reason: string | null = null;
  let stopped = false;
  let input = 0;
  let output = 0;
  for await (const event of events) {
    switch (event.type) {
      case 'message_start': {
        const { usage } = event.message;
        input = usage.input_tokens + (usage.cache_creation_input_tokens ?? 0) + (usage.cache_read_input_tokens ?? 0);
        output = usage.output_tokens;
        break;
      }
      case 'content_block_start':
        if (event.content_block.type === 'tool_use') open = { id: event.content_block.id, name: event.content_block.name, arguments: '' };
        else if (event.content_block.type === 'text' && event.content_block.text !== '') yield { kind: 'text', text: event.content_block.text };
        break;
      case 'content_block_delta':
        if (event.delta.type === 'text_delta') yield { kind: 'text', text: event.delta.text };
        else if (event.delta.type === 'input_json_delta' && open !== undefined) {
          open.arguments += event.delta.partial_json;
          if (open.arguments.length > limits.commandMaxBytes) throw new ProviderFault('provider_error', 'The model sent an endless tool call.', false, true);
        }
        break;
      case 'content_block_stop':
        if (open !== undefined) yield { kind: 'tool_call', call_id: open.id, name: open.name, arguments: parseArguments(open.arguments) };
        open = undefined;
        break;
      case 'message_delta':
        reason = event.delta.stop_reason;
        output = event.usage.output_tokens;
        break;
      case 'message_stop':
        stopped = true;
        break;
    }
  }
  if (!stopped) throw new ProviderFault('provider_error', 'The model stopped mid-reply.', true);
  yield { kind: 'end', finish_reason: endOf(reason), usage: { input_tokens: input, output_tokens: output } };
}

const furtherOf = ({ options = {}, tools }: ProviderCall): Partial<MessageCreateParamsStreaming> => {
  const { temperature, topP, stop, toolChoice, user } = options;
  return {
    // The vendor's scale ends at 1.
    ...(temperature === undefined ? {} : { temperature: Math.min(1, temperature) }), ...(topP === undefined ? {} : { top_p: topP }),
    ...(stop === undefined ? {} : { stop_sequences: [...stop] }), ...(user === undefined ? {} : { metadata: { user_id: user } }),
    ...(toolChoice === undefined || tools.length === 0 ? {} : { tool_choice: choiceOf(toolChoice) }),
  };
};

const choiceOf = (choice: NonNullable<CallOptions['toolChoice']>): ToolChoice => {
  if (typeof choice !== 'string') return { type: 'tool', name: choice.name };
  return { type: choice === 'required' ? 'any' : choice };
};

/** The provider. The key stays in the client: it is in no error and no log. */
export const anthropic = (options: AnthropicOptions): Provider => {
  const client = new Anthropic({
    apiKey: options.apiKey, authToken: null, baseURL: options.baseUrl ?? vendorUrl,
    maxRetries: 0, timeout: limits.modelDeadlineMs, logLevel: 'off',
  });
  const vendor = { ...vendorDefaults, ...options.vendor };
  return {
    continues: 'may-repeat',
    stream: (call) => parts(vendorStream(
      async (signal) => client.messages.create({
        model: call.model, max_tokens: call.maxOutputTokens, messages: toMessages(call), stream: true,
        system: call.messages.filter((m) => m.role === 'system').map((m) => m.text).join('\n\n'),
        ...(call.tools.length === 0 ? {} : {
          tools: call.tools.map((t) => ({ name: t.name, description: t.description, input_schema: { ...t.parameters, type: 'object' as const }, ...(t.strict === true ? { strict: true } : {}) })),
        }),
        ...furtherOf(call),
      }, { signal }),
      readError, call.signal, vendor,
    )),
  };
};
