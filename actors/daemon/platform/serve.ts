/**
 * Runs one request of the platform surface: who calls, what is asked, who answers.
 *
 * Guarantees: the caller is decided here from the token, whatever the gateway found; query and body pass the route's schemas here again;
 * a handler or an actor is reached only over the closed table; an answer has a status and a body of the route's. What is thrown is
 * turned into an error answer by serve.ts, as on every route.
 */
import { z } from 'zod';
import { coded, CodedError } from '../../../contracts/errors.ts';
import { limits } from '../../../contracts/limits.ts';
import { platformCall, type AnswerHeaders, type Caller, type PlatformAnswer, type PlatformRoute, type RequestContext } from '../../../contracts/platform.ts';
import type { EnvelopeRoute } from '../../../contracts/platform-routes.ts';
import { issuesOf, parseJson } from '../../../contracts/validate.ts';
import type { Sender } from '../../runtime/message.ts';
import type { Answer, Call } from '../link-call.ts';

/** Who calls. Throws `unauthorized`; `forbidden` for a missing or wrong CSRF proof. */
export interface Callers {
  authorise(route: PlatformRoute, token: string, context: RequestContext): Promise<Caller | undefined>;
}

/** A request whose caller is known. */
export interface PlatformHandlerRequest<Who extends Caller | undefined = Caller> {
  readonly caller: Who;
  /** What the caller showed: an access token, an API key or a session cookie; empty if nothing. */
  readonly token: string;
  readonly context: RequestContext;
  /** Parsed by the route's schemas; a raw body is a Buffer. */
  readonly query: unknown;
  readonly body: unknown;
  /** As `performance.now()`. */
  readonly deadlineAt: number;
  readonly signal: AbortSignal;
}

export interface PlatformResult {
  readonly status: number;
  /** JSON of the route's schema for the status. */
  readonly body?: unknown;
  /** Instead of `body`, for an answer that is no JSON (an export). Needs a content-type in `headers`. */
  readonly text?: string;
  readonly headers?: AnswerHeaders;
}

/** Answers one route. Routes with `auth` none or an optional cookie have no caller. */
export type PlatformHandler =
  | { readonly needs: 'caller'; readonly run: (request: PlatformHandlerRequest) => Promise<PlatformResult> }
  | { readonly needs: 'nobody'; readonly run: (request: PlatformHandlerRequest<Caller | undefined>) => Promise<PlatformResult> };

/** For routes that need a caller. */
export const forCaller = (run: (request: PlatformHandlerRequest) => Promise<PlatformResult>): PlatformHandler => ({ needs: 'caller', run });
/** For routes that anyone may ask. */
export const forAnyone = (run: (request: PlatformHandlerRequest<Caller | undefined>) => Promise<PlatformResult>): PlatformHandler => ({ needs: 'nobody', run });

export interface PlatformServeOptions {
  readonly callers: Callers;
  readonly actors: Pick<Sender, 'ask'>;
  /** By route id. */
  readonly handlers: Readonly<Record<string, PlatformHandler>>;
}

/** A raw body on the link. */
const rawBody = z.base64();

/** The value of a route's schema, or `validation_error` with the paths in `details.issues`; on the platform every bad value has this one code. */
export const parsePlatform = (schema: z.ZodType, value: unknown): unknown => {
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  const issues = issuesOf(parsed.error).map(({ place, problem }) => ({ field: place, constraint: problem }));
  throw coded('validation_error', undefined, { details: { ...issues[0], issues } });
};

export const createPlatformServe = ({ callers, actors, handlers }: PlatformServeOptions): ((call: Call<PlatformRoute>) => Promise<Answer>) => {
  const run = async (call: Call<PlatformRoute>): Promise<PlatformResult> => {
    const { route, token, deadlineAt, signal } = call;
    const sent = envelopeOf(call);
    const caller = await callers.authorise(route, token, sent.context);
    const query = route.query === undefined ? undefined : parsePlatform(route.query, sent.query);
    const body = route.raw === true ? Buffer.from(rawBody.parse(sent.body), 'base64') : route.body === undefined ? undefined : parsePlatform(route.body, sent.body);
    const { serve } = route;
    switch (serve.by) {
      case 'actor': {
        if (caller === undefined) throw coded('unauthorized');
        const asked = serve.call({ caller, context: sent.context, query, body });
        const output = await actors.ask({ address: asked.actor, command: asked.command, input: asked.input, principal: { kind: 'system' }, deadlineAt, signal });
        return { status: serve.status ?? 200, body: output };
      }
      case 'daemon': {
        const handler = Object.hasOwn(handlers, route.id) ? handlers[route.id] : undefined;
        if (handler === undefined) throw coded('unknown_route');
        const request = { token, context: sent.context, query, body, deadlineAt, signal };
        if (handler.needs === 'nobody') return handler.run({ ...request, caller });
        if (caller === undefined) throw coded('unauthorized');
        return handler.run({ ...request, caller });
      }
      case 'stream':
        throw coded('unknown_route');
    }
  };

  return async (call) => {
    const result = await run(call);
    const answer: PlatformAnswer = { headers: result.headers ?? {}, text: textOf(call.route, result) };
    return { status: result.status, body: JSON.stringify(answer) };
  };
};

/** The link's body of a platform call. Throws `payload_too_large`, `bad_request`. */
export const envelopeOf = (call: Pick<Call<EnvelopeRoute>, 'route' | 'body'>): z.output<typeof platformCall> => {
  // Base64 makes four bytes of three.
  const most = call.route.raw === true ? Math.ceil(call.route.bodyMaxBytes / 3) * 4 : call.route.bodyMaxBytes;
  if (call.body.length > most + limits.headMaxBytes) throw coded('payload_too_large');
  const parsed = platformCall.safeParse(parseJson(call.body.toString('utf8')));
  if (!parsed.success) throw new CodedError('bad_request');
  return parsed.data;
};

/** The text of a handler's answer, checked with its route's schema for the status. Throws (a bug) for one that is not the route's. */
export const textOf = (route: EnvelopeRoute, { status, body, text }: PlatformResult): string => {
  const schema = route.answers[status];
  if (schema === undefined) throw new TypeError(`${route.id} answered with status ${status}, which its route does not have`);
  if (schema === 'empty') return '';
  if (text !== undefined) return text;
  if (schema === 'text') throw new TypeError(`${route.id} answered without its text`);
  const checked = schema.safeParse(body);
  if (!checked.success) throw new TypeError(`${route.id} answered with a body that is not its schema's`, { cause: checked.error });
  return JSON.stringify(checked.data);
};
