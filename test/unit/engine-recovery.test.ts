/** Recovery: what a new activation makes of a journal, with and without snapshots, of old versions, and of what is broken. */
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
import { codeOf, commitsOf, createCluster, createHost, eventsOf, partitions, snapshotKey, subjectOf, type Cluster } from '../harness/memory-host.ts';

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

test('engine recovery - a new host finds the state the last one left', async () => {
  const cluster = createCluster();
  const first = createHost(cluster, { definitions: [counter] });
  for (let i = 0; i < 10; i++) await first.ask(address, 'add', { by: i + 1 });
  first.engine.close();
  const next = createHost(cluster, { definitions: [counter], epoch: 2 });
  assert.deepEqual(await next.ask(address, 'read'), { count: 55 });
  next.engine.close();
});

test('[G6] engine recovery - state is the same from a snapshot and its tail, from the events alone, and live, at every point', async (t) => {
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

test('engine recovery - a snapshot spares reading the events before it', async () => {
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

test('engine recovery - a snapshot of another state version, undecodable, ahead of the journal or of another journal is ignored', async () => {
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

test('engine recovery - a snapshot holds nothing of turns whose commit is still to come', async () => {
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

test('engine recovery - a snapshot that cannot be written costs nothing but time', async () => {
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

test('engine recovery - a type whose state is not JSON is never snapshotted, and says so once', async () => {
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

test('engine recovery - an event of an old version is upcast when it is read', async () => {
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
  test(`engine recovery - ${what} keeps the actor unavailable, logged, and its journal from growing`, async () => {
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

test('engine recovery - a changed byte in the past is found', async () => {
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

test('[G6] engine recovery - replay to event n gives the state after it', async () => {
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

test('engine recovery - a snapshot that stands on the last commit but on another journal is ignored', async () => {
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
