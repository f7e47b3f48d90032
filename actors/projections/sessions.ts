/**
 * The projection `sessions`: one row per session, for lists. What a row says is a fold of the session's journal, as
 * actors/session/state.ts folds it, without the text.
 *
 * A session of a user id that nobody can sign in with (contracts/validate.ts `isId`) is left out: it is in nobody's list.
 * Usage counts ended turns. Does not say whether a session hibernates: that is not what its owner asks.
 */
import type { z } from 'zod';
import type { StoredEvent } from '../../contracts/event.ts';
import { isClientKind, sessionEvents, type SessionSummary } from '../../contracts/session.ts';
import { encodeToken } from '../../contracts/subjects.ts';
import { isId } from '../../contracts/validate.ts';
import type { ProjectedCommit, Projection } from './projection.ts';
import { answered, type Sql, type TransactionSql } from './postgres.ts';

/** A row of troupe.sessions. */
export interface SessionRow {
  /** Subject tokens. */
  readonly org: string;
  readonly sid: string;
  readonly user_id: string;
  readonly project_id: string;
  readonly label: string | null;
  readonly model: string;
  readonly agent_id: string;
  /** Of a deployment's session: the deployment, and its client's names for the session. */
  readonly deployment_id: string | null;
  readonly session_id: string | null;
  readonly branch: string | null;
  /** Events that a deployment's clients see, those of a branch's past among them. */
  readonly event_count: number;
  /** Of a branch: which it was forked from, at the event of which id; whether it may act outside. */
  readonly from_branch: string | null;
  readonly fork_at: string | null;
  readonly armed: boolean;
  readonly created_at: Date;
  readonly last_event_at: Date;
  readonly state: SessionSummary['state'];
  readonly turns: number;
  /** Turns that ended but for cancelled ones; of them those that were completed (`stop`), and those that failed. */
  readonly ended: number;
  readonly completed: number;
  readonly errored: number;
  /** UTC days on which a turn was completed, and the last of them (days since 1970; -1 = none). */
  readonly service_days: number;
  readonly last_service_day: number;
  readonly input_tokens: number;
  readonly output_tokens: number;
  readonly cost_cents: number;
  readonly run_id: string | null;
  /** Tool calls that wait for a person. */
  readonly waiting: number;
}

/** An event's payload in today's version. Throws `journal_unreadable` for what the code does not know. */
export type Upcast = (event: StoredEvent) => Readonly<Record<string, unknown>>;

/** Characters of a free text that a list shows; the journal has the whole. */
const shownChars = 256;

/** Text as Postgres can hold it: without NUL and half characters, and short. */
const shown = (text: string): string => text.slice(0, shownChars).toWellFormed().replaceAll('\u0000', '\uFFFD');

const active = (waiting: number): SessionRow['state'] => (waiting > 0 ? 'waiting_approval' : 'running');

const withWaiting = (row: SessionRow, waiting: number): SessionRow => ({ ...row, waiting, state: active(waiting) });

const created = (at: Date, key: Pick<SessionRow, 'org' | 'sid'>, payload: Readonly<Record<string, unknown>>): SessionRow | undefined => {
  const event = sessionEvents.SessionCreated.parse(payload);
  if (!isId(event.user_id)) return undefined;
  return {
    ...key, user_id: event.user_id, project_id: shown(event.project_id), label: event.label === null ? null : shown(event.label), model: shown(event.model),
    agent_id: shown(event.agent_id), deployment_id: event.deployment?.id ?? null, session_id: event.deployment?.session_id ?? null, branch: event.deployment?.branch ?? null, event_count: 1,
    from_branch: null, fork_at: null, armed: true,
    created_at: at, last_event_at: at, state: 'idle', turns: 0, ended: 0, completed: 0, errored: 0, service_days: 0, last_service_day: -1,
    input_tokens: 0, output_tokens: 0, cost_cents: 0, run_id: null, waiting: 0,
  };
};

/** A branch: its counts begin with it, but for its events. */
const branched = (at: Date, key: Pick<SessionRow, 'org' | 'sid'>, payload: Readonly<Record<string, unknown>>): SessionRow | undefined => {
  const { deployment, agent_id, model, from_branch, at: forkAt, past_count: past, effects } = sessionEvents.BranchCreated.parse(payload);
  const row = created(at, key, { user_id: deployment.id, project_id: deployment.id, label: null, model, agent_id, created_at_unix: Math.floor(at.getTime() / 1_000), deployment });
  return row === undefined ? undefined : { ...row, event_count: past + 1, from_branch, fork_at: forkAt, armed: effects === 'armed' };
};

const dayMs = 86_400_000;

/** What an ended turn says of the agent. One that a person cancelled says nothing. */
const outcome = (row: SessionRow, reason: 'error' | z.output<typeof sessionEvents.RunFinished>['finish_reason'], at: number): Pick<SessionRow, 'ended' | 'completed' | 'errored' | 'service_days' | 'last_service_day'> | undefined => {
  if (reason === 'cancelled') return undefined;
  const { service_days: days, last_service_day: last } = row;
  const completed = reason === 'stop';
  const day = Math.floor(at / dayMs);
  const next = completed && day > last;
  return {
    ended: row.ended + 1, completed: row.completed + (completed ? 1 : 0), errored: row.errored + (reason === 'error' ? 1 : 0),
    service_days: next ? days + 1 : days, last_service_day: next ? day : last,
  };
};

/** The row after an event that changes more than the time; the row as it is for all others. */
const changed = (row: SessionRow, event: StoredEvent, at: number, upcast: Upcast): SessionRow => {
  switch (event.k) {
    case 'RunStarted':
      return { ...row, turns: row.turns + 1, run_id: sessionEvents.RunStarted.parse(upcast(event)).run_id, waiting: 0, state: 'running' };
    case 'StepStarted':
      return sessionEvents.StepStarted.parse(upcast(event)).run_id === row.run_id ? withWaiting(row, 0) : row;
    case 'ApprovalRequested':
      return sessionEvents.ApprovalRequested.parse(upcast(event)).run_id === row.run_id ? withWaiting(row, row.waiting + 1) : row;
    case 'ApprovalGranted':
    case 'ApprovalDenied':
      return sessionEvents[event.k].parse(upcast(event)).run_id === row.run_id ? withWaiting(row, Math.max(0, row.waiting - 1)) : row;
    case 'RunFinished':
    case 'RunErrored': {
      const { run_id: runId, usage } = sessionEvents[event.k].parse(upcast(event));
      if (runId !== row.run_id) return row;
      return {
        ...row, ...outcome(row, event.k === 'RunErrored' ? 'error' : sessionEvents.RunFinished.parse(upcast(event)).finish_reason, at), run_id: null, waiting: 0, state: 'idle', input_tokens: row.input_tokens + usage.input_tokens,
        output_tokens: row.output_tokens + usage.output_tokens, cost_cents: row.cost_cents + usage.cost_cents,
      };
    }
    default:
      return row;
  }
};

/** Applies one event of the session's own (not the runtime's). Pure. `at` = Unix milliseconds. */
export const foldSession = (
  row: SessionRow | undefined, key: Pick<SessionRow, 'org' | 'sid'>, event: StoredEvent, at: number, upcast: Upcast,
): SessionRow | undefined => {
  const time = new Date(at);
  if (event.k === 'SessionCreated') return row ?? created(time, key, upcast(event));
  if (event.k === 'BranchCreated') return row ?? branched(time, key, upcast(event));
  if (row === undefined) return undefined;
  const next = changed(row, event, at, upcast);
  return { ...next, event_count: row.event_count + (isClientKind(event.k) ? 1 : 0), last_event_at: time > row.last_event_at ? time : row.last_event_at };
};

/** Postgres gives bigint as text. */
type Counted = 'event_count' | 'turns' | 'ended' | 'completed' | 'errored' | 'service_days' | 'last_service_day' | 'input_tokens' | 'output_tokens' | 'cost_cents' | 'waiting';
type StoredRow = Omit<SessionRow, Counted> & Readonly<Record<Counted, string>>;

const rowOf = (row: StoredRow): SessionRow => ({
  ...row, event_count: Number(row.event_count), turns: Number(row.turns), ended: Number(row.ended), completed: Number(row.completed), errored: Number(row.errored),
  service_days: Number(row.service_days), last_service_day: Number(row.last_service_day), input_tokens: Number(row.input_tokens), output_tokens: Number(row.output_tokens),
  cost_cents: Number(row.cost_cents), waiting: Number(row.waiting),
});

const apply = async (tx: TransactionSql, commits: readonly ProjectedCommit[], upcast: Upcast, onBroken: (at: ProjectedCommit, error: unknown) => void): Promise<void> => {
  const keyed = commits.map((commit) => ({ ...commit, key: { org: encodeToken(commit.address.org), sid: encodeToken(commit.address.key) } }));
  const rows = new Map<string, SessionRow>();
  const id = ({ org, sid }: Pick<SessionRow, 'org' | 'sid'>): string => `${org}.${sid}`;
  const keys = [...new Map(keyed.map(({ key }) => [id(key), key])).values()];
  const stored = await tx<StoredRow[]>`
    select s.* from troupe.sessions s
    join unnest(${keys.map((key) => key.org)}::text[], ${keys.map((key) => key.sid)}::text[]) as k(org, sid) on s.org = k.org and s.sid = k.sid`;
  for (const row of stored) rows.set(id(row), rowOf(row));
  const touched = new Set<string>();
  for (const projected of keyed) {
    const { key, commit } = projected;
    for (const event of commit.ev) {
      if (event.k.startsWith('$')) continue;
      try {
        const row = foldSession(rows.get(id(key)), key, event, event.t ?? commit.t, upcast);
        if (row === undefined) continue;
        rows.set(id(key), row);
        touched.add(id(key));
      } catch (error) {
        onBroken(projected, error);
      }
    }
  }
  const written = [...touched].map((key) => rows.get(key)).filter((row) => row !== undefined);
  if (written.length === 0) return;
  await tx`
    insert into troupe.sessions ${tx(written, 'org', 'sid', 'user_id', 'project_id', 'label', 'model', 'agent_id', 'deployment_id', 'session_id', 'branch', 'event_count', 'from_branch', 'fork_at', 'armed', 'created_at', 'last_event_at', 'state', 'turns', 'ended', 'completed', 'errored', 'service_days', 'last_service_day', 'input_tokens', 'output_tokens', 'cost_cents', 'run_id', 'waiting')}
    on conflict (org, sid) do update set
      event_count = excluded.event_count, last_event_at = excluded.last_event_at, state = excluded.state, turns = excluded.turns, ended = excluded.ended, completed = excluded.completed,
      errored = excluded.errored, service_days = excluded.service_days, last_service_day = excluded.last_service_day, input_tokens = excluded.input_tokens,
      output_tokens = excluded.output_tokens, cost_cents = excluded.cost_cents, run_id = excluded.run_id, waiting = excluded.waiting`;
};

/** `onBroken` is told of an event that cannot be read: it is left out, the session's other events count. */
export const sessionsProjection = (options: { readonly upcast: Upcast; readonly onBroken: (at: ProjectedCommit, error: unknown) => void }): Projection => ({
  name: 'sessions',
  type: 'session',
  apply: (tx, commits) => apply(tx, commits, options.upcast, options.onBroken),
  clear: async (tx) => {
    await tx`delete from troupe.sessions`;
  },
});

/** Deletes the rows of a deployment whose sessions were erased from the journal. */
export const deleteDeploymentSessions = async (sql: Sql, org: string, deploymentId: string): Promise<void> => {
  await answered(sql`delete from troupe.sessions where org = ${encodeToken(org)} and deployment_id = ${deploymentId}`);
};

/** Deletes the rows of an organization whose sessions were erased from the journal. */
export const deleteSessions = async (sql: Sql, org: string): Promise<void> => {
  await answered(sql`delete from troupe.sessions where org = ${encodeToken(org)}`);
};
