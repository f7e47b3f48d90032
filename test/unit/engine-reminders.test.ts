/** Reminders: durable, once, never lost, whatever was down when they were due. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { z } from 'zod';
import { refuse } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { defineActor } from '../../actors/runtime/define.ts';
import { codeOf, createCluster, createHost, domainOf, eventsOf, reminderKey, type Cluster } from '../harness/memory-host.ts';

const address = { org: 'acme', type: 'clock', key: 'c' };
const monthMs = 30 * 86_400_000;

const clockActor = defineActor({
  type: 'clock',
  events: { rang: z.object({ name: z.string(), at: z.number() }), set: z.object({ name: z.string() }) },
  initial: () => ({ rings: 0 }),
  apply: { rang: (state) => ({ rings: state.rings + 1 }), set: (state) => state },
  commands: (command) => ({
    remind: command({
      input: z.strictObject({ name: z.string(), inMs: z.number() }), output: z.object({}),
      handle: (turn, { name, inMs }) => {
        turn.remind(name, { inMs });
        return {};
      },
    }),
    remindMany: command({
      input: z.strictObject({ bug: z.boolean() }), output: z.object({}),
      handle: (turn, { bug }) => {
        turn.remind('tea', { inMs: 1_000 });
        if (bug) throw refuse('changed_my_mind');
        return {};
      },
    }),
    forget: command({
      input: z.strictObject({ name: z.string() }), output: z.object({}),
      handle: (turn, { name }) => {
        turn.forget(name);
        return {};
      },
    }),
    timer: command({
      input: z.strictObject({ afterMs: z.number(), name: z.string() }), output: z.object({}),
      handle: (turn, { afterMs, name }) => {
        turn.timer('ring', afterMs, { name });
        return {};
      },
    }),
    remindWithTimer: command({
      input: z.strictObject({}), output: z.object({}),
      handle: (turn) => {
        turn.emit('set', { name: 'x' });
        turn.timer('ring', 5_000, { name: 'x' });
        return {};
      },
    }),
    ring: command({
      input: z.strictObject({ name: z.string() }), output: z.object({}), access: 'self',
      handle: (turn, { name }) => {
        turn.emit('rang', { name, at: turn.now });
        return {};
      },
    }),
    rings: command({ input: z.strictObject({}), output: z.object({ rings: z.int() }), handle: (turn) => ({ rings: turn.state.rings }) }),
  }),
  reminders: {
    tea: (turn) => { turn.emit('rang', { name: 'tea', at: turn.now }); },
    bread: (turn) => { turn.emit('rang', { name: 'bread', at: turn.now }); },
    again: (turn) => {
      turn.emit('rang', { name: 'again', at: turn.now });
      turn.remind('again', { inMs: 60_000 });
    },
    poison: () => { throw new RangeError('bug'); },
    declining: () => { throw refuse('not_now'); },
  },
  idleMs: 10_000,
});
const definitions = [clockActor];

const rang = (cluster: Cluster): string[] => domainOf(cluster, address).filter((event) => event.startsWith('rang')).map((event) => /"name":"(\w+)"/.exec(event)?.[1] ?? '');
const indexed = async (cluster: Cluster): Promise<unknown> => {
  const entry = await cluster.stores.reminders.get(reminderKey(address));
  return entry === undefined ? undefined : JSON.parse(Buffer.from(entry.data).toString('utf8'));
};
const quiet = async (cluster: Cluster): Promise<void> => {
  for (let i = 0; i < 6; i++) await cluster.clock.advance(0);
};

test('engine reminders - a reminder fires at its time, once, and its index entry goes', async () => {
  const cluster = createCluster();
  const host = createHost(cluster, { definitions });
  await host.ask(address, 'remind', { name: 'tea', inMs: 60_000 });
  assert.deepEqual(await indexed(cluster), { at: cluster.clock.now() + 60_000 });
  await cluster.clock.advance(59_999);
  assert.deepEqual(rang(cluster), []);
  await cluster.clock.advance(1);
  await quiet(cluster);
  assert.deepEqual(rang(cluster), ['tea']);
  assert.equal(await indexed(cluster), undefined);
  await cluster.clock.advance(120_000);
  assert.deepEqual(rang(cluster), ['tea']);
  host.engine.close();
});

test('engine reminders - the handler\'s events and the reminder\'s going are one commit', async () => {
  const cluster = createCluster();
  const host = createHost(cluster, { definitions });
  await host.ask(address, 'remind', { name: 'tea', inMs: 1_000 });
  await cluster.clock.advance(1_000);
  await quiet(cluster);
  assert.deepEqual(eventsOf(cluster, address).slice(-2).map((event) => event.k), ['$reminder.gone', 'rang']);
  host.engine.close();
});

test('engine reminders - one that is due while every host is down for a month fires as soon as one is up', async () => {
  const cluster = createCluster();
  const first = createHost(cluster, { definitions });
  await first.ask(address, 'remind', { name: 'tea', inMs: 86_400_000 });
  await first.ask(address, 'remind', { name: 'again', inMs: 1_000 });
  first.engine.close();
  cluster.clock.jump(monthMs);
  const next = createHost(cluster, { definitions, epoch: 2 });
  await quiet(cluster);
  assert.deepEqual(rang(cluster), ['again', 'tea']);
  // A repeating reminder does not make up for the month: it goes on from now.
  assert.deepEqual(await indexed(cluster), { at: cluster.clock.now() + 60_000 });
  await cluster.clock.advance(60_000);
  await quiet(cluster);
  assert.deepEqual(rang(cluster), ['again', 'tea', 'again']);
  next.engine.close();
});

test('engine reminders - a passivated actor is woken for its reminder, months away', async () => {
  const cluster = createCluster();
  const host = createHost(cluster, { definitions });
  await host.ask(address, 'remind', { name: 'tea', inMs: 3 * monthMs });
  await cluster.clock.advance(20_000);
  assert.equal(host.engine.stats().activations, 0);
  cluster.clock.jump(3 * monthMs);
  await cluster.clock.advance(limits.alarmMaxWaitMs);
  await quiet(cluster);
  assert.deepEqual(rang(cluster), ['tea']);
  host.engine.close();
});

test('engine reminders - the index entry is written before the commit that needs it, and a commit that fails leaves only a needless wake', async () => {
  const cluster = createCluster();
  const host = createHost(cluster, { definitions });
  await host.ask(address, 'rings');
  cluster.stores.journal.faults.failNext('journal_unavailable');
  assert.equal(await codeOf(host.ask(address, 'remind', { name: 'tea', inMs: 1_000 })), 'journal_unavailable');
  assert.notEqual(await indexed(cluster), undefined);
  await cluster.clock.advance(1_000);
  await quiet(cluster);
  assert.deepEqual(rang(cluster), []);
  assert.equal(await indexed(cluster), undefined);
  host.engine.close();
});

test('engine reminders - without the index nothing is committed that would need it', async () => {
  const cluster = createCluster();
  const host = createHost(cluster, { definitions });
  await host.ask(address, 'rings');
  cluster.stores.reminders.down(true);
  assert.equal(await codeOf(host.ask(address, 'remind', { name: 'tea', inMs: 1_000 })), 'journal_unavailable');
  assert.deepEqual(eventsOf(cluster, address), []);
  cluster.stores.reminders.down(false);
  await host.ask(address, 'remind', { name: 'tea', inMs: 1_000 });
  await cluster.clock.advance(1_000);
  await quiet(cluster);
  assert.deepEqual(rang(cluster), ['tea']);
  host.engine.close();
});

test('engine reminders - the index moves to the next reminder after one fired, also when it cannot be written', async () => {
  for (const down of [false, true]) {
    const cluster = createCluster();
    const host = createHost(cluster, { definitions });
    await host.ask(address, 'remind', { name: 'tea', inMs: 1_000 });
    await host.ask(address, 'remind', { name: 'bread', inMs: 5_000 });
    if (down) cluster.stores.reminders.down(true);
    await cluster.clock.advance(1_000);
    await quiet(cluster);
    assert.deepEqual(rang(cluster), ['tea']);
    await cluster.clock.advance(4_000);
    await quiet(cluster);
    assert.deepEqual(rang(cluster), ['tea', 'bread']);
    host.engine.close();
  }
});

test('engine reminders - setting one again replaces it, forgetting it leaves nothing to wake for', async () => {
  const cluster = createCluster();
  const host = createHost(cluster, { definitions });
  await host.ask(address, 'remind', { name: 'tea', inMs: 1_000 });
  await host.ask(address, 'remind', { name: 'tea', inMs: 3_000 });
  await host.ask(address, 'remind', { name: 'bread', inMs: 2_000 });
  await host.ask(address, 'forget', { name: 'bread' });
  await cluster.clock.advance(2_999);
  await quiet(cluster);
  assert.deepEqual(rang(cluster), []);
  await cluster.clock.advance(1);
  await quiet(cluster);
  assert.deepEqual(rang(cluster), ['tea']);
  assert.equal(await indexed(cluster), undefined);
  host.engine.close();
});

test('engine reminders - a wake that fails is tried again until the reminder is committed', async () => {
  const cluster = createCluster();
  const host = createHost(cluster, { definitions });
  await host.ask(address, 'remind', { name: 'tea', inMs: 60_000 });
  await cluster.clock.advance(30_000);
  assert.equal(host.engine.stats().activations, 0);
  cluster.stores.journal.faults.down(true);
  await cluster.clock.advance(60_000);
  cluster.stores.journal.faults.down(false);
  await cluster.clock.advance(limits.wakeRetryMaxMs);
  await quiet(cluster);
  assert.deepEqual(rang(cluster), ['tea']);
  host.engine.close();
});

test('engine reminders - an append that fails while one fires does not lose it nor repeat it', async () => {
  for (const stored of [false, true]) {
    const cluster = createCluster();
    const host = createHost(cluster, { definitions });
    await host.ask(address, 'remind', { name: 'tea', inMs: 1_000 });
    if (stored) cluster.stores.journal.faults.loseNextAck();
    else cluster.stores.journal.faults.failNext('journal_unavailable');
    await cluster.clock.advance(5_000);
    await quiet(cluster);
    assert.deepEqual(rang(cluster), ['tea'], `stored: ${stored}`);
    host.engine.close();
  }
});

test('engine reminders - the new owner rewrites the index, so that what a former owner wrote late does not stand', async () => {
  const cluster = createCluster();
  const former = createHost(cluster, { definitions });
  await former.ask(address, 'remind', { name: 'tea', inMs: 60_000 });
  const due = await indexed(cluster);
  await cluster.stores.reminders.delete(reminderKey(address));
  const owner = createHost(cluster, { definitions, epoch: 2 });
  await owner.ask(address, 'rings');
  await quiet(cluster);
  assert.deepEqual(await indexed(cluster), due);
  former.engine.close();
  owner.engine.close();
});

test('engine reminders - a list that cannot be read when the partition is taken is read again', async () => {
  const cluster = createCluster();
  const first = createHost(cluster, { definitions });
  await first.ask(address, 'remind', { name: 'tea', inMs: 1_000 });
  first.engine.close();
  cluster.stores.reminders.down(true);
  const next = createHost(cluster, { definitions, epoch: 2 });
  await cluster.clock.advance(2_000);
  assert.deepEqual(rang(cluster), []);
  cluster.stores.reminders.down(false);
  await cluster.clock.advance(limits.restartMaxMs);
  await quiet(cluster);
  assert.deepEqual(rang(cluster), ['tea']);
  next.engine.close();
});

test('engine reminders - a handler that always ends in a bug is given up after poisonTriesMax runs; one that refuses at once', async () => {
  const cluster = createCluster();
  const host = createHost(cluster, { definitions });
  await host.ask(address, 'remind', { name: 'poison', inMs: 1_000 });
  await host.ask(address, 'remind', { name: 'declining', inMs: 500 });
  for (let i = 0; i < limits.poisonTriesMax + 2; i++) await cluster.clock.advance(limits.restartMaxMs);
  await quiet(cluster);
  assert.equal(host.log.lines.filter((line) => line.text.startsWith('bug in a handler')).length, limits.poisonTriesMax);
  assert.equal(eventsOf(cluster, address).filter((event) => event.k === '$reminder.gone').length, 2);
  assert.equal(await indexed(cluster), undefined);
  host.engine.close();
});

test('engine reminders - more than remindersPerActorMax names are refused', () => {
  const names = Array.from({ length: limits.remindersPerActorMax + 1 }, (_, i) => `r${i}`);
  const many = defineActor({
    type: 'many', events: {}, initial: () => 0, apply: {},
    commands: (command) => ({
      set: command({
        input: z.strictObject({ from: z.int(), count: z.int() }), output: z.object({}),
        handle: (turn, { from, count }) => {
          for (const name of names.slice(from, from + count)) turn.remind(name, { inMs: 1_000 });
          return {};
        },
      }),
    }),
    reminders: Object.fromEntries(names.map((name) => [name, () => undefined])),
  });
  const host = createHost(createCluster(), { definitions: [many] });
  const target = { org: 'o', type: 'many', key: 'k' };
  return (async () => {
    assert.equal(await codeOf(host.ask(target, 'set', { from: 0, count: limits.remindersPerActorMax + 1 })), 'too_many_reminders');
    await host.ask(target, 'set', { from: 0, count: limits.remindersPerActorMax });
    await host.ask(target, 'set', { from: 0, count: 1 });
    assert.equal(await codeOf(host.ask(target, 'set', { from: limits.remindersPerActorMax, count: 1 })), 'too_many_reminders');
    host.engine.close();
  })();
});

test('engine reminders - a refused turn sets none', async () => {
  const cluster = createCluster();
  const host = createHost(cluster, { definitions });
  assert.equal(await codeOf(host.ask(address, 'remindMany', { bug: true })), 'changed_my_mind');
  assert.equal(await indexed(cluster), undefined);
  await cluster.clock.advance(5_000);
  assert.deepEqual(rang(cluster), []);
  host.engine.close();
});

test('engine reminders - many that are due at once wake at most wakesMax actors at a time, and all of them', async () => {
  const cluster = createCluster();
  const first = createHost(cluster, { definitions });
  const keys = Array.from({ length: limits.wakesMax + 50 }, (_, i) => ({ ...address, key: `k${i}` }));
  await Promise.all(keys.map((key) => first.ask(key, 'remind', { name: 'tea', inMs: 1_000 })));
  first.engine.close();
  cluster.clock.jump(monthMs);
  const { faults } = cluster.stores.journal;
  faults.hold();
  const next = createHost(cluster, { definitions, epoch: 2 });
  await quiet(cluster);
  assert.equal(next.engine.stats().activations, limits.wakesMax);
  faults.release();
  await quiet(cluster);
  await quiet(cluster);
  const counts = await Promise.all(keys.map((key) => next.ask(key, 'rings')));
  assert.deepEqual(counts, keys.map(() => ({ rings: 1 })));
  next.engine.close();
});

test('engine timers - a timer calls its command once, setting it again replaces it, and it keeps the actor from idling', async () => {
  const cluster = createCluster();
  const host = createHost(cluster, { definitions });
  await host.ask(address, 'timer', { afterMs: 1_000, name: 'first' });
  await host.ask(address, 'timer', { afterMs: 30_000, name: 'second' });
  await cluster.clock.advance(29_999);
  assert.deepEqual(rang(cluster), []);
  await cluster.clock.advance(1);
  await quiet(cluster);
  assert.deepEqual(rang(cluster), ['second']);
  await cluster.clock.advance(30_000);
  assert.equal(host.engine.stats().activations, 0);
  host.engine.close();
});

test('engine timers - a timer is gone with its activation', async () => {
  const cluster = createCluster();
  const host = createHost(cluster, { definitions });
  await host.ask(address, 'timer', { afterMs: 5_000, name: 'x' });
  await host.engine.release(host.engine.held.keys().next().value ?? 0);
  host.engine.close();
  const next = createHost(cluster, { definitions, epoch: 2 });
  await next.ask(address, 'rings');
  await cluster.clock.advance(6_000);
  assert.deepEqual(rang(cluster), []);
  next.engine.close();
});

test('engine timers - a commit acknowledged after its activation ended sets no timer', async () => {
  const cluster = createCluster();
  const host = createHost(cluster, { definitions });
  await host.ask(address, 'rings');
  host.engine.leaseUntil(cluster.clock.monotonic() + 1_000);
  const { faults } = cluster.stores.journal;
  faults.hold();
  const arrived = faults.appended();
  const asked = codeOf(host.ask(address, 'remindWithTimer'));
  await arrived;
  await cluster.clock.advance(1_000);
  // The append may yet be stored: the caller is not told that nothing was done.
  assert.equal(await asked, 'interrupted');
  faults.release();
  await cluster.clock.advance(10_000);
  assert.deepEqual(host.log.lines.filter((line) => line.text === 'timer failed'), []);
  host.engine.close();
});
