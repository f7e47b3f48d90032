/** The end of a journal as a reader sees it: nothing left out, nothing twice, whatever the live feed drops and however slow the reader is. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { encodeCommit } from '../../actors/runtime/commit.ts';
import { createMemoryStores } from '../../actors/runtime/memory/stores.ts';
import type { Feed } from '../../actors/runtime/store.ts';
import { openTail, type TailSource } from '../../actors/daemon/tail.ts';
import { codeOf } from '../harness/memory-host.ts';
import { draw, runSeed } from '../harness/seed.ts';
import { journalSubject, partitionOf } from '../../contracts/subjects.ts';

const partitions = 4;
const address = { org: 'o', type: 'completion', key: 'k' };
const subject = journalSubject(partitionOf(address, partitions), address);
type Live = Parameters<Feed['watch']>[1];

/** A journal whose live feed the test lets through or not. */
const world = (options: Partial<TailSource> = {}) => {
  const { journal } = createMemoryStores();
  let n = 0;
  let last = 0;
  let live: Live | undefined;
  let gap: (() => void) | undefined;
  let stops = 0;
  const feed: Feed = {
    watch: async (_, onCommit, onGap) => {
      live = onCommit;
      gap = onGap;
      return { stop: () => { stops += 1; } };
    },
  };
  /** Commits an event; `shown` false: the live message of it is lost. */
  const commit = async (shown = true): Promise<void> => {
    n += 1;
    const data = encodeCommit({ v: 1, e: 1, n, f: 1, c: 0, m: 0, p: last, h: '', t: n, ev: [{ id: String(n), k: 'x', d: { n } }] });
    const before = last;
    last = await journal.append(subject, data, last);
    if (shown) live?.(data, last, before);
  };
  return { source: { journal, feed, partitions, ...options }, journal, commit, gap: () => gap?.(), stops: () => stops };
};

const take = async (commits: AsyncGenerator<{ readonly n: number }>, count: number): Promise<number[]> => {
  const got: number[] = [];
  while (got.length < count) {
    const { value, done } = await commits.next();
    assert.ok(done !== true && value !== undefined);
    got.push(value.n);
  }
  return got;
};
const upTo = (from: number, to: number): number[] => Array.from({ length: to - from + 1 }, (_, i) => from + i);

test('tail - begins after what was there, and gives what comes in order', async () => {
  const { source, commit } = world();
  for (let i = 0; i < 3; i++) await commit();
  const end = new AbortController();
  const tail = await openTail(source, address, end.signal);
  const commits = tail.commits();
  for (let i = 0; i < 5; i++) await commit();
  assert.deepEqual(await take(commits, 5), upTo(4, 8));
  const waiting = take(commits, 1);
  await commit();
  assert.deepEqual(await waiting, [9]);
  end.abort();
  assert.deepEqual(await commits.next(), { value: undefined, done: true });
});

test('tail - what the live feed dropped is read from the journal, in its place', async () => {
  const { source, commit } = world();
  const end = new AbortController();
  const commits = (await openTail(source, address, end.signal)).commits();
  for (const shown of [true, false, false, true, false, true]) await commit(shown);
  assert.deepEqual(await take(commits, 6), upTo(1, 6));
  end.abort();
});

test('tail - a commit whose live message nothing follows is found after a silence, and after a lost connection at once', async () => {
  for (const silent of [true, false]) {
    const { source, commit, gap } = world({ checkMs: silent ? 5 : 3_600_000 });
    const end = new AbortController();
    const commits = (await openTail(source, address, end.signal)).commits();
    const waiting = take(commits, 1);
    await commit(false);
    if (!silent) gap();
    assert.deepEqual(await waiting, [1]);
    end.abort();
  }
});

test('tail - a slow reader keeps a bounded number of bytes waiting and misses nothing', async () => {
  const { source, commit, journal } = world({ queueMaxBytes: 500 });
  const end = new AbortController();
  const commits = (await openTail(source, address, end.signal)).commits();
  for (let i = 0; i < 1_000; i++) await commit();
  const reads = journal.counts.reads;
  assert.deepEqual(await take(commits, 1_000), upTo(1, 1_000));
  assert.ok(journal.counts.reads > reads, 'nothing was read from the journal');
  end.abort();
});

test('tail - over seeded losses and paces every commit comes once, in order', async (t) => {
  const seed = runSeed();
  t.diagnostic(`seed ${seed}`);
  for (let round = 0; round < 50; round++) {
    const random = draw(seed + round);
    const { source, commit } = world({ queueMaxBytes: random.int(100, 2_000), checkMs: 5 });
    const before = random.int(0, 3);
    for (let i = 0; i < before; i++) await commit();
    const end = new AbortController();
    const commits = (await openTail(source, address, end.signal)).commits();
    const total = random.int(1, 60);
    const reading = take(commits, total);
    for (let i = 0; i < total; i++) {
      await commit(random.next() < 0.7);
      if (random.next() < 0.3) await new Promise((resolve) => { setImmediate(resolve); });
    }
    assert.deepEqual(await reading, upTo(before + 1, before + total), `round ${round}`);
    end.abort();
  }
});

test('tail - an outage of the journal is waited for; before it is open it is a fault, and no subscription stays', async () => {
  const { source, commit, journal, stops } = world();
  const end = new AbortController();
  const tail = await openTail(source, address, end.signal);
  const commits = tail.commits();
  await commit(false);
  await commit();
  journal.faults.down(true);
  const waiting = take(commits, 2);
  assert.equal(await codeOf(openTail(source, address, end.signal)), 'journal_unavailable');
  assert.equal(stops(), 1);
  journal.faults.down(false);
  assert.deepEqual(await waiting, [1, 2]);
  end.abort();
  assert.equal(stops(), 2);
  const late = new AbortController();
  late.abort();
  await openTail(source, address, late.signal);
  assert.equal(stops(), 3);
});

test('tail - ends when its journal is erased: who waits for more, and who is behind', async () => {
  for (const behind of [false, true]) {
    const { source, journal, commit } = world({ checkMs: 20 });
    await commit();
    const end = new AbortController();
    const commits = (await openTail(source, address, end.signal)).commits();
    await commit();
    assert.deepEqual(await take(commits, 1), [2]);
    // Announced by what follows it, and gone when it is read.
    if (behind) {
      await commit(false);
      await commit();
    }
    await journal.erase(subject, Number.MAX_SAFE_INTEGER);
    assert.equal(await codeOf(commits.next()), 'not_found');
    end.abort();
  }
});
