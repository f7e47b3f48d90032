/**
 * Handlers of the deployment's list of sessions, read from Postgres.
 *
 * Guarantee: what was journaled before the question is in the answer, else it is refused (`deadline_exceeded`, `upstream_unavailable`): counts and times are exact.
 */
import type { z } from 'zod';
import { limits } from '../../../contracts/limits.ts';
import { runtimeRoutes } from '../../../contracts/runtime-routes.ts';
import { listDeploymentSessions } from '../../projections/session-list.ts';
import type { DeploymentDeps, DeploymentHandlers } from './deps.ts';

export const sessionHandlers = ({ projections }: Pick<DeploymentDeps, 'projections'>): DeploymentHandlers => ({
  plain: {
    [runtimeRoutes.runtime_sessions.id]: async (request) => {
      const { limit = limits.deploymentSessionsUsual, cursor } = request.query as z.output<NonNullable<typeof runtimeRoutes.runtime_sessions.query>>;
      const { organizationId: org, deploymentId } = request.caller;
      await projections.caughtUp('sessions', org, limits.projectionWaitMs);
      const { sessions, nextCursor } = await projections.read((sql) => listDeploymentSessions(sql, { org, deploymentId, limit, cursor }));
      return { status: 200, body: { sessions, ...(nextCursor === null ? {} : { next_cursor: nextCursor }) } };
    },
  },
});
