/** Receivers' names asked of a real name server: what becomes of its answers, and of its silence. */
import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { isPrivateAddress } from '../../actors/webhook/address.ts';
import { openPost } from '../../actors/webhook/open.ts';
import { createPost, type PostRequest } from '../../actors/webhook/post.ts';
import { networkResolve } from '../../actors/webhook/resolve.ts';
import { daemonConfig } from '../../contracts/config.ts';
import { certificateFor } from '../harness/certificate.ts';
import { startNameServer, type NameServer, type Zone } from '../harness/name-server.ts';
import { startWebhookReceiver, type WebhookReceiver } from '../harness/webhook-receiver.ts';

const name = 'hooks.example.com';
const names = async (t: TestContext, zone: Zone): Promise<NameServer> => {
  const server = await startNameServer(zone);
  t.after(() => server.stop());
  return server;
};
const receiver = async (t: TestContext): Promise<{ to: WebhookReceiver; ca: string }> => {
  const certificate = await certificateFor([name, 'localhost']);
  const to = await startWebhookReceiver(certificate);
  t.after(() => to.stop());
  return { to, ca: certificate.cert };
};
const request = (to: WebhookReceiver, host = name): PostRequest => ({ url: `https://${host}:${to.port}/`, headers: {}, body: '{}', signal: new AbortController().signal });

test('webhook resolve - both families are asked, and all addresses given', async (t) => {
  const server = await names(t, (_name, type) => (type === 'A' ? ['192.0.2.1', '192.0.2.2'] : ['2001:db8::1']));
  assert.deepEqual(await networkResolve([server.address])(name), [{ address: '192.0.2.1', family: 4 }, { address: '192.0.2.2', family: 4 }, { address: '2001:db8::1', family: 6 }]);
  assert.deepEqual(server.asked.toSorted(), [`${name} A`, `${name} AAAA`]);
});

test('webhook resolve - one family is enough, whatever becomes of the other; neither is a failure', async (t) => {
  const zones: Readonly<Record<string, Zone>> = {
    'four.example': (_name, type) => (type === 'A' ? ['192.0.2.1'] : []), 'six.example': (_name, type) => (type === 'A' ? 'servfail' : ['2001:db8::1']),
    'none.example': () => 'nxdomain', 'empty.example': () => [],
  };
  const server = await names(t, (asked, type) => zones[asked]?.(asked, type) ?? 'nxdomain');
  const resolve = networkResolve([server.address]);
  assert.deepEqual(await resolve('four.example'), [{ address: '192.0.2.1', family: 4 }]);
  assert.deepEqual(await resolve('six.example'), [{ address: '2001:db8::1', family: 6 }]);
  await assert.rejects(resolve('none.example'), { code: 'ENOTFOUND' });
  await assert.rejects(resolve('empty.example'), { code: 'ENODATA' });
});

test('webhook resolve - a name server that says nothing ends as host_unknown, while others are delivered to', async (t) => {
  const { to, ca } = await receiver(t);
  const server = await names(t, (asked, type) => (asked === 'silent.example' ? 'silent' : type === 'A' ? ['127.0.0.1'] : []));
  const post = createPost({ resolve: networkResolve([server.address]), refuses: () => false, ca });
  // More at once than the process has threads for the system's own look-ups.
  const waiting = Array.from({ length: 16 }, () => post(request(to, 'silent.example')));
  const order: string[] = [];
  await Promise.all([
    Promise.all(waiting).then((results) => {
      order.push('silent');
      assert.ok(results.every((result) => !result.ok && result.failure === 'host_unknown'));
    }),
    post(request(to)).then((result) => {
      order.push('delivered');
      assert.deepEqual(result, { ok: true, status: 200 });
    }),
  ]);
  assert.deepEqual(order, ['delivered', 'silent']);
});

test('webhook resolve - [AUD-019] a name server that answers with a private address beside a public one, in either family, gets nothing', async (t) => {
  const { to, ca } = await receiver(t);
  const answers: Readonly<Record<string, readonly string[]>> = { A: ['8.8.8.8'], AAAA: ['::ffff:127.0.0.1'] };
  const server = await names(t, (_name, type) => answers[type] ?? []);
  const post = createPost({ resolve: networkResolve([server.address]), refuses: isPrivateAddress, ca });
  assert.deepEqual(await post(request(to)), { ok: false, failure: 'address_refused' });
  assert.equal(to.connections, 0);
});

test('webhook resolve - [AUD-019] the configuration decides: this machine is refused by default and reached with webhooks.allow_private', async (t) => {
  const { to, ca } = await receiver(t);
  const production = openPost({ config: daemonConfig.shape.webhooks.parse(undefined), ca });
  assert.deepEqual(await production(request(to, '127.0.0.1')), { ok: false, failure: 'address_refused' });
  assert.equal(to.connections, 0);
  const development = openPost({ config: daemonConfig.shape.webhooks.parse({ allow_private: true }), ca });
  assert.deepEqual(await development(request(to, '127.0.0.1')), { ok: true, status: 200 });
  assert.deepEqual(await development(request(to, 'localhost')), { ok: true, status: 200 });
});
