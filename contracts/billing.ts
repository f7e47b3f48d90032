/** Usage and tier as people and programs see them (interface 2.11, 2.12; decisions, Billing). */
import { z } from 'zod';
import { planName } from './organization.ts';
import { planFeatures } from './plans.ts';

export const usagePeriod = z.enum(['day', 'week', 'month']);
export type UsagePeriod = z.infer<typeof usagePeriod>;

const count = z.int().nonnegative();
export const usageSummary = z.strictObject({
  totalCostCents: count, totalInputTokens: count, totalOutputTokens: count,
  byModel: z.array(z.strictObject({ modelId: z.string(), costCents: count, inputTokens: count, outputTokens: count })),
  /** The end is the time of the answer. */
  periodStart: z.iso.datetime(), periodEnd: z.iso.datetime(),
});

export const tier = z.strictObject({
  plan: planName,
  /** Null = a person without an organization. */
  organizationId: z.string().nullable(),
  hasStripeCustomer: z.boolean(),
  canManageBilling: z.boolean(),
  features: z.array(z.enum(planFeatures)),
  /** -1 = unlimited. */
  limits: z.strictObject({ maxApiKeys: z.int().min(-1), maxMembers: z.int().min(-1) }),
  credits: z.strictObject({ remaining: count, monthly: count }),
  upgradeUrl: z.string(),
});

/**
 * Unix milliseconds at which a period begins: today at 00:00 UTC, 7 days or one calendar month before that. A month back from a day
 * that the month before does not have is its last day.
 */
export const periodStartMs = (period: UsagePeriod, nowMs: number): number => {
  const now = new Date(nowMs);
  const [year, month, day] = [now.getUTCFullYear(), now.getUTCMonth(), now.getUTCDate()];
  switch (period) {
    case 'day': return Date.UTC(year, month, day);
    case 'week': return Date.UTC(year, month, day - 7);
    case 'month': return Date.UTC(year, month - 1, Math.min(day, new Date(Date.UTC(year, month, 0)).getUTCDate()));
  }
};
