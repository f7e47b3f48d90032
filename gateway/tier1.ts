/**
 * Tier 1: who the caller is, by an ES256 token of an identity provider or of the platform itself (interface 5.2; decisions, Edge gateway).
 *
 * Guarantees: `aud` must be the gateway's name. A token whose `iss` is the platform's is checked with the platform's keys only, every other
 * with the identity provider's (whose `iss` is not checked: the key set is the issuer's). Where the platform is believed, no other
 * provider may speak for its accounts and organizations. HS256 is read only if a development secret was given, whose holder may name anyone
 * (so does `npm start` for its development account). Signature, times and memory: token.ts.
 */
import { z } from 'zod';
import { identityClaims, personalOrg } from '../contracts/capability.ts';
import { grantId, isAccountId, isOrganizationId } from '../contracts/ids.ts';
import { limits } from '../contracts/limits.ts';
import { isId } from '../contracts/validate.ts';
import type { Clock } from './clock.ts';
import type { Jwks } from './jwks.ts';
import { TokenVerifier, type Origin, type Verdict } from './token.ts';

export interface Identity {
  readonly sub: string;
  readonly org: string;
  /** Unix seconds; refused `limits.tokenLeewaySec` later. */
  readonly exp: number;
  /** The platform's grant (login) the token belongs to; undefined for a foreign one. */
  readonly grant: string | undefined;
  /** `jti` of the access token it was made with, if it names one. */
  readonly parent: string | undefined;
}

export interface IdentityOptions {
  /** The gateway's name: the `aud` a token must carry. */
  readonly name: string;
  readonly jwks: Jwks | undefined;
  /** The platform as an identity provider: its keys, and the `iss` of its tokens. */
  readonly platform?: { readonly jwks: Jwks; readonly issuer: string } | undefined;
  /** Development only: the HS256 secret. */
  readonly devSecret: Uint8Array | undefined;
  /** Key id of this gateway's own capabilities: never an identity, so it causes no fetch. */
  readonly ownKid: string;
  readonly clock: Clock;
  readonly rememberedMax?: number;
}

const tokenId = z.string().min(1).max(limits.idMaxChars);

export class IdentityVerifier {
  readonly #tokens: TokenVerifier<Identity>;

  constructor(options: IdentityOptions) {
    const { name, platform, devSecret, ownKid, clock, rememberedMax } = options;
    const foreign: Origin | undefined = options.jwks === undefined ? undefined : { kind: 'keys', jwks: options.jwks };
    const own: Origin | undefined = platform === undefined ? undefined : { kind: 'keys', jwks: platform.jwks };
    const secret: Origin | undefined = devSecret === undefined ? undefined : { kind: 'secret', secret: devSecret };
    this.#tokens = new TokenVerifier({
      clock, ...(rememberedMax === undefined ? {} : { rememberedMax }),
      originOf: ({ alg, kid, claims }) => {
        if (secret !== undefined && alg === 'HS256') return secret;
        if (kid === ownKid) return undefined;
        return own !== undefined && claims['iss'] === platform?.issuer ? own : foreign;
      },
      accept: (raw, origin) => {
        const claims = identityClaims.safeParse(raw);
        if (!claims.success) return raw['aud'] === undefined ? 'wrong_audience' : 'invalid';
        const { sub, aud, org, exp } = claims.data;
        if (!(Array.isArray(aud) ? aud.includes(name) : aud === name)) return 'wrong_audience';
        // What cannot be a user_id can neither own nor open anything.
        if (!isId(sub)) return 'invalid';
        const isOwn = own !== undefined && origin === own;
        if (own !== undefined && origin === foreign && (isAccountId(sub) || (org !== undefined && isOrganizationId(org)))) return 'invalid';
        const grant = isOwn ? grantId.safeParse(raw['grant']) : undefined;
        // The daemon ends what a login opened with the login: a token of ours that names none cannot be ended.
        const parent = isOwn ? tokenId.optional().safeParse(raw['parent']) : undefined;
        if (grant?.success === false || parent?.success === false) return 'invalid';
        return { value: { sub, org: org ?? personalOrg(sub), exp, grant: grant?.data, parent: parent?.data } };
      },
    });
  }

  /** `waited`: the caller has waited once for a fetch; what is known now is what counts. */
  verify(token: string, waited: boolean): Verdict<Identity> {
    return this.#tokens.verify(token, waited);
  }
}
