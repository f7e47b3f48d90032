/**
 * The user actor's contract: one account, its logins (grants) and what it accepted. Org token `u-<userId>`, key `<userId>`.
 * All commands are for the daemon (access `system`).
 *
 * Guarantee: secrets are here as SHA-256 (hex) only. Every request that shows a token of the user is decided by `check`, so a
 * revocation holds for the next request wherever it arrives.
 */
import { z } from 'zod';
import { limits } from './limits.ts';

const sha256 = z.string().regex(/^[0-9a-f]{64}$/);
const nothing = z.strictObject({});

/** `browser`: session cookie; `device`: refresh-token family of the device flow; `api-token`: made at /api/auth/api-token, with a refresh family too. */
export const grantKind = z.enum(['browser', 'device', 'api-token']);
export type GrantKind = z.infer<typeof grantKind>;

export const newGrant = z.strictObject({
  id: z.string(), kind: grantKind, client_id: z.string().max(limits.idMaxChars),
  /** Of the cookie or of the refresh token. */
  secret_sha256: sha256,
  /** Unix milliseconds: end of the cookie or of the refresh token. */
  expires_at: z.int(),
  ip: z.string(), user_agent: z.string(),
});
export type NewGrant = z.infer<typeof newGrant>;

/** A grant as the user's own list shows it. */
export const grant = z.strictObject({
  id: z.string(), kind: grantKind, clientId: z.string(), createdAt: z.iso.datetime(), lastUsedAt: z.iso.datetime().nullable(),
  expiresAt: z.iso.datetime(), ipAddress: z.string(), userAgent: z.string(), current: z.boolean(),
});

export const identityProvider = z.enum(['email', 'google', 'github']);
export type IdentityProvider = z.infer<typeof identityProvider>;

/** What the daemon learns of an account with every check. */
export const account = z.strictObject({
  user_id: z.string(), email: z.string(), name: z.string(),
  /** Hash of the manifest accepted last; empty = none. */
  policy: z.string(),
});
export type Account = z.infer<typeof account>;

export const userCommands = {
  /** Creates the account at its first sign-in; adds the identity; opens a browser grant. */
  sign_in: {
    input: z.strictObject({ email: z.string(), name: z.string(), provider: identityProvider, provider_id: z.string(), grant: newGrant }),
    output: z.strictObject({ account, created: z.boolean() }),
  },
  open_grant: { input: z.strictObject({ grant: newGrant }), output: account },
  /**
   * Rotates a refresh token. `unauthorized` for an unknown or expired one; one that was rotated before revokes its whole grant first
   * (the revocation is committed: the answer is `reused`).
   */
  refresh: {
    input: z.strictObject({ secret_sha256: sha256, next_sha256: sha256, expires_at: z.int() }),
    output: z.discriminatedUnion('state', [
      z.strictObject({ state: z.literal('rotated'), grant_id: z.string(), kind: grantKind, account }),
      z.strictObject({ state: z.enum(['unknown', 'expired', 'reused']) }),
    ]),
  },
  /** `unauthorized` unless the grant lives and the token was not revoked. */
  check: { input: z.strictObject({ grant_id: z.string(), jti: z.string() }), output: account },
  check_cookie: { input: z.strictObject({ secret_sha256: sha256 }), output: z.strictObject({ grant_id: z.string(), expires_at: z.int(), account }) },
  /** Revokes one access token until it would have expired. False: it was revoked already. */
  revoke_token: { input: z.strictObject({ grant_id: z.string(), jti: z.string(), expires_at: z.int() }), output: z.strictObject({ revoked: z.int() }) },
  /** Revokes the grant of a refresh token. */
  revoke_refresh: { input: z.strictObject({ secret_sha256: sha256 }), output: z.strictObject({ revoked: z.int() }) },
  revoke_grant: { input: z.strictObject({ grant_id: z.string() }), output: z.strictObject({ revoked: z.int() }) },
  revoke_all: { input: nothing, output: z.strictObject({ revoked: z.int() }) },
  grants: { input: nothing, output: z.strictObject({ grants: z.array(grant.omit({ current: true })) }) },
  /** The hash has been checked against the current manifest. */
  accept_policy: { input: z.strictObject({ hash: sha256, version: z.string(), ip: z.string(), user_agent: z.string() }), output: account },
  profile: { input: nothing, output: z.strictObject({ account, created_at: z.int(), identities: z.array(identityProvider) }) },
  /** What an API key of this user acts with. `unauthorized` for no such user. */
  policy: { input: nothing, output: z.strictObject({ policy: z.string() }) },
} as const;
