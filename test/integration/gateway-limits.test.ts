/** Rate limits of the gateway over real TLS, with a clock that the tests move: which bucket is drawn from, how much, for whom. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { setImmediate as turn } from 'node:timers/promises';
import { connect, type TLSSocket } from 'node:tls';
import { test } from 'node:test';
import { gatewayConfig } from '../../contracts/config.ts';
import { limits as bounds } from '../../contracts/limits.ts';
import { Bodies } from '../../gateway/bodies.ts';
import { refusal, startEdge, type Edge, type EdgeOptions, type Reply } from '../harness/gateway.ts';
import { manualClock, type ManualClock } from '../harness/manual-clock.ts';

const bootstrapPath = '/troupe/v1/auth/bootstrap';

const withEdge = async (limits: NonNullable<NonNullable<EdgeOptions['config']>['limits']>, body: (edge: Edge, clock: ManualClock) => Promise<void>, config: EdgeOptions['config'] = {}): Promise<void> => {
  const clock = manualClock();
  const edge = await startEdge({ clock, config: { ...config, limits } });
  try {
    await body(edge, clock);
  } finally {
    await edge.stop();
  }
};

const asUser = (edge: Edge, token: string, sub: string, options: { localAddress?: string; headers?: Record<string, string> } = {}): Promise<Reply> =>
  edge.call(bootstrapPath, { token, body: { user_id: sub }, ...options });
const anonymous = (edge: Edge, options: { localAddress?: string; headers?: Record<string, string> } = {}): Promise<Reply> =>
  edge.call(bootstrapPath, { body: { user_id: 'x' }, ...options });
const statuses = async (count: number, call: () => Promise<Reply>): Promise<number[]> => {
  const seen: number[] = [];
  for (let i = 0; i < count; i++) seen.push((await call()).status);
  return seen;
};

test('gateway limits - the reference configuration is 100, 10, 200, 20 under these keys [GRL-006]', () => {
  const { limits } = gatewayConfig.parse({
    listen: { port: 0 }, tls: { cert_path: 'c', key_path: 'k' }, auth: {}, capability: { key_path: 'k' }, upstream: { socket_path: 's' },
  });
  const { per_user_capacity, per_user_refill_per_sec, per_ip_capacity, per_ip_refill_per_sec } = limits;
  assert.deepEqual([per_user_capacity, per_user_refill_per_sec, per_ip_capacity, per_ip_refill_per_sec], [100, 10, 200, 20]);
});

test('gateway limits - the configured capacity passes in a burst, the next is 429 with Retry-After, then it refills up to the capacity [GRL-001] [GRL-004] [GRL-005] [GRL-006] [GRL-007]', async () => {
  await withEdge({ per_user_capacity: 5, per_user_refill_per_sec: 0.4 }, async (edge, clock) => {
    const token = await edge.issuer.token('alice', { expiresIn: 86_400 });
    assert.deepEqual(await statuses(5, () => asUser(edge, token, 'alice')), [200, 200, 200, 200, 200]);
    const limited = await asUser(edge, token, 'alice');
    assert.equal(limited.status, 429);
    // One token is missing: ceil(1 / 0.4) = 3.
    assert.equal(limited.headers['retry-after'], '3');
    assert.ok(typeof limited.json === 'object' && limited.json !== null && 'error' in limited.json && limited.json.error === 'rate_limited');
    // Another token of the same user: the key is the verified sub.
    assert.equal((await asUser(edge, await edge.issuer.token('alice', { expiresIn: 90_000 }), 'alice')).status, 429);
    clock.advance(1_000);
    assert.equal((await asUser(edge, token, 'alice')).headers['retry-after'], '2');
    clock.advance(1_500);
    assert.deepEqual(await statuses(2, () => asUser(edge, token, 'alice')), [200, 429]);
    clock.advance(3_600_000);
    assert.deepEqual(await statuses(6, () => asUser(edge, token, 'alice')), [200, 200, 200, 200, 200, 429]);
  });
});

test('gateway limits - a capability draws from its user\'s bucket too, scopes notwithstanding [GRL-001]', async () => {
  await withEdge({ per_user_capacity: 3, per_user_refill_per_sec: 1 }, async (edge) => {
    const token = await edge.issuer.token('alice');
    const { json } = await asUser(edge, token, 'alice');
    assert.ok(typeof json === 'object' && json !== null && 'access_token' in json && typeof json.access_token === 'string');
    const capability = json.access_token;
    assert.deepEqual(await statuses(3, () => edge.call('/custody/get_auth_pubkey', { token: capability, body: { user_id: 'alice' } })), [200, 200, 429]);
  });
});

test('gateway limits - anonymous and failing requests draw from the address, up to its capacity, then 429 [GRL-002] [GRL-013]', async () => {
  await withEdge({ per_ip_capacity: 6, per_ip_refill_per_sec: 2 }, async (edge, clock) => {
    const forged = await edge.issuer.token('alice', { key: { ...(await edge.issuer.makeKey('x')), kid: edge.issuer.key.kid } });
    const seen = [
      (await anonymous(edge)).status, (await asUser(edge, forged, 'alice')).status, (await asUser(edge, 'nonsense', 'alice')).status,
      (await edge.call('/healthz')).status, (await edge.call('/nowhere')).status, (await edge.call(bootstrapPath, { token: 'a'.repeat(9_000), body: {} })).status,
    ];
    assert.deepEqual(seen, [401, 401, 401, 200, 404, 400]);
    for (const call of [() => anonymous(edge), () => edge.call('/healthz'), () => edge.call('/nowhere'), () => asUser(edge, forged, 'alice')]) {
      const limited = await call();
      assert.equal(limited.status, 429);
      assert.equal(limited.headers['retry-after'], '1');
    }
    assert.equal((await anonymous(edge, { localAddress: '127.0.0.2' })).status, 401);
    clock.advance(1_000);
    assert.deepEqual(await statuses(3, () => anonymous(edge)), [401, 401, 429]);
    clock.advance(3_600_000);
    assert.deepEqual(await statuses(7, () => anonymous(edge)), [401, 401, 401, 401, 401, 401, 429]);
  });
});

test('gateway limits - concurrent forged tokens never get past the address\'s capacity together, also while keys are fetched [GRL-013]', async () => {
  await withEdge({ per_ip_capacity: 10, per_ip_refill_per_sec: 1 }, async (edge) => {
    const key = { ...(await edge.issuer.makeKey('x')), kid: edge.issuer.key.kid };
    const forged = await Promise.all(Array.from({ length: 40 }, (_, i) => edge.issuer.token(`user-${i}`, { key })));
    const held = edge.issuer.hold();
    const replies = forged.map((token) => asUser(edge, token, 'x', { localAddress: '127.0.0.3' }));
    await held.waiting;
    for (let i = 0; edge.gateway.requests < 40; i++) await edge.call('/nowhere', { localAddress: `127.0.1.${1 + (i % 250)}` });
    held.release();
    const seen = (await Promise.all(replies)).map((reply) => reply.status).sort();
    assert.deepEqual(seen, [...Array.from({ length: 10 }, () => 401), ...Array.from({ length: 30 }, () => 429)]);
  });
});

test('gateway limits - an empty address bucket refuses before any token is verified: a valid one does not help [GRL-003]', async () => {
  await withEdge({ per_ip_capacity: 2, per_ip_refill_per_sec: 1 }, async (edge) => {
    const token = await edge.issuer.token('alice');
    await statuses(2, () => anonymous(edge));
    assert.equal((await asUser(edge, token, 'alice')).status, 429);
    assert.equal((await refusal(edge.socket('s', { token }))).status, 429);
    assert.equal(edge.issuer.fetches, 0, 'the token was looked at');
    assert.equal((await asUser(edge, token, 'alice', { localAddress: '127.0.0.2' })).status, 200);
  });
});

test('gateway limits - a request whose token verifies leaves the address bucket as it was [GRL-012]', async () => {
  await withEdge({ per_ip_capacity: 3, per_ip_refill_per_sec: 1, per_user_capacity: 100 }, async (edge) => {
    const token = await edge.issuer.token('alice');
    assert.deepEqual(new Set(await statuses(20, () => asUser(edge, token, 'alice'))), new Set([200]));
    assert.deepEqual(await statuses(4, () => anonymous(edge)), [401, 401, 401, 429]);
  });
});

test('gateway limits - two users behind one address have two buckets, one user on two addresses has one [GRL-008]', async () => {
  await withEdge({ per_user_capacity: 4, per_user_refill_per_sec: 1 }, async (edge) => {
    const [alice, bob] = await Promise.all([edge.issuer.token('alice'), edge.issuer.token('bob')]);
    assert.deepEqual(await statuses(2, () => asUser(edge, alice, 'alice', { localAddress: '127.0.0.1' })), [200, 200]);
    assert.deepEqual(await statuses(3, () => asUser(edge, alice, 'alice', { localAddress: '127.0.0.2' })), [200, 200, 429]);
    assert.deepEqual(await statuses(5, () => asUser(edge, bob, 'bob', { localAddress: '127.0.0.1' })), [200, 200, 200, 200, 429]);
  });
});

test('gateway limits - a forged token that names B does not drain B [GRL-009]', async () => {
  await withEdge({ per_user_capacity: 2, per_user_refill_per_sec: 1 }, async (edge) => {
    const forged = await edge.issuer.token('bob', { key: { ...(await edge.issuer.makeKey('x')), kid: edge.issuer.key.kid } });
    assert.deepEqual(new Set(await statuses(20, () => asUser(edge, forged, 'bob'))), new Set([401]));
    const real = await edge.issuer.token('bob');
    assert.deepEqual(await statuses(3, () => asUser(edge, real, 'bob')), [200, 200, 429]);
  });
});

test('gateway limits - without a trusted-proxy list X-Forwarded-For is ignored [GRL-010]', async () => {
  await withEdge({ per_ip_capacity: 3, per_ip_refill_per_sec: 1 }, async (edge) => {
    let i = 0;
    assert.deepEqual(await statuses(4, () => anonymous(edge, { headers: { 'x-forwarded-for': `10.0.0.${++i}` } })), [401, 401, 401, 429]);
    assert.equal((await anonymous(edge, { localAddress: '127.0.0.9', headers: { 'x-forwarded-for': '127.0.0.1' } })).status, 401);
  });
});

test('gateway limits - behind trusted proxies the address is the right-most untrusted entry [GRL-011]', async () => {
  await withEdge({ per_ip_capacity: 2, per_ip_refill_per_sec: 1 }, async (edge) => {
    const via = (forwarded: string, localAddress = '127.0.0.1'): Promise<Reply> => anonymous(edge, { localAddress, headers: { 'x-forwarded-for': forwarded } });
    // What a client writes stands left of what the proxies add, so it can neither hide nor blame anyone.
    assert.equal((await via('1.1.1.1, 203.0.113.7')).status, 401);
    assert.equal((await via('2.2.2.2, 203.0.113.7, 10.1.2.3')).status, 401);
    assert.equal((await via('3.3.3.3, 203.0.113.7')).status, 429);
    assert.equal((await via('203.0.113.7, 203.0.113.8')).status, 401);
    // From a socket that is no proxy the header counts for nothing.
    assert.equal((await via('203.0.113.7', '127.0.0.2')).status, 401);
  }, { trusted_proxies: ['127.0.0.1', '10.0.0.0/8'] });
});

test('gateway limits - the addresses of one IPv6 network count as one: whoever has a /64 has one bucket [GRL-013]', async () => {
  await withEdge({ per_ip_capacity: 3, per_ip_refill_per_sec: 1 }, async (edge) => {
    const via = (forwarded: string): Promise<Reply> => anonymous(edge, { headers: { 'x-forwarded-for': forwarded } });
    let i = 0;
    assert.deepEqual(await statuses(4, () => via(`2001:db8:1:2:${(++i).toString(16)}::1`)), [401, 401, 401, 429]);
    assert.equal((await via('2001:db8:1:3::1')).status, 401);
    assert.equal((await via('::ffff:192.0.2.7')).status, 401);
  }, { trusted_proxies: ['127.0.0.1'] });
});

/** One raw TLS connection; `status` = that of the next answer. */
const line = async (edge: Edge): Promise<{ socket: TLSSocket; status: () => Promise<string> }> => {
  const socket = connect({ port: edge.port, host: '127.0.0.1', servername: 'localhost', ca: edge.ca });
  socket.on('error', () => socket.destroy());
  await once(socket, 'secureConnect');
  return {
    socket,
    status: async () => {
      const [chunk] = await once(socket, 'data') as [Buffer];
      return chunk.toString('latin1', 9, 12);
    },
  };
};
/** Resolves when the gateway has that many requests under way. */
const running = async (edge: Edge, count: number): Promise<void> => {
  while (edge.gateway.requests !== count) await turn();
};
const uploadHead = (token: string, bytes: number): string => `POST /v1/agent/blobs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${token}\r\nContent-Length: ${bytes}\r\n\r\n`;

test('gateway limits - one user holds at most uploadsPerUserMax unfinished uploads, others are not touched, and an ended one makes room [G5]', async () => {
  const edge = await startEdge({ on: { request: (request) => request.answer(request.route?.id === 'health' ? 200 : 201, request.route?.id === 'health' ? 'OK' : { hash: 'h', size: 1 }) } });
  try {
    const token = await edge.issuer.token('alice');
    // The keys are there before: nothing waits for them below.
    assert.equal((await asUser(edge, token, 'alice')).status, 200);
    const open = await Promise.all(Array.from({ length: bounds.uploadsPerUserMax }, () => line(edge)));
    for (const { socket } of open) socket.write(`${uploadHead(token, 2)}a`);
    await running(edge, bounds.uploadsPerUserMax);
    const next = await line(edge);
    next.socket.write(`${uploadHead(token, 2)}ab`);
    assert.equal(await next.status(), '429');
    assert.equal((await asUser(edge, token, 'alice')).status, 200);
    const other = await line(edge);
    other.socket.write(`${uploadHead(await edge.issuer.token('bob'), 2)}ab`);
    assert.equal(await other.status(), '201');
    const [first, second] = open;
    first?.socket.write('b');
    assert.equal(await first?.status(), '201');
    next.socket.write(`${uploadHead(token, 2)}ab`);
    assert.equal(await next.status(), '201');
    // One that is given up makes room as well.
    next.socket.write(`${uploadHead(token, 2)}a`);
    await running(edge, bounds.uploadsPerUserMax);
    second?.socket.destroy();
    await running(edge, bounds.uploadsPerUserMax - 1);
    const last = await line(edge);
    last.socket.write(`${uploadHead(token, 2)}ab`);
    assert.equal(await last.status(), '201');
    for (const { socket } of [...open, next, other, last]) socket.destroy();
  } finally {
    await edge.stop();
  }
});

test('gateway limits - bodies beyond what the process may hold are refused with 503 and let go of [G5]', async () => {
  const bodies = new Bodies(1_000, 8);
  const edge = await startEdge({ dependencies: { bodies }, on: { request: (request) => request.answer(request.route?.id === 'health' ? 200 : 201, request.route?.id === 'health' ? 'OK' : { hash: 'h', size: 1 }) } });
  try {
    const token = await edge.issuer.token('alice');
    const first = await line(edge);
    first.socket.write(`${uploadHead(token, 900)}${'a'.repeat(800)}`);
    while (bodies.bytes < 800) await turn();
    const second = await line(edge);
    second.socket.write(`${uploadHead(token, 500)}${'a'.repeat(400)}`);
    assert.equal(await second.status(), '503');
    await once(second.socket, 'close');
    first.socket.write('a'.repeat(100));
    assert.equal(await first.status(), '201');
    const third = await line(edge);
    third.socket.write(`${uploadHead(token, 900)}${'a'.repeat(900)}`);
    assert.equal(await third.status(), '201');
    assert.equal(bodies.bytes, 0);
    for (const { socket } of [first, third]) socket.destroy();
  } finally {
    await edge.stop();
  }
});

test('gateway http - a body whose length is said in two ways, and a request with two bearers, are refused', async () => {
  const edge = await startEdge();
  try {
    const token = await edge.issuer.token('alice');
    const foreign = await edge.issuer.token('bob');
    const body = JSON.stringify({ user_id: 'alice' });
    const ask = async (...fields: string[]): Promise<{ status: string; closed: Promise<unknown>; socket: TLSSocket }> => {
      const { socket, status } = await line(edge);
      const closed = once(socket, 'close');
      socket.write([`POST ${bootstrapPath} HTTP/1.1`, 'Host: localhost', ...fields, '', body].join('\r\n'));
      return { status: await status(), closed, socket };
    };
    const bearer = `Authorization: Bearer ${token}`;
    const length = `Content-Length: ${body.length}`;
    for (const fields of [[bearer, 'Content-Length: 0', length], [bearer, length, 'Content-Length: 0'], [bearer, 'Transfer-Encoding: gzip', 'Transfer-Encoding: chunked'], [bearer, 'Transfer-Encoding: xchunked']]) {
      const { status, closed } = await ask(...fields);
      assert.equal(status, '400', fields.slice(1).join(', '));
      // What would be the body to somebody else must not be read as a request.
      await closed;
    }
    for (const fields of [[bearer, `Authorization: Bearer ${foreign}`], [`Authorization: Bearer ${foreign}`, bearer]]) {
      const { status, socket } = await ask(...fields, length);
      assert.equal(status, '401');
      socket.destroy();
    }
    const fine = await ask(bearer, length, length);
    assert.equal(fine.status, '200');
    fine.socket.destroy();
  } finally {
    await edge.stop();
  }
});
