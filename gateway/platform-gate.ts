/**
 * Lets a platform request in or refuses it: address bucket, where it comes from, the form of its token, user bucket, in that order.
 *
 * Guarantees: an access token is verified here and by the daemon again. Of an API key and a session cookie only the daemon knows whether they
 * are good: such a request takes from the address bucket until the daemon has answered it as somebody's, so that guesses cost what forged
 * tokens cost. A browser's request from another site changes nothing: `Origin` and `Sec-Fetch-Site` must be this site's where they are given
 * (besides the CSRF proof, which the daemon checks).
 */
import { hash } from 'node:crypto';
import { isAccountId } from '../contracts/ids.ts';
import { limits } from '../contracts/limits.ts';
import type { EnvelopeRoute } from '../contracts/platform-routes.ts';
import { addressTokens } from '../contracts/subjects.ts';
import { isApiKey, type AccessVerifier } from './access.ts';
import type { HeldBody } from './bodies.ts';
import { bearerOf, type Gate } from './gate.ts';
import type { PlatformRequest } from './platform-request.ts';

export interface PlatformAdmitted {
  /** What goes to the daemon as the caller's token; empty = nobody's. */
  readonly token: string;
  /** Of the caller's own actor, where the token says who that is. */
  readonly partitionKey?: string;
  /** Key of the caller's bucket; undefined = nobody's. */
  readonly bucket?: string;
  /** The daemon has answered the request as somebody's. */
  readonly believed: () => void;
}

/** Lets requests to routes of one surface in. */
export interface RouteGate {
  /** Throws or rejects with what the request is refused with. */
  admit(route: EnvelopeRoute, request: PlatformRequest, held: HeldBody): PlatformAdmitted | Promise<PlatformAdmitted>;
}

export interface PlatformGateOptions {
  readonly gate: Gate;
  readonly access: AccessVerifier;
  /** `https://…`, the platform's own origin, besides the one of the Host header. */
  readonly baseUrl: string;
}

export const nothing = (): void => undefined;
const userKey = (userId: string): string => addressTokens({ org: `u-${userId}`, type: 'user', key: userId });
/** A bucket's key for a bearer secret: its hash, so that no bucket listing shows it. */
export const secretKey = (token: string): string => `secret ${hash('sha256', token, 'base64url')}`;

export class PlatformGate implements RouteGate {
  readonly #options: PlatformGateOptions;

  constructor(options: PlatformGateOptions) {
    this.#options = options;
  }

  /**
   * A body that may be larger than `limits.bodyMaxBytes`, by its route and by what it announces, counts as an upload of its caller. Throws or rejects with `rate_limited`, `forbidden`,
   * `unauthorized`, `upstream_unavailable` (no keys yet).
   */
  admit(route: EnvelopeRoute, request: PlatformRequest, held: HeldBody): PlatformAdmitted | Promise<PlatformAdmitted> {
    const enter = (admitted: PlatformAdmitted): PlatformAdmitted => {
      if (Math.min(route.bodyMaxBytes, request.announced) > limits.bodyMaxBytes && admitted.bucket !== undefined) held.upload(admitted.bucket);
      return admitted;
    };
    const admitted = this.#admit(route, request);
    return admitted instanceof Promise ? admitted.then(enter) : enter(admitted);
  }

  #admit(route: EnvelopeRoute, request: PlatformRequest): PlatformAdmitted | Promise<PlatformAdmitted> {
    const { gate } = this.#options;
    gate.checkAddress(request.address);
    if (!this.#isOwnSite(route, request)) throw gate.refused(request.address, 'forbidden', 'This may only be done from a page of this site.');
    switch (route.auth.kind) {
      case 'none':
        gate.takeAddress(request.address);
        return { token: '', believed: nothing };
      case 'cookie':
        return this.#cookie(route.auth.optional === true, request);
      case 'access':
        return this.#bearer(request);
      case 'person':
        return request.authorization === '' ? this.#cookie(false, request) : this.#bearer(request);
      case 'deployment':
        throw new TypeError(`${route.id} is no route of the platform.`);
    }
  }

  #cookie(optional: boolean, { address, session, cookies }: PlatformRequest): PlatformAdmitted {
    const { gate } = this.#options;
    if (session !== undefined) return this.#secret(address, session, session.split('.', 1)[0] ?? '');
    if (!optional) throw gate.refused(address, 'unauthorized', cookies === '' ? 'Nobody is signed in in this browser.' : 'The session cookie is missing or malformed.');
    gate.takeAddress(address);
    return { token: '', believed: nothing };
  }

  #bearer({ address, authorization }: PlatformRequest): PlatformAdmitted | Promise<PlatformAdmitted> {
    const { gate } = this.#options;
    const token = this.#tokenOf(authorization, address);
    if (isApiKey(token)) return this.#secret(address, token, '');
    const step = this.#token(token, address, false);
    if (!(step instanceof Promise)) return step;
    return step.then(() => {
      gate.checkAddress(address);
      const last = this.#token(token, address, true);
      if (last instanceof Promise) throw new TypeError('A token was to be waited for twice.');
      return last;
    });
  }

  /** No bearer, two, one of another scheme or one too long: the same refusal. */
  #tokenOf(authorization: string, address: string): string {
    let token: string | undefined;
    try {
      token = bearerOf(authorization);
    } catch {
      throw this.#options.gate.refused(address, 'unauthorized');
    }
    if (token === undefined) throw this.#options.gate.refused(address, 'unauthorized');
    return token;
  }

  #token(token: string, address: string, waited: boolean): PlatformAdmitted | Promise<void> {
    const { access, gate } = this.#options;
    const verdict = access.verify(token, waited);
    switch (verdict.verdict) {
      case 'valid':
        gate.takeUser(verdict.value.sub);
        return { token, partitionKey: userKey(verdict.value.sub), bucket: verdict.value.sub, believed: nothing };
      case 'wait':
        return verdict.until;
      case 'keyless':
        throw gate.refused(address, 'upstream_unavailable', 'The platform\'s keys cannot be had at the moment.');
      case 'invalid':
      case 'wrong_audience':
        throw gate.refused(address, 'unauthorized');
    }
  }

  /** What only the daemon can tell from a guess. */
  #secret(address: string, token: string, userId: string): PlatformAdmitted {
    const { gate } = this.#options;
    const bucket = secretKey(token);
    gate.takeUser(bucket);
    gate.takeAddress(address);
    let held = true;
    const believed = (): void => {
      if (held) gate.giveAddress(address);
      held = false;
    };
    return { token, bucket, ...(isAccountId(userId) ? { partitionKey: userKey(userId) } : {}), believed };
  }

  /**
   * What browsers say of where a request comes from (Fetch Metadata; RFC 6454). Programs say nothing and hold a bearer. The OAuth endpoints
   * take no cookie and give nothing to whoever cannot read the answer.
   */
  #isOwnSite({ auth, method, errorShape }: EnvelopeRoute, { origin, fetchSite, host, authorization }: PlatformRequest): boolean {
    if (auth.kind === 'access' || (auth.kind === 'person' && authorization !== '') || errorShape === 'oauth') return true;
    if (method === 'GET') return auth.kind === 'none' || fetchSite === '' || fetchSite === 'same-origin' || fetchSite === 'none';
    if (fetchSite !== '' && fetchSite !== 'same-origin') return false;
    return origin === '' || origin === this.#options.baseUrl || origin === `https://${host.toLowerCase()}`;
  }
}

/** Refusals that say that the daemon did not believe the token, or that it could not say. */
export const isDisbelief = (status: number): boolean => status === 401 || status >= 500;
