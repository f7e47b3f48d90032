/**
 * A verified event of Stripe, reduced to what counts here (contracts/payments.ts), and whose it is.
 *
 * Guarantees: reads only what it names, in the shape of the library's API version and, where a webhook endpoint was made with an older one, in
 * that one's; an event of another type is `other`. What lacks something it must have is `bad_request`: it is not one of Stripe's.
 */
import { z } from 'zod';
import { coded } from '../../contracts/errors.ts';
import { isOrganizationId } from '../../contracts/ids.ts';
import type { PlanName } from '../../contracts/organization.ts';
import { paymentEvent, type PaymentEvent } from '../../contracts/payments.ts';

/** `organizationId` null = the event does not say it; `customer` says it then, if anything. */
export type ReadEvent =
  | { readonly kind: 'other'; readonly type: string }
  | { readonly kind: 'ours'; readonly event: PaymentEvent; readonly organizationId: string | null; readonly customer: string | null };

/** An id, or the whole object where it was expanded. */
const reference = z.union([z.string(), z.object({ id: z.string() }).transform(({ id }) => id)]).nullish();
const metadata = z.object({ organizationId: z.string().optional() }).nullish();
const price = z.object({ id: z.string() }).nullish();

const envelope = z.object({ id: z.string(), type: z.string(), created: z.int().nonnegative(), data: z.object({ object: z.unknown() }) });
const session = z.object({ client_reference_id: z.string().nullish(), customer: reference, subscription: reference, metadata });
const subscription = z.object({
  id: z.string(), customer: reference, status: z.string(), created: z.int().nonnegative(), metadata,
  items: z.object({ data: z.array(z.object({ price })) }).nullish(),
});
const line = z.object({
  price, pricing: z.object({ price_details: z.object({ price: reference }).nullish() }).nullish(),
  period: z.object({ end: z.int().nonnegative() }).nullish(), proration: z.boolean().nullish(),
  parent: z.object({ subscription_item_details: z.object({ proration: z.boolean().nullish() }).nullish() }).nullish(),
});
const details = z.object({ subscription: reference, metadata }).nullish();
const invoice = z.object({
  id: z.string(), customer: reference, billing_reason: z.string().nullish(), subscription: reference, metadata,
  subscription_details: details, parent: z.object({ subscription_details: details }).nullish(),
  lines: z.object({ data: z.array(line) }).nullish(),
});

/** Reasons of invoices that begin a period. One without a reason is believed to. */
const renewing: ReadonlySet<string> = new Set(['subscription_create', 'subscription_cycle', 'subscription']);

const statusOf = (status: string): 'live' | 'waiting' | 'ended' => {
  switch (status) {
    case 'active': case 'trialing': case 'past_due': return 'live';
    case 'canceled': case 'incomplete_expired': return 'ended';
    default: return 'waiting';
  }
};

type PlanOf = (price: string) => PlanName | null;
type Reduced = { readonly event: Readonly<Record<string, unknown>>; readonly organization: string | null | undefined; readonly customer: string | null | undefined };

const ofSubscription = (object: unknown, type: string, common: object, planOf: PlanOf): Reduced => {
  const read = subscription.parse(object);
  const prices = (read.items?.data ?? []).flatMap((item) => (item.price === null || item.price === undefined ? [] : [item.price.id]));
  return {
    organization: read.metadata?.organizationId, customer: read.customer,
    event: {
      ...common, kind: 'subscription', subscription: read.id, since: read.created,
      plan: prices.map(planOf).find((plan) => plan !== null) ?? null,
      status: type === 'customer.subscription.deleted' ? 'ended' : statusOf(read.status), made: type === 'customer.subscription.created',
    },
  };
};

const ofInvoice = (object: unknown, type: string, common: object, planOf: PlanOf): Reduced => {
  const read = invoice.parse(object);
  const about = read.parent?.subscription_details ?? read.subscription_details;
  const id = read.subscription ?? about?.subscription ?? null;
  const lines = (read.lines?.data ?? []).filter(({ proration, parent }) => proration !== true && parent?.subscription_item_details?.proration !== true);
  const paid = lines.flatMap((one) => {
    const plan = planOf(one.pricing?.price_details?.price ?? one.price?.id ?? '');
    return plan === null ? [] : [{ plan, until: one.period?.end ?? null }];
  })[0];
  const event = type === 'invoice.payment_failed' ? { ...common, kind: 'unpaid', invoice: read.id } : {
    ...common, kind: 'paid', invoice: read.id, subscription: id, plan: paid?.plan ?? null, until: paid?.until ?? null,
    // An invoice of no subscription gives nothing.
    renews: id !== null && (read.billing_reason === null || read.billing_reason === undefined || renewing.has(read.billing_reason)),
  };
  return { organization: about?.metadata?.organizationId ?? read.metadata?.organizationId, customer: read.customer, event };
};

const reduce = (value: unknown, planOf: PlanOf): Reduced | string => {
  const { id, type, created, data: { object } } = envelope.parse(value);
  const common = { event: id, at: created };
  switch (type) {
    case 'checkout.session.completed': {
      const read = session.parse(object);
      // A session without a customer was none of a subscription.
      if (read.customer === null || read.customer === undefined) return type;
      return { organization: read.metadata?.organizationId ?? read.client_reference_id, customer: read.customer, event: { ...common, kind: 'linked', subscription: read.subscription ?? null } };
    }
    case 'customer.subscription.created': case 'customer.subscription.updated': case 'customer.subscription.deleted':
      return ofSubscription(object, type, common, planOf);
    case 'invoice.payment_succeeded': case 'invoice.payment_failed':
      return ofInvoice(object, type, common, planOf);
    default:
      return type;
  }
};

/** `planOf`: the plan that a price is of, null if it is none of ours. Throws `bad_request`. */
export const readEvent = (value: unknown, planOf: PlanOf): ReadEvent => {
  try {
    const reduced = reduce(value, planOf);
    if (typeof reduced === 'string') return { kind: 'other', type: reduced };
    const { organization, customer } = reduced;
    const known = organization !== null && organization !== undefined && isOrganizationId(organization);
    return { kind: 'ours', event: paymentEvent.parse({ customer: customer ?? null, ...reduced.event }), organizationId: known ? organization : null, customer: customer ?? null };
  } catch (error) {
    if (error instanceof z.ZodError) throw coded('bad_request', 'This is no event that can be read.', { cause: error });
    throw error;
  }
};
