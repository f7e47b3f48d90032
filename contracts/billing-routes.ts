/**
 * The platform's routes of usage, tier and paid plans (interface 4.5). Bearer required, but for the processor's events. A person sees what they
 * have used wherever it was paid; an API key with the scope `usage.read` what its organization has paid.
 */
import { z } from 'zod';
import { tier, usagePeriod, usageSummary } from './billing.ts';
import { limits } from './limits.ts';
import { paymentBodies } from './payments.ts';
import { platformRoute } from './platform.ts';

const common = { surface: 'platform', auth: { kind: 'access' }, bodyMaxBytes: 0, invalidStatus: 400, serve: { by: 'daemon' } } as const;
const hosted = z.strictObject({ url: z.url() });

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

  /** Raw: while nothing is sold, every authenticated caller hears so, whatever the body (BIL-026). */
  checkout: platformRoute({
    ...common, id: 'checkout', wire: 210, method: 'POST', path: '/api/payments/checkout', summary: 'Address of the hosted checkout of a plan, for an owner or admin who has accepted the terms in force.',
    body: paymentBodies.checkout, raw: true, bodyMaxBytes: limits.bodyMaxBytes, answers: { 200: hosted },
    errors: ['unauthorized', 'checkout_disabled', 'validation_error', 'not_found', 'forbidden', 'legal_acceptance_required', 'payment_error'],
  }),
  portal: platformRoute({
    ...common, id: 'portal', wire: 211, method: 'POST', path: '/api/payments/portal', summary: 'Address of the hosted customer portal, for an owner or admin.',
    body: paymentBodies.portal, bodyMaxBytes: limits.bodyMaxBytes, answers: { 200: hosted },
    errors: ['unauthorized', 'validation_error', 'not_found', 'forbidden', 'bad_request', 'payment_error'],
  }),
  paymentEvents: platformRoute({
    ...common, id: 'payment_events', wire: 212, method: 'POST', path: '/api/payments/webhooks', summary: 'Events of the payment processor (Stripe), with its signature over the body as it is.',
    auth: { kind: 'none' }, body: z.looseObject({}), raw: true, headers: ['stripe-signature'], bodyMaxBytes: limits.paymentEventMaxBytes,
    answers: { 200: z.strictObject({ received: z.literal(true) }) }, errors: ['bad_request', 'payment_error', 'upstream_unavailable'],
  }),
} as const;
