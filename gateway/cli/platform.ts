/**
 * The platform's HTTP routes as the command calls them. Answers are checked with the contract's schemas; a refusal arrives as a
 * `CodedError` with the server's code, whichever of the two error shapes it came in.
 *
 * Every call has a deadline; nothing is retried here. A platform that cannot be reached is `upstream_unavailable`. An error's code and
 * message can be printed as they are: no word of a server's reaches a terminal as a command.
 */
import type { z } from 'zod';
import { coded, CodedError } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import type { EdgeFetch } from '../client/edge.ts';
import { plain } from './printer.ts';

export interface PlatformCallInput<S extends z.ZodType> {
  readonly route: { readonly method: string; readonly path: string };
  readonly answer: S;
  readonly token?: string;
  readonly query?: Readonly<Record<string, string>>;
  readonly body?: object;
}

export interface PlatformClient {
  readonly url: string;
  /** Throws the server's refusal, `upstream_unavailable`, `deadline_exceeded`, `upstream_error` for an answer that is none of ours. */
  call<S extends z.ZodType>(input: PlatformCallInput<S>): Promise<z.output<S>>;
  /** The answer's text as it is (an export). */
  text(input: Omit<PlatformCallInput<z.ZodType>, 'answer'>): Promise<string>;
}

const isRecord = (value: unknown): value is Record<string, unknown> => typeof value === 'object' && value !== null && !Array.isArray(value);

const jsonOf = (text: string): unknown => {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
};

const codeForm = /^[a-z][a-z0-9_]{0,63}$/;
const isCode = (value: unknown): value is string => typeof value === 'string' && codeForm.test(value);
const messageOf = (value: unknown): string | undefined => (typeof value === 'string' ? plain(value).replace(/\s+/g, ' ').slice(0, limits.upstreamTextMaxChars) : undefined);

const refusalOf = (status: number, text: string, retryAfter: string | null): CodedError => {
  const body = jsonOf(text);
  const details: Record<string, unknown> = { status, ...(retryAfter === null ? {} : { retry_after_sec: Number(retryAfter) }) };
  if (isRecord(body)) {
    const { error } = body;
    if (isRecord(error) && isCode(error['code'])) {
      return new CodedError(error['code'], messageOf(error['message']), { details: { ...(isRecord(error['details']) ? error['details'] : {}), ...details } });
    }
    if (isCode(error)) {
      return new CodedError(error, messageOf(body['error_description']) ?? messageOf(body['message']), { details });
    }
  }
  return coded('upstream_error', `The platform answered ${status} without an error code.`, { details });
};

export const createPlatform = (options: { readonly url: string; readonly fetch: EdgeFetch }): PlatformClient => {
  const url = options.url.replace(/\/+$/, '');

  const text = async ({ route, token, query, body }: Omit<PlatformCallInput<z.ZodType>, 'answer'>): Promise<string> => {
    // No header can hold it; said here, because the client's own complaint looks like a network that is down.
    if (token !== undefined && !/^[\u0021-\u007e]+$/.test(token)) throw coded('unauthorized', 'The token has characters that no token has.', { details: { status: 401 } });
    const signal = AbortSignal.timeout(limits.clientRequestMs);
    const search = query === undefined ? '' : `?${new URLSearchParams(query).toString()}`;
    try {
      const answer = await options.fetch(`${url}${route.path}${search}`, {
        method: route.method, signal, redirect: 'error',
        headers: {
          accept: 'application/json', 'user-agent': 'troupe-cli', ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
          ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      });
      const got = await answer.text();
      if (answer.status < 200 || answer.status > 299) throw refusalOf(answer.status, got, answer.headers.get('retry-after'));
      return got;
    } catch (cause) {
      if (cause instanceof CodedError) throw cause;
      if (signal.aborted) throw coded('deadline_exceeded', `${url} did not answer in time.`, { cause });
      throw coded('upstream_unavailable', `${url} cannot be reached.`, { cause });
    }
  };

  return {
    url, text,
    call: async ({ answer, ...input }) => {
      const value = jsonOf(await text(input));
      const parsed = answer.safeParse(value);
      // A newer server may say more than this version knows.
      if (!parsed.success && parsed.error.issues.every((issue) => issue.code === 'unrecognized_keys')) return value as z.output<typeof answer>;
      if (!parsed.success) throw coded('upstream_error', `${url} gave an answer that is not this version's.`, { cause: parsed.error });
      return parsed.data;
    },
  };
};
