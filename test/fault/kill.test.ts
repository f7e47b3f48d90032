/**
 * The headline: many conversations while clients, gateways, daemons and nats-server are killed with -9 at drawn moments.
 *
 * `TROUPE_SEED` repeats a run's scripts and schedule; `TROUPE_KILLS` and `TROUPE_SECONDS` lengthen it, `TROUPE_SESSIONS` widens it.
 */
import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { z } from 'zod';
import type { ActorAddress } from '../../contracts/subjects.ts';
import { faultConfig, startChaos, startTalkers, talkersReport, within } from '../harness/chaos.ts';
import { assertNothingLost, openJournals, type Journals } from '../harness/proof.ts';
import { pageServer } from '../harness/page-server.ts';
import { draw, runSeed } from '../harness/seed.ts';
import { startStack, type DaemonProcess, type TestStack } from '../harness/stack.ts';
import { Talker } from '../harness/talker.ts';

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

/** Talkers until one's session and agent live on different daemons: gives it, the session's daemon and the agent's. */
const apart = async (t: TestContext, stack: TestStack, journals: Journals): Promise<{ talker: Talker; session: ActorAddress; agent: ActorAddress; owner: DaemonProcess; other: DaemonProcess }> => {
  for (let i = 1; ; i++) {
    const talker = new Talker({ stack, sub: `ann-${i}`, random: draw(i) });
    t.after(() => talker.leave());
    await talker.begin();
    const session = { org: talker.org, type: 'session', key: talker.sid };
    const agent = { org: talker.org, type: 'agent', key: `agent-${talker.sid}` };
    const hosts = await Promise.all([session, agent].map(async (address) => (await journals.until(address, (events) => events.length > 1)).find((e) => e.k === '$epoch')?.d['host']));
    const [owner, other] = hosts.map((host) => stack.daemons.find((daemon) => daemon.host === host));
    if (owner !== undefined && other !== undefined && owner !== other) return { talker, session, agent, owner, other };
  }
};

test('kill - the owner killed while its tools run: the one that must not run twice is reported as interrupted, the other is run again and takes effect once [G2] [G4]', async (t) => {
  // Nobody's lease runs out in this test: a daemon that is killed comes back under its name.
  const stack = await startStack(t, { daemons: 2, daemon: { ...faultConfig.daemon, lease_ttl_ms: 120_000 }, gateway: faultConfig.gateway });
  const journals = await openJournals(stack.nats.url, faultConfig.daemon.partitions);
  t.after(() => journals.close());
  const { talker, session, agent, owner, other } = await apart(t, stack, journals);
  for (const [script, tool] of [['/approve a report', 'send_report'], ['/memory save a fact', 'memory_write']] as const) {
    // What the tool asks of the agent arrives at a host that does not answer.
    other.pause();
    const seen = talker.said.length + 1;
    talker.say(script);
    await within(60_000, `${tool} runs`, journals.until(session, (events) => events.filter((e) => e.k === 'ToolStarted').length === seen), () => stack.report());
    await owner.kill('SIGKILL');
    other.resume();
    await owner.start();
    await within(60_000, 'the turn ends', talker.until(() => talker.ends === seen), () => `${talkersReport([talker])}\n${stack.report()}`);
  }
  const results = talker.events.flatMap((e) => (e.agent_kind === 'TOOL_RESULT' ? [e.payload] : []));
  assert.deepEqual(results.map((r) => [r.tool_name, r.is_error]), [['send_report', true], ['memory_write', false]]);
  assert.equal(z.object({ error: z.object({ code: z.string() }) }).parse(results[0]?.result).error.code, 'interrupted');
  const did = (await journals.events(agent)).map((e) => e.k);
  assert.ok(did.filter((k) => k === 'ReportFiled').length <= 1, 'the report was filed twice');
  assert.equal(did.filter((k) => k === 'MemoryStored').length, 1);
  await assertNothingLost(journals, [talker]);
});
