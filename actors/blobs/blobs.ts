/**
 * Content-addressed bytes of an organization: what a message's `attachment_blob_ref` names. The name of a blob is the SHA-256 of
 * its bytes, so a blob never changes and storing it twice stores it once; every read is checked against the name.
 *
 * Blobs belong to an organization: another one that knows the hash still gets `blob_not_found`.
 * Bounded: a blob is held in memory while it is written or read, at most `limits.attachmentMaxBytes`.
 */
import { createHash } from 'node:crypto';
import { coded } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';

export interface BlobEntry {
  /** `sha256:` and 64 hex digits. */
  readonly hash: string;
  /** Bytes. */
  readonly size: number;
  /** The organization had it already. */
  readonly known: boolean;
}

export interface Blobs {
  /** Stores the bytes. Errors: `payload_too_large` (more than `limits.attachmentMaxBytes`; nothing is stored), `journal_unavailable`. */
  put(org: string, body: AsyncIterable<Uint8Array> | Iterable<Uint8Array>): Promise<BlobEntry>;
  /** The bytes. Errors: `blob_not_found` (unknown, or not a hash), `journal_unavailable` (the store fails, or its bytes do not match the name). */
  get(org: string, hash: string): Promise<Uint8Array>;
}

const name = /^sha256:[0-9a-f]{64}$/;
export const isBlobHash = (hash: string): boolean => name.test(hash);
export const hashOf = (bytes: Uint8Array): string => `sha256:${createHash('sha256').update(bytes).digest('hex')}`;

/** The whole body, refused with `payload_too_large` as soon as it exceeds the bound. */
export const gather = async (body: AsyncIterable<Uint8Array> | Iterable<Uint8Array>, maxBytes: number = limits.attachmentMaxBytes): Promise<Uint8Array> => {
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of body) {
    size += chunk.byteLength;
    if (size > maxBytes) throw coded('payload_too_large', `A blob holds at most ${maxBytes} bytes.`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks, size);
};
