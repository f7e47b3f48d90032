/**
 * Poison (G4): messages that cannot be handled, among many that can. They end in the dead-letter stream, visible with their reason,
 * through a crash of nats-server, and are replayed after the repair: once.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import type { NatsConnection } from 'nats';
import { z } from 'zod';
import { connectNats } from '../../actors/runtime/nats/connect.ts';
import { ensureStreams } from '../../actors/runtime/nats/streams.ts';
import { defineActor } from '../../actors/runtime/define.ts';
import { refuse } from '../../contracts/errors.ts';
import { hostHere } from '../harness/cluster.ts';
import { startNats, type NatsServer } from '../harness/nats.ts';

const partitions = 2;
let server: NatsServer;
let nc: NatsConnection;
before(async () => {
  server = await startNats();
  nc = await connectNats({ url: server.url, name: 'setup' });
  await ensureStreams(nc, { partitions, journalStreams: 1, replicas: 1 });
});
after(async () => {
  await nc.close();
  await server.stop();
});

type Fault = 'bug' | 'refusal' | undefined;
/** A box that keeps what it is told; what it does with a name that starts with `poison` is decided by the switch. */
const box = (fault: () => Fault) => defineActor({
  type: 'box',
  events: { kept: z.object({ name: z.string() }) },
  initial: () => ({ names: [] as readonly string[] }),
  apply: { kept: (state, e) => ({ names: [...state.names, e.name] }) },
  commands: (command) => ({
    keep: command({
      input: z.strictObject({ name: z.string() }), output: z.object({}),
      handle: (turn, { name }) => {
        turn.emit('kept', { name });
        if (name.startsWith('poison')) {
          const now = fault();
          if (now === 'bug') throw new TypeError('a bug in the handler');
          if (now === 'refusal') throw refuse('out_of_order', 'This box is out of order.');
        }
        return {};
      },
    }),
    look: command({ input: z.strictObject({}), output: z.object({ names: z.array(z.string()) }), handle: (turn) => ({ names: [...turn.state.names] }) }),
  }),
});

test('poison - a bug and a refusal among good messages: the good ones take effect once, the others are dead letters that outlive nats-server and are replayed once [G4]', async (t) => {
  let fault: Fault = 'bug';
  const type = box(() => fault);
  const start = (host: string): ReturnType<typeof hostHere> => hostHere({ url: server.url, config: { host, partitions, leaseTtlMs: 1_000 }, definitions: [type] });
  let here = await start('a');
  t.after(() => here.stop());
  await here.host.ready;
  const ref = () => here.host.actors.ref(type, 'acme', 'b1');
  /** Its names when the test holds; between two looks what comes from NATS has its turn. */
  const look = async (test: (names: readonly string[]) => boolean): Promise<string[]> => {
    for (;;) {
      const { names } = await ref().ask.look({});
      if (test(names)) return names;
      await new Promise((resolve) => { setImmediate(resolve); });
    }
  };
  const letters = async (count: number): Promise<Awaited<ReturnType<typeof here.host.deadLetters.list>>> => {
    for (;;) {
      const found = await here.host.deadLetters.list();
      if (found.length >= count) return found;
    }
  };

  const good = Array.from({ length: 40 }, (_, i) => `good-${i}`);
  for (const [i, name] of good.entries()) {
    await ref().tell.keep({ name }, { id: name });
    if (i === 10) await ref().tell.keep({ name: 'poison-bug' }, { id: 'poison-bug' });
  }
  const [bug] = await letters(1);
  assert.ok(bug);
  assert.deepEqual([bug.address, bug.command, bug.id, bug.code], [{ org: 'acme', type: 'box', key: 'b1' }, 'keep', 'poison-bug', 'internal_error']);
  assert.ok(!bug.message.includes('a bug in the handler'), 'the letter shows what is for the log only');
  fault = 'refusal';
  await ref().tell.keep({ name: 'poison-refused' }, { id: 'poison-refused' });
  await letters(2);
  let names = await look((now) => now.length >= good.length);
  assert.deepEqual(names.toSorted(), good.toSorted(), 'a poison message took effect, or a good one did not');

  // Both host and nats-server die; the letters do not.
  here.host.close();
  await server.kill('SIGKILL');
  await server.restart();
  await here.nc.close();
  here = await start('b');
  await here.host.ready;
  const kept = await here.host.deadLetters.list();
  assert.deepEqual(kept.map((l) => [l.id, l.code]), [['poison-bug', 'internal_error'], ['poison-refused', 'out_of_order']]);
  assert.equal(kept[1]?.message, 'This box is out of order.');

  // Not repaired: a replay makes a new letter, and nothing else.
  await here.host.deadLetters.replay(kept[1]?.seq ?? assert.fail());
  const again = (await letters(2)).find((l) => l.id === 'poison-refused');
  assert.ok(again !== undefined && again.seq !== kept[1]?.seq);
  // Repaired: each takes effect once, also when it is replayed twice at the same moment.
  fault = undefined;
  const replays = await Promise.allSettled([kept[0]?.seq, again.seq, again.seq].map((seq) => here.host.deadLetters.replay(seq ?? 0)));
  assert.ok(replays.filter((r) => r.status === 'fulfilled').length >= 2, JSON.stringify(replays));
  names = await look((now) => now.length >= good.length + 2);
  assert.deepEqual(names.toSorted(), [...good, 'poison-bug', 'poison-refused'].toSorted());
  assert.deepEqual(await here.host.deadLetters.list(), []);
  await assert.rejects(here.host.deadLetters.replay(again.seq), { code: 'not_found' });
  // The same message, sent again by whoever was not sure: it is remembered.
  await ref().tell.keep({ name: 'poison-bug' }, { id: 'poison-bug' });
  await ref().tell.keep({ name: 'last' }, { id: 'last' });
  names = await look((now) => now.includes('last'));
  assert.equal(names.filter((name) => name === 'poison-bug').length, 1);
});
