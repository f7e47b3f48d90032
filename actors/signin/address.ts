/** Where the sign-in codes of an e-mail address are. The address itself is in no key. */
import { createHash } from 'node:crypto';
import type { ActorAddress } from '../../contracts/subjects.ts';

/** `email`: as `email` of contracts/ids.ts leaves it. */
export const signinAddress = (email: string): ActorAddress =>
  ({ org: 'platform', type: 'signin', key: createHash('sha256').update(email, 'utf8').digest('hex') });
