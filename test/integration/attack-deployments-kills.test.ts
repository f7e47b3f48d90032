/**
 * Everything of a deployment at once while daemons and NATS are killed: turns in twenty sessions, appends with idempotency keys, blobs,
 * memories, documents. What was answered is there, once; then the deployment ends under the same load, and
 * what it had is erased.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { connect } from 'nats';
import { createNatsStores } from '../../actors/runtime/nats/stores.ts';
import { subjectsOf } from '../../actors/runtime/nats/subjects.ts';
import { eventEnvelope, type EventEnvelope } from '../../contracts/event.ts';
import { appendAnswer } from '../../contracts/journal-routes.ts';
import { deploymentsRoutes } from '../../contracts/deployments-routes.ts';
import { encodeToken, streams } from '../../contracts/subjects.ts';
import { startDeployment, type ServiceCall, type TestDeployment } from '../harness/deployment.ts';
import { numbered } from '../harness/e2e.ts';
import { chatBody, framesOf, textOf } from '../harness/runtime.ts';
import type { Method } from '../harness/platform.ts';
import { openJournals } from '../harness/proof.ts';

const sessions = 20;
const words = 60;

/** Asks until there is an answer that is no fault of the moment; undefined once `over` says so. */
const insist = async (world: TestDeployment, method: Method, path: string, call: ServiceCall, over: () => boolean): Promise<{ readonly status: number; readonly json: unknown } | undefined> => {
  while (!over()) {
    const reply = await world.service(method, path, call).catch(() => undefined);
    if (reply !== undefined && reply.status < 500 && reply.status !== 429) return reply;
  }
  return undefined;
};

/** A turn as a client takes it that comes back with its last event until the stream is done. */
const turnOf = async (world: TestDeployment, session: string, token: string, over: () => boolean, arrived: () => void): Promise<EventEnvelope[]> => {
  const got: EventEnvelope[] = [];
  let done = false;
  while (!done && !over()) {
    const last = got.at(-1)?.id;
    try {
      const answer = await world.open('POST', '/v1/chat', { token, json: chatBody(session, `/slow 15 ${words}`, { message_id: `m-${session}` }), headers: last === undefined ? {} : { 'last-event-id': last } });
      if (answer.statusCode !== 200) {
        assert.ok([401, 429, 500, 502, 503, 504].includes(answer.statusCode ?? 0), `${session}: ${answer.statusCode}`);
        answer.resume();
        continue;
      }
      for await (const { event, data } of framesOf(answer)) {
        if (event === 'done') done = true;
        else got.push(eventEnvelope.parse(JSON.parse(data)));
        arrived();
      }
    } catch (error) {
      // Cut, with its daemon or the link to it; what was not cut is a failure.
      if (error instanceof assert.AssertionError || error instanceof SyntaxError) throw error;
    }
  }
  return got;
};

test('attack deployments - daemons and NATS killed under twenty turns, appends and documents: each stream whole and as the journal, nothing twice; then the deployment ends under load, and what it had is erased [RUN-017] [JRN-018]', { timeout: 400_000 }, async (t) => {
  const world = await startDeployment(t, { daemons: 2, gateways: 2 });
  const { key: token } = world;
  let over = false;
  const isOver = (): boolean => over;
  let arrivals = 0;
  let wake = (): void => undefined;
  const arrived = (): void => { arrivals += 1; wake(); };
  const next = (count: number, unless: Promise<unknown>): Promise<unknown> => {
    const wanted = arrivals + count;
    return Promise.race([unless, new Promise<void>((resolve) => { wake = () => { if (arrivals >= wanted) resolve(); }; })]);
  };

  const turns = Promise.all(Array.from({ length: sessions }, (_, n) => turnOf(world, `s${n}`, token, isOver, arrived)));
  const appended = new Map<string, string>();
  let turning = true;
  const appending = Promise.all(Array.from({ length: 8 }, async (_, writer) => {
    for (let n = 0; turning; n++) {
      const events = [0, 1, 2].map((part) => ({ kind: 'K', payload: { writer, n, part }, idempotency_key: `${writer}-${n}-${part}` }));
      const reply = await insist(world, 'POST', '/v1/journal/append', { token, json: { stream_id: 'kills', events }, gateway: writer % 2 }, isOver);
      assert.equal(reply?.status, 201);
      for (const [part, { id }] of appendAnswer.parse(reply.json).events.entries()) appended.set(`${writer}-${n}-${part}`, id);
    }
  }));
  const storing = (async (): Promise<number> => {
    let n = 0;
    for (; turning; n++) {
      assert.ok([200, 201].includes((await insist(world, 'POST', '/v1/knowledge/documents', { token, json: { path: `k${n}.md`, content: `killed note ${n}` } }, isOver))?.status ?? 0));
      assert.ok([200, 201].includes((await insist(world, 'POST', '/v1/blobs', { token, body: `blob ${n}`, headers: { 'content-type': 'text/plain' } }, isOver))?.status ?? 0));
    }
    return n;
  })();
  // One after the other, as the streams go on in between.
  await next(40, turns);
  for (const daemon of world.daemons) {
    await daemon.kill();
    await daemon.start();
    await next(40, turns);
  }
  await world.nats.kill();
  await world.nats.restart();
  await next(40, turns);
  const streamed = await turns;
  turning = false;
  await appending;
  const documents = await storing;

  for (const [n, got] of streamed.entries()) {
    const reply = await insist(world, 'GET', `/v1/sessions/s${n}/events?limit=1000`, { token }, isOver);
    const { events } = Object(reply?.json) as { readonly events: EventEnvelope[] };
    assert.deepEqual(got, events, `s${n}`);
    assert.equal(textOf(got), numbered(words), `s${n}`);
    for (const kind of ['UserMessage', 'RunStarted', 'RunFinished', 'AssistantMessage']) assert.equal(got.filter((event) => event.kind === kind).length, 1, `s${n} ${kind}`);
  }
  const page = await insist(world, 'GET', '/v1/journal/events?stream_id=kills&limit=10000', { token }, isOver);
  const { events: stored } = Object(page?.json) as { readonly events: EventEnvelope[] };
  assert.deepEqual(stored.map(({ id }) => id), [...appended.values()].toSorted());
  for (const { id, payload } of stored) assert.equal(appended.get(`${String(payload['writer'])}-${String(payload['n'])}-${String(payload['part'])}`), id);
  const found = await insist(world, 'GET', '/v1/knowledge/search?q=killed&limit=100', { token }, isOver);
  assert.equal((Object(found?.json) as { readonly results: unknown[] }).results.length, Math.min(100, documents));

  // The same again, and in the middle of it the deployment ends.
  const load = [
    ...Array.from({ length: sessions }, (_, n) => turnOf(world, `end${n}`, token, isOver, arrived)),
    ...Array.from({ length: 4 }, async (_, writer) => {
      for (let n = 0; !over; n++) {
        await world.service('POST', '/v1/journal/append', { token, json: { stream_id: `end${writer}-${n}`, events: [{ kind: 'K', payload: { n } }] } }).catch(() => undefined);
        await world.service('POST', '/v1/memory', { token, json: { session_id: `memory${writer}-${n}`, fact: 'f', source: 's', relevance: 1 } }).catch(() => undefined);
        await world.service('POST', '/v1/blobs', { token, body: `end ${writer} ${n}` }).catch(() => undefined);
        await world.service('POST', '/v1/knowledge/documents', { token, json: { path: `end${writer}-${n}.md`, content: 'x' } }).catch(() => undefined);
      }
    }),
  ];
  await next(60, Promise.all(load));
  const ended = await world.api('DELETE', deploymentsRoutes.deployments.path, { token: world.owner.accessToken, json: { orgId: world.org.id, id: world.id } });
  assert.ok(ended.status < 300, ended.body);
  assert.equal((await insist(world, 'GET', '/v1/sessions', { token }, isOver))?.status, 401);
  over = true;
  await Promise.all(load);

  const nc = await connect({ servers: world.nats.url });
  t.after(() => nc.close());
  const { lean } = createNatsStores(nc, { partitions: 64, journalStreams: 1, replicas: 1 });
  const org = encodeToken(world.org.id);
  const left = async (): Promise<string[]> => {
    const all: string[] = [];
    for (const type of ['session', 'agent', 'stream', 'knowledge', 'regulation']) {
      for await (const subject of subjectsOf(lean, streams.journal(0, 1), `journal.*.${org}.${type}.*`)) all.push(subject);
      for await (const subject of subjectsOf(lean, streams.snapshot, `snapshot.*.${org}.${type}.*`)) all.push(subject);
    }
    for await (const subject of subjectsOf(lean, 'OBJ_blobs', `$O.blobs.C.${org}.>`)) all.push(subject);
    return all;
  };
  const journals = await openJournals(world.nats.url);
  t.after(() => journals.close());
  await journals.until({ org: world.org.id, type: 'deployment', key: world.id }, (events) => events.some(({ k }) => k === 'DeploymentErased'));
  // What was admitted before and written after is erased in the second pass, `limits.eraseAgainMs` later: at most what was under way.
  const remains = await left();
  t.diagnostic(`left for the second pass: ${remains.join(' ')}`);
  assert.ok(remains.length <= 2 * load.length, remains.join(' '));
});
