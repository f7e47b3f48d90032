/** Webhooks end to end below the organization: the real engine, real https receivers, a real NATS server where a restart is meant. */
import assert from 'node:assert/strict';
import { createHmac, createSecretKey } from 'node:crypto';
import { after, before, test, type TestContext } from 'node:test';
import { isPrivateAddress } from '../../actors/webhook/address.ts';
import { createPost, type PostDeps } from '../../actors/webhook/post.ts';
import type { Address } from '../../actors/webhook/resolve.ts';
import { verifySignature, webhookSecret } from '../../actors/webhook/signature.ts';
import { webhook } from '../../actors/webhook/webhook.ts';
import { decodeCommit } from '../../actors/runtime/commit.ts';
import { connectNats } from '../../actors/runtime/nats/connect.ts';
import { ensureStreams } from '../../actors/runtime/nats/streams.ts';
import type { Clock } from '../../actors/runtime/store.ts';
import type { StoredEvent } from '../../contracts/event.ts';
import { limits } from '../../contracts/limits.ts';
import { eventsSubject } from '../../contracts/subjects.ts';
import { deliveredEvent, retryDelaysMs, webhookCommands } from '../../contracts/webhook.ts';
import { actorHost, type ActorHost } from '../harness/actor-host.ts';
import { certificateFor, type ServerCertificate } from '../harness/certificate.ts';
import { hostHere, type HostHere } from '../harness/cluster.ts';
import { recorder } from '../harness/log.ts';
import { startNats, type NatsServer } from '../harness/nats.ts';
import { startWebhookReceiver, type WebhookReceiver } from '../harness/webhook-receiver.ts';

const name = 'hooks.example.com';
const org = 'org_01jtest';
const address = { org, type: 'webhook', key: org };
const one: Address = { address: '127.0.0.1', family: 4 };
const two: Address = { address: '127.0.0.2', family: 4 };
const partitions = 4;
const masterKey = createSecretKey(Buffer.alloc(32, 9));
const secret = webhookSecret(masterKey, org, 1);

let certificate: ServerCertificate;
let nats: NatsServer;
before(async () => {
  certificate = await certificateFor([name]);
  nats = await startNats();
});
after(async () => { await nats.stop(); });

const receiver = async (t: TestContext, host = one.address, port = 0): Promise<WebhookReceiver> => {
  const started = await startWebhookReceiver(certificate, host, port);
  t.after(() => started.stop());
  return started;
};

interface Here {
  readonly host: ActorHost;
  readonly log: ReturnType<typeof recorder>;
  readonly notify: (id: string) => Promise<unknown>;
  /** Resolves with all events of a kind when there are so many. */
  readonly seen: (kind: string, count?: number) => Promise<readonly StoredEvent[]>;
}

const here = async (t: TestContext, to: WebhookReceiver, more: Partial<PostDeps> = {}): Promise<Here> => {
  const log = recorder();
  const post = createPost({ resolve: async () => [one], refuses: () => false, ca: certificate.cert, ...more });
  const host = actorHost([webhook({ post, secret: (orgId, version) => webhookSecret(masterKey, orgId, version), now: () => host.now() })], { log });
  t.after(() => host.stop());
  await host.ask(address, 'configure', { url: `https://${name}:${to.port}/hook` });
  return {
    host, log,
    notify: async (id) => host.ask(address, 'notify', { id, type: 'plan.changed', created: '2030-01-01T00:00:00.000Z', data: { plan: 'team', by: 'Zoë' } }),
    seen: async (kind, count = 1) => (await host.until(address, (events) => events.filter(({ k }) => k === kind).length >= count)).filter(({ k }) => k === kind),
  };
};

test('webhook - [AUD-007] [AUD-014] a receiver gets the event, and verifies it with the secret alone', async (t) => {
  const to = await receiver(t);
  const { host, log, notify, seen } = await here(t, to);
  await notify('evt_1');
  await seen('Delivered');
  const [got] = to.webhooks;
  assert.ok(got !== undefined);
  assert.equal(got.method, 'POST');
  assert.match(got.headers['content-type'] ?? '', /^application\/json/);
  assert.deepEqual(deliveredEvent.parse(JSON.parse(got.body)), { id: 'evt_1', type: 'plan.changed', created: '2030-01-01T00:00:00.000Z', organizationId: org, data: { plan: 'team', by: 'Zoë' } });
  const header = String(got.headers['troupe-signature']);
  const [, atSec = '', v1 = ''] = /^t=(\d+),v1=([0-9a-f]{64})$/.exec(header) ?? [];
  assert.equal(v1, createHmac('sha256', secret).update(`${atSec}.${got.body}`).digest('hex'));
  assert.ok(Math.abs(Number(atSec) - host.now() / 1_000) < 60);
  assert.ok(verifySignature({ secret, header, body: got.body, nowSec: Math.floor(host.now() / 1_000) }));
  const kept = JSON.stringify([await host.events(address), log.lines.map(({ fields, text }) => [text, fields])]);
  assert.ok(!kept.includes('whsec_') && !kept.includes(v1), 'neither secret nor signature is kept');
});

test('webhook - [AUD-015] a lost connection, a 500 and a redirect are repeated with the same id and bytes until there is a receipt', async (t) => {
  const to = await receiver(t);
  to.answer((nth) => (['reset', 500, { status: 307, headers: { location: `https://${two.address}/` } }] as const)[nth - 1] ?? 204);
  const { host, notify, seen } = await here(t, to);
  await notify('evt_1');
  for (const [i, delay] of retryDelaysMs.slice(0, 3).entries()) {
    await seen('DeliveryFailed', i + 1);
    host.advance(delay);
  }
  assert.deepEqual((await seen('Delivered'))[0]?.d, { id: 'evt_1', status: 204 });
  assert.deepEqual((await seen('DeliveryFailed', 3)).map(({ d }) => d['error']), ['connection_failed', 'status 500', 'redirect 307']);
  assert.equal(to.webhooks.length, 4);
  assert.equal(new Set(to.webhooks.map(({ body }) => body)).size, 1);
});

test('webhook - a receiver that does not answer costs 10 seconds; its connection is closed and the event tried again', async (t) => {
  const to = await receiver(t);
  to.answer((nth) => (nth === 1 ? 'stall' : 200));
  const { host, notify, seen } = await here(t, to);
  await notify('evt_1');
  await to.received(1);
  host.advance(limits.webhookDeadlineMs);
  assert.equal((await seen('DeliveryFailed'))[0]?.d['error'], 'timed_out');
  await to.idle();
  host.advance(retryDelaysMs[0] ?? 0);
  await seen('Delivered');
  assert.equal(to.webhooks.length, 2);
});

test('webhook - [AUD-017] a host lost while the receiver thinks: the next host sends the same again', async (t) => {
  const to = await receiver(t);
  to.answer((nth) => (nth === 1 ? 'stall' : 200));
  const { host, notify, seen } = await here(t, to);
  await notify('evt_1');
  await to.received(1);
  host.crash();
  await to.idle();
  host.advance(limits.webhookWakeMs);
  await seen('Delivered');
  assert.equal(to.webhooks.length, 2);
  assert.equal(to.webhooks[0]?.body, to.webhooks[1]?.body);
});

test('webhook - [AUD-019] an address is judged at each delivery: a name that turns private is refused, and delivered to when it is public again', async (t) => {
  const to = await receiver(t);
  const target = await receiver(t, two.address, to.port);
  let leads: readonly Address[] = [one];
  const { host, notify, seen } = await here(t, to, { resolve: async () => leads, refuses: (candidate) => candidate !== one.address });
  to.answer((nth) => (nth === 1 ? 500 : 200));
  await notify('evt_1');
  await seen('DeliveryFailed', 1);
  leads = [two];
  host.advance(retryDelaysMs[0] ?? 0);
  assert.equal((await seen('DeliveryFailed', 2))[1]?.d['error'], 'address_refused');
  leads = [one];
  host.advance(retryDelaysMs[1] ?? 0);
  await seen('Delivered');
  assert.equal(target.connections, 0);
  assert.equal(to.webhooks.length, 2);
});

test('webhook - [AUD-019] with the rule of production nothing reaches this machine, and the refusal is visible', async (t) => {
  const to = await receiver(t);
  const { host, notify, seen } = await here(t, to, { refuses: isPrivateAddress });
  await notify('evt_1');
  assert.equal((await seen('DeliveryFailed'))[0]?.d['error'], 'address_refused');
  await host.ask(address, 'configure', { url: `https://127.0.0.1:${to.port}/` });
  assert.equal((await seen('DeliveryFailed', 2))[1]?.d['error'], 'address_refused');
  await host.ask(address, 'configure', { url: null });
  assert.equal(webhookCommands.dead_letters.output.parse(await host.ask(address, 'dead_letters', {})).dead_letters.length, 1);
  assert.equal(to.connections, 0);
});

test('webhook - [AUD-017] over a real NATS server: what one service process queued, and had failed to deliver, the next delivers', async (t) => {
  const to = await receiver(t);
  to.answer(503);
  let offsetMs = 0;
  const clock: Clock = { now: () => Date.now() + offsetMs, monotonic: () => performance.now() + offsetMs };
  const post = createPost({ resolve: async () => [one], refuses: () => false, ca: certificate.cert });
  const watching = await connectNats({ url: nats.url, name: 'watching' });
  t.after(() => watching.close());
  await ensureStreams(watching, { partitions, journalStreams: 1, replicas: 1 });
  const seen = new Map<string, () => void>();
  const until = async (kind: string): Promise<void> => new Promise((resolve) => { seen.set(kind, resolve); });
  watching.subscribe(eventsSubject(address), { callback: (_error, message) => { for (const { k } of decodeCommit(message.data).ev) seen.get(k)?.(); } });
  await watching.flush();

  const started: HostHere[] = [];
  const start = async (): Promise<HostHere> => {
    const log = recorder();
    const host = await hostHere({
      url: nats.url, config: { host: 'a', partitions, leaseTtlMs: 2_000 }, log, clock,
      definitions: [webhook({ post, secret: (orgId, version) => webhookSecret(masterKey, orgId, version), now: () => clock.now() })],
    });
    started.push(host);
    await host.host.ready;
    return host;
  };
  t.after(async () => { await started.at(-1)?.stop(); });
  const ask = async (on: HostHere, command: string, input: object): Promise<unknown> => on.host.actors.ask({ address, command, input, principal: { kind: 'system' } });

  const first = await start();
  await ask(first, 'configure', { url: `https://${name}:${to.port}/hook` });
  const failed = until('DeliveryFailed');
  await ask(first, 'notify', { id: 'evt_1', type: 'session.finished', created: '2030-01-01T00:00:00.000Z', data: { sid: 's' } });
  await failed;
  // At once, without a drain: as a killed process.
  first.host.close();
  await first.nc.close();

  to.answer(200);
  offsetMs += retryDelaysMs[0] ?? 0;
  const delivered = until('Delivered');
  const second = await start();
  await delivered;
  assert.equal(to.webhooks.length, 2);
  assert.equal(to.webhooks[0]?.body, to.webhooks[1]?.body);
  const { pending, dead } = webhookCommands.describe.output.parse(await ask(second, 'describe', {}));
  assert.deepEqual({ pending, dead }, { pending: 0, dead: 0 });
});
