/**
 * One turn of a session as it happens, and what of it happened before: for a client that asked for it, or came back for it.
 *
 * Guarantees: every client event from the turn's first one on, in order, none left out, none twice, up to the end of the turn; what is live was
 * journaled before (G2). It never wakes the actor. A reader who takes its time costs no memory: it is a cursor into the journal (tail.ts).
 */
import type { ActorAddress } from '../../../contracts/subjects.ts';
import type { Tail, TailSource } from '../tail.ts';
import { commitsAfter } from './after.ts';
import { clientEvents, type SessionEvent } from './envelope.ts';

export interface Turn {
  readonly run_id: string;
  /** Id of its first event. */
  readonly from: string;
  /** It was begun before `tail` was opened. */
  readonly resumed: boolean;
}

/** A text that is less than the id, and more than every other id below it. */
export const justBelow = (id: string): string => `${id.slice(0, -1)}${String.fromCharCode(id.charCodeAt(id.length - 1) - 1)}`;

/** The last event of the turn. */
export const endsTurn = ({ event: { k, d } }: SessionEvent, runId: string): boolean => (k === 'RunFinished' || k === 'RunErrored') && d['run_id'] === runId;

/** Commit by commit; the last holds the turn's end. `tail` was opened before the turn was asked for. Ends early when the tail does. */
export async function* followTurn(source: TailSource, tail: Tail, address: ActorAddress, turn: Turn): AsyncGenerator<readonly SessionEvent[], void, undefined> {
  let last = 0;
  /** What of a commit has not been given; with the turn's end, nothing after it. */
  const fresh = (events: readonly SessionEvent[]): readonly SessionEvent[] => {
    const news = events.filter(({ event, number }) => number > last && event.id >= turn.from);
    last = news.at(-1)?.number ?? last;
    const end = news.findIndex((seen) => endsTurn(seen, turn.run_id));
    return end < 0 ? news : news.slice(0, end + 1);
  };
  const isOver = (events: readonly SessionEvent[]): boolean => events.some((seen) => endsTurn(seen, turn.run_id));

  if (turn.resumed) {
    for await (const commit of commitsAfter(source, address, justBelow(turn.from))) {
      const events = fresh(clientEvents(commit));
      if (events.length > 0) yield events;
      if (isOver(events)) return;
    }
  }
  for await (const commit of tail.commits()) {
    const events = fresh(clientEvents(commit));
    if (events.length > 0) yield events;
    if (isOver(events)) return;
  }
}
