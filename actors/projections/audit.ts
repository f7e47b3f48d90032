/**
 * The projection `audit`: one row for each change of an organization, written once and never touched again (AUD-004, AUD-005, AUD-021).
 *
 * Guarantee: rows are made of the organization's journal, in which every change names who made it; the row's id is the event's. What is no
 * change is left out: the use of a key, mails that were sent, progress of an erasure. Holds no secret, as the events do not.
 */
import type { AuditEntry } from '../../contracts/organization.ts';
import { organizationEvents } from '../../contracts/organization-events.ts';
import type { By } from '../../contracts/platform.ts';
import { journaled, storable, type Journaled, type JournaledOptions } from './journaled.ts';
import { answered, type Sql } from './postgres.ts';
import type { Projection } from './projection.ts';

type Event = Journaled<typeof organizationEvents>;

/** What an entry says of the change itself. Without `by`: the system did it. */
interface Change {
  readonly by?: By;
  readonly action: string;
  readonly on: readonly [resourceType: string, resourceId: string];
  readonly metadata?: Readonly<Record<string, unknown>>;
}

const changeOf = ({ kind, payload, key: id }: Event): Change | undefined => {
  const organization = ['organization', id] as const;
  switch (kind) {
    case 'OrganizationCreated':
      return { by: payload.by, action: 'organization.created', on: organization, metadata: { name: payload.name, slug: payload.slug } };
    case 'OrganizationUpdated':
      return { by: payload.by, action: 'organization.updated', on: organization, metadata: { ...(payload.name === undefined ? {} : { name: payload.name }), ...(payload.settings === undefined ? {} : { settings: payload.settings }) } };
    case 'OrganizationDeleted':
      return { by: payload.by, action: 'organization.deleted', on: organization };
    case 'OwnershipTransferred':
      return { by: payload.by, action: 'organization.transferred', on: organization, metadata: { from: payload.from, to: payload.to } };
    case 'PlanSet':
      return { action: 'plan.changed', on: organization, metadata: { plan: payload.plan, reason: payload.reason } };
    case 'MemberInvited':
      return { by: payload.by, action: 'member.invited', on: ['invitation', payload.id], metadata: { email: payload.email, role: payload.role } };
    case 'InvitationRevoked':
      return { by: payload.by, action: 'invitation.revoked', on: ['invitation', payload.id], metadata: { replaced: payload.replaced, ...(payload.orphaned === true ? { orphaned: true } : {}) } };
    case 'InvitationExpired':
      return { action: 'invitation.expired', on: ['invitation', payload.id] };
    case 'MemberJoined':
      return { by: payload.by, action: 'member.joined', on: ['member', payload.user_id], metadata: { email: payload.email, role: payload.role, invitationId: payload.invitation_id } };
    case 'MemberRoleChanged':
      return { by: payload.by, action: 'member.role_changed', on: ['member', payload.user_id], metadata: { from: payload.from, to: payload.to } };
    case 'MemberRemoved':
      return { by: payload.by, action: payload.by.actor === payload.user_id ? 'member.left' : 'member.removed', on: ['member', payload.user_id], metadata: { role: payload.role } };
    case 'KeyCreated':
      return { by: payload.by, action: 'api_key.created', on: ['api_key', payload.id], metadata: { name: payload.name, scopes: payload.scopes, keyPrefix: payload.key_prefix } };
    case 'KeyRevoked':
      return { by: payload.by, action: 'api_key.revoked', on: ['api_key', payload.id] };
    case 'Noted':
      return { by: payload.by, action: payload.action, on: [payload.resource_type, payload.resource_id], metadata: payload.metadata };
    case 'DeploymentReserved':
      return { by: payload.by, action: 'deployment.created', on: ['deployment', payload.id], metadata: { name: payload.name } };
    case 'MailGivenUp':
      return { action: 'mail.given_up', on: ['mail', payload.mail], metadata: { code: payload.code } };
    case 'SlugLost':
      return { action: 'organization.slug_lost', on: organization };
    case 'SlugStarted': case 'SlugFailed': case 'SlugKept':
    case 'DeploymentConfirmed': case 'DeploymentRemoved':
    case 'KeyUsed': case 'MailStarted': case 'MailSent': case 'MailFailed': case 'EraseStarted': case 'EraseFailed': case 'Erased': case 'PaymentsSettled':
      return undefined;
  }
};

/** The entry of an event; undefined for one that is no change. */
export const entryOf = (event: Event): AuditEntry | undefined => {
  const change = changeOf(event);
  if (change === undefined) return undefined;
  const { by, action, on: [resourceType, resourceId], metadata = {} } = change;
  return {
    id: event.id, organizationId: event.key, actorId: by?.actor ?? 'system', action, resourceType, resourceId, metadata: { ...metadata },
    ipAddress: by?.ip ?? '', userAgent: by?.user_agent ?? '', createdAt: event.at.toISOString(),
  };
};

export const auditProjection = (options: JournaledOptions): Projection => ({
  name: 'audit',
  type: 'organization',
  apply: async (tx, commits) => {
    for (const event of journaled(organizationEvents, commits, options)) {
      const entry = entryOf(event);
      if (entry === undefined) continue;
      await tx`
        insert into troupe.audit (organization_id, id, actor_id, action, resource_type, resource_id, metadata, ip_address, user_agent, created_at)
        values (${entry.organizationId}, ${entry.id}, ${storable(entry.actorId)}, ${storable(entry.action)}, ${storable(entry.resourceType)}, ${storable(entry.resourceId)},
          ${JSON.stringify(entry.metadata)}::text::json, ${storable(entry.ipAddress)}, ${storable(entry.userAgent)}, ${event.at})
        on conflict do nothing`;
    }
  },
  clear: async (tx) => {
    await tx`delete from troupe.audit`;
  },
});

interface Row {
  readonly id: string;
  readonly actor_id: string;
  readonly action: string;
  readonly resource_type: string;
  readonly resource_id: string;
  readonly metadata: Record<string, unknown>;
  readonly ip_address: string;
  readonly user_agent: string;
  readonly created_at: Date;
}

export interface AuditQuery {
  readonly organizationId: string;
  readonly limit: number;
  /** Bytes of the entries' metadata and user agents together, of which the first entry is always there. More are left for the next page. */
  readonly bytes: number;
  /** Id of the last entry of the page before. */
  readonly cursor?: string | undefined;
}

export interface AuditPage {
  readonly entries: readonly AuditEntry[];
  /** There are older ones. */
  readonly more: boolean;
}

interface SizedRow extends Row {
  /** Rows found, and which of them this is. */
  readonly found: string;
  readonly nth: string;
}

/** One organization's entries, newest first. What is too much is left in the database. Throws `upstream_unavailable`. */
export const readAudit = async (sql: Sql, { organizationId, limit, bytes, cursor }: AuditQuery): Promise<AuditPage> => {
  const rows = await answered(sql<SizedRow[]>`
    select * from (
      select *, count(*) over () as found, row_number() over (order by id desc) as nth,
        sum(octet_length(metadata::text) + octet_length(user_agent)) over (order by id desc) as bytes
      from (
        select id, actor_id, action, resource_type, resource_id, metadata, ip_address, user_agent, created_at from troupe.audit
        where organization_id = ${organizationId} ${cursor === undefined ? sql`` : sql`and id < ${cursor}`}
        order by id desc limit ${limit + 1}
      ) page
    ) sized where nth = 1 or (nth <= ${limit} and bytes <= ${bytes}) order by id desc`);
  return {
    more: Number(rows[0]?.found ?? 0) > rows.length,
    entries: rows.map((row) => ({
      id: row.id, organizationId, actorId: row.actor_id, action: row.action, resourceType: row.resource_type, resourceId: row.resource_id,
      metadata: row.metadata, ipAddress: row.ip_address, userAgent: row.user_agent, createdAt: row.created_at.toISOString(),
    })),
  };
};
