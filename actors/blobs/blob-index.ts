/**
 * What a deployment's blob consists of, as it is stored: one message, there once the blob is whole. JSON, its list of frames in base64.
 *
 * The frames, one after the other, are one zstd stream (RFC 8878 allows frames to follow each other) of the content; each holds `frameBytes`
 * of it, the last one what is left, so that a range is found by a division. A frame is kept in messages of `partBytes`. An empty blob has one
 * frame of nothing.
 */
import { z } from 'zod';
import { coded } from '../../contracts/errors.ts';

export interface FrameRef {
  /** Sequences of its messages in the stream, in order. */
  readonly parts: readonly number[];
  /** Bytes as stored. */
  readonly bytes: number;
  /** SHA-256 of the bytes as stored: nothing that is not what was written is ever unpacked. */
  readonly digest: Buffer;
}

export interface BlobIndex {
  /** The upload that brought the frames. */
  readonly upload: string;
  /** `sha256:` and 64 hex digits, of the content. */
  readonly hash: string;
  /** Bytes of content, and of all frames. */
  readonly size: number;
  readonly stored: number;
  /** Media type as the first upload of this content named it. */
  readonly type: string;
  /** Bytes of content in every frame but the last. */
  readonly frameBytes: number;
  /** Bytes as stored in every message of a frame but the last. */
  readonly partBytes: number;
  readonly frames: readonly FrameRef[];
}

/** Of a frame: bytes (4), digest (32), then 8 for each of its parts. */
const refBytes = 36;
const seqBytes = 8;

const wire = z.object({
  v: z.literal(1), upload: z.string(), hash: z.string(), size: z.int().nonnegative(), stored: z.int().nonnegative(), type: z.string(),
  frame_bytes: z.int().positive(), part_bytes: z.int().positive(), frames: z.base64(),
});

export const encodeIndex = ({ upload, hash, size, stored, type, frameBytes, partBytes, frames }: BlobIndex): Buffer => {
  const refs = Buffer.allocUnsafe(frames.reduce((sum, { parts }) => sum + refBytes + seqBytes * parts.length, 0));
  let at = 0;
  for (const { bytes, digest, parts } of frames) {
    at = refs.writeUInt32BE(bytes, at);
    refs.set(digest, at);
    at += digest.length;
    for (const seq of parts) at = refs.writeBigUInt64BE(BigInt(seq), at);
  }
  return Buffer.from(JSON.stringify({
    v: 1, upload, hash, size, stored, type, frame_bytes: frameBytes, part_bytes: partBytes, frames: refs.toString('base64'),
  } satisfies z.input<typeof wire>));
};

const jsonOf = (data: Uint8Array): unknown => {
  try {
    return JSON.parse(Buffer.from(data.buffer, data.byteOffset, data.byteLength).toString('utf8'));
  } catch (cause) {
    throw coded('blob_damaged', undefined, { cause });
  }
};

/** Throws `blob_damaged` for what cannot have been written here. */
export const decodeIndex = (data: Uint8Array): BlobIndex => {
  const parsed = wire.safeParse(jsonOf(data));
  if (!parsed.success) throw coded('blob_damaged', undefined, { cause: parsed.error });
  const { upload, hash, size, stored, type, frame_bytes: frameBytes, part_bytes: partBytes } = parsed.data;
  const frames = framesIn(Buffer.from(parsed.data.frames, 'base64'), partBytes);
  if (frames.length !== Math.max(1, Math.ceil(size / frameBytes)) || frames.reduce((sum, { bytes }) => sum + bytes, 0) !== stored) throw coded('blob_damaged');
  return { upload, hash, size, stored, type, frameBytes, partBytes, frames };
};

const framesIn = (refs: Buffer, partBytes: number): FrameRef[] => {
  const frames: FrameRef[] = [];
  for (let at = 0; at < refs.length;) {
    if (at + refBytes > refs.length) throw coded('blob_damaged');
    const bytes = refs.readUInt32BE(at);
    const digest = refs.subarray(at + 4, at + refBytes);
    at += refBytes;
    const count = Math.ceil(bytes / partBytes);
    if (count === 0 || at + seqBytes * count > refs.length) throw coded('blob_damaged');
    const from = at;
    frames.push({ bytes, digest, parts: Array.from({ length: count }, (_, i) => Number(refs.readBigUInt64BE(from + seqBytes * i))) });
    at += seqBytes * count;
  }
  return frames;
};
