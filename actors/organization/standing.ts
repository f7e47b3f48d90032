/**
 * Who asks, and what they may do here: the one place where an organization decides about permissions (RBAC, decisions).
 *
 * Guarantees: decided from the organization's own state in the turn, so it is membership and role of this moment, whatever a token
 * says. Who is nobody here gets `not_found`, the same as for an organization that does not exist. An API key has, of an
 * admin's permissions, those of its scopes as they are in this state; it is no member and never has a permission of owners.
 */
import { coded } from '../../contracts/errors.ts';
import { allows, keyScopes, permissions, rank, scopesAllow, type KeyScope, type Permission, type Role } from '../../contracts/permissions.ts';
import type { By } from '../../contracts/platform.ts';
import type { KeyRecord, Live, MemberRecord, OrganizationState } from './state.ts';

export type Standing =
  | { readonly kind: 'member'; readonly of: Live; readonly member: MemberRecord }
  | { readonly kind: 'key'; readonly of: Live; readonly key: KeyRecord };

/** A live organization. Throws `not_found`. */
export const liveOf = (state: OrganizationState): Live => {
  if (state.phase !== 'live') throw coded('not_found');
  return state;
};

/** Who `by` is here. Throws `not_found`; `unauthorized` for a key that was revoked meanwhile. */
export const standingOf = (state: OrganizationState, by: By): Standing => {
  const of = liveOf(state);
  if (by.scopes !== undefined) {
    const key = of.keys.find(({ id }) => id === by.actor);
    if (key === undefined) throw coded('not_found');
    if (key.revoked_at !== null) throw coded('unauthorized');
    return { kind: 'key', of, key };
  }
  const member = of.members.find(({ user_id }) => user_id === by.actor);
  if (member === undefined) throw coded('not_found');
  return { kind: 'member', of, member };
};

export const isPermission = (text: string): text is Permission => Object.hasOwn(permissions, text);

export const may = (standing: Standing, permission: Permission): boolean =>
  (standing.kind === 'member' ? allows(standing.member.role, permission) : scopesAllow(standing.key.scopes, permission));

/** The highest role that it can give. A key with a part of the scopes gives none of the admin level: the invited would have what it has not. */
export const roleOf = (standing: Standing): Role => {
  if (standing.kind === 'member') return standing.member.role;
  return keyScopes.every((permission) => may(standing, permission)) ? 'admin' : 'member';
};

/** Throws `not_found`, `unauthorized`, `forbidden`. */
export const allowed = (state: OrganizationState, by: By, permission: Permission): Standing => {
  const standing = standingOf(state, by);
  if (!may(standing, permission)) throw coded('forbidden');
  return standing;
};

const grants = (standing: Standing, role: Role): boolean => rank(role) <= rank(roleOf(standing));

/** Throws `forbidden` for a role above one's own. */
export const mayGrant = (standing: Standing, role: Role): void => {
  if (!grants(standing, role)) throw coded('forbidden', 'Nobody grants a role above their own.');
};

/** Whether a member or an API key, by its id, may invite to a role now. */
export const mayInvite = (of: Live, id: string, role: Role): boolean => {
  const member = of.members.find(({ user_id }) => user_id === id);
  const key = of.keys.find((one) => one.id === id && one.revoked_at === null);
  const standing: Standing | undefined = member === undefined ? key && { kind: 'key', of, key } : { kind: 'member', of, member };
  return standing !== undefined && may(standing, 'member.invite') && grants(standing, role);
};

/** Throws `forbidden` for scopes that whoever asks does not have. */
export const mayGive = (standing: Standing, scopes: readonly KeyScope[]): void => {
  const wanted = keyScopes.filter((permission) => scopesAllow(scopes, permission));
  if (!wanted.every((permission) => may(standing, permission))) throw coded('forbidden', 'A key cannot be given more than its maker has.');
};
