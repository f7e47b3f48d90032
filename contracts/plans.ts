/**
 * The plans: what each allows and costs (interface 8.1; decisions, Billing). One table for limits, the tier answer and the console.
 *
 * -1 = unlimited. Limits count per organization, for a personal workspace per user. Enterprise is set per contract: the
 * organization's own record replaces the table's row as a whole; without one it has the team's request limits, so that a missing
 * record never means no limit.
 */
import type { PlanLimits, PlanName } from './organization.ts';

export const planFeatures = [
  'all_models', 'console', 'api_keys', 'deep_research', 'priority_models', 'team_workspace', 'managed_deployments', 'custom_domain', 'sla_guarantee',
] as const;
export type PlanFeature = (typeof planFeatures)[number];

/** What a plan allows. `credits`: US cents of model cost a month. */
export interface Plan {
  readonly limits: PlanLimits;
  readonly features: readonly PlanFeature[];
}

const pro: readonly PlanFeature[] = ['all_models', 'console', 'api_keys', 'deep_research'];
const team: readonly PlanFeature[] = [...pro, 'priority_models', 'team_workspace', 'managed_deployments'];
const enterprise: readonly PlanFeature[] = [...team, 'custom_domain', 'sla_guarantee'];

export const plans = {
  free: { limits: { perMinute: 10, perDay: 100, maxApiKeys: 2, maxMembers: 5, credits: 50 }, features: [] },
  pro: { limits: { perMinute: 60, perDay: 5_000, maxApiKeys: 10, maxMembers: 10, credits: 5_000 }, features: pro },
  team: { limits: { perMinute: 120, perDay: 20_000, maxApiKeys: 50, maxMembers: 50, credits: 20_000 }, features: team },
  enterprise: { limits: { perMinute: 120, perDay: 20_000, maxApiKeys: -1, maxMembers: -1, credits: 100_000 }, features: enterprise },
} as const satisfies Record<PlanName, Plan>;

/** What an organization on a plan may do. `own`: the limits in its own record, which count for enterprise only. */
export const planLimitsOf = (plan: PlanName, own?: PlanLimits): PlanLimits => (plan === 'enterprise' && own !== undefined ? own : plans[plan].limits);

/** Where a plan is changed; goes with every `plan_limit` refusal. */
export const upgradeUrl = '/pricing';
