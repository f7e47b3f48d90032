/** The mailed sign-in codes, derived so that none is ever stored: eight digits of an attempt's id, the same on every daemon. */
import type { KeyObject } from 'node:crypto';
import { deriveKey, proofOf } from './derive.ts';

export const createSigninCodes = (masterKey: KeyObject): ((key: string, attemptId: string) => string) => {
  const derived = deriveKey(masterKey, 'sign-in code');
  // 48 bits over 10^8: no code is likelier than another by more than a millionth.
  return (key, attemptId) => String(proofOf(derived, key, attemptId).readUIntBE(0, 6) % 100_000_000).padStart(8, '0');
};
