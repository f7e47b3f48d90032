/**
 * The console's mirrors of deployments' routes (contracts/console-routes.ts): the same handlers, called by a member of the deployment's organization.
 *
 * Guarantees: the deployment in the path is looked up, never believed: one that does not exist and one of another organization are the same
 * `not_found`. Role and membership are the organization's word of this moment: viewers look (chat.read), members write (chat.create).
 */
import type { ConsoleRoute } from '../../../contracts/console-routes.ts';
import { deploymentCommands } from '../../../contracts/deployment-actor.ts';
import { deploymentAddress, deploymentId, type DeploymentCaller } from '../../../contracts/deployment.ts';
import { coded } from '../../../contracts/errors.ts';
import { organizationAddress } from '../../../contracts/organization-routes.ts';
import { organizationCommands } from '../../../contracts/organization.ts';
import { allows } from '../../../contracts/permissions.ts';
import { upgradeUrl } from '../../../contracts/plans.ts';
import { byOf, type Caller, type RequestContext } from '../../../contracts/platform.ts';
import { consoleRouteList } from '../../../contracts/platform-routes.ts';
import type { Sender } from '../../runtime/message.ts';
import { askBy } from '../platform/ask.ts';
import { personOf } from '../platform/callers.ts';
import { forCaller, type PlatformHandler } from '../platform/serve.ts';
import type { StreamHandler } from '../platform/stream-serve.ts';
import { organizationOfDeployment } from './callers.ts';
import type { DeploymentHandlers } from './deps.ts';

export interface ConsoleHandlers {
  readonly plain: Readonly<Record<string, PlatformHandler>>;
  readonly streams: Readonly<Record<string, StreamHandler>>;
}

export const consoleHandlers = (actors: Pick<Sender, 'ask'>, handlers: Required<DeploymentHandlers>): ConsoleHandlers => {
  const askOrganization = askBy(actors, organizationCommands);
  const askDeployment = askBy(actors, deploymentCommands);

  const callerOf = async (route: ConsoleRoute, caller: Caller, context: RequestContext): Promise<DeploymentCaller> => {
    const person = personOf(caller);
    const id = context.params?.[0];
    if (id === undefined || !deploymentId.safeParse(id).success) throw coded('not_found');
    const org = await organizationOfDeployment(actors, id);
    if (org === undefined) throw coded('not_found');
    const { role } = await askOrganization(organizationAddress(org), 'authorise', { permission: 'chat.read', by: byOf(person, context) });
    const writes = role !== null && allows(role, 'chat.create');
    if (route.mirrors.writes === true && !writes) throw coded('forbidden');
    // Also tells one that has ended from one that is there.
    const { agent, status } = await askDeployment(deploymentAddress(org, id), 'read', {});
    if (status === 'deprovisioning' || status === 'failed') throw coded('not_found');
    if (status === 'stopped' && route.mirrors.writes === true) throw coded('plan_limit', 'The deployment is stopped: the plan has no managed deployments.', { details: { limit: 0, upgradeUrl } });
    return { organizationId: org, deploymentId: id, agentId: agent.id, by: 'person', subject: person.userId, writes };
  };

  /** As its own route's handler knows it: without the deployment's id in front. */
  const inner = (context: RequestContext): RequestContext => ({ ...context, params: context.params?.slice(1) });

  const plain = consoleRouteList.filter(({ serve }) => serve.by !== 'stream').map((route): [string, PlatformHandler] => [route.id, forCaller(async (request) => {
    const { query, body, signal, deadlineAt } = request;
    const caller = await callerOf(route, request.caller, request.context);
    const context = inner(request.context);
    const handler = handlers.plain[route.mirrors.id];
    if (handler !== undefined) return handler({ caller, context, query, body, signal, deadlineAt });
    const open = handlers.open[route.mirrors.id];
    if (open === undefined) throw coded('unknown_route');
    return open({ caller: undefined, context, query, body, signal, deadlineAt });
  })]);
  const streams = consoleRouteList.filter(({ serve }) => serve.by === 'stream').map((route): [string, StreamHandler] => [route.id, async (request, answer) => {
    const { query, body, signal } = request;
    const caller = await callerOf(route, request.caller, request.context);
    const handler = handlers.streams[route.mirrors.id];
    if (handler === undefined) throw coded('unknown_route');
    await handler({ caller, context: inner(request.context), query, body, signal }, answer);
  }]);
  return { plain: Object.fromEntries(plain), streams: Object.fromEntries(streams) };
};
