/**
 * Handlers of sign-in with Google and GitHub: send the browser there, take it back (TOK-048, 050 … 052).
 *
 * Guarantees
 * O1  What must be known on the way back (state, nonce, PKCE verifier, where to go) travels sealed in a cookie of this browser for
 *     `limits.signinCookieSec`, bound to the provider. A callback without it or with another state is refused before anything is asked of
 *     the provider. The callback takes the cookie away, however it ends; the provider accepts a code once.
 * O2  People are sent to this site only: a finished sign-in to the path it began with, any other end to `/signin?error=<code>`.
 * O3  An account is reached only over an address that the provider has verified (provider.ts).
 * Callbacks are counted per remote address, and `limits.providerSignInsMax` at most are under way in one daemon.
 */
import { z } from 'zod';
import { authRoutes } from '../../../contracts/auth-routes.ts';
import { coded, CodedError } from '../../../contracts/errors.ts';
import { limits } from '../../../contracts/limits.ts';
import { cookieNames, type Caller } from '../../../contracts/platform.ts';
import { endpointAllowance } from '../../allowance/address.ts';
import { systemClock, type Clock } from '../../runtime/store.ts';
import { addressBlock } from './address.ts';
import type { Accounts, PlatformDeps } from './deps.ts';
import { deriveKey, sameBytes } from './derive.ts';
import { githubProvider } from './github.ts';
import { googleProvider } from './google.ts';
import { pendingSignIn, type ProviderAnswer, type SignInProvider } from './provider.ts';
import { open, seal } from './seal.ts';
import { forAnyone, type PlatformHandler, type PlatformHandlerRequest, type PlatformResult } from './serve.ts';
import { queryOf } from './typed.ts';

export interface OauthDeps extends Pick<PlatformDeps, 'config' | 'masterKey' | 'clientSecrets' | 'allowances' | 'log' | 'now'> {
  readonly accounts: Pick<Accounts, 'signIn'>;
  /** Of what is kept of the providers. Default the system's. */
  readonly clock?: Pick<Clock, 'monotonic'>;
}

type AnyRequest = PlatformHandlerRequest<Caller | undefined>;
type Name = 'google' | 'github';

/** What the cookie holds. `until`: Unix milliseconds. */
const kept = z.strictObject({ ...pendingSignIn.shape, return_to: z.string(), until: z.number() });
type Kept = z.output<typeof kept>;

const cookie = (value: string, maxAgeSec: number): string => `${cookieNames.signin}=${value}; Path=/; Max-Age=${maxAgeSec}; HttpOnly; Secure; SameSite=Lax`;

const sameText = (a: string, b: string): boolean => sameBytes(Buffer.from(a), Buffer.from(b));

const providersOf = ({ config, clientSecrets, log, clock = systemClock }: OauthDeps): Readonly<Record<Name, SignInProvider | undefined>> => {
  const { google, github } = config;
  return {
    google: google === undefined || clientSecrets.google === undefined ? undefined : googleProvider({
      issuer: google.issuer, clientId: google.client_id, clientSecret: clientSecrets.google, allowInsecure: google.allow_insecure, clock, log,
    }),
    github: github === undefined || clientSecrets.github === undefined ? undefined : githubProvider({
      authorizeUrl: github.authorize_url, tokenUrl: github.token_url, apiUrl: github.api_url,
      clientId: github.client_id, clientSecret: clientSecrets.github, allowInsecure: github.allow_insecure, log,
    }),
  };
};

export const oauthHandlers = (deps: OauthDeps): Readonly<Record<string, PlatformHandler>> => {
  const { config, allowances, accounts, now } = deps;
  const base = config.base_url;
  const key = deriveKey(deps.masterKey, 'signin-cookie');
  const providers = providersOf(deps);
  let underWay = 0;

  /** Always with the host: of a path alone a browser may make another host's address. */
  const seeOther = (path: string, cookies: readonly string[]): PlatformResult => ({
    status: 303, headers: { location: `${base}${path}`, 'set-cookie': [...cookies], 'cache-control': 'no-store' },
  });

  const refused = (error: unknown, back: string | undefined, cookies: readonly string[]): PlatformResult => {
    const code = error instanceof CodedError ? sayable(error) : undefined;
    if (code === undefined) throw error;
    const query = new URLSearchParams({ error: code, ...(back === undefined || back === '/' ? {} : { return_to: back }) });
    return seeOther(`/signin?${query.toString()}`, cookies);
  };

  /** What the sign-in page can say of an error; undefined for what is none of its business. */
  const sayable = ({ code, entry }: CodedError): string | undefined => {
    if (['signin_refused', 'email_unverified', 'provider_unavailable', 'rate_limited'].includes(code)) return code;
    if (entry.kind !== 'fault') return undefined;
    deps.log.warn({ code }, 'a sign-in could not be finished');
    return 'provider_unavailable';
  };

  /** Counts a step with the provider while it runs, and ends it in time for an answer. */
  const bounded = async <T>(request: AnyRequest, step: (signal: AbortSignal) => Promise<T>): Promise<T> => {
    if (underWay >= limits.providerSignInsMax) throw coded('provider_unavailable');
    underWay += 1;
    try {
      return await step(AbortSignal.any([request.signal, AbortSignal.timeout(limits.providerDeadlineMs)]));
    } finally {
      underWay -= 1;
    }
  };

  const begin = async (name: Name, request: AnyRequest, back: string): Promise<PlatformResult> => {
    const provider = providers[name];
    if (provider === undefined) throw coded('not_found');
    try {
      const { url, pending } = await bounded(request, (signal) => provider.begin(redirectUri(name), signal));
      const value: Kept = { ...pending, return_to: back, until: now() + limits.signinCookieSec * 1_000 };
      return { status: 303, headers: { location: url, 'cache-control': 'no-store', 'set-cookie': [cookie(seal(key, name, JSON.stringify(value)), limits.signinCookieSec)] } };
    } catch (error) {
      return refused(error, back, []);
    }
  };

  const redirectUri = (name: Name): string => `${base}${authRoutes[`${name}Callback`].path}`;

  /** What this browser began with the provider; undefined for none, one of long ago, or another's. */
  const begun = (name: Name, sealed: string | undefined): Kept | undefined => {
    const text = sealed === undefined ? undefined : open(key, name, sealed);
    if (text === undefined) return undefined;
    // A daemon of another release may have sealed it.
    const value = kept.safeParse(JSON.parse(text));
    return value.success && now() < value.data.until ? value.data : undefined;
  };

  const finish = async (name: Name, request: AnyRequest, answer: ProviderAnswer): Promise<PlatformResult> => {
    const provider = providers[name];
    if (provider === undefined) throw coded('not_found');
    const clear = cookie('', 0);
    const value = begun(name, request.context.cookies?.[cookieNames.signin]);
    try {
      if (value === undefined || answer.state === undefined || !sameText(answer.state, value.state)) throw coded('signin_refused');
      await allowances.take({ ...endpointAllowance('signin-callback', addressBlock(request.context.ip)), signal: request.signal });
      const identity = await bounded(request, (signal) => provider.finish(redirectUri(name), answer, value, signal));
      const { cookie: session } = await accounts.signIn(identity, request.context);
      return seeOther(value.return_to, [session, clear]);
    } catch (error) {
      return refused(error, value?.return_to, [clear]);
    }
  };

  const table = (name: Name): readonly [string, PlatformHandler][] => {
    const start = authRoutes[`${name}Start`];
    const callback = authRoutes[`${name}Callback`];
    return [
      [start.id, forAnyone((request) => begin(name, request, queryOf(start, request).return_to ?? '/'))],
      [callback.id, forAnyone((request) => finish(name, request, queryOf(callback, request)))],
    ];
  };
  return Object.fromEntries([...table('google'), ...table('github')]);
};
