/**
 * `troupe auth`: sign in by the device flow or by hand, look, print, sign out (interface 4.1).
 *
 * Guarantees: nothing is stored before the server has said the token is good; a refusal stores nothing. Polls come at the server's
 * interval, 5 seconds later after each `slow_down` (RFC 8628 section 3.5), later still while the network is gone. `logout` asks no server.
 */
import { z } from 'zod';
import { authRoutes, deviceGrant, tokenAnswer } from '../../contracts/auth-routes.ts';
import { CodedError, refuse } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { findToken, forgetLogin, requireToken, storeLogin, type CredentialWorld } from './credentials.ts';
import { exitCodes, type ExitCode } from './exit.ts';
import type { PlatformClient } from './platform.ts';
import { plain, type Out } from './printer.ts';

export interface AuthWorld extends CredentialWorld {
  readonly platform: PlatformClient;
  readonly out: Out;
  readonly err: Out;
  /** Resolves after the time; rejects with `interrupted` on Ctrl-C. */
  readonly wait: (ms: number) => Promise<void>;
  /** Monotonic milliseconds. */
  readonly now: () => number;
  /** Shows that something is waited for; gives the way to end it. */
  readonly spin: (text: string) => () => void;
  /** One line a person pastes, not echoed where that is possible; undefined at the end of the input. */
  readonly ask: (prompt: string) => Promise<string | undefined>;
  /** Opens the address in a browser, where there is one. */
  readonly openBrowser: (url: string) => void;
}

export interface LoginOptions {
  readonly manual: boolean;
  readonly browser: boolean;
  readonly json: boolean;
}

/** RFC 8628 section 3.2: the interval may be left out. Times that no timer holds, and none at all, would become polling without a pause. */
const codeAnswer = z.object({
  device_code: z.string(), user_code: z.string(), verification_uri: z.string(), verification_uri_complete: z.string().optional(),
  expires_in: z.number().positive().max(limits.clientDeviceWaitMaxSec), interval: z.number().min(1).max(limits.clientDeviceWaitMaxSec).optional(),
});
const meAnswer = z.object({ id: z.string(), email: z.string(), name: z.string(), expiresAt: z.string().nullable() });

/** Seconds a poll that did not get through makes the next one later (RFC 8628 section 3.5 asks for a backoff); and after `slow_down`. */
const slowerSec = 5;
const intervalSec = 5;

const me = (world: AuthWorld, token: string): Promise<z.output<typeof meAnswer>> =>
  world.platform.call({ route: authRoutes.me, answer: meAnswer, token });

const done = async (world: AuthWorld, token: string, options: LoginOptions): Promise<ExitCode> => {
  const account = await me(world, token);
  await storeLogin(world, { token, apiBase: world.platform.url });
  if (options.json) world.out.write(`${JSON.stringify({ authenticated: true, id: account.id, email: account.email, expiresAt: account.expiresAt })}\n`);
  else world.out.write(`Signed in as ${plain(account.email)}. \`troupe auth status\` looks, \`troupe chat\` talks.\n`);
  return exitCodes.ok;
};

const manual = async (world: AuthWorld, options: LoginOptions): Promise<ExitCode> => {
  const page = `${world.platform.url}/api/auth/api-token`;
  world.err.write(`Sign in and make a token here:\n\n  ${page}\n\n`);
  if (options.browser) world.openBrowser(page);
  const token = (await world.ask('Token: '))?.trim();
  if (token === undefined || token === '') throw refuse('not_signed_in', 'No token was given.');
  return done(world, token, options);
};

/** What ends the polling, and what only delays it. */
const poll = async (world: AuthWorld, code: z.output<typeof codeAnswer>): Promise<string> => {
  const endsAt = world.now() + code.expires_in * 1_000;
  let waitSec = code.interval ?? intervalSec;
  for (;;) {
    await world.wait(waitSec * 1_000);
    // The server's own word on expiry is asked for once; after that it is ours.
    const late = world.now() > endsAt + waitSec * 1_000;
    try {
      const answer = await world.platform.call({
        route: authRoutes.deviceToken, answer: tokenAnswer, body: { grant_type: deviceGrant, device_code: code.device_code, client_id: 'cli' },
      });
      return answer.access_token;
    } catch (error) {
      if (late || !(error instanceof CodedError)) throw error;
      if (error.code === 'authorization_pending') continue;
      if (error.code === 'slow_down' || error.entry.kind === 'fault') waitSec += slowerSec;
      else throw error;
    }
  }
};

export const runLogin = async (world: AuthWorld, options: LoginOptions): Promise<ExitCode> => {
  if (options.manual) return manual(world, options);
  let code: z.output<typeof codeAnswer>;
  try {
    code = await world.platform.call({ route: authRoutes.deviceCode, answer: codeAnswer, body: { client_id: 'cli' } });
  } catch (error) {
    if (!(error instanceof CodedError)) throw error;
    world.err.write(`The device sign-in is not available (${error.code}): ${plain(error.message)}\n`);
    return manual(world, options);
  }
  const page = code.verification_uri_complete ?? code.verification_uri;
  world.err.write(`Open this address, sign in and approve:\n\n  ${plain(page)}\n\nYour code: ${plain(code.user_code)}\n\n`);
  if (options.browser) world.openBrowser(page);
  const stop = world.spin('Waiting for your approval');
  let token: string;
  try {
    token = await poll(world, code);
  } finally {
    stop();
  }
  return done(world, token, options);
};

export const runAuthStatus = async (world: AuthWorld, flag: string | undefined, json: boolean): Promise<ExitCode> => {
  const found = await findToken(world, flag);
  if (found === undefined) {
    if (json) world.out.write(`${JSON.stringify({ authenticated: false, source: null, expiresAt: null })}\n`);
    else world.out.write('Not signed in: there is no token. `troupe auth login` signs in.\n');
    return exitCodes.refused;
  }
  try {
    const account = await me(world, found.token);
    if (json) world.out.write(`${JSON.stringify({ authenticated: true, source: found.source, expiresAt: account.expiresAt })}\n`);
    else {
      const until = account.expiresAt === null ? 'without an end' : `until ${account.expiresAt}`;
      world.out.write(`Signed in as ${plain(account.email === '' ? account.id : account.email)} at ${world.platform.url}, ${until} (token from: ${found.source}).\n`);
    }
    return exitCodes.ok;
  } catch (error) {
    if (!(error instanceof CodedError) || error.details?.['status'] !== 401) throw error;
    if (json) world.out.write(`${JSON.stringify({ authenticated: false, source: found.source, expiresAt: null })}\n`);
    else world.out.write(`The token (from: ${found.source}) is invalid: it has expired or was revoked. \`troupe auth login\` gets a new one.\n`);
    return exitCodes.refused;
  }
};

export const runAuthToken = async (world: CredentialWorld & { readonly out: Out }, flag: string | undefined, json: boolean): Promise<ExitCode> => {
  const { token, source } = await requireToken(world, flag);
  world.out.write(json ? `${JSON.stringify({ token, source })}\n` : `${token}\n`);
  return exitCodes.ok;
};

export const runLogout = async (world: CredentialWorld & { readonly out: Out }, json: boolean): Promise<ExitCode> => {
  const had = await forgetLogin(world);
  if (json) world.out.write(`${JSON.stringify({ loggedOut: had })}\n`);
  else world.out.write(had ? 'Signed out here. The token itself stays valid until it expires; revoke it on the account page to end it everywhere.\n' : 'There was no token to remove.\n');
  return exitCodes.ok;
};

const gatewayAnswer = z.object({ access_token: z.string(), expires_in: z.number() });

/** The gateway token of an access token's user, for their own workspace or an organization. */
export const gatewayTokenOf = async (platform: PlatformClient, token: string, orgId?: string): Promise<{ readonly token: string; readonly expiresInSec: number }> => {
  const answer = await platform.call({ route: authRoutes.gatewayToken, answer: gatewayAnswer, token, body: orgId === undefined ? {} : { orgId } });
  return { token: answer.access_token, expiresInSec: answer.expires_in };
};
