/**
 * State is nothing but its events (G6): the journals of a kill run, folded from zero, from every commit's snapshot, from the
 * snapshots that the daemons wrote, and in a process with another time zone, clock and chance, give the same bytes.
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { text } from 'node:stream/consumers';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { replay } from '../../actors/runtime/replay.ts';
import type { ActorAddress } from '../../contracts/subjects.ts';
import { faultConfig, startChaos, startTalkers, talkersReport, within } from '../harness/chaos.ts';
import { assertFoldsAlike, definitionOf, foldedBytes, openJournals } from '../harness/proof.ts';
import { draw, runSeed } from '../harness/seed.ts';
import { startStack } from '../harness/stack.ts';

test('determinism - the journals of a kill run fold to the same bytes from zero, from any snapshot, on any host and at any time [G6]', async (t) => {
  const seed = runSeed();
  t.diagnostic(`TROUPE_SEED=${seed}`);
  const random = draw(seed);
  const stack = await startStack(t, { daemons: 2, gateways: 1, daemon: faultConfig.daemon, gateway: faultConfig.gateway });
  const talkers = await startTalkers(4, { stack, random, depth: 3 });
  t.after(async () => { await Promise.all(talkers.map((talker) => talker.leave())); });
  const chaos = startChaos({ stack, random: random.fork('schedule'), talkers, everyMs: 700, weights: { daemon: 4, gateway: 1, nats: 1 } });
  for (const talker of talkers) talker.talk();
  await chaos.kill(8, 30_000);
  // Long enough that hosts have written snapshots.
  await within(60_000, 'ten turns each', Promise.all(talkers.map((talker) => talker.until(() => talker.ends >= 10))), () => talkersReport(talkers));
  await within(60_000, 'every turn ends', Promise.all(talkers.map((talker) => talker.rest())), () => talkersReport(talkers));

  const journals = await openJournals(stack.nats.url, faultConfig.daemon.partitions);
  t.after(() => journals.close());
  const actors = talkers.flatMap(({ org, sid }): ActorAddress[] => [{ org, type: 'session', key: sid }, { org, type: 'agent', key: `agent-${sid}` }]);
  let snapshots = 0;
  let commits = 0;
  const input: string[] = [];
  const expected: string[] = [];
  for (const address of actors) {
    const messages = await journals.messages(address);
    commits += messages.length;
    if (await assertFoldsAlike(journals, address, Math.min(messages.length, 40))) snapshots += 1;
    const whole = foldedBytes(address, messages);
    expected.push(whole);
    input.push(JSON.stringify({ address, messages: messages.map((m) => ({ seq: m.seq, data: Buffer.from(m.data).toString('base64') })) }));
    // A fork at the last event is the actor; at any event it has exactly the events before it.
    const core = replay(definitionOf(address.type), address, messages);
    assert.equal(JSON.stringify(core.state), JSON.stringify((JSON.parse(whole) as { state: unknown }).state));
    const at = draw(seed).int(1, core.number);
    assert.equal(replay(definitionOf(address.type), address, messages, at).number, at);
  }
  assert.ok(snapshots > 0, 'no host wrote a snapshot: the run was too short');

  const other = spawn(process.execPath, ['--no-warnings', fileURLToPath(new URL('../harness/fold-process.ts', import.meta.url))], {
    env: { ...process.env, TZ: 'Pacific/Apia', LANG: 'tr_TR.UTF-8' }, stdio: ['pipe', 'pipe', 'inherit'],
  });
  t.after(() => { other.kill('SIGKILL'); });
  other.stdin.end(`${input.join('\n')}\n`);
  const folded = (await text(other.stdout)).trimEnd().split('\n');
  assert.deepEqual(folded, expected);
  t.diagnostic(`${actors.length} journals, ${commits} commits, ${snapshots} stored snapshots, ${chaos.total} kills`);
});
