/**
 * The codes of a device authorization (interface 2.1; RFC 8628 sections 5.1, 5.2, 6.1).
 *
 * A device code is 64 hexadecimal characters: 16 random bytes and the first 16 of their HMAC-SHA256 under a key of this cluster.
 * Guarantee: a code that was not made here is told at once, so that guesses reach no actor, count nowhere and leave no trace; guessing one
 * that was is guessing 128 random bits. A user code is drawn evenly from 23^4 * 8^4, about 2^30.
 */
import { createHash, createHmac, randomBytes, randomInt, timingSafeEqual } from 'node:crypto';
import { userCodeDigits, userCodeLetters } from '../../contracts/device.ts';
import type { ActorAddress } from '../../contracts/subjects.ts';

const halfBytes = 16;

const proofOf = (key: Uint8Array, random: Uint8Array): Buffer => createHmac('sha256', key).update(random).digest().subarray(0, halfBytes);

export const newDeviceCode = (key: Uint8Array): string => {
  const random = randomBytes(halfBytes);
  return Buffer.concat([random, proofOf(key, random)]).toString('hex');
};

/** True for a code that `newDeviceCode` made with this key, written as it was given out. */
export const isDeviceCode = (key: Uint8Array, text: string): boolean => {
  if (!/^[0-9a-f]{64}$/.test(text)) return false;
  const bytes = Buffer.from(text, 'hex');
  return timingSafeEqual(proofOf(key, bytes.subarray(0, halfBytes)), bytes.subarray(halfBytes));
};

const draw = (alphabet: string, count: number): string => Array.from({ length: count }, () => alphabet.charAt(randomInt(alphabet.length))).join('');

/** `ABCD-2345`. */
export const newUserCode = (): string => `${draw(userCodeLetters, 4)}-${draw(userCodeDigits, 4)}`;

/** Name of a device authorization: key of its actor and holder of its user code. */
export const deviceId = (deviceCode: string): string => createHash('sha256').update(deviceCode).digest('hex');

export const deviceAddress = (id: string): ActorAddress => ({ org: 'platform', type: 'device', key: id });
