/**
 * The platform surface as the listener serves it: one exchange for every route of the closed table, and the pages.
 *
 * Guarantees: what reaches the daemon has passed the route's schema; the caller's token goes beside it and is decided there; a call that its
 * client gives up is cancelled upstream; pages ask the same routes the same way. Admission: platform-gate.ts. Shapes of answers:
 * platform-answer.ts. Knows no uWebSockets.js.
 */
import { coded, CodedError } from '../contracts/errors.ts';
import type { PlatformCall, RequestContext } from '../contracts/platform.ts';
import { platformRouteList, type EnvelopeRoute } from '../contracts/platform-routes.ts';
import type { Answer } from './answer.ts';
import type { HeldBody } from './bodies.ts';
import type { Clock } from './clock.ts';
import type { Endpoint, Exchange, RequestHead } from './endpoint.ts';
import type { Gate } from './gate.ts';
import type { Link } from './link.ts';
import type { Log } from './log.ts';
import type { Metrics } from './metrics.ts';
import type { Ask, Asked, FormOutcome, PageHandler, PageRequest, Pages } from './page.ts';
import { answerJson, daemonError, pageAnswer, readAnswer, refusalAnswer, refusedBy, refusedOf, successAnswer } from './platform-answer.ts';
import { checkInput, readForm, readPlatformBody, readPlatformQuery } from './platform-body.ts';
import { isDisbelief, type PlatformAdmitted, type RouteGate } from './platform-gate.ts';
import { contextFor, formType, readHead, type PlatformRequest } from './platform-request.ts';

export interface PlatformOptions {
  readonly gate: Gate;
  readonly routeGate: RouteGate;
  readonly link: Link;
  readonly metrics: Metrics;
  readonly clock: Clock;
  readonly log: Log;
  readonly pages: Pages;
}

interface Sent extends PlatformCall {
  readonly token: string;
  readonly signal: AbortSignal;
  readonly partitionKey?: string | undefined;
}

interface Reply extends Asked {
  readonly answer: Answer;
}

/** One call of a platform route over the link. Rejects with the daemon's refusal. */
const call = async ({ link, metrics, clock }: PlatformOptions, route: EnvelopeRoute, sent: Sent): Promise<Reply> => {
  const { token, signal, partitionKey, ...rest } = sent;
  const startedMs = clock.monotonicMs();
  try {
    const answer = await link.request(route, { token, body: JSON.stringify(rest), signal, ...(partitionKey === undefined ? {} : { partitionKey }) });
    if (!Object.hasOwn(route.answers, answer.status)) throw daemonError(route, answer);
    const read = readAnswer(route, answer);
    return { status: answer.status, headers: read.headers, json: answerJson(read), answer: successAnswer(answer.status, read) };
  } finally {
    metrics.upstream.observe((clock.monotonicMs() - startedMs) / 1_000);
  }
};

const routeById: ReadonlyMap<string, EnvelopeRoute> = new Map(platformRouteList.map((route) => [route.id, route]));

/** `ask` of one page's request. */
const askFor = (options: PlatformOptions, request: PlatformRequest, csrf: string, signal: AbortSignal): Ask => async (routeId, input = {}) => {
  const route = routeById.get(routeId);
  if (route === undefined || (route.auth.kind !== 'cookie' && route.auth.kind !== 'none')) throw new TypeError(`A page asked for ${routeId}, which is no route that a page may ask.`);
  const token = route.auth.kind === 'cookie' ? request.session : '';
  if (token === undefined && !(route.auth.kind === 'cookie' && route.auth.optional === true)) throw coded('unauthorized');
  const query = route.query === undefined ? undefined : checkInput(route.query, input.query ?? {});
  const body = route.body === undefined ? undefined : checkInput(route.body, input.body ?? {});
  const { status, headers, json } = await call(options, route, { token: token ?? '', signal, context: contextFor(route, request, csrf), query, body });
  return { status, headers, json };
};

const pageRequest = (request: PlatformRequest, method: 'GET' | 'POST', context: RequestContext, fields: Readonly<Record<string, string>>, signal: AbortSignal): PageRequest => {
  const query: Record<string, string> = {};
  for (const [name, value] of new URLSearchParams(request.query)) if (!Object.hasOwn(query, name)) query[name] = value;
  return { method, path: request.path, params: request.params, query, fields, hasSession: request.session !== undefined, context, signal };
};

/** Refusals of a limit: a page of one may be shown, but asks nothing, for that would cost what the limit is there to spare. */
const askless: ReadonlySet<string> = new Set(['rate_limited', 'overloaded', 'payload_too_large']);

class RouteExchange implements Exchange {
  readonly #options: PlatformOptions;
  readonly #route: EnvelopeRoute;
  readonly #request: PlatformRequest;
  readonly #page: PageHandler | undefined;
  #admitted: PlatformAdmitted | undefined;

  constructor(options: PlatformOptions, route: EnvelopeRoute, request: PlatformRequest) {
    this.#options = options;
    this.#route = route;
    this.#request = request;
    this.#page = route.method === 'GET' && request.prefersHtml ? options.pages.routes.get(`GET ${route.path}`) : undefined;
  }

  admit(held: HeldBody): void | Promise<void> {
    const { gate, routeGate } = this.#options;
    if (this.#page !== undefined) return gate.takeAddress(this.#request.address);
    const enter = (admitted: PlatformAdmitted): void => {
      this.#admitted = admitted;
    };
    const admitted = routeGate.admit(this.#route, this.#request, held);
    return admitted instanceof Promise ? admitted.then(enter) : enter(admitted);
  }

  async serve(bytes: Uint8Array, signal: AbortSignal): Promise<Answer> {
    if (this.#page !== undefined) return this.#counted(await runPage(this.#options, this.#request, this.#page, signal));
    if (!this.#isBrowserForm) return this.#counted((await this.#run(bytes, signal)).answer);
    const { fields, csrf } = this.#formFields(bytes);
    try {
      const reply = await this.#run(bytes, signal);
      return this.#counted(await this.#formPage({ kind: 'answered', ...reply }, fields, csrf, signal) ?? reply.answer);
    } catch (error) {
      return await this.#refusedForm(error, fields, csrf, signal);
    }
  }

  refuse(error: unknown, signal: AbortSignal): Answer | Promise<Answer> {
    return this.#isBrowserForm ? this.#refusedForm(error, {}, '', signal) : this.#refusal(error);
  }

  /** A form post whose outcome is shown as a page. */
  get #isBrowserForm(): boolean {
    const { contentType, prefersHtml } = this.#request;
    return this.#route.form === true && contentType === formType && prefersHtml && this.#options.pages.formPage !== undefined;
  }

  #formFields(bytes: Uint8Array): { readonly fields: Readonly<Record<string, string>>; readonly csrf: string } {
    try {
      return readForm(bytes);
    } catch {
      // The run says what is wrong with it.
      return { fields: {}, csrf: '' };
    }
  }

  async #run(bytes: Uint8Array, signal: AbortSignal): Promise<Reply> {
    const admitted = this.#admitted;
    if (admitted === undefined) throw new TypeError('A request was served before it was admitted.');
    const route = this.#route;
    const request = this.#request;
    const query = readPlatformQuery(route, request.query);
    const { body, csrf } = readPlatformBody(route, request.contentType, bytes);
    const context = contextFor(route, request, csrf === '' ? request.csrf : csrf);
    try {
      const reply = await call(this.#options, route, { token: admitted.token, partitionKey: admitted.partitionKey, signal, context, query, body });
      admitted.believed();
      return reply;
    } catch (error) {
      if (!isDisbelief(refusedStatus(error))) admitted.believed();
      throw error;
    }
  }

  async #formPage(outcome: FormOutcome, fields: Readonly<Record<string, string>>, csrf: string, signal: AbortSignal): Promise<Answer | undefined> {
    const request = pageRequest(this.#request, 'POST', contextFor(this.#route, this.#request, ''), fields, signal);
    const ask: Ask = outcome.kind === 'refused' && askless.has(outcome.code) ? () => Promise.reject(new CodedError(outcome.code, outcome.message, { details: outcome.details }))
      : askFor(this.#options, this.#request, csrf, signal);
    const answer = await this.#options.pages.formPage?.(this.#route.id, outcome, request, ask);
    if (answer === undefined) return undefined;
    return pageAnswer(answer, outcome.kind === 'answered' ? outcome.headers['set-cookie'] : []);
  }

  /** Never rejects. */
  async #refusedForm(error: unknown, fields: Readonly<Record<string, string>>, csrf: string, signal: AbortSignal): Promise<Answer> {
    const refused = refusedBy(this.#route, error, this.#options.log);
    if (signal.aborted) return this.#counted(refusalAnswer(this.#route, refused));
    try {
      const { status, code, message, details } = refused;
      const answer = await this.#formPage({ kind: 'refused', status, code, message, details }, fields, csrf, signal);
      return this.#counted(answer ?? refusalAnswer(this.#route, refused));
    } catch (failed) {
      return this.#refusal(failed);
    }
  }

  #refusal(error: unknown): Answer {
    return this.#counted(refusalAnswer(this.#route, refusedBy(this.#route, error, this.#options.log)));
  }

  #counted(answer: Answer): Answer {
    this.#options.metrics.requests.add(this.#route.id, answer.status);
    return answer;
  }
}

/** The status a thrown value will have; a bug's is 500. */
const refusedStatus = (error: unknown): number => (error instanceof CodedError ? error.entry.http : 500);

const runPage = async (options: PlatformOptions, request: PlatformRequest, page: PageHandler, signal: AbortSignal): Promise<Answer> => {
  const context: RequestContext = { ip: request.address, user_agent: request.userAgent };
  return pageAnswer(await page(pageRequest(request, 'GET', context, {}, signal), askFor(options, request, '', signal)));
};

/** What refuses a page's request: as an envelope, as there is no route behind it. */
const pageRoute = { auth: { kind: 'none' } } as const;

const pageEndpoint = (options: PlatformOptions, path: string, page: PageHandler): Endpoint => ({
  surface: 'platform', method: 'GET', path, takesBody: false, bodyMaxBytes: 0,
  begin: (head: RequestHead) => {
    const request = readHead(head);
    const counted = (answer: Answer): Answer => {
      options.metrics.requests.add('page', answer.status);
      return answer;
    };
    return {
      admit: () => options.gate.takeAddress(request.address),
      serve: async (_body, signal) => counted(await runPage(options, request, page, signal)),
      refuse: (error) => counted(refusalAnswer(pageRoute, refusedOf(error, undefined, options.log))),
    };
  },
});

/** Those of these routes that are answered at once, and all pages. */
export const platformEndpoints = (options: PlatformOptions, routes: readonly EnvelopeRoute[]): readonly Endpoint[] => {
  const served = routes.filter((route) => route.serve.by !== 'stream');
  const gets = new Set(served.filter((route) => route.method === 'GET').map((route) => route.path));
  return [
    ...served.map((route): Endpoint => ({
      surface: route.surface, method: route.method, path: route.path, takesBody: route.body !== undefined, bodyMaxBytes: route.bodyMaxBytes,
      begin: (head) => new RouteExchange(options, route, readHead(head, route.headers)),
    })),
    ...[...options.pages.routes].flatMap(([name, page]) => {
      const path = name.slice('GET '.length);
      return gets.has(path) ? [] : [pageEndpoint(options, path, page)];
    }),
  ];
};
