/**
 * A Stripe-like service over HTTP for tests: customers, checkout sessions, subscriptions, invoices and portal sessions with state of their own,
 * asked by the official library, and the events it would send, signed by the library's own helper.
 *
 * What people do there (pay, renew, change, cancel) is done by the test. Events come in Stripe's shape of its current API version; their times
 * pass only when the test lets them. It takes exactly one secret key, and says about everything else what Stripe says.
 */
import assert from 'node:assert/strict';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Stripe } from 'stripe';

export const stripeSecrets = { key: 'sk_test_sesame0123456789', webhook: 'whsec_sesame0123456789' } as const;

export interface StripeEvent {
  readonly id: string;
  readonly object: 'event';
  readonly type: string;
  /** Unix seconds. */
  readonly created: number;
  readonly data: { readonly object: Readonly<Record<string, unknown>> };
}

export interface StripeSubscription {
  readonly id: string;
  readonly customer: string;
  readonly created: number;
  readonly metadata: Readonly<Record<string, string>>;
  status: string;
  price: string;
  periodEnd: number;
}

interface CheckoutSession {
  readonly id: string;
  readonly fields: Readonly<Record<string, string>>;
}

export interface StripeServer {
  readonly url: string;
  /** Requests that came, as `POST /v1/…`, with the fields of their bodies. */
  readonly requests: { readonly line: string; readonly fields: Readonly<Record<string, string>> }[];
  readonly subscriptions: ReadonlyMap<string, StripeSubscription>;
  /** Events of all that has happened, oldest first. */
  readonly events: readonly StripeEvent[];
  /** Every request from now on fails so; undefined = they are answered. `hang`: there is no answer. */
  failing: { readonly status: number; readonly message: string } | 'hang' | undefined;
  /** Seconds pass. */
  wait(seconds: number): void;
  now(): number;
  /** Somebody pays at the hosted checkout: a subscription, paid for. Gives the events of it. */
  pay(checkoutUrl: string): { readonly subscription: StripeSubscription; readonly events: readonly StripeEvent[] };
  /** The period ends and the next one is paid for, or is not. */
  renew(subscription: string, outcome?: 'paid' | 'failed'): readonly StripeEvent[];
  change(subscription: string, price: string): readonly StripeEvent[];
  cancel(subscription: string): readonly StripeEvent[];
  stop(): Promise<void>;
}

/** Body and header of a delivery, as Stripe sends it. `at`: Unix seconds of the signature, default now. */
export const signed = (event: unknown, options: { readonly secret?: string; readonly at?: number; readonly indent?: number } = {}): { readonly raw: string; readonly headers: Readonly<Record<string, string>> } => {
  const payload = JSON.stringify(event, undefined, options.indent);
  const timestamp = options.at ?? Math.floor(Date.now() / 1_000);
  return { raw: payload, headers: { 'stripe-signature': stripe.webhooks.generateTestHeaderString({ payload, timestamp, secret: options.secret ?? stripeSecrets.webhook }) } };
};
const stripe = new Stripe(stripeSecrets.key);

const month = 30 * 86_400;

const bodyOf = async (request: IncomingMessage): Promise<Readonly<Record<string, string>>> => {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  return Object.fromEntries(new URLSearchParams(Buffer.concat(chunks).toString('utf8')));
};

const refuse = (status: number, error: Readonly<Record<string, unknown>>) => ({ status, body: { error: { type: 'invalid_request_error', ...error } } });
const missing = (what: string, id: string) => refuse(404, { code: 'resource_missing', message: `No such ${what}: '${id}'` });

export const startStripe = async (): Promise<StripeServer> => {
  const customers = new Map<string, string>();
  const sessions = new Map<string, CheckoutSession>();
  const subscriptions = new Map<string, StripeSubscription>();
  const events: StripeEvent[] = [];
  const requests: StripeServer['requests'] = [];
  const hanging = new Set<ServerResponse>();
  let made = 0;
  let offset = 0;
  const run = Math.random().toString(36).slice(2, 8);
  const id = (prefix: string): string => `${prefix}_${run}${String(++made).padStart(6, '0')}`;
  const now = (): number => Math.floor(Date.now() / 1_000) + offset;

  const emit = (type: string, object: Readonly<Record<string, unknown>>): StripeEvent => {
    const event: StripeEvent = { id: id('evt'), object: 'event', type, created: now(), data: { object } };
    events.push(event);
    return event;
  };
  const shown = (of: StripeSubscription): Readonly<Record<string, unknown>> => ({
    id: of.id, object: 'subscription', customer: of.customer, status: of.status, created: of.created, metadata: of.metadata,
    items: { object: 'list', data: [{ id: `si_${of.id}`, object: 'subscription_item', price: { id: of.price, object: 'price' }, current_period_end: of.periodEnd }] },
  });
  const invoiceOf = (of: StripeSubscription, reason: string): Readonly<Record<string, unknown>> => ({
    id: id('in'), object: 'invoice', customer: of.customer, billing_reason: reason, metadata: {}, amount_due: 2_000,
    parent: { type: 'subscription_details', subscription_details: { subscription: of.id, metadata: of.metadata } },
    lines: { object: 'list', data: [{
      id: id('il'), object: 'line_item', period: { start: of.periodEnd - month, end: of.periodEnd }, pricing: { type: 'price_details', price_details: { price: of.price } },
      parent: { type: 'subscription_item_details', subscription_item_details: { proration: reason === 'subscription_update', subscription: of.id } },
    }] },
  });
  const existing = (subscription: string): StripeSubscription => subscriptions.get(subscription) ?? assert.fail(`no subscription ${subscription}`);
  const end = (of: StripeSubscription): StripeEvent => {
    of.status = 'canceled';
    return emit('customer.subscription.deleted', shown(of));
  };

  const answer = (line: string, path: readonly string[], fields: Readonly<Record<string, string>>): { readonly status: number; readonly body: Readonly<Record<string, unknown>> } => {
    switch (true) {
      case line === 'POST /v1/checkout/sessions': {
        const { customer } = fields;
        if (customer !== undefined && !customers.has(customer)) return missing('customer', customer);
        const session = { id: id('cs'), fields };
        sessions.set(session.id, session);
        return { status: 200, body: { id: session.id, object: 'checkout.session', url: `https://checkout.stripe.example/c/${session.id}` } };
      }
      case line === 'POST /v1/billing_portal/sessions': {
        const { customer = '' } = fields;
        if (!customers.has(customer)) return missing('customer', customer);
        return { status: 200, body: { id: id('bps'), object: 'billing_portal.session', url: `https://billing.stripe.example/p/${customer}` } };
      }
      case line.startsWith('DELETE /v1/subscriptions/'): {
        const of = subscriptions.get(path[3] ?? '');
        if (of === undefined || of.status === 'canceled') return missing('subscription', path[3] ?? '');
        end(of);
        return { status: 200, body: shown(of) };
      }
      default: return refuse(404, { message: `Unrecognized request URL (${line}).` });
    }
  };

  const serve = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const line = `${request.method ?? ''} ${request.url?.split('?')[0] ?? ''}`;
    const fields = await bodyOf(request);
    requests.push({ line, fields });
    const { failing } = server;
    if (failing === 'hang') {
      hanging.add(response);
      return;
    }
    const { status, body } = failing !== undefined ? refuse(failing.status, { type: 'api_error', message: failing.message })
      : request.headers.authorization !== `Bearer ${stripeSecrets.key}` ? refuse(401, { message: 'Invalid API Key provided' })
        : answer(line, (request.url ?? '').split('?')[0]?.split('/') ?? [], fields);
    response.writeHead(status, { 'content-type': 'application/json', 'request-id': id('req') }).end(JSON.stringify(body));
  };

  const http = createServer((request, response) => {
    serve(request, response).catch((error: unknown) => response.destroy(error instanceof Error ? error : undefined));
  });
  await new Promise<void>((resolve) => { http.listen(0, '127.0.0.1', resolve); });
  const server: StripeServer = {
    url: `http://127.0.0.1:${(http.address() as AddressInfo).port}`, requests, subscriptions, events, failing: undefined, now,
    wait: (seconds) => { offset += seconds; },
    pay: (checkoutUrl) => {
      const session = sessions.get(checkoutUrl.split('/').at(-1) ?? '');
      assert.ok(session !== undefined, `no checkout ${checkoutUrl}`);
      sessions.delete(session.id);
      const { fields } = session;
      const customer = fields['customer'] ?? id('cus');
      customers.set(customer, fields['customer_email'] ?? '');
      const subscription: StripeSubscription = {
        id: id('sub'), customer, created: now(), status: 'incomplete', price: fields['line_items[0][price]'] ?? '', periodEnd: now() + month,
        metadata: { organizationId: fields['subscription_data[metadata][organizationId]'] ?? '' },
      };
      subscriptions.set(subscription.id, subscription);
      const all = [emit('customer.subscription.created', shown(subscription))];
      subscription.status = 'active';
      all.push(
        emit('invoice.payment_succeeded', invoiceOf(subscription, 'subscription_create')), emit('customer.subscription.updated', shown(subscription)),
        emit('checkout.session.completed', {
          id: session.id, object: 'checkout.session', mode: 'subscription', customer, subscription: subscription.id, client_reference_id: fields['client_reference_id'] ?? null,
          metadata: { organizationId: fields['metadata[organizationId]'] ?? '' }, customer_details: { email: 'payer@example.com', name: 'Payer' },
        }),
      );
      return { subscription, events: all };
    },
    renew: (subscription, outcome = 'paid') => {
      const of = existing(subscription);
      server.wait(Math.max(0, of.periodEnd - now()) + 1);
      of.periodEnd += month;
      of.status = outcome === 'paid' ? 'active' : 'past_due';
      return [emit('customer.subscription.updated', shown(of)), emit(outcome === 'paid' ? 'invoice.payment_succeeded' : 'invoice.payment_failed', invoiceOf(of, 'subscription_cycle'))];
    },
    change: (subscription, price) => {
      const of = existing(subscription);
      of.price = price;
      return [emit('customer.subscription.updated', shown(of)), emit('invoice.payment_succeeded', invoiceOf(of, 'subscription_update'))];
    },
    cancel: (subscription) => [end(existing(subscription))],
    stop: async () => {
      for (const response of hanging) response.destroy();
      http.closeAllConnections();
      await new Promise<void>((resolve) => { http.close(() => resolve()); });
    },
  };
  return server;
};
