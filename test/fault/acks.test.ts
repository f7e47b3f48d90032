/**
 * Acknowledgements that are lost, late or unknown: each daemon reaches NATS through a proxy that drops answers, stands still, cuts,
 * refuses and half-opens its connection, while conversations go on. What a daemon does not know it must find out, never guess.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { faultConfig, startTalkers, talkersReport, within } from '../harness/chaos.ts';
import { badNetwork } from '../harness/network.ts';
import { assertNothingLost, openJournals } from '../harness/proof.ts';
import { startProxy, type Proxy } from '../harness/proxy.ts';
import { draw, runSeed } from '../harness/seed.ts';
import { startStack } from '../harness/stack.ts';

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
