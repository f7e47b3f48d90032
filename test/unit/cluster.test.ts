/** The pure parts of the cluster: placement, copies of JSON values, acknowledgement subjects. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { copyJson } from '../../actors/runtime/cluster/copy.ts';
import { deliveryOf } from '../../actors/runtime/cluster/inbox.ts';
import { placed, placement } from '../../actors/runtime/cluster/placement.ts';
import { limits } from '../../contracts/limits.ts';

const hostNames = (count: number): string[] => Array.from({ length: count }, (_, i) => `host-${i}`);

test('placement - every host computes the same owner, whatever the order in which it learnt of the others', () => {
  fc.assert(fc.property(fc.uniqueArray(fc.stringMatching(/^[a-z0-9-]{1,20}$/), { minLength: 1, maxLength: 12 }), fc.nat(4_095), (hosts, n) => {
    assert.equal(placed(n, hosts), placed(n, hosts.toReversed()));
  }));
});

test('placement - a host that joins takes partitions only for itself, one that leaves gives away only its own', () => {
  for (let count = 1; count <= 12; count++) {
    const before = placement(256, hostNames(count));
    const after = placement(256, hostNames(count + 1));
    for (const [n, owner] of after.entries()) {
      if (owner !== before[n]) assert.equal(owner, `host-${count}`, `partition ${n} moved between old hosts`);
    }
  }
});

test('placement - partitions spread evenly: no host is further than four standard deviations from its share', () => {
  const partitions = 4_096;
  for (const count of [2, 3, 5, 8]) {
    const shares = new Map<string, number>();
    for (const owner of placement(partitions, hostNames(count))) shares.set(owner, (shares.get(owner) ?? 0) + 1);
    const mean = partitions / count;
    const deviation = Math.sqrt(partitions * (1 / count) * (1 - 1 / count));
    for (const [host, share] of shares) assert.ok(Math.abs(share - mean) < 4 * deviation, `${host} of ${count} has ${share}`);
    assert.equal(shares.size, count);
  }
});

test('placement - without hosts nothing is placed', () => {
  assert.equal(placed(0, []), undefined);
  assert.deepEqual(placement(4, []), []);
});

test('copy - equals a JSON round trip for every JSON value and shares nothing with it', () => {
  fc.assert(fc.property(fc.jsonValue({ maxDepth: 6 }), (value) => {
    assert.deepEqual(copyJson(value), JSON.parse(JSON.stringify(value)));
  }));
  const inner = { list: [{ deep: 1 }] };
  const copy = copyJson(inner) as typeof inner;
  const [first] = inner.list;
  assert.ok(first !== undefined);
  first.deep = 2;
  assert.deepEqual(copy, { list: [{ deep: 1 }] });
});

test('copy - what JSON has no form for becomes what a round trip makes of it', () => {
  const odd = { at: new Date(0), zero: -0, gone: undefined, none: Number.NaN, map: new Map([[1, 2]]), items: [undefined, 1], [Symbol('s')]: 1 };
  assert.deepEqual(copyJson(odd), JSON.parse(JSON.stringify(odd)));
});

test('copy - a key named __proto__ stays a property and sets no prototype', () => {
  const copy = copyJson(JSON.parse('{"__proto__":{"admin":true}}')) as { admin?: boolean };
  assert.equal(copy.admin, undefined);
  assert.equal(Object.getPrototypeOf(copy), Object.prototype);
  assert.equal(JSON.stringify(copy), '{"__proto__":{"admin":true}}');
});

test('copy - a cycle and a value nested too deeply are refused', () => {
  const cycle: { self?: unknown } = {};
  cycle.self = cycle;
  assert.throws(() => copyJson(cycle), { code: 'bad_request' });
  let deep: unknown = 1;
  for (let i = 0; i < limits.valueDepthMax; i++) deep = [deep];
  assert.deepEqual(copyJson(deep), deep);
  assert.throws(() => copyJson([[deep]]), { code: 'bad_request' });
});

test('inbox - stream sequence and deliveries are read from both forms of the acknowledgement subject', () => {
  assert.deepEqual(deliveryOf('$JS.ACK.INBOX.partition-3.2.41.7.1700000000000000000.5'), { deliveries: 2, seq: 41 });
  assert.deepEqual(deliveryOf('$JS.ACK._.ACCHASH.INBOX.partition-3.2.41.7.1700000000000000000.5.token'), { deliveries: 2, seq: 41 });
  assert.deepEqual(deliveryOf('$JS.ACK.hub.ACCHASH.INBOX.partition-3.9.12.7.1700000000000000000.0'), { deliveries: 9, seq: 12 });
});
