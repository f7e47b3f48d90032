/**
 * The readers of the projection `sessions`: a user's own sessions, or those of a deployment, newest first, page by page.
 *
 * Guarantee: only rows of that organization and that user or deployment, whatever the cursor says. Pages are by key (created, sid), which
 * never change: a session made meanwhile neither repeats nor hides another.
 */
import type { RuntimeSession } from '../../contracts/runtime-routes.ts';
import type { SessionSummary } from '../../contracts/session.ts';
import { coded } from '../../contracts/errors.ts';
import { decodeToken, encodeToken } from '../../contracts/subjects.ts';
import { answered, type Sql } from './postgres.ts';
import type { SessionRow } from './sessions.ts';

export interface SessionPage {
  readonly sessions: readonly SessionSummary[];
  /** For the next page; null after the last. */
  readonly nextCursor: string | null;
}

export interface SessionQuery {
  readonly org: string;
  readonly userId: string;
  /** 1 to `limits.sessionListMax`. */
  readonly limit: number;
  readonly cursor?: string | undefined;
}

const cursorForm = /^(\d{1,15})\.([A-Za-z0-9_=-]+)$/;

const encodeCursor = (row: Pick<SessionRow, 'created_at' | 'sid'>): string => Buffer.from(`${row.created_at.getTime()}.${row.sid}`).toString('base64url');

const decodeCursor = (cursor: string, code: 'bad_request' | 'invalid_argument' = 'bad_request'): { readonly at: Date; readonly sid: string } => {
  const [, ms, sid] = cursorForm.exec(Buffer.from(cursor, 'base64url').toString('latin1')) ?? [];
  const at = new Date(Number(ms));
  if (sid === undefined || Number.isNaN(at.getTime())) throw coded(code, 'The cursor is not one of a list before.');
  return { at, sid };
};

type Listed = Pick<SessionRow, 'sid' | 'project_id' | 'label' | 'model' | 'agent_id' | 'created_at' | 'last_event_at' | 'state'> &
  Readonly<Record<'turns' | 'input_tokens' | 'output_tokens' | 'cost_cents', string>>;

const summaryOf = (row: Listed): SessionSummary => ({
  sid: decodeToken(row.sid), agent_id: row.agent_id, project_id: row.project_id, label: row.label, model: row.model, state: row.state,
  created_at: row.created_at.toISOString(), last_event_at: row.last_event_at.toISOString(), turns: Number(row.turns),
  usage: { input_tokens: Number(row.input_tokens), output_tokens: Number(row.output_tokens), cost_cents: Number(row.cost_cents) },
});

/** Throws `bad_request` (cursor), `upstream_unavailable`. */
export const listSessions = async (sql: Sql, { org, userId, limit, cursor }: SessionQuery): Promise<SessionPage> => {
  const after = cursor === undefined ? undefined : decodeCursor(cursor);
  const rows = await answered(sql<Listed[]>`
    select sid, project_id, label, model, agent_id, created_at, last_event_at, state, turns, input_tokens, output_tokens, cost_cents
    from troupe.sessions
    where org = ${encodeToken(org)} and user_id = ${userId}
      ${after === undefined ? sql`` : sql`and (created_at, sid) < (${after.at}, ${after.sid})`}
    order by created_at desc, sid desc limit ${limit + 1}`);
  const page = rows.slice(0, limit);
  const last = page.at(-1);
  return { sessions: page.map(summaryOf), nextCursor: rows.length > limit && last !== undefined ? encodeCursor(last) : null };
};

export interface DeploymentSessionPage {
  readonly sessions: readonly RuntimeSession[];
  readonly nextCursor: string | null;
}

type Counted = Pick<SessionRow, 'sid' | 'created_at' | 'last_event_at'> & { readonly session_id: string; readonly branch: string; readonly event_count: string };

const shownOf = (row: Counted): RuntimeSession => ({
  id: row.session_id, branch: row.branch, event_count: Number(row.event_count), created_at: row.created_at.toISOString(), last_event_at: row.last_event_at.toISOString(),
});

/** `limit`: 1 to `limits.deploymentSessionsMax`. Throws `invalid_argument` (cursor), `upstream_unavailable`. */
export const listDeploymentSessions = async (
  sql: Sql, { org, deploymentId, limit, cursor }: { readonly org: string; readonly deploymentId: string; readonly limit: number; readonly cursor?: string | undefined },
): Promise<DeploymentSessionPage> => {
  const after = cursor === undefined ? undefined : decodeCursor(cursor, 'invalid_argument');
  const rows = await answered(sql<Counted[]>`
    select sid, session_id, branch, event_count, created_at, last_event_at
    from troupe.sessions
    where org = ${encodeToken(org)} and deployment_id = ${deploymentId}
      ${after === undefined ? sql`` : sql`and (created_at, sid) < (${after.at}, ${after.sid})`}
    order by created_at desc, sid desc limit ${limit + 1}`);
  const page = rows.slice(0, limit);
  const last = page.at(-1);
  return {
    sessions: page.map(shownOf),
    nextCursor: rows.length > limit && last !== undefined ? encodeCursor(last) : null,
  };
};

export interface BranchRow extends RuntimeSession {
  /** Of a branch: which it was forked from, and at the event of which id. */
  readonly from: string | null;
  readonly at: string | null;
  readonly effects: 'armed' | 'disarmed';
}

/** A session's branches, `main` and then the oldest first: all of them, as they are bounded (`limits.sessionBranchesMax`). Throws `upstream_unavailable`. */
export const listBranches = async (sql: Sql, { org, deploymentId, session }: { readonly org: string; readonly deploymentId: string; readonly session: string }): Promise<readonly BranchRow[]> => {
  const rows = await answered(sql<(Counted & Pick<SessionRow, 'from_branch' | 'fork_at' | 'armed'>)[]>`
    select sid, session_id, branch, event_count, created_at, last_event_at, from_branch, fork_at, armed
    from troupe.sessions
    where org = ${encodeToken(org)} and deployment_id = ${deploymentId} and session_id = ${session}
    order by from_branch is not null, created_at, sid`);
  return rows.map((row) => ({ ...shownOf(row), from: row.from_branch, at: row.fork_at, effects: row.armed ? 'armed' : 'disarmed' }));
};
