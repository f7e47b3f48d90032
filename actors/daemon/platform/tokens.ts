/**
 * The platform's JWTs: access tokens and the edge gateway's identity tokens (decisions, Device flow and tokens).
 *
 * Guarantees: the only holder of the signing key; ES256 alone, the key found by `kid` (RFC 7638 thumbprint) among our own, whatever else the
 * token's header says; issuer, audience and times checked without leeway, since who verifies also signed. A verified token is remembered by
 * its SHA-256 until it expires, at most `limits.accessTokensKnownMax`. The key set holds public members only. No token is in a log or an error.
 * Whether a token was revoked is not known here: callers.ts asks the user's actor.
 */
import { createPublicKey, hash, randomBytes, type KeyObject } from 'node:crypto';
import { calculateJwkThumbprint, errors as joseErrors, importPKCS8, importSPKI, jwtVerify, SignJWT, type CryptoKey, type JWTHeaderParameters } from 'jose';
import { LRUCache } from 'lru-cache';
import { coded, CodedError } from '../../../contracts/errors.ts';
import { limits } from '../../../contracts/limits.ts';
import { accessAudience, accessClaims, type AccessClaims } from '../../../contracts/platform.ts';
import type { Log } from '../log.ts';
import type { Membership, PlatformConfig, Tokens } from './deps.ts';

export interface TokensOptions {
  readonly config: Pick<PlatformConfig, 'base_url' | 'gateway_name' | 'access_expiry_ms'>;
  /** PEM, PKCS 8: signs. */
  readonly signingKeyPem: string;
  /** PEM, SPKI: believed and published as well; those that signed before, or will. */
  readonly formerKeyPems: readonly string[];
  /** A person's memberships as they are listed; throws faults. */
  readonly membershipsOf: (userId: string) => Promise<readonly Membership[]>;
  /** Waits until that list holds what was journaled before; throws `deadline_exceeded` if it takes longer, faults. */
  readonly caughtUp: (waitMs: number) => Promise<void>;
  readonly log: Log;
  /** Unix milliseconds. */
  readonly now: () => number;
  /** Default `limits.accessTokensKnownMax`. */
  readonly knownMax?: number;
}

interface PublicKey {
  readonly kid: string;
  readonly key: CryptoKey;
  readonly jwk: Readonly<Record<string, string>>;
}

const publicKeyOf = async (key: KeyObject): Promise<PublicKey> => {
  const { kty = '', crv = '', x = '', y = '' } = key.export({ format: 'jwk' });
  const kid = await calculateJwkThumbprint({ kty, crv, x, y });
  const pem = key.export({ type: 'spki', format: 'pem' }).toString();
  return { kid, key: await importSPKI(pem, 'ES256'), jwk: { kty, crv, x, y, kid, alg: 'ES256', use: 'sig' } };
};

const translated = async <T>(what: string, work: () => Promise<T>): Promise<T> => {
  try {
    return await work();
  } catch (cause) {
    throw coded('bad_request', `${what} is not an ES256 key of that kind in PEM.`, { cause });
  }
};

/** The work's outcome, or `upstream_unavailable` after so many milliseconds; its own end is then of no interest. */
const within = async <T>(deadlineMs: number, work: Promise<T>): Promise<T> => {
  const late = Promise.withResolvers<never>();
  const timer = setTimeout(() => late.reject(coded('upstream_unavailable')), deadlineMs);
  try {
    return await Promise.race([work, late.promise]);
  } finally {
    clearTimeout(timer);
  }
};

/** Throws `bad_request` naming the configuration key of a file that holds no such key. */
export const createTokens = async (options: TokensOptions): Promise<Tokens> => {
  const { config, now, log } = options;
  const signing = await translated('platform.signing_key_path (PKCS 8)', () => importPKCS8(options.signingKeyPem, 'ES256'));
  const current = await translated('platform.signing_key_path (PKCS 8)', async () => publicKeyOf(createPublicKey(options.signingKeyPem)));
  const former = await Promise.all(options.formerKeyPems.map((pem) => translated('platform.former_key_paths (SPKI)', async () => publicKeyOf(createPublicKey(pem)))));
  const keys = new Map([...former, current].map((key) => [key.kid, key]));
  const known = new LRUCache<string, AccessClaims>({ max: options.knownMax ?? limits.accessTokensKnownMax });

  const sign = (claims: Record<string, unknown>, audience: string, subject: string, iat: number, exp: number, jti: string): Promise<string> =>
    new SignJWT(claims).setProtectedHeader({ alg: 'ES256', typ: 'JWT', kid: current.kid })
      .setIssuer(config.base_url).setAudience(audience).setSubject(subject).setIssuedAt(iat).setExpirationTime(exp).setJti(jti).sign(signing);

  const newJti = (): string => randomBytes(16).toString('base64url');
  const nowSec = (): number => Math.floor(now() / 1_000);
  const membershipsOf = async (userId: string, waitMs: number = limits.projectionWaitMs): Promise<readonly Membership[]> => {
    try {
      await options.caughtUp(waitMs);
    } catch (error) {
      // Late rows are better than none: nothing is decided by them.
      if (!(error instanceof CodedError) || error.code !== 'deadline_exceeded') throw error;
    }
    return (await options.membershipsOf(userId)).slice(0, limits.tokenOrgsMax);
  };
  const hintsOf = async (userId: string): Promise<readonly Membership[]> => {
    try {
      // Half of the time for new rows, the rest for those that are there: a database that hangs must not take the time of what a hint is for.
      return await within(limits.projectionWaitMs, membershipsOf(userId, limits.projectionWaitMs / 2));
    } catch (error) {
      if (!(error instanceof CodedError) || error.entry.kind === 'bug') throw error;
      log.warn({ code: error.code }, 'a token is made without memberships: the list of organizations does not answer');
      return [];
    }
  };

  const keyOf = ({ kid }: JWTHeaderParameters): CryptoKey => {
    const found = kid === undefined ? undefined : keys.get(kid);
    if (found === undefined) throw coded('unauthorized');
    return found.key;
  };

  const verify = async (token: string): Promise<AccessClaims> => {
    try {
      const { payload } = await jwtVerify(token, keyOf, {
        algorithms: ['ES256'], issuer: config.base_url, audience: accessAudience, currentDate: new Date(now()),
      });
      const claims = accessClaims.safeParse(payload);
      if (!claims.success) throw coded('unauthorized');
      return claims.data;
    } catch (error) {
      if (error instanceof joseErrors.JOSEError) throw coded('unauthorized', undefined, { cause: error });
      throw error;
    }
  };

  return {
    jwks: { keys: [current, ...former].map(({ jwk }) => jwk) },
    membershipsOf: (userId) => membershipsOf(userId), hintsOf,
    mintAccess: async (account, grantId, { ttlMs = config.access_expiry_ms, memberships } = {}) => {
      const orgs = (memberships ?? await hintsOf(account.user_id)).map(({ id, role }) => ({ id, role }));
      const iat = nowSec();
      const expiresInSec = Math.max(1, Math.floor(ttlMs / 1_000));
      const exp = iat + expiresInSec;
      const jti = newJti();
      const token = await sign({ email: account.email, orgs, policy: account.policy, grant: grantId }, accessAudience, account.user_id, iat, exp, jti);
      return { token, jti, expiresInSec, expiresAtMs: exp * 1_000 };
    },
    mintGateway: async (account, grantId, organizationId, parent) => {
      const iat = nowSec();
      const claims = { grant: grantId, ...(parent === undefined ? {} : { parent }), ...(organizationId === undefined ? {} : { org: organizationId }) };
      const token = await sign(claims, config.gateway_name, account.user_id, iat, iat + limits.gatewayTokenTtlSec, newJti());
      return { token, expiresInSec: limits.gatewayTokenTtlSec };
    },
    verifyAccess: async (token) => {
      const id = hash('sha256', token, 'base64');
      const remembered = known.get(id);
      if (remembered !== undefined) {
        if (remembered.exp * 1_000 > now()) return remembered;
        known.delete(id);
        throw coded('unauthorized');
      }
      const claims = await verify(token);
      known.set(id, claims);
      return claims;
    },
  };
};
