/**
 * Erases what a deleted organization has outside its own journal (ORG-027): sessions and agents with their memories, attachments, rows, its webhook and payments.
 *
 * Guarantees: what is erased is gone from the streams, not marked; whoever still runs an actor of it is fenced at its next commit, as its
 * journal is not where it was. Safe to repeat at any point; throws coded errors when a part did not answer, and then says nothing of
 * the rest. What stays: the organization's own journal (its tombstone and audit log) and custody's keys, which may hold what is
 * somebody's money.
 */
import { z } from 'zod';
import { coded } from '../../contracts/errors.ts';
import { buckets, encodeToken, storedOf, streams } from '../../contracts/subjects.ts';
import { eraseBlobsOf } from '../blobs/store.ts';
import type { Erase } from '../organization/erasure.ts';
import type { Projections } from '../projections/projections.ts';
import { deleteSessions } from '../projections/sessions.ts';
import { deleteUsage } from '../projections/usage.ts';
import type { Lean } from '../runtime/nats/lean.ts';
import { purge } from '../runtime/nats/purge.ts';
import { forward } from '../runtime/nats/read.ts';

/** Actor types whose actors are an organization's conversations and memories, and what was counted of its requests. */
const erasedTypes = ['session', 'agent', 'completion', 'allowance', 'stream', 'knowledge', 'regulation'] as const;
/** Erased at the end: until then they have to remember that they were told to forget, so that nothing late is delivered or bought. */
const erasedLast = ['webhook', 'payments', 'deployment'] as const;

export interface EraseOptions {
  readonly lean: Lean;
  readonly journalStreams: number;
  /** Undefined where no database is configured. */
  readonly projections: () => Pick<Projections, 'read'> | undefined;
}

/** What an object store (NATS ADR-20) says of an object. */
const objectInfo = z.object({ name: z.string(), nuid: z.string() });

export const createErase = ({ lean, journalStreams, projections }: EraseOptions): Erase => {
  const goOn = (signal: AbortSignal): void => {
    if (signal.aborted) throw coded('aborted');
  };

  const actors = async (org: string, types: readonly string[], signal: AbortSignal): Promise<void> => {
    for (const type of types) {
      const stored = storedOf(org, type);
      goOn(signal);
      await purge(lean, streams.inbox, stored.inbox);
      await purge(lean, streams.reminder, stored.reminder);
      for (let n = 0; n < journalStreams; n++) await purge(lean, streams.journal(n, journalStreams), stored.journal);
      await purge(lean, streams.snapshot, stored.snapshot);
      await purge(lean, streams.deadLetter, stored.deadLetter);
    }
  };

  const blobs = async (org: string, signal: AbortSignal): Promise<void> => {
    const stream = `OBJ_${buckets.blobs}`;
    const own = `${encodeToken(org)}.`;
    for await (const batch of forward(lean, stream, `$O.${buckets.blobs}.M.*`, 1, Number.MAX_SAFE_INTEGER)) {
      for (const { subject, data } of batch) {
        goOn(signal);
        const info = objectInfo.safeParse(JSON.parse(Buffer.from(data).toString('utf8')));
        if (!info.success || !info.data.name.startsWith(own)) continue;
        await purge(lean, stream, `$O.${buckets.blobs}.C.${info.data.nuid}`);
        await purge(lean, stream, subject);
      }
    }
  };

  return async (org, last, signal) => {
    await actors(org, last ? [...erasedTypes, ...erasedLast] : erasedTypes, signal);
    await blobs(org, signal);
    await eraseBlobsOf(lean, org);
    goOn(signal);
    await projections()?.read(async (sql) => {
      await deleteSessions(sql, org);
      await deleteUsage(sql, org);
    });
  };
};
