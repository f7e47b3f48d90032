/**
 * The daemon's handlers of lists, which are read from Postgres. Without Postgres, configured or reachable, they answer
 * `upstream_unavailable`; nothing else depends on it.
 *
 * Guarantee: what the caller's organization has journaled before the question is in the answer, or the answer says `current: false`
 * (the projection did not come that far within `limits.projectionWaitMs`).
 */
import type { z } from 'zod';
import { coded, CodedError } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { sessionListQuery } from '../../contracts/routes.ts';
import type { Projections } from '../projections/projections.ts';
import { listSessions } from '../projections/session-list.ts';
import type { DaemonHandler } from './serve.ts';

/** Undefined = no Postgres is configured. */
export const listHandlers = (projections: Projections | undefined): Readonly<Record<string, DaemonHandler>> => {
  const current = async (of: Projections, org: string): Promise<boolean> => {
    try {
      await of.caughtUp('sessions', org, limits.projectionWaitMs);
      return true;
    } catch (error) {
      if (error instanceof CodedError && error.code === 'deadline_exceeded') return false;
      throw error;
    }
  };

  return {
    list_sessions: async ({ principal, body }) => {
      if (principal === undefined) throw coded('unauthorized');
      if (projections === undefined) throw coded('upstream_unavailable', 'There is no list of sessions here: no database is configured.');
      const { limit = limits.sessionListUsualMax, cursor } = body as z.output<typeof sessionListQuery>;
      const { org, sub: userId } = principal;
      const caughtUp = await current(projections, org);
      const page = await projections.read((sql) => listSessions(sql, { org, userId, limit, cursor }));
      return { status: 200, body: { sessions: page.sessions, next_cursor: page.nextCursor, current: caughtUp } };
    },
  };
};
