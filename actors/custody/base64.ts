/**
 * Base64 as callers send it: standard or URL-safe alphabet, padded or not (decisions, Edge gateway). Strict in everything else:
 * one alphabet at a time, padding right or absent, no stray bits, no white space; so one value has few spellings and noise none.
 */
const standard = /^[A-Za-z0-9+/]*={0,2}$/;
const urlSafe = /^[A-Za-z0-9_-]*={0,2}$/;

/** The bytes, or undefined if it is not base64. The empty text is no bytes. */
export const decodeBase64 = (text: string): Buffer | undefined => {
  if (!standard.test(text) && !urlSafe.test(text)) return undefined;
  const bare = text.replace(/=+$/, '');
  if (bare.length !== text.length && text.length % 4 !== 0) return undefined;
  // Node reads both alphabets and drops what does not fit: only what it writes again as it was is believed.
  const bytes = Buffer.from(bare, 'base64url');
  return bytes.toString('base64url') === bare.replaceAll('+', '-').replaceAll('/', '_') ? bytes : undefined;
};
