/**
 * Sign-in with GitHub: OAuth 2.0 with PKCE and GitHub's own API, since it gives no ID token.
 *
 * Guarantees: the address is the account's primary one, and only if GitHub says that it is verified; what the profile shows as an address
 * is never believed. The access token is used for two reads and forgotten.
 */
import * as client from 'openid-client';
import { z } from 'zod';
import { coded } from '../../../contracts/errors.ts';
import { parseJson } from '../../../contracts/validate.ts';
import type { Log } from '../log.ts';
import { answerUrl, boundedFetch, identityOf, newPending, withProvider, type SignInProvider } from './provider.ts';

export interface GithubOptions {
  readonly authorizeUrl: string;
  readonly tokenUrl: string;
  readonly apiUrl: string;
  readonly clientId: string;
  readonly clientSecret: string;
  /** Addresses without TLS: development and tests. */
  readonly allowInsecure: boolean;
  readonly log: Log;
}

const profile = z.object({ id: z.int().positive(), login: z.string(), name: z.string().nullish() });
const addresses = z.array(z.object({ email: z.string(), primary: z.boolean(), verified: z.boolean() })).max(1_000);
const tokenError = z.object({ error: z.string() });

/** GitHub answers a refused code with 200 and an `error`; RFC 6749 section 5.2 and the library want 400. */
const withStatus = (fetch: client.CustomFetch, tokenUrl: string): client.CustomFetch => async (url, options) => {
  const answer = await fetch(url, options);
  if (url !== tokenUrl || answer.status !== 200) return answer;
  const text = await answer.text();
  const refused = answer.headers.get('content-type')?.startsWith('application/json') === true && tokenError.safeParse(jsonOf(text)).success;
  return new Response(text, { status: refused ? 400 : 200, headers: answer.headers });
};

const jsonOf = (text: string): unknown => {
  try {
    return parseJson(text);
  } catch {
    // The library says what it makes of it.
    return undefined;
  }
};

export const githubProvider = ({ authorizeUrl, tokenUrl, apiUrl, clientId, clientSecret, allowInsecure, log }: GithubOptions): SignInProvider => {
  const token = new URL(tokenUrl).href;

  const configuration = (signal: AbortSignal): client.Configuration => {
    const server = { issuer: new URL(authorizeUrl).origin, authorization_endpoint: authorizeUrl, token_endpoint: token };
    const config = new client.Configuration(server, clientId, undefined, client.ClientSecretPost(clientSecret));
    config[client.customFetch] = withStatus(boundedFetch(signal), token);
    if (allowInsecure) client.allowInsecureRequests(config);
    return config;
  };

  const read = async <S extends z.ZodType>(config: client.Configuration, accessToken: string, path: string, schema: S): Promise<z.output<S>> => {
    const url = new URL(`${apiUrl.replace(/\/$/, '')}${path}`);
    const answer = await client.fetchProtectedResource(config, accessToken, url, 'GET', undefined, new Headers({ accept: 'application/vnd.github+json' }));
    const body = schema.safeParse(answer.status === 200 ? jsonOf(await answer.text()) : undefined);
    if (!body.success) throw coded('provider_unavailable', `The sign-in service answered ${answer.status} to a look at the account.`);
    return body.data;
  };

  return {
    begin: (redirectUri, signal) => withProvider('github', log, async () => {
      const pending = newPending();
      const url = client.buildAuthorizationUrl(configuration(signal), {
        redirect_uri: redirectUri, scope: 'read:user user:email', state: pending.state,
        code_challenge: await client.calculatePKCECodeChallenge(pending.verifier), code_challenge_method: 'S256',
      });
      return { url: url.href, pending };
    }),
    finish: (redirectUri, answer, pending, signal) => withProvider('github', log, async () => {
      const config = configuration(signal);
      // Which issuer it would name is not documented. The redirect address is this provider's own, which serves the same end (RFC 9700 section 4.4.2).
      const { access_token: accessToken } = await client.authorizationCodeGrant(config, answerUrl(redirectUri, { ...answer, iss: undefined }), {
        expectedState: pending.state, pkceCodeVerifier: pending.verifier,
      });
      const [who, emails] = await Promise.all([read(config, accessToken, '/user', profile), read(config, accessToken, '/user/emails', addresses)]);
      const address = emails.find(({ primary, verified }) => primary && verified);
      if (address === undefined) throw coded('email_unverified');
      return identityOf('github', String(who.id), address.email, who.name ?? who.login);
    }),
  };
};
