/**
 * Runs the platform's routes that are answered over a link stream: who calls, what is asked, who answers, as serve.ts does for the others.
 *
 * Guarantees: the caller is decided here from the token; the body passes the route's schema here again; at most `limits.chatStreamsMax`
 * answers of this daemon are under way. What a handler throws before it has begun becomes an error answer; after that the body is cut.
 */
import { randomUUID } from 'node:crypto';
import { coded, CodedError, errorEntry, shown } from '../../../contracts/errors.ts';
import { limits } from '../../../contracts/limits.ts';
import type { PlatformRoute } from '../../../contracts/platform.ts';
import type { EnvelopeRoute } from '../../../contracts/platform-routes.ts';
import type { Stream } from '../link-stream.ts';
import type { Log } from '../log.ts';
import type { Outlet } from '../watcher.ts';
import { envelopeOf, parsePlatform, type Callers, type PlatformHandlerRequest } from './serve.ts';
import { StreamAnswer } from './stream-answer.ts';

/** Answers one route; resolves when the answer has ended. */
export type StreamHandler = (request: Omit<PlatformHandlerRequest, 'deadlineAt'>, answer: StreamAnswer) => Promise<void>;

/** Streams that answer routes of one surface. */
export interface AnswerStreams<Route extends EnvelopeRoute> {
  readonly open: (stream: Stream, route: Route) => void;
  /** A gateway takes bytes again after it was full. */
  onDrain(peer: Outlet): void;
  /** Resolves when no answer is under way. */
  ended(): Promise<void>;
}
export type PlatformStreams = AnswerStreams<PlatformRoute>;

export interface PlatformStreamsOptions {
  readonly callers: Callers;
  /** By route id. */
  readonly handlers: Readonly<Record<string, StreamHandler>>;
  readonly log: Log;
}

export const createPlatformStreams = ({ callers, handlers, log }: PlatformStreamsOptions): PlatformStreams => createAnswerStreams({
  log,
  answer: async (stream, route, answer) => {
    const handler = Object.hasOwn(handlers, route.id) ? handlers[route.id] : undefined;
    if (handler === undefined) throw coded('unknown_route');
    const sent = envelopeOf({ route, body: stream.body });
    const caller = await callers.authorise(route, stream.token, sent.context);
    if (caller === undefined) throw coded('unauthorized');
    const query = route.query === undefined ? undefined : parsePlatform(route.query, sent.query);
    const body = route.body === undefined ? undefined : parsePlatform(route.body, sent.body);
    await handler({ caller, token: stream.token, context: sent.context, query, body, signal: answer.signal }, answer);
  },
});

export interface AnswerStreamsOptions<Route extends EnvelopeRoute> {
  /** Verifies and answers one; resolves when the answer has ended. */
  readonly answer: (stream: Stream, route: Route, answer: StreamAnswer) => Promise<void>;
  readonly log: Log;
}

export const createAnswerStreams = <Route extends EnvelopeRoute>({ answer: answerTo, log }: AnswerStreamsOptions<Route>): AnswerStreams<Route> => {
  const running = new Map<Stream, StreamAnswer>();
  const waiting = new Set<() => void>();
  const over = (stream: Stream): void => {
    running.delete(stream);
    if (running.size > 0) return;
    for (const resolve of waiting) resolve();
    waiting.clear();
  };

  const run = async (stream: Stream, route: Route, answer: StreamAnswer): Promise<void> => {
    if (running.size > limits.chatStreamsMax) throw coded('overloaded');
    await answerTo(stream, route, answer);
  };

  const fail = async (error: unknown, route: Route, answer: StreamAnswer): Promise<void> => {
    if (answer.signal.aborted) return;
    const { status, body } = refusalOf(error, route, log);
    if (answer.begun) answer.cut();
    else await answer.whole(status, {}, body);
  };

  return {
    open: (stream, route) => {
      const answer = new StreamAnswer(stream, () => over(stream));
      if (answer.signal.aborted) return;
      running.set(stream, answer);
      run(stream, route, answer)
        .catch((error: unknown) => fail(error, route, answer))
        // Only `aborted`: nobody is there to be told.
        .catch((error: unknown) => log.debug({ code: shown(error).code }, 'an answer found nobody'));
    },
    onDrain: (peer) => {
      for (const [stream, answer] of running) if (stream.peer === peer) answer.onRoom();
    },
    ended: () => (running.size === 0 ? Promise.resolve() : new Promise((resolve) => { waiting.add(resolve); })),
  };
};

/** The error answer for what was thrown; one that is not coded is in the log only. */
const refusalOf = (error: unknown, route: EnvelopeRoute, log: Log): { readonly status: number; readonly body: string } => {
  if (error instanceof CodedError && error.entry.kind !== 'bug') return { status: error.entry.http, body: JSON.stringify(shown(error)) };
  const correlationId = randomUUID();
  log.error({ correlation_id: correlationId, route: route.id, err: error }, 'an answer failed on our side');
  const safe = shown(undefined);
  return { status: errorEntry(safe.code).http, body: JSON.stringify({ ...safe, details: { correlation_id: correlationId } }) };
};
