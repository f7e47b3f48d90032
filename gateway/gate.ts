/**
 * Lets a request in or refuses it: address bucket, bearer, audience, scope, user bucket, in that order.
 *
 * Guarantees (decisions, Edge gateway; interface 8.3): an empty address bucket refuses before any token is looked at; a
 * request without a verified token takes from the address bucket, a verified one only from its user's. Check, verification
 * and taking happen in one go, so concurrent requests never get past a limit together; only a key fetch is waited for, and
 * after it the address bucket is looked at again.
 */
import type { Auth } from '../contracts/routes.ts';
import type { CapabilityClaims } from '../contracts/capability.ts';
import { audiences } from '../contracts/capability.ts';
import { coded, type CodedError, type ErrorCode } from '../contracts/errors.ts';
import { limits } from '../contracts/limits.ts';
import type { Buckets } from './bucket.ts';
import { requireScope, type Capabilities } from './capability.ts';
import type { Clock } from './clock.ts';
import type { Metrics } from './metrics.ts';
import type { Identity, IdentityVerifier } from './tier1.ts';

export type Admitted =
  | { readonly kind: 'none' }
  | { readonly kind: 'tier1'; readonly identity: Identity }
  | { readonly kind: 'tier2'; readonly claims: CapabilityClaims; readonly token: string };

export interface GateOptions {
  readonly identities: IdentityVerifier;
  readonly capabilities: Capabilities;
  readonly users: Buckets;
  readonly addresses: Buckets;
  readonly metrics: Metrics;
  readonly clock: Clock;
}

/** The token of an Authorization header; undefined if there is none. Throws `bad_bearer` over 8 KiB. */
export const bearerOf = (authorization: string): string | undefined => {
  const token = /^bearer +([^ ]+) *$/i.exec(authorization)?.[1];
  if (token !== undefined && token.length > limits.bearerMaxBytes) throw coded('bad_bearer');
  return token;
};

export class Gate {
  readonly #options: GateOptions;

  constructor(options: GateOptions) {
    this.#options = options;
  }

  /**
   * Throws or rejects with `rate_limited` {retry_after}, `bad_bearer`, `unauthorized`, `wrong_audience`, `scope_insufficient`,
   * `upstream_unavailable` (no identity keys yet). `readBearer` may throw what is wrong with the bearer's form.
   */
  admit(auth: Auth, address: string, readBearer: () => string | undefined): Admitted | Promise<Admitted> {
    this.checkAddress(address);
    let token: string | undefined;
    try {
      token = readBearer();
    } catch (error) {
      this.#options.addresses.take(address);
      throw error;
    }
    if (auth.kind === 'none') {
      this.#options.addresses.take(address);
      return { kind: 'none' };
    }
    if (token === undefined) throw this.refused(address, 'unauthorized');
    const startedMs = this.#options.clock.monotonicMs();
    const step = this.#step(auth, address, token, false);
    if (step instanceof Promise) {
      return step.then(() => {
        this.checkAddress(address);
        const last = this.#step(auth, address, token, true);
        if (last instanceof Promise) throw coded('internal_error', 'A token was to be waited for twice.');
        return this.#enter(auth, last, startedMs);
      });
    }
    return this.#enter(auth, step, startedMs);
  }

  /** One frame or one more request of a user. Throws `rate_limited`. */
  takeUser(sub: string): void {
    const wait = this.#options.users.take(sub);
    if (wait > 0) throw this.#limited('user', wait);
  }

  /** Takes from the address bucket for what needs no token and is no route (files, unknown paths). Throws `rate_limited`. */
  takeAddress(address: string): void {
    const wait = this.#options.addresses.take(address);
    if (wait > 0) throw this.#limited('ip', wait);
  }

  /** Throws `rate_limited` if the address bucket is empty; takes nothing. */
  checkAddress(address: string): void {
    const wait = this.#options.addresses.wait(address);
    if (wait > 0) throw this.#limited('ip', wait);
  }

  /** Gives back what `takeAddress` took for a request that has turned out to be somebody's. */
  giveAddress(address: string): void {
    this.#options.addresses.give(address);
  }

  /** The refusal of a request that nobody vouches for: takes from the address bucket. */
  refused(address: string, code: ErrorCode, message?: string): CodedError {
    this.#options.addresses.take(address);
    return coded(code, message);
  }

  #step(auth: Exclude<Auth, { kind: 'none' }>, address: string, token: string, waited: boolean): Admitted | Promise<void> {
    return auth.kind === 'tier1' ? this.#tier1(address, token, waited) : this.#tier2(auth.audience, address, token, waited);
  }

  #tier1(address: string, token: string, waited: boolean): Admitted | Promise<void> {
    const { identities, capabilities } = this.#options;
    const verdict = identities.verify(token, waited);
    switch (verdict.verdict) {
      case 'valid':
        return { kind: 'tier1', identity: verdict.value };
      case 'wait':
        return verdict.until;
      case 'wrong_audience':
        throw this.refused(address, 'wrong_audience');
      case 'keyless':
      case 'invalid': {
        const other = capabilities.verify(token, audiences.agent).verdict;
        if (other === 'valid' || other === 'wrong_audience') throw this.refused(address, 'wrong_audience');
        if (verdict.verdict === 'invalid' || other === 'invalid') throw this.refused(address, 'unauthorized');
        throw this.refused(address, 'upstream_unavailable', 'The identity provider\'s keys cannot be had at the moment.');
      }
    }
  }

  #tier2(audience: string, address: string, token: string, waited: boolean): Admitted | Promise<void> {
    const { identities, capabilities } = this.#options;
    const verdict = capabilities.verify(token, audience);
    switch (verdict.verdict) {
      case 'valid':
        return { kind: 'tier2', claims: verdict.claims, token };
      case 'wrong_audience':
        throw this.refused(address, 'wrong_audience');
      case 'invalid':
        throw this.refused(address, 'unauthorized');
      case 'foreign': {
        const other = identities.verify(token, waited);
        if (other.verdict === 'wait') return other.until;
        throw this.refused(address, other.verdict === 'valid' || other.verdict === 'wrong_audience' ? 'wrong_audience' : 'unauthorized');
      }
    }
  }

  #enter(auth: Auth, admitted: Admitted, startedMs: number): Admitted {
    this.#options.metrics.verification.observe((this.#options.clock.monotonicMs() - startedMs) / 1_000);
    if (admitted.kind === 'tier1') this.takeUser(admitted.identity.sub);
    if (admitted.kind === 'tier2') {
      this.takeUser(admitted.claims.sub);
      if (auth.kind === 'tier2') requireScope(admitted.claims.scope, auth.scopes);
    }
    return admitted;
  }


  #limited(bucket: 'ip' | 'user', waitSec: number): CodedError {
    this.#options.metrics.rateLimited.add(bucket);
    return coded('rate_limited', undefined, { details: { retry_after: waitSec } });
  }
}
