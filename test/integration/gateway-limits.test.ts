/** Rate limits of the gateway over real TLS, with a clock that the tests move: which bucket is drawn from, how much, for whom. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { gatewayConfig } from '../../contracts/config.ts';
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
