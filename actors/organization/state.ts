/**
 * What an organization remembers, and how its events change it. Pure and total; bounded by `limits.organization*`, which the commands keep,
 * but for what has ended (invitations, revoked keys), of which the oldest are forgotten here.
 *
 *   none ─OrganizationCreated─▶ live ─OrganizationDeleted─▶ deleted (a tombstone, for good)
 */
import type { PlanLimits, PlanName } from '../../contracts/organization.ts';
import type { OrganizationEvents } from '../../contracts/organization-events.ts';
import type { KeyScope, Role } from '../../contracts/permissions.ts';
import { limits } from '../../contracts/limits.ts';
import type { EventMeta, PayloadOf } from '../runtime/define.ts';

export interface MemberRecord {
  readonly user_id: string;
  readonly name: string;
  readonly email: string;
  readonly role: Role;
  /** Unix milliseconds, as all times here. */
  readonly joined_at: number;
}

export interface InvitationRecord {
  readonly id: string;
  readonly email: string;
  readonly role: Role;
  readonly status: 'pending' | 'accepted' | 'expired' | 'revoked';
  readonly expires_at: number;
  /** Id of who invites: a member, or an API key. */
  readonly inviter: string;
  /** Name or e-mail address of who invites: for the mail. */
  readonly by: string;
}

export interface KeyRecord {
  readonly id: string;
  readonly name: string;
  readonly scopes: readonly KeyScope[];
  readonly key_prefix: string;
  readonly key_sha256: string;
  readonly created_by: string;
  readonly created_at: number;
  readonly last_used_at: number | null;
  readonly revoked_at: number | null;
}

export interface Settings {
  readonly defaultModel: string;
  readonly sharedMemory: boolean;
  readonly webhookUrl: string | null;
  readonly retentionDays: number | null;
}

/** A mail that has not left: of a pending invitation, or of the deletion. */
export interface OutMail {
  /** Id of the invitation or of the member. */
  readonly mail: string;
  readonly since: number;
  readonly due: number;
  readonly attempts: number;
  readonly running: boolean;
}

export interface Live {
  readonly phase: 'live';
  readonly name: string;
  readonly slug: string;
  readonly plan: PlanName;
  /** The try to take the slug for good; null = it is taken, or somebody else has it. */
  readonly slug_claim: { readonly attempts: number; readonly due: number; readonly running: boolean } | null;
  /** Of the last word of payments about the plan; empty = none. */
  readonly plan_revision: string;
  /** Of an enterprise contract. */
  readonly own_limits: PlanLimits | null;
  readonly settings: Settings;
  /** Counts the changes of the webhook's URL. */
  readonly webhook_revision: number;
  readonly created_at: number;
  /** In the order they joined. */
  readonly members: readonly MemberRecord[];
  /** In the order they were made. */
  readonly invitations: readonly InvitationRecord[];
  readonly keys: readonly KeyRecord[];
  /** Places of deployments, in the order they were made. */
  readonly deployments: readonly { readonly id: string; readonly reserved_at: number; readonly confirmed: boolean }[];
  /** Invitations of one day (UTC, days since 1970). */
  readonly invited: { readonly day: number; readonly count: number };
  readonly outbox: readonly OutMail[];
}

export interface Erasure {
  readonly pass: number;
  readonly attempts: number;
  readonly due: number;
  readonly running: boolean;
}

export interface Deleted {
  readonly phase: 'deleted';
  readonly name: string;
  readonly by: string;
  /** Who is still to be told. */
  readonly members: readonly Pick<MemberRecord, 'user_id' | 'email'>[];
  readonly outbox: readonly OutMail[];
  /** Whether subscriptions are still to be cancelled: what knows them is not erased before. */
  readonly billed: boolean;
  /** Null = everything is erased. */
  readonly erasure: Erasure | null;
}

export type OrganizationState = { readonly phase: 'none' } | Live | Deleted;

type Payload<K extends keyof OrganizationEvents> = PayloadOf<OrganizationEvents[K]>;

export const dayOf = (at: number): number => Math.floor(at / 86_400_000);

/** What people call whoever did it: their name, else their address. */
export const shownName = (by: { readonly name?: string | undefined; readonly email?: string | undefined; readonly actor: string }): string =>
  [by.name, by.email].find((text) => text !== undefined && text !== '') ?? by.actor;

/** Applies to a live organization; others stay as they are. */
const live = (state: OrganizationState, change: (of: Live) => OrganizationState): OrganizationState => (state.phase === 'live' ? change(state) : state);

/** Without the oldest of those that have ended beyond the bound. */
const bounded = <T>(all: readonly T[], ended: (one: T) => boolean): readonly T[] => {
  let surplus = all.filter(ended).length - limits.organizationEndedMax;
  return surplus <= 0 ? all : all.filter((one) => !ended(one) || surplus-- <= 0);
};

const invitations = (of: Live, id: string, status: InvitationRecord['status']): Live => ({
  ...of,
  invitations: bounded(of.invitations.map((one) => (one.id === id ? { ...one, status } : one)), (one) => one.status !== 'pending'),
  // Nobody is to be mailed a link that does not work any more.
  outbox: of.outbox.filter(({ mail }) => mail !== id),
});

const keys = (of: Live, id: string, change: (key: KeyRecord) => KeyRecord): Live => ({
  ...of, keys: bounded(of.keys.map((key) => (key.id === id ? change(key) : key)), (key) => key.revoked_at !== null),
});

const roles = (of: Live, given: Readonly<Record<string, Role>>): Live => ({
  ...of, members: of.members.map((member) => ({ ...member, role: given[member.user_id] ?? member.role })),
});

const queued = (mail: string, at: number): OutMail => ({ mail, since: at, due: at, attempts: 0, running: false });

/** Of a live or a deleted organization. A deleted one forgets whom it has told. */
const outbox = (state: OrganizationState, mail: string, change: (of: OutMail) => OutMail | undefined): OrganizationState => {
  if (state.phase === 'none') return state;
  const next = state.outbox.flatMap((one) => (one.mail === mail ? change(one) ?? [] : [one]));
  if (state.phase === 'live') return { ...state, outbox: next };
  return { ...state, outbox: next, members: state.members.filter(({ user_id }) => next.some((one) => one.mail === user_id)) };
};

const erasure = (state: OrganizationState, change: (of: Erasure) => Erasure | null): OrganizationState =>
  (state.phase === 'deleted' && state.erasure !== null ? { ...state, erasure: change(state.erasure) } : state);

const slugClaim = (state: OrganizationState, change: (of: NonNullable<Live['slug_claim']>) => Live['slug_claim']): OrganizationState =>
  live(state, (of) => ({ ...of, slug_claim: of.slug_claim === null ? null : change(of.slug_claim) }));

/** Whether a deployment's place is still kept at a time. */
export const isKept = ({ confirmed, reserved_at: since }: Live['deployments'][number], at: number): boolean => confirmed || at - since < limits.deploymentReservedMs;

const patched = (settings: Settings, patch: Payload<'OrganizationUpdated'>['settings']): Settings => ({
  defaultModel: patch?.defaultModel ?? settings.defaultModel,
  sharedMemory: patch?.sharedMemory ?? settings.sharedMemory,
  webhookUrl: patch?.webhookUrl === undefined ? settings.webhookUrl : patch.webhookUrl,
  retentionDays: patch?.retentionDays === undefined ? settings.retentionDays : patch.retentionDays,
});

export const fold = {
  OrganizationCreated: (_state: OrganizationState, e: Payload<'OrganizationCreated'>, { at }: EventMeta): OrganizationState => ({
    phase: 'live', name: e.name, slug: e.slug, slug_claim: { attempts: 0, due: at, running: false }, plan: 'free', plan_revision: '', own_limits: null,
    settings: { defaultModel: e.default_model, sharedMemory: false, webhookUrl: null, retentionDays: null },
    webhook_revision: 0, created_at: at,
    members: [{ user_id: e.by.actor, name: e.by.name ?? '', email: e.by.email ?? '', role: 'owner', joined_at: at }],
    invitations: [], keys: [], deployments: [], invited: { day: dayOf(at), count: 0 }, outbox: [],
  }),
  SlugStarted: (state: OrganizationState): OrganizationState => slugClaim(state, (of) => ({ ...of, running: true })),
  SlugFailed: (state: OrganizationState, e: Payload<'SlugFailed'>): OrganizationState =>
    slugClaim(state, (of) => ({ attempts: of.attempts + 1, due: e.due, running: false })),
  SlugKept: (state: OrganizationState): OrganizationState => slugClaim(state, () => null),
  SlugLost: (state: OrganizationState): OrganizationState => slugClaim(state, () => null),
  OrganizationUpdated: (state: OrganizationState, e: Payload<'OrganizationUpdated'>): OrganizationState => live(state, (of) => {
    const settings = patched(of.settings, e.settings);
    return { ...of, name: e.name ?? of.name, settings, webhook_revision: of.webhook_revision + (settings.webhookUrl === of.settings.webhookUrl ? 0 : 1) };
  }),
  MemberInvited: (state: OrganizationState, e: Payload<'MemberInvited'>, { at }: EventMeta): OrganizationState => live(state, (of) => ({
    ...of,
    invitations: [...of.invitations, { id: e.id, email: e.email, role: e.role, status: 'pending', expires_at: e.expires_at, inviter: e.by.actor, by: shownName(e.by) }],
    invited: { day: dayOf(at), count: of.invited.day === dayOf(at) ? of.invited.count + 1 : 1 },
    outbox: [...of.outbox, queued(e.id, at)],
  })),
  InvitationRevoked: (state: OrganizationState, e: Payload<'InvitationRevoked'>): OrganizationState => live(state, (of) => invitations(of, e.id, 'revoked')),
  InvitationExpired: (state: OrganizationState, e: Payload<'InvitationExpired'>): OrganizationState => live(state, (of) => invitations(of, e.id, 'expired')),
  MemberJoined: (state: OrganizationState, e: Payload<'MemberJoined'>, { at }: EventMeta): OrganizationState => live(state, (of) => ({
    ...invitations(of, e.invitation_id, 'accepted'),
    members: [...of.members, { user_id: e.user_id, name: e.name, email: e.email, role: e.role, joined_at: at }],
  })),
  MemberRoleChanged: (state: OrganizationState, e: Payload<'MemberRoleChanged'>): OrganizationState => live(state, (of) => roles(of, { [e.user_id]: e.to })),
  MemberRemoved: (state: OrganizationState, e: Payload<'MemberRemoved'>): OrganizationState =>
    live(state, (of) => ({ ...of, members: of.members.filter(({ user_id }) => user_id !== e.user_id) })),
  OwnershipTransferred: (state: OrganizationState, e: Payload<'OwnershipTransferred'>): OrganizationState =>
    live(state, (of) => roles(of, { [e.from]: 'admin', [e.to]: 'owner' })),
  KeyCreated: (state: OrganizationState, e: Payload<'KeyCreated'>, { at }: EventMeta): OrganizationState => live(state, (of) => {
    const { by: _by, ...key } = e;
    return { ...of, keys: [...of.keys, { ...key, created_at: at, last_used_at: null, revoked_at: null }] };
  }),
  KeyRevoked: (state: OrganizationState, e: Payload<'KeyRevoked'>, { at }: EventMeta): OrganizationState =>
    live(state, (of) => keys(of, e.id, (key) => ({ ...key, revoked_at: at }))),
  KeyUsed: (state: OrganizationState, e: Payload<'KeyUsed'>, { at }: EventMeta): OrganizationState =>
    live(state, (of) => keys(of, e.id, (key) => ({ ...key, last_used_at: at }))),
  PlanSet: (state: OrganizationState, e: Payload<'PlanSet'>): OrganizationState =>
    live(state, (of) => ({ ...of, plan: e.plan, plan_revision: e.revision ?? of.plan_revision, own_limits: e.limits ?? null })),
  Noted: (state: OrganizationState): OrganizationState => state,
  DeploymentReserved: (state: OrganizationState, e: Payload<'DeploymentReserved'>, { at }: EventMeta): OrganizationState => live(state, (of) => ({
    ...of, deployments: [...of.deployments.filter((one) => isKept(one, at)), { id: e.id, reserved_at: at, confirmed: false }],
  })),
  DeploymentConfirmed: (state: OrganizationState, { id }: Payload<'DeploymentConfirmed'>): OrganizationState =>
    live(state, (of) => ({ ...of, deployments: of.deployments.map((one) => (one.id === id ? { ...one, confirmed: true } : one)) })),
  DeploymentRemoved: (state: OrganizationState, { id }: Payload<'DeploymentRemoved'>): OrganizationState =>
    live(state, (of) => ({ ...of, deployments: of.deployments.filter((one) => one.id !== id) })),
  OrganizationDeleted: (state: OrganizationState, e: Payload<'OrganizationDeleted'>, { at }: EventMeta): OrganizationState => live(state, (of) => ({
    phase: 'deleted', name: of.name, by: shownName(e.by),
    members: of.members.map(({ user_id, email }) => ({ user_id, email })),
    outbox: of.members.map(({ user_id }) => queued(user_id, at)),
    billed: of.plan_revision !== '', erasure: { pass: 1, attempts: 0, due: at, running: false },
  })),
  PaymentsSettled: (state: OrganizationState): OrganizationState => (state.phase === 'deleted' ? { ...state, billed: false } : state),
  MailStarted: (state: OrganizationState, e: Payload<'MailStarted'>): OrganizationState => outbox(state, e.mail, (mail) => ({ ...mail, running: true })),
  MailSent: (state: OrganizationState, e: Payload<'MailSent'>): OrganizationState => outbox(state, e.mail, () => undefined),
  MailFailed: (state: OrganizationState, e: Payload<'MailFailed'>): OrganizationState =>
    outbox(state, e.mail, (mail) => ({ ...mail, running: false, attempts: mail.attempts + 1, due: e.due })),
  MailGivenUp: (state: OrganizationState, e: Payload<'MailGivenUp'>): OrganizationState => outbox(state, e.mail, () => undefined),
  EraseStarted: (state: OrganizationState, e: Payload<'EraseStarted'>): OrganizationState => erasure(state, (of) => ({ ...of, pass: e.pass, running: true })),
  EraseFailed: (state: OrganizationState, e: Payload<'EraseFailed'>): OrganizationState =>
    erasure(state, (of) => ({ ...of, running: false, attempts: of.attempts + 1, due: e.due })),
  Erased: (state: OrganizationState, e: Payload<'Erased'>): OrganizationState =>
    erasure(state, () => (e.due === null ? null : { pass: e.pass + 1, attempts: 0, due: e.due, running: false })),
} as const;

export const initialOrganization = (): OrganizationState => ({ phase: 'none' });
