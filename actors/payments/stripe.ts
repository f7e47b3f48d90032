/**
 * Stripe, behind an interface we own: hosted checkout, customer portal, cancelling, and its events, verified and reduced to what counts.
 *
 * Guarantees: every request has a deadline and there is a bound on those under way; whatever fails leaves as `payment_error`, Stripe's text
 * and ids only in the log, a key in neither. An event is believed after Stripe's own helper has verified its signature, and only within
 * `limits.paymentSignatureSec` before or after. The only file that knows Stripe's library and shapes.
 */
import { Agent as HttpAgent } from 'node:http';
import { Agent as HttpsAgent } from 'node:https';
import type { Stripe } from 'stripe';
import type { DaemonConfig } from '../../contracts/config.ts';
import { coded } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import type { PlanName } from '../../contracts/organization.ts';
import type { Log } from '../runtime/log.ts';
import { readEvent, type ReadEvent } from './event.ts';

type Billing = NonNullable<DaemonConfig['billing']>;

export interface CheckoutOptions {
  readonly organizationId: string;
  readonly plan: PlanName;
  readonly price: string;
  /** Of an organization that has paid before; else one is made from the address. */
  readonly customer: string | null;
  readonly email: string | undefined;
  readonly successUrl: string;
  readonly cancelUrl: string;
}

export interface Processor {
  /** What is sold as a plan; undefined = no such plan, or none of it is sold. */
  readonly priceOf: (plan: string) => { readonly plan: PlanName; readonly price: string } | undefined;
  /** Address of the hosted checkout. Throws `payment_error`. */
  readonly checkout: (options: CheckoutOptions) => Promise<string>;
  /** Address of the hosted customer portal. Throws `payment_error`. */
  readonly portal: (customer: string, returnUrl: string) => Promise<string>;
  /** Ends a subscription at once; one that has ended, or was never there, is as good. Throws `payment_error`, `aborted`. */
  readonly cancel: (subscription: string, signal: AbortSignal) => Promise<void>;
  /** A verified event. Throws `bad_request` for a signature that is none, is another's, or is too old or too new. */
  readonly event: (body: Buffer, signature: string) => ReadEvent;
}

export interface ProcessorOptions {
  readonly billing: Billing | undefined;
  readonly secrets: { readonly secretKey: string; readonly webhookSecret: string } | undefined;
  readonly log: Log;
  /** Unix milliseconds. */
  readonly now: () => number;
}

const soldPlans = ['pro', 'team', 'enterprise'] as const;

/** Undefined where no billing is configured: then the library, which is large, is not loaded either. */
export const createProcessor = async ({ billing, secrets, log, now }: ProcessorOptions): Promise<Processor | undefined> => {
  if (billing === undefined || secrets === undefined) return undefined;
  const { Stripe: Client } = await import('stripe');
  const { StripeError, StripeInvalidRequestError } = Client.errors;
  /** What of a failure may be logged: no text of Stripe's, which may name people. */
  const failure = (error: unknown): Readonly<Record<string, unknown>> => (error instanceof StripeError
    ? { type: error.type, code: error.code, status: error.statusCode, request: error.requestId }
    : { type: error instanceof Error ? error.name : typeof error });
  /** What was to be ended is not there, or is ended. */
  const isMissing = (error: unknown): boolean => error instanceof StripeInvalidRequestError && (error.code === 'resource_missing' || error.statusCode === 404);

  const { prices } = billing;
  const api = new URL(billing.stripe.api_url);
  const secure = api.protocol === 'https:';
  const stripe: Stripe = new Client(secrets.secretKey, {
    host: api.hostname, port: api.port === '' ? (secure ? 443 : 80) : Number(api.port), protocol: secure ? 'https' : 'http',
    // A connection of its own for each request: none that has died in between is taken for a failure.
    httpAgent: secure ? new HttpsAgent({ keepAlive: false }) : new HttpAgent({ keepAlive: false }),
    timeout: limits.paymentsDeadlineMs, maxNetworkRetries: 0, telemetry: false,
  });
  let calls = 0;

  const call = async <T>(what: string, run: () => Promise<T>): Promise<T> => {
    if (calls >= limits.paymentsCallsMax) throw coded('payment_error', 'Too many payments are being prepared. Try again in a moment.');
    calls += 1;
    const late = Promise.withResolvers<never>();
    const timer = setTimeout(() => late.reject(coded('payment_error')), limits.paymentsDeadlineMs);
    const running = run().finally(() => { calls -= 1; });
    try {
      return await Promise.race([running, late.promise]);
    } catch (error) {
      log.error({ what, ...failure(error) }, 'the payment processor failed');
      // Without its cause, whose text is the processor's.
      throw coded('payment_error');
    } finally {
      clearTimeout(timer);
    }
  };

  const url = (what: string, made: { readonly url: string | null }): string => {
    if (made.url === null) throw coded('payment_error', `${what} has no address.`);
    return made.url;
  };

  const verified = (body: Buffer, signature: string): unknown => {
    const at = now();
    const refused = coded('bad_request', 'The signature of this event could not be verified.');
    // The helper refuses what is too old, not what is too new. It reads a time as far as it can: only one that is all digits is the same to both.
    for (const [key, seconds = ''] of signature.split(',').map((item) => item.split('='))) {
      if (key === 't' && (!/^\d{1,15}$/.test(seconds) || Number(seconds) - Math.floor(at / 1_000) > limits.paymentSignatureSec)) throw refused;
    }
    try {
      return stripe.webhooks.constructEvent(body, signature, secrets.webhookSecret, limits.paymentSignatureSec, undefined, at);
    } catch {
      // Whatever it was, it holds the body and the header: neither goes on.
      throw refused;
    }
  };

  return {
    priceOf: (name) => {
      const plan = soldPlans.find((one) => one === name);
      const price = plan === undefined ? undefined : prices[plan][0];
      return plan === undefined || price === undefined ? undefined : { plan, price };
    },
    checkout: async ({ organizationId, plan, price, customer, email, successUrl, cancelUrl }) => url('The checkout', await call('checkout', () => stripe.checkout.sessions.create({
      mode: 'subscription', line_items: [{ price, quantity: 1 }], client_reference_id: organizationId, success_url: successUrl, cancel_url: cancelUrl,
      metadata: { organizationId, plan }, subscription_data: { metadata: { organizationId } },
      ...(customer !== null ? { customer } : email === undefined ? {} : { customer_email: email }),
    }))),
    portal: async (customer, returnUrl) => url('The portal', await call('portal', () => stripe.billingPortal.sessions.create({ customer, return_url: returnUrl }))),
    cancel: async (subscription, signal) => {
      if (signal.aborted) throw coded('aborted');
      await call('cancel', async () => {
        try {
          await stripe.subscriptions.cancel(subscription);
        } catch (error) {
          if (!isMissing(error)) throw error;
        }
      });
    },
    event: (body, signature) => readEvent(verified(body, signature), (price) => soldPlans.find((plan) => prices[plan].includes(price)) ?? null),
  };
};
