/**
 * The platform's routes of organizations (interface 4.3; decisions, Organizations and Small print). Bearer required; membership and
 * permission are the organization actor's business. Body errors are `validation_error` with status 400 here (interface 7.2).
 */
import { z } from 'zod';
import { coded } from './errors.ts';
import { isOrganizationId } from './ids.ts';
import { limits } from './limits.ts';
import {
  apiKey, auditEntry, invitation, member, organization, organizationBodies as bodies, organizationCommands as commands, organizationCreated,
  organizationListed, organizationQueries as queries,
} from './organization.ts';
import { byOf, platformRoute, type Caller, type PlatformAsk, type PlatformAuth, type PlatformRequest, type RequestContext } from './platform.ts';

/** Address of an organization's actor; `not_found` for what cannot be an id, as for an organization that does not exist. */
export const organizationAddress = (id: string): PlatformAsk['actor'] => {
  if (!isOrganizationId(id)) throw coded('not_found');
  return { org: id, type: 'organization', key: id };
};

/** Address of an organization for a caller: an API key reaches its own only, every other is `not_found` for it. */
export const organizationReached = (caller: Caller, orgId: string): PlatformAsk['actor'] => {
  if (caller.kind === 'key' && caller.organizationId !== orgId) throw coded('not_found');
  return organizationAddress(orgId);
};

const ask = (request: { readonly caller: Caller; readonly context: RequestContext }, orgId: string, command: keyof typeof commands, input: object): PlatformAsk =>
  ({ actor: organizationReached(request.caller, orgId), command, input: { ...input, by: byOf(request.caller, request.context) } });

const common = { surface: 'platform', auth: { kind: 'access' } satisfies PlatformAuth, bodyMaxBytes: limits.bodyMaxBytes, invalidStatus: 400 } as const;
const usual = ['unauthorized', 'forbidden', 'not_found', 'validation_error'] as const;
const gone = z.strictObject({});
type Of<Body> = PlatformRequest<unknown, Body>;

export const organizationRoutes = {
  readOrganization: platformRoute({
    ...common, id: 'organization', wire: 140, method: 'GET', path: '/api/organization', summary: 'The caller\'s organizations; with orgId, that one with its settings.',
    query: queries.list, answers: { 200: z.union([z.strictObject({ organizations: z.array(organizationListed) }), organization]) }, errors: [...usual], serve: { by: 'daemon' },
  }),
  createOrganization: platformRoute({
    ...common, id: 'create_organization', wire: 141, method: 'POST', path: '/api/organization', summary: 'Makes an organization of plan free; the caller becomes its owner.',
    body: bodies.create, answers: { 201: organizationCreated }, errors: ['unauthorized', 'forbidden', 'validation_error', 'conflict', 'plan_limit'], serve: { by: 'daemon' },
  }),
  updateOrganization: platformRoute({
    ...common, id: 'update_organization', wire: 142, method: 'PATCH', path: '/api/organization', summary: 'Changes name or settings; what is omitted stays. retentionDays is the owner\'s.',
    body: bodies.update, answers: { 200: organization }, errors: [...usual], serve: { by: 'daemon' },
  }),
  deleteOrganization: platformRoute({
    ...common, id: 'delete_organization', wire: 143, method: 'DELETE', path: '/api/organization', summary: 'Deletes it and all its data for good; members are mailed.',
    body: bodies.remove, answers: { 200: gone }, errors: [...usual],
    serve: { by: 'actor', call: (r: Of<z.output<typeof bodies.remove>>) => ask(r, r.body.orgId, 'remove', {}) },
  }),
  members: platformRoute({
    ...common, id: 'members', wire: 144, method: 'GET', path: '/api/organization/members', summary: 'Its members.',
    query: queries.one, answers: { 200: z.strictObject({ members: z.array(member) }) }, errors: [...usual],
    serve: { by: 'actor', call: (r: PlatformRequest<z.output<typeof queries.one>>) => ask(r, r.query.orgId, 'members', {}) },
  }),
  invite: platformRoute({
    ...common, id: 'invite', wire: 145, method: 'POST', path: '/api/organization/members', summary: 'Invites an e-mail address: a link is mailed, valid for 14 days.',
    body: bodies.invite, answers: { 200: z.strictObject({ invitation }) }, errors: [...usual, 'conflict', 'plan_limit'], serve: { by: 'daemon' },
  }),
  updateMember: platformRoute({
    ...common, id: 'update_member', wire: 146, method: 'PATCH', path: '/api/organization/members', summary: 'Changes a member\'s role.',
    body: bodies.updateMember, answers: { 200: member }, errors: [...usual],
    serve: { by: 'actor', call: (r: Of<z.output<typeof bodies.updateMember>>) => ask(r, r.body.orgId, 'update_member', { user_id: r.body.userId, role: r.body.role }) },
  }),
  removeMember: platformRoute({
    ...common, id: 'remove_member', wire: 147, method: 'DELETE', path: '/api/organization/members', summary: 'Removes a member: access ends at once.',
    body: bodies.removeMember, answers: { 200: gone }, errors: [...usual],
    serve: { by: 'actor', call: (r: Of<z.output<typeof bodies.removeMember>>) => ask(r, r.body.orgId, 'remove_member', { user_id: r.body.userId }) },
  }),
  leave: platformRoute({
    ...common, id: 'leave', wire: 160, method: 'POST', path: '/api/organization/leave', summary: 'The caller leaves an organization; the last owner cannot.',
    body: bodies.leave, answers: { 200: gone }, errors: [...usual],
    serve: { by: 'actor', call: (r: Of<z.output<typeof bodies.leave>>) => ask(r, r.body.orgId, 'leave', {}) },
  }),
  acceptInvitation: platformRoute({
    ...common, id: 'accept_invitation', wire: 148, method: 'POST', path: '/api/organization/invitations/accept', summary: 'The invited person joins.',
    body: bodies.accept, answers: { 200: z.strictObject({ organization: organizationListed }) },
    errors: [...usual, 'conflict', 'plan_limit'], serve: { by: 'daemon' },
  }),
  join: platformRoute({
    ...common, auth: { kind: 'cookie' }, id: 'join', wire: 159, method: 'POST', path: '/invite', summary: 'The button of the invitation\'s page: the same, by the browser session.',
    body: bodies.accept, form: true, answers: { 200: z.strictObject({ organization: organizationListed }) },
    errors: [...usual, 'conflict', 'plan_limit'], serve: { by: 'daemon' },
  }),
  invitations: platformRoute({
    ...common, id: 'invitations', wire: 149, method: 'GET', path: '/api/organization/invitations', summary: 'Its invitations and what became of them (member.invite).',
    query: queries.one, answers: { 200: z.strictObject({ invitations: z.array(invitation) }) }, errors: [...usual],
    serve: { by: 'actor', call: (r: PlatformRequest<z.output<typeof queries.one>>) => ask(r, r.query.orgId, 'invitations', {}) },
  }),
  revokeInvitation: platformRoute({
    ...common, id: 'revoke_invitation', wire: 150, method: 'DELETE', path: '/api/organization/invitations', summary: 'Takes a pending invitation back.',
    body: bodies.revokeInvitation, answers: { 200: z.strictObject({ invitation }) }, errors: [...usual],
    serve: { by: 'actor', call: (r: Of<z.output<typeof bodies.revokeInvitation>>) => ask(r, r.body.orgId, 'revoke_invitation', { invitation_id: r.body.invitationId }) },
  }),
  showInvitation: platformRoute({
    ...common, auth: { kind: 'none' }, id: 'show_invitation', wire: 151, method: 'POST', path: '/api/organization/invitations/show',
    summary: 'What an invitation\'s link stands for, for whoever has its token.',
    body: bodies.accept, answers: { 200: z.strictObject({ organizationName: z.string(), invitation }) }, errors: ['not_found', 'validation_error'], serve: { by: 'daemon' },
  }),
  transfer: platformRoute({
    ...common, id: 'transfer', wire: 152, method: 'POST', path: '/api/organization/transfer', summary: 'Makes a member the owner; the caller becomes admin.',
    body: bodies.transfer, answers: { 200: member }, errors: [...usual],
    serve: { by: 'actor', call: (r: Of<z.output<typeof bodies.transfer>>) => ask(r, r.body.orgId, 'transfer', { user_id: r.body.userId }) },
  }),
  apiKeys: platformRoute({
    ...common, id: 'api_keys', wire: 153, method: 'GET', path: '/api/organization/api-keys', summary: 'Its API keys, without the keys (api_key.create).',
    query: queries.one, answers: { 200: z.strictObject({ keys: z.array(apiKey) }) }, errors: [...usual],
    serve: { by: 'actor', call: (r: PlatformRequest<z.output<typeof queries.one>>) => ask(r, r.query.orgId, 'keys', {}) },
  }),
  createKey: platformRoute({
    ...common, id: 'create_key', wire: 154, method: 'POST', path: '/api/organization/api-keys', summary: 'Makes an API key: `key` is in this answer only.',
    body: bodies.createKey, answers: { 201: apiKey.extend({ key: z.string() }) }, errors: [...usual, 'plan_limit'], serve: { by: 'daemon' },
  }),
  revokeKey: platformRoute({
    ...common, id: 'revoke_key', wire: 155, method: 'DELETE', path: '/api/organization/api-keys', summary: 'Revokes an API key.',
    body: bodies.revokeKey, answers: { 200: apiKey }, errors: [...usual],
    serve: { by: 'actor', call: (r: Of<z.output<typeof bodies.revokeKey>>) => ask(r, r.body.orgId, 'revoke_key', { key_id: r.body.id }) },
  }),
  audit: platformRoute({
    ...common, id: 'audit', wire: 156, method: 'GET', path: '/api/organization/audit', summary: 'Its audit log, newest first, page by page; `format` csv or jsonl exports all of it (audit.export).',
    query: queries.audit,
    answers: { 200: z.union([z.strictObject({ entries: z.array(auditEntry), nextCursor: z.string().nullable() }), z.string()]) }, errors: [...usual, 'payload_too_large'], serve: { by: 'daemon' },
  }),
  webhook: platformRoute({
    ...common, id: 'webhook', wire: 157, method: 'GET', path: '/api/organization/webhook', summary: 'The webhook\'s address, its signing secret and its dead letters (org.update).',
    query: queries.one,
    answers: {
      200: z.strictObject({
        url: z.string().nullable(), secret: z.string(),
        deadLetters: z.array(z.strictObject({ id: z.string(), type: z.string(), created: z.iso.datetime(), attempts: z.int(), lastError: z.string() })),
      }),
    },
    errors: [...usual], serve: { by: 'daemon' },
  }),
  redeliver: platformRoute({
    ...common, id: 'webhook_redeliver', wire: 158, method: 'POST', path: '/api/organization/webhook/redeliver', summary: 'Tries a dead letter again, with the same id (org.update).',
    body: bodies.redeliver, answers: { 200: gone }, errors: [...usual, 'conflict'], serve: { by: 'daemon' },
  }),
  rotateWebhookSecret: platformRoute({
    ...common, id: 'webhook_rotate_secret', wire: 161, method: 'POST', path: '/api/organization/webhook/secret',
    summary: 'Replaces the webhook\'s signing secret (org.update): deliveries are signed by both until `formerValidUntil`, 24 hours later.',
    body: bodies.rotateSecret, answers: { 200: z.strictObject({ secret: z.string(), formerValidUntil: z.iso.datetime() }) }, errors: [...usual], serve: { by: 'daemon' },
  }),
} as const;
