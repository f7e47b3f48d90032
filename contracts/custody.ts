/**
 * The custody contract: bodies and answers of the `/custody/*` routes, and the custody actor that holds one user's keys and
 * passkeys in one organization. Key = the user's id. Source: decisions (Edge gateway, custody bodies), interface 4.6.
 *
 * Guarantee: nothing here has room for a private key in the clear. Private halves appear as `sealed` (AES-256-GCM) only; a
 * challenge is journaled as its SHA-256.
 */
import { z } from 'zod';
import { userId } from './validate.ts';

/** Base64 of any alphabet and padding; bounded by the route's `bodyMaxBytes`, decoded and judged by the daemon, so that its own code answers. */
const base64In = z.string();

export const custodyBodies = {
  user: z.strictObject({ user_id: userId }),
  sign: z.strictObject({ user_id: userId, digest_b64: base64In }),
  /** `passkey_assertion_b64`: base64 of an AuthenticationResponseJSON (WebAuthn level 3, 5.1.8.2). */
  mint: z.strictObject({ user_id: userId, passkey_assertion_b64: base64In.optional(), client_data_json_b64: base64In.optional() }),
  enroll: z.strictObject({ user_id: userId, attestation_object_b64: base64In, client_data_json_b64: base64In }),
} as const;

export const custodyAnswers = {
  signature: z.strictObject({ signature_b64: z.string() }),
  pubkey: z.strictObject({ pubkey_b64: z.string() }),
  minted: z.strictObject({ token: z.string(), expires_at_unix: z.int() }),
  enrolled: z.strictObject({ token: z.string(), expires_at_unix: z.int(), did: z.string() }),
  challenge: z.strictObject({ challenge_b64: z.string(), expires_at_unix: z.int() }),
} as const;

/** What the daemon says before the gateway mints. */
export const custodyAgrees = {
  mint: z.strictObject({}),
  enroll: z.strictObject({ did: z.string() }),
} as const;

/** AES-256-GCM: 12 bytes of nonce, the ciphertext, 16 bytes of tag; standard base64. */
const sealed = z.base64().max(256);

/** A user's keys as they are kept. All base64 is standard and padded. */
export const custodyKeys = z.strictObject({
  /** Version of the sealing (actors/custody/vault.ts). */
  v: z.literal(1),
  /** Names the master key that wraps `data_key`: the first bytes of its fingerprint, not secret. */
  master_id: z.string().max(64),
  /** The actor's own data key, sealed by the master key. */
  data_key: sealed,
  /** Private halves (32 bytes each), sealed by the data key. */
  auth_key: sealed,
  wallet_key: sealed,
  /** Ed25519, 32 bytes. */
  auth_pubkey: z.base64().length(44),
  /** secp256k1, 65 bytes, uncompressed. */
  wallet_pubkey: z.base64().length(88),
});
export type CustodyKeys = z.infer<typeof custodyKeys>;

/** A passkey that may answer for the user. Byte strings are base64url without padding, as WebAuthn's JSON has them. */
export const passkey = z.strictObject({
  credential_id: z.string().min(1).max(2_048),
  /** COSE key. */
  public_key: z.string().min(1).max(8_192),
  /** Signature counter of the last use; 0 = the authenticator counts nothing. */
  counter: z.int().nonnegative(),
  /** A passkey that may be synchronized is on many devices. */
  device: z.enum(['single', 'multi']),
});
export type Passkey = z.infer<typeof passkey>;

const challengeHash = z.string().regex(/^[0-9a-f]{64}$/);

/** All for the daemon only (access `system`): what they take has been verified by it. */
export const custodyCommands = {
  /** The keys, null before the first use. */
  keys: { input: z.strictObject({}), output: z.strictObject({ keys: custodyKeys.nullable() }) },
  /** Takes keys if there are none yet; gives those that hold from now on. */
  adopt: { input: z.strictObject({ keys: custodyKeys }), output: z.strictObject({ keys: custodyKeys }) },
  /** Makes a challenge valid once, for `limits.challengeTtlMs`. */
  challenge: { input: z.strictObject({ challenge_sha256: challengeHash }), output: z.strictObject({ expires_at_unix: z.int() }) },
  passkeys: { input: z.strictObject({}), output: z.strictObject({ passkeys: z.array(passkey) }) },
  /** Uses up the challenge and adds the passkey. `bad_attestation`: no such challenge, or the passkey is known. */
  enroll: { input: z.strictObject({ challenge_sha256: challengeHash, passkey }), output: z.strictObject({}) },
  /** Uses up the challenge and notes the counter. `bad_assertion`: no such challenge or passkey, or the counter did not grow. */
  assert: {
    input: z.strictObject({ challenge_sha256: challengeHash, credential_id: passkey.shape.credential_id, counter: passkey.shape.counter }),
    output: z.strictObject({}),
  },
} as const;

export const custodyEvents = {
  KeysAdopted: z.strictObject({ keys: custodyKeys }),
  ChallengeIssued: z.strictObject({ challenge_sha256: challengeHash, issued_at: z.int(), expires_at: z.int() }),
  PasskeyEnrolled: z.strictObject({ challenge_sha256: challengeHash, passkey, at: z.int() }),
  PasskeyUsed: z.strictObject({ challenge_sha256: challengeHash, credential_id: passkey.shape.credential_id, counter: passkey.shape.counter, at: z.int() }),
} as const;
