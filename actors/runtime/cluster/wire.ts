/**
 * A command's request and answer as NATS messages. Errors follow the NATS service protocol (ADR-32): the headers
 * `Nats-Service-Error-Code` (the HTTP status of contracts/errors.ts) and `Nats-Service-Error` (the safe message); ours adds
 * `Troupe-Error` (the stable code) and a JSON body {code, message, details?}. An answer without them is the output.
 *
 * Guarantee: only what `shown()` allows leaves the process; an unknown error becomes `internal_error`.
 */
import { headers, type Msg } from 'nats';
import { z } from 'zod';
import type { Principal } from '../../../contracts/capability.ts';
import { CodedError, coded, errorEntry, shown } from '../../../contracts/errors.ts';
import { limits } from '../../../contracts/limits.ts';
import { parseJson } from '../../../contracts/validate.ts';
import { pack, unpack } from '../pack.ts';

export const errorHeaders = { status: 'Nats-Service-Error-Code', message: 'Nats-Service-Error', code: 'Troupe-Error' } as const;
/** Optional headers of a public request: dedup id (an ask's idempotency key), and milliseconds the caller waits. */
export const requestHeaders = { id: 'Troupe-Id', deadlineMs: 'Troupe-Deadline-Ms' } as const;

/** For small texts, which dominate, a Buffer is encoded six times as fast as by TextEncoder. */
const encode = (text: string): Uint8Array => Buffer.from(text, 'utf8');
const empty = new Uint8Array();

const isTexts = (value: unknown): value is readonly string[] => Array.isArray(value) && value.every((item) => typeof item === 'string');
/** By hand, as it is checked on every remote ask. */
const isPrincipal = (value: unknown): value is Principal => {
  if (typeof value !== 'object' || value === null || !('kind' in value)) return false;
  switch (value.kind) {
    case 'system': case 'self': return true;
    case 'integrator': return 'org' in value && typeof value.org === 'string';
    case 'user':
      return 'org' in value && typeof value.org === 'string' && 'sub' in value && typeof value.sub === 'string' && 'scopes' in value && isTexts(value.scopes);
    default: return false;
  }
};
const isId = (value: unknown): value is string | undefined =>
  value === undefined || (typeof value === 'string' && value.length > 0 && value.length <= limits.messageIdMaxChars);

/** What one host sends to another. `deadlineMs` counts from the receipt. */
export interface OwnerRequest {
  readonly input?: unknown;
  readonly principal: Principal;
  readonly id?: string | undefined;
  readonly deadlineMs: number;
}

/** Throws `payload_too_large`, `bad_request` (not JSON). */
export const encodeOwnerRequest = (request: OwnerRequest): Uint8Array => {
  let text: string;
  try {
    text = JSON.stringify(request);
  } catch (cause) {
    throw coded('bad_request', 'The input is not JSON.', { cause });
  }
  const plain = encode(text);
  const data = plain.length > limits.commandPlainMaxBytes ? undefined : pack(plain, limits.commandMaxBytes);
  if (data === undefined) throw coded('payload_too_large');
  return data;
};
/** Throws `payload_too_large`, `bad_request`, `validation_error`. */
export const decodeOwnerRequest = (msg: Msg): OwnerRequest => {
  if (msg.data.length > limits.packedMaxBytes) throw coded('payload_too_large');
  const plain = unpack(msg.data, limits.commandPlainMaxBytes, 'bad_request');
  if (plain === msg.data && plain.length > limits.commandMaxBytes) throw coded('payload_too_large');
  const request = parseJson(Buffer.from(plain.buffer, plain.byteOffset, plain.byteLength).toString('utf8'));
  if (typeof request !== 'object' || request === null) throw coded('validation_error');
  const { input, principal, id, deadlineMs }: { input?: unknown; principal?: unknown; id?: unknown; deadlineMs?: unknown } = request;
  if (!isPrincipal(principal) || !isId(id) || typeof deadlineMs !== 'number' || !(deadlineMs > 0)) throw coded('validation_error');
  return { input, principal, id, deadlineMs: Math.min(deadlineMs, limits.askDeadlineMaxMs) };
};

/** A public request: the body is the input, empty = {}. */
export const decodePublicRequest = (msg: Msg): { input: unknown; id: string | undefined; deadlineMs: number } => {
  if (msg.data.length > limits.commandMaxBytes) throw coded('payload_too_large');
  const id = msg.headers?.get(requestHeaders.id) ?? '';
  if (id.length > limits.messageIdMaxChars) throw coded('bad_request', 'Troupe-Id is too long.');
  const deadline = msg.headers?.get(requestHeaders.deadlineMs) ?? '';
  if (deadline !== '' && !/^[1-9][0-9]{0,8}$/.test(deadline)) throw coded('bad_request', 'Troupe-Deadline-Ms is not a whole number of milliseconds.');
  return {
    input: msg.data.length === 0 ? {} : parseJson(msg.string()),
    id: id === '' ? undefined : id,
    deadlineMs: deadline === '' ? limits.askDeadlineMs : Math.min(Number(deadline), limits.askDeadlineMaxMs),
  };
};

/** Answers with an output. Throws `payload_too_large` if no answer of that size can be sent; then answer with that error. */
export const respondOutput = (msg: Msg, output: unknown): void => {
  const data = output === undefined ? empty : encode(JSON.stringify(output));
  if (data.length > limits.commandMaxBytes) throw coded('payload_too_large', 'The answer is too large to be sent. The request has taken effect.');
  msg.respond(data);
};

export const respondError = (msg: Msg, error: unknown): void => {
  const body = shown(error);
  const head = headers();
  head.set(errorHeaders.status, String(errorEntry(body.code).http));
  // oxlint-disable-next-line no-control-regex
  head.set(errorHeaders.message, body.message.replace(/[\u0000-\u001f\u007f]+/g, ' '));
  head.set(errorHeaders.code, body.code);
  msg.respond(JSON.stringify(body), { headers: head });
};

const errorBody = z.object({ code: z.string(), message: z.string(), details: z.record(z.string(), z.unknown()).optional() });

/** The output of an answer; throws the coded error that it carries. */
export const decodeAnswer = (msg: Msg): unknown => {
  if (msg.headers !== undefined && msg.headers.has(errorHeaders.status)) {
    const body = errorBody.safeParse(parseJson(msg.string()));
    if (!body.success) throw new CodedError(msg.headers.get(errorHeaders.code) || 'internal_error');
    throw new CodedError(body.data.code, body.data.message, body.data.details === undefined ? {} : { details: body.data.details });
  }
  return msg.data.length === 0 ? undefined : parseJson(msg.string());
};
