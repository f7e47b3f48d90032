/** Where a user's actor is: in the person's own organization token, so that what is theirs lies together. */
import { personalOrg } from '../../contracts/capability.ts';
import type { ActorAddress } from '../../contracts/subjects.ts';

/** `userId`: `usr_…`. */
export const userAddress = (userId: string): ActorAddress => ({ org: personalOrg(userId), type: 'user', key: userId });
