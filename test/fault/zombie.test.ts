/**
 * The zombie: the daemon that owns a session is stopped (SIGSTOP) in the middle of a turn until another has taken over and finished
 * it, and is then let go on with the rest of the model's answer in its socket, until it is told to stop. Outside servers count what
 * really happened. Leases are the product's: on a busy machine a shorter one runs out by itself, and the turn moves once more.
 */
import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { limits } from '../../contracts/limits.ts';
import { faultConfig, within } from '../harness/chaos.ts';
import { modelServer, openaiChunk, openaiDone, openaiUsage, sse, type Answer } from '../harness/model-server.ts';
import { pageServer } from '../harness/page-server.ts';
import { openJournals } from '../harness/proof.ts';
import { draw } from '../harness/seed.ts';
import { startStack } from '../harness/stack.ts';
import { Talker } from '../harness/talker.ts';

const longMs = 60_000;
const tokens = (talker: Talker): string => talker.events.map((e) => (e.agent_kind === 'TOKEN' ? e.payload.text : '')).join('');
const simple = (text: string): Answer => (_request, response) => {
  sse(response);
  response.end(openaiChunk({ content: text }) + openaiChunk({}, 'stop') + openaiUsage(1, 1) + openaiDone);
};

/** `firstLeaseMs`: of daemon 0. `alone`: daemon 1 is away until daemon 0 is stopped, which then believes in its lease and is fenced. */
const zombie = async (t: TestContext, firstLeaseMs: number, alone: boolean): Promise<void> => {
  const folder = await mkdtemp(join(tmpdir(), 'troupe-zombie-'));
  const keyPath = join(folder, 'openai.key');
  await writeFile(keyPath, 'sk-none', { mode: 0o600 });
  const pages = await pageServer();
  const released = Promise.withResolvers<void>();
  const model = await modelServer(
    async (_request, response) => {
      sse(response);
      response.write(openaiChunk({ content: 'one ' }) + openaiChunk({ content: 'two ' }));
      await released.promise;
      // All of it lies in the stopped owner's socket: text, and a tool call that would be seen from outside.
      response.write(openaiChunk({ content: 'ZOMBIE ' })
        + openaiChunk({ tool_calls: [{ index: 0, id: 'z', function: { name: 'fetch_url', arguments: JSON.stringify({ url: `${pages.url}/zombie` }) } }] })
        + openaiChunk({}, 'tool_calls'));
    },
    simple('three '),
    simple('four'),
  );
  t.after(async () => {
    await Promise.all([pages.stop(), model.stop()]);
    await rm(folder, { recursive: true });
  });
  const stack = await startStack(t, {
    daemons: 2, gateways: 1, gateway: faultConfig.gateway,
    daemon: (index) => ({
      ...faultConfig.daemon, lease_ttl_ms: index === 0 ? firstLeaseMs : limits.leaseTtlMs, tools: { fetch_allow: [pages.url] },
      models: { default: 'gpt', registry: [{ id: 'gpt', provider: 'openai' }] }, providers: { openai: { base_url: `${model.url}/v1`, api_key_path: keyPath } },
    }),
  });
  const [first, second] = stack.daemons;
  assert.ok(first && second);
  // Left in peace: what it held is free, and the other has it.
  if (alone) await second.stop();
  const talker = new Talker({ stack, sub: 'ann', random: draw(1) });
  t.after(() => talker.leave());
  const journals = await openJournals(stack.nats.url, faultConfig.daemon.partitions);
  t.after(() => journals.close());
  const report = (): string => `${tokens(talker)}; ${model.requests.length} model calls; ${talker.state}; ${stack.report()}`;

  await talker.begin();
  const address = { org: talker.org, type: 'session', key: talker.sid };
  talker.say('go');
  await within(longMs, 'the first words', talker.until(() => tokens(talker) === 'one two '), report);
  const hosts = async (): Promise<unknown[]> => (await journals.events(address)).filter((e) => e.k === '$epoch').map((e) => e.d['host']);
  const before = await hosts();
  const owner = before.at(-1) === first.host ? first : second;
  const other = owner === first ? second : first;
  if (alone) assert.equal(owner, first);

  owner.pause();
  if (alone) await other.start();
  // The other takes over and is woken by the running turn's reminder; nobody asks it to.
  await within(longMs, 'the turn ends on the other host', talker.until(() => talker.ends === 1), report);
  assert.equal(tokens(talker), 'one two three ');
  assert.deepEqual(await hosts(), [...before, other.host]);
  const [, again] = model.requests;
  assert.ok(JSON.stringify(again?.body['messages']).includes('one two '), 'the model was not told what was said');

  released.resolve();
  owner.resume();
  // It gives up the model's answer: its activation has ended.
  await within(longMs, 'the zombie lets go', model.requests[0]?.gone ?? assert.fail(), report);
  if (alone) assert.match(await owner.line(/append failed/), /"code":"fenced"/);
  // It has joined again by now, or does: a turn that is handed back to it would be asked of the model once more.
  await owner.stop();
  talker.say('more');
  await within(longMs, 'the next turn', talker.until(() => talker.ends === 2), report);
  assert.equal(tokens(talker), 'one two three four');
  assert.deepEqual(pages.asked, [], 'the zombie ran a tool');
  assert.equal(model.requests.length, 3, 'the zombie called the model');
  const commits = await journals.commits(address);
  const epochs = commits.map((c) => c.e);
  assert.deepEqual(epochs, epochs.toSorted((a, b) => a - b), 'an older epoch wrote after a newer one');
  assert.ok(!JSON.stringify(commits).includes('ZOMBIE'), 'the zombie wrote');
  const shown = commits.reduce((sum, c) => sum + c.c, 0);
  assert.deepEqual((await talker.replay(shown)).map((e) => e.record), talker.events.map((e) => e.record));
  assert.equal(owner.crashed, undefined);
};

test('zombie - an owner stopped past its lease and let go on writes nothing, runs no tool and shows no client anything [G1] [G2] [G3]', async (t) => {
  await zombie(t, limits.leaseTtlMs, false);
});

test('zombie - an owner that still believes in its lease tries to write, and the journal refuses it; its tool does not run [G1] [G2]', async (t) => {
  await zombie(t, 3_600_000, true);
});
