/** Checkout, portal and the processor's events over real HTTP: who may, in which order it is checked, and which events are believed. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { ulid } from 'ulid';
import { billingRoutes } from '../../contracts/billing-routes.ts';
import { limits } from '../../contracts/limits.ts';
import { refusal } from '../harness/organization.ts';
import { badCheckouts, paymentsOf, startPaying, type Paying } from '../harness/paying.ts';
import type { ApiReply, Person } from '../harness/platform.ts';
import { signed, stripeSecrets } from '../harness/stripe.ts';

const unknownOrganization = (): string => `org_${ulid().toLowerCase()}`;

describe('payments', () => {
  let paying: Paying;
  let orgId: string;
  /** Members of that organization but the stranger. */
  let people: Readonly<Record<'owner' | 'admin' | 'member' | 'viewer' | 'stranger', Person>>;
  before(async () => {
    paying = await startPaying({ gate: 'true' });
    const { platform, world: { organizations } } = paying;
    const [owner, admin, member, viewer, stranger] = await Promise.all(['owner', 'admin', 'member', 'viewer', 'stranger'].map((name) => platform.signUp(`${name}@pay.example`)));
    assert.ok(owner !== undefined && admin !== undefined && member !== undefined && viewer !== undefined && stranger !== undefined);
    people = { owner, admin, member, viewer, stranger };
    ({ id: orgId } = await organizations.create(owner, 'pay-org'));
    for (const role of ['admin', 'member', 'viewer'] as const) await organizations.join(orgId, owner, people[role], role);
    await paying.world.setPlan(orgId, { plan: 'team' });
  });
  after(() => paying.stop());

  const code = (reply: ApiReply): string => refusal(reply);
  test('checkout - what is wrong is said in this order: caller, body, organization, role, terms, price, processor [BIL-033] [BIL-017] [BIL-027] [BIL-030] [BIL-052] [BIL-029] [BIL-028] [BIL-031] [BIL-032] [BIL-024]', async () => {
    const { stripe, checkout } = paying;
    stripe.failing = { status: 500, message: 'sesame: the processor is out' };
    // Each is wrong from its place on in every way.
    assert.equal(code(await checkout(undefined, 'not json')), '401 unauthorized');
    for (const body of badCheckouts(orgId)) assert.equal(code(await checkout(people.stranger.accessToken, body)), '400 validation_error', JSON.stringify(body));
    for (const organizationId of [unknownOrganization(), 'org_none', '../x', orgId]) {
      const reply = await checkout(people.stranger.accessToken, { organizationId, plan: 'gold' });
      assert.equal(code(reply), '404 not_found');
      assert.equal(reply.body, (await checkout(people.stranger.accessToken, { organizationId: unknownOrganization(), plan: 'gold' })).body, 'one that is there is not told from one that is not');
    }
    for (const who of [people.member, people.viewer]) {
      assert.equal(code(await checkout(who.accessToken, { organizationId: orgId, plan: 'gold' })), '403 forbidden');
      const accepted = await paying.world.accept(who);
      assert.equal(code(await checkout(accepted, { organizationId: orgId, plan: 'pro' })), '403 forbidden');
    }
    for (const who of [people.owner, people.admin]) {
      assert.equal(code(await checkout(who.accessToken, { organizationId: orgId, plan: 'gold' })), '403 legal_acceptance_required');
      await paying.world.accept(who);
      // Accepted on record: the token that was made before may stay.
      for (const plan of ['gold', 'free', 'enterprise', 'PRO']) assert.equal(code(await checkout(who.accessToken, { organizationId: orgId, plan })), '400 validation_error', plan);
      assert.deepEqual(stripe.requests, [], 'nothing was asked of the processor yet');
      const failed = await checkout(who.accessToken, { organizationId: orgId, plan: 'pro' });
      assert.equal(code(failed), '500 payment_error');
      for (const word of ['sesame', 'stripe', stripeSecrets.key]) assert.ok(!failed.body.toLowerCase().includes(word), word);
      stripe.requests.splice(0);
    }
    stripe.failing = undefined;
    for (const who of [people.owner, people.admin]) {
      assert.match(await paying.bought(who, orgId, 'team'), /^https:\/\/checkout\.stripe\.example\//);
      const { fields } = stripe.requests.at(-1) ?? {};
      assert.deepEqual([fields?.['line_items[0][price]'], fields?.['client_reference_id'], fields?.['customer_email']], ['price_team', orgId, who.email]);
    }
    for (const line of paying.platform.daemons.flatMap((daemon) => daemon.lines())) assert.ok(!line.includes('sesame'), line);
  });

  test('checkout - an API key buys for its own organization with the scope, by the acceptance of its maker [BIL-028] [BIL-052]', async () => {
    const { organizations } = paying.world;
    await paying.world.accept(people.owner);
    const [buyer, reader] = [await organizations.key(orgId, people.owner, ['billing.checkout']), await organizations.key(orgId, people.owner, ['usage.read'])];
    assert.equal((await paying.checkout(buyer.key, { organizationId: orgId, plan: 'pro' })).status, 200);
    assert.equal(code(await paying.checkout(reader.key, { organizationId: orgId, plan: 'pro' })), '403 forbidden');
    const { id: otherId } = await organizations.create(people.owner, 'pay-other');
    assert.equal(code(await paying.checkout(buyer.key, { organizationId: otherId, plan: 'pro' })), '404 not_found');
    const { key } = await organizations.key((await organizations.create(people.stranger, 'pay-strange')).id, people.stranger, ['billing.checkout']);
    const { id } = await organizations.read((await paying.tierOf(people.stranger)).organizationId ?? '', people.stranger);
    assert.equal(code(await paying.checkout(key, { organizationId: id, plan: 'pro' })), '403 legal_acceptance_required');
  });

  test('portal - an owner or admin of a customer gets its address, without any acceptance; others do not [BIL-034] [BIL-035] [BIL-036] [BIL-037] [BIL-038] [BIL-052] [BIL-017]', async () => {
    const { portal, stripe, world, platform } = paying;
    const [boss, deputy] = [await platform.signUp('boss@portal.example'), await platform.signUp('deputy@portal.example')];
    const { id } = await world.organizations.create(boss, 'portal-org');
    await world.organizations.join(id, boss, deputy, 'admin');
    for (const role of ['member', 'viewer'] as const) await world.organizations.join(id, boss, people[role], role);
    assert.equal(code(await portal(undefined, { organizationId: id })), '401 unauthorized');
    assert.equal(code(await portal(boss.accessToken, { organizationId: id })), '400 bad_request', 'no customer yet');
    assert.equal((await paying.tierOf(boss)).hasStripeCustomer, false);
    // A checkout of somebody else's, who has accepted, made theirs: neither of these two has accepted anything.
    await world.accept(people.owner);
    const { subscription, events } = stripe.pay(await paying.bought(people.owner, orgId));
    await paying.deliver(events);
    const theirs = events.map((event) => ({ ...event, id: `${event.id}x`, data: { object: { ...event.data.object, client_reference_id: id, metadata: { organizationId: id }, parent: null } } }));
    await paying.deliver(theirs.filter(({ type }) => type === 'checkout.session.completed'));
    for (const [index, who] of [boss, deputy].entries()) {
      const reply = await portal(who.accessToken, { organizationId: id }, { gateway: index });
      assert.deepEqual([reply.status, reply.json], [200, { url: `https://billing.stripe.example/p/${subscription.customer}` }]);
    }
    for (const role of ['member', 'viewer'] as const) assert.equal(code(await portal(people[role].accessToken, { organizationId: id })), '403 forbidden');
    for (const organizationId of [unknownOrganization(), 'none', id]) assert.equal(code(await portal(people.stranger.accessToken, { organizationId })), '404 not_found');
    for (const body of ['not json', {}, { organizationId: 7 }, { organizationId: id, plan: 'pro' }]) assert.equal(code(await portal(boss.accessToken, body)), '400 validation_error', JSON.stringify(body));
    stripe.failing = { status: 402, message: 'sesame' };
    const failed = await portal(boss.accessToken, { organizationId: id });
    assert.equal(code(failed), '500 payment_error');
    assert.ok(!failed.body.includes('sesame'));
    stripe.failing = undefined;
  });

  test('events - without a bearer, by the signature over the bytes; a forged, changed, old or future one gets 400 and changes nothing [BIL-039] [BIL-040] [BIL-041] [BIL-042] [BIL-048]', async () => {
    const { platform, stripe, journals } = paying;
    const owner = await paying.world.person('owner@events.example');
    const { id } = await paying.world.organizations.create(owner, 'events-org');
    const { events } = stripe.pay(await paying.bought(owner, id));
    const [event] = events;
    assert.ok(event !== undefined);
    const now = Math.floor(Date.now() / 1_000);
    const path = billingRoutes.paymentEvents.path;
    const { raw, headers } = signed(event);
    const refused = [
      await paying.send(event, { secret: 'whsec_another' }), await paying.send(event, { at: now - 310 }), await paying.send(event, { at: now + 310 }),
      await platform.api('POST', path, { raw }), await platform.api('POST', path, { raw, headers: { 'stripe-signature': '' } }), await platform.api('POST', path, { raw: raw.replace(id, orgId), headers }),
      await platform.api('POST', path, { raw: `${raw}\n`, headers }), await platform.api('POST', path, { raw, headers: { 'stripe-signature': `${headers['stripe-signature'] ?? ''}0` } }),
      await platform.api('POST', path, { raw: '', headers }), await platform.api('POST', path, { raw, token: owner.accessToken }),
      // Signed as it should be, and no event.
      await paying.send({ id: 'evt_x' }), await paying.send([]), await paying.send({ ...event, data: { object: { id: 'sub_x' } } }),
    ];
    for (const reply of refused) assert.equal(code(reply), '400 bad_request', reply.body);
    const large = 'x'.repeat(limits.paymentEventMaxBytes);
    assert.equal(code(await paying.send({ ...event, large })), '413 payload_too_large');
    assert.deepEqual(await journals.events(paymentsOf(id)), []);

    for (const type of ['customer.created', 'invoice.finalized', 'charge.refunded']) {
      const reply = await paying.send({ ...event, id: `evt_${type.replace('.', '_')}`, type }, { gateway: 1 });
      assert.deepEqual([reply.status, reply.json], [200, { received: true }]);
    }
    assert.deepEqual(await journals.events(paymentsOf(id)), []);
    // Its bytes, not its meaning, are signed: however it is written, with whatever is in it.
    const pretty = await paying.send({ ...event, note: 'ä\u2028"\\ud800' }, { indent: 3 });
    assert.deepEqual([pretty.status, pretty.json], [200, { received: true }]);
    assert.equal((await paying.tierOf(owner)).hasStripeCustomer, true);
  });

  test('events - of an organization that never was here nothing is kept; one whose price is not configured comes again until it is [BIL-042] [BIL-044]', async () => {
    const { stripe, journals } = paying;
    const owner = await paying.world.person('owner@strange.example');
    const { id } = await paying.world.organizations.create(owner, 'strange-org');
    const elsewhere = unknownOrganization();
    const { subscription, events } = stripe.pay(await paying.bought(owner, id));
    const [made] = events;
    const of = (organizationId: string, more: object) => ({ ...made, ...more, data: { object: { ...made?.data.object, metadata: { organizationId } } } });
    await paying.deliver([of(elsewhere, { id: 'evt_elsewhere' }), { ...of('', { id: 'evt_nobody' }) }] as never);
    for (const one of [elsewhere, id]) assert.deepEqual(await journals.events(paymentsOf(one)), []);
    assert.equal(stripe.subscriptions.get(subscription.id)?.status, 'active', 'it is somebody\'s');
    const strange = stripe.change(subscription.id, 'price_strange');
    assert.equal(code(await paying.send(strange[0])), '500 payment_error');
    assert.deepEqual((await journals.events(paymentsOf(id))).filter(({ k }) => !k.startsWith('$')), []);
    await paying.deliver(stripe.change(subscription.id, 'price_team'));
  });

  test('checkout - an owner whose acceptance is of terms before gets 403 there, not 401; the portal does not ask [BIL-051] [BIL-036]', { timeout: 120_000 }, async () => {
    const owner = await paying.world.person('owner@terms.example');
    const { id } = await paying.world.organizations.create(owner, 'terms-org');
    const { events } = paying.stripe.pay(await paying.bought(owner, id));
    await paying.deliver(events);
    await paying.terms('2');
    await paying.restart();
    assert.equal(code(await paying.checkout(owner.accessToken, { organizationId: id, plan: 'pro' })), '403 legal_acceptance_required');
    assert.equal((await paying.portal(owner.accessToken, { organizationId: id })).status, 200);
    await paying.world.accept(owner);
    assert.equal((await paying.checkout(owner.accessToken, { organizationId: id, plan: 'pro' })).status, 200);
  });
});
