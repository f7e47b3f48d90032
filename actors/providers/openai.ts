/**
 * OpenAI's chat completions over the official client, for that vendor and every compatible server (`baseUrl`).
 *
 * A tool call is final when the next one begins or the step ends. A stream that ends without a finish reason broke.
 * The client's own retries, logging and environment variables are off: vendor.ts retries, nothing logs, keys are arguments.
 */
import OpenAI, { APIError } from 'openai';
import type { ChatCompletionChunk, ChatCompletionCreateParamsStreaming, ChatCompletionMessageParam } from 'openai/resources/chat/completions';
import { limits } from '../../contracts/limits.ts';
import { parseArguments, ProviderFault, type Part, type PromptMessage, type Provider, type ProviderCall, type StepEnd, type TokenCount } from './provider.ts';
import { vendorFetch } from './transport.ts';
import { goOnInstruction, vendorDefaults, vendorStream, type VendorError, type VendorOptions } from './vendor.ts';

export interface OpenAiOptions {
  readonly apiKey: string;
  /** Default the vendor's. */
  readonly baseUrl?: string | undefined;
  readonly vendor?: Partial<VendorOptions>;
}

const vendorUrl = 'https://api.openai.com/v1';

const toMessage = (message: PromptMessage): ChatCompletionMessageParam => {
  switch (message.role) {
    case 'system': return { role: 'system', content: message.text };
    case 'user': return { role: 'user', content: message.text, ...(message.name === undefined ? {} : { name: message.name }) };
    case 'tool': return { role: 'tool', tool_call_id: message.call_id, content: message.text };
    case 'assistant': return message.calls.length === 0 ? { role: 'assistant', content: message.text } : {
      role: 'assistant', content: message.text === '' ? null : message.text,
      tool_calls: message.calls.map((c) => ({
        id: c.call_id, type: 'function',
        function: { name: c.name, arguments: typeof c.arguments === 'string' ? c.arguments : JSON.stringify(c.arguments ?? {}) },
      })),
    };
  }
};

const toMessages = (call: ProviderCall): ChatCompletionMessageParam[] => [
  ...call.messages.map(toMessage),
  ...(call.said === '' ? [] : [{ role: 'assistant' as const, content: call.said }, { role: 'user' as const, content: goOnInstruction }]),
];

const readError = (error: unknown): VendorError => {
  if (!(error instanceof APIError)) return { status: undefined, headers: undefined };
  const { status, headers }: { status: number | undefined; headers: Headers | undefined } = error;
  // An error object inside the stream has headers but no status; a broken connection has neither.
  if (status !== undefined || headers === undefined) return { status, headers };
  return { status: error.type === 'invalid_request_error' ? 400 : 500, headers };
};

const endOf = (reason: string): StepEnd => {
  switch (reason) {
    case 'stop': case 'length': case 'content_filter': case 'tool_calls': return reason;
    case 'function_call': return 'tool_calls';
    default: return 'other';
  }
};

interface OpenCall {
  readonly index: number;
  readonly id: string;
  name: string;
  arguments: string;
}
const toPart = (open: OpenCall): Part => ({ kind: 'tool_call', call_id: open.id, name: open.name, arguments: parseArguments(open.arguments) });

async function* parts(chunks: AsyncIterable<ChatCompletionChunk>): AsyncGenerator<Part> {
  let open: OpenCall | undefined;
  let end: StepEnd | undefined;
  let usage: TokenCount | undefined;
  for await (const chunk of chunks) {
    // Compatible servers leave out what the types promise.
    const counted: { prompt_tokens?: number; completion_tokens?: number } | null | undefined = chunk.usage;
    if (counted) usage = { input_tokens: counted.prompt_tokens ?? 0, output_tokens: counted.completion_tokens ?? 0 };
    const choices: ChatCompletionChunk['choices'] | undefined = chunk.choices;
    const choice = choices?.[0];
    if (choice === undefined) continue;
    const delta: ChatCompletionChunk.Choice.Delta | undefined = choice.delta;
    const text = delta?.content ?? delta?.refusal ?? '';
    if (text !== '') yield { kind: 'text', text };
    for (const piece of delta?.tool_calls ?? []) {
      const index: number = piece.index ?? open?.index ?? 0;
      if (open === undefined || open.index !== index || (piece.id !== undefined && piece.id !== '' && piece.id !== open.id)) {
        if (open !== undefined) yield toPart(open);
        open = { index, id: piece.id ?? '', name: '', arguments: '' };
      }
      open.name += piece.function?.name ?? '';
      open.arguments += piece.function?.arguments ?? '';
      if (open.arguments.length > limits.commandMaxBytes) throw new ProviderFault('provider_error', 'The model sent an endless tool call.', false, true);
    }
    if (choice.finish_reason) {
      if (open !== undefined) yield toPart(open);
      open = undefined;
      end = endOf(choice.finish_reason);
    }
  }
  if (end === undefined) throw new ProviderFault('provider_error', 'The model stopped mid-reply.', true);
  yield { kind: 'end', finish_reason: end, usage };
}

const furtherOf = ({ options = {}, tools }: ProviderCall): Partial<ChatCompletionCreateParamsStreaming> => {
  const { temperature, topP, stop, toolChoice, user } = options;
  return {
    ...(temperature === undefined ? {} : { temperature }), ...(topP === undefined ? {} : { top_p: topP }),
    ...(stop === undefined ? {} : { stop: [...stop] }), ...(user === undefined ? {} : { user }),
    // Without tools the vendor refuses it.
    ...(toolChoice === undefined || tools.length === 0 ? {} : { tool_choice: typeof toolChoice === 'string' ? toolChoice : { type: 'function', function: { name: toolChoice.name } } }),
  };
};

/** The provider. The key stays in the client: it is in no error and no log. */
export const openai = (options: OpenAiOptions): Provider => {
  const client = new OpenAI({
    apiKey: options.apiKey, baseURL: options.baseUrl ?? vendorUrl, organization: null, project: null, webhookSecret: null,
    maxRetries: 0, timeout: limits.modelDeadlineMs, logLevel: 'off', fetch: vendorFetch(),
  });
  const vendor = { ...vendorDefaults, ...options.vendor };
  // The vendor's newer models refuse max_tokens; compatible servers often know nothing else.
  const bound = (tokens: number) => (options.baseUrl === undefined ? { max_completion_tokens: tokens } : { max_tokens: tokens });
  return {
    continues: 'may-repeat',
    stream: (call) => parts(vendorStream(
      async (signal) => client.chat.completions.create({
        model: call.model, messages: toMessages(call), stream: true, stream_options: { include_usage: true }, ...bound(call.maxOutputTokens),
        ...(call.tools.length === 0 ? {} : {
          tools: call.tools.map((t) => ({
            type: 'function' as const, function: { name: t.name, description: t.description, parameters: { ...t.parameters }, ...(t.strict === true ? { strict: true } : {}) },
          })),
        }),
        ...furtherOf(call),
      }, { signal }),
      readError, call.signal, vendor,
    )),
  };
};
