/**
 * A bearer token checked against the keys of whoever it says signed it, and remembered.
 *
 * Guarantees: the algorithm belongs to the origin (a key set: ES256; a development secret: HS256), never to the token; a token of a key set
 * must name its key; times have `limits.tokenLeewaySec` of leeway. A verified token is remembered by its hash until it expires, and
 * forgotten with its key. What its claims mean is the caller's business (`accept`).
 */
import { hash, type KeyObject } from 'node:crypto';
import { LRUCache } from 'lru-cache';
import { limits } from '../contracts/limits.ts';
import type { Clock } from './clock.ts';
import type { Jwks } from './jwks.ts';
import { readJws, verifyEs256, verifyHs256, type Jws } from './jws.ts';

export type Origin =
  | { readonly kind: 'keys'; readonly jwks: Jwks }
  /** Development only. */
  | { readonly kind: 'secret'; readonly secret: Uint8Array };

/** What a good signature's claims come to. */
export type Accepted<T> = { readonly value: T } | 'invalid' | 'wrong_audience';

export type Verdict<T> =
  | { readonly verdict: 'valid'; readonly value: T }
  /** `keyless`: no key set has been got yet, so nothing can be said about the token. */
  | { readonly verdict: 'invalid' | 'wrong_audience' | 'keyless' }
  /** Look again when the promise has resolved (it never rejects). */
  | { readonly verdict: 'wait'; readonly until: Promise<void> };

export interface TokenOptions<T> {
  /** Who signed it, by what it says of itself; undefined = nobody we believe. */
  readonly originOf: (jws: Jws) => Origin | undefined;
  /** `exp` is in whole Unix seconds; times have been checked. */
  readonly accept: (claims: Readonly<Record<string, unknown>>, origin: Origin) => Accepted<T>;
  readonly clock: Clock;
  readonly rememberedMax?: number;
}

interface Remembered<T> {
  readonly value: T;
  /** Unix seconds. */
  readonly exp: number;
  readonly kid: string;
  readonly jwks: Jwks | undefined;
  readonly key: KeyObject | undefined;
}

const nearTime = (value: unknown): number | undefined => (typeof value === 'number' && Number.isFinite(value) ? value : undefined);
const invalid = { verdict: 'invalid' } as const;

export class TokenVerifier<T> {
  readonly #options: TokenOptions<T>;
  readonly #remembered: LRUCache<string, Remembered<T>>;

  constructor(options: TokenOptions<T>) {
    this.#options = options;
    this.#remembered = new LRUCache({ max: options.rememberedMax ?? limits.verifiedTokensMax });
  }

  /** `waited`: the caller has waited once for a fetch; what is known now is what counts. */
  verify(token: string, waited: boolean): Verdict<T> {
    const id = hash('sha256', token, 'base64');
    const known = this.#remembered.get(id);
    if (known !== undefined) {
      const verdict = this.#recall(id, known, waited);
      if (verdict !== undefined) return verdict;
    }
    const jws = readJws(token);
    const origin = jws === undefined ? undefined : this.#options.originOf(jws);
    if (jws === undefined || origin === undefined) return invalid;
    if (origin.kind === 'secret') {
      return verifyHs256(jws, origin.secret) ? this.#accept(id, jws, origin, '', undefined) : invalid;
    }
    const { jwks } = origin;
    if (jws.kid === undefined || jws.alg !== 'ES256') return invalid;
    if (!waited) {
      const until = jwks.refreshFor(jws.kid);
      if (until !== undefined) return { verdict: 'wait', until };
    }
    if (!jwks.known) return { verdict: 'keyless' };
    const key = jwks.key(jws.kid);
    return key !== undefined && verifyEs256(jws, key) ? this.#accept(id, jws, origin, jws.kid, key) : invalid;
  }

  /** undefined = its key is gone or has changed: verify anew. */
  #recall(id: string, known: Remembered<T>, waited: boolean): Verdict<T> | undefined {
    const { jwks, kid, key } = known;
    if (known.exp + limits.tokenLeewaySec < this.#options.clock.wallMs() / 1_000) {
      this.#remembered.delete(id);
      return invalid;
    }
    if (jwks !== undefined) {
      const until = waited ? undefined : jwks.refreshFor(kid);
      if (until !== undefined) return { verdict: 'wait', until };
      if (jwks.key(kid) !== key) {
        this.#remembered.delete(id);
        return undefined;
      }
    }
    return { verdict: 'valid', value: known.value };
  }

  /** The signature is good: times and claims decide. */
  #accept(id: string, jws: Jws, origin: Origin, kid: string, key: KeyObject | undefined): Verdict<T> {
    const nowSec = this.#options.clock.wallMs() / 1_000;
    const exp = nearTime(jws.claims['exp']);
    const nbf = jws.claims['nbf'] === undefined ? -Infinity : nearTime(jws.claims['nbf']);
    if (exp === undefined || nbf === undefined) return invalid;
    if (exp + limits.tokenLeewaySec < nowSec || nbf - limits.tokenLeewaySec > nowSec) return invalid;
    const accepted = this.#options.accept({ ...jws.claims, exp: Math.floor(exp) }, origin);
    if (accepted === 'invalid' || accepted === 'wrong_audience') return { verdict: accepted };
    this.#remembered.set(id, { value: accepted.value, exp, kid, jwks: origin.kind === 'keys' ? origin.jwks : undefined, key });
    return { verdict: 'valid', value: accepted.value };
  }
}
