/**
 * Makes what a deployment is reached and identified by: key, shared secret, agent (decisions, Deployment services).
 *
 * Guarantees: key and secret have 256 random bits each; of the key only the SHA-256 is kept, the secret and the agent's private keys leave here
 * sealed. A key leads to its organization and deployment by itself, so nothing is looked up for one that is malformed.
 */
import { createHash, randomBytes } from 'node:crypto';
import { canonicalJson } from '../../../contracts/canonical.ts';
import type { DeploymentAgent, Soul } from '../../../contracts/deployment-actor.ts';
import { deploymentAddress } from '../../../contracts/deployment.ts';
import { deploymentKeyHead, deploymentSecretHead } from '../../../contracts/deployment-token.ts';
import { didKey } from '../../custody/did.ts';
import type { Vault } from '../../custody/vault.ts';
import { sha256 } from '../platform/derive.ts';

/** Characters of the random part that a key's shown prefix holds: far too few to guess the rest. */
const prefixRandomChars = 4;

export interface NewDeploymentKey {
  /** Shown once. */
  readonly key: string;
  readonly prefix: string;
  readonly sha256: string;
}

export const newDeploymentKey = (organizationId: string, deploymentId: string): NewDeploymentKey => {
  const start = `${deploymentKeyHead}${organizationId.slice('org_'.length)}_${deploymentId.slice('dep_'.length)}_`;
  const key = `${start}${randomBytes(32).toString('base64url')}`;
  return { key, prefix: key.slice(0, start.length + prefixRandomChars), sha256: sha256(key) };
};

/** `hash`: SHA-256, hex, of the rest in canonical JSON (RFC 8785). */
export const newSoul = (given: Omit<Soul, 'hash'>): Soul => ({ ...given, hash: createHash('sha256').update(canonicalJson(given)).digest('hex') });

export interface NewIdentity {
  readonly agent: DeploymentAgent;
  /** Sealed. */
  readonly secret: string;
  /** The same in the clear: shown once. */
  readonly shownSecret: string;
}

/** A new agent and shared secret of a deployment. `agentId`: `agt_…`. */
export const newIdentity = (vault: Vault, organizationId: string, deploymentId: string, agentId: string, soul: Omit<Soul, 'hash'>): NewIdentity => {
  const self = deploymentAddress(organizationId, deploymentId);
  const keys = vault.make(self);
  const shownSecret = `${deploymentSecretHead}${randomBytes(32).toString('base64url')}`;
  const agent = { id: agentId, did: didKey(Buffer.from(keys.auth_pubkey, 'base64')), soul: newSoul(soul), keys };
  return { agent, shownSecret, secret: vault.sealSecret(self, keys, Buffer.from(shownSecret)) };
};
