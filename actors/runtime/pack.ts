/**
 * Large messages, packed: what does not fit the default payload of NATS is stored and sent as gzip (RFC 1952), which any language reads.
 *
 * Guarantees: up to the plain bound bytes stay as they are, so that the common message costs nothing and reads as JSON; JSON never begins with
 * gzip's magic bytes, so the form needs no flag; unpacking is bounded.
 */
import { gunzipSync, gzipSync } from 'node:zlib';
import { coded } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';

const isPacked = (data: Uint8Array): boolean => data[0] === 0x1f && data[1] === 0x8b;

/** As it is up to `plainMax` bytes, else packed; undefined = it does not fit `limits.packedMaxBytes` even so. */
export const pack = (data: Uint8Array, plainMax: number): Uint8Array | undefined => {
  if (data.byteLength <= plainMax) return data;
  // Fast: these are rare, and their size is what matters to the server, not their last percent.
  const packed = gzipSync(data, { level: 1 });
  return packed.byteLength <= limits.packedMaxBytes ? packed : undefined;
};

/** What `pack` was given. Throws `code` for bytes that look packed and are not, or hold more than `max`. */
export const unpack = (data: Uint8Array, max: number, code: 'journal_unreadable' | 'bad_request' = 'journal_unreadable'): Uint8Array => {
  if (!isPacked(data)) return data;
  try {
    return gunzipSync(data, { maxOutputLength: max });
  } catch (cause) {
    throw coded(code, 'A packed message cannot be read.', { cause });
  }
};
