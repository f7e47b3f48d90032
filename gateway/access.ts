/**
 * Access tokens of the platform (ES256, RFC 9068 in spirit; interface 2.2): what can be said of one without asking the daemon.
 *
 * Guarantees: signed by a key of the platform, `aud` = `troupe-platform`, `iss` = the base URL, within its times (30 s of leeway; to the second,
 * and whether it was revoked, the daemon decides). An API key has only its form checked here.
 */
import { accessAudience, accessClaims } from '../contracts/platform.ts';
import type { Clock } from './clock.ts';
import type { Jwks } from './jwks.ts';
import { TokenVerifier, type Verdict } from './token.ts';

export interface Access {
  /** `usr_…` */
  readonly sub: string;
}

/** `trp_sk_` and a secret of any length we might give out; the daemon knows which exist. */
const apiKey = /^trp_sk_[A-Za-z0-9_-]{16,256}$/;
export const isApiKey = (token: string): boolean => apiKey.test(token);

export interface AccessOptions {
  readonly jwks: Jwks;
  /** The platform's base URL. */
  readonly issuer: string;
  readonly clock: Clock;
}

export class AccessVerifier {
  readonly #tokens: TokenVerifier<Access>;

  constructor({ jwks, issuer, clock }: AccessOptions) {
    this.#tokens = new TokenVerifier({
      clock,
      // Another audience or issuer needs no key to be refused, and must not make us fetch any.
      originOf: ({ claims }) => (claims['iss'] === issuer && claims['aud'] === accessAudience ? { kind: 'keys', jwks } : undefined),
      accept: (raw) => {
        const claims = accessClaims.safeParse(raw);
        return claims.success ? { value: { sub: claims.data.sub } } : 'invalid';
      },
    });
  }

  /** `waited`: the caller has waited once for a fetch; what is known now is what counts. */
  verify(token: string, waited: boolean): Verdict<Access> {
    return this.#tokens.verify(token, waited);
  }
}
