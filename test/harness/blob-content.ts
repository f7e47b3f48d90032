/** Content of any size for tests of large blobs: made as it is taken, half of it incompressible, and checked as it comes without being held. */
import { createHash, type Hash } from 'node:crypto';

const pieceBytes = 256 * 1024;
const words = Buffer.alloc(pieceBytes, 'a line of a log, 200 OK\n');

/** `bytes` of content, the same for the same seed; `hash` gets all that was taken. */
export function* contentOf(bytes: number, seed: number, hash: Hash): Generator<Buffer> {
  // xorshift32: needs no more than to be incompressible, and fast.
  let state = (seed >>> 0) | 1;
  for (let at = 0, n = 0; at < bytes; at += pieceBytes, n++) {
    const piece = Buffer.from(words);
    const noisy = new Uint32Array(piece.buffer, piece.byteOffset, n % 2 === 0 ? pieceBytes / 4 : 1);
    for (let i = 0; i < noisy.length; i++) {
      state ^= state << 13;
      state ^= state >>> 17;
      state ^= state << 5;
      noisy[i] = state;
    }
    const part = piece.subarray(0, Math.min(pieceBytes, bytes - at));
    hash.update(part);
    yield part;
  }
}

/** Hash of what comes, and its length. */
export const hashed = async (pieces: AsyncIterable<Uint8Array>): Promise<{ readonly hash: string; readonly bytes: number }> => {
  const hash = createHash('sha256');
  let bytes = 0;
  for await (const piece of pieces) {
    hash.update(piece);
    bytes += piece.length;
  }
  return { hash: `sha256:${hash.digest('hex')}`, bytes };
};
