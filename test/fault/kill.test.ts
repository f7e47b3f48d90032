/**
 * The headline: many conversations while clients, gateways, daemons and nats-server are killed with -9 at drawn moments.
 *
 * `TROUPE_SEED` repeats a run's scripts and schedule; `TROUPE_KILLS` and `TROUPE_SECONDS` lengthen it, `TROUPE_SESSIONS` widens it.
 */
import { test } from 'node:test';
import { faultConfig, startChaos, startTalkers, talkersReport, within } from '../harness/chaos.ts';
import { assertNothingLost, openJournals } from '../harness/proof.ts';
import { pageServer } from '../harness/page-server.ts';
import { draw, runSeed } from '../harness/seed.ts';
import { startStack } from '../harness/stack.ts';

const kills = Number(process.env['TROUPE_KILLS'] ?? 30);
const seconds = Number(process.env['TROUPE_SECONDS'] ?? Math.max(45, kills * 1.5));
const sessions = Number(process.env['TROUPE_SESSIONS'] ?? 12);

test('kill - sockets, clients, gateways, daemons and nats-server killed at random under load: nothing lost, repeated, reordered or run twice [G1] [G2] [G3] [G4] [G6]', { timeout: (seconds + 120) * 1_000 }, async (t) => {
  const seed = runSeed();
  const random = draw(seed);
  t.diagnostic(`TROUPE_SEED=${seed}`);
  const pages = await pageServer();
  t.after(() => pages.stop());
  const stack = await startStack(t, {
    daemons: 2, gateways: 2, onePort: true,
    daemon: { ...faultConfig.daemon, tools: { fetch_allow: [pages.url] } }, gateway: faultConfig.gateway,
  });
  const talkers = await startTalkers(sessions, { stack, random, pageUrl: pages.url, depth: 2 });
  t.after(async () => { await Promise.all(talkers.map((talker) => talker.leave())); });
  const chaos = startChaos({ stack, random: random.fork('schedule'), talkers, everyMs: 800 });
  for (const talker of talkers) talker.talk();
  await chaos.kill(kills, seconds * 1_000);
  await within(60_000, 'every turn ends', Promise.all(talkers.map((talker) => talker.rest())), () => `${chaos.log.join('\n')}\n${talkersReport(talkers)}`);

  const journals = await openJournals(stack.nats.url, faultConfig.daemon.partitions);
  t.after(() => journals.close());
  const { delivered, turns } = await assertNothingLost(journals, talkers);
  const reconnects = talkers.reduce((sum, talker) => sum + talker.reconnects, 0);
  const by = Object.entries(chaos.kills).map(([kind, n]) => `${kind} ${n}`).join(', ');
  process.stdout.write(`events delivered ${delivered}, kills made ${chaos.total}, lost 0, repeated 0, seed ${seed}\n`);
  t.diagnostic(`${sessions} sessions, ${turns} turns, ${reconnects} reconnects; killed: ${by}`);
});
