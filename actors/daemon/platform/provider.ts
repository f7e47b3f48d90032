/**
 * What Google and GitHub have in common as sign-in providers, over openid-client: authorization code (RFC 6749 section 4.1) with PKCE S256
 * (RFC 7636), `state`, and outbound calls with a deadline and a bounded answer.
 *
 * Guarantees: an identity leaves only with an e-mail address that the provider has verified. Foreign errors end here, as
 * `signin_refused`, `email_unverified` or `provider_unavailable`; neither a token nor a provider's answer is in them or in the log.
 */
import * as client from 'openid-client';
import { z } from 'zod';
import { coded, CodedError, type ErrorCode } from '../../../contracts/errors.ts';
import { displayName, email as emailAddress } from '../../../contracts/ids.ts';
import { limits } from '../../../contracts/limits.ts';
import type { Log } from '../log.ts';
import type { VerifiedIdentity } from './deps.ts';

/** What must be known when the browser comes back. */
export const pendingSignIn = z.strictObject({ state: z.string(), verifier: z.string(), nonce: z.string() });
export type PendingSignIn = z.output<typeof pendingSignIn>;

/** The provider's answer, as the browser brought it (RFC 6749 section 4.1.2, RFC 9207). */
export interface ProviderAnswer {
  readonly code?: string | undefined;
  readonly state?: string | undefined;
  readonly error?: string | undefined;
  readonly iss?: string | undefined;
}

export interface SignInProvider {
  /** Where the browser has to go. Throws `provider_unavailable`. */
  begin(redirectUri: string, signal: AbortSignal): Promise<{ readonly url: string; readonly pending: PendingSignIn }>;
  /** Who came back. Throws `signin_refused`, `email_unverified`, `provider_unavailable`. */
  finish(redirectUri: string, answer: ProviderAnswer, pending: PendingSignIn, signal: AbortSignal): Promise<VerifiedIdentity>;
}

export const newPending = (): PendingSignIn => ({ state: client.randomState(), verifier: client.randomPKCECodeVerifier(), nonce: client.randomNonce() });

/** A fetch for one sign-in: ends with `signal`, reads at most `limits.providerAnswerMaxBytes`. Throws `provider_unavailable`. */
export const boundedFetch = (signal: AbortSignal): client.CustomFetch => async (url, options) => {
  try {
    // Bodies of these requests are forms; the library's own type is wider than fetch's.
    const { body, ...rest } = options;
    const answer = await fetch(url, {
      ...rest, ...(body === undefined || body === null ? {} : { body: body as BodyInit }),
      signal: options.signal === undefined ? signal : AbortSignal.any([signal, options.signal]),
    });
    const chunks: Uint8Array[] = [];
    let size = 0;
    for await (const chunk of answer.body ?? []) {
      const bytes: Uint8Array = chunk;
      size += bytes.length;
      if (size > limits.providerAnswerMaxBytes) throw coded('provider_unavailable', 'The sign-in service answered more than is read.');
      chunks.push(bytes);
    }
    return new Response(size === 0 ? null : Buffer.concat(chunks), { status: answer.status, headers: answer.headers });
  } catch (cause) {
    throw cause instanceof CodedError ? cause : coded('provider_unavailable', undefined, { cause });
  }
};

/** The answer's query as it was, on the address it was sent to. */
export const answerUrl = (redirectUri: string, { code, state, error, iss }: ProviderAnswer): URL => {
  const url = new URL(redirectUri);
  for (const [name, value] of Object.entries({ code, state, error, iss })) if (value !== undefined) url.searchParams.set(name, value);
  return url;
};

/** Errors of a token endpoint that are about this sign-in; others are about us or the provider (RFC 6749 section 5.2; GitHub's own word). */
const refusals: ReadonlySet<string> = new Set(['invalid_grant', 'access_denied', 'bad_verification_code']);
/** Of openid-client: the provider's answer is there, and is not what a sign-in may rest on. */
const untrusted: ReadonlySet<string> = new Set([
  'OAUTH_INVALID_RESPONSE', 'OAUTH_JWT_CLAIM_COMPARISON_FAILED', 'OAUTH_JSON_ATTRIBUTE_COMPARISON_FAILED', 'OAUTH_JWT_TIMESTAMP_CHECK_FAILED',
  'OAUTH_KEY_SELECTION_FAILED', 'OAUTH_PARSE_ERROR',
]);

const translated = (error: unknown): { readonly code: ErrorCode; readonly reason: string } | undefined => {
  if (error instanceof client.AuthorizationResponseError) return { code: 'signin_refused', reason: error.error };
  if (error instanceof client.ResponseBodyError) return { code: refusals.has(error.error) ? 'signin_refused' : 'provider_unavailable', reason: error.error };
  if (error instanceof client.WWWAuthenticateChallengeError) return { code: 'provider_unavailable', reason: error.code };
  if (error instanceof client.ClientError) {
    return { code: error.code !== undefined && untrusted.has(error.code) ? 'signin_refused' : 'provider_unavailable', reason: error.code ?? 'unknown' };
  }
  return undefined;
};

/** Runs a step with a provider and turns what it throws into our codes. What is none of the provider's doing passes. */
export const withProvider = async <T>(name: string, log: Log, step: () => Promise<T>): Promise<T> => {
  try {
    return await step();
  } catch (error) {
    // The library wraps what its fetch throws.
    const inner: unknown = error instanceof client.ClientError && error.cause instanceof CodedError ? error.cause : error;
    if (inner instanceof CodedError) {
      if (inner.entry.kind === 'fault') log.warn({ provider: name, code: inner.code, reason: reasonOf(inner.cause) }, 'the sign-in provider could not be used');
      throw inner;
    }
    const found = translated(inner);
    if (found === undefined) throw error;
    log.warn({ provider: name, code: found.code, reason: found.reason.slice(0, limits.upstreamTextMaxChars) }, 'a sign-in with the provider did not come about');
    // Not as its cause: it holds the provider's answer.
    throw coded(found.code);
  }
};

/** What went wrong with a request, without its address, head or body. */
const reasonOf = (cause: unknown): string => {
  if (!(cause instanceof Error)) return 'answer';
  if (cause instanceof client.ClientError) return cause.code ?? cause.name;
  const inner: unknown = cause.cause;
  return inner instanceof Error && 'code' in inner ? String(inner.code) : cause.name;
};

/** Throws `email_unverified` for an address that we take from nobody: of another script, or none. */
export const identityOf = (provider: 'google' | 'github', id: string, address: string, name: string | undefined): VerifiedIdentity => {
  const email = emailAddress.safeParse(address);
  if (!email.success) throw coded('email_unverified');
  const shown = displayName.safeParse(name ?? '');
  return { provider, providerId: id, email: email.data, name: shown.success ? shown.data : '' };
};
