/** Leases over a real nats-server, without an engine: who takes what, when, and what a host that lost its lease does. */
import assert from 'node:assert/strict';
import { after, before, beforeEach, test } from 'node:test';
import type { NatsConnection } from 'nats';
import { createBucket, type Bucket } from '../../actors/runtime/cluster/bucket.ts';
import { Leases } from '../../actors/runtime/cluster/leases.ts';
import { placement } from '../../actors/runtime/cluster/placement.ts';
import { connectNats } from '../../actors/runtime/nats/connect.ts';
import { createLean, type Lean } from '../../actors/runtime/nats/lean.ts';
import { ensureStreams } from '../../actors/runtime/nats/streams.ts';
import { systemClock, type Clock } from '../../actors/runtime/store.ts';
import { startNats, type NatsServer } from '../harness/nats.ts';
import type { Log } from '../../actors/runtime/log.ts';
import { recorder, silent } from '../harness/log.ts';

const partitions = 16;
const ttlMs = 600;

let server: NatsServer;
let nc: NatsConnection;
let lean: Lean;

before(async () => {
  server = await startNats();
  nc = await connectNats({ url: server.url, name: 'leases-test' });
  await ensureStreams(nc, { partitions, journalStreams: 1, replicas: 1 });
  lean = createLean(nc);
});
after(async () => {
  lean.close();
  await nc.close();
  await server.stop();
});
beforeEach(async () => {
  for (const bucket of ['KV_hosts', 'KV_partitions']) {
    await lean.request(`$JS.API.STREAM.PURGE.${bucket}`, '', { timeoutMs: 5_000 });
  }
});

interface Member {
  readonly leases: Leases;
  readonly name: string;
  /** Partition → epoch of what `take` was called for and `give` was not. */
  readonly served: Map<number, number>;
  /** Monotonic time until which it may serve. */
  untilMs: number;
  replaced: boolean;
  /** Resolves when the condition holds; looked at after each take and give. */
  when(condition: () => boolean): Promise<void>;
}

const history: { n: number; epoch: number; host: string }[] = [];

const member = (name: string, options: { log?: Log; hosts?: Bucket; clock?: Clock; give?: (n: number) => Promise<void> } = {}): Member => {
  const waiting: { condition: () => boolean; resolve: () => void }[] = [];
  const check = (): void => { for (const wait of waiting) if (wait.condition()) wait.resolve(); };
  const served = new Map<number, number>();
  const self: Member = {
    name, served, untilMs: 0, replaced: false,
    when: (condition) => condition() ? Promise.resolve() : new Promise((resolve) => { waiting.push({ condition, resolve }); }),
    leases: new Leases({
      hosts: options.hosts ?? createBucket(nc, lean, 'hosts'),
      partitions: createBucket(nc, lean, 'partitions'),
      host: name, count: partitions, ttlMs, clock: options.clock ?? systemClock, log: options.log ?? silent,
      onLease: (untilMs) => { self.untilMs = untilMs; check(); },
      take: (n, epoch) => {
        served.set(n, epoch);
        history.push({ n, epoch, host: name });
        check();
      },
      give: async (n) => {
        await options.give?.(n);
        served.delete(n);
        check();
      },
      onOwned: check,
      onReplaced: () => { self.replaced = true; check(); },
    }),
  };
  return self;
};

const stop = async (...members: Member[]): Promise<void> => {
  for (const { leases } of members) leases.stop();
  await Promise.all(members.map(({ leases }) => leases.leave().catch(() => undefined)));
};
const share = (name: string, hosts: string[]): number[] => placement(partitions, hosts).flatMap((owner, n) => (owner === name ? [n] : []));
const sorted = (map: Map<number, number>): number[] => [...map.keys()].sort((a, b) => a - b);

test('leases - the first host takes every partition, the second gets its share, and no partition is served twice', async () => {
  const a = member('a');
  const b = member('b');
  await a.leases.start();
  await a.leases.ready;
  assert.equal(a.served.size, partitions);
  const both: number[] = [];
  await b.leases.start();
  await b.when(() => { for (const n of b.served.keys()) if (a.served.has(n)) both.push(n); return b.served.size === share('b', ['a', 'b']).length; });
  await b.leases.ready;
  assert.deepEqual(sorted(b.served), share('b', ['a', 'b']));
  assert.deepEqual(sorted(a.served), share('a', ['a', 'b']));
  assert.deepEqual(both, []);
  await stop(a, b);
});

test('leases - a host that drains frees its partitions and the others take them without waiting for its lease', async () => {
  const log = recorder();
  const [a, b, c] = [member('a', { log }), member('b'), member('c', { log })];
  for (const m of [a, b, c]) await m.leases.start();
  await Promise.all([a, b, c].map((m) => m.leases.ready));
  await b.leases.drain(5_000);
  await b.leases.leave();
  await Promise.all([a, c].map((m) => m.when(() => m.served.size === share(m.name, ['a', 'c']).length)));
  assert.equal(b.served.size, 0);
  assert.deepEqual(sorted(a.served), share('a', ['a', 'c']));
  assert.deepEqual(log.lines.filter((line) => line.text.includes('fell silent')), []);
  await stop(a, c);
});

test('leases - a host that falls silent is ended by the others, its epochs are followed by higher ones', async () => {
  const [a, b] = [member('a'), member('b')];
  await a.leases.start();
  await b.leases.start();
  await Promise.all([a.leases.ready, b.leases.ready]);
  const before = new Map(b.served);
  assert.ok(before.size > 0);
  b.leases.stop();
  await a.when(() => a.served.size === partitions);
  assert.ok(systemClock.monotonic() > b.untilMs, 'taken over before its own lease had run out');
  for (const [n, epoch] of before) assert.ok((a.served.get(n) ?? 0) > epoch);
  await stop(a);
});

test('leases - a restarted host takes the partitions of its predecessor at once, and the predecessor stops for good', async () => {
  const first = member('a');
  await first.leases.start();
  await first.leases.ready;
  const before = new Map(first.served);
  const second = member('a');
  await second.leases.start();
  await second.leases.ready;
  assert.equal(second.served.size, partitions);
  for (const [n, epoch] of second.served) assert.ok(epoch > (before.get(n) ?? Infinity));
  await first.when(() => first.replaced);
  assert.equal(first.untilMs, 0);
  await stop(second);
});

test('leases - a host that could not renew stops itself, gives everything up when it was ended, and joins again', async () => {
  const real = createBucket(nc, lean, 'hosts');
  let cut = false;
  const hosts: Bucket = { ...real, put: (key, value, expected, timeoutMs) => cut ? Promise.reject(new Error('cut off')) : real.put(key, value, expected, timeoutMs) };
  const [a, b] = [member('a', { hosts }), member('b')];
  await a.leases.start();
  await b.leases.start();
  await Promise.all([a.leases.ready, b.leases.ready]);
  const first = a.leases.instance;
  cut = true;
  await b.when(() => b.served.size === partitions);
  assert.ok(systemClock.monotonic() > a.untilMs);
  cut = false;
  await a.when(() => a.served.size === share('a', ['a', 'b']).length && a.leases.instance !== first);
  await b.when(() => b.served.size === share('b', ['a', 'b']).length);
  assert.deepEqual(sorted(a.served), share('a', ['a', 'b']));
  await stop(a, b);
});

test('leases - a hand-over waits until nothing can commit any more before the key is written free', async () => {
  const release = Promise.withResolvers<void>();
  const asked = Promise.withResolvers<void>();
  const a = member('a', { give: () => { asked.resolve(); return release.promise; } });
  const b = member('b');
  await a.leases.start();
  await a.leases.ready;
  await b.leases.start();
  await asked.promise;
  // Two heartbeats of the new host later, with a look at the leases before each.
  for (let beats = 0; beats < 2; beats++) {
    const untilMs = b.untilMs;
    await b.when(() => b.untilMs > untilMs);
  }
  const reader = createBucket(nc, lean, 'partitions');
  const held = await reader.list(['*'], 5_000);
  for (const entry of held) assert.match(entry.value ?? '', /"host":"a"/);
  assert.equal(b.served.size, 0);
  release.resolve();
  await b.leases.ready;
  assert.deepEqual(sorted(b.served), share('b', ['a', 'b']));
  await stop(a, b);
});

test('leases - an outage of NATS longer than the lease ends nobody: the same hosts keep the same epochs', async () => {
  let skewMs = 0;
  const clock: Clock = { now: () => systemClock.now(), monotonic: () => systemClock.monotonic() + skewMs };
  const log = recorder();
  const real = createBucket(nc, lean, 'hosts');
  // After the outage the second host cannot renew before the first has read the buckets twice.
  let gate: Promise<void> = Promise.resolve();
  let listed: () => void = () => undefined;
  const slow: Bucket = { ...real, put: async (...args) => { await gate; return real.put(...args); } };
  const watched: Bucket = { ...real, list: async (...args) => { const entries = await real.list(...args); listed(); return entries; } };
  const [a, b] = [member('a', { clock, log, hosts: watched }), member('b', { clock, log, hosts: slow })];
  await a.leases.start();
  await b.leases.start();
  await Promise.all([a.leases.ready, b.leases.ready]);
  const beforeA = new Map(a.served);
  const beforeB = new Map(b.served);
  const opened = Promise.withResolvers<void>();
  gate = opened.promise;
  await server.kill('SIGTERM');
  // Far past both leases by their own clocks, with no answer in between.
  skewMs += 100 * ttlMs;
  await server.restart();
  for (let looks = 0; looks < 2; looks++) await new Promise<void>((resolve) => { listed = resolve; });
  const [untilA, untilB] = [a.untilMs, b.untilMs];
  opened.resolve();
  await Promise.all([a.when(() => a.untilMs > untilA), b.when(() => b.untilMs > untilB)]);
  assert.deepEqual(a.served, beforeA);
  assert.deepEqual(b.served, beforeB);
  assert.deepEqual(log.lines.filter((line) => line.text.includes('silent')), []);
  await stop(a, b);
});

test('leases - epochs of a partition only ever rise, over every take-over of this file', () => {
  assert.ok(history.length > partitions);
  const last = new Map<string, number>();
  for (const { n, epoch } of history) {
    const key = `${n}`;
    assert.ok(epoch > (last.get(key) ?? 0), `partition ${n}: ${epoch}`);
    last.set(key, epoch);
  }
});
