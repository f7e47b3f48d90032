/** The identity provider's key set at the gateway: fetched, kept, rotated, failing; over real TLS and a real issuer. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startEdge, type Edge, type Reply } from '../harness/gateway.ts';
import { manualClock } from '../harness/manual-clock.ts';
import { wide } from '../harness/watch.ts';

const bootstrapPath = '/troupe/v1/auth/bootstrap';

const fails = (reply: { status: number; json: unknown }, status: number, code: string): void => {
  assert.ok(typeof reply.json === 'object' && reply.json !== null && 'error' in reply.json);
  assert.deepEqual([reply.status, reply.json.error], [status, code]);
};
const bootstrap = (edge: Edge, token: string, sub = 'alice'): Promise<Reply> => edge.call(bootstrapPath, { token, body: { user_id: sub } });

test('gateway jwks - the JWKS comes from auth.jwks_url and is fetched once within its TTL [GWA-010] [GWA-011]', async () => {
  const clock = manualClock();
  const edge = await startEdge({ clock, config: wide });
  try {
    assert.equal(edge.issuer.fetches, 0);
    for (let i = 0; i < 5; i++) assert.equal((await bootstrap(edge, await edge.issuer.token(`user-${i}`), `user-${i}`)).status, 200);
    clock.advance(299_000);
    assert.equal((await bootstrap(edge, await edge.issuer.token('alice'))).status, 200);
    assert.equal(edge.issuer.fetches, 1);
    clock.advance(1_000);
    assert.equal((await bootstrap(edge, await edge.issuer.token('alice'))).status, 200);
    assert.equal(edge.issuer.fetches, 2);
  } finally {
    await edge.stop();
  }
});

test('gateway jwks - 50 simultaneous requests on a cold cache cause one fetch [GWA-012]', async () => {
  const edge = await startEdge({ config: wide });
  try {
    const held = edge.issuer.hold();
    const tokens = await Promise.all(Array.from({ length: 50 }, (_, i) => edge.issuer.token(`user-${i}`)));
    const replies = tokens.map((token, i) => bootstrap(edge, token, `user-${i}`));
    await held.waiting;
    // All fifty are inside before the answer: every one has been counted as a request by then.
    const inside = async (): Promise<void> => {
      while (edge.gateway.requests < 50) await edge.call('/nowhere');
    };
    await inside();
    held.release();
    for (const reply of await Promise.all(replies)) assert.equal(reply.status, 200);
    assert.equal(edge.issuer.fetches, 1);
  } finally {
    await edge.stop();
  }
});

test('gateway jwks - an unknown kid refetches once: a new key passes, no key is 401 [GWA-004]', async () => {
  const clock = manualClock();
  const edge = await startEdge({ clock, config: wide });
  try {
    assert.equal((await bootstrap(edge, await edge.issuer.token('alice'))).status, 200);
    const next = await edge.issuer.makeKey('key-2');
    edge.issuer.publish(edge.issuer.key, next);
    assert.equal((await bootstrap(edge, await edge.issuer.token('alice', { key: next }))).status, 200);
    assert.equal(edge.issuer.fetches, 2);
    clock.advance(10_000);
    fails(await bootstrap(edge, await edge.issuer.token('alice', { key: await edge.issuer.makeKey('nobody') })), 401, 'unauthorized');
    assert.equal(edge.issuer.fetches, 3);
  } finally {
    await edge.stop();
  }
});

test('gateway jwks - 100 tokens with random kids cause one fetch per cooldown [GWA-005]', async () => {
  const clock = manualClock();
  const edge = await startEdge({ clock, config: wide });
  try {
    assert.equal((await bootstrap(edge, await edge.issuer.token('alice'))).status, 200);
    const tokens = await Promise.all(Array.from({ length: 100 }, () => edge.issuer.token('alice', { kid: crypto.randomUUID() })));
    for (const reply of await Promise.all(tokens.map((token) => bootstrap(edge, token)))) fails(reply, 401, 'unauthorized');
    assert.equal(edge.issuer.fetches, 2);
    clock.advance(10_000);
    fails(await bootstrap(edge, tokens[0] ?? ''), 401, 'unauthorized');
    fails(await bootstrap(edge, tokens[1] ?? ''), 401, 'unauthorized');
    assert.equal(edge.issuer.fetches, 3);
  } finally {
    await edge.stop();
  }
});

test('gateway jwks - after a refresh a removed key\'s tokens are 401, remembered ones too, and a new key\'s pass [GWA-013]', async () => {
  const clock = manualClock();
  const edge = await startEdge({ clock, config: wide });
  try {
    const old = await edge.issuer.token('alice');
    assert.equal((await bootstrap(edge, old)).status, 200);
    const next = await edge.issuer.makeKey('key-2');
    edge.issuer.publish(next);
    assert.equal((await bootstrap(edge, old)).status, 200);
    clock.advance(300_000);
    fails(await bootstrap(edge, old), 401, 'unauthorized');
    assert.equal((await bootstrap(edge, await edge.issuer.token('alice'))).status, 200);
    // The same kid with another key is another key.
    const impostor = { ...(await edge.issuer.makeKey('key-2')) };
    const before = await edge.issuer.token('alice');
    assert.equal((await bootstrap(edge, before)).status, 200);
    edge.issuer.publish(impostor);
    clock.advance(300_000);
    fails(await bootstrap(edge, before), 401, 'unauthorized');
  } finally {
    await edge.stop();
  }
});

test('gateway jwks - when a fetch fails, in whatever way, the last good set stays in use [GWA-014]', async () => {
  const clock = manualClock();
  const edge = await startEdge({ clock, config: wide });
  try {
    const token = await edge.issuer.token('alice', { expiresIn: 86_400 });
    assert.equal((await bootstrap(edge, token)).status, 200);
    for (const fault of ['status', 'garbage', 'reset', 'large'] as const) {
      edge.issuer.fail(fault);
      const before = edge.issuer.fetches;
      clock.advance(300_000);
      assert.equal((await bootstrap(edge, token)).status, 200, fault);
      assert.equal(edge.issuer.fetches, before + 1, fault);
      assert.equal((await bootstrap(edge, await edge.issuer.token('bob', { expiresIn: 86_400 }), 'bob')).status, 200, fault);
      assert.equal(edge.issuer.fetches, before + 1, `${fault}: no fetch a request while the issuer fails`);
    }
    edge.issuer.fail('none');
    clock.advance(300_000);
    const before = edge.issuer.fetches;
    assert.equal((await bootstrap(edge, token)).status, 200);
    assert.equal(edge.issuer.fetches, before + 1);
  } finally {
    await edge.stop();
  }
});

test('gateway jwks - as long as no key set was ever got, an identity is neither believed nor called false: 503', async () => {
  const edge = await startEdge({ config: wide });
  try {
    edge.issuer.fail('status');
    fails(await bootstrap(edge, await edge.issuer.token('alice')), 503, 'upstream_unavailable');
  } finally {
    await edge.stop();
  }
});

test('gateway jwks - a forged token with a huge body announced, while keys are fetched, is refused and harms nobody', async () => {
  const edge = await startEdge({ config: wide });
  try {
    const forged = await edge.issuer.token('alice', { key: { ...(await edge.issuer.makeKey('x')), kid: edge.issuer.key.kid } });
    const held = edge.issuer.hold();
    const reply = edge.call(bootstrapPath, { token: forged, body: 'x'.repeat(200_000) });
    await held.waiting;
    held.release();
    assert.ok([401, 413].includes((await reply).status));
    assert.equal((await bootstrap(edge, await edge.issuer.token('alice'))).status, 200);
  } finally {
    await edge.stop();
  }
});
