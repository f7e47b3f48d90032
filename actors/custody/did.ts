/**
 * `did:key` of an Ed25519 public key: the multicodec prefix 0xed 0x01 and the key, in base58btc with the multibase letter `z`
 * (W3C CCG, did:key method 0.9, 3.1; multiformats).
 */
const alphabet = '123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz';
const ed25519Prefix = Uint8Array.of(0xed, 0x01);

const base58 = (bytes: Uint8Array): string => {
  let number = BigInt(`0x${Buffer.from(bytes).toString('hex')}`);
  let text = '';
  for (; number > 0n; number /= 58n) text = alphabet.charAt(Number(number % 58n)) + text;
  return text;
};

/** 32 bytes. The prefix's first byte is never 0, so base58's rule for leading zeros is not needed. */
export const didKey = (authPubkey: Uint8Array): string => `did:key:z${base58(Buffer.concat([ed25519Prefix, authPubkey]))}`;
