/** The gateway's link against a scripted peer on a real Unix socket (contracts/link.ts L1-L7, link-connection.ts C1-C4). */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { limits } from '../../contracts/limits.ts';
import { CodedError } from '../../contracts/errors.ts';
import { encodeData, encodeFrame, encodeResponse, FrameReader, frameType, type Frame } from '../../contracts/link.ts';
import { routes } from '../../contracts/routes.ts';
import { ask, connected, hasCode, linked, opened, pair, silent, started } from '../harness/link-pair.ts';
import { seeded } from '../harness/seed.ts';

test('link - a request carries route, token, deadline and body, and its answer comes back', async (t) => {
  const { peer, link } = await pair(t);
  peer.on.request = (r) => r.answer(201, { route: r.route?.id, token: r.token, json: r.json, deadlineMs: r.deadlineMs });
  const answer = await link.request(routes.createSession, { ...ask, deadlineMs: 4_321 });
  assert.equal(answer.status, 201);
  assert.deepEqual(JSON.parse(answer.body.toString()), { route: 'create_session', token: 'token', json: { n: 1 }, deadlineMs: 4_321 });
});

test('link - frames cut at every byte give the same answers and texts', async (t) => {
  const { peer, link } = await pair(t);
  const bytesFor = (requestId: number, streamId: number): Buffer => Buffer.concat([
    encodeResponse(requestId, 200, '{"whole":true}'), encodeData([streamId], [Buffer.from('eins'), Buffer.from('zwei')]), encodeFrame(frameType.pong, 0),
  ]);
  const length = bytesFor(1, 1).length;
  for (let cut = 0; cut <= length; cut++) {
    let requestId = 0;
    peer.on.request = (r) => {
      requestId = r.id;
    };
    const asked = peer.arrival(frameType.request);
    const atPeer = peer.opened();
    const answer = link.request(routes.createSession, ask);
    const { received, texts, stream } = opened(link);
    await asked;
    const { peer: connection, id } = await atPeer;
    const bytes = bytesFor(requestId, id);
    connection.raw(bytes.subarray(0, cut));
    // A turn of the event loop keeps the two writes apart.
    await new Promise((resolve) => setImmediate(resolve));
    connection.raw(bytes.subarray(cut));
    assert.equal((await answer).body.toString(), '{"whole":true}', `cut at ${cut}`);
    await received(2);
    assert.deepEqual(texts, ['eins', 'zwei'], `cut at ${cut}`);
    stream.close(1000, 'normal');
  }
});

test('link - the frame reader gives the same frames however the bytes are cut', () => {
  const seed = Number(process.env['SEED'] ?? Date.now() % 1_000_000);
  const next = seeded(seed);
  for (let round = 0; round < 200; round++) {
    const sent = Array.from({ length: 1 + Math.floor(next() * 20) }, (_, i) => ({ type: frameType.data, id: i, payload: Buffer.alloc(Math.floor(next() * (next() < 0.1 ? 200_000 : 64)), i + 1) }));
    const bytes = Buffer.concat(sent.map((f) => encodeFrame(f.type, f.id, f.payload)));
    const got: Frame[] = [];
    const reader = new FrameReader((f) => got.push({ ...f, payload: Buffer.from(f.payload) }));
    for (let at = 0; at < bytes.length;) {
      const size = 1 + Math.floor(next() * (next() < 0.5 ? 8 : 50_000));
      reader.push(bytes.subarray(at, at + size));
      at += size;
    }
    assert.deepEqual(got, sent, `seed ${seed}, round ${round}`);
  }
});

test('link - garbage from the daemon ends the connection, every call and every stream exactly once, never the process', async (t) => {
  const seed = Number(process.env['SEED'] ?? Date.now() % 1_000_000);
  t.diagnostic(`seed ${seed}`);
  const next = seeded(seed);
  const peer = await started(t);
  for (let round = 0; round < 40; round++) {
    const link = linked(t, peer.socketPath);
    await connected(link, 1);
    const atPeer = peer.opened();
    const answer = link.request(routes.createSession, ask);
    const { ended } = opened(link);
    const { peer: connection, id } = await atPeer;
    // A valid frame with bytes changed, or plain noise; the peer then closes, so that what survives ends too.
    const bytes = next() < 0.5 ? encodeData([id], [Buffer.from('text')]) : Buffer.from(Array.from({ length: 40 }, () => Math.floor(next() * 256)));
    for (let i = 0; i < 4; i++) bytes[Math.floor(next() * bytes.length)] = Math.floor(next() * 256);
    connection.raw(bytes);
    await new Promise((resolve) => setImmediate(resolve));
    connection.destroy();
    const [result, end] = await Promise.all([answer.then(() => 'answered', (error: unknown) => error), ended]);
    assert.ok(result === 'answered' || hasCode('upstream_unavailable')(result), `seed ${seed}, round ${round}: ${String(result)}`);
    assert.ok(typeof end.code === 'number');
    link.close();
  }
});

test('link - a frame over the limit closes the connection', async (t) => {
  const { peer, link } = await pair(t);
  const connection = peer.connections[0];
  assert.ok(connection);
  const answer = link.request(routes.createSession, ask);
  const refused = assert.rejects(answer, hasCode('upstream_unavailable'));
  const head = Buffer.alloc(9);
  head.writeUInt32BE(limits.linkFrameMaxBytes + 1);
  connection.raw(head);
  await Promise.all([connection.ended, refused]);
});

test('link - a frame of unknown type, or of the gateway\'s own kind, closes the connection', async (t) => {
  const peer = await started(t);
  for (const type of [0, 13, 255, frameType.request, frameType.credit, frameType.cancel, frameType.open, frameType.hello]) {
    const link = linked(t, peer.socketPath);
    await connected(link, 1);
    const connection = peer.connections.at(-1);
    assert.ok(connection);
    const frame = encodeFrame(frameType.pong, 0);
    frame.writeUInt8(type, 4);
    connection.raw(frame);
    await connection.ended;
    link.close();
  }
});

test('link - a daemon of another version is refused by name and never asked', async (t) => {
  const warned = Promise.withResolvers<object>();
  const peer = await started(t, { version: 2 });
  const link = linked(t, peer.socketPath, { log: { ...silent, warn: (fields) => warned.resolve(fields) } });
  const fields = await warned.promise;
  assert.match(JSON.stringify(fields), /version_mismatch.*speaks link version 2, this gateway 1/);
  assert.equal(link.state().connected, 0);
  await assert.rejects(link.request(routes.createSession, ask), hasCode('upstream_unavailable'));
});

test('link - a daemon that accepts but says no hello is given up and dialled again', async (t) => {
  const peer = await started(t, { hello: false });
  const first = peer.arrival(frameType.hello);
  linked(t, peer.socketPath, { helloMs: 20 });
  await first;
  await peer.arrival(frameType.hello);
});

test('link - [UDS-006] [UDS-007] a request without an answer ends at its deadline with 504 upstream_timeout, and is cancelled', async (t) => {
  const { peer, link } = await pair(t);
  const cancelled = peer.arrival(frameType.cancel);
  let asked = -1;
  peer.on.request = (r) => {
    asked = r.id;
  };
  const began = performance.now();
  await assert.rejects(link.request(routes.createSession, { ...ask, deadlineMs: 120 }), (error) => hasCode('upstream_timeout')(error) && error instanceof CodedError && error.entry.http === 504);
  assert.ok(performance.now() - began >= 120, 'not before its deadline');
  assert.equal((await cancelled).id, asked);
});

test('link - [UDS-006] a request that names no deadline is given 10 seconds', async (t) => {
  const { peer, link } = await pair(t);
  peer.on.request = (r) => r.answer(200, r.deadlineMs);
  assert.equal((await link.request(routes.createSession, ask)).body.toString(), '10000');
});

test('link - an answer that comes after the deadline or the cancel is dropped', async (t) => {
  const { peer, link } = await pair(t);
  const late: (() => void)[] = [];
  peer.on.request = (r) => void late.push(() => r.answer(200, 'late'));
  await assert.rejects(link.request(routes.createSession, { ...ask, deadlineMs: 20 }), hasCode('upstream_timeout'));
  for (const answer of late) answer();
  peer.on.request = (r) => r.answer(200, 'in time');
  assert.equal((await link.request(routes.createSession, ask)).body.toString(), '"in time"');
});

test('link - an abort rejects at once and sends a cancel for that request only', async (t) => {
  const { peer, link } = await pair(t);
  const controller = new AbortController();
  const asked = peer.arrival(frameType.request);
  const cancelled = peer.arrival(frameType.cancel);
  const answer = link.request(routes.createSession, { ...ask, signal: controller.signal });
  const refused = assert.rejects(answer, hasCode('aborted'));
  const { id } = await asked;
  controller.abort();
  await refused;
  assert.equal((await cancelled).id, id);
  await assert.rejects(link.request(routes.createSession, { ...ask, signal: controller.signal }), hasCode('aborted'));
});

test('link - texts both ways arrive in order; one frame reaches many streams; a close ends exactly that one', async (t) => {
  const { peer, link } = await pair(t);
  const atPeer = [peer.opened()];
  const one = opened(link);
  const first = await atPeer[0];
  const next = peer.opened();
  const two = opened(link);
  const second = await next;
  assert.ok(first);
  first.peer.multicast([first, second], 'a', 'b');
  second.send('c');
  await Promise.all([one.received(2), two.received(3)]);
  assert.deepEqual([one.texts, two.texts], [['a', 'b'], ['a', 'b', 'c']]);
  one.stream.send('up 1');
  one.stream.send(Buffer.from('up 2'));
  assert.deepEqual([await first.next(), await first.next()], ['up 1', 'up 2']);
  second.close(4010, 'session_not_found');
  assert.deepEqual(await two.ended, { code: 4010, reason: 'session_not_found' });
  one.stream.close(1000, 'normal');
  assert.deepEqual(await first.ended, { code: 1000, reason: 'normal' });
  one.stream.send('after the end');
  one.stream.credit(10);
  peer.on.request = (r) => r.answer(200, first.received.length);
  assert.equal((await link.request(routes.createSession, ask)).body.toString(), '2');
});

test('link - a daemon that sends one byte more than the credit loses the connection; exactly the credit is taken', async (t) => {
  const { peer, link } = await pair(t);
  const atPeer = peer.opened();
  const { stream, received, ended } = opened(link);
  const daemon = await atPeer;
  const half = 'x'.repeat(limits.linkInitialCreditBytes / 2);
  daemon.send(half, half);
  await received(2);
  stream.credit(10);
  await daemon.grantedAtLeast(10);
  daemon.send('y'.repeat(10));
  await received(3);
  stream.credit(10);
  await daemon.grantedAtLeast(20);
  daemon.send('z'.repeat(11));
  assert.deepEqual(await ended, { code: 4004, reason: 'upstream_unavailable' });
});

test('link - a text larger than the whole credit may come alone, and is paid back before the next', async (t) => {
  const { peer, link } = await pair(t);
  const atPeer = peer.opened();
  const { stream, received, ended } = opened(link);
  const daemon = await atPeer;
  const big = 'x'.repeat(limits.linkInitialCreditBytes + 1_000);
  daemon.send(big);
  await received(1);
  stream.credit(big.length);
  await daemon.grantedAtLeast(big.length);
  daemon.send(big);
  await received(2);
  daemon.send('z');
  assert.equal((await ended).code, 4004);
});

test('link - drain says goaway, waits for what runs, then closes; nothing new is taken', async (t) => {
  const { peer, link } = await pair(t);
  let finish: () => void = () => undefined;
  peer.on.request = (r) => {
    finish = () => r.answer(200, 'done');
  };
  const asked = peer.arrival(frameType.request);
  const away = peer.arrival(frameType.goaway);
  const running = link.request(routes.createSession, ask);
  await asked;
  const connection = peer.connections[0];
  assert.ok(connection);
  let drained = false;
  const drain = link.drain().then(() => {
    drained = true;
  });
  await away;
  await assert.rejects(link.request(routes.createSession, ask), hasCode('upstream_unavailable'));
  assert.equal(drained, false);
  finish();
  assert.equal((await running).body.toString(), '"done"');
  await Promise.all([drain, connection.ended]);
});

test('link - a daemon that answers no ping loses the connection after two; one that does keeps it', async (t) => {
  const mute = await started(t, { pong: false });
  const link = linked(t, mute.socketPath, { pingMs: 15 });
  await connected(link, 1);
  const connection = mute.connections[0];
  assert.ok(connection);
  await connection.ended;
  assert.equal(connection.seen.filter((f) => f.type === frameType.ping).length, 2);

  const { peer } = await pair(t, {}, { pingMs: 15 });
  const kept = peer.connections[0];
  assert.ok(kept);
  for (let i = 0; i < 6; i++) await peer.arrival(frameType.ping);
  assert.equal(peer.connections[0], kept);
});

test('link - requests beyond the bound in flight are refused with overloaded, and taken again when one has ended', async (t) => {
  const { peer, link } = await pair(t, {}, { deadlineMs: 60_000 });
  const waiting: (() => void)[] = [];
  const all = Promise.withResolvers<void>();
  peer.on.request = (r) => {
    waiting.push(() => r.answer(200, 'ok'));
    if (waiting.length === limits.linkRequestsMax) all.resolve();
  };
  const running = Array.from({ length: limits.linkRequestsMax }, () => link.request(routes.createSession, ask));
  await assert.rejects(link.request(routes.createSession, ask), hasCode('overloaded'));
  await all.promise;
  waiting.shift()?.();
  await running[0];
  const further = link.request(routes.createSession, ask);
  await peer.arrival(frameType.request);
  for (const answer of waiting) answer();
  await Promise.all([...running, further]);
});

test('link - a daemon that reads nothing makes new calls overloaded instead of a growing buffer', async (t) => {
  const { peer, link } = await pair(t, {}, { deadlineMs: 60_000, pingMs: 60_000 });
  const connection = peer.connections[0];
  assert.ok(connection);
  connection.pause();
  const { stream, ended } = opened(link);
  const body = Buffer.alloc(1024 * 1024);
  const outcomes: Promise<unknown>[] = [];
  let refused = 0;
  for (let i = 0; i < 40 && refused === 0; i++) {
    outcomes.push(link.request(routes.putBlob, { token: '', body }).catch((error: unknown) => {
      if (hasCode('overloaded')(error)) refused += 1;
    }));
    await new Promise((resolve) => setImmediate(resolve));
  }
  assert.equal(refused, 1);
  assert.ok(outcomes.length - 1 <= limits.linkQueueMaxBytes / body.length + 2, `${outcomes.length} bodies of 1 MiB were taken`);
  stream.send('lost otherwise');
  assert.deepEqual(await ended, { code: 4004, reason: 'upstream_unavailable' });
  link.close();
  await Promise.all(outcomes);
});
