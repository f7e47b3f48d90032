/**
 * The console's way into a deployment: for each of its routes that has a `console` number, the same route of the platform under
 * `/api/deployments/:deployment`, for members of its organization with an access token or the browser session (viewers look, members write).
 *
 * Guarantee: a mirror is made of its route here and nowhere else, so the two take and answer the same. Malformed input is the platform's
 * `validation_error`, with status 400.
 */
import type { DeploymentRoute } from './deployment.ts';
import type { PlatformRoute } from './platform.ts';

export interface ConsoleRoute extends PlatformRoute {
  readonly mirrors: DeploymentRoute;
}

const mirrorOf = (route: DeploymentRoute, wire: number): ConsoleRoute => {
  const { surface: _surface, auth: _auth, serve, console: _number, writes: _writes, ...same } = route;
  return {
    ...same, mirrors: route, id: `console_${route.id}`, wire, surface: 'platform', auth: { kind: 'person' }, serve, invalidStatus: 400,
    path: `/api/deployments/:deployment${route.path}`,
    errors: [...new Set([...route.errors.filter((code) => code !== 'invalid_argument'), 'unauthorized', 'not_found', 'forbidden', 'validation_error'])],
  };
};

/** The mirrors of those routes that have one, in their order. */
export const consoleRoutes = (routes: readonly DeploymentRoute[]): readonly ConsoleRoute[] =>
  routes.flatMap((route) => (route.console === undefined ? [] : [mirrorOf(route, route.console)]));
