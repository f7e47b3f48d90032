/** What the handlers of the platform surface share: types only, so that each handler file needs no other. */
import type { KeyObject } from 'node:crypto';
import type { DaemonConfig } from '../../../contracts/config.ts';
import type { LegalManifest } from '../../../contracts/legal.ts';
import type { AccessClaims, RequestContext } from '../../../contracts/platform.ts';
import type { Account, GrantKind, IdentityProvider } from '../../../contracts/user.ts';
import type { Projections } from '../../projections/projections.ts';
import type { Sender } from '../../runtime/message.ts';
import type { Allowances } from '../allowances.ts';
import type { Log } from '../log.ts';

export type PlatformConfig = NonNullable<DaemonConfig['platform']>;

/** An access token to give out, and when it ends. */
export interface MintedAccess {
  readonly token: string;
  readonly jti: string;
  readonly expiresInSec: number;
  /** Unix milliseconds. */
  readonly expiresAtMs: number;
}

/** An organization and the person's role in it, as a token hints at it. */
export interface Membership {
  readonly id: string;
  readonly role: string;
}

/** Signs and verifies the platform's JWTs: the only holder of the signing key. */
export interface Tokens {
  /** A person's memberships now, at most `limits.tokenOrgsMax`. Faults when Postgres does not answer. */
  membershipsOf(userId: string): Promise<readonly Membership[]>;
  /** The same for a token's `orgs`, which are only a hint: none when Postgres does not answer within `limits.projectionWaitMs`, so that people can still sign in. */
  hintsOf(userId: string): Promise<readonly Membership[]>;
  /** `ttlMs` default `platform.access_expiry_ms`; `memberships` default `hintsOf`. */
  mintAccess(account: Account, grantId: string, options?: { readonly ttlMs?: number; readonly memberships?: readonly Membership[] }): Promise<MintedAccess>;
  /** Tier 1 identity token for the edge gateway: `aud` the gateway's name, `org` only for an organization; `parent` = `jti` of the access token it is made with, and ends with. */
  mintGateway(account: Account, grantId: string, organizationId?: string, parent?: string): Promise<{ readonly token: string; readonly expiresInSec: number }>;
  /** Signature, issuer, audience, times; remembered until it expires. Whether it was revoked is the user actor's to say. Throws `unauthorized`. */
  verifyAccess(token: string): Promise<AccessClaims>;
  /** Public keys, newest first. */
  readonly jwks: { readonly keys: readonly Readonly<Record<string, string>>[] };
}

/** An identity that its provider has verified. */
export interface VerifiedIdentity {
  readonly email: string;
  readonly name: string;
  readonly provider: IdentityProvider;
  /** The provider's id of the person; for e-mail the address itself. */
  readonly providerId: string;
}

/** A browser session that was opened. */
export interface SignedIn {
  readonly account: Account;
  readonly created: boolean;
  /** A finished Set-Cookie line. */
  readonly cookie: string;
}

export interface IssuedTokens {
  readonly accessToken: string;
  readonly refreshToken: string;
  readonly expiresInSec: number;
  readonly expiresAtMs: number;
}

/** What sign-in, the device flow and the token routes have in common. */
export interface Accounts {
  /** Same verified e-mail = same account; makes it at the first sign-in; opens a browser session. */
  signIn(identity: VerifiedIdentity, context: RequestContext): Promise<SignedIn>;
  /**
   * Opens a grant of a user and gives its first pair of tokens. Throws `unauthorized` if there is no such user, or if all logins were ended
   * since the person agreed to it. `agreedAtMs`: Unix milliseconds, absent = just now.
   */
  issue(userId: string, kind: Extract<GrantKind, 'device' | 'api-token'>, clientId: string, context: RequestContext, agreedAtMs?: number): Promise<IssuedTokens>;
  /**
   * A new pair for a refresh token, which is over then. Throws `invalid_refresh`; one that was replaced before ends its login. `deadlineAt` (as
   * `performance.now()`): with too little time left for an answer it throws `deadline_exceeded` and uses nothing up.
   */
  refresh(refreshToken: string, deadlineAt: number): Promise<IssuedTokens>;
}

/** The documents that are to be accepted now. */
export interface Manifest extends LegalManifest {
  /** SHA-256, hex. */
  readonly hash: string;
}

export interface PlatformDeps {
  readonly config: PlatformConfig;
  /** Of the model registry: the default of new organizations, and what `defaultModel` may be. */
  readonly models: { readonly default: string; readonly ids: readonly string[] };
  readonly masterKey: KeyObject;
  /** Of the sign-in providers that are configured (`Secrets.googleClientSecret`, `githubClientSecret`). */
  readonly clientSecrets: { readonly google?: string | undefined; readonly github?: string | undefined };
  readonly actors: Pick<Sender, 'ask'>;
  readonly projections: Projections;
  readonly allowances: Allowances;
  readonly tokens: Tokens;
  readonly accounts: Accounts;
  readonly manifest: Manifest;
  readonly log: Log;
  /** Unix milliseconds. */
  readonly now: () => number;
  readonly newUlid: () => string;
}
