/** An organization's webhook from its settings to a real receiver: membership changes arrive, signed by the secret that the console shows. */
import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { z } from 'zod';
import { verifySignature } from '../../actors/webhook/signature.ts';
import { deliveredEvent, signatureHeader } from '../../contracts/webhook.ts';
import { certificateFor } from '../harness/certificate.ts';
import { within } from '../harness/chaos.ts';
import { organizationClient, refusal } from '../harness/organization.ts';
import { answered, startPlatform } from '../harness/platform.ts';
import { openJournals } from '../harness/proof.ts';
import { startWebhookReceiver } from '../harness/webhook-receiver.ts';

const shownWebhook = z.strictObject({
  url: z.string().nullable(), secret: z.string(), deadLetters: z.array(z.object({ id: z.string(), type: z.string(), attempts: z.int(), lastError: z.string() })),
});

test('organization webhook - membership changes are delivered to settings.webhookUrl, signed; dead letters show and go again [AUD-007] [AUD-008] [AUD-010] [AUD-014]', { timeout: 240_000 }, async (t) => {
  const certificate = await certificateFor(['hooks.localhost']);
  const receiver = await startWebhookReceiver(certificate);
  const folder = await mkdtemp(join(tmpdir(), 'troupe-hooks-'));
  t.after(async () => {
    await receiver.stop();
    await rm(folder, { recursive: true });
  });
  const caPath = join(folder, 'ca.pem');
  await writeFile(caPath, certificate.cert);
  const platform = await startPlatform(t, { daemon: { webhooks: { allow_private: true, ca_path: caPath } } });
  const client = organizationClient(platform);
  const journals = await openJournals(platform.nats.url);
  t.after(() => journals.close());
  const [owner, first, second] = await Promise.all(['owner', 'first', 'second'].map((name) => platform.signUp(`${name}@example.com`)));
  assert.ok(owner !== undefined && first !== undefined && second !== undefined);
  const { id: orgId } = await client.create(owner);
  const webhook = { org: orgId, type: 'webhook', key: orgId };

  await client.join(orgId, owner, first, 'viewer');
  const url = `https://127.0.0.1:${receiver.port}/hook`;
  assert.equal((await client.call('PATCH', '', owner, { orgId, settings: { webhookUrl: url } })).status, 200);
  const shown = answered(await client.call('GET', '/webhook', owner, { orgId }), 200, shownWebhook);
  assert.deepEqual([shown.url, shown.deadLetters], [url, []]);
  assert.match(shown.secret, /^whsec_[A-Za-z0-9_-]{43}$/);
  for (const who of [first, second]) assert.notEqual((await client.call('GET', '/webhook', who, { orgId })).status, 200);

  await client.join(orgId, owner, second, 'viewer');
  await client.call('PATCH', '/members', owner, { orgId, userId: second.userId, role: 'member' });
  await client.call('DELETE', '/members', owner, { orgId, userId: second.userId });
  await within(30_000, 'three arrive', receiver.received(3), () => platform.report());
  const events = receiver.webhooks.map(({ headers, body }) => {
    const header = String(headers[signatureHeader]);
    assert.ok(verifySignature({ secret: shown.secret, header, body, nowSec: Math.floor(Date.now() / 1_000) }));
    return deliveredEvent.parse(JSON.parse(body));
  });
  const bySort = events.toSorted((a, b) => (a.id < b.id ? -1 : 1));
  assert.deepEqual(bySort.map(({ type, organizationId, data }) => [type, organizationId, data]), [
    ['member.joined', orgId, { userId: second.userId, email: second.email, role: 'viewer' }],
    ['member.role_changed', orgId, { userId: second.userId, from: 'viewer', to: 'member' }],
    ['member.removed', orgId, { userId: second.userId, role: 'member' }],
  ]);

  // Removing the address makes a dead letter of what waits; with an address again it can be sent again.
  receiver.answer(500);
  const failed = journals.until(webhook, (all) => all.some(({ k }) => k === 'DeliveryFailed'));
  await client.call('PATCH', '/members', owner, { orgId, userId: first.userId, role: 'member' });
  await within(30_000, 'a delivery fails', failed, () => platform.report());
  const buried = journals.until(webhook, (all) => all.some(({ k, d }) => k === 'WebhookConfigured' && d['url'] === null));
  await client.call('PATCH', '', owner, { orgId, settings: { webhookUrl: null } });
  await within(30_000, 'it has no address', buried, () => platform.report());
  const { url: none, deadLetters } = answered(await client.call('GET', '/webhook', owner, { orgId }), 200, shownWebhook);
  assert.equal(none, null);
  assert.deepEqual(deadLetters.map(({ type, lastError }) => [type, lastError]), [['member.role_changed', 'no_url']]);
  const id = deadLetters[0]?.id ?? '';
  const again = { orgId, id };
  assert.equal(refusal(await client.call('POST', '/webhook/redeliver', owner, again)), '409 conflict');
  assert.equal(refusal(await client.call('POST', '/webhook/redeliver', first, again)), '403 forbidden');
  for (const unknown of ['evt_none', '../x', 'a'.repeat(100)]) assert.equal(refusal(await client.call('POST', '/webhook/redeliver', owner, { orgId, id: unknown })), '404 not_found');
  receiver.answer(200);
  const sent = receiver.webhooks.length;
  await client.call('PATCH', '', owner, { orgId, settings: { webhookUrl: url } });
  const set = journals.until(webhook, (all) => all.filter(({ k }) => k === 'WebhookConfigured').length >= 3);
  await within(30_000, 'it has its address again', set, () => platform.report());
  assert.equal((await client.call('POST', '/webhook/redeliver', owner, again)).status, 200);
  await within(30_000, 'it arrives', receiver.received(sent + 1), () => platform.report());
  assert.equal(deliveredEvent.parse(JSON.parse(receiver.webhooks.at(-1)?.body ?? '')).id, id);

  // A new secret: receivers that have either take what is sent from now on.
  assert.equal(refusal(await client.call('POST', '/webhook/secret', first, { orgId })), '403 forbidden');
  assert.equal(refusal(await client.call('POST', '/webhook/secret', second, { orgId })), '404 not_found');
  const rotated = answered(await client.call('POST', '/webhook/secret', owner, { orgId }), 200, z.strictObject({ secret: z.string(), formerValidUntil: z.iso.datetime() }));
  assert.notEqual(rotated.secret, shown.secret);
  assert.equal(answered(await client.call('GET', '/webhook', owner, { orgId }), 200, shownWebhook).secret, rotated.secret);
  await client.call('PATCH', '/members', owner, { orgId, userId: first.userId, role: 'viewer' });
  await within(30_000, 'it arrives, too', receiver.received(sent + 2), () => platform.report());
  const { headers, body } = receiver.webhooks.at(-1) ?? {};
  for (const secret of [shown.secret, rotated.secret]) {
    assert.ok(verifySignature({ secret, header: String(headers?.[signatureHeader]), body: body ?? '', nowSec: Math.floor(Date.now() / 1_000) }));
  }
  const audit = answered(await client.call('GET', '/audit', owner, { orgId }), 200, z.object({ entries: z.array(z.object({ action: z.string(), actorId: z.string(), resourceId: z.string() })) }));
  const entries = audit.entries.filter(({ action }) => action === 'webhook.secret_rotated');
  assert.deepEqual(entries.map(({ actorId, resourceId }) => [actorId, resourceId]), [[owner.userId, orgId]]);
});
