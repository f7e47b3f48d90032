/** The engine's small parts alone: ids, alarms, commit bytes, the JSON check, remembered ids. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { decodeTime, isValid } from 'ulid';
import { limits } from '../../contracts/limits.ts';
import type { Commit } from '../../contracts/event.ts';
import { Alarms } from '../../actors/runtime/alarm.ts';
import { decodeCommit, encodeCommit, encodeEvents, encodeParts } from '../../actors/runtime/commit.ts';
import { remember, handledBefore, type HandledIds } from '../../actors/runtime/dedup.ts';
import { createManualClock } from '../../actors/runtime/memory/clock.ts';
import { jsonFault } from '../../actors/runtime/snapshot.ts';
import { Ulids } from '../../actors/runtime/ulid.ts';

test('engine ids - ULIDs are valid, carry the clock\'s time and ascend, also when the clock goes back', () => {
  let now = 1_700_000_000_123;
  const ulids = new Ulids(() => now);
  let last = '';
  for (const step of [0, 0, 1, 0, -5_000, 0, 7_000, 1_000_000]) {
    now += step;
    const id = ulids.next();
    assert.ok(isValid(id), id);
    assert.ok(id > last);
    if (step > 0 && now >= 1_700_000_000_124) assert.equal(decodeTime(id), now);
    last = id;
  }
});

test('engine ids - an id after a floor is above it, whatever the floor', () => {
  const ulids = new Ulids(() => 1_700_000_000_000);
  const alphabet = '0123456789ABCDEFGHJKMNPQRSTVWXYZ';
  fc.assert(fc.property(fc.integer({ min: 0, max: 7 }), fc.array(fc.constantFrom(...alphabet), { minLength: 25, maxLength: 25 }), (first, rest) => {
    const floor = `${first}${rest.join('')}`;
    fc.pre(floor !== `7${'Z'.repeat(25)}`);
    const id = ulids.after(floor);
    assert.ok(id > floor && isValid(id));
  }));
  assert.equal(ulids.after(`7${'A'.repeat(23)}ZZ`), `7${'A'.repeat(22)}B00`);
});

test('engine alarms - alarms run in the order of their times, each once, and cancelled ones not', async () => {
  await fc.assert(fc.asyncProperty(fc.array(fc.record({ at: fc.integer({ min: 0, max: 500 }), cancel: fc.boolean() }), { maxLength: 80 }), async (wanted) => {
    const clock = createManualClock();
    const alarms = new Alarms(() => clock.monotonic(), clock.arm);
    const ran: number[] = [];
    const set = wanted.map(({ at, cancel }) => ({ alarm: alarms.set(at, () => { ran.push(at); assert.ok(clock.monotonic() >= at); }), cancel }));
    for (const { alarm, cancel } of set) if (cancel) alarms.cancel(alarm);
    await clock.advance(500);
    assert.deepEqual(ran, wanted.filter(({ cancel }) => !cancel).map(({ at }) => at).sort((a, b) => a - b));
    assert.equal(alarms.size, 0);
  }), { numRuns: 60 });
});

test('engine alarms - an alarm further away than a platform timer reaches runs at its time', async () => {
  const clock = createManualClock();
  const alarms = new Alarms(() => clock.monotonic(), clock.arm);
  const ran: string[] = [];
  alarms.set(10 * limits.alarmMaxWaitMs + 1, () => ran.push('far'));
  await clock.advance(10 * limits.alarmMaxWaitMs);
  assert.equal(ran.length, 0);
  await clock.advance(1);
  assert.equal(ran.join(), 'far');
  alarms.close();
});

test('engine alarms - one that sets another for at once leaves the task in between', () => {
  let fire: (() => void) | undefined;
  const alarms = new Alarms(() => 0, (_delayMs, run) => {
    fire = run;
    return () => { fire = undefined; };
  });
  let runs = 0;
  const endless = (): void => {
    runs += 1;
    if (runs < 50) alarms.set(0, endless);
  };
  alarms.set(0, endless);
  fire?.();
  assert.equal(runs, 1);
  fire?.();
  assert.equal(runs, 2);
  alarms.close();
});

const commitOf = (ev: Commit['ev']): Commit => ({ v: 1, e: 3, n: 7, f: 2, c: 1, m: 0, p: 41, h: 'ab'.repeat(32), t: 1_700_000_000_000, ev });

test('engine commit bytes - a commit survives encoding, and one made of parts has the same bytes', () => {
  const event = fc.record({ id: fc.string(), k: fc.string(), v: fc.option(fc.integer({ min: 2, max: 9 }), { nil: undefined }), d: fc.dictionary(fc.string(), fc.jsonValue()) });
  fc.assert(fc.property(fc.array(event, { maxLength: 6 }), fc.nat(6), (events, cut) => {
    const ev = events.map(({ v, ...rest }) => (v === undefined ? rest : { ...rest, v }));
    const commit = commitOf(ev);
    const bytes = encodeCommit(commit);
    assert.deepEqual(JSON.stringify(decodeCommit(bytes)), JSON.stringify(commit));
    if (cut > 0 && cut < ev.length) {
      assert.deepEqual(Buffer.from(encodeParts(commit, [encodeEvents(ev.slice(0, cut)), encodeEvents(ev.slice(cut))])), Buffer.from(bytes));
    }
  }));
});

test('engine commit bytes - what is not a commit is journal_unreadable', () => {
  const good = commitOf([]);
  for (const bad of [undefined, null, [], {}, { ...good, v: 2 }, { ...good, n: -1 }, { ...good, ev: [{}] }, { ...good, ev: [{ id: 'x', k: 'y', d: [] }] }, { ...good, h: 1 }]) {
    assert.throws(() => decodeCommit(Buffer.from(JSON.stringify(bad) ?? '')), { code: 'journal_unreadable' });
  }
});

test('engine snapshots - jsonFault passes what JSON keeps and names what it changes', () => {
  fc.assert(fc.property(fc.jsonValue(), (value) => {
    fc.pre(!JSON.stringify(value).includes('-0'));
    const clean: unknown = JSON.parse(JSON.stringify(value));
    assert.equal(jsonFault(clean), undefined);
  }));
  assert.equal(jsonFault({ a: [1, { b: new Date(0) }] }), 'state.a[1].b');
  assert.equal(jsonFault({ a: new Map() }), 'state.a');
  assert.equal(jsonFault([Number.NaN]), 'state[0]');
  assert.equal(jsonFault({ n: 1n }), 'state.n');
  assert.equal(jsonFault([undefined]), 'state[0]');
});

test('engine dedup - remembered ids never exceed either bound, and the newest are the ones kept', () => {
  fc.assert(fc.property(fc.array(fc.record({ id: fc.integer({ min: 0, max: 40 }), ms: fc.integer({ min: 0, max: limits.dedupTtlMs / 4 }) }), { maxLength: 100 }), (steps) => {
    const ids: HandledIds = new Map();
    const model = new Map<string, number>();
    let now = 0;
    for (const { id, ms } of steps) {
      now += ms;
      remember(ids, `${id}`, { at: now, output: id });
      model.set(`${id}`, now);
      assert.ok(ids.size <= limits.dedupMax);
      for (const [key, at] of model) assert.equal(handledBefore(ids, key, now) !== undefined, at > now - limits.dedupTtlMs);
    }
  }));
});
