/**
 * Paid plans under attack, through a whole stack and a Stripe-like server: forged and doubled deliveries, events of one organization that
 * name another, everything at once over both gateways, hosts and NATS lost in the middle, wallets drained in parallel. Afterwards the
 * processor, the payments, the wallet, the usage rows and the journals say the same, to the cent.
 */
import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { after, before, describe, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { usageSummary } from '../../contracts/billing.ts';
import { billingRoutes } from '../../contracts/billing-routes.ts';
import type { StoredEvent } from '../../contracts/event.ts';
import { balance } from '../../contracts/wallet.ts';
import { within } from '../harness/chaos.ts';
import { say } from '../harness/chat.ts';
import { refusal } from '../harness/organization.ts';
import { chargedTurns, meteredTurns, paidOf, sumOf } from '../harness/paid.ts';
import { paymentsOf, startPaying, type Paying } from '../harness/paying.ts';
import { answered, type Person } from '../harness/platform.ts';
import { count } from '../harness/session.ts';
import { linked } from '../harness/stack.ts';
import { signed, stripeSecrets, type StripeEvent } from '../harness/stripe.ts';

const { path } = billingRoutes.paymentEvents;
const at = (type: string) => (id: string) => ({ org: id, type, key: id });
const [organizationAt, walletAt] = [at('organization'), at('wallet')];
/** 1 cent a token in, 10 cents a token out. */
const models = { default: 'dear', registry: [{ id: 'dear', provider: 'mock', input_usd_per_mtok: 10_000, output_usd_per_mtok: 100_000 }] } as const;

describe('billing under attack', () => {
  let paying: Paying;
  before(async () => { paying = await startPaying({ gate: 'true', gateway: { console: false }, models: { default: models.default, registry: [...models.registry] } }); });
  after(() => paying.stop());

  const founded = async (slug: string): Promise<{ readonly owner: Person; readonly id: string }> => {
    const owner = await paying.world.person(`owner@${slug}.example`);
    return { owner, id: (await paying.world.organizations.create(owner, slug)).id };
  };
  const until = (of: ReturnType<typeof walletAt>, what: string, held: (events: readonly StoredEvent[]) => boolean): Promise<StoredEvent[]> =>
    within(90_000, what, paying.journals.until(of, held), () => paying.platform.report());
  const planIs = (id: string, plan: string): Promise<unknown> => until(organizationAt(id), `plan ${plan}`, (all) => all.findLast(({ k }) => k === 'PlanSet')?.d['plan'] === plan);
  const renewed = (id: string, times: number): Promise<StoredEvent[]> => until(walletAt(id), `${times} renewals`, (all) => count(all, 'Renewed') >= times);
  const balanceOf = async (id: string) => balance.parse(await paying.world.system(walletAt(id), 'balance', {}));
  /** As Stripe does: again, until it is received. */
  const insist = async (event: unknown, gateway: number): Promise<void> => {
    for (let tries = 0; tries < 200; tries++) if (await paying.send(event, { gateway }).then(({ status }) => status === 200, () => false)) return;
    assert.fail('the event was not received');
  };
  /** The other objects of an event, altered. */
  const altered = (event: StripeEvent | undefined, id: string, more: object): StripeEvent => {
    assert.ok(event !== undefined);
    return { ...event, id, data: { object: { ...event.data.object, ...more } } };
  };

  test('billing attack - a signature counts for its bytes alone: none of another\'s, two that differ, packed, of nothing, or of other words in the header', async () => {
    const { platform, stripe, journals } = paying;
    const { owner, id } = await founded('forged');
    const { events: [event] } = stripe.pay(await paying.bought(owner, id));
    const { raw, headers: { 'stripe-signature': good = '' } } = signed(event);
    const t = Math.floor(Date.now() / 1_000);
    const of = (text: string, secret: string, time: number | string = t): string => createHmac('sha256', secret).update(`${time}.${text}`).digest('hex');
    const [v1 = ''] = good.match(/v1=\w+/) ?? [];
    const forged: readonly string[] = [
      `t=${t},v1=${of('', stripeSecrets.webhook)}`, `t=${t},v0=${of(raw, stripeSecrets.webhook)}`, `t=${t},v1=${of(raw, '')}`, `t=${t},v1=`, `t=,${v1}`, v1, `t=${t}`, `t=NaN,${v1}`, `t=-1,${v1}`, `t=1e999,${v1}`,
      `t=${t + 400},t=${t},v1=${of(raw, stripeSecrets.webhook, t + 400)}`, `t=${t},t=${t + 400},v1=${of(raw, stripeSecrets.webhook, t + 400)}`, `t=${t + 400} ,v1=${of(raw, stripeSecrets.webhook, t + 400)}`, `t= ${t + 400},v1=${of(raw, stripeSecrets.webhook, t + 400)}`,
      `t=${'9'.repeat(20)},v1=${of(raw, stripeSecrets.webhook, '9'.repeat(20))}`, `t=${'9'.repeat(400)},${v1}`, `${'v1=00,'.repeat(100)}t=${t}`, '__proto__=1', ',,,===', 't=1,v1=2,t=3',
    ];
    for (const signature of forged) {
      const { status, body } = await platform.api('POST', path, { raw, headers: { 'stripe-signature': signature } });
      assert.ok(status === 400 && body.includes('"bad_request"'), `${signature.slice(0, 60)}: ${status} ${body}`);
    }
    assert.equal(refusal(await platform.api('POST', path, { raw: `${raw} `, headers: { 'stripe-signature': good } })), '400 bad_request');
    // The bytes that are signed are those that came: a packed body is not unpacked.
    const packed = gzipSync(raw).toString('latin1');
    assert.equal((await platform.api('POST', path, { raw: packed, headers: { 'stripe-signature': good, 'content-encoding': 'gzip' } })).status, 400);
    assert.deepEqual(await journals.events(paymentsOf(id)), []);
    // Secrets that are rolled give two, of which one is ours.
    assert.equal((await platform.api('POST', path, { raw, headers: { 'stripe-signature': `t=${t},v1=${'0'.repeat(64)},v1=${of(raw, stripeSecrets.webhook)}`, 'content-type': 'text/plain; charset=utf-8' } })).status, 200);
    assert.equal(count(await journals.events(paymentsOf(id)), 'EventTaken'), 1);
  });

  test('billing attack - each event twenty times at once over both gateways and hosts: one of each is taken, one period begins', async () => {
    const { stripe, journals } = paying;
    const { owner, id } = await founded('flood');
    const { subscription, events } = stripe.pay(await paying.bought(owner, id));
    const all = [...events, ...stripe.renew(subscription.id)];
    // One invoice, told of by forty events of other ids.
    const invoice = all.findLast(({ type }) => type === 'invoice.payment_succeeded');
    const copies = Array.from({ length: 40 }, (_, i) => altered(invoice, `${invoice?.id ?? ''}c${i}`, {}));
    await Promise.all([...Array.from({ length: 20 }, () => all).flat(), ...copies].map((event, i) => insist(event, i % 2)));
    await planIs(id, 'pro');
    const taken = await journals.events(paymentsOf(id));
    assert.equal(count(taken, 'EventTaken'), all.length + copies.length);
    const granted = taken.filter(({ k, d }) => k === 'InvoicePaid' && d['granted'] === true).map(({ d }) => d['invoice']);
    assert.equal(new Set(granted).size, granted.length);
    assert.equal(count(await renewed(id, granted.length), 'Renewed'), granted.length);
  });

  test('billing attack - an invoice of the period that is paid gives nothing, nor do a change, a proration, another currency\'s or no price; amounts are not looked at', async () => {
    const { stripe, journals, send } = paying;
    const { owner, id } = await founded('twice');
    const { subscription, events } = stripe.pay(await paying.bought(owner, id));
    await paying.deliver(events);
    await renewed(id, 1);
    await paying.world.system(walletAt(id), 'charge', { turn_id: 'used', cents: 4_321, model: 'm', by: 'usr_a', input_tokens: 1, output_tokens: 1, at: Date.now() });
    const invoice = events.find(({ type }) => type === 'invoice.payment_succeeded');
    for (const [nth, more] of [
      { id: 'in_second' }, { id: 'in_minus', amount_paid: -2_000, amount_due: -1.5, total: 1e308 }, { id: 'in_manual', billing_reason: 'manual' }, { id: 'in_update', billing_reason: 'subscription_update' },
      { id: 'in_threshold', billing_reason: 'subscription_threshold' }, { id: 'in_alone', parent: null, metadata: { organizationId: id } }, { id: 'in_eur', currency: 'eur' },
    ].entries()) await insist(altered(invoice, `evt_twice_${nth}`, more), nth % 2);
    // Renewal and change in one, in both orders.
    const both = [...stripe.change(subscription.id, 'price_team'), ...stripe.renew(subscription.id)];
    for (const event of [...both.toReversed(), ...both]) await insist(event, 1);
    await planIs(id, 'team');
    const purse = await renewed(id, 2);
    assert.equal(count(purse, 'Renewed'), 2);
    const strange = altered(invoice, 'evt_strange', { id: 'in_strange', lines: { data: [{ pricing: { price_details: { price: 'price_pro_eur' } }, period: { end: stripe.now() + 90 * 86_400 } }] }, parent: { subscription_details: { subscription: 'sub_strange', metadata: { organizationId: id } } } });
    assert.equal(refusal(await send(strange)), '500 payment_error');
    for (const more of [{ id: '../x' }, { id: 7 }, { lines: { data: [{ period: { end: -1 } }] } }, { lines: { data: [{ period: { end: 1.5 } }] } }, { lines: { data: [{ period: { end: 1e300 } }] } }, { lines: 7 }, { customer: 'cus_*.>' }]) {
      assert.equal(refusal(await send(altered(invoice, 'evt_bad', more))), '400 bad_request', JSON.stringify(more));
    }
    assert.equal(count(await journals.events(walletAt(id)), 'Renewed'), 2);
    assert.deepEqual(await balanceOf(id).then(({ used, monthly }) => [used, monthly]), [0, 20_000]);
  });

  test('billing attack - what was cancelled stays so whatever late words of it come; another organization\'s events change nothing here', async () => {
    const { stripe, journals } = paying;
    const [mine, theirs] = [await founded('mine'), await founded('theirs')];
    const { subscription, events } = stripe.pay(await paying.bought(mine.owner, mine.id));
    await paying.deliver(events);
    await planIs(mine.id, 'pro');
    const late = [...stripe.change(subscription.id, 'price_team'), ...stripe.renew(subscription.id)];
    await paying.deliver(stripe.cancel(subscription.id));
    await planIs(mine.id, 'free');
    await until(walletAt(mine.id), 'the lapse', (all) => count(all, 'Lapsed') === 1);
    const more = late.map((event, i) => altered(event, `evt_late_${i}`, {})).map((event) => ({ ...event, created: event.created + 86_400 }));
    for (const event of [...late, ...more, ...events]) await insist(event, 0);
    assert.equal((await paying.tierOf(mine.owner)).plan, 'free');
    assert.equal(count(await journals.events(walletAt(mine.id)), 'Renewed'), 1);

    // A customer of mine in events that say nothing of whose they are is mine; the other one has none of it.
    const before = await journals.events(paymentsOf(theirs.id));
    const silent = events.filter(({ type }) => type !== 'checkout.session.completed').map((event, i) => altered(event, `evt_silent_${i}`, { metadata: {}, parent: null, subscription: 'sub_silent' }));
    for (const event of silent) await insist(event, 1);
    assert.deepEqual(await journals.events(paymentsOf(theirs.id)), before);
    assert.equal((await paying.tierOf(theirs.owner)).plan, 'free');
    assert.equal(refusal(await paying.portal(theirs.owner.accessToken, { organizationId: mine.id })), '404 not_found');
    assert.equal(refusal(await paying.portal(theirs.owner.accessToken, { organizationId: theirs.id })), '400 bad_request');
  });

  test('billing attack - ten checkouts at once that are all paid end as one subscription; the others are cancelled at the processor', { timeout: 240_000 }, async () => {
    const { stripe } = paying;
    const { owner, id } = await founded('ten');
    const urls = await Promise.all(Array.from({ length: 10 }, (_, i) => paying.bought(owner, id, i % 2 === 0 ? 'pro' : 'team')));
    const bought = urls.map((url) => {
      stripe.wait(1);
      return stripe.pay(url);
    });
    await Promise.all(bought.flatMap(({ events }) => events).map((event, i) => insist(event, i % 2)));
    const youngest = bought.at(-1)?.subscription;
    await until(paymentsOf(id), 'nine to be cancelled', (all) => new Set(all.filter(({ k }) => k === 'Cancelled').map(({ d }) => d['subscription'])).size === 9);
    assert.deepEqual(bought.filter(({ subscription }) => stripe.subscriptions.get(subscription.id)?.status === 'active').map(({ subscription }) => subscription.id), [youngest?.id]);
    // What the processor tells of the ends.
    for (const event of stripe.events.slice(-40).filter(({ type }) => type === 'customer.subscription.deleted')) await insist(event, 0);
    await planIs(id, 'team');
    assert.equal((await paying.tierOf(owner)).credits.remaining, 20_000);
  });

  test('billing attack - fifty turns at once on few credits: all that began are charged, then none begins; events, charges, balance and rows agree', { timeout: 240_000 }, async () => {
    const { world, platform, journals } = paying;
    const { owner, id } = await founded('drain');
    await world.setPlan(id, { plan: 'enterprise', limits: { perMinute: -1, perDay: -1, maxApiKeys: -1, maxMembers: -1, credits: 100 } });
    const replies = await Promise.all(Array.from({ length: 50 }, (_, i) => world.post(owner.accessToken, { model: 'dear', messages: say(`/say ${'x'.repeat(i)}`), stream: i % 3 === 0 }, { gateway: i % 2 })));
    const [through, refused] = [replies.filter(({ status }) => status === 200), replies.filter(({ status }) => status === 402)];
    assert.equal(through.length + refused.length, 50, JSON.stringify(replies.map(({ status, body }) => [status, body.slice(0, 90)])));
    const metered = paidOf(meteredTurns(await world.journaled(id)));
    assert.equal(metered.size, through.length);
    const charged = await until(walletAt(id), 'the charges', (all) => sumOf(chargedTurns(all)) >= sumOf(metered));
    assert.deepEqual(paidOf(chargedTurns(charged)), metered);
    const { used, remaining } = await balanceOf(id);
    assert.deepEqual([used, remaining], [sumOf(metered), 0]);
    const usage = answered(await platform.api('GET', '/api/usage', { token: owner.accessToken }), 200, usageSummary);
    assert.equal(usage.totalCostCents, sumOf(metered));
    assert.equal((await world.post(owner.accessToken, { model: 'dear', messages: say('x') })).status, 402);
    assert.equal(chargedTurns(await journals.events(walletAt(id))).size, metered.size);
  });

  test('billing attack - hosts killed and NATS started anew at each event of a purchase, with turns under way: all is taken once and agrees to the cent', { timeout: 300_000 }, async () => {
    const { stripe, platform, world, journals } = paying;
    const { owner, id } = await founded('storm');
    const { subscription, events } = stripe.pay(await paying.bought(owner, id));
    const all = [...events, ...stripe.renew(subscription.id), ...stripe.change(subscription.id, 'price_team')];
    for (const [nth, event] of all.entries()) {
      const chats = [0, 1].map((gateway) => world.post(owner.accessToken, { model: 'dear', messages: say(`/say ${nth}`) }, { gateway }).then(({ status }) => status, () => 0));
      const sent = paying.send(event, { gateway: nth % 2 }).then(({ status }) => status, () => 0);
      if (nth % 3 === 2) {
        await platform.nats.restart();
      } else {
        await platform.daemons[nth % 2]?.kill('SIGKILL');
        await platform.daemons[nth % 2]?.start();
      }
      await Promise.all(platform.gateways.map((gateway) => linked(gateway, platform.daemons.length)));
      if (await sent !== 200) await insist(event, nth % 2);
      await Promise.all(chats);
    }
    await planIs(id, 'team');
    const taken = await journals.events(paymentsOf(id));
    assert.deepEqual(taken.filter(({ k }) => k === 'EventTaken').map(({ d }) => d['event']).toSorted(), all.map((event) => event.id).toSorted());
    const granted = taken.filter(({ k, d }) => k === 'InvoicePaid' && d['granted'] === true);
    assert.equal(count(await renewed(id, granted.length), 'Renewed'), granted.length);
    // What nobody waits for goes on, or is given up by whoever takes over: both are metered.
    const settled = async (): Promise<ReadonlyMap<string, number>> => {
      for (;;) {
        const found = await world.journaled(id);
        const begun = count(found, 'CompletionStarted');
        if (begun === count(found, 'CompletionFinished') + count(found, 'CompletionFailed')) {
          const turns = meteredTurns(found);
          assert.equal(turns.size, begun);
          return paidOf(turns);
        }
      }
    };
    const metered = await within(90_000, 'the end of all turns', settled(), () => platform.report());
    const charged = await until(walletAt(id), 'every charge', (found) => chargedTurns(found).size >= metered.size);
    assert.deepEqual(paidOf(chargedTurns(charged)), metered);
    const usage = answered(await platform.api('GET', '/api/usage', { token: owner.accessToken }), 200, usageSummary);
    assert.equal(usage.totalCostCents, sumOf(metered));
  });
});
