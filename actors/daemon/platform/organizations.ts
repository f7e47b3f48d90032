/**
 * Handlers of the organization routes that are more than one question to the organization's actor (interface 4.3; decisions).
 *
 * Guarantees: of several organizations made at once with one slug one is made; a slug whose organization was not made is free again. Who may
 * do what is the actor's word. Secrets that are shown (an API key, the webhook's) are made here and pass through no journal.
 */
import { randomUUID } from 'node:crypto';
import { coded, CodedError } from '../../../contracts/errors.ts';
import { idOf } from '../../../contracts/ids.ts';
import { limits } from '../../../contracts/limits.ts';
import { nameCommands } from '../../../contracts/name.ts';
import { organizationAddress, organizationReached, organizationRoutes as routes } from '../../../contracts/organization-routes.ts';
import { organizationCommands } from '../../../contracts/organization.ts';
import { upgradeUrl } from '../../../contracts/plans.ts';
import { byOf, type By } from '../../../contracts/platform.ts';
import type { ActorAddress } from '../../../contracts/subjects.ts';
import { webhookCommands } from '../../../contracts/webhook.ts';
import { endpointAllowance } from '../../allowance/address.ts';
import { nameAddress } from '../../name/address.ts';
import { webhookAddress } from '../../organization/notify.ts';
import { listOrganizations, ownedBy } from '../../projections/organizations.ts';
import { webhookSecret } from '../../webhook/signature.ts';
import { askBy } from './ask.ts';
import { auditHandlers, current } from './audit.ts';
import { personOf } from './callers.ts';
import type { PlatformDeps } from './deps.ts';
import { createInvitationTokens, newApiKey } from './organization-tokens.ts';
import { forAnyone, forCaller, type PlatformHandler, type PlatformHandlerRequest, type PlatformResult } from './serve.ts';
import { bodyOf, queryOf } from './typed.ts';

export type OrganizationHandlerDeps = Pick<PlatformDeps, 'models' | 'masterKey' | 'actors' | 'allowances' | 'projections' | 'newUlid'>;

export const organizationHandlers = (deps: OrganizationHandlerDeps): Readonly<Record<string, PlatformHandler>> => {
  const { actors, projections } = deps;
  const ask = askBy(actors, organizationCommands);
  const askWebhook = askBy(actors, webhookCommands);
  const invitations = createInvitationTokens(deps.masterKey);

  const reach = (request: PlatformHandlerRequest, orgId: string): { readonly address: ActorAddress; readonly by: By } =>
    ({ address: organizationReached(request.caller, orgId), by: byOf(request.caller, request.context) });

  /** Under an id, so that a repeat after a hand-over does nothing twice. */
  const once = (request: PlatformHandlerRequest, address: ActorAddress, command: string, input: unknown): Promise<unknown> =>
    actors.ask({ address, command, input, principal: { kind: 'system' }, id: randomUUID(), deadlineAt: request.deadlineAt, signal: request.signal });

  const list = async (request: PlatformHandlerRequest): Promise<PlatformResult> => {
    const { caller } = request;
    if (caller.kind === 'key') {
      const { address, by } = reach(request, caller.organizationId);
      const { settings: _settings, ...own } = await ask(address, 'read', { by });
      return { status: 200, body: { organizations: [{ ...own, role: 'admin' }] } };
    }
    await current(deps, 'organizations', undefined);
    return { status: 200, body: { organizations: await projections.read((sql) => listOrganizations(sql, caller.userId)) } };
  };

  const create = async (request: PlatformHandlerRequest): Promise<PlatformResult> => {
    const person = personOf(request.caller);
    const { name, slug } = bodyOf(routes.createOrganization, request);
    if (await projections.read((sql) => ownedBy(sql, person.userId)) >= limits.organizationsOwnedMax) {
      throw coded('plan_limit', 'You own too many organizations.', { details: { limit: limits.organizationsOwnedMax, upgradeUrl } });
    }
    const id = idOf('org', deps.newUlid());
    const slugAddress = nameAddress('slug', slug);
    const { mine } = nameCommands.claim.output.parse(await once(request, slugAddress, 'claim', { holder: id, forMs: limits.slugClaimMs }));
    if (!mine) throw coded('conflict', 'The slug is taken.', { details: { field: 'slug', constraint: 'unique' } });
    try {
      const input = { name, slug, default_model: deps.models.default, by: byOf(person, request.context) };
      return { status: 201, body: await once(request, organizationAddress(id), 'create', input) };
    } catch (error) {
      // A fault may have made it: then it confirms the slug itself; if not, the claim lapses.
      if (error instanceof CodedError && error.entry.kind === 'refusal') await once(request, slugAddress, 'release', { holder: id });
      throw error;
    }
  };

  const accept = async (request: PlatformHandlerRequest, token: string): Promise<PlatformResult> => {
    const person = personOf(request.caller);
    const invitation = invitations.read(token);
    if (invitation === undefined) throw coded('not_found', 'There is no such invitation.');
    const { organizationId, invitationId } = invitation;
    return { status: 200, body: await ask(organizationAddress(organizationId), 'accept', { invitation_id: invitationId, by: byOf(person, request.context) }) };
  };

  return {
    ...auditHandlers(deps),

    [routes.readOrganization.id]: forCaller(async (request) => {
      const { orgId } = queryOf(routes.readOrganization, request);
      if (orgId === undefined) return list(request);
      const { address, by } = reach(request, orgId);
      return { status: 200, body: await ask(address, 'read', { by }) };
    }),
    [routes.createOrganization.id]: forCaller(create),
    [routes.updateOrganization.id]: forCaller(async (request) => {
      const { orgId, name, settings } = bodyOf(routes.updateOrganization, request);
      const { address, by } = reach(request, orgId);
      const model = settings?.defaultModel;
      if (model !== undefined && !deps.models.ids.includes(model)) {
        throw coded('validation_error', 'There is no such model.', { details: { field: 'settings.defaultModel', constraint: 'model' } });
      }
      return { status: 200, body: await ask(address, 'update', { ...(name === undefined ? {} : { name }), ...(settings === undefined ? {} : { settings }), by }) };
    }),

    [routes.invite.id]: forCaller(async (request) => {
      const { orgId, email, role } = bodyOf(routes.invite, request);
      const { address, by } = reach(request, orgId);
      // First, so that nobody uses up an address's invitations who could not invite it.
      await ask(address, 'authorise', { permission: 'member.invite', by });
      await deps.allowances.take({ ...endpointAllowance('invited', email), signal: request.signal });
      return { status: 200, body: await once(request, address, 'invite', { id: idOf('inv', deps.newUlid()), email, role, by }) };
    }),
    [routes.acceptInvitation.id]: forCaller(async (request) => accept(request, bodyOf(routes.acceptInvitation, request).token)),
    [routes.join.id]: forCaller(async (request) => accept(request, bodyOf(routes.join, request).token)),
    [routes.showInvitation.id]: forAnyone(async (request) => {
      const invitation = invitations.read(bodyOf(routes.showInvitation, request).token);
      if (invitation === undefined) throw coded('not_found', 'There is no such invitation.');
      return { status: 200, body: await ask(organizationAddress(invitation.organizationId), 'show_invitation', { invitation_id: invitation.invitationId }) };
    }),

    [routes.createKey.id]: forCaller(async (request) => {
      const { orgId, name, scopes } = bodyOf(routes.createKey, request);
      const { address, by } = reach(request, orgId);
      const made = newApiKey(orgId);
      const input = { id: idOf('key', deps.newUlid()), name, scopes, key_prefix: made.prefix, key_sha256: made.sha256, by };
      const record = organizationCommands.create_key.output.parse(await once(request, address, 'create_key', input));
      return { status: 201, body: { ...record, key: made.key } };
    }),

    [routes.webhook.id]: forCaller(async (request) => {
      const { orgId } = queryOf(routes.webhook, request);
      const { address, by } = reach(request, orgId);
      // Changes nothing, needs org.update and gives the settings as they are now; the webhook may learn of its URL a moment later.
      const { settings } = await ask(address, 'update', { by });
      const [{ secret_version: version }, { dead_letters: dead }] = await Promise.all([
        askWebhook(webhookAddress(orgId), 'describe', {}), askWebhook(webhookAddress(orgId), 'dead_letters', {}),
      ]);
      const deadLetters = dead.map(({ id, type, created, attempts, last_error: lastError }) => ({ id, type, created, attempts, lastError }));
      return { status: 200, body: { url: settings.webhookUrl, secret: webhookSecret(deps.masterKey, orgId, version), deadLetters } };
    }),
    [routes.rotateWebhookSecret.id]: forCaller(async (request) => {
      const { orgId } = bodyOf(routes.rotateWebhookSecret, request);
      const { address, by } = reach(request, orgId);
      await ask(address, 'authorise', { permission: 'org.update', by });
      const { secret_version: version, former_until: until } = await askWebhook(webhookAddress(orgId), 'rotate', {}, 'once');
      await ask(address, 'note', { action: 'webhook.secret_rotated', resource_type: 'webhook', resource_id: orgId, metadata: { version }, by }, 'once');
      return { status: 200, headers: { 'cache-control': 'no-store' }, body: { secret: webhookSecret(deps.masterKey, orgId, version), formerValidUntil: new Date(until).toISOString() } };
    }),
    [routes.redeliver.id]: forCaller(async (request) => {
      const { orgId, id } = bodyOf(routes.redeliver, request);
      const { address, by } = reach(request, orgId);
      await ask(address, 'authorise', { permission: 'org.update', by });
      try {
        await askWebhook(webhookAddress(orgId), 'redeliver', { id });
      } catch (error) {
        // An id that is none is as one that is not there.
        if (error instanceof CodedError && error.code === 'bad_request') throw coded('not_found');
        throw error;
      }
      await ask(address, 'note', { action: 'webhook.redelivered', resource_type: 'webhook_event', resource_id: id, metadata: {}, by });
      return { status: 200, body: {} };
    }),
  };
};
