/**
 * The daemon's configuration file: TOML, checked with contracts/config.ts, and the secrets it names by path.
 *
 * Guarantee: an unknown or ill-typed key is refused with a sentence that names it; a secret never stands in the file itself, in an
 * argument or in an error.
 */
import type { KeyObject } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { parse, TomlError } from 'smol-toml';
import { daemonConfig, type DaemonConfig } from '../../contracts/config.ts';
import { coded } from '../../contracts/errors.ts';
import { readMasterKey } from '../custody/vault.ts';

/** Reads and checks a file. Throws `bad_request` with one sentence a line. */
export const readDaemonConfig = async (path: string): Promise<DaemonConfig> => {
  const text = await read(path, 'The configuration file');
  let value: unknown;
  try {
    value = parse(text);
  } catch (cause) {
    if (!(cause instanceof TomlError)) throw cause;
    throw coded('bad_request', `${path} is not TOML: line ${cause.line}, column ${cause.column}.`, { cause });
  }
  const parsed = daemonConfig.safeParse(value);
  if (parsed.success) return parsed.data;
  const problems = parsed.error.issues.map((issue) => `${issue.path.map(String).join('.') || 'the file'}: ${issue.message}`);
  throw coded('bad_request', `${path} has problems:\n  ${problems.join('\n  ')}`);
};

/** The configuration with the setting JWT_ACCESS_EXPIRY_MS (interface 2.2) in it, if it is set. Throws `bad_request` for one that is no number of milliseconds. */
export const withEnvironment = (config: DaemonConfig, accessExpiryMs: string | undefined): DaemonConfig => {
  if (config.platform === undefined || accessExpiryMs === undefined || accessExpiryMs === '') return config;
  const parsed = daemonConfig.safeParse({ ...config, platform: { ...config.platform, access_expiry_ms: Number(accessExpiryMs) } });
  if (!parsed.success) throw coded('bad_request', 'JWT_ACCESS_EXPIRY_MS must be a whole number of milliseconds, at least 1000.');
  return parsed.data;
};

export interface Secrets {
  readonly natsPassword: string | undefined;
  readonly capabilityPublicKeyPem: string;
  readonly masterKey: KeyObject;
  /** Holds a password. */
  readonly postgresUrl?: string | undefined;
  readonly openaiKey: string | undefined;
  readonly anthropicKey: string | undefined;
  /** Texts of what `platform` names: the key that signs, keys that are believed too, the manifest. */
  readonly platform?: { readonly signingKeyPem: string; readonly formerKeyPems: readonly string[]; readonly legalManifest?: string | undefined } | undefined;
  readonly smtpPassword?: string | undefined;
  /** Certificate authorities, PEM. */
  readonly smtpCa?: string | undefined;
  readonly webhookCa?: string | undefined;
  /** Of `platform.google` and `platform.github`. */
  readonly googleClientSecret?: string | undefined;
  readonly githubClientSecret?: string | undefined;
  /** Of `billing.stripe`. */
  readonly stripe?: { readonly secretKey: string; readonly webhookSecret: string } | undefined;
}

/** Reads what the configuration names by path. Throws `bad_request` naming the key of a file that cannot be read or, for the master key, is not one. */
export const readSecrets = async (config: DaemonConfig): Promise<Secrets> => {
  const optional = async (path: string | undefined, key: string): Promise<string | undefined> =>
    path === undefined ? undefined : (await read(path, key)).trim();
  const [natsPassword, capabilityPublicKeyPem, masterKey, postgresUrl, openaiKey, anthropicKey, googleClientSecret, githubClientSecret, smtpPassword, smtpCa, webhookCa, stripe, platform] = await Promise.all([
    optional(config.nats.password_path, 'nats.password_path'),
    read(config.capability.public_key_path, 'capability.public_key_path'),
    read(config.master_key_path, 'master_key_path').then(readMasterKey),
    optional(config.postgres?.url_path, 'postgres.url_path'),
    optional(config.providers.openai?.api_key_path, 'providers.openai.api_key_path'),
    optional(config.providers.anthropic?.api_key_path, 'providers.anthropic.api_key_path'),
    optional(config.platform?.google?.client_secret_path, 'platform.google.client_secret_path'),
    optional(config.platform?.github?.client_secret_path, 'platform.github.client_secret_path'),
    optional(config.mail?.smtp?.password_path, 'mail.smtp.password_path'),
    optional(config.mail?.smtp?.ca_path, 'mail.smtp.ca_path'),
    optional(config.webhooks.ca_path, 'webhooks.ca_path'),
    readStripeSecrets(config.billing),
    readPlatformSecrets(config.platform),
  ]);
  return {
    natsPassword, capabilityPublicKeyPem, masterKey, postgresUrl, openaiKey, anthropicKey, googleClientSecret, githubClientSecret, smtpPassword, smtpCa, webhookCa, stripe, platform,
  };
};

const readStripeSecrets = async (billing: DaemonConfig['billing']): Promise<Secrets['stripe']> => {
  if (billing === undefined) return undefined;
  const secret = async (path: string, key: string): Promise<string> => {
    const text = (await read(path, key)).trim();
    // Whoever knows nothing could sign with an empty one.
    if (text === '') throw coded('bad_request', `${key}: ${path} is empty.`);
    return text;
  };
  const { secret_key_path: keyPath, webhook_secret_path: webhookPath } = billing.stripe;
  const [secretKey, webhookSecret] = await Promise.all([secret(keyPath, 'billing.stripe.secret_key_path'), secret(webhookPath, 'billing.stripe.webhook_secret_path')]);
  return { secretKey, webhookSecret };
};

const readPlatformSecrets = async (platform: DaemonConfig['platform']): Promise<Secrets['platform']> => {
  if (platform === undefined) return undefined;
  const [signingKeyPem, legalManifest, ...formerKeyPems] = await Promise.all([
    read(platform.signing_key_path, 'platform.signing_key_path'),
    platform.legal_manifest_path === undefined ? undefined : read(platform.legal_manifest_path, 'platform.legal_manifest_path'),
    ...platform.former_key_paths.map((path) => read(path, 'platform.former_key_paths')),
  ]);
  return { signingKeyPem, legalManifest, formerKeyPems };
};

const read = async (path: string, what: string): Promise<string> => {
  try {
    return await readFile(path, 'utf8');
  } catch (cause) {
    const code = cause instanceof Error && 'code' in cause ? String(cause.code) : 'unknown error';
    throw coded('bad_request', `${what}: ${path} cannot be read (${code}).`, { cause });
  }
};
