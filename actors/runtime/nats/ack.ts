/**
 * What a JetStream server answers to a publish, read without a JSON parser where it is the usual answer.
 *
 * The usual answer is `{"stream":"…", "seq":N}`; anything else (a duplicate, an error) takes the slow way through JSON.
 */
import type { Msg } from 'nats';

/** Outcome of a publish: stored under a sequence, refused by the fence, or refused for another reason. */
export type Ack =
  | { readonly stored: true; readonly seq: number }
  | { readonly stored: false; readonly fenced: boolean; readonly code: number; readonly errCode: number; readonly description: string };

/** "wrong last sequence", in both forms the server gives it (notes/jetstream 6). */
const fenceCodes: ReadonlySet<number> = new Set([10071, 10164]);
/** "message size exceeds maximum allowed". */
export const tooLargeCode = 10054;
/** "maximum messages exceeded" and "maximum bytes exceeded" of a stream that refuses what is new. */
export const fullCodes: ReadonlySet<number> = new Set([10077]);

const zero = 48;
const nine = 57;
const closing = 125;
const usualTail = Buffer.from('"seq":');

/** The sequence of a usual answer, or 0 if it is not one. */
const usualSeq = (data: Uint8Array): number => {
  let at = data.length - 1;
  if (data[at] !== closing) return 0;
  let seq = 0;
  let scale = 1;
  for (at--; at > 0; at--) {
    const digit = data[at];
    if (digit === undefined || digit < zero || digit > nine) break;
    seq += (digit - zero) * scale;
    scale *= 10;
  }
  const start = at - usualTail.length + 1;
  if (start < 0) return 0;
  for (let i = 0; i < usualTail.length; i++) if (data[start + i] !== usualTail[i]) return 0;
  return seq;
};

const field = (value: unknown, name: string): unknown =>
  typeof value === 'object' && value !== null && name in value ? (value as Record<string, unknown>)[name] : undefined;

/** The `error` of a JetStream API answer, or undefined. */
export const apiError = (body: unknown): { readonly code: number; readonly errCode: number; readonly description: string } | undefined => {
  const error = field(body, 'error');
  if (error === undefined) return undefined;
  const description = field(error, 'description');
  return {
    code: Number(field(error, 'code') ?? 0),
    errCode: Number(field(error, 'err_code') ?? 0),
    description: typeof description === 'string' ? description : '',
  };
};

/** Reads the answer to a publish. What cannot be read counts as refused with code 0, never as stored. */
export const readAck = (message: Msg): Ack => {
  const { data } = message;
  const usual = usualSeq(data);
  if (usual > 0) return { stored: true, seq: usual };
  const unreadable: Ack = { stored: false, fenced: false, code: 0, errCode: 0, description: 'The answer could not be read.' };
  let body: unknown;
  try {
    body = JSON.parse(message.string());
  } catch {
    return unreadable;
  }
  const error = apiError(body);
  if (error !== undefined) return { stored: false, fenced: fenceCodes.has(error.errCode), ...error };
  const seq = field(body, 'seq');
  return typeof seq === 'number' && seq > 0 ? { stored: true, seq } : unreadable;
};
