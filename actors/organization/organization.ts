/**
 * The organization actor: members, roles, invitations, keys, settings, plan. Org = key = the organization's id; contract:
 * contracts/organization.ts.
 *
 * Guarantees
 * O1  Every command decides from this state who `by` is and what they may (standing.ts); a change is journaled with `by`, which makes
 *     the audit log.
 * O2  Non-members and askers after an organization that was never made or is deleted get the same `not_found`.
 * O3  A deletion is a tombstone: from its turn on no key, member or invitation of it works. Slug, webhook and data go durably after it.
 * It holds no secret and reaches nobody itself: mails and erasure are effects, its name and its webhook are told.
 */
import { coded } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { organizationCommands } from '../../contracts/organization.ts';
import { organizationEvents } from '../../contracts/organization-events.ts';
import { planLimitsOf } from '../../contracts/plans.ts';
import { nameAddress } from '../name/address.ts';
import { paymentsAddress } from '../payments/address.ts';
import { defineActor } from '../runtime/define.ts';
import { erased, eraseOn, eraseOutput, isLastPass, type Erase } from './erasure.ts';
import { accept, expire, invite, revokeInvitation, showInvitation } from './invitations.ts';
import { createKey, revokeKey, verifyKey } from './keys.ts';
import { mailed, mailOutput, mailsOn, sendMail, type MailDeps } from './mails.ts';
import { leave, removeMember, transfer, updateMember } from './members.ts';
import { configure, notify, webhookAddress } from './notify.ts';
import { shownInvitation, shownKey, shownMember, shownOrganization } from './show.ts';
import { allowed, isPermission, liveOf, standingOf } from './standing.ts';
import { keepSlug, slugDone, slugOn, slugOutput } from './slug.ts';
import { grantCredits } from './credits.ts';
import { confirmDeployment, endDeployments, listDeployments, removeDeployment, reserveDeployment, tellPlan } from './deployments.ts';
import { fold, initialOrganization } from './state.ts';
import { retained, retainOn, retainOutput, type Retain } from './retention.ts';
import { eraseInput, mailInput, retainInput, slugInput } from './turn.ts';

export interface OrganizationDeps extends MailDeps {
  readonly erase: Erase;
  readonly retain: Retain;
}

/** The organization actor's definition. */
export const organization = (deps: OrganizationDeps) => defineActor({
  type: 'organization',
  events: organizationEvents,
  initial: initialOrganization,
  apply: fold,
  stateVersion: 5,
  effects: (effect) => ({
    mail: effect({ input: mailInput, output: mailOutput, once: 'at-least', deadlineMs: limits.mailDeadlineMs, run: sendMail(deps), done: mailed }),
    slug: effect({ input: slugInput, output: slugOutput, once: 'at-least', run: keepSlug, done: slugDone }),
    erase: effect({
      input: eraseInput, output: eraseOutput, once: 'at-least',
      run: async ({ self, signal }, { pass }) => {
        await deps.erase(self.key, isLastPass(pass), signal);
        return {};
      },
      done: erased,
    }),
    retain: effect({
      input: retainInput, output: retainOutput, once: 'at-least', deadlineMs: limits.effectDeadlineMs,
      run: ({ self, signal }, { days }) => deps.retain(self.key, days, signal), done: retained,
    }),
  }),
  commands: (command) => ({
    create: command({
      ...organizationCommands.create, access: 'system',
      handle: (turn, { name, slug, default_model: model, by }) => {
        if (turn.state.phase !== 'none') throw coded('conflict');
        if (by.scopes !== undefined || by.email === undefined) throw coded('forbidden');
        turn.emit('OrganizationCreated', { name, slug, default_model: model, by });
        slugOn(turn);
        const { id, plan, createdAt } = shownOrganization(turn.self.key, liveOf(turn.state));
        return { id, name, slug, plan, createdAt };
      },
    }),
    read: command({
      ...organizationCommands.read, access: 'system',
      handle: (turn, { by }) => shownOrganization(turn.self.key, allowed(turn.state, by, 'org.read').of),
    }),
    update: command({
      ...organizationCommands.update, access: 'system',
      handle: (turn, { by, name, settings }) => {
        const { of } = allowed(turn.state, by, 'org.update');
        if (settings?.retentionDays !== undefined) allowed(turn.state, by, 'retention.configure');
        if (name !== undefined || (settings !== undefined && Object.keys(settings).length > 0)) {
          turn.emit('OrganizationUpdated', { ...(name === undefined ? {} : { name }), ...(settings === undefined ? {} : { settings }), by });
        }
        const now = liveOf(turn.state);
        if (now.settings.webhookUrl !== of.settings.webhookUrl) configure(turn);
        if (now.settings.retentionDays !== of.settings.retentionDays) retainOn(turn);
        return shownOrganization(turn.self.key, now);
      },
    }),
    remove: command({
      ...organizationCommands.remove, access: 'system',
      handle: (turn, { by }) => {
        const { of } = allowed(turn.state, by, 'org.delete');
        turn.emit('OrganizationDeleted', { by });
        for (const reminder of ['invitations', 'slug', 'tells', 'retain']) turn.forget(reminder);
        turn.tell(nameAddress('slug', of.slug), 'release', { holder: turn.self.key });
        turn.tell(webhookAddress(turn.self.key), 'forget', {});
        endDeployments(turn, of);
        // Nothing was ever bought where payments have never spoken: then nothing is to be ended, and no trace of it is made.
        if (of.plan_revision !== '') turn.tell(paymentsAddress(turn.self.key), 'close', {});
        eraseOn(turn);
        mailsOn(turn);
        return {};
      },
    }),

    members: command({
      ...organizationCommands.members, access: 'system',
      handle: (turn, { by }) => ({ members: allowed(turn.state, by, 'member.list').of.members.map(shownMember) }),
    }),
    update_member: command({ ...organizationCommands.update_member, access: 'system', handle: updateMember }),
    remove_member: command({ ...organizationCommands.remove_member, access: 'system', handle: removeMember }),
    leave: command({ ...organizationCommands.leave, access: 'system', handle: leave }),
    transfer: command({ ...organizationCommands.transfer, access: 'system', handle: transfer }),

    invite: command({ ...organizationCommands.invite, access: 'system', handle: invite }),
    invitations: command({
      ...organizationCommands.invitations, access: 'system',
      handle: (turn, { by }) => ({ invitations: allowed(turn.state, by, 'member.invite').of.invitations.map((one) => shownInvitation(one, turn.now)) }),
    }),
    revoke_invitation: command({ ...organizationCommands.revoke_invitation, access: 'system', handle: revokeInvitation }),
    accept: command({ ...organizationCommands.accept, access: 'system', handle: accept }),
    show_invitation: command({ ...organizationCommands.show_invitation, access: 'system', handle: showInvitation }),

    create_key: command({ ...organizationCommands.create_key, access: 'system', handle: createKey }),
    keys: command({
      ...organizationCommands.keys, access: 'system',
      handle: (turn, { by }) => ({ keys: allowed(turn.state, by, 'api_key.create').of.keys.map(shownKey) }),
    }),
    revoke_key: command({ ...organizationCommands.revoke_key, access: 'system', handle: revokeKey }),
    verify_key: command({ ...organizationCommands.verify_key, access: 'system', handle: verifyKey }),

    reserve_deployment: command({ ...organizationCommands.reserve_deployment, access: 'system', handle: reserveDeployment }),
    confirm_deployment: command({ ...organizationCommands.confirm_deployment, access: 'system', handle: confirmDeployment }),
    remove_deployment: command({ ...organizationCommands.remove_deployment, access: 'system', handle: removeDeployment }),
    deployments: command({ ...organizationCommands.deployments, access: 'system', handle: listDeployments }),

    authorise: command({
      ...organizationCommands.authorise, access: 'system',
      handle: (turn, { by, permission }) => {
        const standing = isPermission(permission) ? allowed(turn.state, by, permission) : standingOf(turn.state, by);
        // A permission that does not exist is nobody's.
        if (!isPermission(permission)) throw coded('forbidden');
        const { of } = standing;
        return {
          role: standing.kind === 'member' ? standing.member.role : null, plan: of.plan, limits: planLimitsOf(of.plan, of.own_limits ?? undefined),
          default_model: of.settings.defaultModel, name: of.name,
        };
      },
    }),
    set_plan: command({
      ...organizationCommands.set_plan, access: 'system',
      handle: (turn, { plan, limits: own, reason, revision }) => {
        if (turn.state.phase === 'deleted' && revision !== undefined) {
          // Its payments did not know yet.
          turn.tell(paymentsAddress(turn.self.key), 'close', {});
          return {};
        }
        const { plan: from, plan_revision: last, own_limits: contract } = liveOf(turn.state);
        if (revision !== undefined && (revision <= last || contract !== null)) return {};
        if (own !== undefined && plan !== 'enterprise') throw coded('validation_error', 'Only an enterprise contract has limits of its own.');
        turn.emit('PlanSet', { plan, ...(own === undefined ? {} : { limits: own }), reason, ...(revision === undefined ? {} : { revision }) });
        grantCredits(turn, planLimitsOf(plan, own).credits);
        tellPlan(turn);
        if (plan !== from) notify(turn, 'plan.changed', { from, to: plan });
        return {};
      },
    }),
    phase: command({ ...organizationCommands.phase, access: 'system', handle: ({ state: { phase } }) => ({ phase }) }),
    payments_settled: command({
      ...organizationCommands.payments_settled, access: 'system',
      handle: (turn) => {
        if (turn.state.phase !== 'deleted' || !turn.state.billed) return {};
        turn.emit('PaymentsSettled', {});
        eraseOn(turn);
        return {};
      },
    }),
    note: command({
      ...organizationCommands.note, access: 'system',
      handle: (turn, { by, ...noted }) => {
        liveOf(turn.state);
        if (Buffer.byteLength(JSON.stringify(noted.metadata)) > limits.auditMetadataMaxBytes) throw coded('payload_too_large');
        turn.emit('Noted', { ...noted, by });
        return {};
      },
    }),
  }),
  // What was to be told is told again by the activation that `tells` makes.
  reminders: { invitations: expire, mail: mailsOn, slug: slugOn, erase: eraseOn, retain: retainOn, tells: () => undefined },
});

export type OrganizationCommands = NonNullable<ReturnType<typeof organization>['types']>['commands'];
