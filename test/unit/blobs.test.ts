/** What a blob request wants, and the parts that let bodies through in pieces: each driven alone. */
import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { keptType, takesZstd, wantedOf } from '../../actors/daemon/deployment/blob-wants.ts';
import { readFile } from '../../actors/daemon/deployment/multipart.ts';
import { createLinkServer } from '../../actors/daemon/link.ts';
import { RequestBody } from '../../actors/daemon/request-body.ts';
import { blobRoutes } from '../../contracts/blob-routes.ts';
import { coded } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { encodeFrame, frameType } from '../../contracts/link.ts';
import { Bodies } from '../../gateway/bodies.ts';
import { BodySource } from '../../gateway/body-source.ts';
import { ByteQueue } from '../../gateway/byte-queue.ts';
import { SizedBody } from '../../gateway/sized-body.ts';
import { silent } from '../harness/log.ts';
import { rawGateway } from '../harness/raw-gateway.ts';
import { runSeed, seeded } from '../harness/seed.ts';

const hash = `sha256:${createHash('sha256').update('x').digest('hex')}`;
const blob = { hash, size: 100 };

test('blobs - [BLB-012] [BLB-013] a range is one of the content; what is none, or not for this content, is as if it were not there', () => {
  const rangeOf = (range: string, more: Record<string, string> = {}) => {
    const wanted = wantedOf({ range, ...more }, blob);
    return wanted.kind === 'content' && wanted.range !== undefined ? [wanted.range.from, wanted.range.to] : wanted.kind;
  };
  assert.deepEqual(rangeOf('bytes=0-0'), [0, 1]);
  assert.deepEqual(rangeOf('bytes=99-'), [99, 100]);
  assert.deepEqual(rangeOf('bytes=-1'), [99, 100]);
  assert.deepEqual(rangeOf('bytes=-500'), [0, 100]);
  assert.deepEqual(rangeOf('BYTES=1-2'), [1, 3]);
  assert.deepEqual(rangeOf('bytes=1-2', { 'accept-encoding': 'zstd' }), [1, 3]);
  for (const none of ['bytes=2-1', 'bytes=', 'bytes=1', 'bytes=1-2,4-5', 'bytes=1.5-2', 'bytes=0x1-2', 'lines=1-2', 'bytes=9999999999999999-']) assert.equal(rangeOf(none), 'content', none);
  for (const beyond of ['bytes=100-', 'bytes=100-200', 'bytes=-0']) assert.throws(() => rangeOf(beyond), { code: 'range_not_satisfiable', details: { size: 100 } }, beyond);
  assert.equal(rangeOf('bytes=1-2', { 'if-range': '"other"' }), 'content');
  assert.equal(rangeOf('bytes=500-', { 'if-range': '"other"', 'accept-encoding': 'zstd' }), 'packed', 'not even looked at');
});

test('blobs - [BLB-011] [BLB-015] codings and tags are read as RFC 9110 says', () => {
  for (const accept of ['zstd', 'gzip,zstd', 'gzip , ZSTD ; q=0.1']) assert.equal(takesZstd(accept), true, accept);
  for (const accept of ['', '*', 'gzip', 'xzstd', 'zstd;q=0', 'zstd; q=0.0']) assert.equal(takesZstd(accept), false, accept);
  assert.equal(wantedOf({ 'if-none-match': `"a", W/"${hash}"` }, blob).kind, 'same');
  assert.equal(wantedOf({ 'if-none-match': `"${hash}-zstd"` }, blob).kind, 'same');
  assert.equal(wantedOf({ 'if-none-match': `"${hash}x"` }, blob).kind, 'content');
  assert.equal(keptType('text/html; charset=utf-8', 100), 'text/html; charset=utf-8');
  for (const bad of [undefined, '', 'html', 'a/b\r\nset-cookie: x', 'a/b; x=\u0000', `a/${'b'.repeat(200)}`]) assert.equal(keptType(bad, 100), 'application/octet-stream');
});

test('blobs - bytes come out of a queue as they went in, whatever the pieces', (t) => {
  const seed = runSeed();
  t.diagnostic(`seed ${seed}`);
  const random = seeded(seed);
  const queue = new ByteQueue();
  const given = createHash('sha256');
  const taken = createHash('sha256');
  let length = 0;
  for (let i = 0; i < 2_000; i++) {
    const bytes = Buffer.alloc(Math.floor(random() * 70_000), i);
    queue.push(bytes);
    given.update(bytes);
    length += bytes.length;
    for (let n = 0; n < random() * 4; n++) {
      const piece = queue.take(1 + Math.floor(random() * 65_536));
      taken.update(piece);
      length -= piece.length;
    }
    assert.equal(queue.length, length);
  }
  for (let piece = queue.take(1_000_000); piece.length > 0; piece = queue.take(1_000_000)) taken.update(piece);
  assert.equal(taken.digest('hex'), given.digest('hex'));
});

/** A request as the listener would have it. */
const connection = () => {
  let handler: (chunk: ArrayBuffer, isLast: boolean) => void = () => undefined;
  const state = { paused: false };
  return {
    state,
    send: (bytes: Uint8Array, isLast = false): void => handler(new Uint8Array(bytes).buffer, isLast),
    connection: {
      onData: (to: typeof handler) => {
        handler = to;
      },
      pause: () => { state.paused = true; },
      resume: () => { state.paused = false; },
    },
  };
};

test('blobs - a body is read from its client only as far as somebody takes it', async () => {
  const bodies = new Bodies();
  const { state, send, connection: at } = connection();
  const source = new BodySource(at, { maxBytes: 10 * limits.bodyHeldBytes, held: bodies.open(), gone: new AbortController().signal });
  assert.equal(state.paused, true, 'nobody has asked for it');
  const got: number[] = [];
  let ended = false;
  source.start({ piece: (bytes) => got.push(bytes.length), end: () => { ended = true; }, fail: assert.fail });
  assert.equal(state.paused, true);
  source.allow(100);
  assert.equal(state.paused, false);
  send(randomBytes(60));
  assert.deepEqual([got, state.paused], [[60], false]);
  send(randomBytes(100));
  assert.deepEqual([got, state.paused, bodies.bytes], [[60, 40], true, 60]);
  source.allow(10);
  assert.deepEqual([got, state.paused], [[60, 40, 10], true], 'what waits goes first');
  source.allow(1_000_000);
  assert.equal(bodies.bytes, 0);
  send(randomBytes(limits.linkBodyPieceBytes + 1), true);
  assert.deepEqual(got, [60, 40, 10, 50, limits.linkBodyPieceBytes, 1]);
  assert.ok(ended);
  assert.equal(await source.drop(), true);
  assert.equal(state.paused, false, 'the connection can be used again');
});

test('blobs - a body that is too long is refused as soon as that is known, and the rest of a refused body is dropped within bounds', async () => {
  const { state, send, connection: at } = connection();
  const source = new BodySource(at, { maxBytes: 1_000, held: new Bodies().open(), gone: new AbortController().signal });
  const failed: unknown[] = [];
  source.start({ piece: () => undefined, end: () => assert.fail(), fail: (error) => failed.push(error) });
  source.allow(10_000);
  send(randomBytes(1_000));
  assert.equal(failed.length, 0);
  send(randomBytes(1));
  assert.deepEqual(failed.map((error) => (error as { code: string }).code), ['payload_too_large']);
  const dropped = source.drop();
  assert.equal(state.paused, false);
  for (let sent = 0; sent <= limits.bodyDropMaxBytes; sent += 1_048_576) send(Buffer.alloc(1_048_576));
  assert.equal(await dropped, false, 'it has no end');
  const full = connection();
  const held = new Bodies(100).open();
  const other = new BodySource(full.connection, { maxBytes: 1_000, held, gone: new AbortController().signal });
  const codes: string[] = [];
  other.start({ piece: () => assert.fail(), end: () => assert.fail(), fail: (error) => codes.push((error as unknown as { code: string }).code) });
  full.send(randomBytes(101));
  assert.deepEqual(codes, ['overloaded']);
});

test('blobs - an answer of known length leaves in order however little is taken at once, and is cut if it has another', () => {
  const respond = (takes: (bytes: number) => number) => {
    const written: Buffer[] = [];
    const state = { closed: false };
    let offset = 0;
    return {
      written, state,
      response: {
        tryEnd: (piece: Uint8Array, total: number): [boolean, boolean] => {
          const taken = Math.min(piece.length, takes(piece.length));
          written.push(Buffer.from(piece.subarray(0, taken)));
          offset += taken;
          return [taken === piece.length, offset === total];
        },
        getWriteOffset: () => offset,
        cork: (write: () => void) => write(),
        close: () => { state.closed = true; },
      },
    };
  };
  const content = randomBytes(10_000);
  const slow = respond(() => 700);
  const body = new SizedBody(slow.response, content.length);
  let over = false;
  assert.equal(body.write(content.subarray(0, 4_000)), false);
  assert.equal(body.write(content.subarray(4_000)), false, 'waits behind the first');
  body.end(() => { over = true; });
  assert.equal(over, false);
  for (let i = 0; i < 20 && !over; i++) body.flush();
  assert.ok(over);
  assert.ok(Buffer.concat(slow.written).equals(content));
  assert.equal(slow.state.closed, false);

  const short = respond((bytes) => bytes);
  const few = new SizedBody(short.response, 10);
  few.write(randomBytes(9));
  few.end(() => undefined);
  assert.equal(short.state.closed, true, 'fewer than were announced');
  const long = respond((bytes) => bytes);
  new SizedBody(long.response, 10).write(randomBytes(11));
  assert.deepEqual([long.state.closed, long.written.length], [true, 0], 'more than were announced');
});

test('blobs - a body over the link is read once, ahead by its window at most, and ends only when it is said to be complete', async () => {
  const granted: number[] = [];
  const body = new RequestBody((bytes) => granted.push(bytes));
  assert.deepEqual(granted, [], 'nothing before it is read');
  const reader = body[Symbol.asyncIterator]();
  const first = reader.next();
  assert.deepEqual(granted, [limits.linkBodyWindowBytes]);
  body.push(Buffer.alloc(limits.linkBodyWindowBytes / 2, 1));
  assert.equal((await first).value?.length, limits.linkBodyWindowBytes / 2);
  const second = reader.next();
  assert.deepEqual(granted, [limits.linkBodyWindowBytes, limits.linkBodyWindowBytes / 2], 'what was taken is granted again');
  body.push(Buffer.alloc(0));
  assert.equal((await second).done, true);
  await assert.rejects(body[Symbol.asyncIterator]().next(), TypeError);
  const empty = new RequestBody(() => undefined);
  empty.push(Buffer.alloc(0));
  assert.equal((await empty[Symbol.asyncIterator]().next()).done, true, 'empty, and complete before it was read');
  const cut = new RequestBody(() => undefined);
  const waits = cut[Symbol.asyncIterator]().next();
  cut.fail(coded('aborted'));
  await assert.rejects(waits, { code: 'aborted' });
});

test('blobs - a gateway that sends of a body what nobody granted loses its connection', async (t) => {
  const folder = await mkdtemp(join(tmpdir(), 'troupe-body-'));
  const server = createLinkServer({
    release: 'test', host: 'h', partitions: 64, log: silent,
    handlers: {
      request: async () => ({ status: 200, body: '' }),
      open: (stream) => {
        stream.listen({ onText: () => undefined, onRoom: () => undefined, onEnd: () => undefined });
        stream.grant(10);
      },
    },
  });
  const socketPath = join(folder, 'd0.sock');
  const listener = createServer({ pauseOnConnect: true }, (socket) => server.accept(socket));
  await new Promise<void>((resolve) => void listener.listen(socketPath, resolve));
  t.after(async () => {
    server.close();
    await new Promise<void>((resolve) => void listener.close(() => resolve()));
    await rm(folder, { recursive: true, force: true });
  });
  for (const [bytes, complete] of [[[10], true], [[11], false], [[6, 5], false], [[0, 1], false]] as const) {
    const gateway = await rawGateway(socketPath);
    gateway.hello();
    await gateway.until(frameType.owns);
    gateway.request(1, blobRoutes.blob_put.wire, '{}', { open: true });
    assert.equal((await gateway.until(frameType.credit, 1)).payload.readUInt32BE(0), 10);
    for (const length of bytes) gateway.write(encodeFrame(frameType.body, 1, Buffer.alloc(length)));
    gateway.write(encodeFrame(frameType.ping, 0));
    const lives = await gateway.until(frameType.pong).then(() => true, () => false);
    assert.equal(lives, complete, `${bytes.join()} bytes`);
    gateway.socket.destroy();
  }
});

test('blobs - [BLB-006] a file whose taker fails ends the reading of its multipart body at once', async () => {
  const head = '--b\r\ncontent-disposition: form-data; name="f"; filename="f"\r\ncontent-type: image/png\r\n\r\n';
  let left = false;
  const body = (async function* body() {
    try {
      yield Buffer.from(head);
      for (;;) yield Buffer.alloc(65_536, 1);
    } finally {
      left = true;
    }
  })();
  let taken = 0;
  await assert.rejects(readFile('multipart/form-data; boundary=b', body, async (type) => {
    assert.equal(type, 'image/png');
    return {
      write: async (bytes) => {
        taken += bytes.length;
        if (taken > 1_000_000) throw coded('payload_too_large');
      },
    };
  }), { code: 'payload_too_large' });
  assert.ok(left);
});
