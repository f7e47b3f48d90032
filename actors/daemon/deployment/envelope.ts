/**
 * A session's journaled event as its deployment's clients see it. The runtime's own events and the machinery's (contracts/session.ts,
 * `isClientKind`) are not among them; ids ascend strictly within a session.
 */
import { isClientKind } from '../../../contracts/session.ts';
import type { Commit, EventEnvelope, StoredEvent } from '../../../contracts/event.ts';
import type { Upcast } from '../frames.ts';
import type { SessionBranch } from './branch.ts';
import { checksumOf } from './checksum.ts';

export interface SessionEvent {
  readonly event: StoredEvent;
  /** Of the event in its journal, from 1. */
  readonly number: number;
  /** Unix milliseconds. */
  readonly at: number;
}

/** Those of a commit that clients see, in order. */
export const clientEvents = (commit: Commit): readonly SessionEvent[] =>
  commit.ev.flatMap((event, i) => (isClientKind(event.k) ? [{ event, number: commit.n + i, at: event.t ?? commit.t }] : []));

/** Metadata: `number` counts all events of the branch's journal, so it ascends with gaps; `sid`: under which the gateway streams the session. */
export const envelopeOf = ({ event, number, at }: SessionEvent, { session_id, branch, address }: SessionBranch, upcast: Upcast): EventEnvelope => {
  const payload = upcast(event);
  return { id: event.id, stream_id: session_id, kind: event.k, timestamp: at, payload: { ...payload }, checksum: checksumOf(payload), metadata: { number, branch, sid: address.key } };
};
