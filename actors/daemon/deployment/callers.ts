/**
 * Who calls a deployment's services: deployment keys, service JWTs (HS256), agent JWTs (EdDSA) (interface 5.3; RUN-028 … 031).
 *
 * Guarantees: the deployment's actor is asked each time, so that a rotated key and an ended deployment are refused at the next request on every
 * process. Which algorithm verifies follows from what is looked up for it (a secret for HS256, a public key for EdDSA), never the other way
 * round: no token is checked as another kind than its key is for. Signatures are compared in constant time. Every refusal of a credential is
 * the same `unauthorized`; only who has proved to be somebody learns that the deployment is stopped (`plan_limit`).
 */
import { createHmac, createPublicKey, verify } from 'node:crypto';
import { deploymentCommands, type DeploymentAgent } from '../../../contracts/deployment-actor.ts';
import { deploymentAddress, type DeploymentCaller, type DeploymentRoute } from '../../../contracts/deployment.ts';
import { deploymentOfKey, readAgentHolder, readDeploymentJwt, type DeploymentJwt } from '../../../contracts/deployment-token.ts';
import { coded } from '../../../contracts/errors.ts';
import { limits } from '../../../contracts/limits.ts';
import { nameCommands } from '../../../contracts/name.ts';
import { organizationId } from '../../../contracts/ids.ts';
import { upgradeUrl } from '../../../contracts/plans.ts';
import type { Vault } from '../../custody/vault.ts';
import { nameAddress } from '../../name/address.ts';
import type { Sender } from '../../runtime/message.ts';
import { askBy } from '../platform/ask.ts';
import { sameBytes, sha256 } from '../platform/derive.ts';

export interface DeploymentCallers {
  /** Undefined for a route that needs nobody. Throws `unauthorized`, `plan_limit`. */
  authorise(route: DeploymentRoute, token: string): Promise<DeploymentCaller | undefined>;
}

export interface DeploymentCallersOptions {
  readonly actors: Pick<Sender, 'ask'>;
  readonly vault: Pick<Vault, 'openSecret'>;
  /** Of `deployments.default_id`. */
  readonly defaultId: string | undefined;
  /** Unix milliseconds. */
  readonly now: () => number;
}

/** Organization of a deployment; undefined for one that does not exist. */
export const organizationOfDeployment = async (actors: Pick<Sender, 'ask'>, id: string): Promise<string | undefined> => {
  const { holder } = await askBy(actors, nameCommands)(nameAddress('deployment', id), 'holder', {});
  return organizationId.safeParse(holder).data;
};

/** Organization and deployment of an agent (`agt_…`); undefined for one that does not exist. */
export const deploymentOfAgent = async (actors: Pick<Sender, 'ask'>, agentId: string): Promise<ReturnType<typeof readAgentHolder>> => {
  const { holder } = await askBy(actors, nameCommands)(nameAddress('agent', agentId), 'holder', {});
  return holder === null ? undefined : readAgentHolder(holder);
};

/** DER of an Ed25519 public key up to its 32 bytes (RFC 8410, 4). */
const ed25519Spki = Buffer.from('302a300506032b6570032100', 'hex');

const signedBySecret = ({ signed, signature }: DeploymentJwt, secret: Buffer): boolean =>
  sameBytes(Buffer.from(signature, 'base64url'), createHmac('sha256', secret).update(signed).digest());

/** Of the deployment's agent: named by `kid` or `iss`, as its did:key or its id, and by none of the two as somebody else. */
const signedByAgent = ({ head, claims, signed, signature }: DeploymentJwt, { id, did, keys }: DeploymentAgent): boolean => {
  const names = [head.kid, claims.iss].filter((name) => name !== undefined);
  if (names.length === 0 || !names.every((name) => name === id || name === did || name.startsWith(`${did}#`))) return false;
  const key = createPublicKey({ key: Buffer.concat([ed25519Spki, Buffer.from(keys.auth_pubkey, 'base64')]), format: 'der', type: 'spki' });
  return verify(null, Buffer.from(signed), key, Buffer.from(signature, 'base64url'));
};

/** Ends to the second; may begin `limits.tokenLeewaySec` from now, as clocks differ (RFC 7519 section 4.1.5). */
const isCurrent = ({ exp, nbf }: DeploymentJwt['claims'], nowSec: number): boolean => exp > nowSec && (nbf === undefined || nbf <= nowSec + limits.tokenLeewaySec);

export const createDeploymentCallers = ({ actors, vault, defaultId, now }: DeploymentCallersOptions): DeploymentCallers => {
  const ask = askBy(actors, deploymentCommands);

  const ofKey = async (token: string, named: NonNullable<ReturnType<typeof deploymentOfKey>>): Promise<DeploymentCaller> => {
    const { agent_id: agentId } = await ask(deploymentAddress(named.organizationId, named.deploymentId), 'verify_key', { key_sha256: sha256(token) });
    return { ...named, agentId, by: 'key', subject: named.deploymentId, writes: true };
  };

  const ofJwt = async (jwt: DeploymentJwt): Promise<DeploymentCaller> => {
    const isAgent = jwt.head.alg === 'EdDSA';
    const deploymentId = jwt.deploymentId ?? (isAgent ? undefined : defaultId);
    if (deploymentId === undefined || !isCurrent(jwt.claims, now() / 1_000)) throw coded('unauthorized');
    const org = await organizationOfDeployment(actors, deploymentId);
    if (org === undefined) throw coded('unauthorized');
    const self = deploymentAddress(org, deploymentId);
    const { agent, secret: sealed, served } = await ask(self, 'credentials', {});
    if (isAgent) {
      if (!signedByAgent(jwt, agent)) throw coded('unauthorized');
    } else {
      const secret = vault.openSecret(self, agent.keys, sealed);
      try {
        if (!signedBySecret(jwt, secret)) throw coded('unauthorized');
      } finally {
        secret.fill(0);
      }
    }
    if (!served) throw coded('plan_limit', 'The deployment is stopped: the plan has no managed deployments.', { details: { limit: 0, upgradeUrl } });
    return { organizationId: org, deploymentId, agentId: agent.id, by: isAgent ? 'agent' : 'service', subject: deploymentId, writes: true };
  };

  return {
    authorise: async ({ auth }, token) => {
      if (auth.kind === 'none') return undefined;
      const named = deploymentOfKey(token);
      if (named !== undefined) return ofKey(token, named);
      const jwt = readDeploymentJwt(token);
      if (jwt === undefined) throw coded('unauthorized');
      return ofJwt(jwt);
    },
  };
};
