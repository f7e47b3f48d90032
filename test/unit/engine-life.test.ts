/** An activation's life: idling, making room, feed numbers, hand-over, leases, drain. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { z } from 'zod';
import { coded } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { partitionOf } from '../../contracts/subjects.ts';
import { defineActor } from '../../actors/runtime/define.ts';
import { counter } from '../actors/counter/counter.ts';
import { defineBankAccount } from '../actors/bank-account/bank-account.ts';
import { codeOf, commitsOf, createCluster, createHost, domainOf, eventsOf, partitions, snapshotKey, type Cluster } from '../harness/memory-host.ts';

const address = { org: 'acme', type: 'counter', key: 'a' };
const account = { org: 'acme', type: 'bank-account', key: 'a' };
const unpaid = defineBankAccount({ pay: () => Promise.reject(coded('upstream_unavailable')) });

const quiet = async (cluster: Cluster): Promise<void> => {
  for (let i = 0; i < 6; i++) await cluster.clock.advance(0);
};

test('engine life - an idle actor is forgotten after idleMs and comes back with its state', async () => {
  const cluster = createCluster();
  const host = createHost(cluster, { definitions: [counter] });
  await host.ask(address, 'add', { by: 3 });
  await cluster.clock.advance(limits.idleMs - 1_000);
  await host.ask(address, 'read');
  await cluster.clock.advance(limits.idleMs - 1_000);
  assert.equal(host.engine.stats().activations, 1);
  await cluster.clock.advance(1_000 + limits.sweepMs);
  assert.equal(host.engine.stats().activations, 0);
  assert.deepEqual(await host.ask(address, 'read'), { count: 3 });
  host.engine.close();
});

const polite = defineActor({
  type: 'polite', events: { hello: z.object({}), bye: z.object({}) }, initial: () => ({ bye: 0 }),
  apply: { hello: (state) => state, bye: (state) => ({ bye: state.bye + 1 }) },
  commands: (command) => ({
    hello: command({
      input: z.strictObject({}), output: z.object({ bye: z.int() }),
      handle: (turn) => {
        turn.emit('hello', {});
        return { bye: turn.state.bye };
      },
    }),
    look: command({ input: z.strictObject({}), output: z.object({ bye: z.int() }), handle: (turn) => ({ bye: turn.state.bye }) }),
  }),
  onIdle: (turn) => { turn.emit('bye', {}); },
  idleMs: 1_000,
});

test('engine life - the last turn of an idle actor is committed, and not run on hand-over or for an actor that was never written', async () => {
  const cluster = createCluster();
  const target = { org: 'o', type: 'polite', key: 'p' };
  const host = createHost(cluster, { definitions: [polite] });
  await host.ask(target, 'look');
  await cluster.clock.advance(2_000);
  assert.equal(commitsOf(cluster, target).length, 0);
  await host.ask(target, 'hello');
  await cluster.clock.advance(2_000);
  await quiet(cluster);
  assert.equal(host.engine.stats().activations, 0);
  assert.deepEqual(domainOf(cluster, target), ['hello {}', 'bye {}']);
  assert.deepEqual(await host.ask(target, 'hello'), { bye: 1 });
  await host.engine.drain();
  assert.deepEqual(domainOf(cluster, target), ['hello {}', 'bye {}', 'hello {}']);
});

test('engine life - a message that meets the last turn keeps the actor', async () => {
  const cluster = createCluster();
  const target = { org: 'o', type: 'polite', key: 'p' };
  const host = createHost(cluster, { definitions: [polite] });
  await host.ask(target, 'hello');
  const { faults } = cluster.stores.journal;
  faults.hold();
  await cluster.clock.advance(1_000 + limits.sweepMs);
  const look = host.ask(target, 'look');
  faults.release();
  assert.deepEqual(await look, { bye: 1 });
  assert.equal(host.engine.stats().activations, 1);
  host.engine.close();
});

test('engine life - past activationsMax the least recently used idle actor makes room; without one the host is overloaded', async () => {
  const cluster = createCluster();
  const host = createHost(cluster, { definitions: [counter], activationsMax: 3 });
  const at = (key: string) => ({ ...address, key });
  for (const key of ['a', 'b', 'c']) {
    await host.ask(at(key), 'add', { by: 1 });
    await cluster.clock.advance(1);
  }
  await host.ask(at('a'), 'read');
  const epochs = (key: string): number => eventsOf(cluster, at(key)).filter((event) => event.k === '$epoch').length;
  await host.ask(at('d'), 'read');
  assert.equal(host.engine.stats().activations, 3);
  await host.ask(at('a'), 'read');
  assert.deepEqual([epochs('a'), epochs('b')], [1, 1]);
  await host.ask(at('b'), 'read');
  assert.deepEqual([epochs('b'), epochs('c')], [2, 1]);
  const { faults } = cluster.stores.journal;
  faults.hold();
  const busy = ['x', 'y', 'z'].map((key) => host.ask(at(key), 'add', { by: 1 }));
  assert.equal(await codeOf(host.ask(at('w'), 'read')), 'overloaded');
  faults.release();
  await Promise.all(busy);
  host.engine.close();
});

test('engine life - at most recoveriesMax actors are recovered at once, and all of them in the end', async () => {
  const cluster = createCluster();
  const host = createHost(cluster, { definitions: [counter] });
  const count = limits.recoveriesMax + 20;
  const asked = Array.from({ length: count }, (_, i) => host.ask({ ...address, key: `k${i}` }, 'read'));
  assert.equal(cluster.stores.journal.counts.lasts, limits.recoveriesMax);
  assert.deepEqual(await Promise.all(asked), asked.map(() => ({ count: 0 })));
  assert.equal(cluster.stores.journal.counts.lasts, count);
  host.engine.close();
});

test('engine life - the one that makes room is the least recently used of all types', async () => {
  const cluster = createCluster();
  const target = { org: 'o', type: 'polite', key: 'p' };
  const host = createHost(cluster, { definitions: [counter, polite], activationsMax: 2 });
  await host.ask(target, 'hello');
  await cluster.clock.advance(1);
  await host.ask(address, 'add', { by: 1 });
  await host.ask({ ...address, key: 'b' }, 'read');
  await quiet(cluster);
  assert.deepEqual(domainOf(cluster, target), ['hello {}', 'bye {}']);
  host.engine.close();
});

test('engine life - feed numbers run on without gap, and the mark stands still while the actor runs', async () => {
  const cluster = createCluster();
  let pay: ((receipt: { receipt: string }) => void) | undefined;
  const bank = defineBankAccount({ pay: () => new Promise((resolve) => { pay = resolve; }) });
  const host = createHost(cluster, { definitions: [bank] });
  await host.ask(account, 'deposit', { cents: 100, from: 'cash' });
  await host.ask(account, 'scheduleStatement', { inMs: 1_000 });
  await host.ask(account, 'withdraw', { cents: 10, to: 'x' });
  await host.ask(account, 'deposit', { cents: 5, from: 'cash' });
  await cluster.clock.advance(1_000);
  pay?.({ receipt: 'r' });
  await quiet(cluster);
  const feed = commitsOf(cluster, account).map(({ f, c, m, ev }) => ({ f, c, m, kinds: ev.map((event) => event.k).filter((k) => !k.startsWith('$')).join() }));
  assert.deepEqual(feed, [
    { f: 1, c: 1, m: 1, kinds: 'deposited' },
    { f: 2, c: 0, m: 1, kinds: '' },
    { f: 2, c: 1, m: 1, kinds: 'withdrawn' },
    { f: 3, c: 1, m: 1, kinds: 'deposited' },
    { f: 4, c: 0, m: 1, kinds: 'stated' },
    { f: 4, c: 1, m: 4, kinds: 'cleared' },
  ]);
  host.engine.close();
});

test('engine life - nothing is served for partitions that are not held', async () => {
  const host = createHost(createCluster(), { definitions: [counter], hold: [] });
  assert.equal(await codeOf(host.ask(address, 'read')), 'not_owner');
  host.engine.hold(partitionOf(address, partitions), 1);
  assert.deepEqual(await host.ask(address, 'read'), { count: 0 });
  host.engine.close();
});

test('[G8] engine life - a release commits and answers the turns that ran, refuses what waits, and ends when nothing can be committed', async () => {
  const cluster = createCluster();
  const host = createHost(cluster, { definitions: [counter] });
  await host.ask(address, 'read');
  const { faults } = cluster.stores.journal;
  faults.hold();
  const arrived = faults.appended();
  const ran = [host.ask(address, 'add', { by: 1 })];
  await arrived;
  ran.push(host.ask(address, 'add', { by: 1 }));
  let released = false;
  const release = host.engine.release(partitionOf(address, partitions)).then(() => { released = true; });
  assert.equal(await codeOf(host.ask(address, 'add', { by: 5 })), 'not_owner');
  await quiet(cluster);
  assert.equal(released, false);
  faults.release();
  await release;
  assert.deepEqual(await Promise.all(ran), [{ count: 1 }, { count: 2 }]);
  const { length } = commitsOf(cluster, address);
  const owner = createHost(cluster, { definitions: [counter], epoch: 2 });
  assert.deepEqual(await owner.ask(address, 'read'), { count: 2 });
  assert.equal(commitsOf(cluster, address).length, length + 1);
  owner.engine.close();
  host.engine.close();
});

test('engine life - a release writes a snapshot when much has happened, so that the next owner begins quickly', async () => {
  const cluster = createCluster();
  const host = createHost(cluster, { definitions: [counter] });
  for (let i = 0; i < limits.snapshotIdleEvents; i++) await host.ask(address, 'add', { by: 1 });
  await host.engine.release(partitionOf(address, partitions));
  assert.notEqual(await cluster.stores.snapshots.get(snapshotKey(address)), undefined);
  const reads = cluster.stores.journal.counts.reads;
  const owner = createHost(cluster, { definitions: [counter], epoch: 2 });
  assert.deepEqual(await owner.ask(address, 'read'), { count: limits.snapshotIdleEvents });
  assert.equal(cluster.stores.journal.counts.reads, reads);
  owner.engine.close();
  host.engine.close();
});

test('engine life - past the lease nothing is served and everything active ends; a renewed lease serves again', async () => {
  const cluster = createCluster();
  const host = createHost(cluster, { definitions: [counter] });
  host.engine.leaseUntil(cluster.clock.monotonic() + 1_000);
  await host.ask(address, 'add', { by: 1 });
  await cluster.clock.advance(500);
  host.engine.leaseUntil(cluster.clock.monotonic() + 1_000);
  await cluster.clock.advance(999);
  assert.deepEqual(await host.ask(address, 'read'), { count: 1 });
  await cluster.clock.advance(1);
  assert.equal(host.engine.stats().activations, 0);
  assert.equal(await codeOf(host.ask(address, 'read')), 'not_owner');
  host.engine.leaseUntil(cluster.clock.monotonic() + 1_000);
  assert.deepEqual(await host.ask(address, 'read'), { count: 1 });
  host.engine.close();
});

test('engine life - a host that slept past its lease appends nothing, although no timer has told it', async () => {
  const cluster = createCluster();
  const host = createHost(cluster, { definitions: [counter] });
  await host.ask(address, 'add', { by: 1 });
  host.engine.leaseUntil(cluster.clock.monotonic() + 1_000);
  const asked = host.ask(address, 'add', { by: 1 });
  // Between the turn and its commit.
  cluster.clock.jump(1_000);
  assert.equal(await codeOf(asked), 'not_owner');
  assert.deepEqual(domainOf(cluster, address), ['added {"by":1}']);
  host.engine.close();
});

test('engine life - past the lease not even a read of an active actor is answered, although no timer has told it', async () => {
  const cluster = createCluster();
  const host = createHost(cluster, { definitions: [counter] });
  await host.ask(address, 'add', { by: 1 });
  host.engine.leaseUntil(cluster.clock.monotonic() + 1_000);
  cluster.clock.jump(1_000);
  assert.equal(await codeOf(host.ask(address, 'read')), 'not_owner');
  host.engine.close();
});

test('[G8] engine life - a drain answers what runs, refuses what comes, leaves nothing active, and closes', async () => {
  const cluster = createCluster();
  const host = createHost(cluster, { definitions: [counter, unpaid] });
  await host.ask(account, 'deposit', { cents: 100, from: 'cash' });
  const ran = host.ask(account, 'deposit', { cents: 1, from: 'cash' });
  const fresh = codeOf(host.ask(address, 'add', { by: 1 }));
  const drained = host.engine.drain();
  assert.equal(await codeOf(host.ask(address, 'read')), 'draining');
  assert.deepEqual(await ran, { balanceCents: 101 });
  assert.equal(await fresh, 'draining');
  await drained;
  await host.engine.closed;
  assert.equal(host.engine.stats().activations, 0);
  assert.equal(host.engine.stats().mailbox, 0);
});

test('engine life - a drain that takes longer than drainMs ends all the same', async () => {
  const cluster = createCluster();
  const host = createHost(cluster, { definitions: [counter] });
  await host.ask(address, 'read');
  const { faults } = cluster.stores.journal;
  faults.hold();
  const arrived = faults.appended();
  const stuck = codeOf(host.ask(address, 'add', { by: 1 }));
  await arrived;
  const drained = host.engine.drain();
  await cluster.clock.advance(limits.drainMs);
  await drained;
  assert.equal(await stuck, 'interrupted');
});

test('engine life - a close ends at once: who waits is told, nothing more is committed', async () => {
  const cluster = createCluster();
  const host = createHost(cluster, { definitions: [counter] });
  await host.ask(address, 'read');
  const asked = codeOf(host.ask(address, 'add', { by: 1 }));
  host.engine.close();
  assert.equal(await asked, 'interrupted');
  await host.engine.closed;
  assert.equal(await codeOf(host.ask(address, 'read')), 'draining');
  await quiet(cluster);
  assert.equal(commitsOf(cluster, address).length, 0);
});
