/**
 * The daemon's own check of the forwarded capability: it does not believe the gateway, it believes the signature.
 *
 * Guarantees: only ES256 under the configured public key, the configured issuer, a time between `nbf` and `exp`, a life of at most
 * `limits.capabilityTtlSec`, the audience of the route and one of its scopes; `user_id` in a body must be `sub`.
 * A verified token is remembered by its SHA-256 until `exp` (verification costs 0.4 ms, a look-up 2 µs), at most
 * `limits.verifiedTokensMax` of them. No token is ever logged or part of an error.
 */
import { hash } from 'node:crypto';
import { errors as joseErrors, importSPKI, jwtVerify, type CryptoKey } from 'jose';
import { LRUCache } from 'lru-cache';
import { audiences, capabilityClaims, scopes, type CapabilityClaims } from '../../contracts/capability.ts';
import { coded } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import type { Route, UserPrincipal } from '../../contracts/routes.ts';

export interface CapabilityOptions {
  /** PEM, SPKI. */
  readonly publicKeyPem: string;
  /** `iss` a capability must carry. */
  readonly issuer: string;
  /** Unix milliseconds. Default `Date.now`. */
  readonly now?: () => number;
  /** Default `limits.verifiedTokensMax`. */
  readonly rememberedMax?: number;
}

/** Who calls, and the platform's login and access token behind it, if there are any. */
export interface Identified {
  readonly principal: UserPrincipal;
  readonly grant: string | undefined;
  /** `jti`. */
  readonly parent?: string | undefined;
}

export interface Capabilities {
  /**
   * Who calls, or undefined where the route needs nobody. Throws `unauthorized` (no, bad or expired token),
   * `wrong_audience`, `scope_insufficient`.
   */
  authorise(route: Route, token: string): Promise<UserPrincipal | undefined>;
  /** The same with the login. Whether that still lives is not known here (admission.ts). */
  identify(route: Route, token: string): Promise<Identified | undefined>;
}

/** Throws `bad_request` for a key that is not an ES256 public key. */
export const createCapabilities = async (options: CapabilityOptions): Promise<Capabilities> => {
  const now = options.now ?? Date.now;
  const key = await importSPKI(options.publicKeyPem, 'ES256').catch((cause: unknown) => {
    throw coded('bad_request', 'The capability key is not an ES256 public key in PEM (SPKI).', { cause });
  });
  const remembered = new LRUCache<string, CapabilityClaims>({ max: options.rememberedMax ?? limits.verifiedTokensMax });

  const claimsOf = async (token: string): Promise<CapabilityClaims> => {
    const id = hash('sha256', token, 'base64');
    const known = remembered.get(id);
    if (known !== undefined) {
      if (known.exp * 1_000 > now()) return known;
      remembered.delete(id);
      throw coded('unauthorized');
    }
    const claims = await verify(token, key, options.issuer, now());
    remembered.set(id, claims);
    return claims;
  };

  const identify = async ({ auth }: Route, token: string): Promise<Identified | undefined> => {
    if (auth.kind === 'none') return undefined;
    if (token === '') throw coded('unauthorized');
    const claims = await claimsOf(token);
    const audience = auth.kind === 'tier1' ? audiences.agent : auth.audience;
    const required = auth.kind === 'tier1' ? [scopes.agentSession] : auth.scopes;
    if (claims.aud !== audience) throw coded('wrong_audience');
    const present = claims.scope ?? [];
    if (!required.some((scope) => present.includes(scope))) throw coded('scope_insufficient', undefined, { details: { required: [...required], present } });
    return { principal: { kind: 'user', sub: claims.sub, org: claims.org, scopes: present }, grant: claims.grant, parent: claims.parent };
  };

  return { identify, authorise: async (route, token) => (await identify(route, token))?.principal };
};

const verify = async (token: string, key: CryptoKey, issuer: string, nowMs: number): Promise<CapabilityClaims> => {
  try {
    const { payload } = await jwtVerify(token, key, { algorithms: ['ES256'], issuer, currentDate: new Date(nowMs) });
    const claims = capabilityClaims.safeParse(payload);
    if (!claims.success) {
      // An audience of another system altogether is told apart from a broken token.
      if (payload.aud !== undefined && payload.aud !== audiences.agent && payload.aud !== audiences.custody) throw coded('wrong_audience');
      throw coded('unauthorized');
    }
    if (claims.data.exp - claims.data.iat > limits.capabilityTtlSec) throw coded('unauthorized');
    return claims.data;
  } catch (error) {
    // jose's messages name claims, never the token; they stay inside all the same.
    if (error instanceof joseErrors.JOSEError) throw coded('unauthorized', undefined, { cause: error });
    throw error;
  }
};
