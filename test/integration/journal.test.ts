/** Client streams and regulation over the real surface: TLS, gateway, daemon, NATS. One stack for all. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { after, before, describe, test } from 'node:test';
import { z } from 'zod';
import { checksumOf } from '../../actors/daemon/deployment/checksum.ts';
import { encodeCommit } from '../../actors/runtime/commit.ts';
import { connectNats } from '../../actors/runtime/nats/connect.ts';
import { streamSeed } from '../../contracts/deployment.ts';
import { eventEnvelope } from '../../contracts/event.ts';
import { appendAnswer } from '../../contracts/journal-routes.ts';
import { limits } from '../../contracts/limits.ts';
import { gating, homeostasis, regulationTrust } from '../../contracts/regulation.ts';
import { journalSubject, partitionOf } from '../../contracts/subjects.ts';
import { startDeployment, type TestDeployment } from '../harness/deployment.ts';

const page = z.strictObject({ events: z.array(eventEnvelope) });
const refusal = z.object({ error: z.object({ code: z.string(), message: z.string() }) });

describe('client streams', () => {
  let d: TestDeployment;
  before(async () => { d = await startDeployment(undefined); });
  after(() => d.stop());

  interface Given { readonly kind: string; readonly payload: Record<string, unknown>; readonly [more: string]: unknown }
  const note = (n: number, more: Record<string, unknown> = {}): Given => ({ kind: 'note', payload: { n }, ...more });
  const post = (body: unknown) => d.service('POST', '/v1/journal/append', { json: body });
  const append = async (stream_id: string, events: readonly Given[], more: Record<string, unknown> = {}) => {
    const reply = await post({ stream_id, events, ...more });
    assert.equal(reply.status, 201, reply.body);
    return appendAnswer.parse(reply.json);
  };
  const refused = async (body: unknown): Promise<readonly [number, string]> => {
    const reply = await post(body);
    return [reply.status, refusal.parse(reply.json).error.code];
  };
  const read = async (query: Record<string, string | number>) => {
    const reply = await d.service('GET', `/v1/journal/events?${new URLSearchParams(Object.entries(query).map(([name, value]) => [name, `${value}`]))}`);
    assert.equal(reply.status, 200, reply.body);
    return page.parse(reply.json).events;
  };

  test('client streams - [JRN-001] [JRN-002] [JRN-022] an append answers with envelopes without payload; reading shows them whole, the id is the server\'s', async () => {
    const at = Date.now();
    const { events, last_id } = await append('first', [note(1, { id: '01JD0000000000000000000000', metadata: { by: 'me' } }), { kind: 'Über:kind $x', payload: { a: { b: [1, null] } } }]);
    assert.deepEqual(events.map(({ stream_id, kind }) => [stream_id, kind]), [['first', 'note'], ['first', 'Über:kind $x']]);
    assert.equal(last_id, events[1]?.id);
    assert.ok(events.every(({ id, timestamp }) => id !== '01JD0000000000000000000000' && timestamp >= at - 1 && timestamp <= Date.now() + 1_000));
    const seen = await read({ stream_id: 'first' });
    assert.deepEqual(seen.map(({ payload: _p, metadata: _m, ...rest }) => rest), events);
    assert.deepEqual(seen.map(({ payload, metadata }) => [payload, metadata]), [[{ n: 1 }, { by: 'me' }], [{ a: { b: [1, null] } }, {}]]);
  });

  test('client streams - [JRN-003] the checksum is that of the payload\'s canonical JSON, whatever the order of its members', async () => {
    const { events } = await append('sums', [{ kind: 'k', payload: { a: 1, b: { c: 2, d: [3] } } }, { kind: 'k', payload: { b: { d: [3], c: 2 }, a: 1 } }]);
    const canonical = createHash('sha256').update('{"a":1,"b":{"c":2,"d":[3]}}').digest('hex');
    assert.deepEqual(events.map(({ checksum }) => checksum), [canonical, canonical]);
  });

  test('client streams - [JRN-005] events never change: reading again gives the same bytes, and no method but these is there', async () => {
    await append('fixed', [note(1), note(2)]);
    const first = await d.service('GET', '/v1/journal/events?stream_id=fixed');
    await append('fixed', [note(3)]);
    const again = page.parse((await d.service('GET', '/v1/journal/events?stream_id=fixed')).json).events;
    assert.deepEqual(again.slice(0, 2), page.parse(first.json).events);
    for (const method of ['DELETE', 'PATCH'] as const) assert.equal((await d.service(method, '/v1/journal/events?stream_id=fixed')).status, 404);
  });

  test('client streams - [JRN-006] [JRN-007] [JRN-008] pages: one stream only, after is exclusive, each event exactly once, also while others append', async () => {
    const writers = Array.from({ length: 6 }, async (_, w) => {
      for (let i = 0; i < 12; i++) await append('paged', Array.from({ length: 1 + ((w + i) % 4) }, (__, k) => note(w * 1_000 + i * 10 + k)));
    });
    const seen: string[] = [];
    const follow = async (last: boolean): Promise<void> => {
      for (;;) {
        const events = await read({ stream_id: 'paged', limit: 7, ...(seen.length === 0 ? {} : { after: seen.at(-1) ?? '' }) });
        seen.push(...events.map(({ id }) => id));
        if (events.length === 0 && !last) continue;
        if (events.length < 7) return;
      }
    };
    await append('other', [note(9)]);
    const following = follow(false);
    await Promise.all(writers);
    await following;
    await follow(true);
    const all = await read({ stream_id: 'paged', limit: 10_000 });
    assert.deepEqual(seen, all.map(({ id }) => id));
    assert.deepEqual(seen, [...new Set(seen)].toSorted());
    assert.ok(all.every(({ stream_id }) => stream_id === 'paged'));
    assert.deepEqual(await read({ stream_id: 'paged', after: seen.at(-1) ?? '' }), []);
    assert.deepEqual(await read({ stream_id: 'unknown' }), []);
  });

  test('client streams - [JRN-009] 256 events unless asked for otherwise, never more than 10,000', async () => {
    for (let i = 0; i < 11; i++) await append('long', Array.from({ length: 1_000 }, (_, k) => note(i * 1_000 + k)));
    assert.equal((await read({ stream_id: 'long' })).length, 256);
    const all = await read({ stream_id: 'long', limit: 50_000 });
    assert.equal(all.length, 10_000);
    assert.deepEqual(all.map(({ payload }) => payload['n']), Array.from({ length: 10_000 }, (_, n) => n));
    // A place in the middle is found, not read up to.
    const middle = all[7_654];
    assert.deepEqual((await read({ stream_id: 'long', after: middle?.id ?? '', limit: 3 })).map(({ payload }) => payload['n']), [7_655, 7_656, 7_657]);
  });

  test('client streams - [JRN-010] [JRN-011] another last id is sequence_conflict and appends nothing; of two at once one succeeds', async () => {
    const { last_id } = await append('guarded', [note(1)], { expected_last_id: '' });
    assert.deepEqual(await refused({ stream_id: 'guarded', events: [note(2)], expected_last_id: '' }), [409, 'sequence_conflict']);
    const replies = await Promise.all(Array.from({ length: 8 }, (_, n) => post({ stream_id: 'guarded', events: [note(n)], expected_last_id: last_id })));
    assert.deepEqual(replies.map(({ status }) => status).toSorted((a, b) => a - b), [201, 409, 409, 409, 409, 409, 409, 409]);
    assert.equal((await read({ stream_id: 'guarded' })).length, 2);
  });

  test('client streams - [JRN-012] [JRN-020] a retry with its keys stores nothing again and names what is stored, even where it says something else', async () => {
    const events = Array.from({ length: 40 }, (_, n) => note(n, { idempotency_key: `key ${n}` }));
    const first = await append('retried', events);
    await append('retried', [note(99)]);
    assert.deepEqual((await append('retried', events, { expected_last_id: '' })).events, first.events);
    const altered = await append('retried', [{ kind: 'other', payload: { n: -1 }, idempotency_key: 'key 7' }, note(100)]);
    assert.deepEqual(altered.events[0], first.events[7], 'kind and checksum are the stored event\'s');
    assert.equal((await read({ stream_id: 'retried', limit: 1_000 })).length, 42);
    // A key counts per stream.
    assert.notEqual((await append('retried elsewhere', [note(1, { idempotency_key: 'key 1' })])).events[0]?.id, first.events[1]?.id);
  });

  test('client streams - [JRN-014] [JRN-015] [JRN-013] 1,000 events and 1 MiB are taken whole; more is refused and nothing appended', async () => {
    const thousand = Array.from({ length: 1_000 }, (_, n) => note(n));
    assert.equal((await append('batches', thousand)).events.length, 1_000);
    assert.deepEqual(await refused({ stream_id: 'batches', events: [...thousand, note(1_000)] }), [400, 'invalid_argument']);
    // Nearly a MiB of what does not get smaller.
    const noise = (bytes: number): string => Array.from({ length: bytes }, () => String.fromCharCode(35 + Math.floor(Math.random() * 57))).join('');
    const large = { stream_id: 'large', events: [{ kind: 'k', payload: { text: noise(limits.appendMaxBytes - 200) } }] };
    assert.ok(Buffer.byteLength(JSON.stringify(large)) <= limits.appendMaxBytes);
    assert.equal((await post(large)).status, 201);
    assert.deepEqual(await refused({ stream_id: 'large', events: [{ kind: 'k', payload: { text: noise(limits.appendMaxBytes) } }] }), [413, 'payload_too_large']);
    assert.deepEqual((await read({ stream_id: 'large' })).map(({ payload }) => payload), [large.events[0]?.payload]);
    assert.equal((await read({ stream_id: 'batches', limit: 5_000 })).length, 1_000);
  });

  test('client streams - [JRN-016] [JRN-017] [JRN-019] [JRN-021] what is malformed is invalid_argument and appends nothing', async () => {
    const events = [note(1)];
    const bad: unknown[] = [
      { events }, { stream_id: 'bad' }, { stream_id: '', events }, { stream_id: 'x'.repeat(257), events }, { stream_id: 'bad', events: [] },
      { stream_id: 'bad', events: [{ kind: '', payload: {} }] }, { stream_id: 'bad', events: [{ kind: 'x'.repeat(129), payload: {} }] },
      { stream_id: 'bad', events: [{ kind: 'k', payload: [] }] }, { stream_id: 'bad', events: [{ kind: 'k', payload: 'text' }] }, { stream_id: 'bad', events: [{ kind: 'k' }] },
      { stream_id: 'bad', events: [note(1, { idempotency_key: '' })] }, { stream_id: 'bad', events: [note(1, { idempotency_key: 'x'.repeat(129) })] },
      { stream_id: 'bad', events, expected_last_id: 'nonsense' }, { stream_id: 'bad', events, unknown: 1 }, { stream_id: 'bad', events: [note(1, { timestamp: 5 })] }, 'text', null, [],
      { stream_id: 7, events }, { stream_id: 'bad', events: note(1) },
    ];
    for (const body of bad) assert.deepEqual(await refused(body), [400, 'invalid_argument'], JSON.stringify(body).slice(0, 120));
    assert.deepEqual(await read({ stream_id: 'bad' }), []);
    await append('x'.repeat(256), [{ kind: 'y'.repeat(128), payload: {}, idempotency_key: 'z'.repeat(128) }]);
    assert.equal((await read({ stream_id: 'x'.repeat(256) })).length, 1);
    for (const query of ['', 'stream_id=', 'stream_id=a&limit=0', 'stream_id=a&limit=-1', 'stream_id=a&limit=x', 'stream_id=a&after=nonsense', 'stream_id=a&other=1']) {
      assert.equal((await d.service('GET', `/v1/journal/events?${query}`)).status, 400, query);
    }
    // A lone surrogate has no UTF-8, and so no checksum that anybody could repeat.
    assert.equal((await d.service('POST', '/v1/journal/append', { body: '{"stream_id":"bad","events":[{"kind":"k","payload":{"a":"\\ud800"}}]}' })).status, 400);
  });

  test('client streams - [JRN-018] what was acknowledged is there after the daemon was killed at once', async () => {
    const ids: string[] = [];
    for (let round = 0; round < 3; round++) {
      const { events } = await append('killed', Array.from({ length: 100 }, (_, n) => note(round * 100 + n)));
      ids.push(...events.map(({ id }) => id));
      await d.daemons[0]?.restart();
      await d.gateways[0]?.ready();
    }
    assert.deepEqual((await read({ stream_id: 'killed', limit: 1_000 })).map(({ id }) => id), ids);
  });

  test('client streams - many small appends of one key at once are all taken: they are no uploads', async () => {
    const replies = await Promise.all(Array.from({ length: 40 }, (_, n) => post({ stream_id: `parallel ${n % 5}`, events: [note(n)] })));
    assert.deepEqual([...new Set(replies.map(({ status }) => status))], [201]);
  });

  test('client streams - an export is the whole stream as JSON lines; a stream that is not there is empty', async () => {
    await append('exported', [note(1), note(2), note(3)]);
    const reply = await d.service('GET', '/v1/journal/export?stream_id=exported');
    assert.equal(reply.headers['content-type'], 'application/x-ndjson');
    assert.deepEqual(reply.body.trimEnd().split('\n').map((line) => eventEnvelope.parse(JSON.parse(line)).payload), [{ n: 1 }, { n: 2 }, { n: 3 }]);
    assert.equal((await d.service('GET', '/v1/journal/export?stream_id=nothing')).body, '');
  });

  test('client streams - another deployment\'s key reads and writes its own stream of that name', async () => {
    await append('shared name', [note(1)]);
    const other = await d.provision();
    const reply = await d.service('GET', '/v1/journal/events?stream_id=shared+name', { token: other.key });
    assert.deepEqual(page.parse(reply.json).events, []);
    assert.equal((await d.service('POST', '/v1/journal/append', { token: other.key, json: { stream_id: 'shared name', events: [note(2)], expected_last_id: '' } })).status, 201);
    assert.equal((await read({ stream_id: 'shared name' })).length, 1);
  });

  test('client streams - an event whose stored payload does not match its checksum is never shown', async () => {
    const key = createHash('sha256').update(streamSeed(d.id, 'altered')).digest('hex');
    const address = { org: d.org.id, type: 'stream', key };
    const id = '01JD0000000000000000000001';
    // A commit as a fault of a disk would leave it: whole in form, another payload than was given.
    const event = { id, kind: 'k', payload: { text: 'origjnal' }, checksum: checksumOf({ text: 'original' }) };
    const commit = encodeCommit({
      v: 1, e: 1, n: 1, f: 1, c: 0, m: 0, p: 0, h: '', t: 1, ev: [{ id, k: 'Appended', d: { stream_id: 'altered', at: 1, events: [event] } }],
    });
    const nc = await connectNats({ url: d.nats.url, name: 'test' });
    try {
      await nc.request(journalSubject(partitionOf(address, limits.partitions), address), commit);
    } finally {
      await nc.close();
    }
    for (const path of ['events', 'export']) {
      const reply = await d.service('GET', `/v1/journal/${path}?stream_id=altered`);
      assert.equal(reply.status, 500, reply.body);
      assert.ok(!reply.body.includes('origjnal'));
    }
  });

  // --- regulation ------------------------------------------------------------------------------------------------------

  test('regulation routes - [REG-001] [REG-013] [REG-027] state, gating and health are those of the deployment', async () => {
    const state = homeostasis.parse((await d.service('GET', '/v1/regulation/state')).json);
    assert.equal(state.economic.mode, 'Sovereign');
    const shown = gating.parse((await d.service('GET', '/v1/regulation/gating')).json);
    assert.equal(shown.profile, 'sovereign');
    const health = await d.service('GET', '/v1/regulation/health');
    assert.deepEqual(Object.keys(z.strictObject({ status: z.string(), uptime_seconds: z.int() }).parse(health.json)), ['status', 'uptime_seconds']);
    assert.equal(z.object({ status: z.string() }).parse(health.json).status, 'ok');
  });

  test('regulation routes - [REG-028] [REG-032] the trust score needs nobody; an agent that is not known has the default score; all else needs a credential', async () => {
    const known = regulationTrust.parse((await d.service('GET', `/v1/regulation/trust-score/${d.shown.agent.id}`, { token: null })).json);
    assert.equal(known.agent_id, d.shown.agent.id);
    for (const id of ['agt_01jd0000000000000000000001', 'nobody', 'x%2Fy']) {
      const reply = await d.service('GET', `/v1/regulation/trust-score/${id}`, { token: null });
      assert.equal(reply.status, 200, reply.body);
      const score = regulationTrust.parse(reply.json);
      assert.deepEqual([score.score, score.tier, score.trajectory], [0.5, 'provisional', 'stable']);
    }
    for (const path of ['state', 'gating', 'health', 'history']) {
      const reply = await d.service('GET', `/v1/regulation/${path}`, { token: null });
      assert.deepEqual([reply.status, refusal.parse(reply.json).error.code], [401, 'unauthorized']);
    }
  });
});
