/**
 * Sessions of an organization to which nothing has happened since a time, for retention.
 *
 * Guarantee: none of which a branch, or which as a branch's origin, something younger is: the branches of a session go together, branches before `main`, as
 * a branch begins in its origin's journal.
 */
import { decodeToken, encodeToken } from '../../contracts/subjects.ts';
import { answered, type Sql } from './postgres.ts';

export interface ExpiredSession {
  readonly sid: string;
  readonly agentId: string;
  readonly deploymentId: string | null;
}

/** At most `limit`. Throws `upstream_unavailable`. */
export const listExpired = async (sql: Sql, { org, before, limit }: { readonly org: string; readonly before: Date; readonly limit: number }): Promise<readonly ExpiredSession[]> => {
  const rows = await answered(sql<{ sid: string; agent_id: string; deployment_id: string | null }[]>`
    select sid, agent_id, deployment_id from troupe.sessions s
    where org = ${encodeToken(org)} and last_event_at < ${before} and not exists (
      select 1 from troupe.sessions y
      where y.org = s.org and y.deployment_id = s.deployment_id and y.session_id = s.session_id and y.last_event_at >= ${before})
    order by from_branch is null, last_event_at, sid limit ${limit}`);
  return rows.map((row) => ({ sid: decodeToken(row.sid), agentId: row.agent_id, deploymentId: row.deployment_id }));
};

/** Deletes the row of a session that was erased from the journal, unless it has a younger life. Throws `upstream_unavailable`. */
export const deleteExpired = async (sql: Sql, { org, sid, before }: { readonly org: string; readonly sid: string; readonly before: Date }): Promise<void> => {
  await answered(sql`delete from troupe.sessions where org = ${encodeToken(org)} and sid = ${encodeToken(sid)} and last_event_at < ${before}`);
};
