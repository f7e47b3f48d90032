/**
 * The platform's routes as a page of this site calls them: with the browser's session cookie, a CSRF proof and a short access token.
 *
 * Guarantees: the access token lives in this object only, never in a storage or an address; a call that meets 401 is repeated once with
 * a new token, which needs a living session; then `unauthorized` means that nobody is signed in here any more. Every call has a deadline.
 * A refusal arrives as `CodedError` with the server's code, message and details; no answer as `upstream_unavailable`.
 */
import { coded, CodedError } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { fields, flag, list, oneOf, orNull, text, type Read } from './read.ts';

export interface Person {
  readonly id: string;
  readonly email: string;
  readonly name: string;
}
export interface BrowserSession {
  /** null = nobody is signed in. */
  readonly user: Person | null;
  readonly csrf: string | null;
  readonly legalAccepted: boolean;
  readonly providers: readonly ('email' | 'google' | 'github')[];
}

const session: Read<BrowserSession> = fields<BrowserSession>({
  user: orNull(fields<Person>({ id: text, email: text, name: text })), csrf: orNull(text), legalAccepted: flag, providers: list(oneOf(['email', 'google', 'github'])),
});
const accessToken = fields({ access_token: text });

export type Query = Readonly<Record<string, string>>;
export type Method = 'POST' | 'PATCH' | 'DELETE';
export type ApiFetch = (url: string, init: { method: string; headers: Record<string, string>; body?: string; signal: AbortSignal; credentials: 'same-origin'; redirect: 'error' }) => Promise<Response>;

const isFields = (value: unknown): value is Readonly<Record<string, unknown>> => typeof value === 'object' && value !== null && !Array.isArray(value);
const parsed = (body: string): unknown => {
  try {
    return JSON.parse(body);
  } catch {
    return undefined;
  }
};

/** Both error shapes there are: the platform's envelope, and the flat one of the edge and of what stands before the platform. */
const refusalOf = (status: number, body: unknown, retryAfter: string | null): CodedError => {
  const outer = isFields(body) ? body : {};
  const shape = isFields(outer['error']) ? outer['error'] : { code: outer['error'], message: outer['message'], details: {} };
  const { code, message, details } = shape;
  if (typeof code !== 'string') return coded('upstream_error', `The server answered ${status} without an error code.`);
  return new CodedError(code, typeof message === 'string' ? message : undefined, {
    details: { ...(retryAfter === null ? {} : { retry_after: Number(retryAfter) }), ...(isFields(details) ? details : {}), status },
  });
};

const unreachable = (cause: unknown): CodedError => coded('upstream_unavailable', 'The server cannot be reached. Check the connection and try again.', { cause });

export class Api {
  readonly #fetch: ApiFetch;
  #csrf: string | null = null;
  #token: Promise<string> | undefined;

  constructor(send: ApiFetch) {
    this.#fetch = send;
  }

  /** Who is signed in in this browser. `not_found` where the gateway has no platform. */
  async session(): Promise<BrowserSession> {
    const answer = session(parsed(await this.#call('GET', '/api/auth/session', {})), 'session');
    this.#csrf = answer.csrf;
    return answer;
  }

  async get<T>(path: string, query: Query, read: Read<T>): Promise<T> {
    return read(parsed(await this.text(path, query)), 'answer');
  }

  async send<T>(method: Method, path: string, body: object, read: Read<T>): Promise<T> {
    return read(parsed(await this.#withToken((token) => this.#call(method, path, { authorization: `Bearer ${token}` }, body))), 'answer');
  }

  /** The answer as it is, for an export. */
  text(path: string, query: Query): Promise<string> {
    const search = new URLSearchParams(query).toString();
    return this.#withToken((token) => this.#call('GET', search === '' ? path : `${path}?${search}`, { authorization: `Bearer ${token}` }));
  }

  /**
   * An answer that comes piece by piece. It may take as long as it takes: `signal` ends it, and a connection that breaks shows in the reading.
   * Rejects with the abort's own error once `signal` is aborted.
   */
  open(path: string, body: object, headers: Readonly<Record<string, string>>, signal: AbortSignal): Promise<ReadableStream<Uint8Array>> {
    return this.#withToken(async (token) => {
      const answer = await this.#fetched('POST', path, { accept: 'text/event-stream', authorization: `Bearer ${token}`, ...headers }, body, signal);
      if (answer.body === null) throw coded('upstream_error', 'The answer is empty.');
      return answer.body;
    });
  }

  /** Ends the session of this browser. One that has ended already counts. */
  async signOut(): Promise<void> {
    try {
      await this.#call('POST', '/api/auth/signout', { 'x-csrf-token': this.#csrf ?? '' }, {});
    } catch (error) {
      if (!(error instanceof CodedError && error.code === 'unauthorized')) throw error;
    } finally {
      this.#token = undefined;
    }
  }

  /** What was accepted or joined a moment ago is in the next token. */
  forgetToken(): void {
    this.#token = undefined;
  }

  async #withToken<T>(run: (token: string) => Promise<T>): Promise<T> {
    const given = this.#token ??= this.#newToken();
    try {
      return await run(await given);
    } catch (error) {
      if (!(error instanceof CodedError) || error.entry.http !== 401) throw error;
      // Several calls may meet the same old token: the first of them renews it for all.
      if (this.#token === given) this.#token = this.#newToken();
      return run(await (this.#token ??= this.#newToken()));
    }
  }

  async #newToken(): Promise<string> {
    try {
      if (this.#csrf === null) await this.session();
      if (this.#csrf === null) throw coded('unauthorized');
      const body = await this.#call('POST', '/api/auth/session/token', { 'x-csrf-token': this.#csrf }, {});
      return accessToken(parsed(body), 'token').access_token;
    } catch (error) {
      this.#token = undefined;
      throw error;
    }
  }

  async #call(method: string, path: string, headers: Record<string, string>, body?: object): Promise<string> {
    const signal = AbortSignal.timeout(limits.clientRequestMs);
    try {
      return await (await this.#fetched(method, path, headers, body, signal)).text();
    } catch (cause) {
      if (cause instanceof CodedError) throw cause;
      throw signal.aborted ? coded('deadline_exceeded', undefined, { cause }) : unreachable(cause);
    }
  }

  /** The answer of a success, its body not yet read. */
  async #fetched(method: string, path: string, headers: Record<string, string>, body: object | undefined, signal: AbortSignal): Promise<Response> {
    try {
      const answer = await this.#fetch(path, {
        method, signal, credentials: 'same-origin', redirect: 'error',
        headers: { accept: 'application/json', ...headers, ...(body === undefined ? {} : { 'content-type': 'application/json' }) },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      });
      if (!answer.ok) throw refusalOf(answer.status, parsed(await answer.text()), answer.headers.get('retry-after'));
      return answer;
    } catch (cause) {
      if (cause instanceof CodedError || signal.aborted) throw cause;
      throw unreachable(cause);
    }
  }
}
