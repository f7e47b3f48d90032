/**
 * A commit as the frames a client sees: encoded once, whoever watches.
 *
 * Guarantee: frames are numbered `first`, `first + 1` … without gap, as many as the commit says; a commit whose events do not
 * add up to its numbers is `journal_unreadable`, never shown.
 */
import { coded } from '../../contracts/errors.ts';
import type { Commit, StoredEvent } from '../../contracts/event.ts';
import { limits } from '../../contracts/limits.ts';
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

/** A run of commits; `together` = all of them as if they were one commit, where they are several. */
export interface CommitGroup {
  readonly commits: readonly CommitFrames[];
  readonly together: CommitFrames | undefined;
}

/** Cuts a run of neighbouring commits into groups of about `limits.hubGroupBytes`, each fit for one data frame. */
export const groupsOf = (commits: readonly CommitFrames[]): CommitGroup[] => {
  const groups: CommitGroup[] = [];
  let group: CommitFrames[] = [];
  let bytes = 0;
  const end = (): void => {
    const first = group[0];
    const last = group.at(-1);
    if (first === undefined || last === undefined) return;
    const together = group.length === 1 ? undefined : { seq: last.seq, first: first.first, texts: group.flatMap((commit) => commit.texts), bytes, mark: last.mark };
    groups.push({ commits: group, together: together?.texts.length === 0 ? undefined : together });
    group = [];
    bytes = 0;
  };
  for (const commit of commits) {
    if (bytes + commit.bytes > limits.hubGroupBytes) end();
    group.push(commit);
    bytes += commit.bytes;
  }
  end();
  return groups;
};

/** Throws `journal_unreadable`. */
export const framesOf = (sid: string, seq: number, data: Uint8Array, upcast: Upcast): CommitFrames => {
  const commit = decodeCommit(data);
  if (commit.c === 0) return { seq, first: commit.f, texts: [], bytes: 0, mark: commit.m };
  return { seq, first: commit.f, mark: commit.m, ...encode(sid, commit, upcast) };
};

const encode = (sid: string, commit: Commit, upcast: Upcast): { texts: Buffer[]; bytes: number } => {
  const frames: string[] = [];
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
    frames.push(encodeAgentEvent(sid, commit.f + frames.length, event.k, at, agent, wirePayload(agent, upcast(event))));
  }
  if (frames.length !== commit.c) throw coded('journal_unreadable', `A commit says ${commit.c} feed events and holds ${frames.length}.`);
  return toBytes(frames);
};

/** One buffer for all frames of a commit, and views into it: they live and go together, and a buffer each costs more than its text. */
const toBytes = (frames: readonly string[]): { texts: Buffer[]; bytes: number } => {
  const all = Buffer.from(frames.length === 1 ? frames[0] ?? '' : frames.join(''));
  if (frames.length === 1) return { texts: [all], bytes: all.length };
  let chars = 0;
  for (const frame of frames) chars += frame.length;
  const ascii = chars === all.length;
  let end = 0;
  const texts = frames.map((frame) => {
    const start = end;
    end += ascii ? frame.length : Buffer.byteLength(frame);
    return all.subarray(start, end);
  });
  return { texts, bytes: all.length };
};
