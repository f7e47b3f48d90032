/**
 * The two secrets a login is held by: the session cookie's value and the refresh token. Both lead to their user, since there is no index of
 * secrets, and end with a proof (HMAC under a key derived from the master key).
 *
 * Guarantees: 128 random bits or 64 and 64 of proof, so that guessing is hopeless; what was not made here is told at once, so that guesses
 * reach no actor and leave no trace. Stored and compared as SHA-256 of the whole text. Another master key ends all logins.
 */
import { randomBytes, type KeyObject } from 'node:crypto';
import { isAccountId } from '../../../contracts/ids.ts';
import { deriveKey, proofOf, sameBytes } from './derive.ts';

export interface Bearers {
  /** `<userId>.<43 base64url>`. */
  newCookie(userId: string): string;
  /** The user's id; undefined for what was not made here. */
  cookieUser(value: string): string | undefined;
  /** 64 hexadecimal characters (decisions, Device flow): the 128 bits of the user id's ULID, 64 random bits, 64 bits of proof. */
  newRefresh(userId: string): string;
  refreshUser(token: string): string | undefined;
}

const alphabet = '0123456789abcdefghjkmnpqrstvwxyz';

/** The 128 bits of `usr_<ulid>` in hex. */
export const hexOfUser = (userId: string): string => {
  let bits = 0n;
  for (const char of userId.slice('usr_'.length)) bits = bits * 32n + BigInt(alphabet.indexOf(char));
  return bits.toString(16).padStart(32, '0');
};

export const userOfHex = (hex: string): string => {
  let bits = BigInt(`0x${hex}`);
  let ulid = '';
  for (let i = 0; i < 26; i++) {
    ulid = alphabet.charAt(Number(bits % 32n)) + ulid;
    bits /= 32n;
  }
  return `usr_${ulid}`;
};

const cookieForm = /^(usr_[0-9a-z]{26})\.([A-Za-z0-9_-]{43})$/;
const refreshForm = /^([0-9a-f]{32})([0-9a-f]{16})([0-9a-f]{16})$/;

export const createBearers = (masterKey: KeyObject): Bearers => {
  const cookieKey = deriveKey(masterKey, 'session cookie');
  const refreshKey = deriveKey(masterKey, 'refresh token');
  const cookieProof = (userId: string, random: Uint8Array): Buffer => proofOf(cookieKey, userId, Buffer.from(random).toString('hex')).subarray(0, 16);
  const refreshProof = (user: string, random: string): string => proofOf(refreshKey, user, random).subarray(0, 8).toString('hex');
  return {
    newCookie: (userId) => {
      const random = randomBytes(16);
      return `${userId}.${Buffer.concat([random, cookieProof(userId, random)]).toString('base64url')}`;
    },
    cookieUser: (value) => {
      const [, userId, secret] = cookieForm.exec(value) ?? [];
      if (userId === undefined || secret === undefined || !isAccountId(userId)) return undefined;
      const bytes = Buffer.from(secret, 'base64url');
      // The last character of 43 has two bits to spare: one value has one spelling.
      if (bytes.toString('base64url') !== secret) return undefined;
      return sameBytes(bytes.subarray(16), cookieProof(userId, bytes.subarray(0, 16))) ? userId : undefined;
    },
    newRefresh: (userId) => {
      const user = hexOfUser(userId);
      const random = randomBytes(8).toString('hex');
      return `${user}${random}${refreshProof(user, random)}`;
    },
    refreshUser: (token) => {
      const [, user, random, proof] = refreshForm.exec(token) ?? [];
      if (user === undefined || random === undefined || proof === undefined) return undefined;
      return sameBytes(Buffer.from(proof, 'hex'), Buffer.from(refreshProof(user, random), 'hex')) ? userOfHex(user) : undefined;
    },
  };
};
