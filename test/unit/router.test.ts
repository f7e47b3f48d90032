/** The router against an engine and a request path that do what the test says. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { gzipSync } from 'node:zlib';
import type { Msg, NatsConnection } from 'nats';
import { z } from 'zod';
import { createRouter, type Actors } from '../../actors/runtime/cluster/router.ts';
import { decodeTell } from '../../actors/runtime/cluster/tell.ts';
import { decodeOwnerRequest, encodeOwnerRequest } from '../../actors/runtime/cluster/wire.ts';
import { defineActor } from '../../actors/runtime/define.ts';
import type { Engine, Message } from '../../actors/runtime/message.ts';
import type { Lean, LeanRequestOptions } from '../../actors/runtime/nats/lean.ts';
import type { Clock } from '../../actors/runtime/store.ts';
import { coded, type ErrorCode } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { partitionOf } from '../../contracts/subjects.ts';

const partitions = 8;
const counter = defineActor({
  type: 'counter',
  events: {},
  initial: () => ({}),
  apply: {},
  commands: (command) => ({ add: command({ input: z.object({ by: z.int() }), output: z.object({ total: z.int() }), handle: () => ({ total: 0 }) }) }),
});
const address = { org: 'dev', type: 'counter', key: 'c1' };
const n = partitionOf(address, partitions);

interface Script {
  /** What each remote request does, in order, the last repeated: a text is an error code, anything else the output. */
  readonly remote?: readonly unknown[];
  readonly deliver?: (message: Message) => Promise<unknown>;
}

interface Rig {
  readonly actors: Actors;
  readonly held: Map<number, number>;
  readonly requests: { subject: string; body: { input?: unknown; id?: string; deadlineMs: number }; options: LeanRequestOptions }[];
  readonly tells: { subject: string; id: string; data: Uint8Array }[];
  nowMs: number;
}

const answer = (output: unknown): Msg => {
  const text = JSON.stringify(output);
  return { subject: '', sid: 0, data: new TextEncoder().encode(text), respond: () => true, json: <T>() => JSON.parse(text) as T, string: () => text };
};

const rig = ({ remote = [], deliver = () => Promise.resolve({}) }: Script): Rig => {
  const held = new Map<number, number>();
  const requests: Rig['requests'] = [];
  const tells: Rig['tells'] = [];
  let nowMs = 0;
  const clock: Clock = { now: () => nowMs, monotonic: () => nowMs };
  const engine: Engine = {
    hold: () => undefined, release: () => Promise.resolve(), held, leaseUntil: () => undefined, forget: async () => 'busy', deliver,
    drain: () => Promise.resolve(), close: () => undefined, closed: Promise.resolve(),
    stats: () => ({ activations: 0, mailbox: 0, turns: 0, commits: 0, effectsRunning: 0 }),
  };
  const lean: Lean = {
    request: (subject, data, options) => {
      requests.push({ subject, body: JSON.parse(new TextDecoder().decode(data as Uint8Array)) as Rig['requests'][number]['body'], options });
      const step = remote[Math.min(requests.length, remote.length) - 1];
      return typeof step === 'string' ? Promise.reject(coded(step as ErrorCode)) : Promise.resolve(answer(step));
    },
    requestMany: () => Promise.reject(new Error('not used')),
    publish: () => true, settled: () => Promise.resolve(), onReconnect: () => () => undefined,
    connected: true, inFlight: 0, close: () => undefined,
    connection: {} as NatsConnection,
  };
  const actors = createRouter({
    partitions, lean, clock, engine: () => engine,
    inbox: { send: (subject, id, data) => { tells.push({ subject, id, data }); return Promise.resolve(); } },
  });
  return { actors, held, requests, tells, get nowMs() { return nowMs; }, set nowMs(ms) { nowMs = ms; } };
};

test('router - an actor elsewhere is asked at its owner\'s address with input, principal and the time left', async () => {
  const r = rig({ remote: [{ total: 3 }] });
  const reply = await r.actors.ref(counter, 'dev', 'c1').ask.add({ by: 3 }, { deadlineMs: 777, principal: { kind: 'integrator', org: 'dev' } });
  assert.deepEqual(reply, { total: 3 });
  assert.equal(r.requests[0]?.subject, `part.${n}.dev.counter.c1.add`);
  assert.deepEqual(r.requests[0]?.body, { input: { by: 3 }, principal: { kind: 'integrator', org: 'dev' }, deadlineMs: 777 });
});

test('router - an actor here is asked without NATS, and neither side can change what the other holds', async () => {
  let got: Message | undefined;
  const state = { total: 1, deep: { list: [1] } };
  const r = rig({ deliver: (message) => { got = message; return Promise.resolve(state); } });
  r.held.set(n, 1);
  const input = { by: 1, nested: { list: [1, 2] } };
  const reply = await r.actors.ask({ address, command: 'add', input, principal: { kind: 'system' } }) as typeof state;
  assert.equal(r.requests.length, 0);
  input.nested.list.push(3);
  assert.deepEqual(got?.input, { by: 1, nested: { list: [1, 2] } });
  reply.deep.list.push(2);
  assert.deepEqual(state.deep.list, [1]);
});

test('router - what certainly did nothing is repeated without an id until it succeeds', async () => {
  const r = rig({ remote: ['no_owner', 'not_owner', 'draining', { total: 1 }] });
  assert.deepEqual(await r.actors.ref(counter, 'dev', 'c1').ask.add({ by: 1 }), { total: 1 });
  assert.equal(r.requests.length, 4);
});

test('router - a partition that leaves this host while it is asked is followed to its new owner', async () => {
  const r = rig({ remote: [{ total: 9 }], deliver: () => { r.held.delete(n); return Promise.reject(coded('not_owner')); } });
  r.held.set(n, 1);
  assert.deepEqual(await r.actors.ref(counter, 'dev', 'c1').ask.add({ by: 1 }), { total: 9 });
});

test('router - a time-out without an id is given to the caller and never repeated', async () => {
  const r = rig({ remote: ['deadline_exceeded', { total: 1 }] });
  await assert.rejects(r.actors.ref(counter, 'dev', 'c1').ask.add({ by: 1 }), { code: 'deadline_exceeded' });
  assert.equal(r.requests.length, 1);
  assert.equal(r.requests[0]?.options.timeoutMs, limits.askDeadlineMs);
});

test('router - a time-out with an id is repeated under the same id, each try bounded by limits.askAttemptMs', async () => {
  const r = rig({ remote: ['deadline_exceeded', 'fenced', 'journal_unavailable', { total: 1 }] });
  assert.deepEqual(await r.actors.ref(counter, 'dev', 'c1').ask.add({ by: 1 }, { idempotencyKey: 'k1' }), { total: 1 });
  assert.deepEqual(r.requests.map(({ body }) => body.id), ['k1', 'k1', 'k1', 'k1']);
  for (const { options } of r.requests) assert.equal(options.timeoutMs, limits.askAttemptMs);
});

test('router - a refusal of the actor is the caller\'s at once, id or not', async () => {
  const r = rig({ remote: ['insufficient_funds'] });
  await assert.rejects(r.actors.ref(counter, 'dev', 'c1').ask.add({ by: 1 }, { idempotencyKey: 'k1' }), { code: 'insufficient_funds' });
  assert.equal(r.requests.length, 1);
});

test('router - repeating ends at the deadline with the last error', async () => {
  const r = rig({ remote: ['no_owner'] });
  const asked = r.actors.ref(counter, 'dev', 'c1').ask.add({ by: 1 }, { deadlineMs: 60 });
  r.nowMs = 59;
  await assert.rejects(asked, { code: 'no_owner' });
});

test('router - an abort ends the wait between two tries', async () => {
  const r = rig({ remote: ['no_owner'] });
  const stop = new AbortController();
  const asked = r.actors.ref(counter, 'dev', 'c1').ask.add({ by: 1 }, { signal: stop.signal });
  setImmediate(() => stop.abort());
  await assert.rejects(asked, { code: 'aborted' });
});

test('router - more than limits.remoteAsksMax waiting asks are refused with overloaded', async () => {
  const r = rig({ remote: ['no_owner'] });
  const ref = r.actors.ref(counter, 'dev', 'c1');
  // One signal each: a signal's listeners are a list that is searched.
  const stops = Array.from({ length: limits.remoteAsksMax }, () => new AbortController());
  const waiting = stops.map(({ signal }) => ref.ask.add({ by: 1 }, { signal }));
  await assert.rejects(ref.ask.add({ by: 1 }), { code: 'overloaded' });
  for (const stop of stops) stop.abort();
  for (const settled of await Promise.allSettled(waiting)) assert.equal(settled.status, 'rejected');
});

test('router - an ask beyond limits.commandPlainMaxBytes and a tell beyond limits.commandMaxBytes are refused before they are sent', async () => {
  const r = rig({ remote: [{}] });
  const ask = (text: string): Promise<unknown> => r.actors.ask({ address, command: 'add', input: { text }, principal: { kind: 'system' } });
  await assert.rejects(ask('x'.repeat(limits.commandPlainMaxBytes)), { code: 'payload_too_large' });
  await assert.rejects(r.actors.tell(address, 'add', { text: 'x'.repeat(limits.commandMaxBytes) }, 'id'), { code: 'payload_too_large' });
  assert.equal(r.requests.length + r.tells.length, 0);
});

test('router - an ask of a host too large for a message is packed, and the host reads what was asked', async () => {
  const input = { text: 'x'.repeat(limits.commandMaxBytes) };
  const data = encodeOwnerRequest({ input, principal: { kind: 'system' }, deadlineMs: 1_000 });
  assert.ok(data.length < limits.commandMaxBytes);
  const message = { data, string: () => Buffer.from(data).toString('utf8') } as unknown as Msg;
  assert.deepEqual(decodeOwnerRequest(message).input, input);
  // A little that becomes much is not read.
  const bomb = gzipSync(Buffer.alloc(limits.commandPlainMaxBytes + 1, 0x20));
  assert.throws(() => decodeOwnerRequest({ data: bomb, string: () => '' } as unknown as Msg), { code: 'bad_request' });
});

test('router - a tell goes to the inbox of the actor\'s partition under its id, also when the actor is here', async () => {
  const r = rig({});
  r.held.set(n, 1);
  await r.actors.ref(counter, 'dev', 'c1').tell.add({ by: 1 }, { id: 'm1' });
  const [sent] = r.tells;
  assert.equal(sent?.subject, `inbox.${n}.dev.counter.c1.add`);
  assert.equal(sent.id, 'm1');
  assert.deepEqual(decodeTell(new TextDecoder().decode(sent.data)), { id: 'm1', input: { by: 1 } });
});
