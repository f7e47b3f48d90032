/**
 * The platform surface (`/api/...`): what a route of it is, who may call, and how a call travels between gateway and daemon.
 *
 * Guarantees: the daemon learns of a request only what `requestContext` and the route's schemas name; an answer can set only the headers
 * of `answerHeaders`. Who calls is decided by the daemon alone, from the token that travels beside the body (interface 5.1).
 */
import { z } from 'zod';
import { limits } from './limits.ts';
import type { KeyScope } from './permissions.ts';
import type { ActorAddress } from './subjects.ts';

/** What the gateway says about the request besides its token and body. */
export const requestContext = z.strictObject({
  /** Remote address after trusted proxies: IPv4 or IPv6 text. */
  ip: z.string().max(64),
  /** Cut to `limits.userAgentMaxChars`; empty if none. */
  user_agent: z.string().max(limits.userAgentMaxChars),
  /** CSRF proof of a browser's request: header `X-CSRF-Token`, or the form field `csrf`. Only sent on for cookie routes. */
  csrf: z.string().max(limits.csrfMaxChars).optional(),
  /** Further cookies that the route names in `cookies`, by name. */
  cookies: z.record(z.string().max(64), z.string().max(limits.bearerMaxBytes)).optional(),
  /** Further headers that the route names in `headers`, by name in lower case. */
  headers: z.record(z.string().max(64), z.string().max(limits.bearerMaxBytes)).optional(),
  /** Values of the path's parameters, in its order. */
  params: z.array(z.string().max(limits.headMaxBytes)).max(limits.pathParamsMax).optional(),
});
export type RequestContext = z.infer<typeof requestContext>;

/** Link body of a platform call. */
export const platformCall = z.strictObject({ context: requestContext, query: z.unknown().optional(), body: z.unknown().optional() });
export type PlatformCall = z.infer<typeof platformCall>;

/** Headers an answer may carry; all else is the gateway's. */
export const answerHeaders = z.strictObject({
  'content-type': z.string().optional(),
  'content-disposition': z.string().optional(),
  'cache-control': z.string().optional(),
  location: z.string().optional(),
  'retry-after': z.string().optional(),
  etag: z.string().optional(),
  vary: z.string().optional(),
  'accept-ranges': z.string().optional(),
  'content-range': z.string().optional(),
  'content-encoding': z.string().optional(),
  'content-security-policy': z.string().optional(),
  /** Bytes of a body that comes in pieces, known beforehand: more or fewer do not leave the gateway as a complete answer. */
  'content-length': z.string().regex(/^(0|[1-9]\d{0,15})$/).optional(),
  'x-ratelimit-limit': z.string().optional(),
  'x-ratelimit-remaining': z.string().optional(),
  'x-ratelimit-reset': z.string().optional(),
  /** Names the AI SDK's stream (contracts/ui-chat.ts). */
  'x-vercel-ai-ui-message-stream': z.string().optional(),
  /** Each becomes a line of its own. */
  'set-cookie': z.array(z.string()).optional(),
});
export type AnswerHeaders = z.infer<typeof answerHeaders>;

/** Link body of a platform answer with a status of the route's. `text` is the finished body. Error answers are `{code, message, details?, headers?}` as on the edge. */
export const platformAnswer = z.strictObject({ headers: answerHeaders, text: z.string() });
export type PlatformAnswer = z.infer<typeof platformAnswer>;

/**
 * The first text of a link stream that answers a platform route: status and headers, which leave with the first piece of the body. What follows is the body as it is; a close with
 * `normal` is its end, any other close means that the rest is missing. `whole`: the body is one JSON text, for a status of the route's its
 * answer, else an error answer `{code, message, details?}`; it is to be sent as one answer.
 */
export const streamHead = z.strictObject({ status: z.int().min(200).max(599), headers: answerHeaders, whole: z.boolean() });
export type StreamHead = z.infer<typeof streamHead>;

/** Claims of an access token (interface 2.2; decisions, Device flow and tokens). */
export const accessClaims = z.object({
  iss: z.string(),
  aud: z.literal('troupe-platform'),
  sub: z.string(),
  email: z.string(),
  /** Memberships at the time of issue: a hint, never the basis of a decision. */
  orgs: z.array(z.object({ id: z.string(), role: z.string() })),
  /** Hash of the policy manifest its user had accepted; empty = none. */
  policy: z.string(),
  iat: z.int(),
  exp: z.int(),
  jti: z.string(),
  /** The grant (login) it belongs to. */
  grant: z.string(),
  scopes: z.array(z.string()).optional(),
});
export type AccessClaims = z.infer<typeof accessClaims>;
export const accessAudience = 'troupe-platform';

/** A session cookie's and a sign-in cookie's name (RFC 6265bis, 4.1.3.2: `__Host-` binds it to this host, https and path /). */
export const cookieNames = { session: '__Host-troupe', signin: '__Host-troupe-signin' } as const;

/** Who asks, as the daemon has verified it. */
export type Caller =
  | {
      readonly kind: 'user';
      readonly userId: string;
      readonly email: string;
      readonly name: string;
      readonly grantId: string;
      /** Of an access token; undefined for a browser session. */
      readonly jti?: string;
      /** Hash of the policy manifest the presented token stands for (a browser session: accepted by now); empty = none. */
      readonly policy: string;
      /** Hash of the manifest this person has accepted last, by now; empty = none. */
      readonly accepted: string;
      /** Unix milliseconds at which the presented token ends. */
      readonly expiresAtMs: number;
    }
  | {
      readonly kind: 'key';
      readonly organizationId: string;
      readonly keyId: string;
      readonly scopes: readonly KeyScope[];
      /** Its maker: an API key acts with that person's acceptance. */
      readonly createdBy: string;
      readonly policy: string;
    };

/** Who asks, as actors are told: journaled with what they did (audit). */
export const by = z.strictObject({
  /** `usr_…`, or `key_…` for an API key. */
  actor: z.string().max(limits.idMaxChars),
  /** Scopes of an API key; absent for a person. */
  scopes: z.array(z.string()).optional(),
  email: z.string().optional(),
  name: z.string().optional(),
  ip: z.string().max(64),
  user_agent: z.string().max(limits.userAgentMaxChars),
});
export type By = z.infer<typeof by>;

export const byOf = (caller: Caller, context: RequestContext): By => ({
  ...(caller.kind === 'user' ? { actor: caller.userId, email: caller.email, name: caller.name } : { actor: caller.keyId, scopes: [...caller.scopes] }),
  ip: context.ip, user_agent: context.user_agent,
});

export type PlatformAuth =
  /** Nobody in particular. */
  | { readonly kind: 'none' }
  /** `Authorization: Bearer` with an access token or an API key. */
  | { readonly kind: 'access' }
  /** Browser session cookie; every method but GET also needs the CSRF proof. `optional`: also serves nobody (then caller is undefined). */
  | { readonly kind: 'cookie'; readonly optional?: boolean }
  /** A person by either: with an Authorization header as `access` (no API key), else as `cookie`. */
  | { readonly kind: 'person' };

/** What an actor route asks. */
export interface PlatformAsk {
  readonly actor: ActorAddress;
  readonly command: string;
  readonly input: unknown;
}

export interface PlatformRequest<Query = unknown, Body = unknown> {
  readonly caller: Caller;
  readonly context: RequestContext;
  readonly query: Query;
  readonly body: Body;
}

export interface PlatformRoute<Query = unknown, Body = unknown> {
  readonly id: string;
  /** Number on the link, from 100. */
  readonly wire: number;
  readonly surface: 'platform';
  readonly method: 'GET' | 'POST' | 'PATCH' | 'DELETE';
  /** `:name` stands for one part of it. */
  readonly path: string;
  readonly summary: string;
  readonly auth: PlatformAuth;
  /** Query values are text. */
  readonly query?: z.ZodType<Query>;
  readonly body?: z.ZodType<Body>;
  readonly bodyMaxBytes: number;
  /** The body, of any type, comes to the daemon as it arrives and is never held whole (`serve.by` `stream` only, `body` absent). */
  readonly upload?: boolean;
  /** Also takes `application/x-www-form-urlencoded` (OAuth endpoints and pages without JavaScript). The form field `csrf` is taken out and becomes the proof. */
  readonly form?: boolean;
  /** The body goes to the daemon byte for byte and unread, of whatever type: a signature is over it, or something else is to be checked first. Its handler gets a Buffer; `body` describes it. */
  readonly raw?: boolean;
  /** Names of further cookies that go to the daemon. */
  readonly cookies?: readonly string[];
  /** Names, in lower case, of further headers that go to the daemon. */
  readonly headers?: readonly string[];
  /** Success statuses with their JSON body; `text` = another media type, named in the answer's headers; `empty` = no body (a redirect, 204). */
  readonly answers: Readonly<Record<number, z.ZodType | 'text' | 'empty'>>;
  readonly errors: readonly string[];
  /** Shape of error bodies: `{error: {code, message, details?}}`, flat OAuth (`error`, `error_description`), or OpenAI's. Default envelope. */
  readonly errorShape?: 'envelope' | 'oauth' | 'openai';
  /** Status of validation_error; default 422, 400 on organization endpoints (interface 7.2). OAuth endpoints: always 400 `invalid_request`. */
  readonly invalidStatus?: 400 | 422;
  readonly serve:
    /** A handler of the daemon, by route id. */
    | { readonly by: 'daemon' }
    /** Answered over a link stream (`streamHead`): for what may take long, or comes in pieces (chat). */
    | { readonly by: 'stream' }
    | {
        readonly by: 'actor';
        readonly status?: number;
        /** Throws a refusal for a bad combination. */
        readonly call: (request: PlatformRequest<Query, Body>) => PlatformAsk;
      };
}

export const platformRoute = <Query = undefined, Body = undefined>(route: PlatformRoute<Query, Body>): PlatformRoute<Query, Body> => route;
