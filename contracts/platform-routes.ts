/** The closed table of the platform surface. `wire` is a route's number on the link, from 100: never reused. */
import { authRoutes } from './auth-routes.ts';
import { billingRoutes } from './billing-routes.ts';
import { chatRoutes } from './chat-routes.ts';
import { organizationRoutes } from './organization-routes.ts';
import type { PlatformRoute } from './platform.ts';
import { routeByWire, type Route } from './routes.ts';
import { trustRoutes } from './trust-routes.ts';

export const platformRoutes = { ...authRoutes, ...organizationRoutes, ...chatRoutes, ...billingRoutes, ...trustRoutes } as const;

// Erases each entry's types: the gateway and the daemon hold validated values of type unknown.
export const platformRouteList: readonly PlatformRoute[] = Object.values(platformRoutes) as unknown as readonly PlatformRoute[];
export const platformRouteByWire: ReadonlyMap<number, PlatformRoute> = new Map(platformRouteList.map((r) => [r.wire, r]));

/** Every route the link may name, of both surfaces. */
export type AnyRoute = Route | PlatformRoute;
export const anyRouteByWire: ReadonlyMap<number, AnyRoute> = new Map<number, AnyRoute>([...routeByWire, ...platformRouteByWire]);
