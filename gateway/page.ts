/**
 * The hook for pages rendered on the server: what a page is given, what it may ask, what it answers.
 *
 * Guarantees: a page reaches the daemon only through `ask`, over the same closed table as every client, with the session cookie of its
 * own request; a page never runs for a request that an address bucket refused; what it throws is answered as on every route.
 * Pages are pages of the platform surface: the headers of `pageHeaders` are set on every answer that is HTML.
 * Holds no page itself: `gateway/pages` gives the tables, gateway.ts takes them as a dependency.
 */
import type { AnswerHeaders, RequestContext } from '../contracts/platform.ts';
import type { Answer } from './answer.ts';

/** The request as a page sees it. */
export interface PageRequest {
  readonly method: 'GET' | 'POST';
  /** Path without query. */
  readonly path: string;
  /** Values of the path's `:name` parts, in their order, decoded. */
  readonly params: readonly string[];
  /** Query values by name. A repeated name has its first value. */
  readonly query: Readonly<Record<string, string>>;
  /** Fields of a form post, `csrf` left out; empty for a GET. */
  readonly fields: Readonly<Record<string, string>>;
  /** True if the browser sent a session cookie; whether it is a good one is the daemon's to say. */
  readonly hasSession: boolean;
  readonly context: RequestContext;
  readonly signal: AbortSignal;
}

export interface AskInput {
  /** Values as text, checked by the route's schema. */
  readonly query?: Readonly<Record<string, string>>;
  readonly body?: unknown;
}

/** A success of the route's. */
export interface Asked {
  readonly status: number;
  readonly headers: AnswerHeaders;
  /** The body; undefined for an empty one or one that is no JSON. */
  readonly json: unknown;
}

/**
 * Asks a platform route by its id. A cookie route gets the request's own session cookie, a route with `auth` none nobody's; routes that need
 * a bearer cannot be asked. Rejects with the daemon's refusal as a CodedError (`code`, `message`, `details`), `validation_error` for a query or
 * body that is not the route's, `unauthorized` where a cookie is needed and there is none, `upstream_unavailable`, `upstream_timeout`.
 */
export type Ask = (routeId: string, input?: AskInput) => Promise<Asked>;

/** Answers a GET. `content-type` must be in the headers; a redirect is status 303 with `location`. */
export type PageHandler = (request: PageRequest, ask: Ask) => Answer | Promise<Answer>;

/** What came of a form post to a platform route. */
export type FormOutcome =
  | ({ readonly kind: 'answered' } & Asked)
  | { readonly kind: 'refused'; readonly status: number; readonly code: string; readonly message: string; readonly details: Readonly<Record<string, unknown>> };

/**
 * Turns the outcome of a form post by a browser (`application/x-www-form-urlencoded`, `Accept` prefers text/html) into a page or a redirect.
 * Undefined = answered in JSON as for everyone. The outcome's Set-Cookie lines are added to its answer. A page of `rate_limited`, `overloaded` or
 * `payload_too_large` can ask nothing (`ask` rejects with that refusal): it would cost what the limit is there to spare.
 */
export type FormPage = (routeId: string, outcome: FormOutcome, request: PageRequest, ask: Ask) => Answer | undefined | Promise<Answer | undefined>;

export interface Pages {
  /**
   * By method and path as uWebSockets.js matches it: `GET /device`, `GET /legal/:id`, `GET /console/*`. A path that is also a GET route of the
   * platform (`GET /api/auth/api-token`) is a page only where `Accept` prefers text/html.
   */
  readonly routes: ReadonlyMap<`GET ${string}`, PageHandler>;
  readonly formPage?: FormPage;
}

export const noPages: Pages = { routes: new Map() };

/**
 * Strict: nothing inline, nothing from elsewhere, no frame around it; forms go to this site only; no address is told to another site.
 * The referrer policy is not `no-referrer`: with that, browsers send `Origin: null` with a form (Fetch standard, "append a request `Origin`
 * header"), and a page's own form would look like another site's.
 */
export const pageHeaders: Readonly<Record<string, string>> = {
  'content-security-policy':
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'",
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'same-origin',
  'cross-origin-opener-policy': 'same-origin',
  'cache-control': 'no-store',
};
