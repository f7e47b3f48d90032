/** What an organization tells its wallet (contracts/wallet.ts): the credits a month of its plan, whenever the plan is set. */
import { limits } from '../../contracts/limits.ts';
import { walletAddress } from '../wallet/address.ts';
import type { OrganizationTurn } from './turn.ts';

/** Durable; of several that overtake each other the last one counts. */
export const grantCredits = (turn: OrganizationTurn, monthly: number): void => {
  const wallet = walletAddress(turn.self.key);
  if (wallet === undefined) return;
  turn.tell(wallet, 'grant', { monthly, revision: turn.newId() });
  // If its host is lost before it is sent, the activation that this makes sends it.
  turn.remind('tells', { inMs: limits.organizationWakeMs });
};
