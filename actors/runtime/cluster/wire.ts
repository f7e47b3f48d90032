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
import { parseJson, parseValue } from '../../../contracts/validate.ts';

export const errorHeaders = { status: 'Nats-Service-Error-Code', message: 'Nats-Service-Error', code: 'Troupe-Error' } as const;
/** Optional headers of a public request: dedup id (an ask's idempotency key), and milliseconds the caller waits. */
export const requestHeaders = { id: 'Troupe-Id', deadlineMs: 'Troupe-Deadline-Ms' } as const;

const encoder = new TextEncoder();

const principal = z.discriminatedUnion('kind', [
  z.object({ kind: z.literal('user'), sub: z.string(), org: z.string(), scopes: z.array(z.string()) }),
  z.object({ kind: z.literal('integrator'), org: z.string() }),
  z.object({ kind: z.literal('system') }),
  z.object({ kind: z.literal('self') }),
]);
const ownerRequest = z.object({ input: z.unknown(), principal, id: z.string().min(1).max(limits.messageIdMaxChars).optional(), deadlineMs: z.number().positive() });

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
  const data = encoder.encode(text);
  if (data.length > limits.commandMaxBytes) throw coded('payload_too_large');
  return data;
};
export const decodeOwnerRequest = (msg: Msg): OwnerRequest => {
  if (msg.data.length > limits.commandMaxBytes) throw coded('payload_too_large');
  const request = parseValue(ownerRequest, parseJson(msg.string()));
  return { ...request, deadlineMs: Math.min(request.deadlineMs, limits.askDeadlineMaxMs) };
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
  const data = output === undefined ? new Uint8Array() : encoder.encode(JSON.stringify(output));
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
