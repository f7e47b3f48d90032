/**
 * The organization actor's contract, and the shapes of its HTTP resources (interface 2.5-2.7, 4.3; decisions, Organizations, RBAC).
 * Org token = key = the organization's id. Every command is for the daemon (access `system`) and says in `by` who asks; membership and
 * permission are decided in the turn, so that they are those of this moment.
 *
 * Refusals: `not_found` for a non-member as for an organization that does not exist, `forbidden` below the permission, `conflict`,
 * `validation_error`, `plan_limit` {limit, upgradeUrl}.
 */
import { z } from 'zod';
import { displayName, email, slug } from './ids.ts';
import { limits } from './limits.ts';
import { keyScope, role } from './permissions.ts';
import { by } from './platform.ts';
import { webhookUrl } from './webhook.ts';

export const planName = z.enum(['free', 'pro', 'team', 'enterprise']);
export type PlanName = z.infer<typeof planName>;

/** Of an enterprise contract; -1 = unlimited. */
export const planLimits = z.strictObject({
  perMinute: z.int().min(-1), perDay: z.int().min(-1), maxApiKeys: z.int().min(-1), maxMembers: z.int().min(-1), credits: z.int().nonnegative(),
});
export type PlanLimits = z.infer<typeof planLimits>;

const iso = z.iso.datetime();

export const organizationSettings = z.strictObject({
  defaultModel: z.string(), sharedMemory: z.boolean(), webhookUrl: z.string().nullable(),
  /** Days that conversations and memories are kept; null = for ever. */
  retentionDays: z.int().positive().nullable(),
});
export type OrganizationSettings = z.infer<typeof organizationSettings>;

/** As it is sent: omitted keys stay as they are. The daemon checks `defaultModel` against the registry. */
export const settingsPatch = z.strictObject({
  defaultModel: z.string().min(1).max(limits.idMaxChars).optional(),
  sharedMemory: z.boolean().optional(),
  webhookUrl: webhookUrl.nullable().optional(),
  retentionDays: z.int().min(1).max(limits.retentionDaysMax).nullable().optional(),
});

export const organization = z.strictObject({
  id: z.string(), name: z.string(), slug: z.string(), plan: planName, memberCount: z.int(), createdAt: iso, settings: organizationSettings,
});
export const organizationCreated = z.strictObject({ id: z.string(), name: z.string(), slug: z.string(), plan: planName, createdAt: iso });
/** In the caller's list. */
export const organizationListed = z.strictObject({
  id: z.string(), name: z.string(), slug: z.string(), plan: planName, role, memberCount: z.int(), createdAt: iso,
});
export const member = z.strictObject({ userId: z.string(), name: z.string(), email: z.string(), role, joinedAt: iso });
export type Member = z.infer<typeof member>;
export const invitationStatus = z.enum(['pending', 'accepted', 'expired', 'revoked']);
export const invitation = z.strictObject({ id: z.string(), email: z.string(), role, status: invitationStatus, expiresAt: iso });
export const apiKey = z.strictObject({
  id: z.string(), name: z.string(), keyPrefix: z.string(), scopes: z.array(z.string()), createdBy: z.string(),
  lastUsedAt: iso.nullable(), revokedAt: iso.nullable(), createdAt: iso,
});
export const auditEntry = z.strictObject({
  id: z.string(), organizationId: z.string(), actorId: z.string(), action: z.string(), resourceType: z.string(), resourceId: z.string(),
  metadata: z.record(z.string(), z.unknown()), ipAddress: z.string(), userAgent: z.string(), createdAt: iso,
});
export type AuditEntry = z.infer<typeof auditEntry>;

/** An id of any text: one that cannot be an id is `not_found`, as an unknown one. */
const anyId = z.string().min(1).max(limits.idMaxChars);

/** Bodies and queries of the routes. */
export const organizationBodies = {
  create: z.strictObject({ name: displayName, slug }),
  update: z.strictObject({ orgId: anyId, name: displayName.optional(), settings: settingsPatch.optional() }),
  remove: z.strictObject({ orgId: anyId }),
  invite: z.strictObject({ orgId: anyId, email, role: z.enum(['admin', 'member', 'viewer']).default('member') }),
  updateMember: z.strictObject({ orgId: anyId, userId: anyId, role }),
  removeMember: z.strictObject({ orgId: anyId, userId: anyId }),
  leave: z.strictObject({ orgId: anyId }),
  accept: z.strictObject({ token: z.string().min(1).max(limits.bearerMaxBytes) }),
  revokeInvitation: z.strictObject({ orgId: anyId, invitationId: anyId }),
  transfer: z.strictObject({ orgId: anyId, userId: anyId }),
  createKey: z.strictObject({ orgId: anyId, name: displayName, scopes: z.array(keyScope).min(1).max(limits.keyScopesMax) }),
  revokeKey: z.strictObject({ orgId: anyId, id: anyId }),
  redeliver: z.strictObject({ orgId: anyId, id: anyId }),
  rotateSecret: z.strictObject({ orgId: anyId }),
} as const;

export const organizationQueries = {
  one: z.strictObject({ orgId: anyId }),
  list: z.strictObject({ orgId: anyId.optional() }),
  audit: z.strictObject({
    orgId: anyId, format: z.enum(['csv', 'jsonl']).optional(),
    /** As text from outside; the number it is stays one when it is parsed again. */
    limit: z.union([z.string().regex(/^[1-9]\d{0,3}$/).transform(Number), z.int().positive()]).refine((n) => n <= limits.auditListMax).optional(),
    /** Id of the last entry of the page before. */
    cursor: z.string().regex(/^[0-7][0-9A-HJKMNP-TV-Z]{25}$/).optional(),
  }),
} as const;

const asked = <Shape extends z.ZodRawShape>(shape: Shape) => z.strictObject({ ...shape, by });
const nothing = z.strictObject({});

export const organizationCommands = {
  /** Makes it; `by` becomes owner. The slug has been claimed in the organization's name before. `conflict` if the id is taken. */
  create: { input: asked({ name: z.string(), slug: z.string(), default_model: z.string() }), output: organizationCreated },
  read: { input: asked({}), output: organization },
  update: { input: asked({ name: z.string().optional(), settings: settingsPatch.optional() }), output: organization },
  /** Tombstones: from here on everything is `not_found`; purge and mails follow durably. */
  remove: { input: asked({}), output: nothing },
  members: { input: asked({}), output: z.strictObject({ members: z.array(member) }) },
  update_member: { input: asked({ user_id: z.string(), role }), output: member },
  remove_member: { input: asked({ user_id: z.string() }), output: nothing },
  /** `by` goes by itself; the last owner cannot. */
  leave: { input: asked({}), output: nothing },
  /** The member becomes owner, `by` admin. */
  transfer: { input: asked({ user_id: z.string() }), output: member },
  /** The link's token is derived from the ids (daemon), mailed as an effect and stored nowhere. A pending one of the same address is revoked. */
  invite: { input: asked({ id: z.string(), email: z.string(), role }), output: z.strictObject({ invitation }) },
  invitations: { input: asked({}), output: z.strictObject({ invitations: z.array(invitation) }) },
  revoke_invitation: { input: asked({ invitation_id: z.string() }), output: z.strictObject({ invitation }) },
  /** `by` is the person who accepts (its e-mail is that of the invitation, else `forbidden`); the token was verified by the daemon. */
  accept: { input: asked({ invitation_id: z.string() }), output: z.strictObject({ organization: organizationListed }) },
  /** What an invitation says to somebody who has its token: nothing of the organization but its name. */
  show_invitation: { input: z.strictObject({ invitation_id: z.string() }), output: z.strictObject({ organizationName: z.string(), invitation }) },
  create_key: {
    input: asked({ id: z.string(), name: z.string(), scopes: z.array(keyScope), key_prefix: z.string(), key_sha256: z.string() }),
    output: apiKey,
  },
  keys: { input: asked({}), output: z.strictObject({ keys: z.array(apiKey) }) },
  revoke_key: { input: asked({ key_id: z.string() }), output: apiKey },
  /** Whose key this is, if it is a valid one; notes its use. `unauthorized` otherwise. */
  verify_key: {
    input: z.strictObject({ key_sha256: z.string() }),
    output: z.strictObject({ key_id: z.string(), scopes: z.array(keyScope), created_by: z.string() }),
  },
  /** Passes if `by` has the permission now; what the caller's requests may cost. For everything that is not a command of this actor (chat, sessions, audit). */
  authorise: {
    input: asked({ permission: z.string() }),
    output: z.strictObject({ role: role.nullable(), plan: planName, limits: planLimits, default_model: z.string(), name: z.string() }),
  },
  /** A place for a deployment that is about to be made (instance.provision). `plan_limit`: the plan has none, or there are `limits.deploymentsMax`. Lapses unless confirmed. */
  reserve_deployment: { input: asked({ id: z.string(), name: z.string() }), output: nothing },
  /** The deployment is there. `managed`: the plan has deployments now. `not_found` if no place is kept for it. */
  confirm_deployment: { input: z.strictObject({ id: z.string() }), output: z.strictObject({ managed: z.boolean() }) },
  /** Its data is erased: its place is free. */
  remove_deployment: { input: z.strictObject({ id: z.string() }), output: nothing },
  /** Ids of its deployments, in the order they were made (org.read). */
  deployments: { input: asked({}), output: z.strictObject({ ids: z.array(z.string()) }) },
  /**
   * Sets the plan; custom limits only with enterprise. `revision` (ULID): of payments, whose words may overtake each other: a lower one than one
   * taken before is late and changes nothing, and none of them ends a contract with limits of its own, which is set by hand.
   */
  set_plan: { input: z.strictObject({ plan: planName, limits: planLimits.optional(), reason: z.string(), revision: z.string().max(limits.idMaxChars).optional() }), output: nothing },
  /** Whether there is such an organization, and was. Journals nothing. */
  phase: { input: nothing, output: z.strictObject({ phase: z.enum(['none', 'live', 'deleted']) }) },
  /** Payments': of the deleted organization no subscription is left. */
  payments_settled: { input: nothing, output: nothing },
  /** Adds an entry to the audit log for what other parts did (exports, billing, deployments). */
  note: {
    input: asked({ action: z.string(), resource_type: z.string(), resource_id: z.string(), metadata: z.record(z.string(), z.unknown()) }),
    output: nothing,
  },
} as const;
