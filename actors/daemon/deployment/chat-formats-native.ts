/** Format `native` of `/v1/chat`: the session's events as they were journaled. What another turn of the session does meanwhile is seen too. */
import type { EventEnvelope } from '../../../contracts/event.ts';
import type { AnswerHeaders } from '../../../contracts/platform.ts';
import type { SessionEvent } from './envelope.ts';

/** How a turn is said to its client. */
export interface TurnWriter {
  /** Headers of the answer besides its media type. */
  readonly headers: AnswerHeaders;
  /** Sees events of other turns as well. */
  readonly all: boolean;
  /** A failure that is the world's, before anything was said: true = an event of the stream, false = the answer's status. */
  readonly saysFailure: boolean;
  /** An event as event-stream text; '' = the client is told nothing of it. Called once for each, in order. */
  event(seen: SessionEvent): string;
  /** After the turn's last event. */
  readonly end: string;
}

export const nativeWriter = (envelope: (seen: SessionEvent) => EventEnvelope): TurnWriter => ({
  headers: {},
  all: true,
  saysFailure: true,
  event: (seen) => `event: event\nid: ${seen.event.id}\ndata: ${JSON.stringify(envelope(seen))}\n\n`,
  end: 'event: done\ndata: {}\n\n',
});
