/**
 * The projection `organizations`: which there are and who is in them, for a person's list and for hints in tokens. What somebody may do is
 * never read here: that is the organization actor's word. A deleted organization has no rows.
 */
import type { z } from 'zod';
import { limits } from '../../contracts/limits.ts';
import { planName, type organizationListed } from '../../contracts/organization.ts';
import { organizationEvents } from '../../contracts/organization-events.ts';
import { role, type Role } from '../../contracts/permissions.ts';
import { journaled, storable, type Journaled, type JournaledOptions } from './journaled.ts';
import { answered, type Sql, type TransactionSql } from './postgres.ts';
import type { Projection } from './projection.ts';
import type { Projections } from './projections.ts';

type Event = Journaled<typeof organizationEvents>;

/** Total, as all statements here: one that Postgres refused would come again for ever. */
const join = async (tx: TransactionSql, organizationId: string, { userId, role: as, at }: { userId: string; role: Role; at: Date }): Promise<void> => {
  await tx`
    insert into troupe.memberships (organization_id, user_id, role, joined_at)
    select id, ${userId}, ${as}, ${at} from troupe.organizations where id = ${organizationId} on conflict do nothing`;
};

const setRole = async (tx: TransactionSql, organizationId: string, userId: string, to: Role): Promise<void> => {
  await tx`update troupe.memberships set role = ${to} where organization_id = ${organizationId} and user_id = ${userId}`;
};

const apply = async (tx: TransactionSql, { kind, payload, key: id, at }: Event): Promise<void> => {
  switch (kind) {
    case 'OrganizationCreated':
      await tx`insert into troupe.organizations (id, name, slug, plan, created_at) values (${id}, ${storable(payload.name)}, ${payload.slug}, 'free', ${at}) on conflict do nothing`;
      return join(tx, id, { userId: payload.by.actor, role: 'owner', at });
    case 'OrganizationUpdated':
      if (payload.name !== undefined) await tx`update troupe.organizations set name = ${storable(payload.name)} where id = ${id}`;
      return;
    case 'PlanSet':
      await tx`update troupe.organizations set plan = ${payload.plan} where id = ${id}`;
      return;
    case 'MemberJoined':
      return join(tx, id, { userId: payload.user_id, role: payload.role, at });
    case 'MemberRoleChanged':
      return setRole(tx, id, payload.user_id, payload.to);
    case 'OwnershipTransferred':
      await setRole(tx, id, payload.from, 'admin');
      return setRole(tx, id, payload.to, 'owner');
    case 'MemberRemoved':
      await tx`delete from troupe.memberships where organization_id = ${id} and user_id = ${payload.user_id}`;
      return;
    case 'OrganizationDeleted':
      await tx`delete from troupe.organizations where id = ${id}`;
      return;
    default:
  }
};

export const organizationsProjection = (options: JournaledOptions): Projection => ({
  name: 'organizations',
  type: 'organization',
  apply: async (tx, commits) => {
    for (const event of journaled(organizationEvents, commits, options)) await apply(tx, event);
  },
  clear: async (tx) => {
    await tx`delete from troupe.organizations`;
  },
});

export interface Membership {
  readonly id: string;
  readonly role: Role;
}

/** A person's memberships as the rows have them now, the oldest first, at most `max`: a hint. Throws `upstream_unavailable`, `overloaded`. */
export const membershipsOf = async (projections: Pick<Projections, 'read'>, userId: string, max: number): Promise<readonly Membership[]> =>
  projections.read(async (sql) => {
    const rows = await answered(sql<{ organization_id: string; role: string }[]>`
      select organization_id, role from troupe.memberships where user_id = ${userId} order by joined_at, organization_id limit ${max}`);
    return rows.map((row) => ({ id: row.organization_id, role: role.parse(row.role) }));
  });

/** How many organizations a person owns. Throws as `membershipsOf`. */
export const ownedBy = async (sql: Sql, userId: string): Promise<number> => {
  const [row] = await answered(sql<{ owned: string }[]>`select count(*) as owned from troupe.memberships where user_id = ${userId} and role = 'owner'`);
  return Number(row?.owned ?? 0);
};

interface Listed {
  readonly id: string;
  readonly name: string;
  readonly slug: string;
  readonly plan: string;
  readonly created_at: Date;
  readonly role: string;
  readonly members: string;
}

/** A person's organizations, or one of them, the oldest membership first, at most `limits.organizationListMax`. */
export const listOrganizations = async (sql: Sql, userId: string, organizationId?: string): Promise<z.output<typeof organizationListed>[]> => {
  const rows = await answered(sql<Listed[]>`
    select o.id, o.name, o.slug, o.plan, o.created_at, m.role,
      (select count(*) from troupe.memberships c where c.organization_id = o.id) as members
    from troupe.memberships m join troupe.organizations o on o.id = m.organization_id
    where m.user_id = ${userId} ${organizationId === undefined ? sql`` : sql`and o.id = ${organizationId}`}
    order by m.joined_at, o.id limit ${limits.organizationListMax}`);
  return rows.map((row) => ({
    id: row.id, name: row.name, slug: row.slug, plan: planName.parse(row.plan), role: role.parse(row.role),
    memberCount: Number(row.members), createdAt: row.created_at.toISOString(),
  }));
};
