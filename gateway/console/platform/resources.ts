/** The platform's resources as the console reads and names them: one reader for each, tied to the contract's type. */
import type { z } from 'zod';
import type { apiKey, auditEntry, invitation, member, organization, organizationCreated, organizationListed } from '../../../contracts/organization.ts';
import { roles } from '../../../contracts/roles.ts';
import type { grant } from '../../../contracts/user.ts';
import { anyFields, fields, flag, list, number, oneOf, orNull, text, type Read } from '../read.ts';

export type Listed = z.output<typeof organizationListed>;
export type Organization = z.output<typeof organization>;
export type Created = z.output<typeof organizationCreated>;
export type Member = z.output<typeof member>;
export type Invitation = z.output<typeof invitation>;
export type Key = z.output<typeof apiKey>;
export type Entry = z.output<typeof auditEntry>;
export type Grant = z.output<typeof grant>;
export interface Webhook {
  readonly url: string | null;
  readonly secret: string;
  readonly deadLetters: readonly { readonly id: string; readonly type: string; readonly created: string; readonly attempts: number; readonly lastError: string }[];
}

const plan = oneOf(['free', 'pro', 'team', 'enterprise']);
const role = oneOf(roles);

export const readListed: Read<Listed> = fields<Listed>({ id: text, name: text, slug: text, plan, role, memberCount: number, createdAt: text });
export const readCreated: Read<Created> = fields<Created>({ id: text, name: text, slug: text, plan, createdAt: text });
export const readOrganization: Read<Organization> = fields<Organization>({
  id: text, name: text, slug: text, plan, memberCount: number, createdAt: text,
  settings: fields<Organization['settings']>({ defaultModel: text, sharedMemory: flag, webhookUrl: orNull(text), retentionDays: orNull(number) }),
});
export const readMember: Read<Member> = fields<Member>({ userId: text, name: text, email: text, role, joinedAt: text });
export const readInvitation: Read<Invitation> = fields<Invitation>({
  id: text, email: text, role, status: oneOf(['pending', 'accepted', 'expired', 'revoked']), expiresAt: text,
});
export const readKey: Read<Key> = fields<Key>({
  id: text, name: text, keyPrefix: text, scopes: list(text), createdBy: text, lastUsedAt: orNull(text), revokedAt: orNull(text), createdAt: text,
});
export const readEntry: Read<Entry> = fields<Entry>({
  id: text, organizationId: text, actorId: text, action: text, resourceType: text, resourceId: text, metadata: anyFields, ipAddress: text, userAgent: text, createdAt: text,
});
export const readGrant: Read<Grant> = fields<Grant>({
  id: text, kind: oneOf(['browser', 'device', 'api-token']), clientId: text, createdAt: text, lastUsedAt: orNull(text), expiresAt: text, ipAddress: text, userAgent: text, current: flag,
});
export const readWebhook: Read<Webhook> = fields<Webhook>({
  url: orNull(text), secret: text, deadLetters: list(fields({ id: text, type: text, created: text, attempts: number, lastError: text })),
});

/** A time as this browser writes it. */
export const when = (iso: string): string => new Date(iso).toLocaleString(undefined, { dateStyle: 'medium', timeStyle: 'short' });
export const day = (iso: string): string => new Date(iso).toLocaleDateString(undefined, { dateStyle: 'medium' });
