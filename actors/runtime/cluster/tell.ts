/**
 * A durable tell as it lies in the stream INBOX: {id, input}. The id travels in the body, because the message id header
 * belongs to the stream's dedup window and a replayed dead letter needs a fresh one there.
 */
import { z } from 'zod';
import { coded } from '../../../contracts/errors.ts';
import { limits } from '../../../contracts/limits.ts';
import { parseJson, parseValue } from '../../../contracts/validate.ts';

const tell = z.object({ id: z.string().min(1).max(limits.messageIdMaxChars), input: z.unknown() });
export interface Tell {
  readonly id: string;
  readonly input?: unknown;
}

/** Throws `payload_too_large`, `bad_request` (id too long, input not JSON). */
export const encodeTell = (message: Tell): Uint8Array => {
  if (message.id.length === 0 || message.id.length > limits.messageIdMaxChars) throw coded('bad_request', 'The message id is empty or too long.');
  let text: string;
  try {
    text = JSON.stringify(message);
  } catch (cause) {
    throw coded('bad_request', 'The input is not JSON.', { cause });
  }
  const data = Buffer.from(text, 'utf8');
  if (data.length > limits.commandMaxBytes) throw coded('payload_too_large');
  return data;
};

/** Throws `bad_request`, `validation_error`. */
export const decodeTell = (text: string): Tell => parseValue(tell, parseJson(text));
