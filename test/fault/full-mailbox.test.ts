/**
 * A flood on one actor while its journal does not answer (G5): what fits waits, what does not is refused with a code, nothing
 * grows; and when the journal answers again, exactly what was taken has happened.
 */
import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { decodeCommit } from '../../actors/runtime/commit.ts';
import { connectNats } from '../../actors/runtime/nats/connect.ts';
import { ensureStreams } from '../../actors/runtime/nats/streams.ts';
import type { Journal } from '../../actors/runtime/store.ts';
import { CodedError } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { eventsSubject } from '../../contracts/subjects.ts';
import { call, hostHere } from '../harness/cluster.ts';
import { startNats, type NatsServer } from '../harness/nats.ts';
import { tallyActor } from '../harness/tally.ts';

const partitions = 4;
let server: NatsServer;
let folder: string;
before(async () => {
  folder = await mkdtemp(join(tmpdir(), 'troupe-mailbox-'));
  server = await startNats();
  const nc = await connectNats({ url: server.url, name: 'setup' });
  await ensureStreams(nc, { partitions, journalStreams: 1, replicas: 1 });
  await nc.close();
});
after(async () => {
  await server.stop();
  await rm(folder, { recursive: true });
});

/** A journal whose appends wait while it is shut. */
const gated = (own: Journal): { journal: Journal; shut(): void; open(): void; readonly held: number } => {
  let gate: PromiseWithResolvers<void> | undefined;
  let held = 0;
  return {
    journal: {
      append: async (subject, data, expected) => {
        if (gate !== undefined) {
          held += 1;
          await gate.promise;
        }
        return own.append(subject, data, expected);
      },
      erase: (subject, upTo) => own.erase(subject, upTo),
      last: (subject) => own.last(subject),
      firstFrom: (subject, from) => own.firstFrom(subject, from),
      read: (subject, from, upTo) => own.read(subject, from, upTo),
    },
    shut: () => { gate = Promise.withResolvers<void>(); },
    open: () => { gate?.resolve(); gate = undefined; },
    get held() { return held; },
  };
};

test('full mailbox - a flood beyond the bound is refused with mailbox_full at once, nothing grows, and what was taken happens exactly once [G5]', async (t) => {
  let gate: ReturnType<typeof gated> | undefined;
  const tally = tallyActor({ host: 'a', tracePath: join(folder, 'trace') });
  const here = await hostHere({
    url: server.url, config: { host: 'a', partitions, leaseTtlMs: 60_000 }, definitions: [tally],
    stores: (own) => {
      gate = gated(own.journal);
      return { ...own, journal: gate.journal };
    },
  });
  t.after(() => here.stop());
  const outside = await connectNats({ url: server.url, name: 'outside' });
  t.after(() => outside.close());
  const { host } = here;
  await host.ready;
  const door = gate ?? assert.fail();
  const one = host.actors.ref(tally, 'acme', 'flooded');
  const other = host.actors.ref(tally, 'acme', 'calm');
  await one.ask.add({ by: 1, name: 'before' });
  await other.ask.add({ by: 1, name: 'before' });

  door.shut();
  const outcomes = new Map<string, string>();
  let refusals = 0;
  const flood = (from: number, count: number): Promise<void>[] => Array.from({ length: count }, async (_, i) => {
    const name = `n${from + i}`;
    try {
      await one.ask.add({ by: 1, name }, { deadlineMs: 60_000 });
      outcomes.set(name, 'done');
    } catch (error) {
      assert.ok(error instanceof CodedError, String(error));
      outcomes.set(name, error.code);
      refusals += 1;
    }
  });
  const first = 5_000;
  const all = flood(0, first);
  // What can be taken: the turns of the commits under way, and a full mailbox. Refusals come while nothing is answered.
  while (refusals === 0 || host.engine.stats().mailbox < limits.mailboxMax) await new Promise((resolve) => { setImmediate(resolve); });
  const refused = async (count: number): Promise<void> => { while (refusals < count) await new Promise((resolve) => { setImmediate(resolve); }); };
  const takenMax = limits.mailboxMax + 2 * limits.commitTurnsMax;
  await refused(first - takenMax);
  const full = host.engine.stats();
  const heap = process.memoryUsage().heapUsed;
  // Ten times more changes nothing but the count of refusals.
  const more = 50_000;
  const before = refusals;
  // In waves: a host whose event loop did nothing but refuse would lose its lease, on a slow machine, and with it the mailbox.
  const wave = 1_000;
  for (let sent = 0; sent < more; sent += wave) {
    const rest = flood(first + sent, wave);
    await refused(before + sent + wave);
    await Promise.all(rest);
  }
  assert.deepEqual(host.engine.stats(), full, 'something grew');
  assert.equal(full.mailbox, limits.mailboxMax);
  assert.equal(door.held, 1, 'more than one append in flight for an actor');
  t.diagnostic(`${refusals} refusals; heap ${Math.round((process.memoryUsage().heapUsed - heap) / 2 ** 20)} MiB more`);
  // From outside the same, over NATS, in the words of the table.
  await assert.rejects(call(outside, { org: 'acme', type: 'tally', key: 'flooded' }, 'add', { by: 1, name: 'outside' }, { deadlineMs: 5_000 }), { code: 'mailbox_full' });
  // A durable message is not lost by a full mailbox: it waits where it is stored.
  const told = Array.from({ length: 20 }, (_, i) => `told${i}`);
  await Promise.all(told.map((name) => one.tell.add({ by: 1, name }, { id: name })));

  // Seen as they are committed.
  const missing = new Set(told);
  const allTold = Promise.withResolvers<void>();
  const feed = await host.stores.feed.watch(eventsSubject(one.address), (data) => {
    for (const event of decodeCommit(data).ev) missing.delete(String(event.d['name']));
    if (missing.size === 0) allTold.resolve();
  });
  t.after(() => feed.stop());

  door.open();
  await Promise.all(all);
  const done = [...outcomes].filter(([, outcome]) => outcome === 'done').map(([name]) => name);
  assert.ok(done.length >= limits.mailboxMax && done.length <= takenMax, `${done.length} were taken`);
  assert.deepEqual([...new Set(outcomes.values())].toSorted(), ['done', 'mailbox_full']);
  await allTold.promise;
  const { names } = await one.ask.get({});
  assert.deepEqual(names.toSorted(), ['before', ...done, ...told].toSorted());
  assert.deepEqual((await other.ask.get({})).names, ['before']);
  const { mailbox } = host.engine.stats();
  assert.equal(mailbox, 0);
});
