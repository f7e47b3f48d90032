/**
 * Trust scores: pure functions of facts (interface 2.8, 2.9; decisions, Trust). Each factor is from 0 to 1.
 *
 *   user    0.25 identity + 0.25 history + 0.25 reputation + 0.25 economic
 *   agent   0.20 identity + 0.30 history + 0.30 reputation + 0.20 economic
 *
 * Guarantees: more of a good thing never lowers a factor; factors have four decimals and a score six, so that a sum that is a boundary on paper is
 * one here too. Which facts the system has, and which are none yet: actors/README.md, decision 30.
 */
import type { TrustFactors, TrustLevel } from '../../contracts/trust.ts';

/** Share of each factor in a score. */
export const userWeights: TrustFactors = { identity: 0.25, history: 0.25, reputation: 0.25, economic: 0.25 };
export const agentWeights: TrustFactors = { identity: 0.2, history: 0.3, reputation: 0.3, economic: 0.2 };

/** Lowest score of each level, highest first. A score on a boundary has the higher level. */
export const levelFloors: readonly (readonly [TrustLevel, number])[] = [['trusted', 0.8], ['verified', 0.6], ['basic', 0.3], ['unverified', 0]];

/** What was verified raises the identity of somebody of whom nothing is. */
export const identityStart = 0.2;
export const identityBoosts = { email: 0.3, oauth: 0.5, domain: 0.7 } as const;

const rounded = (value: number, decimals: number): number => Math.round(value * 10 ** decimals) / 10 ** decimals;
const unit = (value: number): number => rounded(Math.min(1, Math.max(0, value)), 4);

/** 0 at 0, 1 from `full` on, growing as the logarithm between. */
const grown = (count: number, full: number): number => Math.min(1, Math.log1p(Math.max(0, count)) / Math.log1p(full));

/** Active days at which a user's history is complete (decisions). */
const fullDays = 240;

export interface UserFacts {
  readonly email: boolean;
  readonly oauth: boolean;
  readonly domain: boolean;
  /** UTC days on which the account was used. */
  readonly activeDays: number;
  readonly endorsements: number;
  /** Skills and prompts. */
  readonly published: number;
  readonly payments: number;
  /** US cents. */
  readonly creditsUsed: number;
  /** Has a wallet in custody. */
  readonly wallet: boolean;
}

/** none 0.2, email 0.5, oauth 0.7, domain 0.9, any of them with another 1. Each kind counts once. */
export const userIdentity = ({ email, oauth, domain }: Pick<UserFacts, 'email' | 'oauth' | 'domain'>): number =>
  unit(identityStart + (email ? identityBoosts.email : 0) + (oauth ? identityBoosts.oauth : 0) + (domain ? identityBoosts.domain : 0));

/** min(1, log(1 + days) / log(241)). 0 → 0, 1 → 0.1264, 30 → 0.6261, 80 → 0.8012, 180 → 0.9478, 240 → 1. An account is never older in active days than in days. */
export const userHistory = (activeDays: number): number => unit(grown(activeDays, fullDays));

/** What is neither good nor bad. */
export const neutral = 0.5;
/** Endorsements and publications at which a reputation is complete. */
const fullReputation = 50;

/** 0.5 where nobody has said anything, to 1: 0 → 0.5, 1 → 0.5881, 10 → 0.805, 50 → 1. */
export const userReputation = ({ endorsements, published }: Pick<UserFacts, 'endorsements' | 'published'>): number =>
  unit(neutral + (1 - neutral) * grown(endorsements + published, fullReputation));

/** Payments and cents at which that part of an economic factor is complete. */
const fullPayments = 12;
const fullCredits = 10_000;

/** 0.4 of payments (12 are full) + 0.4 of credits used (10,000 are full) + 0.2 for a wallet: nothing → 0; 1 payment → 0.1081; 100 credits → 0.2004; 12, 10,000 and a wallet → 1. */
export const economic = ({ payments, creditsUsed, wallet }: Pick<UserFacts, 'payments' | 'creditsUsed' | 'wallet'>): number =>
  unit(0.4 * grown(payments, fullPayments) + 0.4 * grown(creditsUsed, fullCredits) + (wallet ? 0.2 : 0));

export interface AgentFacts {
  /** Of the organization that deployed it: the best of its owners' levels. */
  readonly deployedBy: TrustLevel;
  /** Days on which it completed something: what an agent that exists only while it works has for an uptime. */
  readonly serviceDays: number;
  readonly sessions: number;
  /** Turns that ended but for those a person cancelled; of them, completed and failed ones. */
  readonly ended: number;
  readonly completed: number;
  readonly errored: number;
  /** By other agents or people, each from 0 to 1. */
  readonly evaluations: readonly number[];
  readonly payments: number;
  /** US cents. */
  readonly creditsUsed: number;
}

/** By the level of the organization that deployed it. */
export const agentIdentity: Readonly<Record<TrustLevel, number>> = { unverified: 0.2, basic: 0.5, verified: 0.8, trusted: 1 };

const fullServiceDays = 90;
const fullSessions = 100;

/** (half of service days, 90 are full, + half of sessions, 100 are full) times the share of turns that did not fail: 90, 100, none failed → 1; half failed → 0.5. */
export const agentHistory = ({ serviceDays, sessions, ended, errored }: Pick<AgentFacts, 'serviceDays' | 'sessions' | 'ended' | 'errored'>): number =>
  unit((0.5 * grown(serviceDays, fullServiceDays) + 0.5 * grown(sessions, fullSessions)) * (ended === 0 ? 1 : 1 - errored / ended));

/** Weight of not knowing, in turns: so that one completed turn is no perfect record. */
const doubt = 4;

/** Mean over turns (completed 1, else 0) and evaluations, with four turns' worth of 0.5 for doubt: nothing → 0.5; 4 of 4 → 0.75; 96 of 96 → 0.98; 0 of 4 → 0.25. */
export const agentReputation = ({ ended, completed, evaluations }: Pick<AgentFacts, 'ended' | 'completed' | 'evaluations'>): number =>
  unit((neutral * doubt + completed + evaluations.reduce((sum, one) => sum + Math.min(1, Math.max(0, one)), 0)) / (doubt + ended + evaluations.length));

export const userFactors = (facts: UserFacts): TrustFactors =>
  ({ identity: userIdentity(facts), history: userHistory(facts.activeDays), reputation: userReputation(facts), economic: economic(facts) });

/** Its payments as a user's, without a wallet of its own. */
export const agentFactors = (facts: AgentFacts): TrustFactors =>
  ({ identity: agentIdentity[facts.deployedBy], history: agentHistory(facts), reputation: agentReputation(facts), economic: economic({ ...facts, wallet: false }) });

export const scoreOf = (factors: TrustFactors, weights: TrustFactors): number => rounded(
  factors.identity * weights.identity + factors.history * weights.history + factors.reputation * weights.reputation + factors.economic * weights.economic, 6,
);

export const levelOf = (score: number): TrustLevel => levelFloors.find(([, floor]) => score >= floor)?.[0] ?? 'unverified';
