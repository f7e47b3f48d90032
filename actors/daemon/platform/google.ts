/**
 * Sign-in with Google, or any OpenID Connect provider at the configured issuer (OpenID Connect Core 1.0 section 3.1, Discovery 1.0).
 *
 * Guarantees: the ID token's signature, issuer, audience, times and nonce are checked, and the address counts only if the token says that
 * it is verified. What discovery answered is kept for `limits.discoveryTtlMs`; when it cannot be renewed, the last good answer stays in
 * use; a first one that fails is asked for anew by the next sign-in. Several sign-ins share one request.
 */
import * as client from 'openid-client';
import { z } from 'zod';
import { coded, CodedError } from '../../../contracts/errors.ts';
import { limits } from '../../../contracts/limits.ts';
import type { Clock } from '../../runtime/store.ts';
import type { Log } from '../log.ts';
import { answerUrl, boundedFetch, identityOf, newPending, withProvider, type SignInProvider } from './provider.ts';

export interface GoogleOptions {
  readonly issuer: string;
  readonly clientId: string;
  readonly clientSecret: string;
  /** An issuer without TLS: development and tests. */
  readonly allowInsecure: boolean;
  readonly clock: Pick<Clock, 'monotonic'>;
  readonly log: Log;
}

const endpoints = z.object({ issuer: z.string(), authorization_endpoint: z.url(), token_endpoint: z.url(), jwks_uri: z.url() });
/** OpenID Connect Core 1.0 section 5.1; of `email_verified` only the boolean true is one. */
const claims = z.object({ sub: z.string().min(1).max(255), email: z.string().optional(), email_verified: z.unknown().optional(), name: z.string().optional().catch(undefined) });

export const googleProvider = ({ issuer, clientId, clientSecret, allowInsecure, clock, log }: GoogleOptions): SignInProvider => {
  let known: { readonly server: client.ServerMetadata; readonly untilMs: number } | undefined;
  let looking: Promise<client.ServerMetadata> | undefined;
  let keys: client.ExportedJWKSCache | undefined;

  const look = async (): Promise<client.ServerMetadata> => {
    const found = await client.discovery(new URL(issuer), clientId, undefined, undefined, {
      ...(allowInsecure ? { execute: [client.allowInsecureRequests] } : {}),
      [client.customFetch]: boundedFetch(AbortSignal.timeout(limits.providerDeadlineMs)),
    }).catch((error: unknown) => {
      // Whatever is wrong with it, no sign-in was refused.
      throw error instanceof client.ClientError && !(error.cause instanceof CodedError) ? coded('provider_unavailable', undefined, { cause: error }) : error;
    });
    const server = found.serverMetadata();
    if (!endpoints.safeParse(server).success) throw coded('provider_unavailable', 'The sign-in service does not name its endpoints.');
    return server;
  };

  const discovered = async (): Promise<client.ServerMetadata> => {
    if (known !== undefined && clock.monotonic() < known.untilMs) return known.server;
    looking ??= look().finally(() => { looking = undefined; });
    try {
      const server = await looking;
      known = { server, untilMs: clock.monotonic() + limits.discoveryTtlMs };
      return server;
    } catch (error) {
      if (known === undefined) throw error;
      log.warn({ provider: 'google' }, 'discovery could not be renewed: the last answer stays in use');
      known = { ...known, untilMs: clock.monotonic() + limits.discoveryRetryMs };
      return known.server;
    }
  };

  const configuration = async (signal: AbortSignal): Promise<client.Configuration> => {
    const config = new client.Configuration(await discovered(), clientId, undefined, client.ClientSecretPost(clientSecret));
    config[client.customFetch] = boundedFetch(signal);
    if (allowInsecure) client.allowInsecureRequests(config);
    client.enableNonRepudiationChecks(config);
    if (keys !== undefined) client.setJwksCache(config, keys);
    return config;
  };

  return {
    begin: (redirectUri, signal) => withProvider('google', log, async () => {
      const pending = newPending();
      const url = client.buildAuthorizationUrl(await configuration(signal), {
        redirect_uri: redirectUri, scope: 'openid email profile', state: pending.state, nonce: pending.nonce,
        code_challenge: await client.calculatePKCECodeChallenge(pending.verifier), code_challenge_method: 'S256',
      });
      return { url: url.href, pending };
    }),
    finish: (redirectUri, answer, pending, signal) => withProvider('google', log, async () => {
      const config = await configuration(signal);
      const tokens = await client.authorizationCodeGrant(config, answerUrl(redirectUri, answer), {
        expectedState: pending.state, expectedNonce: pending.nonce, pkceCodeVerifier: pending.verifier, idTokenExpected: true,
      });
      keys = client.getJwksCache(config) ?? keys;
      const said = claims.safeParse(tokens.claims());
      if (!said.success) throw coded('signin_refused');
      const { sub, email, email_verified: verified, name } = said.data;
      if (email === undefined || verified !== true) throw coded('email_unverified');
      return identityOf('google', sub, email, name);
    }),
  };
};
