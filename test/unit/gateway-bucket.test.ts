/** Token buckets against a model, and the remote address behind proxies. Randomness from one printed seed (fast-check). */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { canonicalAddress, remoteAddress, trustedProxies } from '../../gateway/address.ts';
import { Buckets } from '../../gateway/bucket.ts';

test('bucket - never gives more than capacity plus refill in any window, and refuses only when a token is missing [GRL-005]', () => {
  fc.assert(fc.property(
    fc.integer({ min: 1, max: 20 }), fc.double({ min: 0.1, max: 50, noNaN: true }), fc.array(fc.integer({ min: 0, max: 3_000 }), { minLength: 1, maxLength: 200 }),
    (capacity, refillPerSec, gaps) => {
      let nowMs = 0;
      const buckets = new Buckets({ capacity, refillPerSec }, () => nowMs);
      let tokens = capacity;
      for (const gap of gaps) {
        nowMs += gap;
        tokens = Math.min(capacity, tokens + (gap / 1_000) * refillPerSec);
        const wait = buckets.wait('k');
        const taken = buckets.take('k');
        assert.equal(taken, wait);
        if (Math.abs(tokens - 1) < 1e-6) {
          // Too near to one to say which way rounding falls: follow the bucket.
          if (taken === 0) tokens -= 1;
          continue;
        }
        if (tokens >= 1) {
          assert.equal(taken, 0);
          tokens -= 1;
        } else {
          assert.equal(taken, Math.max(1, Math.ceil((1 - tokens) / refillPerSec)));
        }
      }
    },
  ));
});

test('bucket - remembers a bounded number, forgets full ones first', () => {
  let nowMs = 0;
  const buckets = new Buckets({ capacity: 2, refillPerSec: 1 }, () => nowMs, 3);
  buckets.take('full');
  nowMs = 10_000;
  for (const key of ['a', 'a', 'b', 'b', 'c', 'c']) buckets.take(key);
  assert.equal(buckets.size, 3);
  for (const key of ['a', 'b', 'c']) assert.ok(buckets.wait(key) > 0, `${key} was forgotten before the full one`);
  for (let i = 0; i < 1_000; i++) buckets.take(`k${i}`);
  assert.equal(buckets.size, 3);
});

test('bucket - an override takes effect at once, keeps no more than the new capacity, and can be removed [ADM-009]', () => {
  const buckets = new Buckets({ capacity: 10, refillPerSec: 1 }, () => 0);
  buckets.take('k');
  buckets.override('k', { capacity: 2, refillPerSec: 0.5 });
  assert.deepEqual(buckets.inspect('k', 1), [{ key: 'k', tokens: 2, capacity: 2, refillPerSec: 0.5, overridden: true }]);
  assert.deepEqual([buckets.take('k'), buckets.take('k'), buckets.take('k')], [0, 0, 2]);
  buckets.override('k', null);
  assert.equal(buckets.take('k'), 1);
  assert.deepEqual(buckets.inspect(undefined, 10).map((state) => [state.key, state.overridden]), [['k', false]]);
});

test('bucket - the number of overrides is bounded', () => {
  const buckets = new Buckets({ capacity: 1, refillPerSec: 1 }, () => 0);
  for (let i = 0; i < 1_000; i++) buckets.override(`k${i}`, { capacity: 2, refillPerSec: 1 });
  assert.throws(() => buckets.override('one-more', { capacity: 2, refillPerSec: 1 }), { code: 'bad_request' });
  buckets.override('k0', { capacity: 3, refillPerSec: 1 });
  buckets.override('k1', null);
  buckets.override('one-more', { capacity: 2, refillPerSec: 1 });
});

test('address - one spelling for one address', () => {
  for (const [text, expected] of [
    ['127.0.0.1', '127.0.0.1'], ['0000:0000:0000:0000:0000:0000:0000:0001', '::1'], ['::ffff:10.0.0.1', '10.0.0.1'], ['0000:0000:0000:0000:0000:ffff:0a00:0001', '10.0.0.1'],
    ['1.2.3.4:5678', '1.2.3.4'], ['[2001:db8::1]:443', '2001:db8::1'], ['[2001:DB8:0::1]', '2001:db8::1'], ['unknown', undefined], ['', undefined], ['1.2.3', undefined], ['fe80::1%eth0', undefined],
  ] as const) assert.equal(canonicalAddress(text), expected, text);
});

test('address - right-most untrusted entry, or the hop that wrote what is no address [GRL-011]', () => {
  const proxies = trustedProxies(['10.0.0.0/8', '2001:db8::/32', '192.0.2.1']);
  const via = (socket: string, header: string): string => remoteAddress(socket, proxies, () => header);
  assert.equal(via('10.0.0.1', '1.1.1.1, 8.8.8.8'), '8.8.8.8');
  assert.equal(via('10.0.0.1', '1.1.1.1, 8.8.8.8,10.9.9.9 ,192.0.2.1'), '8.8.8.8');
  assert.equal(via('10.0.0.1', '1.1.1.1, garbage, 10.9.9.9'), '10.9.9.9');
  assert.equal(via('10.0.0.1', ''), '10.0.0.1');
  assert.equal(via('10.0.0.1', '10.0.0.2, 10.0.0.3'), '10.0.0.2');
  assert.equal(via('2001:0db8:0000:0000:0000:0000:0000:0001', '2606:4700::1'), '2606:4700::1');
  assert.equal(via('9.9.9.9', '1.1.1.1'), '9.9.9.9');
  assert.equal(remoteAddress('10.0.0.1', undefined, () => { throw new Error('read'); }), '10.0.0.1');
});

test('address - a wrong trusted_proxies entry is named', () => {
  for (const entry of ['10.0.0.0/33', 'localhost', '10.0.0.0/8/9', '::/129', '1.2.3.4/x', '']) assert.throws(() => trustedProxies([entry]), { code: 'bad_config', message: new RegExp('trusted_proxies') });
});
