/**
 * Keys and proofs derived from the daemon's master key: what has to be checked later without being stored.
 *
 * Guarantee: HKDF-SHA256 (RFC 5869) with a use's own `info`, so that no proof of one use is one of another. All daemons of a cluster hold
 * the same master key and so agree. A derived value never stands in a journal or a log.
 */
import { createHash, createHmac, hkdfSync, timingSafeEqual, type KeyObject } from 'node:crypto';

/** 32 bytes for one use: `troupe <use> v1`. */
export const deriveKey = (master: KeyObject, use: string): Buffer => Buffer.from(hkdfSync('sha256', master.export(), Buffer.alloc(0), `troupe ${use} v1`, 32));

/** HMAC-SHA256 over parts, each with its length before it, so that no two lists of parts are the same bytes. */
export const proofOf = (key: Buffer, ...parts: readonly string[]): Buffer => {
  const hmac = createHmac('sha256', key);
  for (const part of parts) hmac.update(`${Buffer.byteLength(part)}:`).update(part);
  return hmac.digest();
};

/** Compares in constant time; of unequal lengths is unequal. */
export const sameBytes = (a: Uint8Array, b: Uint8Array): boolean => a.length === b.length && timingSafeEqual(a, b);

/** Hex. Bearer secrets are stored and compared as this. */
export const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');
