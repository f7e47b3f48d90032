/**
 * Makes, opens and uses private keys. The only code that sees one in the clear.
 *
 * Sealing: each actor has a data key of its own; it is sealed by the daemon's master key, the private halves by the data key, all
 * with AES-256-GCM and a fresh nonce of 96 bits. The actor's address, the purpose and the public key are authenticated with it, so
 * a ciphertext moved to another actor, another purpose or beside another public key does not open.
 *
 * Guarantees: a private key is in memory only while `make` or `sign` runs, synchronously; its buffers are overwritten before they
 * return or throw. What leaves is ciphertext, public keys and signatures. Not covered: copies inside OpenSSL (which cleanses them
 * when the key object is collected) and the big integers of the curve library, which JavaScript cannot overwrite.
 */
import {
  createCipheriv, createDecipheriv, createHmac, createPrivateKey, createPublicKey, createSecretKey, randomBytes, sign as signWith, type KeyObject,
} from 'node:crypto';
import { secp256k1 } from '@noble/curves/secp256k1.js';
import type { CustodyKeys } from '../../contracts/custody.ts';
import { coded } from '../../contracts/errors.ts';
import { addressTokens, type ActorAddress } from '../../contracts/subjects.ts';
import { decodeBase64 } from './base64.ts';

const cipher = 'aes-256-gcm';
const keyBytes = 32;
const nonceBytes = 12;
const tagBytes = 16;
/** DER of a PKCS 8 Ed25519 key up to its 32 bytes (RFC 8410, 7). */
const ed25519Der = Buffer.from('302e020100300506032b657004220420', 'hex');

type Purpose = 'data' | 'auth' | 'wallet' | 'secret';

export interface Vault {
  /** New keys for an actor, sealed. */
  make(self: ActorAddress): CustodyKeys;
  /** Ed25519 over the bytes (RFC 8032): 64 bytes. Throws an Error (a bug or a wrong master key) if the keys do not open. */
  signAuth(self: ActorAddress, keys: CustodyKeys, digest: Uint8Array): Uint8Array;
  /** Seals a further secret under the same data key; `openSecret` gives it back. The caller overwrites both. */
  sealSecret(self: ActorAddress, keys: CustodyKeys, secret: Uint8Array): string;
  openSecret(self: ActorAddress, keys: CustodyKeys, sealed: string): Buffer;
  /** secp256k1 ECDSA of the 32 bytes as they are: r and s, 64 bytes, s in the lower half (EIP-2). Deterministic (RFC 6979). */
  signWallet(self: ActorAddress, keys: CustodyKeys, digest: Uint8Array): Uint8Array;
}

/** Reads the master key's file text: 32 bytes in base64. Throws `bad_request` with a sentence for the operator. */
export const readMasterKey = (text: string): KeyObject => {
  const bytes = decodeBase64(text.trim());
  if (bytes?.length !== keyBytes) throw coded('bad_request', 'master_key_path: the file must hold 32 bytes in base64.');
  const key = createSecretKey(bytes);
  bytes.fill(0);
  return key;
};

const boundTo = (self: ActorAddress, purpose: Purpose, publicKey: string): Buffer =>
  Buffer.from(['troupe custody 1', addressTokens(self), purpose, publicKey].join('\n'));

const seal = (key: KeyObject | Uint8Array, plain: Uint8Array, bound: Buffer): string => {
  const nonce = randomBytes(nonceBytes);
  const sealing = createCipheriv(cipher, key, nonce, { authTagLength: tagBytes });
  sealing.setAAD(bound);
  const text = Buffer.concat([sealing.update(plain), sealing.final()]);
  return Buffer.concat([nonce, text, sealing.getAuthTag()]).toString('base64');
};

/** The caller overwrites what it gets. */
const open = (key: KeyObject | Uint8Array, text: string, bound: Buffer): Buffer => {
  const bytes = Buffer.from(text, 'base64');
  const end = bytes.length - tagBytes;
  if (end < nonceBytes) throw new TypeError('a sealed key is cut short');
  const opening = createDecipheriv(cipher, key, bytes.subarray(0, nonceBytes), { authTagLength: tagBytes });
  opening.setAAD(bound);
  opening.setAuthTag(bytes.subarray(end));
  const plain = opening.update(bytes.subarray(nonceBytes, end));
  try {
    opening.final();
  } catch (cause) {
    plain.fill(0);
    throw new Error('a sealed key does not open: it was changed or belongs elsewhere', { cause });
  }
  return plain;
};

/** The key object holds a copy of the seed; the DER around it is overwritten. */
const ed25519Of = (seed: Uint8Array): KeyObject => {
  const der = Buffer.concat([ed25519Der, seed]);
  try {
    return createPrivateKey({ key: der, format: 'der', type: 'pkcs8' });
  } finally {
    der.fill(0);
  }
};

const ed25519Public = (key: KeyObject): string => {
  const { x } = createPublicKey(key).export({ format: 'jwk' });
  return Buffer.from(x ?? '', 'base64url').toString('base64');
};

/** A vault under this master key; it keeps the key object, never its bytes. */
export const createVault = (master: KeyObject): Vault => {
  const masterId = createHmac('sha256', master).update('troupe custody master key id').digest('base64url').slice(0, 11);

  const withDataKey = <T>(self: ActorAddress, keys: CustodyKeys, work: (dataKey: Uint8Array) => T): T => {
    if (keys.master_id !== masterId) {
      throw new Error(`the keys of ${addressTokens(self)} are sealed by master key ${keys.master_id}; this daemon has ${masterId}`);
    }
    const dataKey = open(master, keys.data_key, boundTo(self, 'data', ''));
    try {
      return work(dataKey);
    } finally {
      dataKey.fill(0);
    }
  };

  const use = <T>(self: ActorAddress, keys: CustodyKeys, purpose: 'auth' | 'wallet', work: (secret: Uint8Array) => T): T =>
    withDataKey(self, keys, (dataKey) => {
      const [text, publicKey] = purpose === 'auth' ? [keys.auth_key, keys.auth_pubkey] : [keys.wallet_key, keys.wallet_pubkey];
      const secret = open(dataKey, text, boundTo(self, purpose, publicKey));
      try {
        return work(secret);
      } finally {
        secret.fill(0);
      }
    });

  return {
    make: (self) => {
      const dataKey = randomBytes(keyBytes);
      const authKey = randomBytes(keyBytes);
      const walletKey = secp256k1.utils.randomSecretKey();
      try {
        const authPubkey = ed25519Public(ed25519Of(authKey));
        const walletPubkey = Buffer.from(secp256k1.getPublicKey(walletKey, false)).toString('base64');
        return {
          v: 1,
          master_id: masterId,
          data_key: seal(master, dataKey, boundTo(self, 'data', '')),
          auth_key: seal(dataKey, authKey, boundTo(self, 'auth', authPubkey)),
          wallet_key: seal(dataKey, walletKey, boundTo(self, 'wallet', walletPubkey)),
          auth_pubkey: authPubkey,
          wallet_pubkey: walletPubkey,
        };
      } finally {
        for (const secret of [dataKey, authKey, walletKey]) secret.fill(0);
      }
    },
    signAuth: (self, keys, digest) => use(self, keys, 'auth', (secret) => signWith(null, digest, ed25519Of(secret))),
    sealSecret: (self, keys, secret) => withDataKey(self, keys, (dataKey) => seal(dataKey, secret, boundTo(self, 'secret', ''))),
    openSecret: (self, keys, sealed) => withDataKey(self, keys, (dataKey) => open(dataKey, sealed, boundTo(self, 'secret', ''))),
    signWallet: (self, keys, digest) => use(self, keys, 'wallet', (secret) => secp256k1.sign(digest, secret, { prehash: false, lowS: true, format: 'compact' })),
  };
};
