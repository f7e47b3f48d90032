/** The adapter to Stripe, by the official library against a Stripe-like server over HTTP: what is asked, what is believed, and that nothing of Stripe's gets out. */
import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { createProcessor, type Processor } from '../../actors/payments/stripe.ts';
import { daemonConfig } from '../../contracts/config.ts';
import { limits } from '../../contracts/limits.ts';
import { recorder } from '../harness/log.ts';
import { codeOf } from '../harness/memory-host.ts';
import { signed, startStripe, stripeSecrets, type StripeServer } from '../harness/stripe.ts';

const org = 'org_01jd0000000000000000000009';
const nowMs = 1_800_000_000_000;
const nowSec = nowMs / 1_000;

interface Setting {
  readonly stripe: StripeServer;
  readonly processor: Processor;
  readonly log: ReturnType<typeof recorder>;
}

const setting = async (t: TestContext, secretKey: string = stripeSecrets.key): Promise<Setting> => {
  const stripe = await startStripe();
  t.after(() => stripe.stop());
  const log = recorder();
  const billing = daemonConfig.shape.billing.parse({
    stripe: { api_url: stripe.url, secret_key_path: '-', webhook_secret_path: '-' }, prices: { pro: ['price_pro', 'price_pro_old'], team: ['price_team'] },
  });
  const processor = await createProcessor({ billing, secrets: { secretKey, webhookSecret: stripeSecrets.webhook }, log, now: () => nowMs });
  assert.ok(processor !== undefined);
  return { stripe, processor, log };
};

const event = (type: string, object: object, more: object = {}): object => ({ id: 'evt_1', object: 'event', type, created: nowSec, data: { object }, ...more });
const deliver = ({ processor }: Setting, sent: unknown, options: Parameters<typeof signed>[1] = {}): ReturnType<Processor['event']> => {
  const { raw, headers } = signed(sent, { at: nowSec, ...options });
  return processor.event(Buffer.from(raw), headers['stripe-signature'] ?? '');
};
const refused = (run: () => unknown): Promise<string> => codeOf(Promise.resolve().then(run));
const subscription = (more: object = {}): object => ({
  id: 'sub_1', customer: 'cus_1', status: 'active', created: nowSec - 5, metadata: { organizationId: org }, items: { data: [{ price: { id: 'price_pro' } }] }, ...more,
});

test('stripe - without billing there is no processor, and a plan is sold by its first price alone [BIL-031]', async (t) => {
  assert.equal(await createProcessor({ billing: undefined, secrets: undefined, log: recorder(), now: Date.now }), undefined);
  const { processor } = await setting(t);
  assert.deepEqual(processor.priceOf('pro'), { plan: 'pro', price: 'price_pro' });
  for (const plan of ['enterprise', 'free', 'gold', 'constructor', '']) assert.equal(processor.priceOf(plan), undefined, plan);
});

test('stripe - a checkout names price, organization and payer; a known customer pays as that; the portal is the customer\'s [BIL-024] [BIL-034]', async (t) => {
  const { stripe, processor, log } = await setting(t);
  const sold = { organizationId: org, plan: 'pro', price: 'price_pro', successUrl: 'https://x.example/?a=1', cancelUrl: 'https://x.example/?a=2' } as const;
  const url = await processor.checkout({ ...sold, customer: null, email: 'ann@example.com' });
  assert.match(url, /^https:\/\/checkout\.stripe\.example\/c\/cs_/);
  assert.deepEqual(stripe.requests.at(-1)?.fields, {
    mode: 'subscription', 'line_items[0][price]': 'price_pro', 'line_items[0][quantity]': '1', client_reference_id: org, success_url: sold.successUrl, cancel_url: sold.cancelUrl,
    'metadata[organizationId]': org, 'metadata[plan]': 'pro', 'subscription_data[metadata][organizationId]': org, customer_email: 'ann@example.com',
  });
  const { subscription: { customer } } = stripe.pay(url);
  await processor.checkout({ ...sold, customer, email: 'ann@example.com' });
  const { fields = {} } = stripe.requests.at(-1) ?? {};
  assert.deepEqual([fields['customer'], fields['customer_email']], [customer, undefined]);
  assert.match(await processor.portal(customer, 'https://x.example/'), /^https:\/\/billing\.stripe\.example\/p\/cus_/);
  assert.deepEqual(log.lines, []);
});

test('stripe - a subscription is cancelled; one that is not there is as good as cancelled; a failure is one [ORG-027]', async (t) => {
  const { stripe, processor } = await setting(t);
  const { signal } = new AbortController();
  const { subscription: { id } } = stripe.pay(await processor.checkout({ organizationId: org, plan: 'pro', price: 'price_pro', customer: null, email: undefined, successUrl: 'https://x.example', cancelUrl: 'https://x.example' }));
  await processor.cancel(id, signal);
  assert.equal(stripe.subscriptions.get(id)?.status, 'canceled');
  await processor.cancel(id, signal);
  await processor.cancel('sub_none', signal);
  stripe.failing = { status: 500, message: 'no' };
  assert.equal(await codeOf(processor.cancel(id, signal)), 'payment_error');
  assert.equal(await codeOf(processor.cancel(id, AbortSignal.abort())), 'aborted');
});

test('stripe - whatever fails is payment_error: Stripe\'s words and the key are in neither error nor log [BIL-032]', async (t) => {
  for (const [status, key] of [[500, stripeSecrets.key], [400, stripeSecrets.key], [429, stripeSecrets.key], [401, 'sk_test_wrong0000000']] as const) {
    const { stripe, processor, log } = await setting(t, key);
    if (status !== 401) stripe.failing = { status, message: 'sesame: ann@example.com has no money' };
    const failed: unknown = await processor.portal('cus_secretive', 'https://x.example/').then(() => undefined, (error: unknown) => error);
    assert.ok(failed instanceof Error && 'code' in failed);
    assert.equal(failed.code, 'payment_error');
    assert.equal(failed.cause, undefined);
    assert.equal(log.lines.length, 1, 'staff hears of it');
    for (const word of ['sesame', 'ann@', key, 'wrong0000000', 'cus_secretive']) assert.ok(!`${failed.message} ${JSON.stringify(log.lines)}`.includes(word), word);
    assert.equal(stripe.requests.length, 1, 'it is not tried again behind the caller\'s back');
  }
  const { stripe, processor } = await setting(t);
  await stripe.stop();
  assert.equal(await codeOf(processor.portal('cus_1', 'https://x.example/')), 'payment_error');
});

test('stripe - a request without an answer ends at its deadline; so many at once and no more [BIL-032]', async (t) => {
  const { stripe, processor } = await setting(t);
  stripe.failing = 'hang';
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const hanging = Array.from({ length: limits.paymentsCallsMax }, () => codeOf(processor.portal('cus_1', 'https://x.example/')));
  await assert.rejects(processor.portal('cus_1', 'https://x.example/'), { code: 'payment_error', message: /^Too many/ });
  t.mock.timers.tick(limits.paymentsDeadlineMs);
  assert.deepEqual(new Set(await Promise.all(hanging)), new Set(['payment_error']));
});

test('stripe - an event is believed by Stripe\'s signature over its very bytes, made within five minutes [BIL-039] [BIL-040] [BIL-041]', async (t) => {
  const s = await setting(t);
  const sent = event('customer.subscription.updated', subscription());
  for (const options of [{}, { indent: 2 }, { at: nowSec - 300 }, { at: nowSec + 300 }]) assert.equal(deliver(s, sent, options).kind, 'ours');
  for (const options of [{ at: nowSec - 301 }, { at: nowSec + 301 }, { at: 0 }, { secret: 'whsec_other' }]) assert.equal(await refused(() => deliver(s, sent, options)), 'bad_request', JSON.stringify(options));
  const { raw, headers: { 'stripe-signature': header = '' } } = signed(sent, { at: nowSec });
  const wrong: readonly [string, string][] = [
    [raw, ''], [raw, 'nonsense'], [raw, header.replace('v1=', 'v0=')], [raw, header.replace(/v1=./, 'v1=x')], [raw.replace('sub_1', 'sub_2'), header], [`${raw} `, header], ['', header],
    // A second time that is nearer to now than the one that is signed.
    [raw, signed(sent, { at: nowSec - 9_000 }).headers['stripe-signature']?.replace('v1', `t=${nowSec},v1`) ?? ''], [raw, `${header},t=${nowSec + 9_000}`],
  ];
  for (const [body, signature] of wrong) assert.equal(await refused(() => s.processor.event(Buffer.from(body), signature)), 'bad_request', signature);
  assert.equal(s.processor.event(Buffer.from(raw), `t=${nowSec},v1=${'0'.repeat(64)},${header.split(',')[1] ?? ''}`).kind, 'ours', 'one of several signatures, as while its secret is changed');
  for (const odd of ['[]', 'null', '{}', '{"id":1}', 'not json', JSON.stringify({ object: 'v2.core.event', id: 'evt_1', type: 'x', created: 1, data: {} })]) {
    const { headers } = signed(JSON.parse('{}'), { at: nowSec });
    assert.equal(await refused(() => s.processor.event(Buffer.from(odd), headers['stripe-signature'] ?? '')), 'bad_request', odd);
  }
  for (const odd of [[], null, {}, { id: 1 }, { object: 'v2.core.event', id: 'evt_1' }, event('customer.subscription.updated', { id: 'sub_1' }), event('invoice.payment_succeeded', {}), event('customer.subscription.updated', subscription({ id: 'sub 1' }))]) {
    assert.equal(await refused(() => deliver(s, odd)), 'bad_request', JSON.stringify(odd));
  }
});

test('stripe - what an event says is read from the shapes of the current and of older API versions [BIL-043] [BIL-044] [BIL-046]', async (t) => {
  const s = await setting(t);
  const read = (type: string, object: object): unknown => {
    const got = deliver(s, event(type, object));
    return got.kind === 'ours' ? [got.organizationId, got.event] : got.kind;
  };
  const common = { event: 'evt_1', at: nowSec, customer: 'cus_1' };
  assert.deepEqual(read('checkout.session.completed', { client_reference_id: org, customer: 'cus_1', subscription: 'sub_1' }), [org, { ...common, kind: 'linked', subscription: 'sub_1' }]);
  assert.deepEqual(read('checkout.session.completed', { client_reference_id: 'theirs', customer: { id: 'cus_1' }, metadata: {} }), [null, { ...common, kind: 'linked', subscription: null }]);
  const word = { ...common, kind: 'subscription', subscription: 'sub_1', plan: 'pro', status: 'live', since: nowSec - 5, made: false };
  assert.deepEqual(read('customer.subscription.updated', subscription()), [org, word]);
  assert.deepEqual(read('customer.subscription.created', subscription({ status: 'incomplete' })), [org, { ...word, status: 'waiting', made: true }]);
  assert.deepEqual(read('customer.subscription.deleted', subscription()), [org, { ...word, status: 'ended' }]);
  const statuses = { active: 'live', trialing: 'live', past_due: 'live', incomplete: 'waiting', unpaid: 'waiting', paused: 'waiting', canceled: 'ended', incomplete_expired: 'ended', unheard: 'waiting' };
  for (const [status, expected] of Object.entries(statuses)) assert.deepEqual(read('customer.subscription.updated', subscription({ status })), [org, { ...word, status: expected }]);
  assert.deepEqual(read('customer.subscription.updated', subscription({ items: { data: [{ price: { id: 'price_strange' } }, { price: { id: 'price_pro_old' } }] } })), [org, word]);
  assert.deepEqual(read('customer.subscription.updated', subscription({ items: { data: [{ price: { id: 'price_strange' } }] }, metadata: null })), [null, { ...word, plan: null }]);

  const until = nowSec + 100;
  const bill = { ...common, kind: 'paid', invoice: 'in_1', subscription: 'sub_1', plan: 'team', until, renews: true };
  const details = { subscription: 'sub_1', metadata: { organizationId: org } };
  const current = {
    id: 'in_1', customer: 'cus_1', billing_reason: 'subscription_cycle', parent: { subscription_details: details },
    lines: { data: [{ period: { end: 1 }, pricing: { price_details: { price: 'price_pro' } }, parent: { subscription_item_details: { proration: true } } }, { period: { end: until }, pricing: { price_details: { price: 'price_team' } } }] },
  };
  const older = { id: 'in_1', customer: 'cus_1', billing_reason: 'subscription_cycle', subscription: 'sub_1', subscription_details: details, lines: { data: [{ period: { end: 1 }, price: { id: 'price_pro' }, proration: true }, { period: { end: until }, price: { id: 'price_team' } }] } };
  for (const shape of [current, older]) assert.deepEqual(read('invoice.payment_succeeded', shape), [org, bill]);
  for (const reason of ['subscription_update', 'manual', 'subscription_threshold']) assert.deepEqual(read('invoice.payment_succeeded', { ...current, billing_reason: reason }), [org, { ...bill, renews: false }]);
  assert.deepEqual(read('invoice.payment_succeeded', { id: 'in_1', customer: 'cus_1' }), [null, { ...bill, subscription: null, plan: null, until: null, renews: false }]);
  assert.deepEqual(read('invoice.payment_failed', current), [org, { ...common, kind: 'unpaid', invoice: 'in_1' }]);
});

test('stripe - every other type of event is nothing to us, whatever it holds [BIL-048]', async (t) => {
  const s = await setting(t);
  for (const type of ['customer.created', 'invoice.paid', 'invoice.created', 'customer.subscription.trial_will_end', 'charge.succeeded', 'constructor']) {
    assert.deepEqual(deliver(s, event(type, { id: 7 })), { kind: 'other', type });
  }
});
