/**
 * Retention: deletes an organization's sessions to which nothing has happened for so many days, with their memories (decisions, Small print).
 *
 * Guarantees
 * T1  What is younger stays: the age is read from the session's journal, not from rows that may lag.
 * T2  A session's journal first gets a last commit, `$forgotten`, fenced as every other: so nothing happened to it until then, whoever runs the actor is
 *     fenced, and who speaks to it afterwards begins a new one. Then it is erased for good. Done late, twice or by half it harms nothing.
 * T3  An origin is not deleted while a branch of its session is younger.
 * Wallet, finance, audit and usage stay; so do attachments, and the memories of a deployment's agent, which are no session's.
 */
import { coded, CodedError } from '../../contracts/errors.ts';
import { runtimeKinds, type Commit } from '../../contracts/event.ts';
import { limits } from '../../contracts/limits.ts';
import { deadLetterSubject, inboxSubject, journalSubject, partitionOf, reminderSubject, snapshotSubject, streams, type ActorAddress } from '../../contracts/subjects.ts';
import type { Retain } from '../organization/retention.ts';
import { deleteExpired, listExpired, type ExpiredSession } from '../projections/session-expiry.ts';
import type { Projections } from '../projections/projections.ts';
import { decodeCommit, encodeCommit, hashOf } from '../runtime/commit.ts';
import { endsLife } from '../runtime/fold.ts';
import type { Lean } from '../runtime/nats/lean.ts';
import { purge } from '../runtime/nats/purge.ts';
import type { Journal, StoredMessage } from '../runtime/store.ts';
import { Ulids } from '../runtime/ulid.ts';

export interface RetainOptions {
  readonly lean: Lean;
  readonly journal: Pick<Journal, 'append' | 'last' | 'firstFrom'>;
  readonly journalStreams: number;
  readonly partitions: number;
  /** Undefined where no database is configured: then nothing is found to be deleted. */
  readonly projections: () => Pick<Projections, 'read' | 'caughtUp'> | undefined;
  /** Unix milliseconds. */
  readonly now: () => number;
}

const dayMs = 86_400_000;

export const createRetain = ({ lean, journal, journalStreams, partitions, projections, now }: RetainOptions): Retain => {
  const ulids = new Ulids(now);

  /** When something last happened in a life of the actor, Unix milliseconds; undefined = it has ended. */
  const lastHappened = async (subject: string, last: StoredMessage): Promise<number | undefined> => {
    let commit = decodeCommit(last.data);
    if (endsLife(commit)) return undefined;
    // Activations are no events of it.
    while (commit.p !== 0 && commit.ev.every(({ k }) => k.startsWith('$'))) {
      const before = await journal.firstFrom(subject, commit.p);
      if (before === undefined || before.seq >= last.seq) break;
      commit = decodeCommit(before.data);
    }
    return commit.t;
  };

  /** False = something has happened to it since `before`. */
  const erase = async (address: ActorAddress, before: number): Promise<boolean> => {
    const n = partitionOf(address, partitions);
    const subject = journalSubject(n, address);
    const last = await journal.last(subject);
    if (last === undefined) return true;
    const at = await lastHappened(subject, last);
    let upTo = last.seq;
    if (at !== undefined) {
      if (at >= before) return false;
      const head = decodeCommit(last.data);
      const end: Commit = {
        v: 1, e: head.e, n: head.n + head.ev.length, f: head.f + head.c, c: 0, m: head.m, p: last.seq, h: hashOf(last.data), t: now(),
        ev: [{ id: ulids.after(head.ev.at(-1)?.id ?? ''), k: runtimeKinds.forgotten, d: {} }],
      };
      try {
        upTo = await journal.append(subject, encodeCommit(end), last.seq);
      } catch (error) {
        if (error instanceof CodedError && error.code === 'fenced') return false;
        throw error;
      }
    }
    await purge(lean, streams.snapshot, snapshotSubject(n, address));
    await purge(lean, streams.reminder, reminderSubject(n, address));
    await purge(lean, streams.inbox, inboxSubject(n, address, '').replace(/[^.]*$/, '*'));
    await purge(lean, streams.deadLetter, deadLetterSubject(address, '').replace(/[^.]*$/, '*'));
    // The journal last: as long as it is there, whoever looks finds what is left to do.
    await purge(lean, streams.journal(n, journalStreams), subject, upTo);
    return true;
  };

  return async (org, days, signal) => {
    const rows = projections();
    if (rows === undefined) return { more: false };
    const before = new Date(now() - days * dayMs);
    // A younger branch must be among them.
    await rows.caughtUp('sessions', org, limits.projectionWaitMs);
    const expired = await rows.read((sql) => listExpired(sql, { org, before, limit: limits.retentionSessionsMax }));
    const one = async ({ sid, agentId, deploymentId }: ExpiredSession): Promise<void> => {
      if (!await erase({ org, type: 'session', key: sid }, before.getTime())) return;
      // The agent of a person's session is that session's, and so are its memories.
      if (deploymentId === null && agentId === `agent-${sid}`) await erase({ org, type: 'agent', key: agentId }, Number.POSITIVE_INFINITY);
      await rows.read((sql) => deleteExpired(sql, { org, sid, before }));
    };
    for (const session of expired) {
      if (signal.aborted) throw coded('aborted');
      await one(session);
    }
    return { more: expired.length === limits.retentionSessionsMax };
  };
};
