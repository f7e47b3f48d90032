/** The closed table of the deployments' services (interface 4.7). `wire` is a route's number on the link, from 300: never reused. */
import { agentTokenRoutes } from './agent-token-routes.ts';
import { blobRoutes } from './blob-routes.ts';
import { branchRoutes } from './branch-routes.ts';
import type { DeploymentRoute } from './deployment.ts';
import { journalRoutes } from './journal-routes.ts';
import { knowledgeRoutes } from './knowledge-routes.ts';
import { memoryRoutes } from './memory-routes.ts';
import { regulationRoutes } from './regulation-routes.ts';
import { runtimeRoutes } from './runtime-routes.ts';

export const deploymentRoutes = { ...runtimeRoutes, ...branchRoutes, ...journalRoutes, ...blobRoutes, ...knowledgeRoutes, ...memoryRoutes, ...regulationRoutes, ...agentTokenRoutes } as const;

// Erases each entry's types: the gateway and the daemon hold validated values of type unknown.
export const deploymentRouteList: readonly DeploymentRoute[] = Object.values(deploymentRoutes) as unknown as readonly DeploymentRoute[];
