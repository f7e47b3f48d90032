/**
 * A model provider: what the chat loop asks of any vendor, and what it gets back.
 *
 * Guarantees of every implementation:
 * P1  Parts come in the vendor's order; exactly one `end` comes, last. A stream that ends otherwise throws.
 * P2  A tool call is given once, when it is final.
 * P3  Nothing is retried once a part was given; a broken stream throws a ProviderFault that says whether it may be resumed.
 * P4  Aborting the signal ends the upstream connection; leaving the iteration early does too.
 * P5  No error, and nothing else that leaves here, holds a key, a URL or the vendor's own text.
 */
import { CodedError, errors } from '../../contracts/errors.ts';

/** A tool call the assistant made. `arguments` is the parsed JSON, or the raw text if it was not JSON. */
export interface PromptCall {
  readonly call_id: string;
  readonly name: string;
  readonly arguments: unknown;
}

export type PromptMessage =
  | { readonly role: 'system'; readonly text: string }
  | { readonly role: 'user'; readonly text: string; readonly name?: string | undefined }
  | { readonly role: 'assistant'; readonly text: string; readonly calls: readonly PromptCall[] }
  | { readonly role: 'tool'; readonly call_id: string; readonly name: string; readonly text: string; readonly is_error: boolean };

/** A tool as the model sees it; `parameters` is a JSON Schema. */
export interface ToolOffer {
  readonly name: string;
  readonly description: string;
  readonly parameters: Readonly<Record<string, unknown>>;
  /** The vendor is to hold the model to the schema. */
  readonly strict?: boolean | undefined;
}

/** What a caller may further ask of a call. A vendor that has no such thing does without. */
export interface CallOptions {
  readonly temperature?: number | undefined;
  readonly topP?: number | undefined;
  /** Texts at which the model stops. */
  readonly stop?: readonly string[] | undefined;
  /** `auto`: as the model likes. `{ name }`: this tool. */
  readonly toolChoice?: 'auto' | 'none' | 'required' | { readonly name: string } | undefined;
  /** The caller's name of its user, for the vendor's abuse detection. */
  readonly user?: string | undefined;
}

export interface ProviderCall {
  /** The vendor's name of the model. */
  readonly model: string;
  readonly messages: readonly PromptMessage[];
  /** Text of this very reply that was given before a break; '' on a first call. The provider goes on after it. */
  readonly said: string;
  readonly tools: readonly ToolOffer[];
  readonly maxOutputTokens: number;
  readonly signal: AbortSignal;
  readonly options?: CallOptions | undefined;
}

export type StepEnd = 'stop' | 'length' | 'content_filter' | 'tool_calls' | 'other';
export interface TokenCount {
  readonly input_tokens: number;
  readonly output_tokens: number;
}

export type Part =
  | { readonly kind: 'text'; readonly text: string }
  | { readonly kind: 'tool_call'; readonly call_id: string; readonly name: string; readonly arguments: unknown }
  /** `usage` undefined = the vendor did not say; the loop estimates. */
  | { readonly kind: 'end'; readonly finish_reason: StepEnd; readonly usage: TokenCount | undefined };

export interface Provider {
  /** `exact`: a continued reply starts right after `said`. `may-repeat`: it may say part of `said` again, which the loop strips. */
  readonly continues: 'exact' | 'may-repeat';
  stream(call: ProviderCall): AsyncIterable<Part>;
}

/**
 * A vendor's failure: `provider_error` or `provider_timeout`. `resumable` = the stream broke and may be taken up with `said`. `begun` = the vendor had begun
 * to answer, so what it read is used, whatever of the answer arrived; default: what is resumable had.
 */
export class ProviderFault extends CodedError {
  readonly resumable: boolean;
  readonly begun: boolean;

  constructor(code: 'provider_error' | 'provider_timeout', message: string, resumable: boolean, begun = resumable) {
    super(code, message === '' ? errors[code].message : message);
    this.resumable = resumable;
    this.begun = begun;
  }
}

/** JSON arguments of a tool call as a value; text that is not JSON stays text, and the tool's schema then names the problem. */
export const parseArguments = (text: string): unknown => {
  if (text.trim() === '') return {};
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
};
