/**
 * Acknowledgements that are lost, late or unknown: each daemon reaches NATS through a proxy that drops answers, stands still, cuts,
 * refuses and half-opens its connection, while conversations go on. What a daemon does not know it must find out, never guess.
 */
import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { connectNats } from '../../actors/runtime/nats/connect.ts';
import { ensureStreams } from '../../actors/runtime/nats/streams.ts';
import { CodedError } from '../../contracts/errors.ts';
import { faultConfig, startTalkers, talkersReport, within } from '../harness/chaos.ts';
import { hostHere } from '../harness/cluster.ts';
import { startNats } from '../harness/nats.ts';
import { badNetwork } from '../harness/network.ts';
import { assertNothingLost, openJournals } from '../harness/proof.ts';
import { startProxy, type Proxy } from '../harness/proxy.ts';
import { draw, runSeed } from '../harness/seed.ts';
import { startStack } from '../harness/stack.ts';
import { tallyActor } from '../harness/tally.ts';

const count = Number(process.env['TROUPE_TROUBLES'] ?? 24);

test('acks - answers of NATS lost, delayed and cut off under load, on both daemons: nothing lost, nothing doubled [G1] [G2] [G3] [G4]', async (t) => {
  const seed = runSeed();
  t.diagnostic(`TROUPE_SEED=${seed}`);
  const random = draw(seed);
  const proxies: Proxy[] = [];
  t.after(async () => { await Promise.all(proxies.map((proxy) => proxy.stop())); });
  const stack = await startStack(t, {
    daemons: 2, gateways: 1, gateway: faultConfig.gateway,
    natsUrl: async (url) => {
      for (let i = 0; i < 2; i++) proxies.push(await startProxy(Number(new URL(url).port)));
      return url;
    },
    daemon: (index) => ({ ...faultConfig.daemon, nats: { url: proxies[index]?.url ?? assert.fail() } }),
  });
  const talkers = await startTalkers(8, { stack, random, depth: 2 });
  t.after(async () => { await Promise.all(talkers.map((talker) => talker.leave())); });
  const network = badNetwork({ proxies, random: random.fork('network'), everyMs: 600, longestMs: 2_500 });
  for (const talker of talkers) talker.talk();
  await network.trouble(count, 45_000, () => {
    for (const talker of talkers) assert.equal(talker.failure, undefined, network.log.join('\n'));
  });
  await within(60_000, 'every turn ends', Promise.all(talkers.map((talker) => talker.rest())), () => `${network.log.join('\n')}\n${talkersReport(talkers)}`);
  for (const one of [...stack.daemons, ...stack.gateways]) assert.equal(one.crashed, undefined, one.name);

  const journals = await openJournals(stack.nats.url, faultConfig.daemon.partitions);
  t.after(() => journals.close());
  const { delivered, turns } = await assertNothingLost(journals, talkers);
  const dropped = proxies.reduce((sum, proxy) => sum + proxy.droppedBytes, 0);
  assert.ok(dropped > 0, 'no answer was lost');
  t.diagnostic(`${turns} turns, ${delivered} events, ${dropped} bytes of answers lost; ${JSON.stringify(network.counts)}`);
});

test('acks - under thousands of asks, what was answered is in the journal once, what was not is there at most once [G2] [G1]', async (t) => {
  const seed = runSeed();
  t.diagnostic(`TROUPE_SEED=${seed}`);
  const folder = await mkdtemp(join(tmpdir(), 'troupe-acks-'));
  const server = await startNats();
  const proxy = await startProxy(server.port);
  const partitions = 8;
  const setup = await connectNats({ url: server.url, name: 'setup' });
  await ensureStreams(setup, { partitions, journalStreams: 1, replicas: 1 });
  await setup.close();
  const tally = tallyActor({ host: 'a', tracePath: join(folder, 'trace') });
  // A lease that outlives every trouble: nothing but the settling of each append stands between an answer and a lie.
  const here = await hostHere({ url: proxy.url, config: { host: 'a', partitions, leaseTtlMs: 120_000 }, definitions: [tally] });
  // Hooks run in the order of their registration: the host leaves while NATS is still there.
  t.after(async () => {
    proxy.resume();
    await here.stop();
    await proxy.stop();
    await server.stop();
    await rm(folder, { recursive: true });
  });
  await here.host.ready;

  const keys = Array.from({ length: 24 }, (_, i) => `k${i}`);
  const answered = new Map<string, string[]>(keys.map((key) => [key, []]));
  const asked = new Map<string, Set<string>>(keys.map((key) => [key, new Set()]));
  const unsure: string[] = [];
  let going = true;
  const workers = Promise.all(Array.from({ length: 48 }, async (_, worker) => {
    const random = draw(seed).fork(`worker ${worker}`);
    for (let i = 0; going; i++) {
      const key = random.pick(keys);
      const name = `${worker}-${i}`;
      asked.get(key)?.add(name);
      try {
        // Every other one may be repeated by the router, because it has an id.
        await here.host.actors.ref(tally, 'acme', key).ask.add({ by: 1, name }, { deadlineMs: 20_000, ...(i % 2 === 0 ? { idempotencyKey: name } : {}) });
        answered.get(key)?.push(name);
      } catch (error) {
        assert.ok(error instanceof CodedError && error.entry.kind === 'fault', String(error));
        unsure.push(`${name} ${error.code}`);
      }
      // Answers of a local actor come without a turn of the event loop; what else waits has its turn here.
      await new Promise((resolve) => { setImmediate(resolve); });
    }
  }));
  const network = badNetwork({ proxies: [proxy], random: draw(seed).fork('network'), everyMs: 200, longestMs: 300 });
  await network.trouble(36, 25_000, () => undefined);
  going = false;
  await within(60_000, 'every ask ends', workers, () => network.log.join('\n'));

  // There is one writer only: being told that another was first would be its own append not known again.
  assert.deepEqual(unsure.filter((one) => one.endsWith(' fenced')), []);
  const journals = await openJournals(server.url, partitions);
  t.after(() => journals.close());
  let count = 0;
  for (const key of keys) {
    const names = (await journals.events({ org: 'acme', type: 'tally', key })).filter((e) => e.k === 'added').map((e) => String(e.d['name']));
    const set = new Set(names);
    assert.equal(set.size, names.length, `${key}: something is there twice`);
    for (const name of answered.get(key) ?? []) assert.ok(set.has(name), `${key}: ${name} was answered and is not in the journal`);
    for (const name of names) assert.ok(asked.get(key)?.has(name));
    count += names.length;
  }
  t.diagnostic(`${count} additions, ${unsure.length} asks without an answer, ${proxy.droppedBytes} bytes of answers lost; ${JSON.stringify(network.counts)}`);
});
