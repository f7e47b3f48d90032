/** Schemas of roles and key scopes; the table itself is in roles.ts and is exported from here too. */
import { z } from 'zod';
import { keyScopes, roles } from './roles.ts';

export { allows, keyScopes, permissions, rank, roles, scopesAllow, type Permission, type Role } from './roles.ts';

export const role = z.enum(roles);
export const keyScope = z.enum(['*', ...keyScopes]);
export type KeyScope = z.infer<typeof keyScope>;
