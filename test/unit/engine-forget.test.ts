/** Actors that are forgotten: nothing of them stays, whoever asks begins anew, and no crash or late purge in between harms a new life. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { z } from 'zod';
import { coded } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { defineActor } from '../../actors/runtime/define.ts';
import { replay } from '../../actors/runtime/replay.ts';
import { codeOf, commitsOf, createCluster, createHost, eventsOf, partitions, reminderKey, snapshotKey, subjectOf, type Cluster } from '../harness/memory-host.ts';
import { partitionOf } from '../../contracts/subjects.ts';

const total = z.strictObject({ total: z.int() });
const tally = defineActor({
  type: 'tally', events: { added: z.object({ by: z.int() }) }, initial: () => ({ total: 0 }),
  apply: { added: (state, e) => ({ total: state.total + e.by }) },
  commands: (command) => ({
    add: command({
      input: z.strictObject({ by: z.int() }), output: total,
      handle: (turn, { by }) => {
        turn.emit('added', { by });
        return { total: turn.state.total };
      },
    }),
    read: command({ input: z.strictObject({}), output: total, handle: (turn) => ({ total: turn.state.total }) }),
    later: command({
      input: z.strictObject({}), output: total,
      handle: (turn) => {
        turn.emit('added', { by: 1 });
        turn.remind('wake', { inMs: 10 * limits.dedupTtlMs });
        return { total: turn.state.total };
      },
    }),
  }),
  reminders: { wake: () => undefined },
  idleMs: 1_000, snapshotEvery: 2, forgetAfterMs: limits.dedupTtlMs,
});

const at = (key: string) => ({ org: 'acme', type: 'tally', key });
const address = at('a');
const lastSeq = ({ stores }: Cluster, of = address): number => stores.journal.messages(subjectOf(of)).at(-1)?.seq ?? 0;
const asleep = async (cluster: Cluster): Promise<void> => { await cluster.clock.advance(1_000 + 2 * limits.sweepMs); };

/** One that has counted to six, with a snapshot, and sleeps. */
const counted = async (epoch = 1) => {
  const cluster = createCluster();
  const host = createHost(cluster, { definitions: [tally], epoch });
  for (const by of [1, 2, 3]) await host.ask(address, 'add', { by });
  await asleep(cluster);
  assert.ok(await cluster.stores.snapshots.get(snapshotKey(address)) !== undefined);
  return { cluster, host };
};

test('engine forget - nothing of a forgotten actor stays, and whoever asks begins anew', async () => {
  const { cluster, host } = await counted();
  await host.ask(at('b'), 'add', { by: 5 });
  assert.equal(await host.engine.forget(address, lastSeq(cluster)), 'forgotten');
  assert.deepEqual(cluster.stores.journal.messages(subjectOf(address)), []);
  assert.equal(await cluster.stores.snapshots.get(snapshotKey(address)), undefined);
  assert.deepEqual(await host.ask(address, 'read'), { total: 0 });
  assert.deepEqual(cluster.stores.journal.messages(subjectOf(address)), [], 'asking writes nothing');
  assert.deepEqual(await host.ask(address, 'add', { by: 7 }), { total: 7 });
  assert.equal(commitsOf(cluster, address)[0]?.n, 1);
  assert.deepEqual(replay(tally, address, cluster.stores.journal.messages(subjectOf(address))).state, { total: 7 });
  assert.deepEqual(await host.ask(at('b'), 'read'), { total: 5 });
});

test('engine forget - one that is active, has a reminder or has moved on is not forgotten, nor one of a type that is not to be', async () => {
  const { cluster, host } = await counted();
  const seq = lastSeq(cluster);
  await host.ask(address, 'read');
  assert.equal(await host.engine.forget(address, lastSeq(cluster)), 'busy');
  await asleep(cluster);
  assert.ok(lastSeq(cluster) > seq, 'an activation has left its record');
  assert.equal(await host.engine.forget(address, seq), 'moved');
  assert.deepEqual(await host.ask(address, 'read'), { total: 6 });
  await host.ask(at('r'), 'later');
  await asleep(cluster);
  assert.ok(await cluster.stores.reminders.get(reminderKey(at('r'))) !== undefined);
  assert.equal(await host.engine.forget(at('r'), lastSeq(cluster, at('r'))), 'busy');
  const lasting = defineActor({ type: 'lasting', events: {}, initial: () => ({}), apply: {}, commands: () => ({}) });
  const other = createHost(createCluster(), { definitions: [lasting] });
  await assert.rejects(other.engine.forget({ org: 'o', type: 'lasting', key: 'k' }, 1), TypeError);
});

test('engine forget - a host lost between the last commit and the purge leaves an actor that begins anew; the purge that comes late does not touch its new life', async () => {
  const { cluster, host } = await counted();
  const oldSnapshot = await cluster.stores.snapshots.get(snapshotKey(address));
  assert.ok(oldSnapshot !== undefined);
  const erase = cluster.stores.journal.erase.bind(cluster.stores.journal);
  cluster.stores.journal.erase = () => Promise.reject(coded('journal_unavailable'));
  assert.equal(await codeOf(host.engine.forget(address, lastSeq(cluster))), 'journal_unavailable');
  cluster.stores.journal.erase = erase;
  const end = lastSeq(cluster);
  assert.equal(eventsOf(cluster, address).at(-1)?.k, '$forgotten');

  const second = createHost(cluster, { definitions: [tally], epoch: 2 });
  assert.deepEqual(await second.ask(address, 'read'), { total: 0 });
  assert.equal(lastSeq(cluster), end, 'asking writes nothing');
  assert.deepEqual(await second.ask(address, 'add', { by: 10 }), { total: 10 });
  // What was there before is still there, and counts for nothing; neither does a snapshot of it that was written late.
  await cluster.stores.snapshots.put(snapshotKey(address), oldSnapshot.data);
  const third = createHost(cluster, { definitions: [tally], epoch: 3 });
  assert.deepEqual(await third.ask(address, 'read'), { total: 10 });
  assert.deepEqual(replay(tally, address, cluster.stores.journal.messages(subjectOf(address))).state, { total: 10 });

  await cluster.stores.journal.erase(subjectOf(address), end);
  const fourth = createHost(cluster, { definitions: [tally], epoch: 4 });
  assert.deepEqual(await fourth.ask(address, 'add', { by: 1 }), { total: 11 });
  assert.deepEqual(replay(tally, address, cluster.stores.journal.messages(subjectOf(address))).state, { total: 11 });

  // Looked at again, one whose end is there already is only purged.
  await cluster.stores.journal.erase(subjectOf(address), lastSeq(cluster));
  await cluster.stores.snapshots.put(snapshotKey(address), oldSnapshot.data);
  const fifth = createHost(cluster, { definitions: [tally], epoch: 5 });
  assert.deepEqual(await fifth.ask(address, 'read'), { total: 0 }, 'a snapshot without its journal is none');
});

test('engine forget - a purge that failed is done at the next look, without another commit', async () => {
  const { cluster, host } = await counted();
  const erase = cluster.stores.journal.erase.bind(cluster.stores.journal);
  cluster.stores.journal.erase = () => Promise.reject(coded('journal_unavailable'));
  assert.equal(await codeOf(host.engine.forget(address, lastSeq(cluster))), 'journal_unavailable');
  cluster.stores.journal.erase = erase;
  const { appends } = cluster.stores.journal.counts;
  assert.equal(await host.engine.forget(address, lastSeq(cluster)), 'forgotten');
  assert.equal(cluster.stores.journal.counts.appends, appends);
  assert.deepEqual(cluster.stores.journal.messages(subjectOf(address)), []);
});

test('engine forget - a host that is not the owner any more forgets nothing', async () => {
  const { cluster, host } = await counted();
  const next = createHost(cluster, { definitions: [tally], epoch: 2 });
  await next.ask(address, 'add', { by: 4 });
  assert.equal(await codeOf(host.engine.forget(address, lastSeq(cluster))), 'not_owner');
  // Overtaken between its look and its commit.
  const append = cluster.stores.journal.append.bind(cluster.stores.journal);
  const late = await counted();
  late.cluster.stores.journal.append = async (subject, data, expected) => {
    late.cluster.stores.journal.append = append;
    assert.ok(Buffer.from(data).includes('$forgotten') && expected > 0 && subject !== '');
    throw coded('fenced');
  };
  assert.equal(await late.host.engine.forget(address, lastSeq(late.cluster)), 'moved');
  assert.ok(late.cluster.stores.journal.messages(subjectOf(address)).length > 0);
  await host.engine.release(partitionOf(address, partitions));
  assert.equal(await codeOf(host.engine.forget(address, lastSeq(cluster))), 'not_owner');
  assert.deepEqual(await next.ask(address, 'read'), { total: 10 });
});

test('engine forget - who asks while it is done is told to come again, and begins anew', async () => {
  const { cluster, host } = await counted();
  const gate = Promise.withResolvers<void>();
  const reached = Promise.withResolvers<void>();
  const erase = cluster.stores.journal.erase.bind(cluster.stores.journal);
  cluster.stores.journal.erase = async (subject, upTo) => {
    reached.resolve();
    await gate.promise;
    return erase(subject, upTo);
  };
  const forgotten = host.engine.forget(address, lastSeq(cluster));
  await reached.promise;
  assert.equal(await codeOf(host.ask(address, 'add', { by: 1 })), 'no_owner');
  gate.resolve();
  assert.equal(await forgotten, 'forgotten');
  assert.deepEqual(await host.ask(address, 'add', { by: 1 }), { total: 1 });
});

test('engine forget - a type that would be forgotten before its message ids, or with a feed, is refused when it is defined', () => {
  const parts = { type: 'bad', events: { a: z.object({}) }, initial: () => ({}), apply: { a: (state: object) => state }, commands: () => ({}) };
  assert.throws(() => defineActor({ ...parts, forgetAfterMs: limits.dedupTtlMs - 1 }), TypeError);
  assert.throws(() => defineActor({ ...parts, forgetAfterMs: Number.NaN }), TypeError);
  assert.throws(() => defineActor({ ...parts, feed: { kinds: ['a'], running: () => false }, forgetAfterMs: limits.dedupTtlMs }), TypeError);
});
