/**
 * Handlers of sign-in by e-mail, browser sessions and tokens (decisions, Device flow and tokens; TOK-001 … 065 but the providers').
 *
 * Guarantees: what is a person's own (logins, revoking, gateway tokens) is refused to API keys; nobody reaches another person's logins, since
 * every ask goes to the caller's own actor; answers with secrets carry `no-store` (the gateway's default for all of this surface).
 * The answer of an e-mail start is made without looking whether there is an account.
 */
import { authRoutes, refreshGrant } from '../../../contracts/auth-routes.ts';
import { coded, CodedError } from '../../../contracts/errors.ts';
import { limits } from '../../../contracts/limits.ts';
import { organizationAddress } from '../../../contracts/organization-routes.ts';
import { byOf, type AnswerHeaders, type Caller } from '../../../contracts/platform.ts';
import { signinCommands } from '../../../contracts/signin.ts';
import { userCommands, type Account } from '../../../contracts/user.ts';
import { endpointAllowance } from '../../allowance/address.ts';
import { signinAddress } from '../../signin/address.ts';
import { userAddress } from '../../user/address.ts';
import { sessionCookie } from './accounts.ts';
import { addressBlock } from './address.ts';
import { askBy } from './ask.ts';
import type { Bearers } from './bearer.ts';
import { personOf, type UserCaller } from './callers.ts';
import type { IssuedTokens, PlatformDeps, SignedIn } from './deps.ts';
import { sha256 } from './derive.ts';
import { forAnyone, forCaller, type PlatformHandler, type PlatformHandlerRequest, type PlatformResult } from './serve.ts';
import { bodyOf } from './typed.ts';

export interface AuthDeps extends Pick<PlatformDeps, 'config' | 'actors' | 'allowances' | 'tokens' | 'accounts' | 'manifest' | 'now'> {
  readonly bearers: Pick<Bearers, 'refreshUser'>;
  readonly csrfOf: (cookie: string) => string;
}

const noStore: AnswerHeaders = { 'cache-control': 'no-store' };

/** RFC 6749 section 5.1. */
const tokenResult = ({ accessToken, refreshToken, expiresInSec }: IssuedTokens): PlatformResult => ({
  status: 200, headers: noStore, body: { access_token: accessToken, token_type: 'Bearer', expires_in: expiresInSec, refresh_token: refreshToken },
});

const signedInResult = ({ account, created, cookie }: SignedIn): PlatformResult => ({
  status: 200, headers: { ...noStore, 'set-cookie': [cookie] },
  body: { user: { id: account.user_id, email: account.email, name: account.name }, created },
});

const accountOf = (caller: UserCaller): Account => ({ user_id: caller.userId, email: caller.email, name: caller.name, policy: caller.accepted });

const providersOf = ({ google, github }: PlatformDeps['config']): ('email' | 'google' | 'github')[] =>
  ['email', ...(google === undefined ? [] : ['google' as const]), ...(github === undefined ? [] : ['github' as const])];

export const authHandlers = (deps: AuthDeps): Readonly<Record<string, PlatformHandler>> => {
  const { config, actors, allowances, tokens, accounts, manifest, bearers, csrfOf, now } = deps;
  const askUser = askBy(actors, userCommands);
  const askSignin = askBy(actors, signinCommands);

  const count = async (endpoint: 'refresh' | 'signin-start' | 'signin-try', { context, signal }: PlatformHandlerRequest<Caller | undefined>): Promise<void> => {
    await allowances.take({ ...endpointAllowance(endpoint, addressBlock(context.ip)), signal });
  };

  const refresh = async (request: PlatformHandlerRequest<Caller | undefined>): Promise<PlatformResult> => {
    try {
      await count('refresh', request);
    } catch (error) {
      if (error instanceof CodedError && error.code === 'rate_limited') throw coded('rate_limit_exceeded', undefined, { details: { ...error.details } });
      throw error;
    }
    const { refresh_token, grant_type } = bodyOf(authRoutes.refresh, request);
    // RFC 6749 section 3.1: a parameter without a value counts as left out.
    if (grant_type !== undefined && grant_type !== '' && grant_type !== refreshGrant) throw coded('unsupported_grant_type');
    if (refresh_token === undefined || refresh_token === '') throw coded('invalid_request', 'refresh_token is missing.');
    return tokenResult(await accounts.refresh(refresh_token, request.deadlineAt));
  };

  const makeApiToken = async ({ caller, context }: PlatformHandlerRequest): Promise<PlatformResult> => {
    const issued = await accounts.issue(personOf(caller).userId, 'api-token', 'api-token', context);
    return { status: 200, headers: noStore, body: { token: issued.accessToken, refresh_token: issued.refreshToken, expires_at: new Date(issued.expiresAtMs).toISOString() } };
  };

  /** Ends the token's or its login's life if it is the caller's; whose it is otherwise is nobody's business (RFC 7009 section 2.2). */
  const revokeToken = async (userId: string, token: string): Promise<{ readonly revoked: number }> => {
    if (bearers.refreshUser(token) !== undefined) {
      return bearers.refreshUser(token) === userId ? askUser(userAddress(userId), 'revoke_refresh', { secret_sha256: sha256(token) }, 'once') : { revoked: 0 };
    }
    try {
      const claims = await tokens.verifyAccess(token);
      if (claims.sub !== userId) return { revoked: 0 };
      // Remembered for as long as anything made with it can live.
      const expires_at = (claims.exp + limits.gatewayTokenTtlSec + limits.tokenLeewaySec + limits.capabilityTtlSec) * 1_000;
      return await askUser(userAddress(userId), 'revoke_token', { grant_id: claims.grant, jti: claims.jti, expires_at }, 'once');
    } catch (error) {
      if (error instanceof CodedError && error.code === 'unauthorized') return { revoked: 0 };
      throw error;
    }
  };

  return {
    jwks: forAnyone(async () => ({ status: 200, headers: { 'cache-control': 'public, max-age=300' }, body: { keys: tokens.jwks.keys } })),
    refresh: forAnyone(refresh),
    me: forCaller(async ({ caller }) => {
      if (caller.kind === 'key') {
        return { status: 200, body: { id: caller.keyId, email: '', name: '', orgs: [{ id: caller.organizationId, role: 'key' }], expiresAt: null } };
      }
      const { userId, email, name, expiresAtMs } = caller;
      const orgs = (await tokens.membershipsOf(userId)).map(({ id, role }) => ({ id, role }));
      return { status: 200, body: { id: userId, email, name, orgs, expiresAt: new Date(expiresAtMs).toISOString() } };
    }),
    api_token: forCaller(makeApiToken),
    make_api_token: forCaller(makeApiToken),
    revoke: forCaller(async (request) => {
      const { userId } = personOf(request.caller);
      const body = bodyOf(authRoutes.revoke, request);
      return { status: 200, body: 'all' in body ? await askUser(userAddress(userId), 'revoke_all', {}, 'once') : await revokeToken(userId, body.token) };
    }),
    gateway_token: forCaller(async (request) => {
      const caller = personOf(request.caller);
      const { orgId } = bodyOf(authRoutes.gatewayToken, request);
      if (orgId !== undefined) {
        const by = byOf(caller, request.context);
        await actors.ask({ address: organizationAddress(orgId), command: 'authorise', input: { by, permission: 'chat.read' }, principal: { kind: 'system' }, deadlineAt: request.deadlineAt, signal: request.signal });
      }
      const { token, expiresInSec } = await tokens.mintGateway(accountOf(caller), caller.grantId, orgId, caller.jti);
      return { status: 200, headers: noStore, body: { access_token: token, token_type: 'Bearer', expires_in: expiresInSec } };
    }),
    email_start: forAnyone(async (request) => {
      await count('signin-start', request);
      const { email } = bodyOf(authRoutes.emailStart, request);
      await askSignin(signinAddress(email), 'start', { email, from: addressBlock(request.context.ip) }, 'once');
      return { status: 202, body: { sent: true } };
    }),
    email_verify: forAnyone(async (request) => {
      await count('signin-try', request);
      const { email, code } = bodyOf(authRoutes.emailVerify, request);
      const { state } = await askSignin(signinAddress(email), 'verify', { code, from: addressBlock(request.context.ip) }, 'once');
      if (state !== 'verified') throw coded('bad_code');
      return signedInResult(await accounts.signIn({ email, name: '', provider: 'email', providerId: email }, request.context));
    }),
    signout: forCaller(async ({ caller }) => {
      const { userId, grantId } = personOf(caller);
      await askUser(userAddress(userId), 'revoke_grant', { grant_id: grantId, why: 'signed_out' }, 'once');
      return { status: 200, headers: { ...noStore, 'set-cookie': [sessionCookie('', 0)] }, body: { signedOut: true } };
    }),
    session: forAnyone(async ({ caller, token }) => {
      const providers = providersOf(config);
      if (caller?.kind !== 'user') return { status: 200, headers: noStore, body: { user: null, csrf: null, legalAccepted: false, providers } };
      const { userId, email, name, accepted, expiresAtMs } = caller;
      return {
        // The browser keeps the cookie as long as the session now lasts.
        status: 200, headers: { ...noStore, 'set-cookie': [sessionCookie(token, expiresAtMs - now())] },
        body: { user: { id: userId, email, name }, csrf: csrfOf(token), legalAccepted: accepted === manifest.hash, providers },
      };
    }),
    session_token: forCaller(async ({ caller }) => {
      const person = personOf(caller);
      const ttlMs = Math.min(limits.consoleTokenTtlMs, person.expiresAtMs - now());
      const { token, expiresInSec } = await tokens.mintAccess(accountOf(person), person.grantId, { ttlMs });
      return { status: 200, headers: noStore, body: { access_token: token, token_type: 'Bearer', expires_in: expiresInSec } };
    }),
    grants: forCaller(async ({ caller }) => {
      const { userId, grantId } = personOf(caller);
      const { grants } = await askUser(userAddress(userId), 'grants', {});
      return { status: 200, body: { grants: grants.map((g) => ({ ...g, current: g.id === grantId })) } };
    }),
    revoke_grant: forCaller(async (request) => {
      const { userId } = personOf(request.caller);
      const { id } = bodyOf(authRoutes.revokeGrant, request);
      const { revoked } = await askUser(userAddress(userId), 'revoke_grant', { grant_id: id, why: 'revoked' }, 'once');
      if (revoked === 0) throw coded('not_found');
      return { status: 200, body: { revoked } };
    }),
  };
};
