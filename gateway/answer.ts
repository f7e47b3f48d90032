/**
 * Answers as the edge shows them: `{error, message, ...extras}` with the closed list of codes of decisions, Edge gateway.
 *
 * Guarantees: a 400 or 404 carries only a code of the list (another refusal becomes `bad_request` or `not_found` with its own
 * code as `reason`); upstream text has no file path and at most 256 characters; an unexpected fault is 500 `internal` and nothing
 * more, its correlation id in a header and in the log.
 */
import { randomUUID } from 'node:crypto';
import { CodedError, coded, errorEntry, errors, type ErrorKind } from '../contracts/errors.ts';
import type { LinkAnswer } from './link.ts';
import type { Log } from './log.ts';
import { redact } from './redact.ts';

/** Where a body in pieces is written, once its head has been. After `end` or `cut`: nothing. */
export interface PieceOutlet {
  /** False: the client takes nothing more for now; `onWritable` says when it does. The bytes are taken in any case. */
  write(bytes: Uint8Array): boolean;
  /** The body is complete. */
  end(): void;
  /** Its rest is missing: the connection ends, so that the client sees that. */
  cut(): void;
}

/** A body that comes in pieces. */
export interface Pieces {
  /** Called at most once, when the head has been written. */
  start(outlet: PieceOutlet): { onWritable(): void };
  /** In place of `start`: nobody takes it (an answer to HEAD). */
  drop(): void;
}

export interface Answer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  /** Set-Cookie lines, one each. */
  readonly cookies?: readonly string[];
  readonly body: string | Uint8Array;
  /** In place of `body`. */
  readonly pieces?: Pieces;
  /** Bytes of a body in pieces, where they are known: it then has a Content-Length, and is cut if it has others. */
  readonly length?: number;
}

const json = { 'content-type': 'application/json', 'cache-control': 'no-store', 'x-content-type-options': 'nosniff' } as const;

export const jsonAnswer = (status: number, value: unknown): Answer => ({ status, headers: json, body: JSON.stringify(value) });

export const textAnswer = (status: number, text: string): Answer =>
  ({ status, headers: { ...json, 'content-type': 'text/plain; charset=utf-8' }, body: text });

/** The codes of the two statuses whose list the contract closes; the first stands for every other. */
const closedCodes: Readonly<Record<number, readonly [string, ...string[]]>> = {
  400: ['bad_request', 'bad_user_id', 'bad_digest', 'bad_assertion', 'bad_attestation', 'bad_bearer'],
  404: ['not_found'],
};

/** The body of a coded error, and its headers. `message` must be safe already. */
const codedAnswer = (error: CodedError): Answer => {
  const status = error.entry.http;
  const list = closedCodes[status];
  const shown = list === undefined || list.includes(error.code) ? { error: error.code } : { error: list[0], reason: error.code };
  const body = { ...error.details, ...shown, message: error.message };
  const headers: Record<string, string> = { ...json };
  const wait = error.details?.['retry_after'];
  if (typeof wait === 'number') headers['retry-after'] = String(wait);
  if (status === 401) headers['www-authenticate'] = 'Bearer';
  return { status, headers, body: JSON.stringify(body) };
};

/** What a caller sees of any thrown value. A value that is not coded is logged in full under a correlation id. */
export const errorAnswer = (error: unknown, log: Log): Answer => {
  if (error instanceof CodedError && error.entry.kind !== 'bug') return codedAnswer(error);
  const correlation = randomUUID();
  log.error({ correlation, error: error instanceof Error ? error.stack : String(error) }, 'unexpected fault');
  return {
    status: 500,
    headers: { ...json, 'x-correlation-id': correlation },
    body: JSON.stringify({ error: 'internal', message: errors.internal.message }),
  };
};

const redactValue = (value: unknown, depth: number): unknown => {
  if (typeof value === 'string') return redact(value);
  if (typeof value !== 'object' || value === null) return value;
  if (depth === 0) return null;
  if (Array.isArray(value)) return value.map((entry) => redactValue(entry, depth - 1));
  return Object.fromEntries(Object.entries(value).map(([key, entry]) => [key, redactValue(entry, depth - 1)]));
};

const isRecord = (value: unknown): value is Record<string, unknown> => typeof value === 'object' && value !== null && !Array.isArray(value);

const readBody = (body: Buffer): Record<string, unknown> => {
  try {
    const value: unknown = JSON.parse(body.toString('utf8'));
    return isRecord(value) ? value : {};
  } catch {
    // The daemon answers errors in JSON; what is none has no code and becomes upstream_error.
    return {};
  }
};

/**
 * The coded error a daemon's error answer becomes. A refusal or fault of the table keeps its code; a bug, an unknown shape
 * and a refused capability (that is between gateway and daemon, not the caller's doing) become `upstream_error`.
 */
export const upstreamError = (answer: LinkAnswer, auth: 'none' | 'tier1' | 'tier2'): CodedError => {
  const { code, message, details } = readBody(answer.body);
  const text = typeof message === 'string' ? redact(message) : undefined;
  if (typeof code !== 'string') return coded('upstream_error', text);
  if (code === 'access_ended') return coded('unauthorized', text);
  const entry = errorEntry(code);
  const kind: ErrorKind = entry.kind;
  const ownToken = auth !== 'tier2' && (entry.http === 401 || code === 'wrong_audience' || code === 'scope_insufficient' || code === 'peer_refused');
  if (kind === 'bug' || entry.http === 499 || ownToken) return coded('upstream_error', text);
  const extras = kind === 'refusal' && isRecord(details) ? redactValue(details, 6) : undefined;
  return new CodedError(code, text, isRecord(extras) ? { details: extras } : {});
};
