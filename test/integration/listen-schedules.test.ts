/** An ask without an id must not run twice because a host whose lease ran out answers for the host that took over [G4]. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import type { NatsConnection } from 'nats';
import { createListener, type Listener } from '../../actors/runtime/cluster/listen.ts';
import { createRouter } from '../../actors/runtime/cluster/router.ts';
import { createStatistics } from '../../actors/runtime/cluster/service.ts';
import type { Engine, Message } from '../../actors/runtime/message.ts';
import { connectNats } from '../../actors/runtime/nats/connect.ts';
import { createLean, type Lean } from '../../actors/runtime/nats/lean.ts';
import type { Clock } from '../../actors/runtime/store.ts';
import { coded } from '../../contracts/errors.ts';
import { silent } from '../harness/log.ts';
import { startNats, type NatsServer } from '../harness/nats.ts';

let server: NatsServer;
let connections: NatsConnection[] = [];
let lean: Lean;
before(async () => {
  server = await startNats();
  connections = await Promise.all(['old', 'new', 'caller'].map((name) => connectNats({ url: server.url, name })));
  lean = createLean(at(2));
});
after(async () => {
  lean.close();
  await Promise.all(connections.map((nc) => nc.close()));
  await server.stop();
});
const at = (index: number): NatsConnection => connections[index] ?? assert.fail();

const engineOf = (deliver: (message: Message) => Promise<unknown>): Engine => ({
  hold: () => undefined, release: () => Promise.resolve(), held: new Map(), leaseUntil: () => undefined, forget: async () => 'busy', deliver,
  drain: () => Promise.resolve(), close: () => undefined, closed: Promise.resolve(),
  stats: () => ({ activations: 0, mailbox: 0, turns: 0, commits: 0, effectsRunning: 0 }),
});
const nowMs = 1_000;
const clock: Clock = { now: () => Date.now(), monotonic: () => nowMs };
const listener = (nc: NatsConnection, deliver: (message: Message) => Promise<unknown>): Listener =>
  createListener({ nc, engine: engineOf(deliver), sender: { ask: deliver, tell: () => Promise.resolve() }, clock, log: silent, statistics: createStatistics([]) });
const router = () => createRouter({
  partitions: 1, lean, inbox: { send: () => Promise.resolve() }, clock, engine: () => engineOf(() => Promise.reject(coded('not_owner'))),
});
const message = { address: { org: 'dev', type: 'tally', key: 'k' }, command: 'add', input: {}, principal: { kind: 'system' } } as const;

test('listen - a host whose lease ran out so long ago that another may serve says nothing; the other\'s answer counts, and runs once', async () => {
  let ran = 0;
  const old = listener(at(0), () => Promise.reject(coded('not_owner')));
  const heard = Promise.withResolvers<void>();
  const taken = listener(at(1), async () => {
    ran += 1;
    // The old host has had its say before the new one answers.
    await heard.promise;
    return {};
  });
  const partitions = [old.partition(0), taken.partition(0)];
  old.lease(nowMs - 1);
  taken.lease(nowMs + 1_000);
  await Promise.all([at(0).flush(), at(1).flush()]);
  const asked = router().ask(message);
  await at(2).flush();
  // What the old host was sent, it has: two round trips after the caller's.
  await at(0).flush();
  await at(2).flush();
  await at(2).flush();
  heard.resolve();
  assert.deepEqual(await asked, {});
  assert.equal(ran, 1);
  for (const partition of partitions) await partition.stop();
});

test('listen - what comes while the lease is over is served when it is renewed, and dropped when the partition is lost', async () => {
  const served: string[] = [];
  const host = listener(at(0), async (asked) => {
    served.push(asked.address.key);
    return {};
  });
  const partition = host.partition(0);
  await at(0).flush();
  host.lease(nowMs - 1);
  const first = router().ask(message);
  await at(2).flush();
  await at(0).flush();
  assert.deepEqual(served, []);
  host.lease(nowMs + 1_000);
  assert.deepEqual(await first, {});
  assert.deepEqual(served, ['k']);

  host.lease(nowMs - 1);
  const abort = new AbortController();
  const second = router().ask({ ...message, address: { ...message.address, key: 'lost' }, signal: abort.signal }).then(() => 'answered', () => 'silence');
  await at(2).flush();
  await at(0).flush();
  await partition.stop();
  host.lease(nowMs + 1_000);
  abort.abort();
  assert.equal(await second, 'silence');
  assert.deepEqual(served, ['k']);
});
