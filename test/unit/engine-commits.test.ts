/** Commits: group commit, the fence, lost and ambiguous acknowledgements, dedup. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { CodedError } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { hashOf } from '../../actors/runtime/commit.ts';
import { counter } from '../actors/counter/counter.ts';
import { codeOf, commitsOf, createCluster, createHost, domainOf, eventsOf, subjectOf } from '../harness/memory-host.ts';

const address = { org: 'acme', type: 'counter', key: 'a' };
const definitions = [counter];

test('engine commits - what arrives while an append is under way forms the next commit', async () => {
  const cluster = createCluster();
  const host = createHost(cluster, { definitions });
  await host.ask(address, 'read');
  const { faults } = cluster.stores.journal;
  faults.hold();
  const arrived = faults.appended();
  const first = host.ask(address, 'add', { by: 1 });
  await arrived;
  const rest = Array.from({ length: 5 }, () => host.ask(address, 'add', { by: 1 }));
  faults.release();
  assert.deepEqual(await first, { count: 1 });
  assert.deepEqual(await Promise.all(rest), [2, 3, 4, 5, 6].map((count) => ({ count })));
  assert.deepEqual(commitsOf(cluster, address).map((commit) => commit.ev.filter((event) => event.k === 'added').length), [1, 5]);
  host.engine.close();
});

test('engine commits - a commit holds at most commitTurnsMax turns', async () => {
  const cluster = createCluster();
  const host = createHost(cluster, { definitions });
  const count = 2 * limits.commitTurnsMax + 10;
  await Promise.all(Array.from({ length: count }, () => host.ask(address, 'add', { by: 1 })));
  const sizes = commitsOf(cluster, address).map((commit) => commit.ev.filter((event) => event.k === 'added').length);
  assert.equal(sizes.reduce((a, b) => a + b), count);
  assert.ok(Math.max(...sizes) === limits.commitTurnsMax, String(sizes));
  host.engine.close();
});

test('[G2] engine commits - nobody is answered before the append, neither the writer nor a reader or a refusal that saw its state', async () => {
  const cluster = createCluster();
  const host = createHost(cluster, { definitions });
  await host.ask(address, 'read');
  const { faults } = cluster.stores.journal;
  faults.hold();
  const arrived = faults.appended();
  const answered: string[] = [];
  const write = host.ask(address, 'add', { by: 1 }).then(() => answered.push('write'));
  await arrived;
  const read = host.ask(address, 'read').then(() => answered.push('read'));
  const refused = codeOf(host.ask(address, 'add', { by: 0 })).then(() => answered.push('refused'));
  await cluster.clock.advance(0);
  assert.deepEqual(answered, []);
  faults.release();
  await Promise.all([write, read, refused]);
  assert.deepEqual(answered, ['write', 'read', 'refused']);
  host.engine.close();
});

test('engine commits - each commit names the sequence and hash of the one before, and numbers run on', async () => {
  const cluster = createCluster();
  const host = createHost(cluster, { definitions });
  const other = { ...address, key: 'b' };
  for (let i = 0; i < 5; i++) {
    await host.ask(address, 'add', { by: 1 });
    await host.ask(other, 'add', { by: 1 });
  }
  const messages = cluster.stores.journal.messages(subjectOf(address));
  let n = 1;
  for (const [i, commit] of commitsOf(cluster, address).entries()) {
    const before = messages[i - 1];
    assert.equal(commit.p, before?.seq ?? 0);
    assert.equal(commit.h, before === undefined ? '' : hashOf(before.data));
    assert.equal(commit.n, n);
    n += commit.ev.length;
  }
  const ids = eventsOf(cluster, address).map((event) => event.id);
  assert.deepEqual([...new Set(ids)].sort(), ids);
  host.engine.close();
});

test('[G1] engine commits - a zombie cannot append once another host has activated the actor, and its callers get fenced', async () => {
  const cluster = createCluster();
  const zombie = createHost(cluster, { definitions, epoch: 1 });
  await zombie.ask(address, 'add', { by: 1 });
  const owner = createHost(cluster, { definitions, epoch: 2 });
  assert.deepEqual(await owner.ask(address, 'add', { by: 10 }), { count: 11 });
  const asked = [zombie.ask(address, 'add', { by: 100 }), zombie.ask(address, 'read')].map((ask) => codeOf(ask));
  assert.deepEqual(await Promise.all(asked), ['fenced', 'fenced']);
  assert.deepEqual(await owner.ask(address, 'add', { by: 1 }), { count: 12 });
  // And it cannot take the actor back: its epoch is over.
  assert.equal(await codeOf(zombie.ask(address, 'read')), 'not_owner');
  assert.deepEqual(domainOf(cluster, address), ['added {"by":1}', 'added {"by":10}', 'added {"by":1}']);
  zombie.engine.close();
  owner.engine.close();
});

test('[G1] engine commits - the first commits of one new actor on two hosts: one is stored, the other fenced', async () => {
  const cluster = createCluster();
  const hosts = [1, 2].map((epoch) => createHost(cluster, { definitions, epoch }));
  await Promise.all(hosts.map((host) => host.ask(address, 'read')));
  const outcomes = await Promise.allSettled(hosts.map((host, i) => host.ask(address, 'add', { by: i + 1 })));
  assert.deepEqual(outcomes.map((outcome) => outcome.status), ['fulfilled', 'rejected']);
  assert.deepEqual(domainOf(cluster, address), ['added {"by":1}']);
  for (const host of hosts) host.engine.close();
});

test('engine commits - an owner whose epoch append meets others reads on and gets there', async () => {
  const cluster = createCluster();
  const first = createHost(cluster, { definitions, epoch: 1 });
  await first.ask(address, 'add', { by: 1 });
  const second = createHost(cluster, { definitions, epoch: 2 });
  const { faults } = cluster.stores.journal;
  // The new owner's epoch record is refused as if the former owner had just written; then that write really comes.
  faults.failNext('fenced');
  const asked = second.ask(address, 'read');
  assert.deepEqual(await asked, { count: 1 });
  assert.deepEqual(commitsOf(cluster, address).map((commit) => commit.e), [1, 2]);
  first.engine.close();
  second.engine.close();
});

test('engine commits - a failed append ends the activation with its code, and the next message finds the state before it', async () => {
  const cluster = createCluster();
  const host = createHost(cluster, { definitions });
  await host.ask(address, 'add', { by: 1 });
  cluster.stores.journal.faults.failNext('journal_unavailable');
  const asked = [host.ask(address, 'add', { by: 5 }), host.ask(address, 'add', { by: 5 }), host.ask(address, 'read')].map((ask) => codeOf(ask));
  assert.deepEqual(await Promise.all(asked), ['journal_unavailable', 'journal_unavailable', 'journal_unavailable']);
  assert.deepEqual(await host.ask(address, 'read'), { count: 1 });
  host.engine.close();
});

test('engine commits - an ask repeated after an ambiguous append gets the first answer and takes effect once', async () => {
  const cluster = createCluster();
  const host = createHost(cluster, { definitions });
  await host.ask(address, 'add', { by: 1 });
  cluster.stores.journal.faults.loseNextAck();
  assert.equal(await codeOf(host.ask(address, 'add', { by: 5 }, { id: 'k1' })), 'journal_unavailable');
  assert.deepEqual(await host.ask(address, 'add', { by: 5 }, { id: 'k1' }), { count: 6 });
  assert.deepEqual(await host.ask(address, 'read'), { count: 6 });
  host.engine.close();
});

test('[G4] engine commits - a repeat gets the first answer: while the first is under way, afterwards, and on the next host', async () => {
  const cluster = createCluster();
  const host = createHost(cluster, { definitions });
  await host.ask(address, 'read');
  const { faults } = cluster.stores.journal;
  faults.hold();
  const arrived = faults.appended();
  const first = host.ask(address, 'add', { by: 5 }, { id: 'k' });
  await arrived;
  const meanwhile = host.ask(address, 'add', { by: 5 }, { id: 'k' });
  faults.release();
  assert.deepEqual(await Promise.all([first, meanwhile]), [{ count: 5 }, { count: 5 }]);
  await host.ask(address, 'add', { by: 1 });
  assert.deepEqual(await host.ask(address, 'add', { by: 5 }, { id: 'k' }), { count: 5 });
  const next = createHost(cluster, { definitions, epoch: 2 });
  assert.deepEqual(await next.ask(address, 'add', { by: 5 }, { id: 'k' }), { count: 5 });
  assert.deepEqual(domainOf(cluster, address), ['added {"by":5}', 'added {"by":1}']);
  host.engine.close();
  next.engine.close();
});

test('engine commits - a message with an id that emits nothing is remembered too', async () => {
  const cluster = createCluster();
  const host = createHost(cluster, { definitions });
  assert.deepEqual(await host.ask(address, 'read', {}, { id: 'r' }), { count: 0 });
  await host.ask(address, 'add', { by: 1 });
  assert.deepEqual(await host.ask(address, 'read', {}, { id: 'r' }), { count: 0 });
  assert.deepEqual(eventsOf(cluster, address).map((event) => event.k), ['$epoch', '$handled', 'added']);
  host.engine.close();
});

test('engine commits - a refused message is not remembered: its repeat is decided anew', async () => {
  const cluster = createCluster();
  const host = createHost(cluster, { definitions });
  assert.equal(await codeOf(host.ask(address, 'add', { by: 0 }, { id: 'k' })), 'nothing_to_add');
  assert.deepEqual(await host.ask(address, 'add', { by: 3 }, { id: 'k' }), { count: 3 });
  host.engine.close();
});

test('engine commits - an id is forgotten after dedupTtlMs and when dedupMax newer ones came', async () => {
  const cluster = createCluster();
  const host = createHost(cluster, { definitions });
  await host.ask(address, 'add', { by: 1 }, { id: 'old' });
  cluster.clock.jump(limits.dedupTtlMs - 1);
  assert.deepEqual(await host.ask(address, 'add', { by: 1 }, { id: 'old' }), { count: 1 });
  cluster.clock.jump(1);
  assert.deepEqual(await host.ask(address, 'add', { by: 1 }, { id: 'old' }), { count: 2 });
  for (let i = 0; i < limits.dedupMax - 1; i++) await host.ask(address, 'add', { by: 1 }, { id: `n${i}` });
  assert.deepEqual(await host.ask(address, 'add', { by: 1 }, { id: 'old' }), { count: 2 });
  await host.ask(address, 'add', { by: 1 }, { id: 'one more' });
  assert.deepEqual(await host.ask(address, 'add', { by: 1 }, { id: 'old' }), { count: limits.dedupMax + 3 });
  host.engine.close();
});

/** Repeats an ask as a caller does whose host or journal failed. */
const untilAnswered = async (ask: () => Promise<unknown>): Promise<unknown> => {
  for (let tries = 0; ; tries++) {
    try {
      return await ask();
    } catch (error) {
      const retried = error instanceof CodedError && ['fenced', 'journal_unavailable', 'not_owner'].includes(error.code);
      if (!retried || tries > 5) throw error;
    }
  }
};

test('engine commits - under random faults and restarts what was acknowledged is there once, in order, and what was refused is not', async (t) => {
  const seed = Date.now() | 0;
  t.diagnostic(`seed ${seed}`);
  const step = fc.oneof(
    { weight: 6, arbitrary: fc.record({ kind: fc.constant('add' as const), by: fc.integer({ min: 1, max: 9 }), repeat: fc.boolean() }) },
    { weight: 1, arbitrary: fc.record({ kind: fc.constant('refuse' as const) }) },
    { weight: 1, arbitrary: fc.record({ kind: fc.constantFrom('lost' as const, 'ambiguous' as const, 'host' as const, 'zombie' as const) }) },
  );
  await fc.assert(fc.asyncProperty(fc.array(step, { maxLength: 60 }), async (steps) => {
    const cluster = createCluster();
    let epoch = 1;
    let host = createHost(cluster, { definitions, epoch });
    let sum = 0;
    const expected: number[] = [];
    for (const [i, s] of steps.entries()) {
      if (s.kind === 'refuse') assert.equal(await codeOf(untilAnswered(() => host.ask(address, 'add', { by: 0 }))), 'nothing_to_add');
      else if (s.kind === 'lost') cluster.stores.journal.faults.failNext('journal_unavailable');
      else if (s.kind === 'ambiguous') cluster.stores.journal.faults.loseNextAck();
      else if (s.kind === 'host' || s.kind === 'zombie') {
        if (s.kind === 'host') host.engine.close();
        epoch += 1;
        host = createHost(cluster, { definitions, epoch });
      } else if (s.kind === 'add') {
        sum += s.by;
        expected.push(s.by);
        const ask = (): Promise<unknown> => untilAnswered(() => host.ask(address, 'add', { by: s.by }, { id: `m${i}` }));
        assert.deepEqual(await ask(), { count: sum });
        if (s.repeat) assert.deepEqual(await ask(), { count: sum });
      }
    }
    assert.deepEqual(domainOf(cluster, address), expected.map((by) => `added {"by":${by}}`));
    host.engine.close();
  }), { numRuns: 150, seed });
});
