/** Blobs of a deployment over the real surface: TLS, gateway, link, daemon, NATS. One stack for all. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { after, before, describe, it } from 'node:test';
import { promisify } from 'node:util';
import zlib from 'node:zlib';
import type { NatsConnection } from 'nats';
import { z } from 'zod';
import { blobAnswer } from '../../contracts/blob-routes.ts';
import { limits } from '../../contracts/limits.ts';
import { blobStream, blobSubjects } from '../../contracts/subjects.ts';
import { openShelf } from '../../actors/blobs/shelf.ts';
import { connectNats } from '../../actors/runtime/nats/connect.ts';
import { createLean, type Lean } from '../../actors/runtime/nats/lean.ts';
import { blobClient, sha256, type BlobCall, type BlobClient, type BlobReply } from '../harness/blob-client.ts';
import { startDeployment, type TestDeployment } from '../harness/deployment.ts';

const refusal = z.object({ error: z.object({ code: z.string(), message: z.string(), details: z.record(z.string(), z.unknown()).optional() }) });

describe('blobs over http', () => {
  let d: TestDeployment;
  let client: BlobClient;
  let nc: NatsConnection;
  let lean: Lean;
  before(async () => {
    d = await startDeployment(undefined);
    client = blobClient({ port: d.deploymentPorts[0] ?? 0, ca: d.ca, key: d.key });
    nc = await connectNats({ url: d.nats.url, name: 'blobs-http-test' });
    lean = createLean(nc);
  });
  after(async () => {
    client.close();
    lean.close();
    await nc.close();
    await d.stop();
  });

  const scope = () => ({ organizationId: d.org.id, deploymentId: d.id });
  const post = (body: NonNullable<BlobCall['body']>, headers: Record<string, string> = {}): Promise<BlobReply> => client.call('POST', '/v1/blobs', { body, headers });
  const stored = async (body: Uint8Array, headers: Record<string, string> = {}): Promise<z.output<typeof blobAnswer>> => {
    const reply = await post(body, headers);
    assert.ok(reply.status === 201 || reply.status === 200, reply.body.toString());
    return blobAnswer.parse(JSON.parse(reply.body.toString()));
  };
  const get = (hash: string, headers: Record<string, string> = {}): Promise<BlobReply> => client.call('GET', `/v1/blobs/${hash}`, { headers });
  const refused = ({ status, body }: BlobReply): readonly [number, string] => [status, refusal.parse(JSON.parse(body.toString())).error.code];
  /** Messages kept for the deployment. */
  const kept = async (): Promise<number> => {
    const filter = blobSubjects(d.org.id, d.id).all;
    const answer: unknown = JSON.parse((await lean.request(`$JS.API.STREAM.INFO.${blobStream}`, JSON.stringify({ subjects_filter: filter }), { timeoutMs: 10_000 })).string());
    const { state } = answer as { readonly state: { readonly subjects?: Readonly<Record<string, number>> } };
    return Object.values(state.subjects ?? {}).reduce((sum, count) => sum + count, 0);
  };
  function* pieces(bytes: Uint8Array, size: number): Generator<Uint8Array> {
    for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
  }

  it('[BLB-001] [BLB-002] [BLB-003] [BLB-009] takes a raw body of any type and gives the same bytes back, with its type and length', async () => {
    const text = Buffer.from('All the world\'s a stage, '.repeat(4_000));
    const cases: readonly (readonly [Buffer, Record<string, string>, string])[] = [
      [text, { 'content-type': 'text/plain; charset=utf-8' }, 'text/plain; charset=utf-8'],
      [randomBytes(3), { 'content-type': 'application/json' }, 'application/json'],
      [randomBytes(100_000), { 'content-type': 'image/png' }, 'image/png'],
      [Buffer.from('a=b&c=d'), { 'content-type': 'application/x-www-form-urlencoded' }, 'application/x-www-form-urlencoded'],
      [randomBytes(20), {}, 'application/octet-stream'],
      [randomBytes(21), { 'content-type': 'nonsense' }, 'application/octet-stream'],
      [Buffer.alloc(0), { 'content-type': 'text/csv' }, 'text/csv'],
      [randomBytes(limits.blobFrameBytes + 123_456), { 'content-type': 'video/mp4' }, 'video/mp4'],
    ];
    for (const [bytes, headers, type] of cases) {
      const reply = await post(bytes, headers);
      assert.equal(reply.status, 201, reply.body.toString());
      assert.match(reply.headers['content-type'] ?? '', /^application\/json/);
      const { hash, size, compressed_size: compressed } = blobAnswer.parse(JSON.parse(reply.body.toString()));
      assert.deepEqual({ hash, size }, { hash: sha256(bytes), size: bytes.length });
      if (bytes === text) assert.ok(compressed < size / 10, 'text is packed');
      const back = await get(hash);
      assert.equal(back.status, 200);
      assert.ok(back.body.equals(bytes), `${bytes.length} bytes`);
      assert.deepEqual([back.headers['content-type'], back.headers['content-length'], back.headers['transfer-encoding']], [type, String(bytes.length), undefined]);
    }
  });

  it('[BLB-001] takes a body without a length, in pieces as they come', async () => {
    const bytes = randomBytes(2_000_001);
    const reply = await post(pieces(bytes, 33_333), { 'content-type': 'application/pdf' });
    assert.equal(reply.status, 201);
    assert.ok((await get(sha256(bytes))).body.equals(bytes));
  });

  it('[BLB-004] answers known content with 200, the same hash, and no second copy', async () => {
    const bytes = randomBytes(50_000);
    const first = await post(bytes);
    const count = await kept();
    const second = await post(bytes, { 'content-type': 'text/html' });
    assert.deepEqual([first.status, second.status], [201, 200]);
    assert.deepEqual(JSON.parse(second.body.toString()), JSON.parse(first.body.toString()));
    assert.equal(await kept(), count);
  });

  const boundary = 'x-troupe-boundary';
  const part = (head: string, body: Uint8Array | string): Buffer => Buffer.concat([Buffer.from(`--${boundary}\r\n${head}\r\n\r\n`), Buffer.from(body), Buffer.from('\r\n')]);
  const form = (...parts: readonly Buffer[]): Buffer => Buffer.concat([...parts, Buffer.from(`--${boundary}--\r\n`)]);
  const multipart = { 'content-type': `multipart/form-data; boundary=${boundary}` };
  const filePart = (name: string, type: string, bytes: Uint8Array): Buffer => part(`Content-Disposition: form-data; name="${name}"; filename="${name}.bin"\r\nContent-Type: ${type}`, bytes);
  const fieldPart = (name: string, value: string): Buffer => part(`Content-Disposition: form-data; name="${name}"`, value);

  it('[BLB-005] stores the content of the one file of a multipart body, with the file\'s type', async () => {
    const bytes = randomBytes(1_500_000);
    for (const body of [form(filePart('file', 'image/webp', bytes)), form(fieldPart('note', 'before'), filePart('f', 'image/webp', bytes), fieldPart('other', 'behind'))]) {
      const reply = await post(body, multipart);
      assert.ok(reply.status === 201 || reply.status === 200, reply.body.toString());
      const { hash, size } = blobAnswer.parse(JSON.parse(reply.body.toString()));
      assert.deepEqual({ hash, size }, { hash: sha256(bytes), size: bytes.length });
    }
    const back = await get(sha256(bytes));
    assert.ok(back.body.equals(bytes));
    assert.equal(back.headers['content-type'], 'image/webp');
    const sent = new FormData();
    sent.set('upload', new Blob(['from FormData'], { type: 'text/csv' }), 'a.csv');
    const request = new Request('https://localhost/', { method: 'POST', body: sent });
    const reply = await post(new Uint8Array(await request.arrayBuffer()), { 'content-type': request.headers.get('content-type') ?? '' });
    assert.equal(blobAnswer.parse(JSON.parse(reply.body.toString())).hash, sha256(Buffer.from('from FormData')));
  });

  it('[BLB-006] refuses a multipart body with no file, with several, cut, or without a boundary, and keeps nothing of it', async () => {
    const count = await kept();
    const big = randomBytes(600_000);
    const whole = form(filePart('file', 'image/png', big));
    const bodies: readonly (readonly [string, Buffer, Record<string, string>])[] = [
      ['no file', form(fieldPart('a', 'b')), multipart],
      ['nothing', form(), multipart],
      ['several', form(filePart('a', 'image/png', big), filePart('b', 'image/png', randomBytes(10))), multipart],
      ['several, the second large', form(filePart('a', 'image/png', randomBytes(10)), filePart('b', 'image/png', big)), multipart],
      ['cut', whole.subarray(0, 300_000), multipart],
      ['without its end', whole.subarray(0, -(boundary.length + 6)), multipart],
      ['no boundary', whole, { 'content-type': 'multipart/form-data' }],
      ['another boundary', whole, { 'content-type': 'multipart/form-data; boundary=other' }],
      ['too many parts', form(...Array.from({ length: limits.blobPartsMax + 1 }, (_, i) => fieldPart(`f${i}`, 'v')), filePart('a', 'image/png', big)), multipart],
    ];
    for (const [name, body, headers] of bodies) assert.deepEqual(refused(await post(body, headers)), [400, 'invalid_argument'], name);
    assert.equal(await kept(), count);
  });

  it('[BLB-010] answers an unknown hash, another deployment\'s, and what is no hash with 404 blob_not_found', async () => {
    const { hash } = await stored(Buffer.from('only ours'));
    const other = await d.provision();
    const theirs = blobClient({ port: d.deploymentPorts[0] ?? 0, ca: d.ca, key: other.key });
    try {
      assert.deepEqual(refused(await theirs.call('GET', `/v1/blobs/${hash}`)), [404, 'blob_not_found']);
      assert.equal((await theirs.call('POST', '/v1/blobs', { body: Buffer.from('only ours') })).status, 201, 'stored for itself');
    } finally {
      theirs.close();
    }
    for (const name of [sha256(Buffer.from('unknown')), hash.slice(7), hash.toUpperCase(), 'sha256:', 'sha256%3A%2A', '%2E%2E%2Fx', `${hash}0`]) {
      assert.deepEqual(refused(await get(name)), [404, 'blob_not_found'], name);
    }
    assert.equal((await get(encodeURIComponent(hash))).status, 200);
    const nobody = blobClient({ port: d.deploymentPorts[0] ?? 0, ca: d.ca, key: undefined });
    try {
      assert.deepEqual(refused(await nobody.call('GET', `/v1/blobs/${hash}`)), [401, 'unauthorized']);
      assert.deepEqual(refused(await nobody.call('POST', '/v1/blobs', { body: Buffer.from('x') })), [401, 'unauthorized']);
    } finally {
      nobody.close();
    }
  });

  it('refuses an upload with a wrong key before anything of it is read', async () => {
    const wrong = blobClient({ port: d.deploymentPorts[0] ?? 0, ca: d.ca, key: `${d.key.slice(0, -4)}AAAA` });
    try {
      const count = await kept();
      assert.deepEqual(refused(await wrong.call('POST', '/v1/blobs', { body: pieces(randomBytes(3_000_000), 50_000) })), [401, 'unauthorized']);
      assert.equal(await kept(), count);
      // The connection is as good as before.
      assert.deepEqual(refused(await wrong.call('GET', `/v1/blobs/${sha256(Buffer.from('x'))}`)), [401, 'unauthorized']);
    } finally {
      wrong.close();
    }
  });

  it('[BLB-011] [BLB-014] names the content by an ETag, answers 304 to who has it, and lets it be kept for ever', async () => {
    const bytes = randomBytes(30_000);
    const { hash } = await stored(bytes);
    const plain = await get(hash);
    const { etag = '', 'cache-control': caching = '' } = plain.headers;
    assert.equal(etag, `"${hash}"`);
    assert.match(caching, /\bimmutable\b/);
    assert.match(caching, /\bprivate\b/, 'it is its deployment\'s alone');
    assert.match(caching, /\bmax-age=31536000\b/);
    const packed = (await get(hash, { 'accept-encoding': 'zstd' })).headers.etag ?? '';
    assert.notEqual(packed, etag, 'other bytes have another strong tag');
    for (const known of [etag, `W/${etag}`, `"a", ${etag}`, '*', packed]) {
      const reply = await get(hash, { 'if-none-match': known });
      assert.deepEqual([reply.status, reply.body.length, reply.headers.etag, reply.headers['cache-control']], [304, 0, known === packed ? etag : etag, caching], known);
      assert.equal(reply.headers['content-length'], undefined);
    }
    const again = await get(hash, { 'if-none-match': '"sha256:other"' });
    assert.deepEqual([again.status, again.body.length], [200, bytes.length]);
    assert.equal((await get(sha256(Buffer.from('nothing here')), { 'if-none-match': '*' })).status, 404);
  });

  it('[BLB-012] answers one range with 206 and Content-Range over the content, across frames too', async () => {
    const size = 2 * limits.blobFrameBytes + 1_000;
    const bytes = randomBytes(size);
    const { hash } = await stored(bytes);
    const at = limits.blobFrameBytes;
    const ranges: readonly (readonly [string, number, number])[] = [
      ['bytes=0-0', 0, 0], ['bytes=5-9', 5, 9], [`bytes=${at - 3}-${at + 2}`, at - 3, at + 2], [`bytes=${size - 1}-`, size - 1, size - 1], ['bytes=-10', size - 10, size - 1],
      [`bytes=-${size + 5}`, 0, size - 1], [`bytes=10-${size + 100}`, 10, size - 1], ['bytes=0-', 0, size - 1], [`bytes=${2 * at - 1}-${2 * at + 5}`, 2 * at - 1, 2 * at + 5],
    ];
    for (const [range, first, last] of ranges) {
      const reply = await get(hash, { range });
      assert.equal(reply.status, 206, range);
      assert.deepEqual([reply.headers['content-range'], reply.headers['content-length']], [`bytes ${first}-${last}/${size}`, String(last - first + 1)], range);
      assert.ok(reply.body.equals(bytes.subarray(first, last + 1)), range);
      assert.equal(reply.headers['accept-ranges'], 'bytes');
    }
    // A range is one of the content, whatever coding is accepted.
    const packed = await get(hash, { range: 'bytes=5-9', 'accept-encoding': 'zstd' });
    assert.deepEqual([packed.status, packed.headers['content-encoding']], [206, undefined]);
    assert.ok(packed.body.equals(bytes.subarray(5, 10)));
    // Several, another unit, nonsense: as if there were none.
    for (const range of ['bytes=0-1,5-6', 'items=0-1', 'bytes=9-5', 'bytes=a-b', 'bytes=-']) assert.deepEqual([(await get(hash, { range })).status], [200], range);
    const etag = `"${hash}"`;
    assert.equal((await get(hash, { range: 'bytes=0-1', 'if-range': etag })).status, 206);
    for (const other of ['"other"', `W/${etag}`, 'Wed, 21 Oct 2015 07:28:00 GMT']) assert.equal((await get(hash, { range: 'bytes=0-1', 'if-range': other })).status, 200, other);
  });

  it('[BLB-013] answers a range that lies behind the content with 416 and the content\'s length', async () => {
    const { hash } = await stored(Buffer.from('ten bytes.'));
    for (const range of ['bytes=10-', 'bytes=10-20', 'bytes=999999999999-', 'bytes=-0']) {
      const reply = await get(hash, { range });
      assert.deepEqual(refused(reply), [416, 'range_not_satisfiable'], range);
      assert.equal(reply.headers['content-range'], 'bytes */10');
    }
    const { hash: empty } = await stored(Buffer.alloc(0));
    assert.deepEqual(refused(await get(empty, { range: 'bytes=0-' })), [416, 'range_not_satisfiable']);
  });

  it('[BLB-015] passes the stored bytes on to who accepts zstd, and unpacks them for all others', async () => {
    const bytes = Buffer.from(JSON.stringify({ words: 'again and again '.repeat(20_000) }));
    const { hash, compressed_size: compressed } = await stored(bytes, { 'content-type': 'application/json' });
    for (const accept of ['zstd', 'gzip, zstd;q=0.5', 'br, ZSTD']) {
      const reply = await get(hash, { 'accept-encoding': accept });
      assert.deepEqual([reply.status, reply.headers['content-encoding'], reply.headers['content-length'], reply.headers.vary], [200, 'zstd', String(compressed), 'Accept-Encoding'], accept);
      assert.equal(reply.headers['content-type'], 'application/json');
      assert.ok((await promisify(zlib.zstdDecompress)(reply.body)).equals(bytes));
    }
    for (const accept of ['gzip', 'identity', '*', 'zstd;q=0', 'zstd;q=0.000', '']) {
      const reply = await get(hash, { 'accept-encoding': accept });
      assert.deepEqual([reply.headers['content-encoding'], reply.headers.vary], [undefined, 'Accept-Encoding'], accept);
      assert.ok(reply.body.equals(bytes), accept);
    }
  });

  it('answers HEAD as GET without the content', async () => {
    const bytes = randomBytes(5_000_000);
    const { hash } = await stored(bytes, { 'content-type': 'image/png' });
    for (const headers of [{}, { 'accept-encoding': 'zstd' }, { range: 'bytes=1-2' }] as Record<string, string>[]) {
      const whole = await get(hash, headers);
      const head = await client.call('HEAD', `/v1/blobs/${hash}`, { headers });
      assert.equal(head.status, whole.status);
      assert.equal(head.body.length, 0);
      const without = ({ date: _date, connection: _connection, 'keep-alive': _alive, ...rest }: BlobReply['headers']) => rest;
      assert.deepEqual(without(head.headers), without(whole.headers));
    }
    assert.equal((await client.call('HEAD', `/v1/blobs/${sha256(Buffer.from('none'))}`)).status, 404);
  });

  it('never lets a browser run what was uploaded as this site\'s', async () => {
    const cases: readonly (readonly [string, boolean])[] = [
      ['text/html', false], ['image/svg+xml', false], ['application/xhtml+xml', false], ['text/javascript', false], ['application/xml', false], ['application/pdf', false],
      ['text/html; charset=utf-8', false], ['TEXT/HTML', false], ['image/png', true], ['text/plain', true], ['text/markdown', true], ['video/webm', true],
    ];
    for (const [type, shown] of cases) {
      const { hash } = await stored(Buffer.from(`<script>alert(1)</script> ${type}`), { 'content-type': type });
      const { headers } = await get(hash);
      assert.equal(headers['content-disposition'], shown ? undefined : 'attachment', type);
      assert.equal(headers['x-content-type-options'], 'nosniff');
      assert.equal(headers['content-security-policy'], 'default-src \'none\'; sandbox');
    }
  });

  it('takes and gives blobs at the console\'s mirror too, for members of the organization only', async () => {
    const path = `/api/deployments/${d.id}/v1/blobs`;
    const bytes = randomBytes(700_000);
    const member = blobClient({ port: d.gateways[0]?.port ?? 0, ca: d.ca, key: d.owner.accessToken });
    const stranger = blobClient({ port: d.gateways[0]?.port ?? 0, ca: d.ca, key: (await d.signUp('blob-stranger@example.com')).accessToken });
    try {
      const reply = await member.call('POST', path, { body: pieces(bytes, 50_000), headers: { 'content-type': 'image/gif' } });
      assert.equal(reply.status, 201, reply.body.toString());
      assert.ok((await member.call('GET', `${path}/${sha256(bytes)}`)).body.equals(bytes));
      assert.ok((await get(sha256(bytes))).body.equals(bytes), 'the same blob');
      assert.equal((await stranger.call('GET', `${path}/${sha256(bytes)}`)).status, 404);
      assert.equal((await stranger.call('POST', path, { body: Buffer.from('not mine') })).status, 404);
    } finally {
      member.close();
      stranger.close();
    }
  });

  it('[BLB-007] refuses a body that says it is too long at once', async () => {
    const count = await kept();
    const request = client.begin('/v1/blobs', { 'content-length': String(2 * limits.blobMaxBytes) });
    const answered = new Promise<number>((resolve, reject) => {
      request.on('response', (answer) => {
        answer.resume();
        resolve(answer.statusCode ?? 0);
      });
      request.on('error', reject);
    });
    request.flushHeaders();
    assert.equal(await answered, 413);
    request.destroy();
    assert.equal(await kept(), count);
  });

  it('[BLB-016] keeps nothing of an upload whose client leaves in the middle', async () => {
    const count = await kept();
    const bytes = randomBytes(3 * limits.blobFrameBytes);
    for (const headers of [{ 'content-length': String(bytes.length) }, { 'transfer-encoding': 'chunked' }] as Record<string, string>[]) {
      const request = client.begin('/v1/blobs', headers);
      request.on('error', () => undefined);
      for (const piece of pieces(bytes.subarray(0, -1_000), 100_000)) request.write(piece);
      // A frame is stored: the upload is under way.
      while (await kept() <= count) await new Promise((resolve) => { setImmediate(resolve); });
      request.destroy();
      while (await kept() > count) await new Promise((resolve) => { setImmediate(resolve); });
      assert.deepEqual(refused(await get(sha256(bytes))), [404, 'blob_not_found']);
    }
  });

  it('cuts an answer whose blob is found damaged on the way, and refuses one that is damaged at its beginning', async () => {
    const bytes = randomBytes(3 * limits.blobFrameBytes);
    const { hash } = await stored(bytes);
    const index = await openShelf(lean, scope()).index(hash);
    assert.ok(index);
    const drop = async (frame: number): Promise<void> => {
      await lean.request(`$JS.API.STREAM.MSG.DELETE.${blobStream}`, JSON.stringify({ seq: index.frames[frame]?.parts[0] }), { timeoutMs: 10_000 });
    };
    await drop(2);
    for (const headers of [{}, { 'accept-encoding': 'zstd' }] as Record<string, string>[]) {
      const answer = await client.open('GET', `/v1/blobs/${hash}`, { headers });
      assert.equal(answer.statusCode, 200);
      let got = 0;
      await assert.rejects(async () => {
        for await (const chunk of answer) got += (chunk as Buffer).length;
      });
      assert.ok(got < bytes.length);
    }
    assert.equal((await get(hash, { range: 'bytes=0-9' })).status, 206, 'what is whole is given');
    await drop(0);
    assert.deepEqual(refused(await get(hash)), [500, 'blob_damaged']);
    assert.ok(d.daemons[0]?.lines().some((line) => line.includes('a stored blob is damaged')), 'it is in the log');
  });

  it('carries many blobs at once, and none of them mixed up', async () => {
    const blobs = Array.from({ length: 6 }, () => randomBytes(1_000_000 + Math.floor(Math.random() * 4_000_000)));
    const hashes = await Promise.all(blobs.map(async (bytes) => stored(bytes).then(({ hash }) => hash)));
    await Promise.all(hashes.map(async (hash, i) => {
      const bytes = blobs[i];
      assert.ok(bytes);
      assert.ok((await get(hash)).body.equals(bytes));
      assert.equal(hash, sha256(bytes));
    }));
  });

  it('bounds the uploads of one deployment that are under way', async () => {
    const requests = Array.from({ length: limits.blobUploadsMax }, () => client.begin('/v1/blobs', { 'transfer-encoding': 'chunked' }));
    try {
      const count = await kept();
      for (const request of requests) {
        request.on('error', () => undefined);
        for (const piece of pieces(randomBytes(limits.blobFrameBytes + 1_000), 100_000)) request.write(piece);
      }
      // Each has sent a frame.
      while (await kept() < count + 2 * requests.length) await new Promise((resolve) => { setImmediate(resolve); });
      const reply = await post(Buffer.from('one more'));
      assert.deepEqual(refused(reply), [429, 'rate_limited']);
      assert.equal(reply.headers['retry-after'], '1');
    } finally {
      for (const request of requests) request.destroy();
    }
  });
});
