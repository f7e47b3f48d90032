/** What the console offers by role, and the address that a name suggests. The organization decides in any case. */
import { allows, rank, type Role } from '../../../contracts/roles.ts';

/** Whether one role may give a member of another a new role: taking admin needs the right to remove admins. */
export const mayChange = (mine: Role, theirs: Role): boolean =>
  allows(mine, 'member.update_role') && (rank(theirs) < rank('admin') || allows(mine, 'member.remove_admin'));

export const mayRemove = (mine: Role, theirs: Role): boolean =>
  allows(mine, 'member.remove') && (rank(theirs) < rank('admin') || allows(mine, 'member.remove_admin'));

/** The address part that a name suggests: what the API takes, or ''. */
export const slugOf = (name: string): string =>
  name.normalize('NFKD').replace(/\p{M}/gu, '').toLowerCase().replace(/[^a-z0-9]+/g, '-').replace(/^-+/, '').slice(0, 32).replace(/-+$/, '');
