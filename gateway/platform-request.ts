/**
 * A platform request's head, read once: what its token is, who might have sent it, what of it the daemon is told.
 *
 * Guarantee: the daemon learns the address, the cut User-Agent, the CSRF proof, the cookies and headers that the route names, and nothing else.
 */
import { limits } from '../contracts/limits.ts';
import { cookieNames, type RequestContext } from '../contracts/platform.ts';
import type { EnvelopeRoute } from '../contracts/platform-routes.ts';
import { prefersHtml } from './accept.ts';
import { cookieIn } from './cookies.ts';
import type { RequestHead } from './endpoint.ts';

export interface PlatformRequest {
  readonly path: string;
  readonly params: readonly string[];
  readonly query: string;
  readonly address: string;
  readonly authorization: string;
  /** Bytes of body that the client says it sends; Infinity if it does not say. HTTP holds it to that. */
  readonly announced: number;
  /** Value of the session cookie. */
  readonly session: string | undefined;
  /** All cookies, for those a route names. */
  readonly cookies: string;
  /** Media type without parameters, lower case; empty if none. */
  readonly contentType: string;
  readonly prefersHtml: boolean;
  readonly userAgent: string;
  readonly csrf: string;
  readonly origin: string;
  readonly fetchSite: string;
  readonly host: string;
  /** Headers that the route names and that are there. */
  readonly named: Readonly<Record<string, string>>;
}

export const formType = 'application/x-www-form-urlencoded';

/** `named`: further headers to keep, in lower case. */
export const readHead = (head: RequestHead, named: readonly string[] = []): PlatformRequest => {
  const cookies = head.header('cookie');
  const length = head.header('content-length');
  return {
    named: Object.fromEntries(named.map((name) => [name, head.header(name).slice(0, limits.bearerMaxBytes).toWellFormed()] as const).filter(([, value]) => value !== '')),
    path: head.path, params: head.params, query: head.query, address: head.address, authorization: head.header('authorization'),
    announced: /^\d+$/.test(length) ? Number(length) : Infinity,
    session: cookieIn(cookies, cookieNames.session), cookies,
    contentType: (head.header('content-type').split(';', 1)[0] ?? '').trim().toLowerCase(),
    prefersHtml: prefersHtml(head.header('accept')),
    // Cut in code units, then made whole: half a character has no UTF-8.
    userAgent: head.header('user-agent').slice(0, limits.userAgentMaxChars).toWellFormed(),
    csrf: head.header('x-csrf-token'), origin: head.header('origin'), fetchSite: head.header('sec-fetch-site'), host: head.header('host'),
  };
};

/** What the daemon is told of a request to this route. `csrf`: the proof, from the header or the form. */
export const contextFor = (route: EnvelopeRoute, request: PlatformRequest, csrf: string): RequestContext => {
  const cookies = (route.cookies ?? []).flatMap((name) => {
    const value = cookieIn(request.cookies, name);
    return value === undefined ? [] : [[name, value] as const];
  });
  return {
    ip: request.address, user_agent: request.userAgent,
    ...((route.auth.kind === 'cookie' || route.auth.kind === 'person') && csrf !== '' ? { csrf } : {}),
    ...(cookies.length === 0 ? {} : { cookies: Object.fromEntries(cookies) }),
    ...(Object.keys(request.named).length === 0 ? {} : { headers: request.named }),
    ...(request.params.length === 0 ? {} : { params: [...request.params] }),
  };
};
