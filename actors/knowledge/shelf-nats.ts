/**
 * The shelf in the object store's stream (contracts/subjects.ts, knowledgeSubjects).
 *
 * A text is one message, or a few where it is long: the first byte of each says how many there are. A snapshot is its parts, and a message that names
 * them: written after them, behind the one it was made to replace, so that of two writers at once one wins and the other takes its parts back.
 * What is replaced is purged, not marked. A reader whose parts are purged under its hands looks once more.
 */
import { z } from 'zod';
import { coded } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { blobStream, knowledgeSubjects } from '../../contracts/subjects.ts';
import { readAck } from '../runtime/nats/ack.ts';
import { HeaderLine } from '../runtime/nats/header.ts';
import type { Lean } from '../runtime/nats/lean.ts';
import { publishStored } from '../runtime/nats/publish.ts';
import { purge } from '../runtime/nats/purge.ts';
import { directGet, leaderLast, readTimes } from '../runtime/nats/read.ts';
import { untilAnswered } from '../runtime/nats/retry.ts';
import type { Shelf, Shelves } from './shelf.ts';

/** Bytes of one message; below NATS' default payload. */
const partBytes = 512 * 1024;
const fence = 'Nats-Expected-Last-Subject-Sequence';
const named = z.strictObject({ snapshot: z.string(), parts: z.int().positive(), bytes: z.int().nonnegative() });

const partsOf = (bytes: Uint8Array): Uint8Array[] =>
  Array.from({ length: Math.max(1, Math.ceil(bytes.byteLength / partBytes)) }, (_, i) => bytes.subarray(i * partBytes, (i + 1) * partBytes));

export const natsShelves = (lean: Lean, newUlid: () => string): Shelves => (org, deployment) => {
  const names = knowledgeSubjects(org, deployment);
  /** What is there never changes, so where a replica has it, that is it. Only "none" needs the leader. */
  const fixed = async (subject: string): Promise<Uint8Array | undefined> =>
    (await directGet(lean, blobStream, { last_by_subj: subject }) ?? await leaderLast(lean, blobStream, subject))?.data;

  const current = async (): Promise<(z.output<typeof named> & { readonly seq: number }) | undefined> => {
    const last = await leaderLast(lean, blobStream, names.snapshot);
    return last === undefined ? undefined : { ...named.parse(JSON.parse(Buffer.from(last.data).toString('utf8'))), seq: last.seq };
  };

  const name = (said: z.input<typeof named>, behind: number): Promise<number | undefined> => untilAnswered(readTimes.deadlineMs, limits.appendAckMs, async (timeoutMs) => {
    const ack = readAck(await lean.request(names.snapshot, Buffer.from(JSON.stringify(said)), { timeoutMs, headers: new HeaderLine(fence, behind) }));
    if (ack.stored) return ack.seq;
    if (ack.fenced) return undefined;
    throw coded('no_owner', `JetStream refused a message of a snapshot: ${ack.errCode} ${ack.description}`);
  });

  const shelf: Shelf = {
    put: async (ref, bytes) => {
      const parts = partsOf(bytes);
      for (const [i, part] of parts.entries()) await publishStored(lean, names.text(ref, i), Buffer.concat([Buffer.from([parts.length]), part]));
    },
    get: async (ref) => {
      const parts: Uint8Array[] = [];
      for (let i = 0, count = 1; i < count; i++) {
        const part = await fixed(names.text(ref, i));
        if (part === undefined) return undefined;
        count = part[0] ?? 1;
        parts.push(part.subarray(1));
      }
      return parts.length === 1 ? parts[0] : Buffer.concat(parts);
    },
    drop: async (ref) => { await purge(lean, blobStream, names.textParts(ref)); },
    save: async (bytes) => {
      const before = await current();
      const snapshot = newUlid();
      const parts = partsOf(bytes);
      for (const [i, part] of parts.entries()) await publishStored(lean, names.part(snapshot, i), part);
      const seq = await name({ snapshot, parts: parts.length, bytes: bytes.byteLength }, before?.seq ?? 0);
      if (seq === undefined && (await current())?.snapshot !== snapshot) {
        await purge(lean, blobStream, names.parts(snapshot));
        return;
      }
      if (before === undefined) return;
      await purge(lean, blobStream, names.snapshot, before.seq);
      await purge(lean, blobStream, names.parts(before.snapshot));
    },
    load: async () => {
      for (let attempt = 0; ; attempt++) {
        const found = await current();
        if (found === undefined || found.bytes > limits.knowledgeSnapshotMaxBytes) return undefined;
        const parts: Uint8Array[] = [];
        for (let i = 0; i < found.parts; i++) {
          const part = await fixed(names.part(found.snapshot, i));
          if (part === undefined) break;
          parts.push(part);
        }
        if (parts.length === found.parts) return Buffer.concat(parts);
        if (attempt >= 1) return undefined;
      }
    },
  };
  return shelf;
};
