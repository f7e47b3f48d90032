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
  /** Of an event of a branch's past: whose journal it is in. Absent = the branch's own. */
  readonly of?: Pick<SessionBranch, 'branch' | 'address'>;
}

/** Those of a commit that clients see, in order. */
export const clientEvents = (commit: Commit): readonly SessionEvent[] =>
  commit.ev.flatMap((event, i) => (isClientKind(event.k) ? [{ event, number: commit.n + i, at: event.t ?? commit.t }] : []));

/**
 * Metadata: `branch` whose journal the event is in, so that it looks the same wherever it is read; `number` counts all events of that journal, so it
 * ascends with gaps; `sid`: under which the gateway streams that branch.
 */
export const envelopeOf = ({ event, number, at, of }: SessionEvent, own: SessionBranch, upcast: Upcast): EventEnvelope => {
  const { session_id } = own;
  const { branch, address } = of ?? own;
  const payload = upcast(event);
  return { id: event.id, stream_id: session_id, kind: event.k, timestamp: at, payload: { ...payload }, checksum: checksumOf(payload), metadata: { number, branch, sid: address.key } };
};
