/**
 * Answers as the platform shows them: headers of success, and errors in the shape of the route (interface 7; decisions, Device flow, Chat).
 *
 * Guarantees: of the daemon's headers only those of `answerHeaders` pass, and none with a character that could end its line; a refusal shows
 * its own code, message and details; a fault shows its code and the table's message; whatever else is 500 `internal_error` and nothing more,
 * its correlation id in a header and in the log.
 */
import { randomUUID } from 'node:crypto';
import { chatError } from '../contracts/chat.ts';
import { CodedError, errorEntry, errors } from '../contracts/errors.ts';
import { platformAnswer, type AnswerHeaders, type PlatformAnswer, type PlatformRoute } from '../contracts/platform.ts';
import type { EnvelopeRoute } from '../contracts/platform-routes.ts';
import type { Answer } from './answer.ts';
import type { LinkAnswer } from './link.ts';
import type { Log } from './log.ts';
import { pageHeaders } from './page.ts';

const usual = { 'content-type': 'application/json', 'cache-control': 'no-store', 'x-content-type-options': 'nosniff' } as const;
const isRecord = (value: unknown): value is Record<string, unknown> => typeof value === 'object' && value !== null && !Array.isArray(value);

/** RFC 9110 section 5.5 without obs-text: what we set is ASCII. */
const headerValue = /^[\t\x20-\x7e]*$/;

const jsonIn = (text: string): unknown => {
  try {
    return JSON.parse(text);
  } catch {
    // Not JSON: no schema takes it.
    return undefined;
  }
};

/** The daemon's answer with a status of the route's. Throws a TypeError (a bug of ours) for one that is not what the contract says. */
export const readAnswer = (route: Pick<EnvelopeRoute, 'id'>, answer: LinkAnswer): PlatformAnswer => {
  const parsed = platformAnswer.safeParse(jsonIn(answer.body.toString('utf8')));
  if (!parsed.success) throw new TypeError(`${route.id}: the daemon's answer is not one of the contract`, { cause: parsed.error });
  return { ...parsed.data, headers: checkedHeaders(route, parsed.data.headers) };
};

/** The headers as they are. Throws a TypeError for a character that could end a line. */
export const checkedHeaders = (route: Pick<EnvelopeRoute, 'id'>, headers: AnswerHeaders): AnswerHeaders => {
  for (const [name, value] of Object.entries(headers)) {
    for (const line of Array.isArray(value) ? value : [value]) {
      if (line !== undefined && !headerValue.test(line)) throw new TypeError(`${route.id}: the daemon's header ${name} has a character that no header may have`);
    }
  }
  return headers;
};

/** The body of an answer as JSON; undefined for none. */
export const answerJson = ({ text }: PlatformAnswer): unknown => (text === '' ? undefined : jsonIn(text));

/** Answer of a success. */
export const successAnswer = (status: number, { headers, text }: PlatformAnswer): Answer => {
  const { 'set-cookie': cookies = [], 'content-length': length, ...lines } = headers;
  const given = Object.fromEntries(Object.entries(lines).filter((line): line is [string, string] => line[1] !== undefined));
  const { 'content-type': type, ...rest } = usual;
  const isHtml = given['content-type']?.toLowerCase().startsWith('text/html') === true;
  return { status, headers: { ...(text === '' ? {} : { 'content-type': type }), ...rest, ...(isHtml ? pageHeaders : {}), ...given }, cookies, body: text, ...(length === undefined ? {} : { length: Number(length) }) };
};

/** A page's answer with what every page has; its own `cache-control` stays. */
export const pageAnswer = (answer: Answer, cookies: readonly string[] = []): Answer => {
  const { 'cache-control': uncached = '', ...strict } = pageHeaders;
  return { ...answer, headers: { 'cache-control': uncached, ...answer.headers, ...strict }, cookies: [...(answer.cookies ?? []), ...cookies] };
};

/** The coded error that a daemon's error answer becomes; a TypeError for one that is a bug or has no code. */
export const daemonError = (route: Pick<EnvelopeRoute, 'id'>, answer: LinkAnswer): Error => {
  const value = jsonIn(answer.body.toString('utf8'));
  const { code, message, details } = isRecord(value) ? value : {};
  if (typeof code !== 'string' || errorEntry(code).kind === 'bug') {
    const correlation = isRecord(details) ? details['correlation_id'] : undefined;
    return new TypeError(`${route.id}: the daemon answered ${answer.status} with ${typeof code === 'string' ? code : 'no code'}${typeof correlation === 'string' ? ` (its correlation id ${correlation})` : ''}`);
  }
  // The route is in the table and its handler is not there: to a caller that is no route.
  if (code === 'unknown_route') return new CodedError('not_found');
  if (errorEntry(code).kind === 'fault') return new CodedError(code, undefined, { cause: value });
  return new CodedError(code, typeof message === 'string' ? message : undefined, isRecord(details) ? { details } : {});
};

/** What a caller is shown of any thrown value. */
export interface Refused {
  readonly status: number;
  readonly code: string;
  readonly message: string;
  readonly details: Readonly<Record<string, unknown>>;
  readonly correlation: string | undefined;
}

/** Words of the deployments' surface for what has another name elsewhere (decisions, Deployment services). */
const deploymentWords: Readonly<Record<string, 'invalid_argument' | 'unauthorized'>> = {
  validation_error: 'invalid_argument', bad_request: 'invalid_argument', bad_user_id: 'invalid_argument', bad_bearer: 'unauthorized',
};

/** What a caller of this route is shown. */
export const refusedBy = (route: Pick<EnvelopeRoute, 'surface' | 'invalidStatus'>, error: unknown, log: Log): Refused => {
  const refused = refusedOf(error, route.invalidStatus, log);
  const code = route.surface === 'deployment' ? deploymentWords[refused.code] : undefined;
  return code === undefined ? refused : { ...refused, code, status: errors[code].http };
};

/** A value that is not coded, or a bug, is logged in full under a correlation id. `invalidStatus`: of `validation_error`, default 422. */
export const refusedOf = (error: unknown, invalidStatus: PlatformRoute['invalidStatus'], log: Log): Refused => {
  if (error instanceof CodedError && error.entry.kind !== 'bug' && error.entry.http !== 499) {
    const status = error.code === 'validation_error' ? invalidStatus ?? error.entry.http : error.entry.http;
    return { status, code: error.code, message: error.message, details: error.details ?? {}, correlation: undefined };
  }
  const correlation = randomUUID();
  log.error({ correlation, error: error instanceof Error ? error.stack : String(error) }, 'unexpected fault');
  return { status: 500, code: 'internal_error', message: errors.internal_error.message, details: {}, correlation };
};

const limited: ReadonlySet<string> = new Set(['rate_limited', 'rate_limit_exceeded', 'slow_down']);
const limitHeaders = [['retry_after', 'retry-after'], ['limit', 'x-ratelimit-limit'], ['remaining', 'x-ratelimit-remaining'], ['reset', 'x-ratelimit-reset']] as const;

/** Ways to authenticate that a bearer satisfies (RFC 6750 section 3). */
const bearerKinds: ReadonlySet<EnvelopeRoute['auth']['kind']> = new Set(['access', 'person', 'deployment']);

const headersOf = ({ status, code, details, correlation }: Refused, auth: EnvelopeRoute['auth']): Record<string, string> => {
  const headers: Record<string, string> = { ...usual };
  if (limited.has(code)) {
    for (const [detail, header] of limitHeaders) {
      const value = details[detail];
      if (typeof value === 'number' && Number.isFinite(value)) headers[header] = String(value);
    }
  }
  // RFC 9110 section 14.4: what there would have been.
  if (code === 'range_not_satisfiable' && typeof details['size'] === 'number') headers['content-range'] = `bytes */${details['size']}`;
  if (status === 401 && bearerKinds.has(auth.kind)) headers['www-authenticate'] = 'Bearer';
  if (correlation !== undefined) headers['x-correlation-id'] = correlation;
  return headers;
};

/** Words of RFC 6749 section 5.2, RFC 8628 section 3.5 and 4.1.2.1 for what has another name elsewhere. */
const oauthWords: Readonly<Record<string, readonly [word: string, status?: number]>> = {
  validation_error: ['invalid_request', 400], bad_request: ['invalid_request'], payload_too_large: ['invalid_request'], invalid_refresh: ['invalid_grant'], internal_error: ['server_error'],
};
const oauthBody = ({ code, status, message }: Refused): { readonly status: number; readonly body: object } => {
  const [word, own] = oauthWords[code] ?? [status === 503 ? 'temporarily_unavailable' : code];
  // RFC 6749 section 5.2: printable ASCII without quote and backslash.
  return { status: own ?? status, body: { error: word, error_description: message.replaceAll(/["\\]/g, '\'').replaceAll(/[^\x20-\x7e]/g, '?') } };
};

const openaiBody = ({ code, status, message, details }: Refused): object =>
  chatError(status, { code, message, param: typeof details['field'] === 'string' ? details['field'] : undefined });

export const envelope = ({ code, message, details }: Pick<Refused, 'code' | 'message' | 'details'>): object =>
  ({ error: { code, message, ...(Object.keys(details).length === 0 ? {} : { details }) } });

/** The error answer of a route, in its shape. */
export const refusalAnswer = (route: Pick<EnvelopeRoute, 'errorShape' | 'auth'>, refused: Refused): Answer => {
  const headers = headersOf(refused, route.auth);
  switch (route.errorShape ?? 'envelope') {
    case 'oauth': {
      const { status, body } = oauthBody(refused);
      return { status, headers, body: JSON.stringify(body) };
    }
    case 'openai':
      return { status: refused.status, headers, body: JSON.stringify(openaiBody(refused)) };
    case 'envelope':
      return { status: refused.status, headers, body: JSON.stringify(envelope(refused)) };
  }
};

