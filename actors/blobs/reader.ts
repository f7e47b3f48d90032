/**
 * A stored blob, read back: its content or a part of it, or its frames as they are stored.
 *
 * Guarantees: only frames whose bytes have the digest that was noted when they were written are unpacked or given out, in their order, none
 * missing; the whole content is hashed as well, and its last piece given out only when the hash is the blob's. What fails one of these ends with
 * `blob_damaged`. A reader holds one frame, packed and unpacked, and two batches of messages.
 */
import { createHash } from 'node:crypto';
import { coded } from '../../contracts/errors.ts';
import type { BlobIndex, FrameRef } from './blob-index.ts';
import type { Shelf } from './shelf.ts';
import type { Zstd } from './zstd.ts';

export interface StoredBlob {
  /** `sha256:` and 64 hex digits, of the content. */
  readonly hash: string;
  /** Bytes of content, and as stored. */
  readonly size: number;
  readonly compressedSize: number;
  /** Media type as the first upload of this content named it. */
  readonly type: string;
  /** The content's bytes from `from` up to, not including, `to`. Default all. Throws `blob_damaged`, `journal_unavailable`. */
  content(from?: number, to?: number): AsyncGenerator<Uint8Array, void, undefined>;
  /** The frames as stored: one zstd stream. Throws `blob_damaged`, `journal_unavailable`. */
  packed(): AsyncGenerator<Uint8Array, void, undefined>;
}

const damaged = (): Error => coded('blob_damaged');

const requireDigest = ({ bytes, digest }: FrameRef, parts: readonly Uint8Array[]): void => {
  const hash = createHash('sha256');
  let length = 0;
  for (const part of parts) {
    hash.update(part);
    length += part.length;
  }
  if (length !== bytes || !hash.digest().equals(digest)) throw damaged();
};

export const openStored = (index: BlobIndex, shelf: Shelf, zstd: Zstd): StoredBlob => {
  const { hash, size, stored, type, frameBytes, frames } = index;

  /** Frames `first` to `last`, each with its number and its parts. */
  async function* read(first: number, last: number): AsyncGenerator<readonly [number, readonly Uint8Array[]], void, undefined> {
    const from = frames[first]?.parts[0];
    const to = frames[last]?.parts.at(-1);
    if (from === undefined || to === undefined) throw damaged();
    let next = first;
    let parts: Uint8Array[] = [];
    for await (const batch of shelf.parts(index.upload, from, to)) {
      for (const { seq, data } of batch) {
        const frame = frames[next];
        const wanted = frame?.parts[parts.length];
        if (frame === undefined || wanted === undefined || seq > wanted) throw damaged();
        // A part that was sent twice, as its first answer was lost.
        if (seq < wanted) continue;
        parts.push(data);
        if (parts.length < frame.parts.length) continue;
        requireDigest(frame, parts);
        yield [next, parts];
        next += 1;
        parts = [];
      }
    }
    if (next !== last + 1) throw damaged();
  }

  const sizeOf = (frame: number): number => (frame < frames.length - 1 ? frameBytes : size - frame * frameBytes);

  return {
    hash, size, compressedSize: stored, type,
    content: async function* content(from = 0, to = size) {
      const whole = from === 0 && to === size ? createHash('sha256') : undefined;
      const first = Math.floor(from / frameBytes);
      const last = Math.max(first, Math.ceil(to / frameBytes) - 1);
      for await (const [frame, parts] of read(first, last)) {
        const bytes = await zstd.decompress(Buffer.concat(parts), sizeOf(frame));
        whole?.update(bytes);
        if (frame === last && whole !== undefined && `sha256:${whole.digest('hex')}` !== hash) throw damaged();
        const start = frame * frameBytes;
        const part = bytes.subarray(Math.max(0, from - start), Math.min(bytes.length, to - start));
        if (part.length > 0) yield part;
      }
    },
    packed: async function* packed() {
      for await (const [, parts] of read(0, frames.length - 1)) yield* parts;
    },
  };
};
