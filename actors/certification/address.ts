/** Where a certification's actor is. */
import { coded } from '../../contracts/errors.ts';
import { certificationId } from '../../contracts/ids.ts';
import type { ActorAddress } from '../../contracts/subjects.ts';

/** `not_found` for what cannot be an id, as for a certification that does not exist. */
export const certificationAddress = (id: string): ActorAddress => {
  if (!certificationId.safeParse(id).success) throw coded('not_found');
  return { org: 'platform', type: 'certification', key: id };
};
