/**
 * One deployment's place in the object store's stream: the messages of its blobs, written and read by name (contracts/subjects.ts, blobSubjects).
 *
 * Guarantee: of two writers of one index exactly one wins (the fence is the stream's), and each knows which; a blob's index is read as it is, or
 * as not there, never as it was. It does not know what frames mean.
 */
import { z } from 'zod';
import { coded, CodedError } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { blobStream, blobSubjects } from '../../contracts/subjects.ts';
import { readAck, tooLargeCode } from '../runtime/nats/ack.ts';
import { HeaderLine } from '../runtime/nats/header.ts';
import type { Lean } from '../runtime/nats/lean.ts';
import { publishStored } from '../runtime/nats/publish.ts';
import { purge } from '../runtime/nats/purge.ts';
import { directGet, forward, leaderLast, readTimes } from '../runtime/nats/read.ts';
import { untilAnswered } from '../runtime/nats/retry.ts';
import type { StoredMessage } from '../runtime/store.ts';
import { decodeIndex, encodeIndex, type BlobIndex } from './blob-index.ts';

/** Whose blobs: nobody else reaches them. */
export interface BlobScope {
  readonly organizationId: string;
  readonly deploymentId: string;
}

/** What an upload says of itself while it runs; `hash` once it is known, before anything of it can be seen. */
const uploadMark = z.strictObject({ hash: z.string().optional() });

const fence = 'Nats-Expected-Last-Subject-Sequence';

/** The deployment, and this upload with it, is not there any more. */
export const erased = (): CodedError => coded('not_found', 'The deployment was erased meanwhile.');

export const openShelf = (lean: Lean, { organizationId, deploymentId }: BlobScope) => {
  const names = blobSubjects(organizationId, deploymentId);
  const hexOf = (hash: string): string => hash.slice('sha256:'.length);

  const index = async (hash: string): Promise<BlobIndex | undefined> => {
    const subject = names.index(hexOf(hash));
    // An index never changes: where a replica has one, that is it. Only "none" needs the leader.
    const found = await directGet(lean, blobStream, { last_by_subj: subject }) ?? await leaderLast(lean, blobStream, subject);
    return found === undefined ? undefined : decodeIndex(found.data);
  };

  /** Stores a message behind one (0 = as the subject's first); its sequence, or undefined where the subject ends otherwise. */
  const fenced = (subject: string, data: Uint8Array, behind: number): Promise<number | undefined> =>
    untilAnswered(readTimes.deadlineMs, limits.appendAckMs, async (timeoutMs) => {
      const ack = readAck(await lean.request(subject, data, { timeoutMs, headers: new HeaderLine(fence, behind) }));
      if (ack.stored) return ack.seq;
      if (ack.fenced) return undefined;
      if (ack.errCode === tooLargeCode) throw coded('payload_too_large');
      throw coded('no_owner', `JetStream refused a message of a blob: ${ack.errCode} ${ack.description}`);
    });

  /** True: it is published, by this call or by one before it whose answer was lost. False: another upload's is there, or was. */
  const publishIndex = async (blob: BlobIndex): Promise<boolean> => {
    const subject = names.index(hexOf(blob.hash));
    if (await fenced(subject, encodeIndex(blob), 0) !== undefined) return true;
    const there = await leaderLast(lean, blobStream, subject);
    return there !== undefined && decodeIndex(there.data).upload === blob.upload;
  };

  /** The last mark of an upload, with its sequence and the Unix milliseconds of it; undefined = it has ended, or was erased. */
  const markOf = async (upload: string): Promise<(z.output<typeof uploadMark> & { readonly seq: number; readonly time: number }) | undefined> => {
    const last = await leaderLast(lean, blobStream, names.upload(upload));
    return last === undefined ? undefined : { ...uploadMark.parse(JSON.parse(Buffer.from(last.data).toString('utf8'))), seq: last.seq, time: last.time };
  };

  /** Behind the mark with the sequence `behind`, 0 = none yet; its own sequence. Throws `not_found` where that mark was erased meanwhile. */
  const mark = async (upload: string, said: z.input<typeof uploadMark>, behind: number): Promise<number> => {
    const seq = await fenced(names.upload(upload), Buffer.from(JSON.stringify(said)), behind);
    if (seq !== undefined) return seq;
    const there = await markOf(upload);
    // Stored by a try whose answer was lost: nobody else marks this upload.
    if (there !== undefined && there.seq > behind && there.hash === said.hash) return there.seq;
    throw erased();
  };

  return {
    index, publishIndex, mark, markOf,
    /** Appends a part of a frame; gives the sequence it can be read at. */
    append: (upload: string, part: Uint8Array): Promise<number> => publishStored(lean, names.data(upload), part),
    /** The parts of an upload's frames from one sequence to another, read no faster than they are taken. */
    parts: (upload: string, fromSeq: number, toSeq: number): AsyncGenerator<readonly StoredMessage[], void, undefined> =>
      forward(lean, blobStream, names.data(upload), fromSeq, toSeq, readTimes, 2 * limits.blobPartBytes),
    unmark: async (upload: string): Promise<void> => { await purge(lean, blobStream, names.upload(upload)); },
    dropFrames: async (upload: string): Promise<void> => { await purge(lean, blobStream, names.data(upload)); },
    dropIndex: async (hash: string): Promise<void> => { await purge(lean, blobStream, names.index(hexOf(hash))); },
    /** Indexes published after a sequence, in batches. */
    indexes: (after: number): AsyncGenerator<readonly StoredMessage[], void, undefined> => forward(lean, blobStream, names.indexes, after + 1, Number.MAX_SAFE_INTEGER),
    erase: async (): Promise<void> => { await purge(lean, blobStream, names.all); },
  } as const;
};

export type Shelf = ReturnType<typeof openShelf>;

/** After this error a message may still be stored later. */
export const isAmbiguous = (error: unknown): boolean => error instanceof CodedError && error.code === 'journal_unavailable';
