/** The hub over the memory journal: positions, holes, slow watchers, refusals (watched.ts W1-W4, design G3). */
import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { createHub, type Hub, type HubOptions } from '../../actors/daemon/hub.ts';
import { createMemoryJournal, type MemoryJournal } from '../../actors/runtime/memory/journal.ts';
import type { Feed, Journal } from '../../actors/runtime/store.ts';
import { limits } from '../../contracts/limits.ts';
import { coded } from '../../contracts/errors.ts';
import { silent } from '../harness/log.ts';
import { runSeed, seeded } from '../harness/seed.ts';
import { sessionWriter, sidOf, TestOutlet, Viewer, type Writer } from '../harness/viewer.ts';

const partitions = 64;
const org = 'o';
const sub = 'ada';

interface Setup {
  readonly journal: MemoryJournal;
  readonly feed: Feed;
  readonly hub: Hub;
  readonly writer: Writer;
  readonly outlet: TestOutlet;
  readonly sid: string;
  readonly viewer: (options?: { credit?: number }) => Viewer;
}

const setUp = async (t: TestContext, options: { feed?: (feed: Feed) => Feed; journal?: (journal: Journal) => Journal; hub?: Partial<HubOptions> } = {}): Promise<Setup> => {
  const { journal, feed } = createMemoryJournal(() => 0);
  const hub = createHub({ journal: options.journal?.(journal) ?? journal, feed: options.feed?.(feed) ?? feed, partitions, log: silent, ...options.hub });
  t.after(() => hub.close());
  const sid = sidOf(Math.floor(Math.random() * 1e9));
  const writer = sessionWriter(journal, org, sid, sub, partitions);
  await writer.create();
  const outlet = new TestOutlet();
  return { journal, feed, hub, writer, outlet, sid, viewer: (o) => new Viewer(outlet, o) };
};

test('hub - a watcher from N gets N + 1 and everything after it, live joined to replay', async (t) => {
  const { hub, writer, sid, viewer } = await setUp(t);
  for (let i = 0; i < 10; i++) await writer.write(3);
  const viewers = [0, 1, 14, 15, 29, 30].map((lastSeqNo) => viewer().attach(hub, { org, sid, sub, lastSeqNo }));
  for (const v of viewers) await v.reached(v.last < 30 ? 30 : v.last);
  await writer.write(5);
  for (const v of viewers) await v.reached(35);
  assert.deepEqual(viewers.map((v) => v.first), [1, 2, 15, 16, 30, 31]);
  assert.equal(viewers[0]?.texts.join(''), Array.from({ length: 35 }, (_, i) => `t${i + 1} `).join(''));
});

test('hub - without a position a watcher gets the running turn so far, then live, and nothing of earlier turns', async (t) => {
  const { hub, writer, sid, viewer } = await setUp(t);
  await writer.write(4);
  await writer.write(3, 4);
  await writer.write(2, 4);
  const running = viewer().attach(hub, { org, sid, sub });
  await running.reached(9);
  await writer.write(1);
  await running.reached(10);
  assert.equal(running.first, 5);
  const idle = viewer().attach(hub, { org, sid, sub });
  await idle.watch?.attached;
  await writer.write(1);
  await idle.reached(11);
  assert.equal(idle.first, 11);
});

test('hub - a session that is unknown, ill-formed or another user\'s closes with 4010 and shows nothing', async (t) => {
  const { hub, writer, sid, viewer } = await setUp(t);
  await writer.write(3);
  const cases = [
    { org, sid: sidOf(77), sub, lastSeqNo: 0 },
    { org, sid: 'not a sid', sub, lastSeqNo: 0 },
    { org, sid, sub: 'eve', lastSeqNo: 0 },
    { org: 'elsewhere', sid, sub, lastSeqNo: 0 },
  ];
  for (const request of cases) {
    const v = viewer().attach(hub, request);
    assert.deepEqual(await v.ended(), { code: 4010, reason: 'session_not_found' });
    assert.deepEqual(v.texts, []);
  }
  // A session that is watched already is refused just the same.
  await viewer().attach(hub, { org, sid, sub, lastSeqNo: 0 }).reached(3);
  assert.equal((await viewer().attach(hub, { org, sid, sub: 'eve' }).ended()).code, 4010);
});

test('hub - the owner is found behind activations that ended before the session was made', async (t) => {
  const { hub, journal, viewer } = await setUp(t);
  const sid = sidOf(4_711);
  const late = sessionWriter(journal, org, sid, sub, partitions);
  await late.create(5);
  await late.write(2);
  await viewer().attach(hub, { org, sid, sub, lastSeqNo: 0 }).reached(2);
});

test('hub - a position beyond the head closes with 4005', async (t) => {
  const { hub, writer, sid, viewer } = await setUp(t);
  await writer.write(3);
  assert.deepEqual(await viewer().attach(hub, { org, sid, sub, lastSeqNo: 4 }).ended(), { code: 4005, reason: 'sequence_retired' });
  await viewer().attach(hub, { org, sid, sub, lastSeqNo: 2 }).reached(3);
  assert.equal((await viewer().attach(hub, { org, sid, sub, lastSeqNo: 1_000 }).ended()).code, 4005);
});

test('hub - a position that was trimmed from the journal closes with 4005; one that was not is served', async (t) => {
  let trimmedBefore = 0;
  const trimmed = (journal: Journal): Journal => ({
    append: (subject, data, seq) => journal.append(subject, data, seq),
    erase: (subject, upTo) => journal.erase(subject, upTo),
    last: (subject) => journal.last(subject),
    firstFrom: (subject, from) => journal.firstFrom(subject, Math.max(from, trimmedBefore)),
    read: (subject, after, upTo) => journal.read(subject, Math.max(after, trimmedBefore - 1), upTo),
  });
  const asked: string[] = [];
  const { hub, writer, sid, viewer } = await setUp(t, {
    journal: trimmed,
    hub: { askActor: async (address, user) => { asked.push(user); return address.key === sid && user === sub; } },
  });
  for (let i = 0; i < 600; i++) await writer.write(1);
  const from = writer.seq + 1;
  for (let i = 0; i < 600; i++) await writer.write(1);
  trimmedBefore = from;
  assert.deepEqual(await viewer().attach(hub, { org, sid, sub, lastSeqNo: 0 }).ended(), { code: 4005, reason: 'sequence_retired' });
  assert.equal((await viewer().attach(hub, { org, sid, sub, lastSeqNo: 599 }).ended()).code, 4005);
  const v = viewer().attach(hub, { org, sid, sub, lastSeqNo: 600 });
  await v.reached(1_200);
  assert.equal(v.first, 601);
  assert.equal((await viewer().attach(hub, { org, sid, sub: 'eve', lastSeqNo: 600 }).ended()).code, 4010);
  assert.deepEqual(asked, [sub, 'eve'].slice(0, asked.length));
});

test('hub - one subscription and one frame a commit, however many watch; nothing is ever written', async (t) => {
  let subscriptions = 0;
  const { hub, journal, writer, outlet, sid, viewer } = await setUp(t, {
    feed: (feed) => ({ watch: (subject, onCommit, onGap) => { subscriptions += 1; return feed.watch(subject, onCommit, onGap); } }),
  });
  await writer.write(1);
  const viewers = Array.from({ length: 500 }, () => viewer().attach(hub, { org, sid, sub, lastSeqNo: 1 }));
  for (const v of viewers) assert.equal(await v.watch?.attached, true);
  const before = outlet.frames;
  const appends = journal.counts.appends;
  await writer.write(4);
  await writer.write(1);
  for (const v of viewers) await v.reached(6);
  assert.equal(outlet.frames - before, 2);
  assert.equal(subscriptions, 1);
  assert.equal(journal.counts.appends - appends, 2, 'only the writer appended');
  assert.deepEqual(hub.stats(), { sessions: 1, watchers: 500 });
});

test('hub - the subscription ends some time after the last watcher, and a new one starts afresh', async (t) => {
  const stopped = Promise.withResolvers<void>();
  const { hub, writer, sid, viewer } = await setUp(t, {
    hub: { lingerMs: 1 },
    feed: (feed) => ({
      watch: async (subject, onCommit, onGap) => {
        const inner = await feed.watch(subject, onCommit, onGap);
        return { stop: () => { inner.stop(); stopped.resolve(); } };
      },
    }),
  });
  await writer.write(2);
  const v = viewer().attach(hub, { org, sid, sub, lastSeqNo: 0 });
  await v.reached(2);
  v.watch?.detach();
  await stopped.promise;
  assert.deepEqual(hub.stats(), { sessions: 0, watchers: 0 });
  await writer.write(1);
  await viewer().attach(hub, { org, sid, sub, lastSeqNo: 0 }).reached(3);
});

test('hub - a watcher without credit gets nothing more, holds nobody up, and goes on exactly where it stood', async (t) => {
  const { hub, writer, sid, viewer } = await setUp(t);
  await writer.write(1);
  const fast = viewer().attach(hub, { org, sid, sub, lastSeqNo: 0 });
  fast.onTake = (bytes) => fast.grant(bytes);
  const slow = viewer({ credit: 1_000 }).attach(hub, { org, sid, sub, lastSeqNo: 0 });
  await slow.reached(1);
  // Far more than the ring keeps, so that the journal has to serve it.
  const text = 'x'.repeat(1_000);
  for (let i = 0; i < 1_000; i++) await writer.write([text, text]);
  await fast.reached(2_001);
  assert.ok(slow.last < 8, `${slow.last} frames against a credit of 1,000 bytes`);
  assert.ok(slow.credit >= 0);
  const stood = slow.last;
  slow.onTake = (bytes) => setImmediate(() => slow.grant(bytes));
  slow.grant(limits.linkInitialCreditBytes);
  await slow.reached(2_001);
  assert.ok(stood < 2_001);
  await writer.write(1);
  await Promise.all([slow.reached(2_002), fast.reached(2_002)]);
});

test('hub - nothing is read for a watcher whose connection is full, and it goes on after the drain', async (t) => {
  const { hub, journal, writer, outlet, sid, viewer } = await setUp(t);
  for (let i = 0; i < 20; i++) await writer.write(1);
  outlet.full = true;
  const v = viewer().attach(hub, { org, sid, sub, lastSeqNo: 0 });
  assert.equal(await v.watch?.attached, true);
  for (let i = 0; i < 20; i++) await writer.write(1);
  await turn();
  assert.equal(v.last, 0);
  assert.equal(journal.counts.reads, 0);
  outlet.full = false;
  hub.onDrain(outlet);
  await v.reached(40);
});

test('hub - a text larger than the initial credit passes alone when the credit is whole again', async (t) => {
  const { hub, writer, sid, viewer } = await setUp(t);
  const big = 'x'.repeat(limits.linkInitialCreditBytes + 10);
  await writer.write(['small', big, 'after']);
  const v = viewer().attach(hub, { org, sid, sub, lastSeqNo: 0 });
  await v.reached(1);
  v.grant(limits.linkInitialCreditBytes - v.credit);
  await v.reached(2);
  assert.ok(v.credit < 0);
  v.grant(limits.linkInitialCreditBytes - v.credit);
  await v.reached(3);
  const live = viewer().attach(hub, { org, sid, sub, lastSeqNo: 3 });
  assert.equal(await live.watch?.attached, true);
  await writer.write([big]);
  await live.reached(4);
});

test('hub - a position another daemon has already shown is waited for, not refused', async (t) => {
  const held: (() => void)[] = [];
  const { hub, writer, sid, viewer } = await setUp(t, {
    feed: (feed) => ({ watch: (subject, onCommit, onGap) => feed.watch(subject, (...commit) => void held.push(() => onCommit(...commit)), onGap) }),
  });
  await writer.write(2);
  const first = viewer().attach(hub, { org, sid, sub, lastSeqNo: 2 });
  assert.equal(await first.watch?.attached, true);
  await writer.write(3);
  const ahead = viewer().attach(hub, { org, sid, sub, lastSeqNo: 5 });
  assert.equal(await ahead.watch?.attached, true);
  await first.reached(5);
  for (const deliver of held) deliver();
  await writer.write(1);
  for (const deliver of held) deliver();
  await Promise.all([first.reached(6), ahead.reached(6)]);
  assert.equal(ahead.first, 6);
});

test('hub - finding a position in a long journal takes a few reads, not the whole of it', async (t) => {
  let looks = 0;
  const { hub, journal, writer, sid, viewer } = await setUp(t, {
    journal: (inner) => ({ ...inner, firstFrom: (subject, from) => { looks += 1; return inner.firstFrom(subject, from); } }),
  });
  const other = sessionWriter(journal, org, sidOf(5), sub, partitions);
  await other.create();
  for (let i = 0; i < 6_000; i++) {
    await writer.write(2);
    if (i % 3 === 0) await other.write(1);
  }
  for (const lastSeqNo of [11_999, 11_000, 6_001, 300, 5_000]) {
    looks = 0;
    const before = journal.counts.reads;
    const v = viewer().attach(hub, { org, sid, sub, lastSeqNo });
    v.onTake = (bytes) => v.grant(bytes);
    await v.reached(12_000);
    assert.ok(looks < 30, `${looks} looks for ${lastSeqNo}`);
    const batches = journal.counts.reads - before;
    assert.ok(batches <= (12_000 - lastSeqNo) / 2 / limits.replayBatchCommits + 4, `${batches} reads for ${12_000 - lastSeqNo} events`);
  }
});

test('hub - a long run of commits that show nothing is passed over, in a replay and in the search for a position', async (t) => {
  const { hub, writer, sid, viewer } = await setUp(t);
  await writer.write(400);
  for (let i = 0; i < 3 * limits.replayBatchCommits; i++) await writer.write(0);
  await writer.write(400);
  for (const lastSeqNo of [0, 399, 400, 401, 500]) {
    const v = viewer().attach(hub, { org, sid, sub, lastSeqNo });
    v.onTake = (bytes) => v.grant(bytes);
    await v.reached(800);
  }
});

test('hub - a lost last message is found by the periodic look', async (t) => {
  let drop = false;
  const { hub, writer, sid, viewer } = await setUp(t, {
    hub: { checkMs: 10 },
    feed: (feed) => ({ watch: (subject, onCommit, onGap) => feed.watch(subject, (...commit) => { if (!drop) onCommit(...commit); }, onGap) }),
  });
  await writer.write(1);
  const v = viewer().attach(hub, { org, sid, sub, lastSeqNo: 0 });
  await v.reached(1);
  drop = true;
  await writer.write(2);
  await v.reached(3);
});

test('hub - a journal that does not answer for a while is latency for those who watch, and 4004 for those who come', async (t) => {
  const { hub, journal, writer, sid, viewer } = await setUp(t);
  for (let i = 0; i < 10; i++) await writer.write([...Array(20)].map(() => 'y'.repeat(2_000)));
  const v = viewer({ credit: 100_000 }).attach(hub, { org, sid, sub, lastSeqNo: 0 });
  await v.reached(40);
  journal.faults.down(true);
  v.onTake = (bytes) => v.grant(bytes);
  v.grant(limits.linkInitialCreditBytes);
  const other = sidOf(99);
  assert.deepEqual(await viewer().attach(hub, { org, sid: other, sub, lastSeqNo: 0 }).ended(), { code: 4004, reason: 'upstream_unavailable' });
  journal.faults.down(false);
  await v.reached(200);
});

test('hub - a commit whose events do not add up closes everybody with 1011 instead of showing it', async (t) => {
  const { hub, journal, writer, sid, viewer } = await setUp(t);
  await writer.write(2);
  const v = viewer().attach(hub, { org, sid, sub, lastSeqNo: 0 });
  await v.reached(2);
  const { encodeCommit } = await import('../../actors/runtime/commit.ts');
  await journal.append(writer.subject, encodeCommit({ v: 1, e: 1, n: 9, f: 9, c: 1, m: 0, p: writer.seq, h: '', t: 0, ev: [{ id: '1', k: 'TextDelta', d: { text: 'no' } }] }), writer.seq);
  assert.deepEqual(await v.ended(), { code: 1011, reason: 'internal_error' });
  assert.equal(v.last, 2);
  assert.deepEqual(hub.stats(), { sessions: 0, watchers: 0 });
});

test('hub - close sends every watcher away with 1001', async (t) => {
  const { hub, writer, sid, viewer } = await setUp(t);
  await writer.write(1);
  const v = viewer().attach(hub, { org, sid, sub, lastSeqNo: 0 });
  await v.reached(1);
  hub.close();
  assert.deepEqual(await v.ended(), { code: 1001, reason: 'going_away' });
  assert.equal((await viewer().attach(hub, { org, sid, sub }).ended()).code, 1001);
});

test('hub - random positions, credits, connections, holes, repeats and delays: every watcher gets exactly N + 1 … n', { timeout: 60_000 }, async (t) => {
  const seed = runSeed();
  t.diagnostic(`seed ${seed}`);
  const random = seeded(seed);
  for (let round = 0; round < 8; round++) {
    const bad = (feed: Feed): Feed => ({
      watch: (subject, onCommit, onGap) => feed.watch(subject, (...commit) => {
        const luck = random();
        if (luck < 0.1) return;
        if (luck < 0.2) setImmediate(() => onCommit(...commit));
        else onCommit(...commit);
        if (luck > 0.9) onCommit(...commit);
      }, onGap),
    });
    const shaky = (journal: Journal): Journal => ({
      append: (subject, data, seq) => journal.append(subject, data, seq),
      erase: (subject, upTo) => journal.erase(subject, upTo),
      last: async (subject) => { await turn(); return journal.last(subject); },
      firstFrom: async (subject, from) => { await turn(); return journal.firstFrom(subject, from); },
      async *read(subject, after, upTo) {
        for await (const batch of journal.read(subject, after, upTo)) {
          await turn();
          if (random() < 0.1) throw coded('journal_unavailable');
          yield batch;
        }
      },
    });
    const { hub, writer, sid } = await setUp(t, { feed: bad, journal: shaky, hub: { checkMs: 20, lingerMs: 0 } });
    const outlets = [new TestOutlet(), new TestOutlet(), new TestOutlet()];
    const viewers: Viewer[] = [];
    const pick = <T>(list: readonly T[]): T => {
      const item = list[Math.floor(random() * list.length)];
      assert.ok(item !== undefined);
      return item;
    };
    for (let i = 0; i < 1_500; i++) {
      const luck = random();
      if (luck < 0.7) await writer.write(random() < 0.2 ? 0 : [...Array(1 + Math.floor(random() * 4))].map(() => 'z'.repeat(Math.floor(random() ** 3 * 2_000))), Math.floor(random() * (writer.head + 1)));
      else if (luck < 0.75 && viewers.length < 60) {
        const viewer = new Viewer(pick(outlets), { credit: Math.floor(random() * limits.linkInitialCreditBytes) });
        const lastSeqNo = random() < 0.8 ? Math.floor(random() * (writer.head + 1)) : undefined;
        viewers.push(viewer.attach(hub, { org, sid, sub, ...(lastSeqNo === undefined ? {} : { lastSeqNo }) }));
      } else if (luck < 0.85 && viewers.length > 0) pick(viewers).grant(Math.floor(random() * 60_000));
      else if (luck < 0.9) {
        const outlet = pick(outlets);
        outlet.full = !outlet.full;
        if (!outlet.full) hub.onDrain(outlet);
      } else if (luck < 0.92 && viewers.length > 0) {
        const gone = pick(viewers);
        gone.watch?.detach();
        viewers.splice(viewers.indexOf(gone), 1);
      } else await turn();
    }
    for (const outlet of outlets) {
      outlet.full = false;
      hub.onDrain(outlet);
    }
    for (const viewer of viewers) {
      viewer.onTake = (bytes) => setImmediate(() => viewer.grant(bytes));
      viewer.grant(Math.max(0, limits.linkInitialCreditBytes - viewer.credit));
    }
    for (const viewer of viewers) {
      assert.equal(await viewer.watch?.attached, true, `seed ${seed}, round ${round}`);
      // One that came without a position at the head has nothing to get.
      if (viewer.last >= 0 || viewer.first !== undefined) await viewer.reached(writer.head);
    }
    hub.close();
  }
});
