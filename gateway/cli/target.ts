/**
 * Where the command connects, and as whom.
 *
 * Order: `--config <file>`, else TROUPE_GATEWAY_URL with TROUPE_TOKEN, else TROUPE_API_BASE with TROUPE_TOKEN, else the stored login of
 * `troupe auth login`, unless a Troupe of another address runs here, else the nearest `.troupe/dev.json` from the current folder upward
 * (`npm start` writes it). A platform token is exchanged for a gateway token. TROUPE_TOKEN, TROUPE_USER_ID, TROUPE_CA and
 * TROUPE_ADMIN_SOCKET override single fields; an empty variable counts for nothing (interface 5.1 rule 5). The token is read anew with
 * every connection, so that a chat outlives a restart that writes a new one; it is never a command-line argument, where other users of the
 * machine could read it.
 */
import { resolve } from 'node:path';
import { refuse } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { apiKeyPrefix, isPlatformToken, subjectOf } from '../client/token.ts';
import { gatewayTokenOf } from './auth.ts';
import { storedLogin } from './credentials.ts';
import { findOrganization } from './org.ts';
import { createPlatform } from './platform.ts';
import { createTransport } from './transport.ts';
import { findDevFile, readDevFile, readText } from './dev-file.ts';

export interface Target {
  readonly gatewayUrl: string;
  readonly userId: string;
  /** PEM of the authority that signed the gateway's certificate; absent = the public ones. */
  readonly caPem: string | undefined;
  readonly adminSocket: string | undefined;
  readonly token: () => Promise<string>;
}

export interface TargetSource {
  readonly config: string | undefined;
  /** Slug or id of the organization to talk in; undefined = the token's own workspace. */
  readonly org?: string | undefined;
  readonly cwd: string;
  readonly env: Readonly<Record<string, string | undefined>>;
}

const requireUser = (token: string): string => {
  if (token.startsWith(apiKeyPrefix)) throw refuse('bad_usage', 'An API key holds no session. Sign in with `troupe auth login`, or use the key with POST /api/v1/chat/completions.');
  const sub = subjectOf(token);
  if (sub === undefined) throw refuse('not_configured', 'The token names no subject; set TROUPE_USER_ID.');
  return sub;
};

interface Api {
  readonly url: string;
  readonly caPem: string | undefined;
  readonly org: string | undefined;
}

/** A gateway token for a platform token, got anew when it is about to end; any other token as it is. */
const gatewayTokens = (token: () => Promise<string>, api: Api): (() => Promise<string>) => {
  let held: { readonly from: string; readonly token: string; readonly untilMs: number } | undefined;
  return async () => {
    const from = await token();
    if (!isPlatformToken(from)) {
      if (api.org !== undefined) throw refuse('bad_usage', '--org needs a token of the platform; this one is for one workspace. `troupe auth login` gets one.');
      return from;
    }
    if (held?.from === from && performance.now() < held.untilMs) return held.token;
    const transport = createTransport(api.caPem);
    try {
      const platform = createPlatform({ url: api.url, fetch: transport.fetch });
      const orgId = api.org === undefined ? undefined : (await findOrganization({ platform, token: from }, api.org)).id;
      const got = await gatewayTokenOf(platform, from, orgId);
      held = { from, token: got.token, untilMs: performance.now() + (got.expiresInSec - limits.tokenLeewaySec) * 1_000 };
      return got.token;
    } finally {
      await transport.close();
    }
  };
};

/** Throws `not_configured` with a sentence saying what is missing. */
export const loadTarget = async ({ config, org, cwd, env }: TargetSource): Promise<Target> => {
  const given = (name: string): string | undefined => (env[name] === '' ? undefined : env[name]);
  const envToken = given('TROUPE_TOKEN');
  const envUrl = given('TROUPE_GATEWAY_URL');
  const envBase = given('TROUPE_API_BASE');
  const envUser = given('TROUPE_USER_ID');
  const envCa = given('TROUPE_CA');
  const envPem = envCa === undefined ? undefined : await readText(envCa, 'The certificate file of TROUPE_CA,');
  const adminSocket = given('TROUPE_ADMIN_SOCKET');
  if (config === undefined && envUrl !== undefined && envToken === undefined) throw refuse('not_configured', 'TROUPE_GATEWAY_URL is set but TROUPE_TOKEN is not.');
  const named = envUrl ?? envBase;
  if (config === undefined && named !== undefined && envToken !== undefined) {
    return {
      gatewayUrl: named, userId: envUser ?? requireUser(envToken), caPem: envPem, adminSocket,
      token: gatewayTokens(() => Promise.resolve(envToken), { url: envBase ?? named, caPem: envPem, org }),
    };
  }
  const path = config === undefined ? await findDevFile(cwd).catch(() => undefined) : resolve(cwd, config);
  const dev = path === undefined ? undefined : await readDevFile(path);
  const login = config === undefined ? await storedLogin({ env, cwd }) : undefined;
  if (login !== undefined && (dev === undefined || sameOrigin(login.apiBase, dev.baseUrl))) {
    const caPem = envPem ?? (dev === undefined ? undefined : await readText(dev.caPath, 'The certificate file'));
    return {
      gatewayUrl: envUrl ?? dev?.gatewayUrl ?? login.apiBase, userId: envUser ?? requireUser(envToken ?? login.token), caPem,
      adminSocket: adminSocket ?? dev?.adminSocket,
      token: gatewayTokens(async () => envToken ?? (await storedLogin({ env, cwd }))?.token ?? login.token, { url: login.apiBase, caPem, org }),
    };
  }
  if (dev === undefined || path === undefined) {
    throw refuse('not_configured', 'There is no .troupe/dev.json in this folder or above it, and nobody has signed in with `troupe auth login`.');
  }
  const caPem = envPem ?? await readText(dev.caPath, 'The certificate file');
  return {
    gatewayUrl: envUrl ?? dev.gatewayUrl,
    userId: envUser ?? (envToken === undefined ? dev.user.id : requireUser(envToken)),
    caPem,
    adminSocket: adminSocket ?? dev.adminSocket,
    token: gatewayTokens(async () => {
      if (envToken !== undefined) return envToken;
      const { user } = await readDevFile(path);
      return org === undefined ? user.gatewayToken : user.accessToken;
    }, { url: dev.baseUrl, caPem, org }),
  };
};

const sameOrigin = (a: string, b: string): boolean => URL.canParse(a) && URL.canParse(b) && new URL(a).origin === new URL(b).origin;
