/** The life of subscriptions through a whole stack and a Stripe-like server: bought, renewed, in arrears, changed, ended, deleted, with events twice, in any order, over killed daemons. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { connect, type NatsConnection } from 'nats';
import { z } from 'zod';
import { createErase } from '../../actors/daemon/erase.ts';
import { createLean } from '../../actors/runtime/nats/lean.ts';
import type { StoredEvent } from '../../contracts/event.ts';
import { within } from '../harness/chaos.ts';
import { paymentsOf, startPaying, type Paying } from '../harness/paying.ts';
import type { Person } from '../harness/platform.ts';
import { draw, runSeed } from '../harness/seed.ts';
import { count } from '../harness/session.ts';
import { linked } from '../harness/stack.ts';
import type { StripeEvent } from '../harness/stripe.ts';

const organizationAt = (id: string) => ({ org: id, type: 'organization', key: id });
const walletAt = (id: string) => ({ org: id, type: 'wallet', key: id });
const info = z.object({ state: z.object({ subjects: z.record(z.string(), z.number()).optional() }) });
const names = z.object({ streams: z.array(z.string()) });

describe('payments, life', () => {
  let paying: Paying;
  let nats: NatsConnection;
  before(async () => {
    paying = await startPaying({ gate: 'true' });
    nats = await connect({ servers: paying.platform.nats.url });
  });
  after(async () => {
    await nats.close();
    await paying.stop();
  });

  const founded = async (slug: string): Promise<{ readonly owner: Person; readonly id: string }> => {
    const owner = await paying.world.person(`owner@${slug}.example`);
    return { owner, id: (await paying.world.organizations.create(owner, slug)).id };
  };
  const until = (of: ReturnType<typeof walletAt>, what: string, held: (events: readonly StoredEvent[]) => boolean): Promise<StoredEvent[]> =>
    within(60_000, what, paying.journals.until(of, held), () => paying.platform.report());
  const planIs = (id: string, plan: string): Promise<unknown> => until(organizationAt(id), `plan ${plan}`, (all) => all.filter(({ k }) => k === 'PlanSet').at(-1)?.d['plan'] === plan);
  const renewed = (id: string, times: number): Promise<StoredEvent[]> => until(walletAt(id), `${times} renewals`, (all) => count(all, 'Renewed') >= times);
  const charge = (id: string, cents: number, turn: string): Promise<unknown> =>
    paying.world.system(walletAt(id), 'charge', { turn_id: turn, cents, model: 'm', by: 'usr_a', input_tokens: 1, output_tokens: 1, at: Date.now() });

  test('payments - a bought plan is there with its customer and credits; renewed, in arrears, changed and ended as its events say [BIL-016] [BIL-043] [BIL-044] [BIL-045] [BIL-046] [BIL-047]', async () => {
    const { stripe, deliver, tierOf } = paying;
    const { owner, id } = await founded('life');
    assert.deepEqual(await tierOf(owner).then(({ plan, hasStripeCustomer }) => [plan, hasStripeCustomer]), ['free', false]);
    const url = await paying.bought(owner, id);
    assert.equal((await tierOf(owner)).hasStripeCustomer, false, 'an address is no customer');
    const { subscription, events } = stripe.pay(url);
    await deliver(events);
    await planIs(id, 'pro');
    await renewed(id, 1);
    const bought = await tierOf(owner);
    assert.deepEqual([bought.plan, bought.hasStripeCustomer, bought.credits, bought.organizationId], ['pro', true, { remaining: 5_000, monthly: 5_000 }, id]);

    await charge(id, 4_000, 'a');
    await deliver(stripe.renew(subscription.id, 'failed'), 1);
    assert.deepEqual((await tierOf(owner)).credits, { remaining: 1_000, monthly: 5_000 }, 'in arrears: the plan stays, no credits come');
    await deliver(stripe.renew(subscription.id), 1);
    await renewed(id, 2);
    assert.deepEqual((await tierOf(owner)).credits, { remaining: 5_000, monthly: 5_000 });

    await charge(id, 100, 'b');
    await deliver(stripe.change(subscription.id, 'price_team'));
    await planIs(id, 'team');
    assert.deepEqual(await tierOf(owner).then(({ plan, credits }) => [plan, credits]), ['team', { remaining: 19_900, monthly: 20_000 }]);

    await deliver(stripe.cancel(subscription.id));
    await planIs(id, 'free');
    await until(walletAt(id), 'the end of its period', (all) => count(all, 'Lapsed') === 1);
    assert.deepEqual(await tierOf(owner).then(({ plan, credits, hasStripeCustomer }) => [plan, credits, hasStripeCustomer]), ['free', { remaining: 0, monthly: 50 }, true]);
    // Who has paid before is the same customer again.
    await paying.bought(owner, id, 'team');
    assert.equal(stripe.requests.at(-1)?.fields['customer'], subscription.customer);
  });

  test('payments - events twice, in any order, over both gateways, with daemons killed between event and effect: each is taken once, each invoice grants once [BIL-049] [BIL-050] [BIL-046]', { timeout: 240_000 }, async (t) => {
    const random = draw(runSeed());
    t.diagnostic(`TROUPE_SEED=${random.seed}`);
    const { stripe, platform } = paying;
    const { owner, id } = await founded('kills');
    const { subscription, events } = stripe.pay(await paying.bought(owner, id));
    const all: StripeEvent[] = [...events, ...stripe.renew(subscription.id), ...stripe.change(subscription.id, 'price_team'), ...stripe.renew(subscription.id)];
    // The same invoice in another event, and every event at least twice.
    all.push(...all.filter(({ type }) => type === 'invoice.payment_succeeded').map((event) => ({ ...event, id: `${event.id}again` })));
    const deliveries = [...all, ...all].map((event) => ({ event, at: random.next() })).toSorted((a, b) => a.at - b.at).map(({ event }) => event);
    for (const [index, event] of deliveries.entries()) {
      const kill = index % 6 === 5;
      const victim = platform.daemons[random.int(0, platform.daemons.length - 1)];
      const sent = paying.send(event, { gateway: random.int(0, 1) }).then(({ status }) => status, () => 0);
      if (kill) await victim?.kill('SIGKILL');
      // As Stripe does: what was not received is sent again.
      if (await sent !== 200) deliveries.push(event);
      assert.ok(deliveries.length < 500);
      if (kill) {
        await victim?.start();
        await Promise.all(platform.gateways.map((gateway) => linked(gateway, platform.daemons.length)));
      }
    }
    await planIs(id, 'team');
    const taken = (await paying.journals.events(paymentsOf(id)));
    const ids = taken.filter(({ k }) => k === 'EventTaken').map(({ d }) => d['event']);
    assert.deepEqual(ids.toSorted(), all.map((event) => event.id).toSorted());
    const granted = taken.filter(({ k, d }) => k === 'InvoicePaid' && d['granted'] === true).map(({ d }) => d['invoice']);
    assert.ok(granted.length > 0);
    assert.equal(new Set(granted).size, granted.length);
    const purse = await until(walletAt(id), 'the newest renewal', (found) => found.filter(({ k }) => k === 'Renewed').at(-1)?.d['invoice'] === granted.at(-1));
    const invoices = purse.filter(({ k }) => k === 'Renewed').map(({ d }) => d['invoice']);
    assert.equal(new Set(invoices).size, invoices.length);
    assert.deepEqual((await paying.tierOf(owner)).credits, { remaining: 20_000, monthly: 20_000 });
  });

  test('payments - a deleted organization\'s subscription is cancelled at the processor, also one that is bought after; nothing of its payments is left [ORG-027]', { timeout: 240_000 }, async () => {
    const { stripe, platform, journals } = paying;
    const { owner, id } = await founded('doomed');
    const { subscription, events } = stripe.pay(await paying.bought(owner, id));
    await paying.deliver(events);
    await planIs(id, 'pro');
    const late = await paying.bought(owner, id, 'team');
    stripe.failing = { status: 503, message: 'later' };
    assert.equal((await paying.world.organizations.call('DELETE', '', owner, { orgId: id })).status, 200);
    await until(paymentsOf(id), 'a first try', (all) => count(all, 'CancelFailed') >= 1);
    stripe.failing = undefined;
    await until(organizationAt(id), 'its payments are settled', (all) => count(all, 'PaymentsSettled') === 1);
    assert.equal(stripe.subscriptions.get(subscription.id)?.status, 'canceled');

    const subjects = async (): Promise<readonly string[]> => {
      const { streams } = names.parse(JSON.parse((await nats.request('$JS.API.STREAM.NAMES', '{}')).string()));
      const states = await Promise.all(streams.map(async (stream) => info.parse(JSON.parse((await nats.request(`$JS.API.STREAM.INFO.${stream}`, JSON.stringify({ subjects_filter: '>' }))).string()))));
      return states.flatMap(({ state }) => Object.keys(state.subjects ?? {})).filter((subject) => subject.includes(`.${id}.payments.`));
    };
    assert.ok((await subjects()).length > 0);
    const erase = createErase({ lean: createLean(nats), journalStreams: 1, projections: () => undefined });
    await erase(id, true, new AbortController().signal);
    assert.deepEqual(await subjects(), []);
    // Of the last pass on, the daemon ends what comes.
    const after_all = stripe.pay(late);
    stripe.failing = { status: 503, message: 'later' };
    assert.equal((await paying.send(after_all.events[0])).status, 500, 'not received: it comes again');
    stripe.failing = undefined;
    await paying.deliver(after_all.events);
    await paying.deliver(stripe.events.filter(({ type, data }) => type === 'customer.subscription.deleted' && data.object['id'] === after_all.subscription.id), 1);
    assert.equal(stripe.subscriptions.get(after_all.subscription.id)?.status, 'canceled');
    assert.deepEqual(await subjects(), []);
    assert.deepEqual(await journals.events(paymentsOf(id)), []);
    assert.ok(platform.daemons.every(({ crashed }) => crashed === undefined));
  });
});
