/**
 * One answer of `/api/chat` at a time, heard as it comes.
 *
 * Guarantee: a stream that ends without its last event is a failure, never an answer; `stop` ends it here and, by the closed connection, at the
 * model. Changes are told at most once a frame, the last one always.
 */
import { coded, CodedError, shown } from '../../../../contracts/errors.ts';
import type { Api } from '../../api.ts';
import { eventsOf } from './events.ts';
import { readPart } from './part.ts';
import { changeLast, failed, heard, requestOf, stopped, type Failure, type Talk } from './talk.ts';

/** The header by which a person says who pays (contracts/chat.ts, whose schemas a page does not load). */
const organizationHeader = 'troupe-organization';

const failureOf = (error: unknown): Failure => {
  if (!(error instanceof CodedError)) reportError(error);
  return { ...shown(error), details: error instanceof CodedError ? error.details ?? {} : {} };
};

export interface Speaking {
  /** With the answer's end. */
  readonly done: Promise<Talk>;
  stop(): void;
}

/** `payer`: an organization's id, or `personal`. */
export const speak = (api: Api, talk: Talk, payer: string, onChange: (talk: Talk) => void): Speaking => {
  const abort = new AbortController();
  let now = talk;
  let frame = 0;
  const change = (next: Talk): void => {
    now = next;
    if (frame === 0) frame = requestAnimationFrame(() => { frame = 0; onChange(now); });
  };
  const run = async (): Promise<Talk> => {
    try {
      const body = await api.open('/api/chat', requestOf(talk), { [organizationHeader]: payer }, abort.signal);
      for await (const event of eventsOf(body)) change(changeLast(now, (turn) => heard(turn, readPart(event, 'event'))));
      if (now.at(-1)?.end.kind === 'running') throw coded('upstream_unavailable');
    } catch (error) {
      // A connection that breaks in the middle is an error of the browser's own.
      const failure = error instanceof TypeError ? coded('upstream_unavailable', undefined, { cause: error }) : error;
      change(changeLast(now, (turn) => (abort.signal.aborted ? stopped(turn) : failed(turn, failureOf(failure)))));
    }
    cancelAnimationFrame(frame);
    return now;
  };
  return { done: run(), stop: () => { abort.abort(); } };
};
