/** An activation's life: recovery, snapshots, old versions, broken journals, idling, hand-over, leases, drain. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { z } from 'zod';
import { coded } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { partitionOf } from '../../contracts/subjects.ts';
import { decodeCommit, encodeCommit } from '../../actors/runtime/commit.ts';
import { defineActor } from '../../actors/runtime/define.ts';
import { replay } from '../../actors/runtime/replay.ts';
import { counter } from '../actors/counter/counter.ts';
import { defineBankAccount } from '../actors/bank-account/bank-account.ts';
import { codeOf, commitsOf, createCluster, createHost, domainOf, eventsOf, partitions, snapshotKey, subjectOf, type Cluster } from '../harness/memory-host.ts';

const address = { org: 'acme', type: 'counter', key: 'a' };
const account = { org: 'acme', type: 'bank-account', key: 'a' };
const unpaid = defineBankAccount({ pay: () => Promise.reject(coded('upstream_unavailable')) });

/** A list whose every feature shows in its state. */
const defineList = (options: { snapshotEvery: number; stateVersion?: number; state?: () => unknown }) =>
  defineActor({
    type: 'list',
    events: { put: z.object({ text: z.string(), more: z.string().optional() }) },
    initial: () => ({ items: [] as readonly string[] }),
    apply: { put: (state, e, meta) => ({ items: [...state.items.slice(-20), `${meta.number} ${meta.at} ${meta.id} ${e.text.slice(0, 8)} ${e.more ?? ''}`] }) },
    commands: (command) => ({
      put: command({
        input: z.strictObject({ text: z.string(), remind: z.int().optional() }), output: z.object({ items: z.int() }),
        handle: (turn, { text, remind }) => {
          turn.emit('put', text.length % 2 === 0 ? { text } : { text, more: undefined });
          if (remind !== undefined) turn.remind('later', { inMs: remind });
          return { items: turn.state.items.length };
        },
      }),
      all: command({ input: z.strictObject({}), output: z.array(z.string()), handle: (turn) => [...turn.state.items] }),
    }),
    reminders: { later: () => undefined },
    ...options,
  });
const list = { org: 'acme', type: 'list', key: 'l' };

const quiet = async (cluster: Cluster): Promise<void> => {
  for (let i = 0; i < 6; i++) await cluster.clock.advance(0);
};

test('engine life - a new host finds the state the last one left', async () => {
  const cluster = createCluster();
  const first = createHost(cluster, { definitions: [counter] });
  for (let i = 0; i < 10; i++) await first.ask(address, 'add', { by: i + 1 });
  first.engine.close();
  const next = createHost(cluster, { definitions: [counter], epoch: 2 });
  assert.deepEqual(await next.ask(address, 'read'), { count: 55 });
  next.engine.close();
});

test('engine life - state is the same from a snapshot and its tail, from the events alone, and live, at every point', async (t) => {
  const seed = Date.now() | 0;
  t.diagnostic(`seed ${seed}`);
  const turn = fc.record({ text: fc.string({ maxLength: 6 }), remind: fc.option(fc.integer({ min: 1, max: 1e9 }), { nil: undefined }), id: fc.boolean(), wait: fc.boolean(), ms: fc.integer({ min: 0, max: 5 }) });
  await fc.assert(fc.asyncProperty(fc.array(turn, { minLength: 1, maxLength: 30 }), fc.integer({ min: 1, max: 9 }), async (turns, snapshotEvery) => {
    const cluster = createCluster();
    const definition = defineList({ snapshotEvery });
    const host = createHost(cluster, { definitions: [definition] });
    let pending: Promise<unknown>[] = [];
    for (const [i, { text, remind, id, wait, ms }] of turns.entries()) {
      pending.push(host.ask(list, 'put', { text, ...(remind === undefined ? {} : { remind }) }, id ? { id: `m${i}` } : {}));
      if (wait) {
        await Promise.all(pending);
        pending = [];
      }
      cluster.clock.jump(ms);
    }
    await Promise.all(pending);
    const live = await host.ask(list, 'all');
    host.engine.close();
    const messages = cluster.stores.journal.messages(subjectOf(list));
    const whole = replay(definition, list, messages);
    assert.deepEqual(JSON.stringify(whole.state), JSON.stringify({ items: live }));
    const next = createHost(cluster, { definitions: [definition], epoch: 2 });
    assert.deepEqual(await next.ask(list, 'all'), live);
    next.engine.close();
    // The snapshot that was used says the same as the events up to it.
    const snapshot = await cluster.stores.snapshots.get(snapshotKey(list));
    if (snapshot !== undefined) {
      const saved = JSON.parse(Buffer.from(snapshot.data).toString('utf8'));
      const { state, reminders, handled, seq } = z.looseObject({ state: z.unknown(), reminders: z.unknown(), handled: z.unknown(), seq: z.int() }).parse(saved);
      const core = replay(definition, list, messages.filter((message) => message.seq <= seq));
      assert.deepEqual(
        JSON.stringify([state, reminders, handled]),
        JSON.stringify([core.state, [...(core.reminders ?? [])], [...(core.handled ?? [])]]),
      );
    }
  }), { numRuns: 60, seed });
});

test('engine life - a snapshot spares reading the events before it', async () => {
  const cluster = createCluster();
  const definitions = [defineList({ snapshotEvery: 10 })];
  const host = createHost(cluster, { definitions });
  for (let i = 0; i < 24; i++) await host.ask(list, 'put', { text: `${i}` });
  host.engine.close();
  // What the snapshot covers is not looked at again: a broken message there is not noticed.
  cluster.stores.journal.corrupt(subjectOf(list), 3, Buffer.from('{}'));
  const next = createHost(cluster, { definitions, epoch: 2 });
  assert.equal(z.array(z.string()).parse(await next.ask(list, 'all')).length, 21);
  next.engine.close();
});

test('engine life - a snapshot of another state version, undecodable, ahead of the journal or of another journal is ignored', async () => {
  const damages: Record<string, (snapshot: Record<string, unknown>) => unknown> = {
    version: (s) => ({ ...s, stateVersion: 9 }),
    undecodable: () => 'nonsense',
    ahead: (s) => ({ ...s, seq: 99_999 }),
    other: (s) => ({ ...s, hash: 'f'.repeat(64) }),
  };
  for (const [name, damage] of Object.entries(damages)) {
    const cluster = createCluster();
    const definitions = [defineList({ snapshotEvery: 10 })];
    const host = createHost(cluster, { definitions });
    for (let i = 0; i < 24; i++) await host.ask(list, 'put', { text: `${i}` });
    const live = await host.ask(list, 'all');
    host.engine.close();
    const stored = await cluster.stores.snapshots.get(snapshotKey(list));
    assert.ok(stored !== undefined);
    const wrong = { ...JSON.parse(Buffer.from(stored.data).toString('utf8')), state: { items: ['wrong'] } };
    await cluster.stores.snapshots.put(snapshotKey(list), Buffer.from(JSON.stringify(damage(wrong))));
    const next = createHost(cluster, { definitions, epoch: 2 });
    assert.deepEqual(await next.ask(list, 'all'), live, name);
    next.engine.close();
  }
});

test('engine life - a snapshot holds nothing of turns whose commit is still to come', async () => {
  const cluster = createCluster();
  const definitions = [defineList({ snapshotEvery: 1 })];
  const host = createHost(cluster, { definitions });
  await host.ask(list, 'all');
  const { faults } = cluster.stores.journal;
  const large = 'x'.repeat(Math.floor(limits.commitMaxBytes * 0.6));
  faults.hold();
  const first = faults.appended();
  const answers = [host.ask(list, 'put', { text: 'a' })];
  await first;
  answers.push(host.ask(list, 'put', { text: large }));
  const lost = codeOf(host.ask(list, 'put', { text: `${large}lost` }));
  // The second commit is under way while the third already has its turn; the third never gets there.
  const second = faults.appended();
  faults.release();
  faults.hold();
  await second;
  faults.failNext('journal_unavailable');
  faults.release();
  await Promise.all(answers);
  assert.equal(await lost, 'journal_unavailable');
  assert.equal(z.array(z.string()).parse(await host.ask(list, 'all')).length, 2);
  host.engine.close();
});

test('engine life - a snapshot that cannot be written costs nothing but time', async () => {
  const cluster = createCluster();
  const definitions = [defineList({ snapshotEvery: 5 })];
  const host = createHost(cluster, { definitions });
  cluster.stores.snapshots.down(true);
  await host.ask(list, 'put', { text: 'a' }).catch(() => undefined);
  cluster.stores.snapshots.down(false);
  await host.ask(list, 'put', { text: 'a' });
  cluster.stores.snapshots.down(true);
  for (let i = 0; i < 12; i++) await host.ask(list, 'put', { text: `${i}` });
  assert.ok(host.log.lines.some((line) => line.text === 'snapshot not written'));
  host.engine.close();
});

test('engine life - a type whose state is not JSON is never snapshotted, and says so once', async () => {
  const cluster = createCluster();
  const mapped = defineActor({
    type: 'mapped', events: { put: z.object({ key: z.string() }) }, initial: () => ({ seen: new Map<string, number>() }),
    apply: { put: (state, e) => ({ seen: new Map(state.seen).set(e.key, 1) }) },
    commands: (command) => ({
      put: command({
        input: z.strictObject({ key: z.string() }), output: z.object({ size: z.int() }),
        handle: (turn, { key }) => {
          turn.emit('put', { key });
          return { size: turn.state.seen.size };
        },
      }),
    }),
    snapshotEvery: 2,
  });
  const target = { org: 'o', type: 'mapped', key: 'k' };
  const host = createHost(cluster, { definitions: [mapped] });
  for (let i = 0; i < 8; i++) await host.ask(target, 'put', { key: `${i}` });
  host.engine.close();
  assert.equal(await cluster.stores.snapshots.get(snapshotKey(target)), undefined);
  assert.equal(host.log.lines.filter((line) => line.text.startsWith('state is not JSON')).length, 1);
  const next = createHost(cluster, { definitions: [mapped], epoch: 2 });
  assert.deepEqual(await next.ask(target, 'put', { key: 'more' }), { size: 9 });
  next.engine.close();
});

/** Rewrites the last commit of an actor and keeps the chain's ends as they are. */
const rewriteLast = (cluster: Cluster, subject: string, change: (commit: ReturnType<typeof decodeCommit>) => ReturnType<typeof decodeCommit>): void => {
  const messages = cluster.stores.journal.messages(subject);
  const last = messages.at(-1);
  assert.ok(last !== undefined);
  cluster.stores.journal.corrupt(subject, messages.length - 1, encodeCommit(change(decodeCommit(last.data))));
};

test('engine life - an event of an old version is upcast when it is read', async () => {
  const cluster = createCluster();
  const host = createHost(cluster, { definitions: [unpaid] });
  await host.ask(account, 'deposit', { cents: 100, from: 'cash' });
  host.engine.close();
  assert.equal(eventsOf(cluster, account).find((event) => event.k === 'deposited')?.v, 2);
  rewriteLast(cluster, subjectOf(account), (commit) => ({
    ...commit, ev: commit.ev.map((event) => (event.k === 'deposited' ? { id: event.id, k: event.k, d: { cents: 70 } } : event)),
  }));
  const next = createHost(cluster, { definitions: [unpaid], epoch: 2 });
  assert.deepEqual(await next.ask(account, 'balance'), { balanceCents: 70, statements: 0 });
  next.engine.close();
});

const breaks: Record<string, (commit: ReturnType<typeof decodeCommit>) => ReturnType<typeof decodeCommit>> = {
  'an unknown kind': (commit) => ({ ...commit, ev: commit.ev.map((event) => ({ ...event, k: 'stolen' })) }),
  'a version newer than the code': (commit) => ({ ...commit, ev: commit.ev.map((event) => ({ ...event, v: 7 })) }),
  'a payload of another shape': (commit) => ({ ...commit, ev: commit.ev.map((event) => ({ ...event, d: { cents: 'many', from: 1 } })) }),
  'a hash that is not that of the commit before': (commit) => ({ ...commit, h: 'a'.repeat(64) }),
  'a sequence that is not that of the commit before': (commit) => ({ ...commit, p: commit.p - 1 }),
  'a hole in the numbers': (commit) => ({ ...commit, n: commit.n + 1 }),
  'a hole in the feed numbers': (commit) => ({ ...commit, f: commit.f + 1 }),
};
for (const [what, damage] of Object.entries(breaks)) {
  test(`engine life - ${what} keeps the actor unavailable, logged, and its journal from growing`, async () => {
    const cluster = createCluster();
    const host = createHost(cluster, { definitions: [unpaid] });
    await host.ask({ ...account, key: 'b' }, 'deposit', { cents: 1, from: 'cash' });
    await host.ask(account, 'deposit', { cents: 100, from: 'cash' });
    await host.ask(account, 'deposit', { cents: 100, from: 'cash' });
    host.engine.close();
    rewriteLast(cluster, subjectOf(account), damage);
    const next = createHost(cluster, { definitions: [unpaid], epoch: 2 });
    assert.equal(await codeOf(next.ask(account, 'balance')), 'journal_unreadable');
    const { lasts } = cluster.stores.journal.counts;
    assert.equal(await codeOf(next.ask(account, 'balance')), 'journal_unreadable');
    assert.equal(cluster.stores.journal.counts.lasts, lasts);
    assert.ok(next.log.lines.some((line) => line.level === 'error' && line.text.startsWith('actor cannot be activated')));
    const length = commitsOf(cluster, account).length;
    for (let i = 0; i < 5; i++) {
      await cluster.clock.advance(limits.restartMaxMs);
      assert.equal(await codeOf(next.ask(account, 'balance')), 'journal_unreadable');
    }
    assert.ok(commitsOf(cluster, account).length <= length);
    assert.deepEqual(await next.ask({ ...account, key: 'b' }, 'balance'), { balanceCents: 1, statements: 0 });
    next.engine.close();
  });
}

test('engine life - a changed byte in the past is found', async () => {
  const cluster = createCluster();
  const host = createHost(cluster, { definitions: [counter] });
  for (let i = 0; i < 4; i++) await host.ask(address, 'add', { by: 1 });
  host.engine.close();
  const second = cluster.stores.journal.messages(subjectOf(address))[1];
  assert.ok(second !== undefined);
  cluster.stores.journal.corrupt(subjectOf(address), 1, Buffer.from(Buffer.from(second.data).toString('utf8').replace('"by":1', '"by":9')));
  const next = createHost(cluster, { definitions: [counter], epoch: 2 });
  assert.equal(await codeOf(next.ask(address, 'read')), 'journal_unreadable');
  next.engine.close();
});

test('engine life - replay to event n gives the state after it', async () => {
  const cluster = createCluster();
  const host = createHost(cluster, { definitions: [counter] });
  await host.ask(address, 'read');
  await Promise.all(Array.from({ length: 6 }, () => host.ask(address, 'add', { by: 1 })));
  host.engine.close();
  const messages = cluster.stores.journal.messages(subjectOf(address));
  // Number 1 is the epoch record.
  for (let n = 1; n <= 7; n++) assert.deepEqual(replay(counter, address, messages, n).state, { count: n - 1 });
  assert.throws(() => replay(counter, address, messages, 8), { code: 'sequence_retired' });
});

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

test('engine life - a release commits and answers the turns that ran, refuses what waits, and ends when nothing can be committed', async () => {
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

test('engine life - a snapshot that stands on the last commit but on another journal is ignored', async () => {
  const cluster = createCluster();
  const host = createHost(cluster, { definitions: [counter] });
  for (let i = 0; i < limits.snapshotIdleEvents; i++) await host.ask(address, 'add', { by: 1 });
  await host.engine.release(partitionOf(address, partitions));
  host.engine.close();
  const stored = await cluster.stores.snapshots.get(snapshotKey(address));
  assert.ok(stored !== undefined);
  const snapshot = z.looseObject({ seq: z.int() }).parse(JSON.parse(Buffer.from(stored.data).toString('utf8')));
  assert.equal(snapshot.seq, cluster.stores.journal.messages(subjectOf(address)).at(-1)?.seq);
  await cluster.stores.snapshots.put(snapshotKey(address), Buffer.from(JSON.stringify({ ...snapshot, hash: 'f'.repeat(64), state: { count: 999 } })));
  const owner = createHost(cluster, { definitions: [counter], epoch: 2 });
  assert.deepEqual(await owner.ask(address, 'read'), { count: limits.snapshotIdleEvents });
  owner.engine.close();
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

test('engine life - a drain answers what runs, refuses what comes, leaves nothing active, and closes', async () => {
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
