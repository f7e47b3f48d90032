/**
 * Trust scores from the facts the system has: gathers them from actors and rows at the moment of the question (actors/trust/score.ts has the
 * curves; actors/README.md, decision 30, says where each fact is from and which there are none of yet).
 *
 * Stores nothing and decides nobody's permission, but for one rule that needs the record: an agent of a personal workspace is its owner's alone.
 */
import { coded, CodedError } from '../../../contracts/errors.ts';
import { personalOrg } from '../../../contracts/capability.ts';
import { custodyCommands } from '../../../contracts/custody.ts';
import { isAccountId, isOrganizationId } from '../../../contracts/ids.ts';
import type { Caller } from '../../../contracts/platform.ts';
import type { agentScore, TrustFactors, TrustLevel, userScore } from '../../../contracts/trust.ts';
import { userCommands } from '../../../contracts/user.ts';
import { ownersOf, readAgent, readEconomy, type AgentRecord } from '../../projections/trust.ts';
import { agentFactors, agentWeights, levelFloors, levelOf, scoreOf, userFactors, userWeights, type UserFacts } from '../../trust/score.ts';
import { userAddress } from '../../user/address.ts';
import type { z } from 'zod';
import { askBy } from './ask.ts';
import type { PlatformDeps } from './deps.ts';

export interface TrustScores {
  /** Throws `not_found` for no such user. */
  ofUser(userId: string): Promise<z.output<typeof userScore>>;
  /** Throws `not_found` for no such agent, as for one that the caller must not know of. */
  ofAgent(agentId: string, caller: Caller): Promise<z.output<typeof agentScore>>;
  /** The organization that deployed an agent. Throws `not_found`, also for one of a personal workspace. */
  deployedBy(agentId: string): Promise<string>;
}

export const createTrustScores = ({ actors, projections, now }: Pick<PlatformDeps, 'actors' | 'projections' | 'now'>): TrustScores => {
  const askUser = askBy(actors, userCommands);
  const askCustody = askBy(actors, custodyCommands);

  const shown = (factors: TrustFactors, weights: TrustFactors) => {
    const score = scoreOf(factors, weights);
    return { score, level: levelOf(score), factors, updatedAt: new Date(now()).toISOString() };
  };

  const factsOf = async (userId: string): Promise<UserFacts> => {
    if (!isAccountId(userId)) throw coded('not_found');
    const known = await knownOf(userId);
    const [{ keys }, { paidPlans, creditsUsed }] = await Promise.all([
      askCustody({ org: personalOrg(userId), type: 'custody', key: userId }, 'keys', {}),
      projections.read((sql) => readEconomy(sql, userId)),
    ]);
    return {
      email: known.identities.includes('email'), oauth: known.identities.some((provider) => provider !== 'email'), domain: known.domains_verified > 0,
      activeDays: known.active_days, endorsements: 0, published: 0, payments: paidPlans, creditsUsed, wallet: keys !== null,
    };
  };

  const knownOf = async (userId: string): Promise<z.output<typeof userCommands.trust_facts.output>> => {
    try {
      return await askUser(userAddress(userId), 'trust_facts', {});
    } catch (error) {
      if (error instanceof CodedError && error.code === 'unauthorized') throw coded('not_found', undefined, { cause: error });
      throw error;
    }
  };

  const ofUser: TrustScores['ofUser'] = async (userId) => ({ userId, ...shown(userFactors(await factsOf(userId)), userWeights) });

  /** The best of the owners' levels; nobody's is the lowest. */
  const levelOfOrganization = async (organizationId: string): Promise<TrustLevel> => {
    const owners = await projections.read((sql) => ownersOf(sql, organizationId));
    const levels = await Promise.all(owners.map(async (owner) => (await ofUser(owner)).level));
    return levelFloors.find(([level]) => levels.includes(level))?.[0] ?? 'unverified';
  };

  /** The agent's record in an organization of ours, or in this person's workspace. */
  const recordOf = async (agentId: string, personal: string | undefined): Promise<AgentRecord> => {
    const records = await projections.read((sql) => readAgent(sql, agentId));
    const record = records.find(({ org }) => isOrganizationId(org) || org === personal);
    if (record === undefined) throw coded('not_found');
    return record;
  };

  return {
    ofUser,
    ofAgent: async (agentId, caller) => {
      const { org, ...record } = await recordOf(agentId, caller.kind === 'user' ? personalOrg(caller.userId) : undefined);
      const level = isOrganizationId(org) ? await levelOfOrganization(org) : (await ofUser(org.slice(personalOrg('').length))).level;
      const factors = agentFactors({ ...record, deployedBy: level, evaluations: [], payments: 0, creditsUsed: record.costCents });
      return { agentId, ...shown(factors, agentWeights), deployedBy: org };
    },
    deployedBy: async (agentId) => (await recordOf(agentId, undefined)).org,
  };
};
