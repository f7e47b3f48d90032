/** Schedules that a reviewer drew up against the engine: each once broke a guarantee, or would if one line were missing. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { z } from 'zod';
import { coded } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { defineActor, type EffectContext } from '../../actors/runtime/define.ts';
import { codeOf, createCluster, createHost, domainOf, eventsOf, reminderKey, snapshotKey, type Cluster } from '../harness/memory-host.ts';

const address = { org: 'acme', type: 'worker', key: 'w' };

/** Effects that wait for the test. */
const createWork = () => {
  const runs: { readonly context: EffectContext<unknown>; finish(text: string): void }[] = [];
  const definition = defineActor({
    type: 'worker',
    events: { noted: z.object({ text: z.string() }), twice: z.object({ a: z.string(), b: z.string() }) },
    initial: () => ({ notes: 0 }),
    apply: { noted: (state) => ({ notes: state.notes + 1 }), twice: (state) => ({ notes: state.notes + 2 }) },
    effects: (effect) => ({
      work: effect({
        input: z.object({}), output: z.object({ text: z.string() }), once: 'at-most',
        run: (context) => new Promise((resolve) => { runs.push({ context, finish: (text) => { resolve({ text }); } }); }),
        done: (turn, outcome) => {
          if (outcome.ok) turn.emit('twice', { a: outcome.output.text, b: outcome.output.text });
          else turn.emit('noted', { text: outcome.code });
        },
      }),
    }),
    commands: (command) => ({
      start: command({ input: z.object({}), output: z.object({}), handle: (turn) => { turn.effect('work', {}); return {}; } }),
      note: command({ input: z.object({ text: z.string() }), output: z.object({}), handle: (turn, { text }) => { turn.emit('noted', { text }); return {}; } }),
      remind: command({ input: z.object({ inMs: z.int() }), output: z.object({}), handle: (turn, { inMs }) => { turn.remind('later', { inMs }); return {}; } }),
      forget: command({ input: z.object({}), output: z.object({}), handle: (turn) => { turn.forget('later'); return {}; } }),
      read: command({ input: z.object({}), output: z.object({ notes: z.int() }), handle: (turn) => ({ notes: turn.state.notes }) }),
    }),
    reminders: { later: (turn) => { turn.emit('noted', { text: 'reminded' }); } },
  });
  return { runs, definition };
};

const settle = async (cluster: Cluster): Promise<void> => {
  for (let i = 0; i < 6; i++) await cluster.clock.advance(0);
};

test('engine schedules - an effect whose commit was acknowledged while the lease was over, and renewed before anybody looked, runs [G1]', async () => {
  const cluster = createCluster();
  const { runs, definition } = createWork();
  const host = createHost(cluster, { definitions: [definition] });
  host.engine.leaseUntil(cluster.clock.monotonic() + 1_000);
  const { faults } = cluster.stores.journal;
  faults.hold();
  const arrived = faults.appended();
  const started = host.ask(address, 'start').then(() => 'answered', () => 'refused');
  await arrived;
  // The process stood still past its lease; the acknowledgement is read before the timer runs, then the answer to the renewal.
  cluster.clock.jump(1_100);
  faults.release();
  await started;
  host.engine.leaseUntil(cluster.clock.monotonic() + 1_000);
  await settle(cluster);
  await host.ask(address, 'read');
  await settle(cluster);
  // It runs, or is reported: it is never forgotten.
  const reported = domainOf(cluster, address).length;
  assert.equal(runs.length + reported, 1);
  host.engine.close();
});

test('engine schedules - a state that JSON cannot hold only later on is not snapshotted either, and nothing stops', async () => {
  const cluster = createCluster();
  const definition = defineActor({
    type: 'worker',
    events: { grew: z.object({ size: z.int() }) },
    initial: (): { size: number; extra: unknown } => ({ size: 0, extra: undefined }),
    // eslint-disable-next-line no-undef
    apply: { grew: (state, e) => ({ size: state.size + e.size, extra: state.size < 3 ? undefined : state.size < 6 ? new Map([['size', state.size]]) : BigInt(state.size) }) },
    commands: (command) => ({
      grow: command({ input: z.object({}), output: z.object({}), handle: (turn) => { turn.emit('grew', { size: 1 }); return {}; } }),
      kind: command({ input: z.object({}), output: z.string(), handle: (turn) => (turn.state.extra instanceof Map ? 'map' : typeof turn.state.extra) }),
    }),
    snapshotEvery: 1,
  });
  const host = createHost(cluster, { definitions: [definition] });
  for (let i = 0; i < 5; i++) await host.ask(address, 'grow');
  await settle(cluster);
  assert.equal(await host.ask(address, 'kind'), 'map');
  host.engine.close();
  const next = createHost(cluster, { definitions: [definition], epoch: 2 });
  assert.equal(await next.ask(address, 'kind'), 'map');
  for (let i = 0; i < 4; i++) await next.ask(address, 'grow');
  assert.equal(await next.ask(address, 'kind'), 'bigint');
  next.engine.close();
});

test('engine schedules - a full mailbox does not refuse the actor\'s own effect', async () => {
  const cluster = createCluster();
  const { runs, definition } = createWork();
  const host = createHost(cluster, { definitions: [definition] });
  await host.ask(address, 'start');
  await settle(cluster);
  const run = runs[0];
  assert.ok(run !== undefined);
  cluster.stores.journal.faults.hold();
  const flood = Array.from({ length: limits.mailboxMax }, () => host.ask(address, 'note', { text: 'x' }));
  assert.equal(await codeOf(host.ask(address, 'note', { text: 'one too many' })), 'mailbox_full');
  const own = run.context.call('note', { text: 'own' });
  cluster.stores.journal.faults.release();
  await Promise.all([...flood, own]);
  assert.equal((await host.ask(address, 'read') as { notes: number }).notes, limits.mailboxMax + 1);
  host.engine.close();
});

test('engine schedules - an outcome whose turn does not fit into a commit is told as a failure', async () => {
  const cluster = createCluster();
  const { runs, definition } = createWork();
  const host = createHost(cluster, { definitions: [definition] });
  await host.ask(address, 'start');
  await settle(cluster);
  runs[0]?.finish('x'.repeat(limits.turnEventsMaxBytes));
  await settle(cluster);
  assert.deepEqual(domainOf(cluster, address), ['noted {"text":"commit_too_large"}']);
  assert.equal(eventsOf(cluster, address).filter((event) => event.k === '$effect.ended').length, 1);
  host.engine.close();
});

test('engine schedules - a reminder set after a delete of the index whose answer was lost survives a crash', async () => {
  const cluster = createCluster();
  const { definition } = createWork();
  const { reminders } = cluster.stores;
  let lose = false;
  const host = createHost({ ...cluster, stores: { ...cluster.stores, reminders: { ...reminders, delete: async (subject) => {
    await reminders.delete(subject);
    if (lose) throw coded('journal_unavailable');
  } } } }, { definitions: [definition] });
  await host.ask(address, 'remind', { inMs: 10_000 });
  await settle(cluster);
  lose = true;
  await host.ask(address, 'forget');
  await settle(cluster);
  // Stored, acknowledged and lost with the host before anything else is written.
  const arrived = cluster.stores.journal.faults.appended();
  const asked = host.ask(address, 'remind', { inMs: 20_000 });
  await arrived;
  host.engine.close();
  await asked.catch(() => undefined);
  assert.ok(await reminders.get(reminderKey(address)) !== undefined, 'the index knows of the reminder before the commit');
  const next = createHost(cluster, { definitions: [definition], epoch: 2 });
  await cluster.clock.advance(30_000);
  await settle(cluster);
  assert.deepEqual(domainOf(cluster, address), ['noted {"text":"reminded"}']);
  next.engine.close();
});

test('engine schedules - a reminder set before one whose write of the index may not have arrived survives a crash', async () => {
  const cluster = createCluster();
  const { definition } = createWork();
  const { reminders } = cluster.stores;
  let lose = false;
  const host = createHost({ ...cluster, stores: { ...cluster.stores, reminders: { ...reminders, put: async (subject, data) => {
    await reminders.put(subject, data);
    if (lose) throw coded('journal_unavailable');
  } } } }, { definitions: [definition] });
  await host.ask(address, 'remind', { inMs: 10_000 });
  await settle(cluster);
  lose = true;
  // Later: the index is written after the commit, and the answer is lost.
  await host.ask(address, 'remind', { inMs: 1_000_000 });
  await settle(cluster);
  lose = false;
  const arrived = cluster.stores.journal.faults.appended();
  const asked = host.ask(address, 'remind', { inMs: 20_000 });
  await arrived;
  host.engine.close();
  await asked.catch(() => undefined);
  const next = createHost(cluster, { definitions: [definition], epoch: 2 });
  await cluster.clock.advance(30_000);
  await settle(cluster);
  assert.deepEqual(domainOf(cluster, address), ['noted {"text":"reminded"}']);
  next.engine.close();
});

test('engine schedules - an id that answered one command is no answer to another', async () => {
  const cluster = createCluster();
  const { definition } = createWork();
  const host = createHost(cluster, { definitions: [definition] });
  await host.ask(address, 'note', { text: 'a' }, { id: 'k' });
  assert.equal(await codeOf(host.ask(address, 'read', {}, { id: 'k' })), 'conflict');
  host.engine.close();
});

test('engine schedules - a journal that is gone although there is a snapshot of it is not taken for a new actor', async () => {
  const cluster = createCluster();
  const { definition } = createWork();
  const host = createHost(cluster, { definitions: [definition] });
  for (let i = 0; i < limits.snapshotEvery + 1; i++) await host.ask(address, 'note', { text: 'x' });
  await host.engine.drain();
  assert.ok(await cluster.stores.snapshots.get(snapshotKey(address)) !== undefined);
  const empty = createCluster();
  const next = createHost({ ...empty, stores: { ...empty.stores, snapshots: cluster.stores.snapshots } }, { definitions: [definition], epoch: 2 });
  assert.equal(await codeOf(next.ask(address, 'read')), 'journal_unreadable');
  next.engine.close();
});
