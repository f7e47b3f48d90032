/**
 * Session ids: 26 lowercase base32 characters (RFC 4648 alphabet) of 130 random bits, so that knowing one is no use for guessing another.
 * Drawn again until the session's partition is owned here: the daemon that creates a session then runs it without a hop.
 */
import { randomBytes } from 'node:crypto';
import { partitionOf } from '../../contracts/subjects.ts';

const alphabet = 'abcdefghijklmnopqrstuvwxyz234567';
const sidChars = 26;
/** Draws before a foreign partition is accepted: with one partition of 64 owned, one in 10 million sids ends there. */
const drawsMax = 1_024;

/** `owns(partition)` says whether this daemon owns it; if it owns none, the first draw is taken. */
export const newSid = (org: string, partitions: number, owns: (partition: number) => boolean, ownsAny: boolean, random: (bytes: number) => Buffer = randomBytes): string => {
  for (let draw = 1; ; draw++) {
    const bytes = random(sidChars);
    let sid = '';
    // Five bits of each byte: uniform, because 32 divides 256.
    for (const byte of bytes) sid += alphabet.charAt(byte & 31);
    if (!ownsAny || draw === drawsMax || owns(partitionOf({ org, type: 'session', key: sid }, partitions))) return sid;
  }
};
