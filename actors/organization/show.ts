/** An organization's records as its answers show them (contracts/organization.ts): times in ISO 8601, nothing of a key but its prefix. */
import type { z } from 'zod';
import type { apiKey, invitation, Member, organization, organizationListed } from '../../contracts/organization.ts';
import type { Role } from '../../contracts/permissions.ts';
import type { InvitationRecord, KeyRecord, Live, MemberRecord } from './state.ts';

const iso = (at: number): string => new Date(at).toISOString();

export const shownOrganization = (id: string, of: Live): z.output<typeof organization> => ({
  id, name: of.name, slug: of.slug, plan: of.plan, memberCount: of.members.length, createdAt: iso(of.created_at), settings: { ...of.settings },
});

export const shownListed = (id: string, of: Live, role: Role): z.output<typeof organizationListed> => ({
  id, name: of.name, slug: of.slug, plan: of.plan, role, memberCount: of.members.length, createdAt: iso(of.created_at),
});

export const shownMember = (member: MemberRecord): Member => ({
  userId: member.user_id, name: member.name, email: member.email, role: member.role, joinedAt: iso(member.joined_at),
});

/** True if it can be accepted at a time: its end counts, not when the reminder notes it. */
export const isPending = (one: InvitationRecord, now: number): boolean => one.status === 'pending' && now < one.expires_at;

export const shownInvitation = (one: InvitationRecord, now: number): z.output<typeof invitation> => ({
  id: one.id, email: one.email, role: one.role, expiresAt: iso(one.expires_at),
  status: one.status === 'pending' && !isPending(one, now) ? 'expired' : one.status,
});

export const shownKey = (key: KeyRecord): z.output<typeof apiKey> => ({
  id: key.id, name: key.name, keyPrefix: key.key_prefix, scopes: [...key.scopes], createdBy: key.created_by, createdAt: iso(key.created_at),
  lastUsedAt: key.last_used_at === null ? null : iso(key.last_used_at), revokedAt: key.revoked_at === null ? null : iso(key.revoked_at),
});
