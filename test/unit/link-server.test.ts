/** The daemon's end of the link against a gateway driven frame by frame (contracts/link.ts L1-L7, link-peer.ts P1-P4). */
import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { createLinkServer, type LinkServer, type LinkServerOptions } from '../../actors/daemon/link.ts';
import type { Call } from '../../actors/daemon/link-call.ts';
import type { PeerHandlers } from '../../actors/daemon/link-peer.ts';
import type { Stream, StreamEvents } from '../../actors/daemon/link-stream.ts';
import { coded, refuse } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { decodeClose, decodeData, decodeResponse, encodeClose, encodeCredit, encodeFrame, encodeRequest, frameType, type Frame } from '../../contracts/link.ts';
import { routes } from '../../contracts/routes.ts';
import { connectLink } from '../../gateway/link.ts';
import { recorder, silent } from '../harness/log.ts';
import { rawGateway, type RawGateway } from '../harness/raw-gateway.ts';
import { runSeed, seeded } from '../harness/seed.ts';

const { wire } = routes.createSession;
const stream = routes.stream.wire;

interface Setup {
  readonly server: LinkServer;
  readonly socketPath: string;
  readonly gateway: () => Promise<RawGateway>;
}

const setUp = async (t: TestContext, handlers: Partial<PeerHandlers> = {}, options: Partial<LinkServerOptions> = {}): Promise<Setup> => {
  const folder = await mkdtemp(join(tmpdir(), 'troupe-server-'));
  const socketPath = join(folder, 'd0.sock');
  const server = createLinkServer({
    release: 'test', host: 'h', partitions: 64, log: silent,
    handlers: { request: async (call) => ({ status: 200, body: call.body.toString() }), open: () => undefined, ...handlers },
    ...options,
  });
  const listener = createServer({ pauseOnConnect: true }, (socket) => server.accept(socket));
  await new Promise<void>((resolve) => void listener.listen(socketPath, resolve));
  t.after(async () => {
    server.close();
    await new Promise<void>((resolve) => void listener.close(() => resolve()));
    await rm(folder, { recursive: true, force: true });
  });
  const gateway = async (): Promise<RawGateway> => {
    const raw = await rawGateway(socketPath);
    t.after(() => raw.socket.destroy());
    raw.hello();
    await raw.until(frameType.owns);
    return raw;
  };
  return { server, socketPath, gateway };
};

const answerOf = (frame: Frame): { status: number; body: string } => {
  const { status, body } = decodeResponse(frame.payload);
  return { status, body: body.toString() };
};

/** A stream server that hands out its streams with the texts they get. */
const streams = () => {
  const opened: { stream: Stream; texts: string[]; ended: Promise<void>; room: () => Promise<void> }[] = [];
  const waits: (() => void)[] = [];
  const open = (s: Stream): void => {
    const texts: string[] = [];
    const ended = Promise.withResolvers<void>();
    let room = Promise.withResolvers<void>();
    const events: StreamEvents = {
      onText: (text) => void texts.push(text),
      onRoom: () => { room.resolve(); room = Promise.withResolvers<void>(); },
      onEnd: () => ended.resolve(),
    };
    opened.push({ stream: s, texts, ended: ended.promise, room: () => room.promise });
    s.listen(events);
    for (const wait of waits.splice(0)) wait();
  };
  const nth = async (n: number) => {
    while (opened.length <= n) await new Promise<void>((resolve) => waits.push(resolve));
    const found = opened[n];
    assert.ok(found);
    return found;
  };
  return { open, nth };
};

test('link server - says hello and what it owns, and tells every gateway when that changes', async (t) => {
  const { server, socketPath } = await setUp(t);
  server.own([1, 2]);
  const raw = await rawGateway(socketPath);
  t.after(() => raw.socket.destroy());
  raw.hello();
  const hello: unknown = JSON.parse((await raw.until(frameType.hello)).payload.toString());
  assert.deepEqual(hello, { version: 1, role: 'daemon', release: 'test', pid: process.pid, host: 'h', partitions: 64 });
  assert.deepEqual(JSON.parse((await raw.until(frameType.owns)).payload.toString()), { partitions: [1, 2] });
  server.own([3]);
  assert.deepEqual(JSON.parse((await raw.until(frameType.owns)).payload.toString()), { partitions: [3] });
});

test('link server - nothing is served before hello', async (t) => {
  const seen: Call[] = [];
  const { socketPath } = await setUp(t, { request: async (call) => { seen.push(call); return { status: 200, body: '' }; } });
  const raw = await rawGateway(socketPath);
  raw.request(1, wire, '{}');
  await raw.closed;
  assert.deepEqual([seen, raw.frames], [[], []]);
});

test('link server - a gateway of another version hears why and is closed', async (t) => {
  const log = recorder();
  const { socketPath } = await setUp(t, {}, { log });
  const raw = await rawGateway(socketPath);
  raw.hello(7);
  assert.equal((await raw.until(frameType.goaway)).payload.toString(), 'version_mismatch');
  assert.equal(raw.frames[0]?.type, frameType.hello);
  await raw.closed;
  assert.match(JSON.stringify(log.lines), /link version 7, this daemon 1/);
});

test('link server - a connection without hello is closed after its time', async (t) => {
  const { socketPath } = await setUp(t, {}, { helloMs: 10 });
  const raw = await rawGateway(socketPath);
  await raw.closed;
});

test('link server - a silent gateway is closed after three ping times, one that pings is kept', async (t) => {
  const { gateway } = await setUp(t, {}, { pingMs: 15 });
  const silentOne = await gateway();
  const pinging = await gateway();
  const timer = setInterval(() => pinging.write(encodeFrame(frameType.ping, 0)), 5);
  t.after(() => clearInterval(timer));
  await silentOne.closed;
  await pinging.until(frameType.pong);
  assert.equal(pinging.socket.destroyed, false);
});

test('link server - a request cut at every byte is answered all the same', async (t) => {
  const { gateway } = await setUp(t);
  const raw = await gateway();
  const bytes = encodeRequest(frameType.request, 5, { route: wire, deadlineMs: 1_000, token: 'tok', body: '{"cut":1}' });
  for (let cut = 0; cut <= bytes.length; cut++) {
    raw.write(bytes.subarray(0, cut));
    await new Promise((resolve) => setImmediate(resolve));
    raw.write(bytes.subarray(cut));
    assert.deepEqual(answerOf(await raw.until(frameType.response, 5)), { status: 200, body: '{"cut":1}' }, `cut at ${cut}`);
  }
});

test('link server - a route that is not in the closed table is refused by code', async (t) => {
  const { gateway } = await setUp(t);
  const raw = await gateway();
  for (const route of [0, 99, 999, 65_535]) {
    raw.request(route + 1, route, '{}');
    const { status, body } = answerOf(await raw.until(frameType.response, route + 1));
    assert.equal(status, 404);
    assert.equal(JSON.parse(body).code, 'unknown_route');
  }
  // A request route cannot be opened as a stream.
  raw.request(9, wire, '{}', { open: true });
  assert.equal(decodeClose((await raw.until(frameType.close, 9)).payload).code, 1011);
});

test('link server - coded errors keep code and status, everything else is internal_error without its text', async (t) => {
  const failures: unknown[] = [coded('session_not_found'), refuse('insufficient_funds', 'The balance is 3.'), new Error('password=hunter2'), 'text'];
  const { gateway } = await setUp(t, { request: async () => { throw failures.shift(); } });
  const raw = await gateway();
  const seen = [];
  for (let id = 1; id <= 4; id++) {
    raw.request(id, wire, '{}');
    const { status, body } = answerOf(await raw.until(frameType.response, id));
    seen.push([status, JSON.parse(body).code]);
    assert.doesNotMatch(body, /hunter2/);
  }
  assert.deepEqual(seen, [[404, 'session_not_found'], [400, 'insufficient_funds'], [500, 'internal_error'], [500, 'internal_error']]);
});

test('link server - a handler past its deadline is abandoned with 504 and its signal fires; its late answer goes nowhere', async (t) => {
  const aborted = Promise.withResolvers<unknown>();
  const late = Promise.withResolvers<void>();
  const { gateway } = await setUp(t, {
    request: async (call) => {
      if (call.body.toString() === 'fast') return { status: 200, body: 'fast' };
      call.signal.addEventListener('abort', () => aborted.resolve(call.signal.reason));
      await late.promise;
      return { status: 200, body: 'late' };
    },
  });
  const raw = await gateway();
  raw.request(1, wire, 'slow', { deadlineMs: 30 });
  const { status, body } = answerOf(await raw.until(frameType.response, 1));
  assert.deepEqual([status, JSON.parse(body).code], [504, 'deadline_exceeded']);
  assert.equal((await aborted.promise as { code?: string }).code, 'deadline_exceeded');
  late.resolve();
  raw.request(2, wire, 'fast');
  await raw.until(frameType.response, 2);
  assert.equal(raw.frames.filter((f) => f.type === frameType.response).length, 2);
});

test('link server - a cancel fires the signal and nothing is answered; so does the loss of the gateway', async (t) => {
  const calls: { call: Call; aborted: Promise<unknown> }[] = [];
  let arrived = Promise.withResolvers<void>();
  const { gateway } = await setUp(t, {
    request: (call) => {
      const aborted = Promise.withResolvers<unknown>();
      call.signal.addEventListener('abort', () => aborted.resolve(call.signal.reason));
      calls.push({ call, aborted: aborted.promise });
      arrived.resolve();
      return aborted.promise.then(() => ({ status: 200, body: 'late' }));
    },
  });
  const raw = await gateway();
  raw.request(1, wire, '{}');
  await arrived.promise;
  raw.write(encodeFrame(frameType.cancel, 1));
  await calls[0]?.aborted;
  arrived = Promise.withResolvers<void>();
  raw.request(2, wire, '{}');
  await arrived.promise;
  raw.socket.destroy();
  await calls[1]?.aborted;
  assert.equal(raw.frames.filter((f) => f.type === frameType.response).length, 0);
});

test('link server - an id in use, a frame of the daemon\'s own kind and a bad credit end the connection', async (t) => {
  const { gateway } = await setUp(t, { request: () => new Promise(() => undefined) });
  const wrong: ((raw: RawGateway) => void)[] = [
    (raw) => { raw.request(1, wire, '{}'); raw.request(1, wire, '{}'); },
    (raw) => { raw.request(1, stream, '{}', { open: true }); raw.request(1, wire, '{}'); },
    (raw) => raw.write(encodeFrame(frameType.response, 1, 'xx')),
    (raw) => raw.write(encodeFrame(frameType.owns, 0, '{}')),
    (raw) => raw.hello(),
    (raw) => raw.write(encodeFrame(frameType.credit, 1, 'xyz')),
    (raw) => raw.write(encodeFrame(frameType.request, 1, 'short')),
    (raw) => raw.write(Buffer.from([0xff, 0xff, 0xff, 0xff, 1])),
    (raw) => raw.write(Buffer.from([0, 0, 0, 4, 1, 0, 0, 0, 0])),
  ];
  for (const send of wrong) {
    const raw = await gateway();
    send(raw);
    await raw.closed;
  }
});

test('link server - noise from a gateway ends that connection only', async (t) => {
  const seed = runSeed();
  t.diagnostic(`seed ${seed}`);
  const random = seeded(seed);
  const { gateway } = await setUp(t);
  const good = await gateway();
  for (let round = 0; round < 60; round++) {
    const raw = await gateway();
    const valid = encodeRequest(frameType.request, 1, { route: wire, deadlineMs: 100, token: 'tok', body: '{}' });
    const bytes = random() < 0.5 ? Buffer.from(valid) : Buffer.from(Array.from({ length: 64 }, () => Math.floor(random() * 256)));
    for (let i = 0; i < 3; i++) bytes[Math.floor(random() * bytes.length)] = Math.floor(random() * 256);
    raw.write(bytes);
    raw.socket.end();
    await raw.closed;
  }
  good.request(1, wire, 'still');
  assert.equal(answerOf(await good.until(frameType.response, 1)).body, 'still');
});

test('link server - credit is counted exactly, and grants are told to the stream', async (t) => {
  const served = streams();
  const { gateway } = await setUp(t, { open: served.open });
  const raw = await gateway();
  raw.request(7, stream, '{}', { open: true });
  const { stream: s, room } = await served.nth(0);
  assert.equal(s.credit, limits.linkInitialCreditBytes);
  const text = Buffer.alloc(limits.linkInitialCreditBytes - 10, 'x');
  s.peer.send([s], [text], text.length);
  assert.deepEqual([s.credit, s.room(10, 1), s.room(11, 1)], [10, true, false]);
  const data = decodeData((await raw.until(frameType.data)).payload);
  assert.deepEqual([data.streams, data.bytes], [[7], text.length]);
  const more = room();
  raw.write(encodeCredit(7, 5));
  await more;
  assert.deepEqual([s.credit, s.room(15, 2), s.room(16, 1)], [15, true, false]);
});

test('link server - one frame reaches many streams of a gateway, and none that was closed', async (t) => {
  const served = streams();
  const { gateway } = await setUp(t, { open: served.open });
  const raw = await gateway();
  for (const id of [1, 2, 3]) raw.request(id, stream, '{}', { open: true });
  const all = [(await served.nth(0)).stream, (await served.nth(1)).stream, (await served.nth(2)).stream];
  raw.write(encodeClose(2, 1000, 'normal'));
  await (await served.nth(1)).ended;
  const peer = all[0]?.peer;
  assert.ok(peer);
  peer.send(all, [Buffer.from('a'), Buffer.from('b')], 2);
  const data = decodeData((await raw.until(frameType.data)).payload);
  assert.deepEqual([data.streams, data.texts.map(String)], [[1, 3], ['a', 'b']]);
});

test('link server - texts that come before anybody listens are kept in order; an end before is told at once', async (t) => {
  const held: Stream[] = [];
  const seen = Promise.withResolvers<void>();
  const { gateway } = await setUp(t, { open: (s) => void held.push(s), request: async () => { seen.resolve(); return { status: 200, body: '' }; } });
  const raw = await gateway();
  raw.request(1, stream, '{}', { open: true });
  raw.write(encodeFrame(frameType.data, 1, 'one'), encodeFrame(frameType.data, 1, 'two'));
  raw.request(2, stream, '{}', { open: true });
  raw.write(encodeClose(2, 1000, 'normal'));
  raw.request(3, wire, '{}');
  await seen.promise;
  const got: string[] = [];
  let ended = 0;
  const events = { onText: (text: string) => void got.push(text), onRoom: () => undefined, onEnd: () => { ended += 1; } };
  held[0]?.listen(events);
  assert.deepEqual([got, ended], [['one', 'two'], 0]);
  held[1]?.listen(events);
  assert.deepEqual([got, ended], [['one', 'two'], 1]);
});

test('link server - too many early texts end the stream with 4004, a text over 64 KiB ends it with 1009', async (t) => {
  const { gateway } = await setUp(t);
  const raw = await gateway();
  raw.request(1, stream, '{}', { open: true });
  for (let i = 0; i <= limits.linkStreamCommandsMax; i++) raw.write(encodeFrame(frameType.data, 1, 'x'));
  assert.equal(decodeClose((await raw.until(frameType.close, 1)).payload).code, 4004);
  raw.request(2, stream, '{}', { open: true });
  raw.write(encodeFrame(frameType.data, 2, 'x'.repeat(limits.clientFrameMaxBytes + 1)));
  assert.deepEqual(decodeClose((await raw.until(frameType.close, 2)).payload), { code: 1009, reason: 'too_big' });
});

test('link server - a gateway that takes no bytes is full at the high-water mark, and told of when it drains', async (t) => {
  const served = streams();
  const drained = Promise.withResolvers<void>();
  const { gateway } = await setUp(t, { open: served.open }, { onDrain: () => drained.resolve() });
  const raw = await gateway();
  raw.request(1, stream, '{}', { open: true });
  const { stream: s } = await served.nth(0);
  raw.socket.pause();
  const text = Buffer.alloc(128 * 1024, 'x');
  let sent = 0;
  while (!s.peer.full) {
    s.peer.send([s], [text], text.length);
    sent += text.length;
    await new Promise((resolve) => setImmediate(resolve));
    assert.ok(sent < 2 * limits.linkHighWaterBytes + 4 * 1024 * 1024, 'never full');
  }
  raw.socket.resume();
  await drained.promise;
  assert.equal(s.peer.full, false);
});

test('link server - drain: goaway, what runs is answered, new requests are draining, new streams 4004, then 1001', async (t) => {
  const served = streams();
  const finish = Promise.withResolvers<void>();
  const arrived = Promise.withResolvers<void>();
  const { server, gateway } = await setUp(t, { open: served.open, request: async () => { arrived.resolve(); await finish.promise; return { status: 200, body: 'done' }; } });
  const raw = await gateway();
  raw.request(1, wire, '{}');
  raw.request(2, stream, '{}', { open: true });
  await Promise.all([arrived.promise, served.nth(0)]);
  let over = false;
  const drain = server.drain().then(() => { over = true; });
  await raw.until(frameType.goaway);
  raw.request(3, wire, '{}');
  assert.equal(JSON.parse(answerOf(await raw.until(frameType.response, 3)).body).code, 'draining');
  raw.request(4, stream, '{}', { open: true });
  assert.equal(decodeClose((await raw.until(frameType.close, 4)).payload).code, 4004);
  assert.equal(over, false);
  finish.resolve();
  assert.equal(answerOf(await raw.until(frameType.response, 1)).body, 'done');
  await drain;
  const late = await gateway();
  await late.until(frameType.goaway);
  server.close();
  assert.deepEqual(decodeClose((await raw.until(frameType.close, 2)).payload), { code: 1001, reason: 'going_away' });
  await (await served.nth(0)).ended;
  await raw.closed;
});

test('link server - both ends together: ten thousand calls over one connection, each with its own answer', async (t) => {
  const { socketPath } = await setUp(t);
  const link = connectLink({ socketPath, release: 'test', log: silent });
  t.after(() => link.close());
  await new Promise<void>((resolve) => void link.onState((state) => { if (state.connected === 1) resolve(); }));
  const answers = await Promise.all(Array.from({ length: 10_000 }, (_, i) => link.request(routes.createSession, { token: '', body: `${i}` }).then((a) => a.body.toString())));
  assert.deepEqual(answers, answers.map((_, i) => `${i}`));
});
