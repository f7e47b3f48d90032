/** Actors whose time is over, over a real nats-server: found in the journal alone, by whichever host has their partition, and gone from every stream. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { z } from 'zod';
import { defineActor } from '../../actors/runtime/define.ts';
import { connectNats } from '../../actors/runtime/nats/connect.ts';
import { ensureStreams } from '../../actors/runtime/nats/streams.ts';
import { allowance } from '../../actors/allowance/allowance.ts';
import { device } from '../../actors/device/device.ts';
import { systemClock } from '../../actors/runtime/store.ts';
import { limits } from '../../contracts/limits.ts';
import { hostHere, type HostHere } from '../harness/cluster.ts';
import { startNats } from '../harness/nats.ts';

const partitions = 8;
const total = z.strictObject({ total: z.int() });
const counting = <const Type extends string>(type: Type, forgetAfterMs?: number) => defineActor({
  type, events: { added: z.object({ by: z.int() }) }, initial: () => ({ total: 0 }),
  apply: { added: (state, e) => ({ total: state.total + e.by }) },
  commands: (command) => ({
    add: command({ input: z.strictObject({ by: z.int() }), output: total, handle: (turn, { by }) => { turn.emit('added', { by }); return { total: turn.state.total }; } }),
    read: command({ input: z.strictObject({}), output: total, handle: (turn) => ({ total: turn.state.total }) }),
    later: command({
      input: z.strictObject({}), output: total,
      handle: (turn) => { turn.emit('added', { by: 1 }); turn.remind('wake', { inMs: 100 * limits.dedupTtlMs }); return { total: turn.state.total }; },
    }),
  }),
  reminders: { wake: () => undefined },
  snapshotEvery: 2, ...(forgetAfterMs === undefined ? {} : { forgetAfterMs }),
});
const passing = counting('passing', limits.dedupTtlMs);
const lasting = counting('lasting');

test('cluster forget - whose last commit is old is gone from journal and snapshots, begins anew, and nobody else is touched', { timeout: 120_000 }, async (t) => {
  const server = await startNats();
  const nc = await connectNats({ url: server.url, name: 'forget-test' });
  t.after(async () => {
    await nc.close();
    await server.stop();
  });
  await ensureStreams(nc, { partitions, journalStreams: 2, replicas: 1 });
  let aheadMs = 0;
  const clock = { now: () => systemClock.now() + aheadMs, monotonic: () => systemClock.monotonic() };
  const started = async (host: string): Promise<HostHere> => {
    const here = await hostHere({ url: server.url, config: { host, partitions, leaseTtlMs: 2_000, journalStreams: 2 }, definitions: [passing, lasting, allowance(), device()], clock });
    await here.host.ready;
    return here;
  };
  /** Actor tokens that a stream holds something of, by type. */
  const held = async (...streams: readonly string[]): Promise<Record<string, number>> => {
    const counts: Record<string, number> = {};
    for (const stream of streams) {
      const info = (await nc.request(`$JS.API.STREAM.INFO.${stream}`, JSON.stringify({ subjects_filter: '>' }))).json<{ state: { subjects?: Record<string, number> } }>();
      for (const subject of Object.keys(info.state.subjects ?? {})) {
        const type = subject.split('.')[3] ?? '';
        counts[type] = (counts[type] ?? 0) + 1;
      }
    }
    return counts;
  };
  const journals = (): Promise<Record<string, number>> => held('JOURNAL_0', 'JOURNAL_1');

  const first = await started('a');
  const keys = Array.from({ length: 24 }, (_, i) => `k${i}`);
  for (const key of keys) {
    // Not all at their end at once: messages of one lie between those of others.
    for (const by of [1, 2, 3]) await first.host.actors.ref(passing, `org${by}`, key).ask.add({ by });
  }
  for (const key of keys.slice(0, 5)) await first.host.actors.ref(lasting, 'org', key).ask.add({ by: 9 });
  await first.host.actors.ref(passing, 'org1', 'reminded').ask.later({});
  await first.host.actors.ref(allowance(), 'platform', 'signin-start:x').ask.take({ count: 1, perMinute: 5, perDay: -1, by: 'p', ask: 1 });
  // Active here, and not old.
  assert.equal(await first.host.forget(), 0);
  await first.stop();
  const before = { passing: 3 * 24 + 1, lasting: 5, allowance: 1 };
  assert.deepEqual(await journals(), before);
  assert.equal((await held('SNAPSHOT'))['passing'], before.passing);

  const second = await started('b');
  aheadMs = limits.dedupTtlMs - 60_000;
  assert.equal(await second.host.forget(), 0, 'a minute too early');
  aheadMs = limits.dedupTtlMs + 60_000;
  assert.deepEqual(await second.host.actors.ref(passing, 'org1', 'k0').ask.read({}), { total: 1 });
  assert.equal(await second.host.forget(), 3 * 24 - 1, 'all but who is active, and who has a reminder');
  assert.deepEqual(await journals(), { passing: 2, lasting: 5, allowance: 1 });
  assert.deepEqual(await held('SNAPSHOT'), { passing: 2, lasting: 5 });
  assert.equal(await second.host.forget(), 0);
  const anew = second.host.actors.ref(passing, 'org2', 'k7').ask;
  assert.deepEqual(await anew.read({}), { total: 0 });
  assert.deepEqual(await anew.add({ by: 4 }), { total: 4 });
  assert.deepEqual(await second.host.actors.ref(lasting, 'org', 'k2').ask.read({}), { total: 9 });
  await second.stop();

  // A host that takes over begins at the beginning.
  const third = await started('c');
  assert.deepEqual(await third.host.actors.ref(passing, 'org2', 'k7').ask.read({}), { total: 4 });
  aheadMs = limits.allowanceForgetMs + 60_000;
  assert.equal(await third.host.forget(), 2, 'the one that was active, and the counted key');
  assert.deepEqual(await journals(), { passing: 2, lasting: 5 });
  await third.stop();
});

test('cluster forget - a device code\'s journal vanishes a day after all has been said of it', { timeout: 120_000 }, async (t) => {
  const server = await startNats();
  const nc = await connectNats({ url: server.url, name: 'forget-device' });
  t.after(async () => {
    await nc.close();
    await server.stop();
  });
  await ensureStreams(nc, { partitions, journalStreams: 1, replicas: 1 });
  let aheadMs = 0;
  const clock = { now: () => systemClock.now() + aheadMs, monotonic: () => systemClock.monotonic() };
  const started = async (host: string): Promise<HostHere> => {
    const here = await hostHere({ url: server.url, config: { host, partitions, leaseTtlMs: 2_000 }, definitions: [device()], clock });
    await here.host.ready;
    return here;
  };
  const messages = async (stream: string): Promise<number> => (await nc.request(`$JS.API.STREAM.INFO.${stream}`)).json<{ state: { messages: number } }>().state.messages;
  const first = await started('a');
  const by = { actor: 'usr_x', ip: '192.0.2.1', user_agent: 'test' };
  const { ask } = first.host.actors.ref(device(), 'platform', 'd'.repeat(64));
  await ask.start({ user_code: 'BCDF-2345', client_id: 'cli' });
  await ask.decide({ action: 'approve', by });
  assert.equal((await ask.redeem({})).state, 'approved');
  await first.stop();
  assert.ok(await messages('JOURNAL_0') > 0);
  aheadMs = limits.deviceForgetMs + 60_000;
  const second = await started('b');
  assert.equal(await second.host.forget(), 1);
  for (const stream of ['JOURNAL_0', 'SNAPSHOT', 'REMINDER']) assert.equal(await messages(stream), 0, stream);
  assert.equal((await second.host.actors.ref(device(), 'platform', 'd'.repeat(64)).ask.poll({})).state, 'unknown');
  await second.stop();
});
