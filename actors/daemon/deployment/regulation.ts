/** Handlers of the regulation routes: what the deployment's regulation actor says. The trust score is for everybody, by an agent's id. */
import { regulationAddress } from '../../../contracts/deployment.ts';
import { deploymentAgentId } from '../../../contracts/deployment.ts';
import { regulationCommands } from '../../../contracts/regulation.ts';
import { trustOf } from '../../regulation/readings.ts';
import { initialRegulation } from '../../regulation/state.ts';
import { askBy } from '../platform/ask.ts';
import type { DeploymentDeps, DeploymentHandlers, DeploymentRequest } from './deps.ts';

export interface RegulationHandlersDeps extends Pick<DeploymentDeps, 'actors' | 'now'> {
  /** The deployment whose agent it is; undefined = nobody's. */
  readonly deploymentOfAgent: (agentId: string) => Promise<{ readonly organizationId: string; readonly deploymentId: string } | undefined>;
}

export const regulationHandlers = ({ actors, now, deploymentOfAgent }: RegulationHandlersDeps): DeploymentHandlers => {
  const ask = askBy(actors, regulationCommands);
  const current = ({ caller }: DeploymentRequest) => ask(regulationAddress(caller.organizationId, caller.deploymentId), 'state', {});
  return {
    plain: {
      regulation_state: async (request) => ({ status: 200, body: (await current(request)).state }),
      regulation_gating: async (request) => ({ status: 200, body: (await current(request)).gating }),
      regulation_health: async (request) => {
        const { state, gating } = await current(request);
        const { mode } = state.economic;
        const status = mode === 'Hibernate' ? 'critical' : mode === 'Hustle' || gating.gates.tool_execution === 'block' ? 'degraded' : 'ok';
        return { status: 200, body: { status, uptime_seconds: state.operational.uptime_seconds } };
      },
      regulation_history: async ({ caller }) => ({ status: 200, body: await ask(regulationAddress(caller.organizationId, caller.deploymentId), 'history', {}) }),
    },
    open: {
      regulation_trust: async ({ context }) => {
        const agentId = context.params?.[0] ?? '';
        const found = deploymentAgentId.safeParse(agentId).success ? await deploymentOfAgent(agentId) : undefined;
        if (found === undefined) return { status: 200, body: trustOf({ ...initialRegulation(), now: now() }, agentId) };
        const { trust } = await ask(regulationAddress(found.organizationId, found.deploymentId), 'state', {});
        return { status: 200, body: { ...trust, agent_id: agentId } };
      },
    },
  };
};
