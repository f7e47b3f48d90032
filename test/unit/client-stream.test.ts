/** Client streams on the real engine: ids, batches, expectations, idempotency keys, bounds; and canonical JSON. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { test, type TestContext } from 'node:test';
import fc from 'fast-check';
import { checksumOf } from '../../actors/daemon/deployment/checksum.ts';
import { eventOfKey, fold, initialStream, keysCount, remembered, type StreamState } from '../../actors/stream/state.ts';
import { stream } from '../../actors/stream/stream.ts';
import { canonicalJson } from '../../contracts/canonical.ts';
import { clientStreamCommands, clientStreamEvents } from '../../contracts/client-stream.ts';
import type { CodedError } from '../../contracts/errors.ts';
import { appendBody } from '../../contracts/journal-routes.ts';
import { limits } from '../../contracts/limits.ts';
import { actorHost, type ActorHost } from '../harness/actor-host.ts';
import { codeOf } from '../harness/memory-host.ts';
import { runSeed } from '../harness/seed.ts';

const address = { org: 'org_01jd0000000000000000000001', type: 'stream', key: 'a'.repeat(64) };
interface Given { readonly kind: string; readonly payload: Record<string, unknown>; readonly checksum: string; readonly key?: string }
const event = (n: number, key?: string): Given => ({ kind: 'note', payload: { n }, checksum: checksumOf({ n }), ...(key === undefined ? {} : { key }) });

const streams = (t: TestContext) => {
  const host = actorHost([stream()]);
  t.after(() => host.stop());
  const append = async (events: readonly Given[], expected_last_id?: string) => clientStreamCommands.append.output.parse(
    await host.ask(address, 'append', { stream_id: 's', events, ...(expected_last_id === undefined ? {} : { expected_last_id }) }),
  );
  return { host, append };
};
const journaled = async (host: ActorHost) => (await host.events(address)).filter(({ k }) => k === 'Appended').map(({ d }) => clientStreamEvents.Appended.parse(d).events);

test('client stream - [JRN-004] ids are ULIDs that grow strictly, in a batch, in a millisecond, over lost hosts', async (t) => {
  const { host, append } = streams(t);
  const ids: string[] = [];
  for (let i = 0; i < 20; i++) {
    const { stored, last_id } = await append([event(i), event(i), event(i)]);
    ids.push(...stored.map(({ id }) => id));
    assert.equal(last_id, stored.at(-1)?.id);
    if (i % 7 === 3) host.crash();
  }
  assert.deepEqual(ids, [...new Set(ids)].toSorted());
  assert.ok(ids.every((id) => /^[0-7][0-9A-HJKMNP-TV-Z]{25}$/.test(id)));
});

test('client stream - [JRN-010] another expectation than the last id is refused and appends nothing; the empty one expects no event', async (t) => {
  const { host, append } = streams(t);
  const first = await append([event(1)], '');
  assert.equal(await codeOf(append([event(2)], '')), 'sequence_conflict');
  assert.equal(await codeOf(append([event(2)], '01JD0000000000000000000000')), 'sequence_conflict');
  const second = await append([event(2)], first.last_id);
  assert.equal(await codeOf(append([event(3)], first.last_id)), 'sequence_conflict');
  assert.deepEqual((await journaled(host)).flat().map(({ id }) => id), [first.last_id, second.last_id]);
});

test('client stream - [JRN-011] of many appends with one expectation exactly one succeeds', async (t) => {
  const { append } = streams(t);
  const { last_id } = await append([event(0)]);
  const outcomes = await Promise.allSettled(Array.from({ length: 24 }, (_, i) => append([event(i)], last_id)));
  const refused = outcomes.flatMap((outcome) => (outcome.status === 'rejected' ? [(outcome.reason as CodedError).code] : []));
  assert.deepEqual(refused, Array.from({ length: 23 }, () => 'sequence_conflict'));
});

test('client stream - [JRN-012] [JRN-020] a key of the last 24 hours is not stored again, and its event is named; later it is', async (t) => {
  const { host, append } = streams(t);
  const first = await append([event(1, 'k1'), event(2, 'k2')]);
  host.crash();
  const again = await append([event(1, 'k1'), event(2, 'k2')], '');
  assert.deepEqual(again.stored.map(({ id, known }) => [id, known]), first.stored.map(({ id }) => [id, true]), 'even though the expectation is of before: it is a retry');
  const mixed = await append([event(2, 'k2'), event(3, 'k3'), event(3, 'k3')]);
  assert.deepEqual(mixed.stored.map(({ known }) => known), [true, false, true]);
  assert.equal(mixed.stored[1]?.id, mixed.stored[2]?.id, 'a key twice in a batch is one event');
  assert.deepEqual((await journaled(host)).flat().map(({ payload }) => payload['n']), [1, 2, 3]);
  host.advance(limits.idempotencyTtlMs + 1);
  assert.equal((await append([event(1, 'k1')])).stored[0]?.known, false);
});

test('client stream - [JRN-013] an append is one event of the journal, found whole or not at all after a host was lost at it', async (t) => {
  const { host, append } = streams(t);
  await append([event(0)]);
  for (const stored of [true, false]) {
    host.crashAt(1, stored);
    await append(Array.from({ length: 50 }, (_, i) => event(i, `${stored} ${i}`)));
  }
  assert.ok((await journaled(host)).slice(1).every((batch) => batch.length === 50));
  assert.equal((await journaled(host)).length, 3, 'the host\'s repeat of an append that was stored finds its keys');
});

test('client stream - keys are bounded: more of them in 24 hours are refused and nothing is appended', async (t) => {
  const { host, append } = streams(t);
  for (let n = 0; n < limits.idempotencyKeysMax; n += limits.appendEventsMax) {
    await append(Array.from({ length: Math.min(limits.appendEventsMax, limits.idempotencyKeysMax - n) }, (_, i) => event(i, `k${n + i}`)));
  }
  const before = (await journaled(host)).length;
  assert.equal(await codeOf(append([event(1, 'one more')])), 'rate_limited');
  assert.equal((await append([event(1, 'k77')])).stored[0]?.known, true);
  assert.equal((await append([event(1)])).stored[0]?.known, false, 'without a key it is taken');
  assert.equal((await journaled(host)).length, before + 1);
  host.advance(limits.idempotencyTtlMs + 1);
  assert.equal((await append([event(1, 'one more')])).stored[0]?.known, false);
});

test('client stream - the fold keeps every key for 24 hours and forgets it within an hour more, over any schedule', () => {
  fc.assert(fc.property(fc.array(fc.tuple(fc.nat(4 * 3_600_000), fc.nat(3)), { maxLength: 120 }), (schedule) => {
    let state: StreamState = initialStream();
    let at = 1_000_000_000;
    const given: [key: string, at: number][] = [];
    for (const [wait, count] of schedule) {
      at += wait;
      const events = Array.from({ length: count }, (_, i) => {
        const key = `k${given.length}`;
        given.push([key, at]);
        return { id: `${at}-${i}`, kind: 'k', payload: {}, checksum: '', key };
      });
      state = fold.Appended(state, { stream_id: 's', at, events });
      const keys = remembered(state.keys, at);
      for (const [key, since] of given) {
        if (at - since < limits.idempotencyTtlMs) assert.notEqual(eventOfKey(keys, key), undefined);
        if (at - since >= limits.idempotencyTtlMs + 2 * 3_600_000) assert.equal(eventOfKey(keys, key), undefined);
      }
      assert.equal(keysCount(keys), keys.reduce((sum, { ids }) => sum + Object.keys(ids).length, 0));
    }
  }), { seed: runSeed(), numRuns: 100 });
});

test('canonical JSON - [JRN-003] members are sorted by UTF-16 units, numbers and texts are ECMAScript\'s (RFC 8785 appendix B and section 3.2)', () => {
  const example = { numbers: [Number('333333333.33333329'), 1e30, 4.5, 2e-3, 1e-27], string: '\u20ac$\u000f\nA\'B"\\\\"/', literals: [null, true, false] };
  assert.equal(canonicalJson(example), '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}');
  const sorted = canonicalJson({ '\u20ac': 1, '\r': 2, '\ufb33': 3, 1: 4, '\u{1f600}': 5, '\u0080': 6, '\u00f6': 7 });
  assert.equal(sorted, '{"\\r":2,"1":4,"\u0080":6,"ö":7,"€":1,"😀":5,"\ufb33":3}');
  assert.equal(checksumOf({ b: [1, { d: 2, c: 3 }], a: 'x' }), checksumOf({ a: 'x', b: [1, { c: 3, d: 2 }] }));
  assert.equal(checksumOf({ a: 1 }), createHash('sha256').update('{"a":1}').digest('hex'));
  assert.equal(canonicalJson([-0, 1.0, 1e21]), '[0,1,1e+21]');
  assert.throws(() => canonicalJson({ a: '\ud800' }), { code: 'invalid_argument' });
});

test('client stream - a payload or metadata with a member __proto__, which would be stored without it, is refused; every other name is kept [JRN-019]', () => {
  const given = (text: string): unknown => JSON.parse(`{"stream_id":"s","events":[{"kind":"K",${text}}]}`);
  for (const text of ['"payload":{"__proto__":{"x":1}}', '"payload":{"a":1,"__proto__":null}', '"payload":{},"metadata":{"__proto__":1}']) assert.equal(appendBody.safeParse(given(text)).success, false, text);
  const kept = '"payload":{"constructor":1,"toString":null,"hasOwnProperty":[],"a":{"__proto__":{"b":1}}}';
  assert.equal(JSON.stringify(appendBody.parse(given(kept))), JSON.stringify(given(kept)));
});
