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
  /** Unix milliseconds: end of the access token that was made with it; a browser's live no longer than its cookie. The grant ends when both have. */
  access_expires_at: z.int(),
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
  /** Creates the account at its first sign-in; adds the identity; opens a browser grant. `conflict` if the account has another address. */
  sign_in: {
    input: z.strictObject({ email: z.string(), name: z.string(), provider: identityProvider, provider_id: z.string(), grant: newGrant }),
    output: z.strictObject({ account, created: z.boolean() }),
  },
  /** `unauthorized` for no such user, or if all logins were ended since the person agreed to this one (`agreed_at`, Unix milliseconds; absent = just now). */
  open_grant: { input: z.strictObject({ grant: newGrant, agreed_at: z.int().optional() }), output: account },
  /** Rotates a refresh token. One that was rotated before ends its whole grant; that is committed, so it is an answer (`reused`), not an error. */
  refresh: {
    input: z.strictObject({ secret_sha256: sha256, next_sha256: sha256, expires_at: z.int(), access_expires_at: z.int() }),
    output: z.discriminatedUnion('state', [
      z.strictObject({ state: z.literal('rotated'), grant_id: z.string(), kind: grantKind, account }),
      z.strictObject({ state: z.enum(['unknown', 'expired', 'reused']) }),
    ]),
  },
  /** `unauthorized` unless the grant lives and the token was not revoked. Notes the use, at most once in `limits.grantTouchMs`. */
  check: { input: z.strictObject({ grant_id: z.string(), jti: z.string() }), output: account },
  /** `unauthorized` unless it is a live session's. Its use prolongs the session, at most once in `limits.grantTouchMs`. */
  check_cookie: { input: z.strictObject({ secret_sha256: sha256 }), output: z.strictObject({ grant_id: z.string(), expires_at: z.int(), account }) },
  /** Revokes one access token until it would have expired; 0: it was over already. Beyond `limits.revokedTokensMax` its whole grant ends. */
  revoke_token: { input: z.strictObject({ grant_id: z.string(), jti: z.string(), expires_at: z.int() }), output: z.strictObject({ revoked: z.int() }) },
  /** Revokes the grant of a refresh token. */
  revoke_refresh: { input: z.strictObject({ secret_sha256: sha256 }), output: z.strictObject({ revoked: z.int() }) },
  revoke_grant: { input: z.strictObject({ grant_id: z.string(), why: z.enum(['signed_out', 'revoked']) }), output: z.strictObject({ revoked: z.int() }) },
  revoke_all: { input: nothing, output: z.strictObject({ revoked: z.int() }) },
  grants: { input: nothing, output: z.strictObject({ grants: z.array(grant.omit({ current: true })) }) },
  /** The hash has been checked against the current manifest. */
  accept_policy: { input: z.strictObject({ hash: sha256, version: z.string(), ip: z.string(), user_agent: z.string() }), output: account },
  profile: { input: nothing, output: z.strictObject({ account, created_at: z.int(), identities: z.array(identityProvider) }) },
  /** What is known of the person for a trust score. `unauthorized` for no such user. `active_days`: UTC days on which the account was used. */
  trust_facts: {
    input: nothing,
    output: z.strictObject({ created_at: z.int(), active_days: z.int().nonnegative(), identities: z.array(identityProvider), domains_verified: z.int().nonnegative() }),
  },
  /** The address was proved to be the person's by a mailed code. */
  verify_email: { input: nothing, output: nothing },
  /** Wants to prove a domain; gives the id of its challenge, the same for as long as it is known. `id`: of a new one. `validation_error` beyond `limits.trustDomainsMax` verified domains. */
  challenge_domain: { input: z.strictObject({ domain: z.string(), id: z.string() }), output: z.strictObject({ id: z.string() }) },
  /** The challenge of a domain; null = none is known. */
  domain_challenge: { input: z.strictObject({ domain: z.string() }), output: z.strictObject({ id: z.string().nullable() }) },
  /** The record of this challenge was found. `known` false: the challenge is not, and nothing was verified. */
  confirm_domain: { input: z.strictObject({ domain: z.string(), id: z.string() }), output: z.strictObject({ known: z.boolean() }) },
  /** What an API key of this user acts with. `unauthorized` for no such user. */
  policy: { input: nothing, output: z.strictObject({ policy: z.string() }) },
} as const;

/** Why grants ended: the person did it, to some or to all at once, or a rotated refresh token came again, or a newer grant took its place. */
export const grantEnd = z.enum(['signed_out', 'revoked', 'revoked_all', 'reused', 'replaced']);
export type GrantEnd = z.infer<typeof grantEnd>;

/** `at` and other times: Unix milliseconds. */
export const userEvents = {
  AccountCreated: z.strictObject({ email: z.string(), name: z.string(), at: z.int() }),
  /** A provider knew a name, where there was only the address. */
  NameLearnt: z.strictObject({ name: z.string() }),
  IdentityAdded: z.strictObject({ provider: identityProvider, provider_id: z.string(), at: z.int() }),
  GrantOpened: z.strictObject({ grant: newGrant, at: z.int() }),
  GrantUsed: z.strictObject({ id: z.string(), at: z.int(), expires_at: z.int() }),
  GrantRefreshed: z.strictObject({ id: z.string(), next_sha256: sha256, expires_at: z.int(), access_expires_at: z.int(), at: z.int() }),
  GrantsEnded: z.strictObject({ ids: z.array(z.string()), why: grantEnd, at: z.int() }),
  TokenRevoked: z.strictObject({ grant_id: z.string(), jti: z.string(), expires_at: z.int(), at: z.int() }),
  /** The record's value is derived from the id and stands nowhere. */
  DomainChallenged: z.strictObject({ domain: z.string(), id: z.string(), at: z.int() }),
  DomainVerified: z.strictObject({ domain: z.string(), id: z.string(), at: z.int() }),
  PolicyAccepted: z.strictObject({ hash: sha256, version: z.string(), ip: z.string(), user_agent: z.string(), at: z.int() }),
} as const;
