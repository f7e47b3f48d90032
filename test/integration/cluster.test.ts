/** Hosts of one cluster in one process over a real nats-server: routing, public addresses, service listing, hand-over, drain. */
import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, afterEach, before, test } from 'node:test';
import { headers, type Msg, type NatsConnection } from 'nats';
import { connectNats } from '../../actors/runtime/nats/connect.ts';
import { ensureStreams } from '../../actors/runtime/nats/streams.ts';
import { CodedError } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { call, callUntil, hostHere, type HostHere } from '../harness/cluster.ts';
import { recorder } from '../harness/log.ts';
import { startNats, type NatsServer } from '../harness/nats.ts';
import { tallyActor } from '../harness/tally.ts';

const partitions = 16;
let server: NatsServer;
let nc: NatsConnection;
let folder: string;
let running: HostHere[] = [];
let run = 0;
/** A fresh organization per test, so that tests share a server and no actors. */
let org = '';

const definition = (host: string): ReturnType<typeof tallyActor> => tallyActor({ host, tracePath: join(folder, 'trace') });
const tally = tallyActor({ host: 'none', tracePath: '/dev/null' });

const start = async (name: string, leaseTtlMs = 2_000): Promise<HostHere> => {
  const host = await hostHere({ url: server.url, config: { host: name, partitions, leaseTtlMs, journalStreams: 2 }, definitions: [definition(name)] });
  running.push(host);
  return host;
};
const startReady = async (...names: string[]): Promise<HostHere[]> => {
  const hosts = await Promise.all(names.map((name) => start(name)));
  await Promise.all(hosts.map(({ host }) => host.ready));
  return hosts;
};
const address = (key: string): { org: string; type: string; key: string } => ({ org, type: 'tally', key });

before(async () => {
  folder = await mkdtemp(join(tmpdir(), 'troupe-cluster-'));
  server = await startNats();
  nc = await connectNats({ url: server.url, name: 'client' });
  await ensureStreams(nc, { partitions, journalStreams: 2, replicas: 1 });
});
after(async () => {
  await nc.close();
  await server.stop();
  await rm(folder, { recursive: true });
});
afterEach(async () => {
  await Promise.all(running.map((host) => host.stop()));
  running = [];
  org = `dev-${++run}`;
});
org = 'dev-0';

test('cluster - an ask from any host reaches the one owner [G1]', async () => {
  const hosts = await startReady('a', 'b', 'c');
  const keys = Array.from({ length: 40 }, (_, i) => `k${i}`);
  for (const { host } of hosts) {
    await Promise.all(keys.map((key) => host.actors.ref(tally, org, key).ask.add({ by: 1, name: host.name })));
  }
  for (const key of keys) {
    const seen = await Promise.all(hosts.map(({ host }) => host.actors.ref(tally, org, key).ask.get({})));
    for (const state of seen) assert.deepEqual(state, { total: 3, names: ['a', 'b', 'c'] });
    assert.equal(hosts.filter(({ host }) => host.actors.isLocal(address(key))).length, 1);
  }
  for (const { host } of hosts) assert.ok(host.engine.stats().activations > 0, `${host.name} served nothing`);
});

test('cluster - a plain NATS client calls a command by its public address and gets the output', async () => {
  await startReady('a', 'b');
  for (let i = 1; i <= 4; i++) {
    const reply = await nc.request(`actor.${org}.tally.c1.add`, JSON.stringify({ by: 2, name: `n${i}` }), { timeout: 5_000 });
    assert.equal(reply.headers?.get('Nats-Service-Error-Code') ?? '', '');
    assert.deepEqual(reply.json(), { total: 2 * i });
  }
  const empty = await nc.request(`actor.${org}.tally.c1.get`, '', { timeout: 5_000 });
  assert.deepEqual(empty.json(), { total: 8, names: ['n1', 'n2', 'n3', 'n4'] });
});

interface Refused { readonly status: string; readonly code: string; readonly message: string; readonly body: { code: string; message: string } }
const refused = async (subject: string, body: string, head: Record<string, string> = {}): Promise<Refused> => {
  const sent = headers();
  for (const [name, value] of Object.entries(head)) sent.set(name, value);
  const reply: Msg = await nc.request(subject, body, { timeout: 5_000, headers: sent });
  return {
    status: reply.headers?.get('Nats-Service-Error-Code') ?? '', code: reply.headers?.get('Troupe-Error') ?? '',
    message: reply.headers?.get('Nats-Service-Error') ?? '', body: reply.json(),
  };
};

test('cluster - what a plain client does wrong is answered with the service error headers and a code', async () => {
  await startReady('a', 'b');
  const at = `actor.${org}.tally.c1`;
  const wrong: [string, string, Record<string, string>, string, string][] = [
    [`${at}.nosuch`, '{}', {}, '404', 'unknown_command'],
    [`actor.${org}.nosuch.c1.add`, '{}', {}, '404', 'unknown_actor_type'],
    [`${at}.add`, '{"by":', {}, '400', 'bad_request'],
    [`${at}.add`, '{"by":"one","name":"x"}', {}, '422', 'validation_error'],
    [`${at}.add`, '{"by":1,"name":"x","more":1}', {}, '422', 'validation_error'],
    [`${at}.internal`, '{}', {}, '403', 'forbidden'],
    [`${at}.add`, `"${'x'.repeat(limits.commandMaxBytes)}"`, {}, '413', 'payload_too_large'],
    [`${at}.add`, '{}', { 'Troupe-Deadline-Ms': 'soon' }, '400', 'bad_request'],
    [`${at}.add`, '{}', { 'Troupe-Id': 'x'.repeat(limits.messageIdMaxChars + 1) }, '400', 'bad_request'],
    [`actor.${org}.tally.=ZZ.add`, '{}', {}, '400', 'bad_request'],
  ];
  for (const [subject, body, head, status, code] of wrong) {
    const got = await refused(subject, body, head);
    assert.equal(got.code, code, subject);
    assert.equal(got.status, status, subject);
    assert.equal(got.body.code, code);
    assert.equal(got.body.message, got.message);
    assert.ok(got.message.length > 0);
  }
  assert.deepEqual(await call(nc, address('c1'), 'get', {}), { total: 0, names: [] });
});

test('cluster - a call repeated under one Troupe-Id gets the first answer from any host and takes effect once', async () => {
  await startReady('a', 'b', 'c');
  const answers = await Promise.all(Array.from({ length: 12 }, () => call(nc, address('once'), 'add', { by: 5, name: 'x' }, { id: 'same' })));
  for (const answer of answers) assert.deepEqual(answer, { total: 5 });
  assert.deepEqual(await call(nc, address('once'), 'get', {}), { total: 5, names: ['x'] });
});

/** All answers to one request, until as many came as hosts run. */
const many = async <T>(subject: string, count: number): Promise<T[]> => {
  const answers: T[] = [];
  for await (const msg of await nc.requestMany(subject, '', { maxWait: 5_000, maxMessages: count, strategy: 'count' })) answers.push(msg.json<T>());
  return answers;
};
interface Ping { type: string; name: string; id: string; version: string; metadata: Record<string, string> }
interface Info extends Ping { description: string; endpoints: { name: string; subject: string; queue_group: string; metadata: Record<string, string> }[] }
interface Stats extends Ping { started: string; endpoints: { name: string; subject: string; queue_group: string; num_requests: number; num_errors: number; last_error: string; processing_time: number; average_processing_time: number }[] }

test('cluster - hosts answer PING, INFO and STATS of the NATS service protocol', async () => {
  const hosts = await startReady('a', 'b');
  const ids = hosts.map(({ host }) => host.instance).sort();

  for (const subject of ['$SRV.PING', '$SRV.PING.troupe']) {
    const pings = await many<Ping>(subject, 2);
    assert.deepEqual(pings.map(({ id }) => id).sort(), ids);
    for (const ping of pings) {
      assert.equal(ping.type, 'io.nats.micro.v1.ping_response');
      assert.match(ping.name, /^[a-zA-Z0-9_-]+$/);
      assert.match(ping.version, /^\d+\.\d+\.\d+$/);
      assert.deepEqual(Object.keys(ping).sort(), ['id', 'metadata', 'name', 'type', 'version']);
    }
  }
  const [first] = hosts;
  assert.ok(first !== undefined);
  const [info] = await many<Info>(`$SRV.INFO.troupe.${first.host.instance}`, 1);
  assert.equal(info?.type, 'io.nats.micro.v1.info_response');
  assert.deepEqual(info.endpoints.map((e) => e.subject).sort(), ['add', 'forward', 'fragile', 'get', 'traced'].map((c) => `actor.*.tally.*.${c}`));
  for (const endpoint of info.endpoints) {
    assert.match(endpoint.name, /^[a-zA-Z0-9_-]+$/);
    assert.equal(endpoint.queue_group, 'troupe');
  }

  for (let i = 0; i < 10; i++) await call(nc, address('s1'), 'add', { by: 1, name: 'x' });
  for (let i = 0; i < 3; i++) await assert.rejects(call(nc, address('s1'), 'add', {}), { code: 'validation_error' });
  const stats = await many<Stats>('$SRV.STATS.troupe', 2);
  let requests = 0;
  let failed = 0;
  for (const stat of stats) {
    assert.equal(stat.type, 'io.nats.micro.v1.stats_response');
    assert.ok(!Number.isNaN(Date.parse(stat.started)));
    const add = stat.endpoints.find((e) => e.name === 'tally-add');
    assert.ok(add !== undefined);
    requests += add.num_requests;
    failed += add.num_errors;
    assert.ok(Number.isInteger(add.processing_time) && Number.isInteger(add.average_processing_time));
    if (add.num_errors > 0) assert.notEqual(add.last_error, '');
  }
  assert.equal(requests, 13);
  assert.equal(failed, 3);
});

/** Adds without pause to a few actors until told to stop; every answer counts, none is repeated under an id. */
const load = (workers: number): { answered(more: number): Promise<void>; stop(): Promise<{ sent: number; failures: unknown[] }> } => {
  let going = true;
  let sent = 0;
  let answers = 0;
  const waits: { at: number; resolve: () => void }[] = [];
  const failures: unknown[] = [];
  const work = async (worker: number): Promise<void> => {
    for (let i = 0; going; i++) {
      sent++;
      try {
        await call(nc, address(`load-${(worker * 7 + i) % 24}`), 'add', { by: 1, name: `${worker}-${i}` });
      } catch (error) {
        failures.push(error);
      }
      answers++;
      for (const wait of waits) if (answers >= wait.at) wait.resolve();
    }
  };
  const all = Promise.all(Array.from({ length: workers }, (_, worker) => work(worker)));
  return {
    /** Resolves when so many more calls were answered. */
    answered: (more) => new Promise((resolve) => { waits.push({ at: answers + more, resolve }); }),
    stop: async () => {
      going = false;
      await all;
      return { sent, failures };
    },
  };
};
const totals = async (): Promise<{ total: number; names: string[] }> => {
  const states = await Promise.all(Array.from({ length: 24 }, (_, i) => call(nc, address(`load-${i}`), 'get', {}) as Promise<{ total: number; names: string[] }>));
  return { total: states.reduce((sum, state) => sum + state.total, 0), names: states.flatMap((state) => state.names) };
};

test('cluster - hosts that join and drain under load lose no call and repeat none [G8]', async () => {
  const [a] = await startReady('a');
  assert.ok(a !== undefined);
  const calls = load(12);
  await calls.answered(200);
  await startReady('b');
  await calls.answered(200);
  await startReady('c');
  await calls.answered(200);
  await a.host.drain();
  assert.equal(await a.host.closed, 'drained');
  await calls.answered(200);
  const { sent, failures } = await calls.stop();
  assert.deepEqual(failures, []);
  const { total, names } = await totals();
  assert.equal(total, sent);
  assert.equal(new Set(names).size, sent);
  assert.deepEqual(a.host.owned(), []);
});

test('cluster - a drained host leaves the cluster at once: the next ask needs no lease to run out', async () => {
  const long = 60_000;
  const [a, b] = [await start('a', long), await start('b', long)];
  await Promise.all([a.host.ready, b.host.ready]);
  for (let i = 0; i < 24; i++) await call(nc, address(`k${i}`), 'add', { by: 1, name: 'x' });
  await a.host.drain();
  for (let i = 0; i < 24; i++) assert.deepEqual(await call(nc, address(`k${i}`), 'add', { by: 1, name: 'y' }), { total: 2 });
  assert.equal(b.host.owned().length, partitions);
});

test('cluster - calls repeated under their ids over a restart of nats-server take effect exactly once [G3]', async () => {
  await startReady('a', 'b');
  let going = true;
  let sent = 0;
  const workers = Promise.all(Array.from({ length: 8 }, async (_, worker) => {
    for (let i = 0; going; i++) {
      sent++;
      await callUntil(nc, address(`load-${(worker * 5 + i) % 24}`), 'add', { by: 1, name: `${worker}-${i}` }, `${org}-${worker}-${i}`);
    }
  }));
  for (let i = 0; i < 3; i++) {
    await callUntil(nc, address('before'), 'add', { by: 1, name: `b${i}` }, `${org}-before-${i}`);
    await server.restart();
    await callUntil(nc, address('after'), 'add', { by: 1, name: `a${i}` }, `${org}-after-${i}`);
  }
  going = false;
  await workers;
  const { total, names } = await totals();
  assert.equal(total, sent);
  assert.equal(new Set(names).size, sent);
});

test('cluster - close stops at once, and a host of the same name then takes over at once', async () => {
  const a = await start('a', 60_000);
  await a.host.ready;
  await call(nc, address('k'), 'add', { by: 1, name: 'x' });
  a.host.close();
  assert.equal(await a.host.closed, 'closed');
  await assert.rejects(a.host.actors.ref(tally, org, 'k').ask.add({ by: 1, name: 'y' }, { deadlineMs: 50 }));
  const again = await start('a', 60_000);
  await again.host.ready;
  assert.deepEqual(await call(nc, address('k'), 'get', {}), { total: 1, names: ['x'] });
});

test('cluster - a call whose commit was on its way when the lease ended is not repeated: it may have taken effect', async () => {
  const gate = Promise.withResolvers<void>();
  const stored = Promise.withResolvers<void>();
  let armed = false;
  const a = await hostHere({
    url: server.url, config: { host: 'a', partitions, journalStreams: 2, leaseTtlMs: 60_000 }, definitions: [definition('a')],
    stores: (own) => ({
      ...own,
      journal: {
        append: async (subject, data, expected) => {
          const seq = await own.journal.append(subject, data, expected);
          if (armed) {
            stored.resolve();
            await gate.promise;
          }
          return seq;
        },
        erase: (subject, upTo) => own.journal.erase(subject, upTo),
        last: (subject) => own.journal.last(subject),
        firstFrom: (subject, from) => own.journal.firstFrom(subject, from),
        read: (subject, after_, upTo) => own.journal.read(subject, after_, upTo),
      },
    }),
  });
  running.push(a);
  await a.host.ready;
  const ref = a.host.actors.ref(tally, org, 'unsure');
  await ref.ask.add({ by: 1, name: 'before' });
  armed = true;
  const asked = ref.ask.add({ by: 1, name: 'unsure' });
  await stored.promise;
  a.host.engine.leaseUntil(0);
  const failure: unknown = await asked.then(() => undefined, (error: unknown) => error);
  armed = false;
  gate.resolve();
  assert.ok(failure instanceof CodedError);
  assert.notEqual(failure.entry.retry, 'safe', failure.code);
  a.host.engine.leaseUntil(Infinity);
  assert.deepEqual(await ref.ask.get({}), { total: 2, names: ['before', 'unsure'] });
});

test('cluster - while NATS is silent for longer than the lease, hosts stop serving by their own clock; then they go on under the same epochs [G1]', async () => {
  const expired = { a: Promise.withResolvers<void>(), b: Promise.withResolvers<void>() };
  const hosts = await Promise.all((['a', 'b'] as const).map((name) => hostHere({
    url: server.url, config: { host: name, partitions, journalStreams: 2, leaseTtlMs: 600 }, definitions: [definition(name)],
    log: recorder(({ text }) => { if (text.includes('lease expired')) expired[name].resolve(); }),
  })));
  running.push(...hosts);
  await Promise.all(hosts.map(({ host }) => host.ready));
  const keys = Array.from({ length: 12 }, (_, i) => `k${i}`);
  for (const key of keys) await call(nc, address(key), 'add', { by: 1, name: 'before' });
  const epochs = hosts.map(({ host }) => new Map(host.epochs()));
  server.pause();
  await Promise.all([expired.a.promise, expired.b.promise]);
  for (const { host } of hosts) {
    const key = keys.find((each) => host.actors.isLocal(address(each)));
    assert.ok(key !== undefined);
    await assert.rejects(host.engine.deliver({ address: address(key), command: 'get', input: {}, principal: { kind: 'system' } }), { code: 'not_owner' });
  }
  server.resume();
  for (const key of keys) {
    await callUntil(nc, address(key), 'add', { by: 1, name: 'after' }, `${org}-${key}`);
    assert.deepEqual(await callUntil(nc, address(key), 'get', {}, `${org}-get-${key}`), { total: 2, names: ['before', 'after'] });
  }
  assert.deepEqual(hosts.map(({ host }) => new Map(host.epochs())), epochs);
});
