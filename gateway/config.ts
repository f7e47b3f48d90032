/**
 * Reads the gateway's configuration: TOML checked against contracts/config.ts, with errors that name file and key.
 *
 * Paths in it are relative to the working directory. Throws `bad_config` only; secrets are read by `readSecrets`, from files.
 */
import { createPrivateKey, type KeyObject } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { isIP } from 'node:net';
import { parse } from 'smol-toml';
import { gatewayConfig, type GatewayConfig } from '../contracts/config.ts';
import { refuse } from '../contracts/errors.ts';
import { accessAudience } from '../contracts/platform.ts';

const reasonOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));

/** Checks a parsed configuration; `from` names its source in the error. */
export const checkConfig = (value: unknown, from: string): GatewayConfig => {
  const parsed = gatewayConfig.safeParse(value);
  if (!parsed.success) {
    const problems = parsed.error.issues.map((issue) => `  ${issue.path.map(String).join('.') || '(top)'}: ${issue.message}`);
    throw refuse('bad_config', `${from} is not a gateway configuration:\n${problems.join('\n')}`);
  }
  const config = parsed.data;
  const { jwks_url: jwks, dev_mode: dev, dev_secret_path: secret } = config.auth;
  if (jwks === undefined && !dev && !config.auth.platform) {
    throw refuse('bad_config', `${from}: auth.jwks_url is missing (or set auth.platform, or auth.dev_mode for development).`);
  }
  if (config.auth.platform && config.platform === undefined) throw refuse('bad_config', `${from}: auth.platform needs platform.base_url.`);
  if (config.name === accessAudience) throw refuse('bad_config', `${from}: name must not be ${accessAudience}, the audience of access tokens.`);
  if (dev && secret === undefined) throw refuse('bad_config', `${from}: auth.dev_mode needs auth.dev_secret_path.`);
  if (jwks !== undefined) {
    const { protocol, hostname } = new URL(jwks);
    const local = hostname === 'localhost' || hostname === '[::1]' || (isIP(hostname) === 4 && hostname.startsWith('127.'));
    if (protocol !== 'https:' && !(protocol === 'http:' && local)) {
      throw refuse('bad_config', `${from}: auth.jwks_url must be https (http only for an address of this machine).`);
    }
  }
  return config;
};

/** Reads and checks the TOML file at `path`. */
export const loadConfig = async (path: string): Promise<GatewayConfig> => {
  const text = await readFile(path, 'utf8').catch((error: unknown) => {
    throw refuse('bad_config', `The configuration ${path} cannot be read: ${reasonOf(error)}`);
  });
  let value: unknown;
  try {
    value = parse(text);
  } catch (error) {
    throw refuse('bad_config', `${path} is not TOML: ${reasonOf(error)}`);
  }
  return checkConfig(value, path);
};

export interface Secrets {
  readonly capabilityKey: KeyObject;
  /** Present only in development mode. White space around it is not part of it. */
  readonly devSecret: Buffer | undefined;
}

export const readSecrets = async (config: GatewayConfig): Promise<Secrets> => {
  const read = (key: string, path: string): Promise<Buffer> => readFile(path).catch((error: unknown) => {
    throw refuse('bad_config', `${key}: ${reasonOf(error)}`);
  });
  const pem = await read('capability.key_path', config.capability.key_path);
  let capabilityKey: KeyObject;
  try {
    capabilityKey = createPrivateKey(pem);
  } catch {
    // The cause may quote key bytes: it is not passed on.
    throw refuse('bad_config', `capability.key_path: ${config.capability.key_path} is not a PEM private key.`);
  }
  const { dev_mode: dev, dev_secret_path: secretPath } = config.auth;
  if (!dev || secretPath === undefined) return { capabilityKey, devSecret: undefined };
  const devSecret = Buffer.from((await read('auth.dev_secret_path', secretPath)).toString('utf8').trim());
  if (devSecret.length === 0) throw refuse('bad_config', `auth.dev_secret_path: ${secretPath} is empty.`);
  return { capabilityKey, devSecret };
};
