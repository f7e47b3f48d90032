/**
 * Where the command connects, and as whom.
 *
 * Order: `--config <file>`, else TROUPE_GATEWAY_URL with TROUPE_TOKEN, else the nearest `.troupe/dev.json` from the current
 * folder upward (`npm start` writes it). TROUPE_TOKEN, TROUPE_USER_ID, TROUPE_CA and TROUPE_ADMIN_SOCKET override single
 * fields. The token is read anew with every connection, so that a chat outlives a restart that writes a new one; it is
 * never a command-line argument, where other users of the machine could read it.
 */
import { readFile } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { devFile, type DevFile } from '../../contracts/config.ts';
import { refuse } from '../../contracts/errors.ts';
import { subjectOf } from '../client/token.ts';

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
  readonly cwd: string;
  readonly env: Readonly<Record<string, string | undefined>>;
}

const readText = async (path: string, what: string): Promise<string> => {
  try {
    return await readFile(path, 'utf8');
  } catch (cause) {
    const code = cause instanceof Error && 'code' in cause ? String(cause.code) : 'unknown';
    throw refuse('not_configured', `${what} ${path} cannot be read (${code}).`);
  }
};

const readDevFile = async (path: string): Promise<DevFile> => {
  const text = await readText(path, 'The configuration file');
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw refuse('not_configured', `${path} is not JSON.`);
  }
  const parsed = devFile.safeParse(value);
  if (!parsed.success) {
    // Field names only: the file holds tokens.
    throw refuse('not_configured', `${path} lacks or misspells ${parsed.error.issues.map((i) => i.path.map(String).join('.')).join(', ')}.`);
  }
  return parsed.data;
};

const findDevFile = async (cwd: string): Promise<string> => {
  for (let folder = resolve(cwd); ; folder = dirname(folder)) {
    const path = join(folder, '.troupe', 'dev.json');
    try {
      await readFile(path);
      return path;
    } catch (cause) {
      const code = cause instanceof Error && 'code' in cause ? cause.code : undefined;
      if (code !== 'ENOENT' && code !== 'ENOTDIR') throw refuse('not_configured', `${path} cannot be read (${String(code)}).`);
    }
    if (folder === dirname(folder)) throw refuse('not_configured', 'There is no .troupe/dev.json in this folder or above it.');
  }
};

const requireUser = (token: string): string => {
  const sub = subjectOf(token);
  if (sub === undefined) throw refuse('not_configured', 'The token names no subject; set TROUPE_USER_ID.');
  return sub;
};

/** Throws `not_configured` with a sentence saying what is missing. */
export const loadTarget = async ({ config, cwd, env }: TargetSource): Promise<Target> => {
  const envToken = env['TROUPE_TOKEN'];
  const envUrl = env['TROUPE_GATEWAY_URL'];
  const envCa = env['TROUPE_CA'];
  const envPem = envCa === undefined ? undefined : await readText(envCa, 'The certificate file of TROUPE_CA,');
  if (config === undefined && envUrl !== undefined) {
    if (envToken === undefined) throw refuse('not_configured', 'TROUPE_GATEWAY_URL is set but TROUPE_TOKEN is not.');
    return {
      gatewayUrl: envUrl, userId: env['TROUPE_USER_ID'] ?? requireUser(envToken), caPem: envPem,
      adminSocket: env['TROUPE_ADMIN_SOCKET'], token: () => Promise.resolve(envToken),
    };
  }
  const path = config === undefined ? await findDevFile(cwd) : resolve(cwd, config);
  const dev = await readDevFile(path);
  return {
    gatewayUrl: envUrl ?? dev.gatewayUrl,
    userId: env['TROUPE_USER_ID'] ?? (envToken === undefined ? dev.user.id : requireUser(envToken)),
    caPem: envPem ?? await readText(dev.caPath, 'The certificate file'),
    adminSocket: env['TROUPE_ADMIN_SOCKET'] ?? dev.adminSocket,
    token: async () => envToken ?? (await readDevFile(path)).user.gatewayToken,
  };
};
