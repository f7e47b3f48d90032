/**
 * The development secrets: made once, kept in `.troupe/secrets`, read by the processes through their paths.
 *
 * Guarantee: each value comes from the system's random source; none is ever an argument, an environment variable or a line
 * of output. Nothing here is fit for production, where these files come from a vault.
 */
import { createPrivateKey, createPublicKey, generateKeyPairSync, randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { keepOrMake, writePrivate, type Folder } from './folder.ts';

export interface Secrets {
  /** Text whose UTF-8 bytes are the HS256 key of development tokens. */
  readonly devSecret: string;
  readonly devSecretPath: string;
  /** ES256, PEM PKCS 8 and PEM SPKI. */
  readonly capabilityKeyPath: string;
  readonly capabilityPublicKeyPath: string;
  /** ES256, PEM PKCS 8: signs the platform's access tokens. */
  readonly platformKeyPath: string;
  /** 32 bytes, base64. */
  readonly masterKeyPath: string;
  readonly natsDaemonPassword: string;
  readonly natsDaemonPasswordPath: string;
  readonly natsIntegratorPassword: string;
  readonly postgresPassword: string;
}

const password = (): string => randomBytes(24).toString('base64url');

export const makeSecrets = (folder: Folder): Secrets => {
  const file = (name: string): string => join(folder.secrets, name);
  const kept = (name: string, make: () => string): string => keepOrMake(file(name), make);

  const capabilityKey = kept('capability.key', () =>
    generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey.export({ type: 'pkcs8', format: 'pem' }).toString());
  // Always derived, so that the two halves cannot differ.
  writePrivate(file('capability.pub'), createPublicKey(createPrivateKey(capabilityKey)).export({ type: 'spki', format: 'pem' }));
  kept('platform.key', () => generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey.export({ type: 'pkcs8', format: 'pem' }).toString());
  kept('master.key', () => randomBytes(32).toString('base64'));
  return {
    devSecret: kept('dev-secret', () => randomBytes(32).toString('base64url')),
    devSecretPath: file('dev-secret'),
    capabilityKeyPath: file('capability.key'),
    capabilityPublicKeyPath: file('capability.pub'),
    platformKeyPath: file('platform.key'),
    masterKeyPath: file('master.key'),
    natsDaemonPassword: kept('nats-daemon-password', password),
    natsDaemonPasswordPath: file('nats-daemon-password'),
    natsIntegratorPassword: kept('nats-integrator-password', password),
    postgresPassword: kept('postgres-password', password),
  };
};
