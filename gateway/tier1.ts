/**
 * Tier 1: who the caller is, by an identity provider's ES256 token (interface 5.2; decisions, Edge gateway).
 *
 * Guarantees: the algorithm comes from the key set's entry (ES256), never from the token; a key id is required; `aud` must be
 * the gateway's name; times have 30 s leeway. HS256 is read only if a development secret was given, and is never checked
 * against a public key. A verified token is remembered by its hash until it expires, and forgotten with its key.
 * `iss` is not checked: the key set is the issuer's.
 */
import { hash, type KeyObject } from 'node:crypto';
import { LRUCache } from 'lru-cache';
import { identityClaims, personalOrg } from '../contracts/capability.ts';
import { limits } from '../contracts/limits.ts';
import { isId } from '../contracts/validate.ts';
import type { Clock } from './clock.ts';
import type { Jwks } from './jwks.ts';
import { readJws, verifyEs256, verifyHs256, type Jws } from './jws.ts';

export interface Identity {
  readonly sub: string;
  readonly org: string;
  /** Unix seconds; refused `limits.tokenLeewaySec` later. */
  readonly exp: number;
}

export type Verdict =
  | { readonly verdict: 'valid'; readonly identity: Identity }
  /** `keyless`: no key set has been got yet, so nothing can be said about the token. */
  | { readonly verdict: 'invalid' | 'wrong_audience' | 'keyless' }
  /** Look again when the promise has resolved (it never rejects). */
  | { readonly verdict: 'wait'; readonly until: Promise<void> };

interface Remembered {
  readonly identity: Identity;
  readonly kid: string;
  /** null = development secret. */
  readonly key: KeyObject | null;
}

export interface IdentityOptions {
  /** The gateway's name: the `aud` a token must carry. */
  readonly name: string;
  readonly jwks: Jwks | undefined;
  /** Development only: the HS256 secret. */
  readonly devSecret: Uint8Array | undefined;
  /** Key id of this gateway's own capabilities: never an identity, so it causes no fetch. */
  readonly ownKid: string;
  readonly clock: Clock;
  readonly rememberedMax?: number;
}

const invalid: Verdict = { verdict: 'invalid' };
const nearTime = (value: unknown): number | undefined => (typeof value === 'number' && Number.isFinite(value) ? value : undefined);

export class IdentityVerifier {
  readonly #options: IdentityOptions;
  readonly #remembered: LRUCache<string, Remembered>;

  constructor(options: IdentityOptions) {
    this.#options = options;
    this.#remembered = new LRUCache({ max: options.rememberedMax ?? limits.verifiedTokensMax });
  }

  /** `waited`: the caller has waited once for a fetch; what is known now is what counts. */
  verify(token: string, waited: boolean): Verdict {
    const id = hash('sha256', token, 'base64');
    const known = this.#remembered.get(id);
    if (known !== undefined) {
      const verdict = this.#recall(id, known, waited);
      if (verdict !== undefined) return verdict;
    }
    const jws = readJws(token);
    if (jws === undefined) return invalid;
    const { devSecret, jwks } = this.#options;
    if (devSecret !== undefined && jws.alg === 'HS256') {
      return verifyHs256(jws, devSecret) ? this.#accept(id, jws, '', null) : invalid;
    }
    if (jwks === undefined || jws.kid === undefined || jws.kid === this.#options.ownKid || jws.alg !== 'ES256') return invalid;
    if (!waited) {
      const until = jwks.refreshFor(jws.kid);
      if (until !== undefined) return { verdict: 'wait', until };
    }
    if (!jwks.known) return { verdict: 'keyless' };
    const key = jwks.key(jws.kid);
    return key !== undefined && verifyEs256(jws, key) ? this.#accept(id, jws, jws.kid, key) : invalid;
  }

  /** undefined = its key is gone or has changed: verify anew. */
  #recall(id: string, known: Remembered, waited: boolean): Verdict | undefined {
    if (known.identity.exp + limits.tokenLeewaySec < this.#options.clock.wallMs() / 1_000) {
      this.#remembered.delete(id);
      return invalid;
    }
    if (known.key !== null) {
      const until = waited ? undefined : this.#options.jwks?.refreshFor(known.kid);
      if (until !== undefined) return { verdict: 'wait', until };
      if (this.#options.jwks?.key(known.kid) !== known.key) {
        this.#remembered.delete(id);
        return undefined;
      }
    }
    return { verdict: 'valid', identity: known.identity };
  }

  /** The signature is good: the claims decide. */
  #accept(id: string, jws: Jws, kid: string, key: KeyObject | null): Verdict {
    const nowSec = this.#options.clock.wallMs() / 1_000;
    const exp = nearTime(jws.claims['exp']);
    const nbf = jws.claims['nbf'] === undefined ? -Infinity : nearTime(jws.claims['nbf']);
    if (exp === undefined || nbf === undefined) return invalid;
    if (exp + limits.tokenLeewaySec < nowSec || nbf - limits.tokenLeewaySec > nowSec) return invalid;
    const claims = identityClaims.safeParse({ ...jws.claims, exp: Math.floor(exp) });
    if (!claims.success) return jws.claims['aud'] === undefined ? { verdict: 'wrong_audience' } : invalid;
    const { sub, aud, org } = claims.data;
    if (!(Array.isArray(aud) ? aud.includes(this.#options.name) : aud === this.#options.name)) return { verdict: 'wrong_audience' };
    // What cannot be a user_id can neither own nor open anything.
    if (!isId(sub)) return invalid;
    const identity: Identity = { sub, org: org ?? personalOrg(sub), exp };
    this.#remembered.set(id, { identity, kid, key });
    return { verdict: 'valid', identity };
  }
}
