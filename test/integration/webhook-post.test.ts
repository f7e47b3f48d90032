/** One delivery attempt against real https servers: where it connects, what it believes, what it reads. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type AddressInfo, type Socket } from 'node:net';
import { after, before, describe, test } from 'node:test';
import { isPrivateAddress } from '../../actors/webhook/address.ts';
import { createPost, type PostDeps, type PostRequest, type PostResult } from '../../actors/webhook/post.ts';
import type { Address } from '../../actors/webhook/resolve.ts';
import { CodedError } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { certificateFor, type ServerCertificate } from '../harness/certificate.ts';
import { startWebhookReceiver, type WebhookReceiver } from '../harness/webhook-receiver.ts';

const name = 'hooks.example.com';
const one: Address = { address: '127.0.0.1', family: 4 };
const two: Address = { address: '127.0.0.2', family: 4 };

let certificate: ServerCertificate;
let stranger: ServerCertificate;
before(async () => {
  certificate = await certificateFor([name]);
  stranger = await certificateFor(['other.example.com'], false);
});

const receivers: WebhookReceiver[] = [];
after(async () => { await Promise.all(receivers.map((receiver) => receiver.stop())); });
const receiverAt = async (host: string, port = 0, with_ = certificate): Promise<WebhookReceiver> => {
  const receiver = await startWebhookReceiver(with_, host, port);
  receivers.push(receiver);
  return receiver;
};
/** Two receivers on the same port of two addresses. */
const twins = async (): Promise<[WebhookReceiver, WebhookReceiver]> => {
  const first = await receiverAt(one.address);
  return [first, await receiverAt(two.address, first.port)];
};

const anywhere: PostDeps['refuses'] = () => false;
const deps = (more: Partial<PostDeps> = {}): PostDeps => ({ resolve: async () => [one], refuses: anywhere, ca: certificate.cert, ...more });
const to = (port: number, more: Partial<PostRequest> = {}): PostRequest =>
  ({ url: `https://${name}:${port}/hook?a=b`, headers: { 'content-type': 'application/json', 'troupe-signature': 't=1,v1=00' }, body: '{"name":"Zoë"}', signal: new AbortController().signal, ...more });
const attempt = async (receiver: WebhookReceiver, more: Partial<PostDeps> = {}): Promise<PostResult> => createPost(deps(more))(to(receiver.port));

test('webhook post - sends the body as it is to the path and query, under the name of the URL', async () => {
  const receiver = await receiverAt(one.address);
  assert.deepEqual(await attempt(receiver), { ok: true, status: 200 });
  const [got] = receiver.webhooks;
  assert.equal(got?.method, 'POST');
  assert.equal(got.path, '/hook?a=b');
  assert.equal(got.body, '{"name":"Zoë"}');
  assert.equal(got.headers.host, `${name}:${receiver.port}`);
  assert.equal(got.headers['content-type'], 'application/json');
  assert.equal(got.headers['troupe-signature'], 't=1,v1=00');
  assert.equal(got.headers['content-length'], String(Buffer.byteLength('{"name":"Zoë"}')));
  await receiver.idle();
});

describe('webhook post - answers', () => {
  for (const status of [200, 201, 202, 204, 299]) {
    test(`webhook post - ${status} is a receipt`, async () => {
      const receiver = await receiverAt(one.address);
      receiver.answer(status);
      assert.deepEqual(await attempt(receiver), { ok: true, status });
    });
  }
  for (const status of [400, 401, 404, 410, 429, 500, 503]) {
    test(`webhook post - ${status} is none`, async () => {
      const receiver = await receiverAt(one.address);
      receiver.answer(status);
      assert.deepEqual(await attempt(receiver), { ok: false, failure: 'status', status });
    });
  }
  for (const status of [301, 302, 303, 307, 308]) {
    test(`webhook post - [AUD-020] ${status} is not followed, wherever it points`, async () => {
      const [receiver, target] = await twins();
      receiver.answer({ status, headers: { location: `https://${two.address}:${target.port}/` } });
      assert.deepEqual(await attempt(receiver), { ok: false, failure: 'redirect', status });
      await receiver.idle();
      assert.equal(receiver.webhooks.length, 1);
      assert.equal(target.connections, 0);
    });
  }

  test('webhook post - a 2xx whose body never ends is a receipt; little of it is read and the connection is closed', async () => {
    const receiver = await receiverAt(one.address);
    receiver.answer('endless');
    assert.deepEqual(await attempt(receiver), { ok: true, status: 200 });
    await receiver.idle();
    // The sockets' own buffers hold some megabytes at most.
    assert.ok(receiver.written < 32 * 1024 * 1024, String(receiver.written));
  });

  test('webhook post - a 2xx whose body stands still is a receipt', async () => {
    const receiver = await receiverAt(one.address);
    receiver.answer('trickle');
    assert.deepEqual(await attempt(receiver), { ok: true, status: 200 });
    await receiver.idle();
  });

  test('webhook post - a head beyond its bound, a cut connection and a closed port are failures of the connection', async () => {
    const receiver = await receiverAt(one.address);
    receiver.answer('bighead');
    assert.deepEqual(await attempt(receiver), { ok: false, failure: 'connection_failed' });
    receiver.answer('reset');
    assert.deepEqual(await attempt(receiver), { ok: false, failure: 'connection_failed' });
    await receiver.stop();
    assert.deepEqual(await attempt(receiver), { ok: false, failure: 'connection_failed' });
  });

  test('webhook post - one that never answers is ended by the caller\'s signal, and its connection closed', async () => {
    const receiver = await receiverAt(one.address);
    receiver.answer('stall');
    const controller = new AbortController();
    const attempting = createPost(deps())(to(receiver.port, { signal: controller.signal }));
    await receiver.received(1);
    controller.abort(new CodedError('deadline_exceeded'));
    await assert.rejects(attempting, { code: 'aborted' });
    await receiver.idle();
  });

  test('webhook post - a server that speaks no TLS is not talked to', async () => {
    const heard: Buffer[] = [];
    const plain = createServer((socket: Socket) => {
      socket.on('data', (chunk: Buffer) => {
        heard.push(chunk);
        socket.end('HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n');
      });
      socket.on('error', () => socket.destroy());
    });
    plain.listen(0, one.address);
    await once(plain, 'listening');
    const result = await createPost(deps())(to((plain.address() as AddressInfo).port));
    plain.close();
    assert.equal(result.ok, false);
    assert.ok(!Buffer.concat(heard).includes('POST') && !Buffer.concat(heard).includes('Zo'));
  });
});

describe('webhook post - TLS', () => {
  test('webhook post - the certificate must be the host\'s, not that of the address', async () => {
    const receiver = await receiverAt(one.address, 0, stranger);
    assert.deepEqual(await attempt(receiver, { ca: stranger.cert }), { ok: false, failure: 'tls_failed' });
    assert.equal(receiver.webhooks.length, 0);
  });

  test('webhook post - a certificate of an unknown authority is not believed', async () => {
    const receiver = await receiverAt(one.address);
    assert.deepEqual(await attempt(receiver, { ca: undefined }), { ok: false, failure: 'tls_failed' });
    assert.equal(receiver.webhooks.length, 0);
  });
});

describe('webhook post - addresses', () => {
  test('webhook post - [AUD-019] a name that leads to a private address is refused at delivery, before anything is sent', async () => {
    const receiver = await receiverAt(one.address);
    assert.deepEqual(await attempt(receiver, { refuses: isPrivateAddress }), { ok: false, failure: 'address_refused' });
    assert.equal(receiver.connections, 0);
  });

  test('webhook post - [AUD-019] private addresses written into the URL are refused, in every spelling', async () => {
    const receiver = await receiverAt(one.address);
    const post = createPost(deps({ refuses: isPrivateAddress, resolve: async () => assert.fail('an address needs no look-up') }));
    for (const host of ['127.0.0.1', '127.1', '0x7f.0.0.1', '0177.0.0.1', '2130706433', '[::1]', '[::ffff:127.0.0.1]', '[::ffff:7f00:1]', '10.0.0.8', '169.254.169.254', '[fe80::1]', '[64:ff9b::7f00:1]', '0.0.0.0', '[::]']) {
      assert.deepEqual(await post(to(receiver.port, { url: `https://${host}:${receiver.port}/` })), { ok: false, failure: 'address_refused' }, host);
    }
    assert.equal(receiver.connections, 0);
  });

  test('webhook post - [AUD-019] one private address among public ones is refused', async () => {
    const [first, second] = await twins();
    const refuses = (address: string): boolean => address === two.address;
    assert.deepEqual(await attempt(first, { refuses, resolve: async () => [one, two] }), { ok: false, failure: 'address_refused' });
    // Also one beyond those that would be tried.
    const many = [...Array.from({ length: limits.webhookAddressesMax }, () => one), two];
    assert.deepEqual(await attempt(first, { refuses, resolve: async () => many }), { ok: false, failure: 'address_refused' });
    assert.equal(first.connections + second.connections, 0);
  });

  test('webhook post - [AUD-019] a name that changes its address after the check is connected to where it was checked (DNS rebinding)', async () => {
    const [checked, rebound] = await twins();
    let looks = 0;
    const post = createPost(deps({
      refuses: (address) => address === two.address,
      resolve: async () => {
        looks += 1;
        return looks === 1 ? [one] : [two];
      },
    }));
    assert.deepEqual(await post(to(checked.port)), { ok: true, status: 200 });
    assert.equal(looks, 1, 'one look-up an attempt');
    assert.equal(checked.webhooks.length, 1);
    // The next attempt judges anew.
    assert.deepEqual(await post(to(checked.port)), { ok: false, failure: 'address_refused' });
    assert.equal(looks, 2);
    assert.equal(checked.connections, 1);
    assert.equal(rebound.connections, 0);
  });

  test('webhook post - a name that leads nowhere is host_unknown', async () => {
    const receiver = await receiverAt(one.address);
    assert.deepEqual(await attempt(receiver, { resolve: async () => [] }), { ok: false, failure: 'host_unknown' });
    assert.deepEqual(await attempt(receiver, { resolve: async () => { throw Object.assign(new Error('getaddrinfo ENOTFOUND'), { code: 'ENOTFOUND' }); } }), { ok: false, failure: 'host_unknown' });
  });

  test('webhook post - the next of several addresses is tried when one does not answer', async () => {
    const receiver = await receiverAt(two.address);
    assert.deepEqual(await attempt(receiver, { resolve: async () => [one, two] }), { ok: true, status: 200 });
  });

  test('webhook post - a proxy of the environment is not used', async () => {
    const receiver = await receiverAt(one.address);
    let proxied = 0;
    const proxy = createServer((socket) => {
      proxied += 1;
      socket.destroy();
    });
    proxy.listen(0, one.address);
    await once(proxy, 'listening');
    const names = ['HTTPS_PROXY', 'https_proxy', 'HTTP_PROXY', 'http_proxy', 'ALL_PROXY', 'NODE_USE_ENV_PROXY'] as const;
    const former = names.map((variable) => [variable, process.env[variable]] as const);
    for (const variable of names) process.env[variable] = variable === 'NODE_USE_ENV_PROXY' ? '1' : `http://${one.address}:${(proxy.address() as AddressInfo).port}`;
    try {
      assert.deepEqual(await attempt(receiver), { ok: true, status: 200 });
    } finally {
      for (const [variable, value] of former) {
        if (value === undefined) delete process.env[variable];
        else process.env[variable] = value;
      }
      proxy.close();
    }
    assert.equal(proxied, 0);
  });
});

test('webhook post - attempts beyond the bound of one process fail as overloaded, and count no longer when they end', async () => {
  const receiver = await receiverAt(one.address);
  const held = Promise.withResolvers<readonly Address[]>();
  let answers: () => Promise<readonly Address[]> = () => held.promise;
  const post = createPost(deps({ resolve: async () => answers() }));
  const waiting = Array.from({ length: limits.webhookPostsMax }, () => post(to(receiver.port)));
  assert.deepEqual(await post(to(receiver.port)), { ok: false, failure: 'overloaded' });
  held.resolve([]);
  assert.deepEqual(new Set((await Promise.all(waiting)).map((result) => (result.ok ? 'sent' : result.failure))), new Set(['host_unknown']));
  answers = async () => [one];
  assert.deepEqual(await post(to(receiver.port)), { ok: true, status: 200 });
});
