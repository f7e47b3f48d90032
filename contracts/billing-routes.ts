/**
 * The platform's routes of usage and tier (interface 4.5). Bearer required. A person sees what they have used wherever it was paid; an API key
 * with the scope `usage.read` what its organization has paid.
 */
import { z } from 'zod';
import { tier, usagePeriod, usageSummary } from './billing.ts';
import { platformRoute } from './platform.ts';

const common = { surface: 'platform', auth: { kind: 'access' }, bodyMaxBytes: 0, invalidStatus: 400, serve: { by: 'daemon' } } as const;

export const billingRoutes = {
  usage: platformRoute({
    ...common, id: 'usage', wire: 200, method: 'GET', path: '/api/usage', summary: 'Tokens and cost since today, a week or a month ago, by model.',
    query: z.strictObject({ period: usagePeriod.default('month') }), answers: { 200: usageSummary },
    errors: ['unauthorized', 'forbidden', 'validation_error', 'upstream_unavailable'],
  }),
  tier: platformRoute({
    ...common, id: 'tier', wire: 201, method: 'GET', path: '/api/tier', summary: 'Plan, limits and credits of the caller\'s oldest organization.',
    query: z.strictObject({}), answers: { 200: tier }, errors: ['unauthorized', 'forbidden', 'validation_error', 'upstream_unavailable'],
  }),
} as const;
