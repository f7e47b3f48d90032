/**
 * Stopping under load: one signal finishes, hands over and loses nothing; a second one stops at once and loses nothing either.
 *
 * Leases of ten minutes make sure that what is taken over was handed over: nobody could wait for them to run out.
 */
import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { faultConfig, startTalkers, talkersReport, within } from '../harness/chaos.ts';
import { assertNothingLost, openJournals } from '../harness/proof.ts';
import { draw, runSeed } from '../harness/seed.ts';
import { startStack, type TestStack } from '../harness/stack.ts';
import type { Talker } from '../harness/talker.ts';

const restMs = 60_000;

const load = async (t: TestContext, leaseTtlMs: number): Promise<{ stack: TestStack; talkers: Talker[]; settle: () => Promise<void>; more: (turns: number) => Promise<void> }> => {
  const seed = runSeed();
  t.diagnostic(`TROUPE_SEED=${seed}`);
  const stack = await startStack(t, {
    daemons: 2, gateways: 2, onePort: true, gateway: faultConfig.gateway, daemon: { ...faultConfig.daemon, lease_ttl_ms: leaseTtlMs },
  });
  const talkers = await startTalkers(8, { stack, random: draw(seed), depth: 2 });
  t.after(async () => { await Promise.all(talkers.map((talker) => talker.leave())); });
  for (const talker of talkers) talker.talk();
  return {
    stack, talkers,
    /** Each has had so many more turns. */
    more: (turns) => {
      const goals = talkers.map((talker) => talker.ends + turns);
      return within(restMs, 'turns go on', Promise.all(talkers.map((talker, i) => talker.until(() => talker.ends >= (goals[i] ?? 0)))).then(() => undefined), () => talkersReport(talkers));
    },
    settle: async () => {
      await within(restMs, 'every turn ends', Promise.all(talkers.map((talker) => talker.rest())), () => talkersReport(talkers));
      const journals = await openJournals(stack.nats.url, faultConfig.daemon.partitions);
      t.after(() => journals.close());
      const { delivered, turns } = await assertNothingLost(journals, talkers);
      t.diagnostic(`${turns} turns, ${delivered} events`);
    },
  };
};

test('drain - daemons and gateways stopped one after the other under load hand over and end with 0; nothing is lost [G8] [G3]', async (t) => {
  const { stack, more, settle } = await load(t, 600_000);
  for (const one of [...stack.daemons, ...stack.gateways, ...stack.daemons]) {
    await more(1);
    const ended = one.kill('SIGTERM');
    assert.equal(await within(restMs, `${one.name} ends`, ended, () => stack.report()), 0, one.name);
    // The other has everything: turns go on while this one is away.
    await more(1);
    await one.start();
  }
  await settle();
  for (const one of stack.daemons) assert.ok(!one.lines().some((line) => line.includes('ran out of time') || line.includes('took too long')), one.lines().join('\n'));
});

test('drain - a second signal stops at once, also while the first cannot finish because NATS is silent; nothing is lost [G8] [G3]', async (t) => {
  const { stack, more, settle } = await load(t, 2_000);
  for (const one of stack.daemons) {
    await more(1);
    stack.nats.pause();
    const ended = one.kill('SIGTERM');
    await one.line(/"msg":"draining"/);
    process.kill(one.pid, 'SIGTERM');
    assert.equal(await within(restMs, `${one.name} stops`, ended, () => stack.report()), 0, one.name);
    stack.nats.resume();
    await one.start();
  }
  for (const one of stack.gateways) {
    await more(1);
    const ended = one.kill('SIGTERM');
    process.kill(one.pid, 'SIGTERM');
    await within(restMs, `${one.name} stops`, ended, () => stack.report());
    await one.start();
  }
  await more(1);
  await settle();
});

test('drain - a daemon that is told to stop while NATS is gone ends too, within its drain time, and what it held is served when both are back [G8]', async (t) => {
  const stack = await startStack(t, { gateway: faultConfig.gateway, daemon: { ...faultConfig.daemon, drain_ms: 3_000, lease_ttl_ms: 600_000 } });
  const talkers = await startTalkers(2, { stack, random: draw(1), length: 4 });
  t.after(async () => { await Promise.all(talkers.map((talker) => talker.leave())); });
  const [daemon] = stack.daemons;
  assert.ok(daemon);
  for (const talker of talkers) talker.talk();
  await Promise.all(talkers.map((talker) => talker.until(() => talker.events.length > 10)));
  await stack.nats.kill('SIGKILL');
  assert.equal(await within(restMs, 'the daemon ends', daemon.kill('SIGTERM'), () => stack.report()), 0);
  await stack.nats.restart();
  await daemon.start();
  await within(restMs, 'every turn ends', Promise.all(talkers.map((talker) => talker.rest())), () => talkersReport(talkers));
  const journals = await openJournals(stack.nats.url, faultConfig.daemon.partitions);
  t.after(() => journals.close());
  await assertNothingLost(journals, talkers);
});
