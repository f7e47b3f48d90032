/**
 * Blobs in the NATS object store `blobs` (contracts/subjects.ts buckets). Object name = organization token, a dot, the hash.
 *
 * Guarantees: blobs.ts. A blob is written under its final name only when it is whole, and read bytes are hashed again: a store that
 * lost or changed something shows as `journal_unavailable`, never as other bytes. Two writers of the same content are harmless.
 */
import { jetstream } from '@nats-io/jetstream';
import { Objm, type ObjectStore } from '@nats-io/obj';
import type { NatsConnection } from 'nats';
import { coded, CodedError } from '../../contracts/errors.ts';
import { buckets, encodeToken } from '../../contracts/subjects.ts';
import { gather, hashOf, isBlobHash, type Blobs } from './blobs.ts';

const objectName = (org: string, hash: string): string => `${encodeToken(org)}.${hash.replace(':', '-')}`;

/** Bytes of one stored chunk; below NATS' default payload. */
const chunkBytes = 128 * 1024;

const adapt = async <T>(work: Promise<T>): Promise<T> => {
  try {
    return await work;
  } catch (error) {
    if (error instanceof CodedError) throw error;
    throw coded('journal_unavailable', 'The blob store does not answer.', { cause: error });
  }
};

async function* chunksOf(data: ReadableStream<Uint8Array>): AsyncGenerator<Uint8Array> {
  const reader = data.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield value;
    }
  } finally {
    await reader.cancel();
  }
}

const readOnce = async (store: ObjectStore, name: string): Promise<Uint8Array | undefined> => {
  const found = await store.get(name);
  if (found === null) return undefined;
  const bytes = await gather(chunksOf(found.data));
  // Typed `Error | null`, and undefined in fact when all went well.
  const failure: unknown = await found.error;
  if (failure instanceof Error) throw failure;
  return bytes;
};

/** Opens the object store, asking nothing of the server: its stream must exist (`ensureStreams`). */
export const natsBlobs = async (nc: NatsConnection): Promise<Blobs> => {
  const store = await adapt(new Objm(jetstream(nc, { checkAPI: false })).open(buckets.blobs, false));
  return {
    put: async (org, body) => {
      const bytes = await gather(body);
      const hash = hashOf(bytes);
      const name = objectName(org, hash);
      const existing = await adapt(store.info(name));
      if (existing !== null && !existing.deleted) return { hash, size: bytes.byteLength, known: true };
      await adapt(store.putBlob({ name, options: { max_chunk_size: chunkBytes } }, bytes));
      return { hash, size: bytes.byteLength, known: false };
    },
    get: async (org, hash) => {
      if (!isBlobHash(hash)) throw coded('blob_not_found');
      const name = objectName(org, hash);
      for (let attempt = 0; ; attempt++) {
        try {
          const bytes = await readOnce(store, name);
          if (bytes === undefined) throw coded('blob_not_found');
          if (hashOf(bytes) === hash) return bytes;
          throw coded('journal_unavailable', 'A stored blob does not match its name.');
        } catch (error) {
          if (error instanceof CodedError && error.code === 'blob_not_found') throw error;
          // A second writer of the same blob replaces its chunks: read once more before giving up.
          if (attempt >= 1) throw error instanceof CodedError ? error : coded('journal_unavailable', 'The blob store does not answer.', { cause: error });
        }
      }
    },
  };
};
