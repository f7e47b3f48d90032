/**
 * Routes of the platform and of deployments that are answered over a link stream (chat): admission, body and errors as for every platform route; the answer whole
 * or in pieces, as the daemon says.
 */
import { chatError, sseData, sseType } from '../contracts/chat.ts';
import { coded, CodedError, errors } from '../contracts/errors.ts';
import type { StreamHead } from '../contracts/platform.ts';
import type { EnvelopeRoute } from '../contracts/platform-routes.ts';
import { isUiStream, uiFailure, uiPartFailure } from '../contracts/ui-chat.ts';
import type { Answer } from './answer.ts';
import type { HeldBody } from './bodies.ts';
import type { BodySource } from './body-source.ts';
import type { Clock } from './clock.ts';
import type { Credits } from './credit.ts';
import type { Endpoint, Exchange } from './endpoint.ts';
import type { Link } from './link.ts';
import type { Log } from './log.ts';
import type { Metrics } from './metrics.ts';
import { checkedHeaders, daemonError, refusalAnswer, refusedBy, successAnswer } from './platform-answer.ts';
import { readPlatformBody, readPlatformQuery } from './platform-body.ts';
import { isDisbelief, type PlatformAdmitted, type RouteGate } from './platform-gate.ts';
import { contextFor, readHead, type PlatformRequest } from './platform-request.ts';
import { openStreamed, type Streamed } from './streamed.ts';

export interface PlatformStreamOptions {
  readonly routeGate: RouteGate;
  readonly link: Link;
  readonly credits: Credits;
  readonly metrics: Metrics;
  readonly clock: Clock;
  readonly log: Log;
}

/** The last event of a stream whose daemon was lost, in the shape of the stream. */
const lostEvent = (route: EnvelopeRoute) => ({ headers }: StreamHead): string | undefined => {
  if (headers['content-type']?.startsWith(sseType) !== true) return undefined;
  const { http, message } = errors.upstream_unavailable;
  const error = { code: 'upstream_unavailable', message } as const;
  // How a deployment's stream ends is a matter of its format.
  if (route.surface === 'deployment') return undefined;
  if (route.errorShape === 'openai') return sseData(chatError(http, error));
  return isUiStream(headers) ? sseData(uiFailure(error)) : sseData(uiPartFailure(error));
};

class StreamExchange implements Exchange {
  readonly #options: PlatformStreamOptions;
  readonly #route: EnvelopeRoute;
  readonly #request: PlatformRequest;
  #admitted: PlatformAdmitted | undefined;
  #held: HeldBody | undefined;

  constructor(options: PlatformStreamOptions, route: EnvelopeRoute, request: PlatformRequest) {
    this.#options = options;
    this.#route = route;
    this.#request = request;
  }

  admit(held: HeldBody): void | Promise<void> {
    this.#held = held;
    const enter = (admitted: PlatformAdmitted): void => {
      this.#admitted = admitted;
    };
    const admitted = this.#options.routeGate.admit(this.#route, this.#request, held);
    return admitted instanceof Promise ? admitted.then(enter) : enter(admitted);
  }

  serve(bytes: Uint8Array, signal: AbortSignal): Promise<Answer> {
    return this.#serve(bytes, undefined, signal);
  }

  upload(body: BodySource, signal: AbortSignal): Promise<Answer> {
    return this.#serve(new Uint8Array(), body, signal);
  }

  async #serve(bytes: Uint8Array, upload: BodySource | undefined, signal: AbortSignal): Promise<Answer> {
    const admitted = this.#admitted;
    if (admitted === undefined) throw new TypeError('A request was served before it was admitted.');
    const { clock, metrics } = this.#options;
    const startedMs = clock.monotonicMs();
    try {
      const streamed = await this.#open(admitted, bytes, upload, signal);
      metrics.upstream.observe((clock.monotonicMs() - startedMs) / 1_000);
      if (!isDisbelief(streamed.head.status)) admitted.believed();
      return this.#counted(this.#answer(streamed));
    } catch (error) {
      if (error instanceof CodedError && !isDisbelief(error.entry.http)) admitted.believed();
      throw error;
    }
  }

  refuse(error: unknown): Answer {
    return this.#counted(refusalAnswer(this.#route, refusedBy(this.#route, error, this.#options.log)));
  }

  /** The body has left this process when this returns; the answer may take minutes. */
  #open(admitted: PlatformAdmitted, bytes: Uint8Array, upload: BodySource | undefined, signal: AbortSignal): Promise<Streamed> {
    const { link, credits } = this.#options;
    const route = this.#route;
    const query = readPlatformQuery(route, this.#request.query);
    const { body } = readPlatformBody(route, this.#request.contentType, bytes);
    const context = contextFor(route, this.#request, '');
    const opened = openStreamed({
      link, credits, route, signal, upload, token: admitted.token, partitionKey: admitted.partitionKey, body: JSON.stringify({ context, query, body }), lost: lostEvent(route),
      accept: (head) => {
        if (!Object.hasOwn(route.answers, head.status)) throw coded('upstream_error');
        checkedHeaders(route, head.headers);
      },
    });
    // One that is streamed is held until its end.
    if (upload === undefined) this.#held?.release();
    return opened;
  }

  #answer(streamed: Streamed): Answer {
    const { head } = streamed;
    const route = this.#route;
    if (streamed.kind === 'pieces') return { ...successAnswer(head.status, { headers: head.headers, text: '' }), pieces: streamed.pieces };
    if (!Object.hasOwn(route.answers, head.status)) throw daemonError(route, { status: head.status, body: streamed.body });
    return successAnswer(head.status, { headers: checkedHeaders(route, head.headers), text: streamed.body.toString('utf8') });
  }

  #counted(answer: Answer): Answer {
    this.#options.metrics.requests.add(this.#route.id, answer.status);
    return answer;
  }
}

/** Those of these routes that are answered over a link stream. */
export const platformStreamEndpoints = (options: PlatformStreamOptions, routes: readonly EnvelopeRoute[]): readonly Endpoint[] =>
  routes.filter((route) => route.serve.by === 'stream').map((route) => ({
    surface: route.surface, method: route.method, path: route.path, takesBody: route.body !== undefined, streamsBody: route.upload === true, bodyMaxBytes: route.bodyMaxBytes,
    begin: (head) => new StreamExchange(options, route, readHead(head, route.headers)),
  }));
