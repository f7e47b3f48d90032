/**
 * What the model reads: instructions, the kept history with attachments filled in, cut to the model's context from the oldest
 * turn on. The running turn is always whole; its attachment must exist (`blob_not_found`), one of an earlier turn that is gone
 * is named as gone.
 */
import { CodedError } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import type { Blobs } from '../blobs/blobs.ts';
import type { PromptMessage } from '../providers/provider.ts';
import type { HistoryMessage } from './state.ts';

const promptChars = (message: PromptMessage): number =>
  message.text.length + (message.role === 'assistant' ? message.calls.reduce((sum, c) => sum + c.name.length + JSON.stringify(c.arguments ?? null).length, 0) : 0);

/** Characters of a whole prompt. */
export const charsOf = (messages: readonly PromptMessage[]): number => messages.reduce((sum, message) => sum + promptChars(message), 0);

const attached = (hash: string, bytes: Uint8Array): string => {
  let text: string;
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    return `[attachment ${hash}: ${bytes.byteLength} bytes that are not text]`;
  }
  const kept = text.slice(0, limits.attachmentPromptMaxChars);
  const note = kept.length < text.length ? ` (cut after ${kept.length} of ${text.length} characters)` : '';
  return `[attachment ${hash}${note}]\n${kept}`;
};

export interface PromptOptions {
  readonly org: string;
  readonly instructions: string;
  readonly blobs: Blobs;
  /** Tokens that the prompt may take. */
  readonly maxTokens: number;
  readonly signal: AbortSignal;
}

const fill = async (message: HistoryMessage, current: boolean, options: PromptOptions): Promise<PromptMessage> => {
  if (message.role !== 'user') return message;
  if (message.blob === undefined) return { role: 'user', text: message.text };
  try {
    const note = attached(message.blob, await options.blobs.get(options.org, message.blob));
    return { role: 'user', text: message.text === '' ? note : `${message.text}\n\n${note}` };
  } catch (error) {
    if (current || !(error instanceof CodedError) || error.code !== 'blob_not_found') throw error;
    return { role: 'user', text: `${message.text}\n\n[attachment ${message.blob}: no longer available]` };
  }
};

/** Newest turn first, until the context is full. Errors: `blob_not_found`, the store's. */
export const buildPrompt = async (history: readonly HistoryMessage[], options: PromptOptions): Promise<PromptMessage[]> => {
  const turns: HistoryMessage[][] = [];
  for (const message of history) {
    const turn = turns.at(-1);
    if (message.role === 'user' || turn === undefined) turns.push([message]);
    else turn.push(message);
  }
  const prompt: PromptMessage[][] = [];
  let left = options.maxTokens * 4 - options.instructions.length;
  for (const turn of turns.toReversed()) {
    options.signal.throwIfAborted();
    const filled: PromptMessage[] = [];
    for (const message of turn) filled.push(await fill(message, prompt.length === 0, options));
    left -= filled.reduce((sum, m) => sum + promptChars(m), 0);
    if (left < 0 && prompt.length > 0) break;
    prompt.push(filled);
  }
  return [{ role: 'system', text: options.instructions }, ...prompt.toReversed().flat()];
};
