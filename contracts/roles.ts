/**
 * Roles and permissions of an organization as plain values: one table, checked by the organization's actor in the turn (decisions,
 * Organizations; interface 5.1 rule 7). A check is "at least": every role above a permission's lowest role has it too.
 * Needs no schema library, so that the web console can say beforehand what a role may do; permissions.ts has the schemas.
 */

/** From lowest to highest. */
export const roles = ['viewer', 'member', 'admin', 'owner'] as const;
export type Role = (typeof roles)[number];

/** Permission → the lowest role that has it. `prompt.*` and `document.*` have no routes yet. */
export const permissions = {
  'org.read': 'viewer',
  'member.list': 'viewer',
  'chat.read': 'viewer',
  'usage.read': 'viewer',
  'audit.read': 'viewer',

  'chat.create': 'member',
  'prompt.create': 'member',
  'prompt.update': 'member',
  'document.create': 'member',
  'document.update': 'member',

  'org.update': 'admin',
  'member.invite': 'admin',
  'member.remove': 'admin',
  'member.update_role': 'admin',
  'api_key.create': 'admin',
  'api_key.revoke': 'admin',
  'audit.export': 'admin',
  'instance.restart': 'admin',
  'billing.read': 'admin',
  'billing.checkout': 'admin',
  'billing.portal': 'admin',

  'plan.change': 'owner',
  'org.delete': 'owner',
  'org.transfer': 'owner',
  'instance.provision': 'owner',
  'instance.deprovision': 'owner',
  'member.remove_admin': 'owner',
  'retention.configure': 'owner',
} as const satisfies Record<string, Role>;
export type Permission = keyof typeof permissions;

/** 0 = viewer … 3 = owner. */
export const rank = (of: Role): number => roles.indexOf(of);

export const allows = (of: Role, permission: Permission): boolean => rank(of) >= rank(permissions[permission]);

/** What an API key may be given: what the admin role may do. `*` stands for all of them. */
export const keyScopes: readonly Permission[] = (Object.keys(permissions) as Permission[]).filter((name) => allows('admin', name));

/** Whether a key with these scopes has a permission. Never one of the owner's. */
export const scopesAllow = (scopes: readonly string[], permission: Permission): boolean =>
  keyScopes.includes(permission) && (scopes.includes('*') || scopes.includes(permission));
