/** Usage, tier and trust as the console reads them: one reader for each, tied to the contract's type. */
import type { z } from 'zod';
import type { tier, usageSummary } from '../../../contracts/billing.ts';
import { planFeatures } from '../../../contracts/plans.ts';
import type { agentScore, certificationAnswer, certificationShown, trustFactors, userScore, verifyAnswer } from '../../../contracts/trust.ts';
import { anyFields, fields, flag, list, number, oneOf, orNull, text, type Read } from '../read.ts';

export type Usage = z.output<typeof usageSummary>;
export type Tier = z.output<typeof tier>;
export type Factors = z.output<typeof trustFactors>;
export type UserScore = z.output<typeof userScore>;
export type AgentScore = z.output<typeof agentScore>;
export type Verified = z.output<typeof verifyAnswer>;
export type Certification = z.output<typeof certificationShown>;

export const readUsage: Read<Usage> = fields<Usage>({
  totalCostCents: number, totalInputTokens: number, totalOutputTokens: number, periodStart: text, periodEnd: text,
  byModel: list(fields({ modelId: text, costCents: number, inputTokens: number, outputTokens: number })),
});

export const readTier: Read<Tier> = fields<Tier>({
  plan: oneOf(['free', 'pro', 'team', 'enterprise']), organizationId: orNull(text), hasStripeCustomer: flag, canManageBilling: flag,
  features: list(oneOf(planFeatures)), limits: fields({ maxApiKeys: number, maxMembers: number }), credits: fields({ remaining: number, monthly: number }), upgradeUrl: text,
});

const level = oneOf(['unverified', 'basic', 'verified', 'trusted']);
const factors: Read<Factors> = fields<Factors>({ identity: number, history: number, reputation: number, economic: number });
export const readUserScore: Read<UserScore> = fields<UserScore>({ userId: text, score: number, level, factors, updatedAt: text });
export const readAgentScore: Read<AgentScore> = fields<AgentScore>({ agentId: text, score: number, level, factors, deployedBy: text, updatedAt: text });

const txtRecord = fields({ name: text, value: text });
export const readVerified: Read<Verified> = (value, at) => {
  const { txtRecord: record, ...rest } = fields({ verified: flag, type: text, newScore: number, txtRecord: (given: unknown, place: string) => (given === undefined ? undefined : txtRecord(given, place)) })(value, at);
  return record === undefined ? rest : { ...rest, txtRecord: record };
};

const certificationFields = { certificationId: text, status: oneOf(['pending', 'approved', 'rejected', 'revoked']), estimatedReview: text } as const;
export const readCertificationAnswer: Read<z.output<typeof certificationAnswer>> = fields<z.output<typeof certificationAnswer>>(certificationFields);
export const readCertification: Read<Certification> = fields<Certification>({
  ...certificationFields, entityType: oneOf(['organization', 'agent']), entityId: text, certType: oneOf(['platform-partner', 'agent-operator', 'security-reviewed']), evidence: anyFields,
});
