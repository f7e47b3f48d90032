/** Where an organization's payments are. */
import type { ActorAddress } from '../../contracts/subjects.ts';

export const paymentsAddress = (organizationId: string): ActorAddress => ({ org: organizationId, type: 'payments', key: organizationId });
