/** The closed table of the platform surface. `wire` is a route's number on the link, from 100: never reused. */
import { authRoutes } from './auth-routes.ts';
import { billingRoutes } from './billing-routes.ts';
import { chatRoutes } from './chat-routes.ts';
import { consoleRoutes, type ConsoleRoute } from './console-routes.ts';
import { deploymentRouteList } from './deployment-routes.ts';
import type { DeploymentRoute } from './deployment.ts';
import { deploymentsRoutes } from './deployments-routes.ts';
import { organizationRoutes } from './organization-routes.ts';
import type { PlatformRoute } from './platform.ts';
import { routeByWire, type Route } from './routes.ts';
import { trustRoutes } from './trust-routes.ts';

export const platformRoutes = { ...authRoutes, ...organizationRoutes, ...chatRoutes, ...billingRoutes, ...trustRoutes, ...deploymentsRoutes } as const;

// Erases each entry's types: the gateway and the daemon hold validated values of type unknown.
export const platformRouteList: readonly PlatformRoute[] = Object.values(platformRoutes) as unknown as readonly PlatformRoute[];
export const platformRouteByWire: ReadonlyMap<number, PlatformRoute> = new Map(platformRouteList.map((r) => [r.wire, r]));

/** The console's mirrors of deployments' routes: served as routes of the platform, in no document of their own. */
export const consoleRouteList: readonly ConsoleRoute[] = consoleRoutes(deploymentRouteList);

/** Routes with the platform's way of asking and answering (contracts/platform.ts). */
export type EnvelopeRoute = PlatformRoute | DeploymentRoute;
/** Every route the link may name, of all surfaces. */
export type AnyRoute = Route | EnvelopeRoute;
export const anyRouteByWire: ReadonlyMap<number, AnyRoute> = new Map<number, AnyRoute>([
  ...routeByWire, ...platformRouteByWire, ...[...deploymentRouteList, ...consoleRouteList].map((r) => [r.wire, r] as const),
]);
