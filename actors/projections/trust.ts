/**
 * What trust scores read of rows: an agent's record, an organization's owners, what two people have in common. Facts for figures, and
 * candidates for a permission that the organization's actor then decides.
 */
import { limits } from '../../contracts/limits.ts';
import { decodeToken } from '../../contracts/subjects.ts';
import { answered, type Sql } from './postgres.ts';

/** How an agent has worked in the organization (or workspace) that deployed it. */
export interface AgentRecord {
  /** Org token. */
  readonly org: string;
  readonly sessions: number;
  readonly ended: number;
  readonly completed: number;
  readonly errored: number;
  /** The most of any of its sessions. */
  readonly serviceDays: number;
  /** US cents its turns were charged. */
  readonly costCents: number;
}

interface StoredRecord {
  readonly org: string;
  readonly sessions: string;
  readonly ended: string;
  readonly completed: string;
  readonly errored: string;
  readonly service_days: string;
  readonly cost_cents: string;
}

/** One record per org token that has an agent of this id, the oldest first. A foreign organization may use any id. */
export const readAgent = async (sql: Sql, agentId: string): Promise<readonly AgentRecord[]> => {
  const rows = await answered(sql<StoredRecord[]>`
    select org, count(*) as sessions, sum(ended) as ended, sum(completed) as completed, sum(errored) as errored,
      max(service_days) as service_days, sum(cost_cents) as cost_cents
    from troupe.sessions where agent_id = ${agentId} group by org order by min(created_at), org limit ${limits.trustSharedMax}`);
  return rows.map((row) => ({
    org: decodeToken(row.org), sessions: Number(row.sessions), ended: Number(row.ended), completed: Number(row.completed), errored: Number(row.errored),
    serviceDays: Number(row.service_days), costCents: Number(row.cost_cents),
  }));
};

/** Organizations of which one person is admin or owner and the other a member, the oldest membership first. */
export const administeredTogether = async (sql: Sql, adminId: string, memberId: string): Promise<readonly string[]> => {
  const rows = await answered(sql<{ organization_id: string }[]>`
    select a.organization_id from troupe.memberships a join troupe.memberships m on m.organization_id = a.organization_id
    where a.user_id = ${adminId} and a.role in ('admin', 'owner') and m.user_id = ${memberId}
    order by a.joined_at, a.organization_id limit ${limits.trustSharedMax}`);
  return rows.map((row) => row.organization_id);
};

/** An organization's owners, the oldest first. */
export const ownersOf = async (sql: Sql, organizationId: string): Promise<readonly string[]> => {
  const rows = await answered(sql<{ user_id: string }[]>`
    select user_id from troupe.memberships where organization_id = ${organizationId} and role = 'owner' order by joined_at, user_id limit ${limits.trustOwnersMax}`);
  return rows.map((row) => row.user_id);
};

export interface Economy {
  /** Organizations of the person's own whose plan is paid for. */
  readonly paidPlans: number;
  /** US cents of model use, wherever it was paid. */
  readonly creditsUsed: number;
}

export const readEconomy = async (sql: Sql, userId: string): Promise<Economy> => {
  const [row] = await answered(sql<{ paid: string; used: string }[]>`
    select
      (select count(*) from troupe.memberships m join troupe.organizations o on o.id = m.organization_id
        where m.user_id = ${userId} and m.role = 'owner' and o.plan <> 'free') as paid,
      (select coalesce(sum(cost_cents), 0) from troupe.usage where used_by = ${userId}) as used`);
  return { paidPlans: Number(row?.paid ?? 0), creditsUsed: Number(row?.used ?? 0) };
};
