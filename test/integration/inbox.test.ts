/** Durable tells over a real nats-server [G4]: once in effect, dead letters, replay. */
import assert from 'node:assert/strict';
import { after, afterEach, before, test } from 'node:test';
import type { NatsConnection } from 'nats';
import { connectNats } from '../../actors/runtime/nats/connect.ts';
import type { NatsStores } from '../../actors/runtime/nats/stores.ts';
import { ensureStreams } from '../../actors/runtime/nats/streams.ts';
import { coded } from '../../contracts/errors.ts';
import { inboxSubject, partitionOf, streams } from '../../contracts/subjects.ts';
import type { DeadLetter } from '../../actors/runtime/cluster/deadletter.ts';
import { call, callUntil, hostHere, type HostHere } from '../harness/cluster.ts';
import { recorder } from '../harness/log.ts';
import { startNats, type NatsServer } from '../harness/nats.ts';
import { tallyActor } from '../harness/tally.ts';

const partitions = 64;
let server: NatsServer;
let nc: NatsConnection;
let running: HostHere[] = [];
let broken = false;
let run = 0;
let org = 'dev-0';
const tally = tallyActor({ host: 'none', tracePath: '/dev/null', broken: () => broken });
/** Called with each line of every host's log. */
let onLine: (text: string) => void = () => undefined;

before(async () => {
  server = await startNats();
  nc = await connectNats({ url: server.url, name: 'client' });
  await ensureStreams(nc, { partitions, journalStreams: 1, replicas: 1 });
});
after(async () => {
  await nc.close();
  await server.stop();
});
afterEach(async () => {
  await Promise.all(running.map((host) => host.stop()));
  running = [];
  broken = false;
  org = `dev-${++run}`;
});

const start = async (name: string, stores?: (own: NatsStores) => NatsStores): Promise<HostHere> => {
  const host = await hostHere({
    ...(stores === undefined ? {} : { stores }),
    url: server.url, config: { host: name, partitions, leaseTtlMs: 2_000 }, definitions: [tally], log: recorder(({ text }) => onLine(text)) });
  running.push(host);
  await host.host.ready;
  return host;
};
const address = (key: string): { org: string; type: string; key: string } => ({ org, type: 'tally', key });

/** Waits until the actor has counted so many names; asks again after each answer, bounded by the test's time. */
const untilNames = async (key: string, count: number): Promise<string[]> => {
  for (let tries = 0; ; tries++) {
    const { names } = await callUntil(nc, address(key), 'get', {}, `${org}-${key}-${count}-${tries}`) as { names: string[] };
    if (names.length >= count) return names;
    await new Promise((resolve) => { setImmediate(resolve); });
  }
};
/** Resolves at the next dead letter's log line. */
const buried = (): Promise<void> => new Promise((resolve) => { onLine = (text) => { if (text.includes('went to the dead letters')) resolve(); }; });
/** Messages left in the inbox. */
const waiting = async (): Promise<number> => {
  const info = (await nc.request(`$JS.API.STREAM.INFO.${streams.inbox}`, '')).json<{ state: { messages: number } }>();
  return info.state.messages;
};
const untilEmpty = async (): Promise<void> => {
  while (await waiting() > 0) await new Promise((resolve) => { setImmediate(resolve); });
};
const own = (letters: readonly DeadLetter[]): DeadLetter[] => letters.filter(({ address: a }) => a?.org === org);

test('inbox - tells to many actors over all partitions arrive, each once, and leave the stream', async () => {
  const { host } = await start('a');
  assert.ok(new Set(Array.from({ length: 300 }, (_, i) => partitionOf(address(`k${i}`), partitions))).size > partitions / 2);
  await Promise.all(Array.from({ length: 300 }, (_, i) => host.actors.ref(tally, org, `k${i}`).tell.add({ by: 1, name: `n${i}` })));
  await untilEmpty();
  for (let i = 0; i < 300; i++) assert.deepEqual(await call(nc, address(`k${i}`), 'get', {}), { total: 1, names: [`n${i}`] });
});

test('inbox - a burst to one actor, more than is handled at once, arrives in order [G5]', async () => {
  const { host } = await start('a');
  const names = Array.from({ length: 400 }, (_, i) => `n${i}`);
  for (const name of names) await host.actors.ref(tally, org, 'one').tell.add({ by: 1, name });
  assert.deepEqual(await untilNames('one', names.length), names);
});

test('inbox - a tell sent twice under one id takes effect once, also beyond the stream\'s own dedup [G4]', async () => {
  const { host } = await start('a');
  const ref = host.actors.ref(tally, org, 'dup');
  await ref.tell.add({ by: 1, name: 'x' }, { id: `${org}-m1` });
  await ref.tell.add({ by: 1, name: 'x' }, { id: `${org}-m1` });
  // Past the stream's window: another message id of the stream around the same id of ours.
  const n = partitionOf(address('dup'), partitions);
  await host.stores.inbox.send(inboxSubject(n, address('dup'), 'add'), `${org}-other`, Buffer.from(JSON.stringify({ id: `${org}-m1`, input: { by: 1, name: 'x' } })));
  await ref.tell.add({ by: 1, name: 'end' });
  await untilEmpty();
  assert.deepEqual(await call(nc, address('dup'), 'get', {}), { total: 2, names: ['x', 'end'] });
});

test('inbox - tells wait while no host runs and are handled when one starts', async () => {
  const first = await start('a');
  await first.stop();
  running = [];
  const n = partitionOf(address('later'), partitions);
  await nc.request(inboxSubject(n, address('later'), 'add'), JSON.stringify({ id: `${org}-m1`, input: { by: 4, name: 'x' } }));
  await start('b');
  assert.deepEqual(await untilNames('later', 1), ['x']);
});

test('inbox - a tell between actors of different hosts arrives', async () => {
  const a = await start('a');
  await start('b');
  await a.owns((owned) => owned.length < partitions);
  await Promise.all(Array.from({ length: 40 }, (_, i) => call(nc, address(`from-${i}`), 'forward', { to: `to-${i}`, by: i, name: `n${i}` })));
  for (let i = 0; i < 40; i++) assert.deepEqual(await untilNames(`to-${i}`, 1), [`n${i}`]);
});

test('inbox - a refused tell goes to the dead letters with its reason, and a replay after the repair takes effect once [G4]', async () => {
  const { host } = await start('a');
  broken = true;
  const letter = buried();
  await host.actors.ref(tally, org, 'poor').tell.fragile({ by: 1, name: 'x' }, { id: `${org}-m1` });
  await letter;
  const [found, ...more] = own(await host.deadLetters.list());
  assert.ok(found !== undefined);
  assert.deepEqual(more, []);
  assert.deepEqual(found.address, address('poor'));
  assert.equal(found.command, 'fragile');
  assert.equal(found.code, 'out_of_order');
  assert.equal(found.message, 'This tally is out of order.');
  assert.equal(found.id, `${org}-m1`);
  assert.equal(found.deliveries, 1);
  assert.deepEqual(JSON.parse(found.body), { id: `${org}-m1`, input: { by: 1, name: 'x' } });
  assert.ok(!Number.isNaN(Date.parse(found.at)));
  await untilEmpty();

  broken = false;
  await host.deadLetters.replay(found.seq);
  assert.deepEqual(await untilNames('poor', 1), ['x']);
  assert.deepEqual(own(await host.deadLetters.list()), []);
  await assert.rejects(host.deadLetters.replay(found.seq), { code: 'not_found' });
});

test('inbox - a message stays in the inbox until its dead letter is stored [G4]', async () => {
  let refusals = 2;
  const tried: string[] = [];
  const { host } = await start('a', (own) => ({
    ...own,
    lean: {
      ...own.lean,
      request: async (subject, data, options) => {
        if (!subject.startsWith('deadletter.') || refusals === 0) return own.lean.request(subject, data, options);
        refusals--;
        tried.push(subject);
        if (refusals === 1) throw coded('deadline_exceeded');
        // What JetStream answers when it refuses to store.
        return own.lean.request('$JS.API.STREAM.MSG.GET.NOSUCH', '{}', options);
      },
    },
  }));
  broken = true;
  const letter = buried();
  await host.actors.ref(tally, org, 'kept').tell.fragile({ by: 1, name: 'x' }, { id: `${org}-m1` });
  await letter;
  assert.equal(tried.length, 2);
  const [found, ...more] = own(await host.deadLetters.list());
  assert.deepEqual(more, []);
  assert.equal(found?.deliveries, 3);
  await untilEmpty();
});

test('inbox - a message that cannot be read, an unknown command and an unknown type are dead letters, and block nobody', async () => {
  const { host } = await start('a');
  const n = partitionOf(address('k'), partitions);
  const subject = inboxSubject(n, address('k'), 'add');
  await nc.request(subject, 'not json');
  await nc.request(subject, JSON.stringify({ id: `${org}-1`, input: { by: 'x' } }));
  await nc.request(inboxSubject(n, address('k'), 'nosuch'), JSON.stringify({ id: `${org}-2`, input: {} }));
  await nc.request(inboxSubject(n, { ...address('k'), type: 'nosuch' }, 'add'), JSON.stringify({ id: `${org}-3`, input: {} }));
  await host.actors.ref(tally, org, 'k').tell.add({ by: 1, name: 'good' });
  assert.deepEqual(await untilNames('k', 1), ['good']);
  await untilEmpty();
  const letters = own(await host.deadLetters.list());
  assert.deepEqual(letters.map(({ code }) => code).sort(), ['bad_request', 'unknown_actor_type', 'unknown_command', 'validation_error']);
  for (const { seq } of letters) await host.deadLetters.drop(seq);
  assert.deepEqual(own(await host.deadLetters.list()), []);
});

test('inbox - tells sent over restarts of nats-server all take effect, none twice [G4]', async () => {
  const { host } = await start('a');
  const ref = host.actors.ref(tally, org, 'storm');
  const names: string[] = [];
  for (let round = 0; round < 3; round++) {
    const sending = Array.from({ length: 50 }, (_, i) => {
      const name = `${round}-${i}`;
      names.push(name);
      return ref.tell.add({ by: 1, name }, { id: `${org}-${name}` });
    });
    await server.restart();
    await Promise.all(sending);
  }
  const seen = await untilNames('storm', names.length);
  assert.deepEqual(seen.toSorted(), names.toSorted());
});
