/** Where a payer's wallet is. */
import { isAccountId, isOrganizationId } from '../../contracts/ids.ts';
import { personalOrg } from '../../contracts/capability.ts';
import type { ActorAddress } from '../../contracts/subjects.ts';

const personalStart = personalOrg('');

/** The wallet of an org token; undefined for one that is not ours (of a foreign identity provider), which nobody here bills. */
export const walletAddress = (org: string): ActorAddress | undefined => {
  const ours = isOrganizationId(org) || (org.startsWith(personalStart) && isAccountId(org.slice(personalStart.length)));
  return ours ? { org, type: 'wallet', key: org } : undefined;
};
