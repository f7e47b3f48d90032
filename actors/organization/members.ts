/**
 * Members: roles, removal, leaving, transfer (interface 4.3; rules ORG-045 to ORG-059, RBAC).
 *
 * Guarantees: an organization that lives has an owner, whatever happens at once, since turns run one at a time. To take the role of an
 * admin or an owner away, by another role or by removal, needs member.remove_admin, whoever's it is; leaving is a command of its own.
 * The last owner is refused with `validation_error` {field, constraint: last_owner}: 400 on these routes (interface 7.2).
 */
import type { z } from 'zod';
import { coded } from '../../contracts/errors.ts';
import { rank, type Role } from '../../contracts/permissions.ts';
import type { Member, organizationCommands } from '../../contracts/organization.ts';
import { revokeOrphaned } from './invitations.ts';
import { notify } from './notify.ts';
import { shownMember } from './show.ts';
import { allowed, liveOf, may, mayGrant, standingOf } from './standing.ts';
import type { Live, MemberRecord } from './state.ts';
import type { OrganizationTurn } from './turn.ts';

type Input<K extends keyof typeof organizationCommands> = z.output<(typeof organizationCommands)[K]['input']>;

/** Throws `not_found`. */
export const memberOf = (of: Live, userId: string): MemberRecord => {
  const member = of.members.find(({ user_id }) => user_id === userId);
  if (member === undefined) throw coded('not_found', 'There is no such member.');
  return member;
};

const keepAnOwner = (of: Live, { user_id: userId, role }: MemberRecord): void => {
  if (role !== 'owner' || of.members.some((other) => other.role === 'owner' && other.user_id !== userId)) return;
  throw coded('validation_error', 'The last owner can be neither removed nor demoted.', { details: { field: 'userId', constraint: 'last_owner' } });
};

/** Whether a member's role is one that only owners take away. */
const isAdmin = (role: Role): boolean => rank(role) >= rank('admin');

const forbidden = (): Error => coded('forbidden', 'Only an owner takes the role of an admin or an owner away.');

const changed = (turn: OrganizationTurn, userId: string): MemberRecord => memberOf(liveOf(turn.state), userId);

export const updateMember = (turn: OrganizationTurn, { by, user_id: userId, role }: Input<'update_member'>): Member => {
  const standing = allowed(turn.state, by, 'member.update_role');
  const { of } = standing;
  const member = memberOf(of, userId);
  mayGrant(standing, role);
  if (member.role === role) return shownMember(member);
  if (isAdmin(member.role) && rank(role) < rank(member.role)) {
    if (!may(standing, 'member.remove_admin')) throw forbidden();
    keepAnOwner(of, member);
  }
  turn.emit('MemberRoleChanged', { user_id: userId, from: member.role, to: role, by });
  notify(turn, 'member.role_changed', { userId, from: member.role, to: role });
  revokeOrphaned(turn, by);
  return shownMember(changed(turn, userId));
};

const goes = (turn: OrganizationTurn, { of, member, by }: { of: Live; member: MemberRecord; by: Input<'leave'>['by'] }): void => {
  keepAnOwner(of, member);
  turn.emit('MemberRemoved', { user_id: member.user_id, role: member.role, by });
  notify(turn, 'member.removed', { userId: member.user_id, role: member.role });
  revokeOrphaned(turn, by);
};

export const removeMember = (turn: OrganizationTurn, { by, user_id: userId }: Input<'remove_member'>): Record<string, never> => {
  const standing = allowed(turn.state, by, 'member.remove');
  const member = memberOf(standing.of, userId);
  if (isAdmin(member.role) && !may(standing, 'member.remove_admin')) throw forbidden();
  goes(turn, { of: standing.of, member, by });
  return {};
};

export const leave = (turn: OrganizationTurn, { by }: Input<'leave'>): Record<string, never> => {
  const standing = standingOf(turn.state, by);
  if (standing.kind === 'key') throw coded('forbidden', 'An API key is no member.');
  goes(turn, { of: standing.of, member: standing.member, by });
  return {};
};

export const transfer = (turn: OrganizationTurn, { by, user_id: userId }: Input<'transfer'>): Member => {
  const { of } = allowed(turn.state, by, 'org.transfer');
  const { role: was } = memberOf(of, userId);
  if (userId === by.actor) throw coded('validation_error', 'An owner transfers to somebody else.', { details: { field: 'userId', constraint: 'another_member' } });
  turn.emit('OwnershipTransferred', { from: by.actor, to: userId, was, by });
  if (was !== 'owner') notify(turn, 'member.role_changed', { userId, from: was, to: 'owner' });
  notify(turn, 'member.role_changed', { userId: by.actor, from: 'owner', to: 'admin' });
  return shownMember(changed(turn, userId));
};
