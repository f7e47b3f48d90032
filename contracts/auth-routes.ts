/**
 * The platform's routes of sign-in, tokens and legal acceptance (interface 4.1, 5.1; decisions, Device flow and tokens, Billing: legal).
 *
 * The three OAuth endpoints (device code, token, refresh) ignore fields they do not know, as RFC 6749 section 3.2 demands, and answer errors
 * flat; every other body refuses unknown fields. Routes marked `form` also serve pages without JavaScript.
 */
import { z } from 'zod';
import { typedUserCode } from './device.ts';
import { email, grantId, organizationId } from './ids.ts';
import { limits } from './limits.ts';
import { cookieNames, platformRoute } from './platform.ts';
import { grant } from './user.ts';

const bodyMaxBytes = limits.bodyMaxBytes;
const text = z.string().max(limits.bearerMaxBytes);

/** Interface 2.2. */
export const tokenAnswer = z.strictObject({
  access_token: z.string(), token_type: z.literal('Bearer'), expires_in: z.int(), refresh_token: z.string().optional(),
});
export const deviceGrant = 'urn:ietf:params:oauth:grant-type:device_code';
export const refreshGrant = 'refresh_token';

/** RFC 8414, with the endpoint of refreshing beside it. */
export const authorizationServer = z.strictObject({
  issuer: z.string(), device_authorization_endpoint: z.string(), token_endpoint: z.string(), refresh_endpoint: z.string(), jwks_uri: z.string(),
  grant_types_supported: z.array(z.string()), token_endpoint_auth_methods_supported: z.array(z.string()), response_types_supported: z.array(z.string()),
});

const organizationHint = z.strictObject({ id: z.string(), role: z.string() });
export const signedIn = z.strictObject({ user: z.strictObject({ id: z.string(), email: z.string(), name: z.string() }), created: z.boolean() });

/**
 * A path of this site to go to after sign-in. Printable ASCII without a backslash, since browsers drop tabs and line ends and read a
 * backslash as a slash (WHATWG URL, 4.4); and no way to `//host`, dot segments resolved.
 */
export const returnTo = z.string().max(1_024).regex(/^\/(?!\/)[!-[\]-~]*$/)
  .refine((path) => URL.canParse(path, 'https://here.invalid') && !new URL(path, 'https://here.invalid').pathname.startsWith('//'));

/** A ticked box of a form. */
const ticked = z.literal('true');

const providerRoutes = <Name extends 'google' | 'github'>(name: Name, wire: number) => ({
  start: platformRoute({
    id: `signin_${name}`, wire, surface: 'platform', method: 'GET', path: `/api/auth/signin/${name}`,
    summary: `Sends the browser to ${name}: authorization code with PKCE (RFC 7636); state, nonce and verifier travel in a sealed cookie. Out of reach: back to \`/signin?error=provider_unavailable\`.`,
    auth: { kind: 'none' }, query: z.strictObject({ return_to: returnTo.optional() }), bodyMaxBytes: 0,
    answers: { 303: 'empty' }, errors: ['not_found'], serve: { by: 'daemon' },
  }),
  callback: platformRoute({
    id: `callback_${name}`, wire: wire + 1, surface: 'platform', method: 'GET', path: `/api/auth/callback/${name}`,
    summary: `Takes ${name}'s answer: sets the session cookie and goes back to the page. A wrong state, an e-mail that ${name} has not verified and other ends: to \`/signin?error=<code>\`.`,
    auth: { kind: 'none' }, cookies: [cookieNames.signin],
    // RFC 6749 4.1.2: code and state, or error; providers add fields of their own.
    query: z.object({ code: text.optional(), state: text.optional(), error: text.optional(), iss: text.optional() }), bodyMaxBytes: 0,
    answers: { 303: 'empty' }, errors: ['not_found'], serve: { by: 'daemon' },
  }),
});
const google = providerRoutes('google', 113);
const github = providerRoutes('github', 115);

export const authRoutes = {
  metadata: platformRoute({
    id: 'metadata', wire: 100, surface: 'platform', method: 'GET', path: '/.well-known/oauth-authorization-server', summary: 'Authorization server metadata (RFC 8414).',
    auth: { kind: 'none' }, bodyMaxBytes: 0, answers: { 200: authorizationServer }, errors: [], serve: { by: 'daemon' },
  }),
  deviceCode: platformRoute({
    id: 'device_code', wire: 101, surface: 'platform', method: 'POST', path: '/api/auth/device/code', summary: 'Begins a device authorization (RFC 8628 section 3.1).',
    auth: { kind: 'none' }, body: z.object({ client_id: text.optional(), scope: text.optional() }), bodyMaxBytes, form: true, errorShape: 'oauth',
    answers: {
      200: z.strictObject({
        device_code: z.string(), user_code: z.string(), verification_uri: z.string(), verification_uri_complete: z.string(), expires_in: z.int(), interval: z.int(),
      }),
    },
    errors: ['invalid_request', 'rate_limit_exceeded'], serve: { by: 'daemon' },
  }),
  deviceToken: platformRoute({
    id: 'device_token', wire: 102, surface: 'platform', method: 'POST', path: '/api/auth/device/token', summary: 'Polls a device authorization (RFC 8628 section 3.4). Every refusal is 400.',
    auth: { kind: 'none' }, body: z.object({ grant_type: text.optional(), device_code: text.optional(), client_id: text.optional() }), bodyMaxBytes, form: true, errorShape: 'oauth',
    answers: { 200: tokenAnswer },
    errors: ['invalid_request', 'invalid_grant', 'unsupported_grant_type', 'authorization_pending', 'slow_down', 'access_denied', 'expired_token'], serve: { by: 'daemon' },
  }),
  refresh: platformRoute({
    id: 'refresh', wire: 103, surface: 'platform', method: 'POST', path: '/api/auth/refresh',
    summary: 'A new access token for a refresh token, which is replaced by a new one (RFC 9700 section 4.14.2); a replaced one that comes again ends its whole family.',
    auth: { kind: 'none' }, body: z.object({ refresh_token: text.optional(), grant_type: text.optional(), client_id: text.optional() }), bodyMaxBytes, form: true, errorShape: 'oauth',
    answers: { 200: tokenAnswer }, errors: ['invalid_request', 'invalid_refresh', 'unsupported_grant_type', 'rate_limit_exceeded'], serve: { by: 'daemon' },
  }),
  deviceAuthorize: platformRoute({
    id: 'device_authorize', wire: 104, surface: 'platform', method: 'POST', path: '/api/auth/device/authorize', summary: 'The signed-in person approves or denies a user code.',
    auth: { kind: 'cookie' }, body: z.strictObject({ user_code: typedUserCode, action: z.enum(['approve', 'deny']) }), bodyMaxBytes, form: true,
    answers: { 200: z.strictObject({ status: z.enum(['approved', 'denied']), client_id: z.string().optional() }) },
    errors: ['unauthorized', 'forbidden', 'not_found', 'device_expired', 'rate_limited'], serve: { by: 'daemon' },
  }),
  deviceShow: platformRoute({
    id: 'device_show', wire: 124, surface: 'platform', method: 'GET', path: '/api/auth/device/show', summary: 'What a signed-in person is asked to approve: the client of a user code.',
    auth: { kind: 'cookie' }, query: z.strictObject({ user_code: typedUserCode }), bodyMaxBytes: 0,
    answers: { 200: z.strictObject({ client_id: z.string(), user_code: z.string(), expires_in: z.int() }) },
    errors: ['unauthorized', 'not_found', 'device_expired', 'rate_limited'], serve: { by: 'daemon' },
  }),
  jwks: platformRoute({
    id: 'jwks', wire: 105, surface: 'platform', method: 'GET', path: '/api/auth/jwks.json', summary: 'Public keys of access tokens and gateway tokens (RFC 7517).',
    auth: { kind: 'none' }, bodyMaxBytes: 0, answers: { 200: z.strictObject({ keys: z.array(z.record(z.string(), z.string())) }) }, errors: [], serve: { by: 'daemon' },
  }),
  me: platformRoute({
    id: 'me', wire: 106, surface: 'platform', method: 'GET', path: '/api/auth/me', summary: 'Whose token this is and until when. For an API key: its organization and no expiry.',
    auth: { kind: 'access' }, bodyMaxBytes: 0,
    answers: { 200: z.strictObject({ id: z.string(), email: z.string(), name: z.string(), orgs: z.array(organizationHint), expiresAt: z.iso.datetime().nullable() }) },
    errors: ['unauthorized'], serve: { by: 'daemon' },
  }),
  apiToken: platformRoute({
    id: 'api_token', wire: 107, surface: 'platform', method: 'GET', path: '/api/auth/api-token',
    summary: 'For `Accept: application/json`: a new token of 90 days. A browser gets the page with the button (gateway).',
    auth: { kind: 'cookie' }, bodyMaxBytes: 0,
    answers: { 200: z.strictObject({ token: z.string(), refresh_token: z.string(), expires_at: z.iso.datetime() }) }, errors: ['unauthorized'], serve: { by: 'daemon' },
  }),
  makeApiToken: platformRoute({
    id: 'make_api_token', wire: 108, surface: 'platform', method: 'POST', path: '/api/auth/api-token', summary: 'The page\'s button: the same, with CSRF proof.',
    auth: { kind: 'cookie' }, body: z.strictObject({}), bodyMaxBytes, form: true,
    answers: { 200: z.strictObject({ token: z.string(), refresh_token: z.string(), expires_at: z.iso.datetime() }) }, errors: ['unauthorized', 'forbidden'], serve: { by: 'daemon' },
  }),
  revoke: platformRoute({
    id: 'revoke', wire: 109, surface: 'platform', method: 'POST', path: '/api/auth/revoke', summary: 'Ends one token of the caller (an access token by its jti, with the gateway tokens made with it; a refresh token with its family), or all.',
    auth: { kind: 'access' }, body: z.union([z.strictObject({ token: text }), z.strictObject({ all: z.literal(true) })]), bodyMaxBytes,
    answers: { 200: z.strictObject({ revoked: z.int() }) }, errors: ['unauthorized', 'forbidden'], serve: { by: 'daemon' },
  }),
  gatewayToken: platformRoute({
    id: 'gateway_token', wire: 110, surface: 'platform', method: 'POST', path: '/api/auth/gateway-token',
    summary: 'The Tier 1 identity token for the edge gateway, for the personal workspace or an organization of the caller (needs chat.read).',
    auth: { kind: 'access' }, body: z.strictObject({ orgId: organizationId.optional() }), bodyMaxBytes,
    answers: { 200: z.strictObject({ access_token: z.string(), token_type: z.literal('Bearer'), expires_in: z.int() }) },
    errors: ['unauthorized', 'not_found', 'forbidden'], serve: { by: 'daemon' },
  }),
  emailStart: platformRoute({
    id: 'email_start', wire: 111, surface: 'platform', method: 'POST', path: '/api/auth/email/start', summary: 'Mails a one-time code. The answer is the same whether the address has an account or not.',
    auth: { kind: 'none' }, body: z.strictObject({ email, return_to: returnTo.optional() }), bodyMaxBytes, form: true,
    answers: { 202: z.strictObject({ sent: z.literal(true) }) }, errors: ['rate_limited'], serve: { by: 'daemon' },
  }),
  emailVerify: platformRoute({
    id: 'email_verify', wire: 112, surface: 'platform', method: 'POST', path: '/api/auth/email/verify', summary: 'Signs in with the code: sets the session cookie. A code works once.',
    auth: { kind: 'none' }, body: z.strictObject({ email, code: z.string().trim().regex(/^\d{8}$/), return_to: returnTo.optional() }), bodyMaxBytes, form: true,
    answers: { 200: signedIn }, errors: ['bad_code', 'rate_limited'], serve: { by: 'daemon' },
  }),
  googleStart: google.start, googleCallback: google.callback, githubStart: github.start, githubCallback: github.callback,
  signout: platformRoute({
    id: 'signout', wire: 117, surface: 'platform', method: 'POST', path: '/api/auth/signout', summary: 'Ends the browser session and takes its cookie away.',
    auth: { kind: 'cookie' }, body: z.strictObject({}), bodyMaxBytes, form: true, answers: { 200: z.strictObject({ signedOut: z.literal(true) }) }, errors: ['unauthorized', 'forbidden'], serve: { by: 'daemon' },
  }),
  session: platformRoute({
    id: 'session', wire: 118, surface: 'platform', method: 'GET', path: '/api/auth/session', summary: 'Who is signed in in this browser (or nobody), the CSRF proof, and the ways to sign in.',
    auth: { kind: 'cookie', optional: true }, bodyMaxBytes: 0,
    answers: {
      200: z.strictObject({
        user: z.strictObject({ id: z.string(), email: z.string(), name: z.string() }).nullable(), csrf: z.string().nullable(),
        legalAccepted: z.boolean(), providers: z.array(z.enum(['email', 'google', 'github'])),
      }),
    },
    errors: [], serve: { by: 'daemon' },
  }),
  sessionToken: platformRoute({
    id: 'session_token', wire: 119, surface: 'platform', method: 'POST', path: '/api/auth/session/token', summary: 'A short access token (15 minutes) for the web console of the signed-in person.',
    auth: { kind: 'cookie' }, body: z.strictObject({}), bodyMaxBytes, answers: { 200: tokenAnswer }, errors: ['unauthorized', 'forbidden'], serve: { by: 'daemon' },
  }),
  grants: platformRoute({
    id: 'grants', wire: 120, surface: 'platform', method: 'GET', path: '/api/auth/grants', summary: 'The caller\'s sign-ins: browsers, devices, tokens.',
    auth: { kind: 'access' }, bodyMaxBytes: 0, answers: { 200: z.strictObject({ grants: z.array(grant) }) }, errors: ['unauthorized', 'forbidden'], serve: { by: 'daemon' },
  }),
  revokeGrant: platformRoute({
    id: 'revoke_grant', wire: 121, surface: 'platform', method: 'DELETE', path: '/api/auth/grants', summary: 'Ends one of them: its tokens stop at once.',
    auth: { kind: 'access' }, body: z.strictObject({ id: grantId }), bodyMaxBytes, answers: { 200: z.strictObject({ revoked: z.int() }) }, errors: ['unauthorized', 'forbidden', 'not_found'], serve: { by: 'daemon' },
  }),
  manifest: platformRoute({
    id: 'manifest', wire: 122, surface: 'platform', method: 'GET', path: '/api/legal/manifest', summary: 'The documents in force, their version and the hash that is accepted.',
    auth: { kind: 'none' }, bodyMaxBytes: 0,
    answers: {
      200: z.strictObject({
        version: z.string(), hash: z.string(), documents: z.array(z.strictObject({ id: z.string(), title: z.string(), url: z.string(), sha256: z.string() })),
      }),
    },
    errors: [], serve: { by: 'daemon' },
  }),
  acceptance: platformRoute({
    id: 'acceptance', wire: 123, surface: 'platform', method: 'POST', path: '/api/legal/acceptance', summary: 'Records that the caller accepts the current manifest. Tokens made before stay those of the former one.',
    auth: { kind: 'access' },
    body: z.strictObject({ hash: z.string().max(128), terms: z.literal(true), privacy: z.literal(true), processing: z.literal(true), age: z.literal(true) }), bodyMaxBytes,
    answers: { 200: z.strictObject({ accepted: z.literal(true), hash: z.string(), version: z.string() }) }, errors: ['unauthorized', 'forbidden', 'conflict'], serve: { by: 'daemon' },
  }),
  acceptLegal: platformRoute({
    id: 'accept_legal', wire: 125, surface: 'platform', method: 'POST', path: '/legal', summary: 'The button of the page with the documents: the same, by the browser session.',
    auth: { kind: 'cookie' },
    body: z.strictObject({ hash: z.string().max(128), terms: ticked, privacy: ticked, processing: ticked, age: ticked, return_to: returnTo.optional() }), bodyMaxBytes, form: true,
    answers: { 200: z.strictObject({ accepted: z.literal(true), hash: z.string(), version: z.string() }) }, errors: ['unauthorized', 'forbidden', 'conflict'], serve: { by: 'daemon' },
  }),
} as const;
