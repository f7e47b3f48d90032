/**
 * Values that a browser keeps for us: AES-256-GCM (NIST SP 800-38D) with a random 96-bit nonce, as base64url.
 *
 * Guarantee: what `open` gives was made by `seal` with the same key for the same use, unchanged; everything else is undefined. Nobody
 * without the key reads it. It does not say when, or how often: the value itself must hold its end.
 */
import { createCipheriv, createDecipheriv, randomBytes } from 'node:crypto';

const nonceBytes = 12;
const tagBytes = 16;

/** `key`: 32 bytes. `use` is bound to the value and must be given again. */
export const seal = (key: Uint8Array, use: string, text: string): string => {
  const nonce = randomBytes(nonceBytes);
  const cipher = createCipheriv('aes-256-gcm', key, nonce, { authTagLength: tagBytes }).setAAD(Buffer.from(use));
  return Buffer.concat([nonce, cipher.update(text, 'utf8'), cipher.final(), cipher.getAuthTag()]).toString('base64url');
};

export const open = (key: Uint8Array, use: string, sealed: string): string | undefined => {
  const bytes = Buffer.from(sealed, 'base64url');
  if (bytes.length < nonceBytes + tagBytes) return undefined;
  const decipher = createDecipheriv('aes-256-gcm', key, bytes.subarray(0, nonceBytes), { authTagLength: tagBytes })
    .setAAD(Buffer.from(use)).setAuthTag(bytes.subarray(-tagBytes));
  try {
    return Buffer.concat([decipher.update(bytes.subarray(nonceBytes, -tagBytes)), decipher.final()]).toString('utf8');
  } catch {
    // Not ours, or changed on its way.
    return undefined;
  }
};
