/**
 * Accounts: one per verified e-mail address, and the logins that are opened for them (TOK-014 … 021, 051, 053, 054).
 *
 * Guarantees: the address is held by a name actor, so two first sign-ins at once make one account; a crash between that and the account
 * leaves a name whose account the next sign-in makes. Secrets leave as the answer only; what is stored is their SHA-256. Memberships are
 * looked up before a refresh token is used up, so that a database that is slow or down costs nobody a login.
 */
import { serialize } from 'cookie';
import type { KeyObject } from 'node:crypto';
import { coded } from '../../../contracts/errors.ts';
import { idOf } from '../../../contracts/ids.ts';
import { limits } from '../../../contracts/limits.ts';
import { nameCommands } from '../../../contracts/name.ts';
import { cookieNames, type RequestContext } from '../../../contracts/platform.ts';
import { userCommands, type GrantKind, type NewGrant } from '../../../contracts/user.ts';
import { nameAddress } from '../../name/address.ts';
import type { Sender } from '../../runtime/message.ts';
import { userAddress } from '../../user/address.ts';
import { askBy } from './ask.ts';
import type { Bearers } from './bearer.ts';
import type { Accounts, MintedAccess, PlatformConfig, Tokens } from './deps.ts';
import { deriveKey, proofOf, sha256 } from './derive.ts';

export interface AccountsOptions {
  readonly config: Pick<PlatformConfig, 'access_expiry_ms'>;
  readonly actors: Pick<Sender, 'ask'>;
  readonly tokens: Tokens;
  readonly bearers: Bearers;
  /** Unix milliseconds. */
  readonly now: () => number;
  readonly newUlid: () => string;
}

/** Set-Cookie line of the browser session (TOK-053); `maxAgeMs` 0 takes it away. */
export const sessionCookie = (value: string, maxAgeMs: number): string =>
  serialize(cookieNames.session, value, { path: '/', secure: true, httpOnly: true, sameSite: 'lax', maxAge: Math.floor(maxAgeMs / 1_000) });

/** The CSRF proof of a session cookie: who can read it has been given the page. */
export const createCsrf = (masterKey: KeyObject): ((cookie: string) => string) => {
  const key = deriveKey(masterKey, 'csrf');
  return (cookie) => proofOf(key, cookie).toString('base64url');
};

/** Milliseconds an access token of a login of this kind lives at first (TOK-012, TOK-063). */
const accessTtlMs = (kind: GrantKind, config: AccountsOptions['config']): number => (kind === 'api-token' ? limits.apiTokenTtlMs : config.access_expiry_ms);

export const createAccounts = ({ config, actors, tokens, bearers, now, newUlid }: AccountsOptions): Accounts => {
  const askUser = askBy(actors, userCommands);
  const askName = askBy(actors, nameCommands);

  const newGrant = (kind: GrantKind, clientId: string, secret: string, { ip, user_agent }: RequestContext): NewGrant => {
    const at = now();
    const expires_at = at + (kind === 'browser' ? limits.browserSessionTtlMs : limits.refreshTtlMs);
    return {
      id: idOf('grt', newUlid()), kind, client_id: clientId, secret_sha256: sha256(secret), expires_at,
      access_expires_at: kind === 'browser' ? expires_at : at + accessTtlMs(kind, config), ip, user_agent,
    };
  };

  const issued = (access: MintedAccess, refreshToken: string) =>
    ({ accessToken: access.token, refreshToken, expiresInSec: access.expiresInSec, expiresAtMs: access.expiresAtMs });

  return {
    signIn: async ({ email, name, provider, providerId }, context) => {
      const { holder: userId } = await askName(nameAddress('email', email), 'claim', { holder: idOf('usr', newUlid()) }, 'once');
      const cookie = bearers.newCookie(userId);
      const { account, created } = await askUser(userAddress(userId), 'sign_in', {
        email, name, provider, provider_id: providerId, grant: newGrant('browser', '', cookie, context),
      }, 'once');
      return { account, created, cookie: sessionCookie(cookie, limits.browserSessionTtlMs) };
    },
    issue: async (userId, kind, clientId, context, agreedAtMs) => {
      const memberships = await tokens.hintsOf(userId);
      const refreshToken = bearers.newRefresh(userId);
      const grant = newGrant(kind, clientId, refreshToken, context);
      const account = await askUser(userAddress(userId), 'open_grant', { grant, ...(agreedAtMs === undefined ? {} : { agreed_at: agreedAtMs }) }, 'once');
      return issued(await tokens.mintAccess(account, grant.id, { ttlMs: accessTtlMs(kind, config), memberships }), refreshToken);
    },
    refresh: async (refreshToken, deadlineAt) => {
      const userId = bearers.refreshUser(refreshToken);
      if (userId === undefined) throw coded('invalid_refresh');
      const memberships = await tokens.hintsOf(userId);
      // Whoever did not get the answer comes again with the token that is over, and loses the login.
      if (deadlineAt - performance.now() < limits.deviceRedeemMs) throw coded('deadline_exceeded');
      const next = bearers.newRefresh(userId);
      const at = now();
      const outcome = await askUser(userAddress(userId), 'refresh', {
        secret_sha256: sha256(refreshToken), next_sha256: sha256(next), expires_at: at + limits.refreshTtlMs, access_expires_at: at + config.access_expiry_ms,
      }, 'once');
      if (outcome.state !== 'rotated') throw coded('invalid_refresh');
      return issued(await tokens.mintAccess(outcome.account, outcome.grant_id, { memberships }), next);
    },
  };
};
