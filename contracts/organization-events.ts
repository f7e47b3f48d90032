/**
 * What an organization journals. Each change says in `by` who made it, from where: the audit log is made of these events.
 *
 * Holds no secret: of API keys the SHA-256, of invitations no token. `MemberRemoved`, `MemberRoleChanged`, `OwnershipTransferred`, `KeyRevoked` and
 * `OrganizationDeleted` are what ends or narrows access: who keeps something open for a member (a stream) watches for them.
 */
import { z } from 'zod';
import { planLimits, planName, settingsPatch } from './organization.ts';
import { keyScope, role } from './permissions.ts';
import { by } from './platform.ts';

export const organizationEvents = {
  /** `by` = the owner, with e-mail and name. */
  OrganizationCreated: z.strictObject({ name: z.string(), slug: z.string(), default_model: z.string(), by }),
  /** A try to take the slug for good has begun, has failed, has succeeded; or somebody else has it. */
  SlugStarted: z.strictObject({}),
  SlugFailed: z.strictObject({ code: z.string(), due: z.int() }),
  SlugKept: z.strictObject({}),
  SlugLost: z.strictObject({}),
  /** What is absent stays. */
  OrganizationUpdated: z.strictObject({ name: z.string().optional(), settings: settingsPatch.optional(), by }),

  /** `expires_at`: Unix milliseconds. */
  MemberInvited: z.strictObject({ id: z.string(), email: z.string(), role, expires_at: z.int(), by }),
  /** `replaced`: by a new invitation of the same address; `orphaned`: whoever invited may no more, by what `by` did. */
  InvitationRevoked: z.strictObject({ id: z.string(), replaced: z.boolean(), orphaned: z.boolean().optional(), by }),
  InvitationExpired: z.strictObject({ id: z.string() }),
  MemberJoined: z.strictObject({ user_id: z.string(), name: z.string(), email: z.string(), role, invitation_id: z.string(), by }),
  MemberRoleChanged: z.strictObject({ user_id: z.string(), from: role, to: role, by }),
  /** By themselves: they left. */
  MemberRemoved: z.strictObject({ user_id: z.string(), role, by }),
  /** `to` is owner from here on, `from` admin; `was` = the former role of `to`. */
  OwnershipTransferred: z.strictObject({ from: z.string(), to: z.string(), was: role, by }),

  /** `created_by`: the person, also when a key made the key. */
  KeyCreated: z.strictObject({
    id: z.string(), name: z.string(), scopes: z.array(keyScope), key_prefix: z.string(), key_sha256: z.string(), created_by: z.string(), by,
  }),
  KeyRevoked: z.strictObject({ id: z.string(), by }),
  /** At most once in `limits.keyUseNotedMs`. */
  KeyUsed: z.strictObject({ id: z.string() }),

  PlanSet: z.strictObject({ plan: planName, limits: planLimits.optional(), reason: z.string(), revision: z.string().optional() }),
  /** What other parts did. */
  Noted: z.strictObject({ action: z.string(), resource_type: z.string(), resource_id: z.string(), metadata: z.record(z.string(), z.unknown()), by }),

  /** A place for a deployment; confirmed by the deployment, free again when its data is erased. */
  DeploymentReserved: z.strictObject({ id: z.string(), name: z.string(), by }),
  DeploymentConfirmed: z.strictObject({ id: z.string() }),
  DeploymentRemoved: z.strictObject({ id: z.string() }),

  OrganizationDeleted: z.strictObject({ by }),

  /** `mail` = the invitation's id, or the id of the member who is told of the deletion. */
  MailStarted: z.strictObject({ mail: z.string() }),
  MailSent: z.strictObject({ mail: z.string() }),
  /** `due`: Unix milliseconds of the next try. */
  MailFailed: z.strictObject({ mail: z.string(), code: z.string(), due: z.int() }),
  MailGivenUp: z.strictObject({ mail: z.string(), code: z.string() }),

  /** No subscription is left. */
  PaymentsSettled: z.strictObject({}),

  /** Erasing the deleted organization's data, twice: at once, and again for what was still under way. */
  EraseStarted: z.strictObject({ pass: z.int() }),
  EraseFailed: z.strictObject({ pass: z.int(), code: z.string(), due: z.int() }),
  /** `due`: of the next pass; null = the last is done. */
  Erased: z.strictObject({ pass: z.int(), due: z.int().nullable() }),
} as const;
export type OrganizationEvents = typeof organizationEvents;
