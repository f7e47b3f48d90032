/**
 * Invitations: made, mailed, accepted, revoked, expired (interface 2.7, 4.3; rules ORG-033 to ORG-044, ORG-056, ORG-060).
 *
 * Guarantees: an invitation is taken once, before its end, by the person whose verified e-mail address it names, and only while whoever
 * invited could still do so: it ends when they are removed or lose the role for it, or their API key is revoked. One address has one
 * pending invitation: a new one revokes the one before, whose link stops working. Members are counted at inviting and at accepting. The
 * token is not here: the daemon derives it from the ids.
 */
import type { z } from 'zod';
import { coded } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import type { organizationCommands } from '../../contracts/organization.ts';
import { planLimitsOf, upgradeUrl } from '../../contracts/plans.ts';
import type { By } from '../../contracts/platform.ts';
import { mailsOn } from './mails.ts';
import { notify } from './notify.ts';
import { isPending, shownInvitation, shownListed } from './show.ts';
import { allowed, liveOf, mayGrant, mayInvite } from './standing.ts';
import { dayOf, type InvitationRecord, type Live } from './state.ts';
import type { OrganizationTurn } from './turn.ts';

type Input<K extends keyof typeof organizationCommands> = z.output<(typeof organizationCommands)[K]['input']>;
type Output<K extends keyof typeof organizationCommands> = z.output<(typeof organizationCommands)[K]['output']>;

/** What is refused when a plan's limit (or the bound of every plan) is reached. */
export const requireRoom = (has: number, planned: number, most: number): void => {
  const limit = planned === -1 ? most : Math.min(planned, most);
  if (has >= limit) throw coded('plan_limit', undefined, { details: { limit, upgradeUrl } });
};

const requireSeat = (of: Live): void => requireRoom(of.members.length, planLimitsOf(of.plan, of.own_limits ?? undefined).maxMembers, limits.organizationMembersMax);

/** Sets the reminder of the first end of a pending invitation. */
const expireOn = (turn: OrganizationTurn): void => {
  const ends = turn.state.phase === 'live' ? turn.state.invitations.filter(({ status }) => status === 'pending').map((one) => one.expires_at) : [];
  if (ends.length === 0) turn.forget('invitations');
  else turn.remind('invitations', { atMs: Math.min(...ends) });
};

/** The reminder's handler. */
export const expire = (turn: OrganizationTurn): void => {
  if (turn.state.phase !== 'live') return;
  for (const one of turn.state.invitations) {
    if (one.status === 'pending' && !isPending(one, turn.now)) turn.emit('InvitationExpired', { id: one.id });
  }
  expireOn(turn);
};

/** Revokes the pending invitations of whoever may not invite any more. The last thing of every turn that takes somebody's right to. */
export const revokeOrphaned = (turn: OrganizationTurn, by: By): void => {
  const of = liveOf(turn.state);
  const orphaned = of.invitations.filter((one) => isPending(one, turn.now) && !mayInvite(of, one.inviter, one.role));
  if (orphaned.length === 0) return;
  for (const { id } of orphaned) turn.emit('InvitationRevoked', { id, replaced: false, orphaned: true, by });
  expireOn(turn);
};

const found = (of: Live, id: string): InvitationRecord => {
  const one = of.invitations.find((candidate) => candidate.id === id);
  if (one === undefined) throw coded('not_found', 'There is no such invitation.');
  return one;
};

export const invite = (turn: OrganizationTurn, { by, id, email, role }: Input<'invite'>): Output<'invite'> => {
  const standing = allowed(turn.state, by, 'member.invite');
  const { of } = standing;
  mayGrant(standing, role);
  if (of.invitations.some((one) => one.id === id)) throw coded('conflict');
  if (of.members.some((member) => member.email === email)) throw coded('conflict', 'This address is a member\'s already.');
  requireSeat(of);
  const pending = of.invitations.filter((one) => isPending(one, turn.now));
  const former = pending.find((one) => one.email === email);
  if (former === undefined) requireRoom(pending.length, -1, limits.organizationPendingMax);
  const today = of.invited.day === dayOf(turn.now) ? of.invited.count : 0;
  if (today >= limits.organizationInvitesPerDayMax) {
    const reset = (dayOf(turn.now) + 1) * 86_400;
    const retryAfter = Math.max(1, Math.ceil(reset - turn.now / 1_000));
    throw coded('rate_limited', undefined, { details: { limit: limits.organizationInvitesPerDayMax, remaining: 0, reset, retry_after: retryAfter } });
  }
  if (former !== undefined) turn.emit('InvitationRevoked', { id: former.id, replaced: true, by });
  turn.emit('MemberInvited', { id, email, role, expires_at: turn.now + limits.invitationTtlMs, by });
  expireOn(turn);
  mailsOn(turn);
  return { invitation: shownInvitation(found(liveOf(turn.state), id), turn.now) };
};

export const revokeInvitation = (turn: OrganizationTurn, { by, invitation_id: id }: Input<'revoke_invitation'>): Output<'revoke_invitation'> => {
  const { of } = allowed(turn.state, by, 'member.invite');
  const one = found(of, id);
  if (isPending(one, turn.now)) {
    turn.emit('InvitationRevoked', { id, replaced: false, by });
    expireOn(turn);
  } else if (one.status !== 'revoked') throw coded('conflict', 'The invitation is not pending any more.', { details: { status: shownInvitation(one, turn.now).status } });
  return { invitation: shownInvitation(found(liveOf(turn.state), id), turn.now) };
};

export const accept = (turn: OrganizationTurn, { by, invitation_id: id }: Input<'accept'>): Output<'accept'> => {
  const of = liveOf(turn.state);
  // An API key is nobody who could join.
  if (by.scopes !== undefined || by.email === undefined) throw coded('forbidden');
  const one = found(of, id);
  if (of.members.some((member) => member.user_id === by.actor)) throw coded('conflict', 'You are a member already.');
  if (one.email !== by.email) throw coded('forbidden', 'The invitation is for another e-mail address.');
  if (!isPending(one, turn.now)) {
    const { status } = shownInvitation(one, turn.now);
    throw coded('conflict', `The invitation was ${status === 'expired' ? 'not accepted in time' : status}.`, { details: { status } });
  }
  // Made before those who go took theirs along.
  if (!mayInvite(of, one.inviter, one.role)) throw coded('conflict', 'The invitation was revoked.', { details: { status: 'revoked' } });
  requireSeat(of);
  turn.emit('MemberJoined', { user_id: by.actor, name: by.name ?? '', email: by.email, role: one.role, invitation_id: id, by });
  expireOn(turn);
  notify(turn, 'member.joined', { userId: by.actor, email: by.email, role: one.role });
  return { organization: shownListed(turn.self.key, liveOf(turn.state), one.role) };
};

export const showInvitation = (turn: OrganizationTurn, { invitation_id: id }: Input<'show_invitation'>): Output<'show_invitation'> => {
  const of = liveOf(turn.state);
  return { organizationName: of.name, invitation: shownInvitation(found(of, id), turn.now) };
};
