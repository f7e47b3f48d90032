/**
 * Tier 2: capabilities minted with the gateway's key, and checked on custody routes (interface 5.2; decisions, Edge gateway).
 *
 * Guarantees: a capability lives at most 900 s; one for agents never works on custody and the other way (audience); a bad
 * signature or time is `unauthorized`, another audience `wrong_audience`, no common scope `scope_insufficient` with both
 * lists. `nbf` lies 30 s before `iat`, so that another gateway's clock may lag.
 * Holds the only private key that signs them; the daemon has the public half and checks again.
 */
import { createHash, createPublicKey, randomUUID, type KeyObject } from 'node:crypto';
import { LRUCache } from 'lru-cache';
import { audiences, capabilityClaims, scopes, type CapabilityClaims } from '../contracts/capability.ts';
import { coded, refuse } from '../contracts/errors.ts';
import { limits } from '../contracts/limits.ts';
import type { Clock } from './clock.ts';
import { readJws, signEs256, verifyEs256 } from './jws.ts';

export interface Minted {
  readonly token: string;
  /** Unix seconds. */
  readonly exp: number;
  readonly iat: number;
}

/** The platform's login behind a capability and the access token that led to it, where there are any: it ends with either. */
export interface Login {
  readonly grant?: string | undefined;
  readonly parent?: string | undefined;
}

export type CapabilityVerdict =
  | { readonly verdict: 'valid'; readonly claims: CapabilityClaims }
  /** `foreign`: not signed by this gateway's key, so it may be another kind of token. */
  | { readonly verdict: 'foreign' | 'invalid' | 'wrong_audience' };

export interface CapabilityOptions {
  /** `iss`. */
  readonly name: string;
  /** EC P-256 private key. */
  readonly key: KeyObject;
  readonly clock: Clock;
  readonly rememberedMax?: number;
}

const agentScopes: readonly string[] = [scopes.agentSession];

export class Capabilities {
  readonly #options: CapabilityOptions;
  readonly #publicKey: KeyObject;
  readonly #header: Readonly<Record<string, string>>;
  readonly #agent: LRUCache<string, Minted>;

  constructor(options: CapabilityOptions) {
    if (options.key.asymmetricKeyType !== 'ec' || options.key.asymmetricKeyDetails?.namedCurve !== 'prime256v1' || options.key.type !== 'private') {
      throw refuse('bad_config', 'capability.key_path: the key is not an EC P-256 private key.');
    }
    this.#options = options;
    this.#publicKey = createPublicKey(options.key);
    const { x, y } = this.#publicKey.export({ format: 'jwk' });
    // RFC 7638: the thumbprint of the public key is its id.
    const kid = createHash('sha256').update(JSON.stringify({ crv: 'P-256', kty: 'EC', x, y })).digest('base64url');
    this.#header = { typ: 'JWT', kid };
    this.#agent = new LRUCache({ max: options.rememberedMax ?? limits.verifiedTokensMax });
  }

  get kid(): string {
    return this.#header['kid'] ?? '';
  }

  mint(sub: string, org: string, audience: CapabilityClaims['aud'], scope: readonly string[], { grant, parent }: Login = {}): Minted {
    const iat = Math.floor(this.#options.clock.wallMs() / 1_000);
    const exp = iat + limits.capabilityTtlSec;
    const claims: CapabilityClaims = {
      iss: this.#options.name, aud: audience, sub, org, scope: [...scope], iat, nbf: iat - limits.tokenLeewaySec, exp, jti: randomUUID(),
      ...(grant === undefined ? {} : { grant }), ...(parent === undefined ? {} : { parent }),
    };
    return { token: signEs256(this.#header, claims, this.#options.key), exp, iat };
  }

  /** The capability that goes to the daemon with an agent route; the same one until 5 minutes before it expires. */
  forAgent(sub: string, org: string, login: Login = {}): string {
    const id = `${org}\n${sub}\n${login.grant ?? ''}\n${login.parent ?? ''}`;
    const known = this.#agent.get(id);
    if (known !== undefined && known.exp - limits.capabilityRenewSec > this.#options.clock.wallMs() / 1_000) return known.token;
    const minted = this.mint(sub, org, audiences.agent, agentScopes, login);
    this.#agent.set(id, minted);
    return minted.token;
  }

  /** Signature, issuer, times, then audience. Scopes are the route's business: `requireScope`. */
  verify(token: string, audience: string): CapabilityVerdict {
    const jws = readJws(token);
    if (jws === undefined || !verifyEs256(jws, this.#publicKey)) return { verdict: 'foreign' };
    const nowSec = this.#options.clock.wallMs() / 1_000;
    const { aud, exp, nbf, iss } = jws.claims;
    if (iss !== this.#options.name || typeof exp !== 'number' || exp <= nowSec) return { verdict: 'invalid' };
    if (nbf !== undefined && (typeof nbf !== 'number' || nbf > nowSec)) return { verdict: 'invalid' };
    if (aud !== audience) return { verdict: 'wrong_audience' };
    const claims = capabilityClaims.safeParse(jws.claims);
    return claims.success ? { verdict: 'valid', claims: claims.data } : { verdict: 'invalid' };
  }
}

/** Throws `scope_insufficient` {required, present} unless one of `required` is present. */
export const requireScope = (present: readonly string[] | undefined, required: readonly string[]): void => {
  const has = present ?? [];
  if (required.some((scope) => has.includes(scope))) return;
  throw coded('scope_insufficient', undefined, { details: { required: [...required], present: [...has] } });
};
