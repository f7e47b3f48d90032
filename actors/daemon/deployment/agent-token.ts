/**
 * `POST /v1/agent/token`: a token that the deployment's agent signs itself (interface 5.3), so that a process of the team can be given something
 * that ends instead of the key.
 *
 * Guarantees: for the deployment key only, so that no token makes another; it lives `limits.agentTokenTtlSec` at most; the private key is in
 * the clear inside the vault only. `aud` is the deployment: it is good nowhere else.
 */
import { agentTokenRoutes as routes } from '../../../contracts/agent-token-routes.ts';
import { deploymentCommands } from '../../../contracts/deployment-actor.ts';
import { deploymentAddress } from '../../../contracts/deployment.ts';
import { coded } from '../../../contracts/errors.ts';
import { limits } from '../../../contracts/limits.ts';
import type { Vault } from '../../custody/vault.ts';
import { askBy } from '../platform/ask.ts';
import type { DeploymentDeps, DeploymentHandlers } from './deps.ts';

const encoded = (value: object): string => Buffer.from(JSON.stringify(value)).toString('base64url');

export const agentTokenHandlers = ({ actors, now, newUlid, vault }: Pick<DeploymentDeps, 'actors' | 'now' | 'newUlid'> & { readonly vault: Pick<Vault, 'signAuth'> }): DeploymentHandlers => {
  const ask = askBy(actors, deploymentCommands);
  return {
    plain: {
      [routes.agentToken.id]: async ({ caller, body }) => {
        if (caller.by !== 'key') throw coded('forbidden', 'Only the deployment key makes tokens of the agent.');
        const { ttl_sec: ttlSec = limits.agentTokenTtlSec } = routes.agentToken.body?.parse(body) ?? {};
        const self = deploymentAddress(caller.organizationId, caller.deploymentId);
        const { agent } = await ask(self, 'credentials', {});
        const nowSec = Math.floor(now() / 1_000);
        const signed = [
          encoded({ alg: 'EdDSA', typ: 'JWT', kid: agent.did }),
          encoded({ iss: agent.did, sub: agent.id, aud: caller.deploymentId, iat: nowSec, exp: nowSec + ttlSec, jti: newUlid() }),
        ].join('.');
        const signature = Buffer.from(vault.signAuth(self, agent.keys, Buffer.from(signed))).toString('base64url');
        return { status: 200, body: { access_token: `${signed}.${signature}`, token_type: 'Bearer', expires_in: ttlSec, agent_id: agent.id, did: agent.did } };
      },
    },
  };
};
