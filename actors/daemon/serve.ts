/**
 * Runs one request of the closed table: verify the capability, parse the body with the route's schema, ask the actor or the
 * daemon's own handler, check the answer, turn errors into answers.
 *
 * Guarantee: nothing reaches an actor or a handler that the route's schema and authentication did not pass here, whatever the
 * gateway checked before. An error that is not coded leaves as `internal_error` with a correlation id; what it was is in the log only.
 * The deadline is the caller's (link-peer.ts abandons it there); it travels with the message.
 */
import { randomUUID } from 'node:crypto';
import type { z } from 'zod';
import { coded, CodedError, errorEntry, shown } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import type { DeploymentRoute } from '../../contracts/deployment.ts';
import type { PlatformRoute } from '../../contracts/platform.ts';
import type { Route, UserPrincipal } from '../../contracts/routes.ts';
import { parseJson, parseValue } from '../../contracts/validate.ts';
import type { Sender } from '../runtime/message.ts';
import type { Capabilities } from './capability.ts';
import type { Answer, Call } from './link-call.ts';
import type { Log } from './log.ts';
import { newSid } from './sid.ts';

export interface HandlerRequest {
  /** Undefined where the route needs nobody. */
  readonly principal: UserPrincipal | undefined;
  /** Parsed by the route's schema; the bytes as they are for a raw body; the query of a route without one. */
  readonly body: unknown;
  readonly call: Call<Route>;
}
/** Answers a route that is served `by: 'daemon'`. Its body must fit the route's schema for the status. */
export type DaemonHandler = (request: HandlerRequest) => Promise<{ readonly status: number; readonly body: unknown }>;

/** What this daemon owns at the moment. */
export interface Ownership {
  readonly partitions: number;
  owns(partition: number): boolean;
  ownsAny(): boolean;
}

export interface ServeOptions {
  readonly capabilities: Pick<Capabilities, 'authorise'>;
  readonly actors: Pick<Sender, 'ask'>;
  readonly ownership: Ownership;
  /** By route id. A route without an entry is `unknown_route`. */
  readonly handlers: Readonly<Record<string, DaemonHandler>>;
  /** Runs a request of the platform surface; its errors are turned into answers here. Absent = those routes are `not_found`. */
  readonly platform?: ((call: Call<PlatformRoute>) => Promise<Answer>) | undefined;
  /** The same for deployments' services. */
  readonly deployments?: ((call: Call<DeploymentRoute>) => Promise<Answer>) | undefined;
  readonly log: Log;
}

export const createServe = (options: ServeOptions): ((call: Call) => Promise<Answer>) => {
  const { capabilities, actors, ownership, handlers, log } = options;

  const run = async (call: Call<Route>): Promise<{ readonly status: number; readonly body: unknown }> => {
    const { route } = call;
    const principal = await capabilities.authorise(route, call.token);
    const body = bodyOf(call);
    requireOwnUserId(body, principal);
    switch (route.serve.by) {
      case 'actor': {
        if (principal === undefined) throw coded('unauthorized');
        const asked = route.serve.call({
          principal, body,
          newSid: () => newSid(principal.org, ownership.partitions, (n) => ownership.owns(n), ownership.ownsAny()),
        });
        const output = await actors.ask({
          address: asked.actor, command: asked.command, input: asked.input, principal, deadlineAt: call.deadlineAt, signal: call.signal,
        });
        return { status: asked.status ?? 200, body: output };
      }
      case 'daemon': {
        const handler = Object.hasOwn(handlers, route.id) ? handlers[route.id] : undefined;
        if (handler === undefined) throw coded('unknown_route');
        return handler({ principal, body, call });
      }
      case 'gateway':
      case 'stream':
        throw coded('unknown_route');
    }
  };

  return async (call) => {
    try {
      if (isPlatform(call)) {
        if (options.platform === undefined) throw coded('not_found');
        return await options.platform(call);
      }
      if (isDeployment(call)) {
        if (options.deployments === undefined) throw coded('not_found');
        return await options.deployments(call);
      }
      if (!isEdge(call)) throw coded('unknown_route');
      const { status, body } = await run(call);
      const schema = answerOf(call.route, status);
      if (schema === undefined) throw new TypeError(`${call.route.id} answered with status ${status}, which its route does not have`);
      const checked = schema.safeParse(body);
      if (!checked.success) throw new TypeError(`${call.route.id} answered with a body that is not its schema's`, { cause: checked.error });
      return { status, body: JSON.stringify(checked.data) };
    } catch (error) {
      return errorAnswer(error, call, log);
    }
  };
};

const isPlatform = (call: Call): call is Call<PlatformRoute> => call.route.surface === 'platform';
const isDeployment = (call: Call): call is Call<DeploymentRoute> => call.route.surface === 'deployment';
const isEdge = (call: Call): call is Call<Route> => call.route.surface === 'edge';

/** What the daemon's part of the answer must be: a route that the gateway mints for has one of its own. */
const answerOf = ({ serve, answers }: Route, status: number): z.ZodType | undefined =>
  (status === 200 && serve.by === 'daemon' && serve.mint !== undefined ? serve.mint.agrees : answers[status]);

const bodyOf = (call: Call<Route>): unknown => {
  const { route, body } = call;
  if (route.body === 'raw') {
    if (body.length > route.bodyMaxBytes) throw coded('payload_too_large');
    return body;
  }
  if (route.body === undefined) {
    if (route.query === undefined || route.serve.by === 'stream') return undefined;
    if (body.length > limits.headMaxBytes) throw coded('payload_too_large');
    return parseValue(route.query, parseJson(body.toString('utf8')));
  }
  if (body.length > route.bodyMaxBytes) throw coded('payload_too_large');
  return parseValue(route.body, parseJson(body.toString('utf8')));
};

const requireOwnUserId = (body: unknown, principal: UserPrincipal | undefined): void => {
  if (principal === undefined || typeof body !== 'object' || body === null || !('user_id' in body)) return;
  if (body.user_id !== principal.sub) throw coded('user_id_mismatch');
};

const errorAnswer = (error: unknown, call: Call, log: Log): Answer => {
  if (error instanceof CodedError && error.entry.kind !== 'bug') {
    return { status: error.entry.http, body: JSON.stringify(shown(error)) };
  }
  const correlationId = randomUUID();
  log.error({ correlation_id: correlationId, route: call.route.id, err: error }, 'request failed on our side');
  const safe = shown(undefined);
  return { status: errorEntry(safe.code).http, body: JSON.stringify({ ...safe, details: { correlation_id: correlationId } }) };
};
