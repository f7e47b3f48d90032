/**
 * One pipeline for every HTTP route of the contract: admit → read → check → forward → answer.
 *
 * Guarantees: what reaches the daemon has passed the route's schema (no unknown field), `user_id` is the token's subject, and
 * the token that goes with it is a capability, never the caller's identity token; a call that is given up by its client is
 * cancelled upstream. Knows no uWebSockets.js: server.ts brings requests here.
 */
import { audiences, bootstrapScopes } from '../contracts/capability.ts';
import { coded } from '../contracts/errors.ts';
import { limits } from '../contracts/limits.ts';
import { routes, sidPattern, type Route } from '../contracts/routes.ts';
import { addressTokens } from '../contracts/subjects.ts';
import { parseJson, parseValue } from '../contracts/validate.ts';
import { errorAnswer, jsonAnswer, textAnswer, upstreamError, type Answer } from './answer.ts';
import type { Capabilities } from './capability.ts';
import type { Clock } from './clock.ts';
import { bearerOf, type Admitted, type Gate } from './gate.ts';
import type { Link } from './link.ts';
import type { Log } from './log.ts';
import type { Metrics } from './metrics.ts';
import { readQuery } from './query.ts';

export interface PipelineOptions {
  readonly gate: Gate;
  readonly capabilities: Capabilities;
  readonly link: Link;
  readonly metrics: Metrics;
  readonly clock: Clock;
  readonly log: Log;
}

const field = (value: unknown, name: string): unknown =>
  (typeof value === 'object' && value !== null ? new Map<string, unknown>(Object.entries(value)).get(name) : undefined);

const utf8 = (bytes: Uint8Array): string => {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    throw coded('bad_request', 'The body is not UTF-8.');
  }
};

export class Pipeline {
  readonly #options: PipelineOptions;

  constructor(options: PipelineOptions) {
    this.#options = options;
  }

  /** See `Gate.admit`. Resolved at once unless identity keys are being fetched. */
  admit(route: Route, address: string, authorization: string): Admitted | Promise<Admitted> {
    return this.#options.gate.admit(route.auth, address, () => bearerOf(authorization));
  }

  /** `query`: of the address, without its question mark. Rejects with a coded error, to be shown by `refuse`. */
  async serve(route: Route, admitted: Admitted, bytes: Uint8Array, query: string, signal: AbortSignal): Promise<Answer> {
    const input = route.body === undefined ? (route.query === undefined ? undefined : readQuery(route.query, query))
      : route.body === 'raw' ? undefined : parseValue(route.body, parseJson(utf8(bytes)));
    const userId = field(input, 'user_id');
    const sub = admitted.kind === 'tier1' ? admitted.identity.sub : admitted.kind === 'tier2' ? admitted.claims.sub : undefined;
    if (userId !== undefined && userId !== sub) throw coded('user_id_mismatch');
    if (route.serve.by === 'gateway') return this.#own(route, admitted);
    if (route.id === routes.health.id) return this.#health(signal);
    const { capabilities, clock, link, metrics } = this.#options;
    const startedMs = clock.monotonicMs();
    const token = admitted.kind === 'tier1' ? capabilities.forAgent(admitted.identity.sub, admitted.identity.org, admitted.identity) : admitted.kind === 'tier2' ? admitted.token : '';
    const partitionKey = admitted.kind === 'tier1' ? resumeKey(admitted.identity.org, field(input, 'resume_sid'))
      : admitted.kind === 'tier2' ? addressTokens({ org: admitted.claims.org, type: 'custody', key: admitted.claims.sub }) : undefined;
    const body = route.body === 'raw' ? bytes : input === undefined ? '' : JSON.stringify(input);
    try {
      const answer = await link.request(route, { token, body, signal, ...(partitionKey === undefined ? {} : { partitionKey }) });
      if (!Object.hasOwn(route.answers, answer.status)) throw upstreamError(answer, route.auth.kind);
      const { serve } = route;
      if (answer.status === 200 && serve.by === 'daemon' && serve.mint !== undefined && admitted.kind === 'tier2') {
        const agreed = serve.mint.agrees.safeParse(jsonOf(answer.body));
        if (!agreed.success) throw coded('upstream_error');
        const minted = capabilities.mint(admitted.claims.sub, admitted.claims.org, audiences.custody, serve.mint.scopes, admitted.claims);
        return jsonAnswer(200, { ...agreed.data, token: minted.token, expires_at_unix: minted.exp });
      }
      return { ...jsonAnswer(answer.status, null), body: answer.body };
    } finally {
      metrics.upstream.observe((clock.monotonicMs() - startedMs) / 1_000);
    }
  }

  /** 200 only if the daemon itself answers; whatever else happens is 503. */
  async #health(signal: AbortSignal): Promise<Answer> {
    const { link, log } = this.#options;
    const answer = await link.request(routes.health, { token: '', body: '', signal, deadlineMs: limits.healthDeadlineMs }).catch((error: unknown) => {
      log.debug({ error: String(error) }, 'the daemon does not answer');
      throw coded('upstream_unavailable');
    });
    if (answer.status !== 200) throw coded('upstream_unavailable');
    return textAnswer(200, 'OK');
  }

  /** The answer to a thrown value; counts it. */
  refuse(route: string, error: unknown): Answer {
    const answer = errorAnswer(error, this.#options.log);
    this.count(route, answer.status);
    return answer;
  }

  count(route: string, status: number): void {
    this.#options.metrics.requests.add(route, status);
  }

  /** Routes the gateway answers alone. */
  #own(route: Route, admitted: Admitted): Answer {
    const { capabilities } = this.#options;
    if (route.id === routes.bootstrap.id && admitted.kind === 'tier1') {
      const { sub, org } = admitted.identity;
      const minted = capabilities.mint(sub, org, audiences.custody, bootstrapScopes, admitted.identity);
      return jsonAnswer(200, {
        access_token: minted.token, token_type: 'Bearer', user_id: sub,
        expires_in: minted.exp - minted.iat, expires_at: new Date(minted.exp * 1_000).toISOString(),
      });
    }
    throw coded('internal_error', `The route ${route.id} has nobody to answer it.`);
  }
}

/** Undefined for what is not JSON: no schema takes it. */
const jsonOf = (body: Buffer): unknown => {
  try {
    return JSON.parse(body.toString('utf8'));
  } catch {
    return undefined;
  }
};

/** The partition of a session that is resumed; a sid that cannot be one has none (the daemon refuses it). */
const resumeKey = (org: string, sid: unknown): string | undefined =>
  (typeof sid === 'string' && sidPattern.test(sid) ? addressTokens({ org, type: 'session', key: sid }) : undefined);
