/**
 * Hosts in processes of their own, killed, stopped and resumed: what was answered stays, nothing takes effect twice, and a
 * host that lost its partitions without knowing it changes nothing [G1] [G3] [G4].
 */
import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, afterEach, before, test } from 'node:test';
import type { NatsConnection } from 'nats';
import { connectNats } from '../../actors/runtime/nats/connect.ts';
import { createNatsStores } from '../../actors/runtime/nats/stores.ts';
import { ensureStreams } from '../../actors/runtime/nats/streams.ts';
import { runtimeKinds, type Commit } from '../../contracts/event.ts';
import { journalSubject, ownerSubject, partitionOf } from '../../contracts/subjects.ts';
import { call, callUntil, hostChild, type HostChild } from '../harness/cluster.ts';
import { startNats, type NatsServer } from '../harness/nats.ts';
import { draw, runSeed } from '../harness/seed.ts';

const partitions = 16;
const leaseTtlMs = 1_000;
const seed = runSeed();
const { pick } = draw(seed);

let server: NatsServer;
let nc: NatsConnection;
let folder: string;
let tracePath: string;
let running: HostChild[] = [];
let run = 0;
let org = 'dev-0';

before(async () => {
  process.stdout.write(`seed ${seed} (SEED=${seed} repeats the schedule)\n`);
  folder = await mkdtemp(join(tmpdir(), 'troupe-failure-'));
  server = await startNats();
  nc = await connectNats({ url: server.url, name: 'client' });
  await ensureStreams(nc, { partitions, journalStreams: 1, replicas: 1 });
});
after(async () => {
  await nc.close();
  await server.stop();
  await rm(folder, { recursive: true });
});
afterEach(async () => {
  await Promise.all(running.map((child) => child.stop()));
  running = [];
  org = `dev-${++run}`;
});

const start = async (name: string, options: { leaseTtlMs?: number; stuckClock?: boolean } = {}): Promise<HostChild> => {
  tracePath = join(folder, `trace-${run}`);
  await writeFile(tracePath, '', { flag: 'a' });
  const child = await hostChild({
    url: server.url, tracePath, config: { host: name, partitions, leaseTtlMs: options.leaseTtlMs ?? leaseTtlMs },
    ...(options.stuckClock === undefined ? {} : { stuckClock: options.stuckClock }),
  });
  running.push(child);
  return child;
};
const address = (key: string): { org: string; type: string; key: string } => ({ org, type: 'tally', key });
const names = async (key: string): Promise<string[]> => (await callUntil(nc, address(key), 'get', {}, `${org}-get-${key}-${Math.random()}`) as { names: string[] }).names;
const ownedBy = (child: HostChild): number[] => {
  const last = child.said.findLast((says) => says.kind === 'owned');
  return last?.kind === 'owned' ? [...last.owned] : [];
};
/** A key whose actor lives in a partition that the host owns now. */
const keyOf = (child: HostChild): string => {
  const owned = new Set(ownedBy(child));
  for (let i = 0; i < 10_000; i++) if (owned.has(partitionOf(address(`key-${i}`), partitions))) return `key-${i}`;
  throw new Error(`${child.name} owns nothing`);
};
/** Every commit of an actor, from the journal. */
const commits = async (key: string): Promise<Commit[]> => {
  const { journal, lean } = createNatsStores(nc, { partitions, journalStreams: 1, replicas: 1 });
  try {
    const subject = journalSubject(partitionOf(address(key), partitions), address(key));
    const last = await journal.last(subject);
    const all: Commit[] = [];
    if (last === undefined) return all;
    for await (const batch of journal.read(subject, 0, last.seq)) for (const { data } of batch) all.push(JSON.parse(new TextDecoder().decode(data)) as Commit);
    return all;
  } finally {
    lean.close();
  }
};

test('cluster failure - hosts killed at random under load: every answered call took effect exactly once [G1] [G3]', async () => {
  await Promise.all(['a', 'b', 'c'].map((name) => start(name)));
  const keys = Array.from({ length: 24 }, (_, i) => `k${i}`);
  const sent = new Map<string, Set<string>>(keys.map((key) => [key, new Set()]));
  let going = true;
  let answered = 0;
  let arrived: () => void = () => undefined;
  const workers = Promise.all(Array.from({ length: 8 }, async (_, worker) => {
    for (let i = 0; going; i++) {
      const key = pick(keys);
      const name = `${worker}-${i}`;
      sent.get(key)?.add(name);
      await callUntil(nc, address(key), 'add', { by: 1, name }, `${org}-${name}`);
      answered++;
      arrived();
    }
  }));
  const more = (count: number): Promise<void> => new Promise((resolve) => {
    const goal = answered + count;
    arrived = () => { if (answered >= goal) resolve(); };
  });
  for (let kills = 0; kills < 4; kills++) {
    await more(50);
    const victim = pick(running);
    running = running.filter((child) => child !== victim);
    await victim.kill('SIGKILL');
    await more(50);
    await start(victim.name);
  }
  going = false;
  await workers;
  for (const key of keys) assert.deepEqual((await names(key)).toSorted(), [...sent.get(key) ?? []].toSorted(), key);
});

test('cluster failure - a host that is killed is taken over by the others when its lease has run out', async () => {
  const [a, b] = [await start('a'), await start('b')];
  const key = keyOf(b);
  await call(nc, address(key), 'add', { by: 1, name: 'before' });
  await b.kill('SIGKILL');
  await callUntil(nc, address(key), 'add', { by: 1, name: 'after' }, `${org}-after`);
  assert.deepEqual(await names(key), ['before', 'after']);
  await a.when((says) => says.kind === 'owned' && says.owned.length === partitions);
});

test('cluster failure - a host killed and started again under its name serves at once, though its lease would live for an hour', async () => {
  const hour = 3_600_000;
  const first = await start('a', { leaseTtlMs: hour });
  await call(nc, address('k'), 'add', { by: 1, name: 'before' });
  await first.kill('SIGKILL');
  await start('a', { leaseTtlMs: hour });
  assert.deepEqual(await call(nc, address('k'), 'add', { by: 1, name: 'after' }), { total: 2 });
});

/** Stops the owner past its lease, lets another take over and write, and resumes it with requests in its socket. */
const zombie = async (stuckClock: boolean): Promise<{ key: string; traces: string[]; log: string[] }> => {
  const [a, b] = [await start('a', { stuckClock }), await start('b')];
  const key = keyOf(a);
  const n = partitionOf(address(key), partitions);
  await call(nc, address(key), 'traced', { name: 'first' });
  // Its effect has ended, or the next owner would rightly run it again.
  while (!(await commits(key)).some(({ ev }) => ev.some(({ k }) => k === runtimeKinds.effectEnded))) await new Promise((resolve) => { setImmediate(resolve); });
  a.pause();
  // These lie in the stopped host's socket until it runs again; the host that takes over does not see them.
  for (let i = 0; i < 5; i++) {
    nc.publish(ownerSubject(n, address(key), 'traced'), JSON.stringify({ input: { name: `zombie-${i}` }, principal: { kind: 'system' }, deadlineMs: 60_000 }), { reply: `_INBOX.nobody.${i}` });
  }
  await nc.flush();
  await b.when((says) => says.kind === 'owned' && says.owned.length === partitions);
  await callUntil(nc, address(key), 'traced', { name: 'second' }, `${org}-second`);
  const first = a.said.find((says) => says.kind === 'ready');
  a.resume();
  // Joined anew, it has worked off what lay in its socket and has its share back.
  await a.when((says) => says.kind === 'owned' && first?.kind === 'ready' && says.instance !== first.instance && says.owned.includes(n));
  await callUntil(nc, address(key), 'traced', { name: 'third' }, `${org}-third`);
  const done = await commits(key);
  const epochs = done.map(({ e }) => e);
  assert.deepEqual(epochs, epochs.toSorted((x, y) => x - y), 'an older epoch wrote after a newer one');
  let next = 1;
  for (const commit of done) {
    assert.equal(commit.n, next);
    next += commit.ev.length;
  }
  // The effect of `third` runs after its answer; a turn behind it in the same actor comes after that effect's end.
  for (;;) {
    const traces = (await readFile(tracePath, 'utf8')).split('\n').filter((line) => line !== '');
    if (traces.some((line) => line.endsWith(' third'))) {
      return { key, traces, log: a.said.flatMap((says) => (says.kind === 'log' ? [says.text] : [])) };
    }
    await new Promise((resolve) => { setImmediate(resolve); });
  }
};

test('cluster failure - an owner stopped past its lease and resumed serves nothing from before, and its effects do not run [G1]', async () => {
  const { key, traces } = await zombie(false);
  assert.deepEqual(await names(key), ['first', 'second', 'third']);
  assert.deepEqual(traces, ['a first', 'b second', 'a third']);
});

test('cluster failure - an owner whose clock stands still believes in its lease, but the journal refuses its append and its effects do not run [G1]', async () => {
  const { key, traces, log } = await zombie(true);
  assert.deepEqual(await names(key), ['first', 'second', 'third']);
  assert.deepEqual(traces, ['a first', 'b second', 'a third']);
  // Two refusals race to it, the journal's and its heartbeat's; either way it learns that it is not the owner any more.
  assert.ok(log.some((text) => text.includes('append failed') || text.includes('lost its partitions')), `the zombie was never refused: ${log.join(' | ')}`);
});

test('cluster failure - tells in flight when hosts are killed take effect exactly once [G4]', async () => {
  await Promise.all(['a', 'b'].map((name) => start(name)));
  const count = 120;
  for (let i = 0; i < count; i++) {
    await callUntil(nc, address(`from-${i % 7}`), 'forward', { to: `to-${i % 5}`, by: 1, name: `n${i}` }, `${org}-f${i}`);
    if (i !== 40 && i !== 80) continue;
    const victim = pick(running);
    running = running.filter((child) => child !== victim);
    await victim.kill('SIGKILL');
    await start(victim.name);
  }
  for (let to = 0; to < 5; to++) {
    const expected = Array.from({ length: count }, (_, i) => i).filter((i) => i % 5 === to).map((i) => `n${i}`);
    for (;;) {
      const seen = await names(`to-${to}`);
      assert.equal(new Set(seen).size, seen.length, 'a tell took effect twice');
      if (seen.length === expected.length) {
        assert.deepEqual(seen.toSorted(), expected.toSorted());
        break;
      }
    }
  }
});
