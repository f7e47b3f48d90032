/** The launch gate of checkout: what the daemons' environment must say, and who hears of it. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ulid } from 'ulid';
import { refusal } from '../harness/organization.ts';
import { badCheckouts, startPaying } from '../harness/paying.ts';

test('checkout - while the setting is anything but exactly `true`, every authenticated caller gets 503 whatever the body, nobody else does; the portal is not part of it [BIL-025] [BIL-026] [BIL-017]', { timeout: 300_000 }, async (t) => {
  const paying = await startPaying();
  t.after(() => paying.stop());
  const { platform, world, world: { organizations } } = paying;
  const [owner, viewer, stranger] = [await platform.signUp('owner@gate.example'), await platform.signUp('viewer@gate.example'), await platform.signUp('stranger@gate.example')];
  const { id } = await organizations.create(owner, 'gate-org');
  await organizations.join(id, owner, viewer, 'viewer');
  const { key } = await organizations.key(id, owner, ['usage.read']);
  for (const value of [undefined, 'TRUE', '1']) {
    if (value !== undefined) await paying.gate(value);
    for (const [index, body] of [...badCheckouts(id), { organizationId: id, plan: 'pro' }, { organizationId: `org_${ulid().toLowerCase()}`, plan: 'gold' }].entries()) {
      const who = [owner, viewer, stranger][index % 3];
      assert.equal(refusal(await paying.checkout(who?.accessToken, body, { gateway: index % 2 })), '503 checkout_disabled', JSON.stringify(body));
    }
    assert.equal(refusal(await paying.checkout(key, '{')), '503 checkout_disabled');
    for (const token of [undefined, 'trp_sk_none', 'x.y.z']) assert.equal(refusal(await paying.checkout(token, { organizationId: id, plan: 'pro' })), '401 unauthorized', token);
    assert.equal(refusal(await paying.portal(owner.accessToken, { organizationId: id })), '400 bad_request');
  }
  assert.deepEqual(paying.stripe.requests, []);
  await paying.gate('true');
  await world.accept(owner);
  assert.equal((await paying.checkout(owner.accessToken, { organizationId: id, plan: 'pro' })).status, 200);
});
