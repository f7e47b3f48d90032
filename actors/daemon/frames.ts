/**
 * A commit as the frames a client sees: encoded once, whoever watches.
 *
 * Guarantee: frames are numbered `first`, `first + 1` … without gap, as many as the commit says; a commit whose events do not
 * add up to its numbers is `journal_unreadable`, never shown.
 */
import { coded } from '../../contracts/errors.ts';
import type { Commit, StoredEvent } from '../../contracts/event.ts';
import { feedKind, wirePayload } from '../../contracts/session.ts';
import { encodeAgentEvent } from '../../contracts/stream.ts';
import { decodeCommit } from '../runtime/commit.ts';

export interface CommitFrames {
  /** Stream sequence of the commit. */
  readonly seq: number;
  /** `seq_no` of the first frame; the next one if there is none. */
  readonly first: number;
  readonly texts: readonly Buffer[];
  /** Of all texts. */
  readonly bytes: number;
  /** Where a watcher without a position starts after this commit. */
  readonly mark: number;
}

/** The payload of an event in the newest version of its schema. */
export type Upcast = (event: StoredEvent) => Readonly<Record<string, unknown>>;

/** Last `seq_no` of a commit: `first - 1` if it shows nothing. */
export const lastOf = (frames: CommitFrames): number => frames.first + frames.texts.length - 1;

/** Throws `journal_unreadable`. */
export const framesOf = (sid: string, seq: number, data: Uint8Array, upcast: Upcast): CommitFrames => {
  const commit = decodeCommit(data);
  if (commit.c === 0) return { seq, first: commit.f, texts: [], bytes: 0, mark: commit.m };
  return { seq, first: commit.f, mark: commit.m, ...encode(sid, commit, upcast) };
};

const encode = (sid: string, commit: Commit, upcast: Upcast): { texts: Buffer[]; bytes: number } => {
  const texts: Buffer[] = [];
  let bytes = 0;
  let at = '';
  let atMs = -1;
  for (const event of commit.ev) {
    const agent = feedKind(event.k);
    if (agent === undefined) continue;
    const eventMs = event.t ?? commit.t;
    if (eventMs !== atMs) {
      atMs = eventMs;
      at = new Date(eventMs).toISOString();
    }
    const text = Buffer.from(encodeAgentEvent(sid, commit.f + texts.length, event.k, at, agent, wirePayload(agent, upcast(event))));
    texts.push(text);
    bytes += text.length;
  }
  if (texts.length !== commit.c) throw coded('journal_unreadable', `A commit says ${commit.c} feed events and holds ${texts.length}.`);
  return { texts, bytes };
};
