/**
 * Who calls a platform route: access tokens, API keys, session cookies (interface 5.1; TOK-029, 036 … 041).
 *
 * Guarantees: a token's signature is verified here, whatever the gateway found; then the user's actor is asked, each time, so that a
 * revocation holds for the next request on every process. A cookie route with another method than GET needs the CSRF proof of its cookie.
 */
import { coded, CodedError } from '../../../contracts/errors.ts';
import { userCommands } from '../../../contracts/user.ts';
import type { Caller } from '../../../contracts/platform.ts';
import type { Sender } from '../../runtime/message.ts';
import { userAddress } from '../../user/address.ts';
import { askBy } from './ask.ts';
import type { Bearers } from './bearer.ts';
import type { Tokens } from './deps.ts';
import { sameBytes, sha256 } from './derive.ts';
import type { Callers } from './serve.ts';

export type KeyCaller = Extract<Caller, { readonly kind: 'key' }>;
export type UserCaller = Extract<Caller, { readonly kind: 'user' }>;

export interface CallersOptions {
  readonly actors: Pick<Sender, 'ask'>;
  readonly tokens: Pick<Tokens, 'verifyAccess'>;
  readonly bearers: Bearers;
  /** CSRF proof of a cookie. */
  readonly csrfOf: (cookie: string) => string;
  /** Whose API key this is, with the maker's policy. Throws `unauthorized`. */
  readonly verifyKey: (token: string) => Promise<KeyCaller>;
}

/** The person who calls. Throws `forbidden` for an API key: what is a person's own is not an organization's. */
export const personOf = (caller: Caller): UserCaller => {
  if (caller.kind !== 'user') throw coded('forbidden', 'An API key cannot do this: it needs a person\'s token.');
  return caller;
};

export const createCallers = ({ actors, tokens, bearers, csrfOf, verifyKey }: CallersOptions): Callers => {
  const askUser = askBy(actors, userCommands);

  const ofAccess = async (token: string): Promise<Caller> => {
    if (token.startsWith('trp_sk_')) return verifyKey(token);
    const claims = await tokens.verifyAccess(token);
    const account = await askUser(userAddress(claims.sub), 'check', { grant_id: claims.grant, jti: claims.jti });
    return {
      kind: 'user', userId: claims.sub, email: account.email, name: account.name, grantId: claims.grant, jti: claims.jti,
      policy: claims.policy, accepted: account.policy, expiresAtMs: claims.exp * 1_000,
    };
  };

  const ofCookie = async (cookie: string): Promise<Caller> => {
    const userId = bearers.cookieUser(cookie);
    if (userId === undefined) throw coded('unauthorized');
    const { grant_id, expires_at, account } = await askUser(userAddress(userId), 'check_cookie', { secret_sha256: sha256(cookie) });
    return {
      kind: 'user', userId, email: account.email, name: account.name, grantId: grant_id,
      policy: account.policy, accepted: account.policy, expiresAtMs: expires_at,
    };
  };

  return {
    authorise: async (route, token, context) => {
      const { auth } = route;
      /** Nothing but a page's request to us changes something with a cookie. */
      const ofPage = async (): Promise<Caller> => {
        const caller = await ofCookie(token);
        if (route.method !== 'GET' && !sameBytes(Buffer.from(context.csrf ?? ''), Buffer.from(csrfOf(token)))) {
          throw coded('forbidden', 'The CSRF proof is missing or not of this session.');
        }
        return caller;
      };
      switch (auth.kind) {
        case 'none':
          return undefined;
        case 'access':
          if (token === '') throw coded('unauthorized');
          return ofAccess(token);
        case 'cookie': {
          if (auth.optional === true) return token === '' ? undefined : orNobody(ofCookie(token));
          if (token === '') throw coded('unauthorized');
          return ofPage();
        }
        case 'person':
          if (token === '') throw coded('unauthorized');
          return bearers.cookieUser(token) === undefined ? ofAccess(token) : ofPage();
      }
    },
  };
};

const orNobody = async (caller: Promise<Caller>): Promise<Caller | undefined> => {
  try {
    return await caller;
  } catch (error) {
    if (error instanceof CodedError && error.code === 'unauthorized') return undefined;
    throw error;
  }
};
