/** What the plans are called and offer, in words: for the console and for `/pricing`. The figures are contracts/plans.ts's. */
import type { PlanName } from '../../../contracts/organization.ts';
import type { PlanFeature } from '../../../contracts/plans.ts';

export const planNames: readonly PlanName[] = ['free', 'pro', 'team', 'enterprise'];

export const planTitles: Readonly<Record<PlanName, string>> = { free: 'Free', pro: 'Pro', team: 'Team', enterprise: 'Enterprise' };

export const planFor: Readonly<Record<PlanName, string>> = {
  free: 'To try it.',
  pro: 'For one person or a small group who build with it.',
  team: 'For teams who run deployments of their own.',
  enterprise: 'By contract; the figures here are where it begins.',
};

export const featureWords: Readonly<Record<PlanFeature, string>> = {
  all_models: 'All models', console: 'Console', api_keys: 'API keys', deep_research: 'Deep research', priority_models: 'Models with priority',
  team_workspace: 'Team workspace', managed_deployments: 'Managed deployments', custom_domain: 'Own domain', sla_guarantee: 'Guaranteed service level',
};

/** -1 is how the contract says unlimited. */
export const amount = (count: number): string => (count < 0 ? 'unlimited' : count.toLocaleString('en'));

/** 1 credit is 1 US cent of model cost. */
export const inDollars = (credits: number): string => `US$${(credits / 100).toLocaleString('en', { minimumFractionDigits: 2, maximumFractionDigits: 2 })}`;
