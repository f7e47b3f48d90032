/**
 * Checkout, customer portal and the payment processor's events (interface 4.5; decisions, Billing).
 *
 * Guarantees: checkout checks in this order: who asks, whether anything is sold, the body, the organization, the role, the acceptance of the
 * terms, the price, then it asks the processor (BIL-033). An event is answered with 200 when the organization's payments have it in their
 * journal, and not before; one that could not be taken is not, so that it is sent again. Neither the processor's secrets nor its errors
 * are in an answer.
 */
import { billingRoutes as routes } from '../../../contracts/billing-routes.ts';
import { coded, CodedError } from '../../../contracts/errors.ts';
import { isOrganizationId } from '../../../contracts/ids.ts';
import { limits } from '../../../contracts/limits.ts';
import { nameCommands } from '../../../contracts/name.ts';
import { organizationAddress, organizationReached } from '../../../contracts/organization-routes.ts';
import { organizationCommands } from '../../../contracts/organization.ts';
import { paymentBodies, paymentsCommands, type PaymentEvent } from '../../../contracts/payments.ts';
import { byOf, type Caller } from '../../../contracts/platform.ts';
import { parseJson } from '../../../contracts/validate.ts';
import { nameAddress } from '../../name/address.ts';
import { paymentsAddress } from '../../payments/address.ts';
import type { Processor } from '../../payments/stripe.ts';
import { askBy } from './ask.ts';
import type { PlatformDeps } from './deps.ts';
import { forAnyone, forCaller, parsePlatform, type PlatformHandler, type PlatformHandlerRequest } from './serve.ts';
import { bodyOf } from './typed.ts';

export interface PaymentOptions {
  /** Undefined where no billing is configured. */
  readonly processor: Processor | undefined;
  /** The launch gate of checkout. */
  readonly enabled: boolean;
}

const rawOf = ({ body }: PlatformHandlerRequest<Caller | undefined>): Buffer => {
  if (!Buffer.isBuffer(body)) throw new TypeError('the route has no raw body');
  return body;
};

/** Throws `validation_error`. */
const jsonOf = (raw: Buffer): unknown => {
  try {
    return parseJson(new TextDecoder('utf-8', { fatal: true }).decode(raw));
  } catch (cause) {
    throw coded('validation_error', 'The body is not JSON.', { details: { field: '', constraint: 'the body is not JSON' }, cause });
  }
};

/** The manifest that the caller has accepted last; an API key acts with the acceptance of who made it. */
const acceptedOf = (caller: Caller): string => (caller.kind === 'user' ? caller.accepted : caller.policy);

export const paymentHandlers = (
  { actors, config, manifest, log }: Pick<PlatformDeps, 'actors' | 'config' | 'manifest' | 'log'>, { processor, enabled }: PaymentOptions,
): Readonly<Record<string, PlatformHandler>> => {
  const askOrganization = askBy(actors, organizationCommands);
  const askPayments = askBy(actors, paymentsCommands);
  const askName = askBy(actors, nameCommands);

  const customerOf = async (organizationId: string): Promise<string | null> => (await askPayments(paymentsAddress(organizationId), 'describe', {})).customer;

  const checkout = async (request: PlatformHandlerRequest): Promise<string> => {
    if (!enabled) throw coded('checkout_disabled');
    const { caller, context } = request;
    const { organizationId, plan } = paymentBodies.checkout.parse(parsePlatform(paymentBodies.checkout, jsonOf(rawOf(request))));
    const address = organizationReached(caller, organizationId);
    const by = byOf(caller, context);
    await askOrganization(address, 'authorise', { permission: 'billing.checkout', by });
    if (acceptedOf(caller) !== manifest.hash) throw coded('legal_acceptance_required');
    const sold = processor?.priceOf(plan);
    if (processor === undefined || sold === undefined) throw coded('validation_error', 'This plan cannot be bought.', { details: { field: 'plan', constraint: 'price' } });
    const url = await processor.checkout({
      organizationId, ...sold, customer: await customerOf(organizationId), email: caller.kind === 'user' ? caller.email : undefined,
      successUrl: `${config.base_url}/?checkout=done`, cancelUrl: `${config.base_url}/?checkout=left`,
    });
    await askOrganization(address, 'note', { action: 'billing.checkout', resource_type: 'plan', resource_id: sold.plan, metadata: {}, by }, 'once');
    return url;
  };

  const portal = async (request: PlatformHandlerRequest): Promise<string> => {
    const { organizationId } = bodyOf(routes.portal, request);
    const address = organizationReached(request.caller, organizationId);
    const by = byOf(request.caller, request.context);
    await askOrganization(address, 'authorise', { permission: 'billing.portal', by });
    const customer = await customerOf(organizationId);
    if (customer === null) throw coded('bad_request', 'This organization has not paid for anything yet.');
    if (processor === undefined) throw coded('payment_error');
    const url = await processor.portal(customer, `${config.base_url}/`);
    await askOrganization(address, 'note', { action: 'billing.portal', resource_type: 'organization', resource_id: organizationId, metadata: {}, by }, 'once');
    return url;
  };

  /** Whose event it is, as it says itself or as its customer is known; null = none of ours. */
  const ownerOf = async (said: string | null, customer: string | null): Promise<string | null> => {
    if (said !== null || customer === null) return said;
    const { holder } = await askName(nameAddress('customer', customer), 'holder', {});
    return holder !== null && isOrganizationId(holder) ? holder : null;
  };

  /** What goes on for a deleted organization ends here: nothing that could remember it is left. A repeat finds it ended. */
  const end = async ({ cancel }: Processor, event: PaymentEvent): Promise<void> => {
    if (event.kind === 'unpaid' || event.subscription === null || (event.kind === 'subscription' && event.status === 'ended')) return;
    await cancel(event.subscription, AbortSignal.timeout(limits.paymentsDeadlineMs));
    log.info({ event: event.event, kind: event.kind }, 'a subscription of a deleted organization was cancelled');
  };

  const take = async (request: PlatformHandlerRequest<Caller | undefined>): Promise<void> => {
    const signature = request.context.headers?.['stripe-signature'];
    if (processor === undefined || signature === undefined) throw coded('bad_request', 'The signature of this event could not be verified.');
    const read = processor.event(rawOf(request), signature);
    if (read.kind === 'other') return;
    const { event, customer } = read;
    const owner = await ownerOf(read.organizationId, customer);
    const { phase } = owner === null ? { phase: 'none' } : await askOrganization(organizationAddress(owner), 'phase', {});
    if (owner === null || phase === 'none') {
      log.warn({ event: event.event, kind: event.kind }, 'an event of the payment processor belongs to no organization');
      return;
    }
    if (phase === 'deleted') {
      await end(processor, event);
      return;
    }
    // Later events may name the customer only.
    if (customer !== null && read.organizationId !== null) await askName(nameAddress('customer', customer), 'claim', { holder: owner }, 'once');
    try {
      await askPayments(paymentsAddress(owner), 'receive', { event }, 'once');
    } catch (error) {
      if (!(error instanceof CodedError) || error.code !== 'conflict') throw error;
      log.error({ event: event.event, kind: event.kind, organization: owner }, 'an event of the payment processor has a price that is not configured: it was not taken and will come again');
      throw coded('payment_error', 'The price of this event is not configured.', { cause: error });
    }
  };

  return {
    [routes.checkout.id]: forCaller(async (request) => ({ status: 200, body: { url: await checkout(request) } })),
    [routes.portal.id]: forCaller(async (request) => ({ status: 200, body: { url: await portal(request) } })),
    [routes.paymentEvents.id]: forAnyone(async (request) => {
      await take(request);
      return { status: 200, body: { received: true } };
    }),
  };
};
