/** What the handlers of the platform surface share: types only, so that each handler file needs no other. */
import type { KeyObject } from 'node:crypto';
import type { DaemonConfig } from '../../../contracts/config.ts';
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

/** Signs and verifies the platform's JWTs: the only holder of the signing key. */
export interface Tokens {
  /** `ttlMs` default `platform.access_expiry_ms`. Looks up the memberships for `orgs`. */
  mintAccess(account: Account, grantId: string, ttlMs?: number): Promise<MintedAccess>;
  /** Tier 1 identity token for the edge gateway: `aud` the gateway's name, `org` only for an organization. */
  mintGateway(account: Account, grantId: string, organizationId?: string): Promise<{ readonly token: string; readonly expiresInSec: number }>;
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

export interface IssuedTokens {
  readonly accessToken: string;
  readonly refreshToken: string;
  readonly expiresInSec: number;
  readonly expiresAtMs: number;
}

/** What sign-in, the device flow and the token routes have in common. */
export interface Accounts {
  /** Same verified e-mail = same account; makes it at the first sign-in; opens a browser session. `cookie` is a finished Set-Cookie line. */
  signIn(identity: VerifiedIdentity, context: RequestContext): Promise<{ readonly account: Account; readonly created: boolean; readonly cookie: string }>;
  /** Opens a grant of a user and gives its first pair of tokens. Throws `unauthorized` if there is no such user. */
  issue(userId: string, kind: Extract<GrantKind, 'device' | 'api-token'>, clientId: string, context: RequestContext): Promise<IssuedTokens>;
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
  readonly log: Log;
  /** Unix milliseconds. */
  readonly now: () => number;
  newUlid(): string;
}
