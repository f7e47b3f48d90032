/**
 * Handlers of `/api/deployments` (decisions, Small print; RUN-038 … 045): makes, lists, restarts, re-keys and ends deployments.
 *
 * Guarantees: who may do what is the organization actor's word of this moment, in this order: 404 for who is no member, 403 for the role, 403
 * `plan_limit`. Key and shared secret are made here, shown in the one answer, and pass through no journal in the clear. A list is asked of the
 * deployments themselves (there are at most `limits.deploymentsMax`): what was just made or changed is in it.
 */
import { randomUUID } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import { deploymentCommands, type DeploymentRecord } from '../../../contracts/deployment-actor.ts';
import { deploymentAddress, deploymentId, type Deployment } from '../../../contracts/deployment.ts';
import { deploymentsRoutes as routes } from '../../../contracts/deployments-routes.ts';
import { coded, CodedError } from '../../../contracts/errors.ts';
import { idOf } from '../../../contracts/ids.ts';
import { limits } from '../../../contracts/limits.ts';
import { organizationReached } from '../../../contracts/organization-routes.ts';
import { organizationCommands } from '../../../contracts/organization.ts';
import { byOf, type By } from '../../../contracts/platform.ts';
import type { Permission } from '../../../contracts/permissions.ts';
import type { ActorAddress } from '../../../contracts/subjects.ts';
import type { Vault } from '../../custody/vault.ts';
import { newDeploymentKey, newIdentity } from '../deployment/credentials.ts';
import { askBy } from './ask.ts';
import type { PlatformDeps } from './deps.ts';
import { forCaller, type PlatformHandler, type PlatformHandlerRequest } from './serve.ts';
import { bodyOf, queryOf } from './typed.ts';

export interface DeploymentsHandlerDeps extends Pick<PlatformDeps, 'actors' | 'newUlid' | 'now'> {
  readonly vault: Vault;
  /** `{deployment_url}`. */
  readonly url: string;
}

/** Milliseconds between two looks whether a new deployment runs. */
const settleLookMs = 20;

export const deploymentsHandlers = ({ actors, newUlid, now, vault, url }: DeploymentsHandlerDeps): Readonly<Record<string, PlatformHandler>> => {
  const askOrganization = askBy(actors, organizationCommands);
  const ask = askBy(actors, deploymentCommands);
  const shown = (record: DeploymentRecord): Deployment => ({ ...record, url });

  interface Reached {
    readonly organization: ActorAddress;
    readonly by: By;
  }
  const reach = (request: PlatformHandlerRequest, orgId: string): Reached => ({ organization: organizationReached(request.caller, orgId), by: byOf(request.caller, request.context) });

  /** Under an id, so that a repeat after a hand-over does nothing twice. */
  const once = (request: PlatformHandlerRequest, address: ActorAddress, command: string, input: unknown): Promise<unknown> =>
    actors.ask({ address, command, input, principal: { kind: 'system' }, id: randomUUID(), deadlineAt: request.deadlineAt, signal: request.signal });

  const authorise = async ({ organization, by }: Reached, permission: Permission): Promise<void> => {
    await askOrganization(organization, 'authorise', { permission, by });
  };

  /** Of this organization: the address has its id, so no other's can be named. */
  const addressOf = (orgId: string, id: string): ActorAddress => {
    if (!deploymentId.safeParse(id).success) throw coded('not_found', 'There is no such deployment.');
    return deploymentAddress(orgId, id);
  };

  const noted = async ({ organization, by }: Reached, action: string, id: string): Promise<void> => {
    await askOrganization(organization, 'note', { action: `deployment.${action}`, resource_type: 'deployment', resource_id: id, metadata: {}, by }, 'once');
  };

  /** As it is once it has left `provisioning`, or after `limits.deploymentSettleMs`. */
  const settled = async (address: ActorAddress, made: DeploymentRecord, signal: AbortSignal): Promise<DeploymentRecord> => {
    const endAt = performance.now() + limits.deploymentSettleMs;
    let record = made;
    while (record.status === 'provisioning' && performance.now() < endAt && !signal.aborted) {
      await pause(settleLookMs);
      record = await ask(address, 'read', {});
    }
    return record;
  };

  return {
    [routes.createDeployment.id]: forCaller(async (request) => {
      const { orgId, name, purpose = '' } = bodyOf(routes.createDeployment, request);
      const reached = reach(request, orgId);
      const id = idOf('dep', newUlid());
      await once(request, reached.organization, 'reserve_deployment', { id, name, by: reached.by });
      const address = deploymentAddress(orgId, id);
      const made = newDeploymentKey(orgId, id);
      const soul = { name, purpose, creator: reached.by.actor, created_at: new Date(now()).toISOString() };
      const { agent, secret, shownSecret } = newIdentity(vault, orgId, id, idOf('agt', newUlid()), soul);
      const input = { by: reached.by, name, agent, secret, key_prefix: made.prefix, key_sha256: made.sha256 };
      const record = deploymentCommands.provision.output.parse(await once(request, address, 'provision', input));
      return { status: 201, body: { ...shown(await settled(address, record, request.signal)), key: made.key, secret: shownSecret } };
    }),

    [routes.deployments.id]: forCaller(async (request) => {
      const { orgId, id } = queryOf(routes.deployments, request);
      const { organization, by } = reach(request, orgId);
      const { ids } = await askOrganization(organization, 'deployments', { by });
      if (id !== undefined) return { status: 200, body: shown(await ask(addressOf(orgId, id), 'read', {})) };
      const records = await Promise.all(ids.map(async (one) => orNone(ask(deploymentAddress(orgId, one), 'read', {}))));
      return { status: 200, body: { deployments: records.filter((record) => record !== undefined).map(shown) } };
    }),

    [routes.changeDeployment.id]: forCaller(async (request) => {
      const { orgId, id, action } = bodyOf(routes.changeDeployment, request);
      const reached = reach(request, orgId);
      await authorise(reached, 'instance.restart');
      const address = addressOf(orgId, id);
      if (action === 'restart') {
        const record = deploymentCommands.restart.output.parse(await once(request, address, 'restart', { by: reached.by }));
        await noted(reached, 'restarted', id);
        return { status: 200, body: shown(record) };
      }
      const made = newDeploymentKey(orgId, id);
      const record = deploymentCommands.rotate_key.output.parse(
        await once(request, address, 'rotate_key', { by: reached.by, key_prefix: made.prefix, key_sha256: made.sha256 }));
      await noted(reached, 'key_rotated', id);
      return { status: 200, body: { ...shown(record), key: made.key } };
    }),

    [routes.deleteDeployment.id]: forCaller(async (request) => {
      const { orgId, id } = bodyOf(routes.deleteDeployment, request);
      const reached = reach(request, orgId);
      await authorise(reached, 'instance.deprovision');
      const record = deploymentCommands.deprovision.output.parse(await once(request, addressOf(orgId, id), 'deprovision', { by: reached.by }));
      await noted(reached, 'deleted', id);
      return { status: 200, body: shown(record) };
    }),
  };
};

/** Undefined for a place whose deployment is not there (yet, or any more). */
const orNone = async (asked: Promise<DeploymentRecord>): Promise<DeploymentRecord | undefined> => {
  try {
    return await asked;
  } catch (error) {
    if (error instanceof CodedError && error.code === 'not_found') return undefined;
    throw error;
  }
};
