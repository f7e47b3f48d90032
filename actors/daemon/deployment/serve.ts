/**
 * Runs one request for a deployment's services, as platform/serve.ts does for the platform: who calls, what is asked, who answers.
 *
 * Guarantees: the caller is decided here from the token, whatever the gateway found; query and body pass the route's schemas here again; a
 * handler is reached only over the closed table, with the caller's own deployment and no other; an answer has a status and a body of the route's.
 */
import type { DeploymentRoute } from '../../../contracts/deployment.ts';
import { coded } from '../../../contracts/errors.ts';
import type { PlatformAnswer, RequestContext } from '../../../contracts/platform.ts';
import type { Answer, Call } from '../link-call.ts';
import type { Log } from '../log.ts';
import { envelopeOf, parsePlatform, textOf, type PlatformResult } from '../platform/serve.ts';
import { createAnswerStreams, type AnswerStreams } from '../platform/stream-serve.ts';
import type { DeploymentCallers } from './callers.ts';
import type { DeploymentHandlers, DeploymentRequest } from './deps.ts';

export interface DeploymentServeOptions {
  readonly callers: DeploymentCallers;
  readonly handlers: Required<DeploymentHandlers>;
  readonly log: Log;
}

interface Sent {
  readonly context: RequestContext;
  readonly query: unknown;
  readonly body: unknown;
}

const own = <T>(table: Readonly<Record<string, T>>, id: string): T | undefined => (Object.hasOwn(table, id) ? table[id] : undefined);

/** What was sent, not yet parsed: after the caller, so that nobody learns of schemas without a credential. */
const parsed = (route: DeploymentRoute, sent: { readonly query?: unknown; readonly body?: unknown }): Pick<Sent, 'query' | 'body'> => ({
  query: route.query === undefined ? undefined : parsePlatform(route.query, sent.query),
  body: route.body === undefined ? undefined : parsePlatform(route.body, sent.body),
});

/** One request of a route that is answered at once. */
export const createDeploymentServe = ({ callers, handlers }: Omit<DeploymentServeOptions, 'log'>): ((call: Call<DeploymentRoute>) => Promise<Answer>) => {
  const run = async ({ route, token, body, signal, deadlineAt }: Call<DeploymentRoute>): Promise<PlatformResult> => {
    const sent = envelopeOf({ route, body });
    const caller = await callers.authorise(route, token);
    const request: Omit<DeploymentRequest, 'caller'> = { context: sent.context, ...parsed(route, sent), signal, deadlineAt };
    if (route.auth.kind === 'none') {
      const open = own(handlers.open, route.id);
      if (open === undefined) throw coded('unknown_route');
      return open({ ...request, caller: undefined });
    }
    const handler = own(handlers.plain, route.id);
    if (handler === undefined) throw coded('unknown_route');
    if (caller === undefined) throw coded('unauthorized');
    return handler({ ...request, caller });
  };

  return async (call) => {
    const result = await run(call);
    const answer: PlatformAnswer = { headers: result.headers ?? {}, text: textOf(call.route, result) };
    return { status: result.status, body: JSON.stringify(answer) };
  };
};

/** Routes that are answered over a link stream. */
export const createDeploymentStreams = ({ callers, handlers, log }: DeploymentServeOptions): AnswerStreams<DeploymentRoute> => createAnswerStreams({
  log,
  answer: async (stream, route, answer) => {
    const handler = own(handlers.streams, route.id);
    if (handler === undefined) throw coded('unknown_route');
    const sent = envelopeOf({ route, body: stream.body });
    const caller = await callers.authorise(route, stream.token);
    if (caller === undefined) throw coded('unauthorized');
    await handler({ caller, context: sent.context, ...parsed(route, sent), signal: answer.signal }, answer);
  },
});
