// Blobs of deployments in the object store of a real nats-server: what goes in comes out, whole or in part, once, and nothing else.
import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { after, before, describe, it } from 'node:test';
import { promisify } from 'node:util';
import zlib from 'node:zlib';
import type { NatsConnection } from 'nats';
import { decodeIndex, encodeIndex } from '../../actors/blobs/blob-index.ts';
import { openShelf } from '../../actors/blobs/shelf.ts';
import { createBlobStore, eraseBlobsOf, type BlobScope, type BlobStore, type BlobStoreOptions, type StoredEntry } from '../../actors/blobs/store.ts';
import { sweepUploads } from '../../actors/blobs/sweep.ts';
import { nativeZstd, wasmZstd, type Zstd } from '../../actors/blobs/zstd.ts';
import { connectNats } from '../../actors/runtime/nats/connect.ts';
import { createLean, type Lean } from '../../actors/runtime/nats/lean.ts';
import { leaderLast } from '../../actors/runtime/nats/read.ts';
import { ensureStreams } from '../../actors/runtime/nats/streams.ts';
import { Ulids } from '../../actors/runtime/ulid.ts';
import { limits } from '../../contracts/limits.ts';
import { blobsOf, blobStream, blobSubjects } from '../../contracts/subjects.ts';
import { silent } from '../harness/log.ts';
import { startNats, type NatsServer } from '../harness/nats.ts';
import { runSeed, seeded } from '../harness/seed.ts';

const frameBytes = 1_024;
const hashOf = (bytes: Uint8Array): string => `sha256:${createHash('sha256').update(bytes).digest('hex')}`;
const gather = async (pieces: AsyncIterable<Uint8Array>): Promise<Buffer> => {
  const all: Uint8Array[] = [];
  for await (const piece of pieces) all.push(piece);
  return Buffer.concat(all);
};
/** Byte by byte: in a larger piece Node's decoder reads no frame behind the first (nodejs/node#64741). */
const asOneStream = async (packed: Buffer): Promise<Buffer> => {
  const decoder = zlib.createZstdDecompress();
  const read = gather(decoder);
  for (const byte of packed) decoder.write(Buffer.of(byte));
  decoder.end();
  return read;
};
/** What can be read of it before it fails, and the code it fails with. */
const readUntil = async (pieces: AsyncIterable<Uint8Array>): Promise<{ readonly bytes: Buffer; readonly code: string | undefined }> => {
  const all: Uint8Array[] = [];
  try {
    for await (const piece of pieces) all.push(piece);
    return { bytes: Buffer.concat(all), code: undefined };
  } catch (error) {
    return { bytes: Buffer.concat(all), code: error instanceof Error && 'code' in error ? String(error.code) : 'none' };
  }
};

describe('blobs - of deployments', () => {
  let server: NatsServer;
  let nc: NatsConnection;
  let lean: Lean;
  let native: Zstd;
  let wasm: Zstd;
  const ulids = new Ulids(Date.now);
  let scopes = 0;
  const newScope = (organizationId = 'org_a'): BlobScope => ({ organizationId, deploymentId: `dep_${++scopes}` });
  const storeOf = (options: Partial<BlobStoreOptions> = {}): BlobStore =>
    createBlobStore({ lean, zstd: native, newUlid: () => ulids.next(), log: silent, frameBytes, partBytes: 300, ...options });
  const put = async (store: BlobStore, scope: BlobScope, bytes: Uint8Array, type = 'application/octet-stream', pieceBytes = 700): Promise<StoredEntry> => {
    const writer = await store.begin(scope, type);
    for (let at = 0; at < bytes.length; at += pieceBytes) await writer.write(bytes.subarray(at, at + pieceBytes));
    return writer.finish();
  };
  /** Messages stored under a filter. */
  const stored = async (filter: string): Promise<number> => {
    const answer: unknown = JSON.parse((await lean.request(`$JS.API.STREAM.INFO.${blobStream}`, JSON.stringify({ subjects_filter: filter }), { timeoutMs: 10_000 })).string());
    const { state } = answer as { readonly state: { readonly subjects?: Readonly<Record<string, number>> } };
    return Object.values(state.subjects ?? {}).reduce((sum, count) => sum + count, 0);
  };
  const allOf = ({ organizationId, deploymentId }: BlobScope): string => blobSubjects(organizationId, deploymentId).all;

  before(async () => {
    server = await startNats();
    nc = await connectNats({ url: server.url, name: 'blobs-store-test' });
    await ensureStreams(nc, { partitions: 1, journalStreams: 1, replicas: 1 });
    lean = createLean(nc);
    const found = nativeZstd();
    assert.ok(found, 'this Node has zstd of its own');
    native = found;
    wasm = await wasmZstd();
  });
  after(async () => {
    lean.close();
    await nc.close();
    await server.stop();
  });

  it('[BLB-002] [BLB-003] [BLB-009] gives back what was put, with its hash, its size and the size it is stored with, whatever the pieces', async () => {
    const store = storeOf();
    const scope = newScope();
    for (const size of [0, 1, frameBytes - 1, frameBytes, frameBytes + 1, 5 * frameBytes + 77]) {
      const bytes = size % 2 === 0 ? randomBytes(size) : Buffer.alloc(size, 'troupe ');
      const entry = await put(store, scope, bytes, 'text/plain; charset=utf-8', 333);
      assert.deepEqual({ hash: entry.hash, size: entry.size, known: entry.known }, { hash: hashOf(bytes), size, known: false });
      const blob = await store.open(scope, entry.hash);
      assert.deepEqual(await gather(blob.content()), bytes, `${size} bytes`);
      const packed = await gather(blob.packed());
      assert.deepEqual({ size: blob.size, stored: blob.compressedSize, type: blob.type }, { size, stored: packed.length, type: 'text/plain; charset=utf-8' });
      assert.equal(entry.compressedSize, packed.length);
      if (size > 1 && size % 2 === 1) assert.ok(packed.length < size, 'text is packed');
    }
  });

  it('[BLB-003] keeps one zstd stream that the platform\'s zstd, its WebAssembly build and each other\'s reader read alike', async () => {
    const bytes = Buffer.concat([randomBytes(2 * frameBytes), Buffer.alloc(3 * frameBytes, 'abc'), randomBytes(10)]);
    for (const [writes, reads] of [[native, wasm], [wasm, native]] as const) {
      const scope = newScope();
      const { hash } = await put(storeOf({ zstd: writes }), scope, bytes);
      const blob = await storeOf({ zstd: reads }).open(scope, hash);
      assert.deepEqual(await gather(blob.content()), bytes, `${writes.name} → ${reads.name}`);
      const packed = await gather(blob.packed());
      assert.deepEqual(await asOneStream(packed), bytes, 'the whole as one stream');
      const short = bytes.subarray(0, frameBytes);
      const single = await storeOf({ zstd: reads }).open(scope, (await put(storeOf({ zstd: writes }), scope, short)).hash);
      assert.deepEqual(await promisify(zlib.zstdDecompress)(await gather(single.packed())), short, 'one frame is read by decoders that know no second');
    }
  });

  it('reads no frame that claims another size than it should have, with either zstd', async () => {
    for (const zstd of [native, wasm]) {
      const frame = await zstd.compress(randomBytes(500));
      for (const size of [499, 501, 0, 1_000_000]) await assert.rejects(zstd.decompress(frame, size), { code: 'blob_damaged' }, `${zstd.name} ${size}`);
      for (const cut of [0, 3, 8, frame.length - 20]) await assert.rejects(zstd.decompress(frame.subarray(0, cut), 500), { code: 'blob_damaged' }, `${zstd.name} cut at ${cut}`);
      await assert.rejects(zstd.decompress(randomBytes(500), 500), { code: 'blob_damaged' });
    }
  });

  it('[BLB-012] gives any part of the content, and reads only the frames it lies in', async (t) => {
    const seed = runSeed();
    t.diagnostic(`seed ${seed}`);
    const random = seeded(seed);
    const store = storeOf();
    const scope = newScope();
    const bytes = randomBytes(9 * frameBytes + 300);
    const { hash } = await put(store, scope, bytes);
    const blob = await store.open(scope, hash);
    for (let i = 0; i < 60; i++) {
      const from = Math.floor(random() * bytes.length);
      const to = from + 1 + Math.floor(random() * (bytes.length - from));
      assert.deepEqual(await gather(blob.content(from, to)), bytes.subarray(from, to), `${from} to ${to}`);
    }
    // Without its last frame the whole is lost, and the first frames are not.
    const shelf = openShelf(lean, scope);
    const index = await shelf.index(hash);
    assert.ok(index);
    await lean.request(`$JS.API.STREAM.MSG.DELETE.${blobStream}`, JSON.stringify({ seq: index.frames.at(-1)?.parts.at(-1) }), { timeoutMs: 10_000 });
    assert.deepEqual(await gather(blob.content(0, 8 * frameBytes)), bytes.subarray(0, 8 * frameBytes));
    const lost = await readUntil(blob.content());
    assert.equal(lost.code, 'blob_damaged');
    assert.ok(lost.bytes.length < bytes.length);
  });

  it('[BLB-004] knows content that it has, and stores no second copy of it', async () => {
    const store = storeOf();
    const scope = newScope();
    for (const size of [10, 4 * frameBytes]) {
      const bytes = randomBytes(size);
      const first = await put(store, scope, bytes, 'text/plain');
      const count = await stored(allOf(scope));
      const used = await store.used(scope);
      assert.deepEqual(await put(store, scope, bytes, 'text/html'), { ...first, known: true });
      assert.equal(await stored(allOf(scope)), count);
      assert.equal(await store.used(scope), used);
      assert.equal((await store.open(scope, first.hash)).type, 'text/plain', 'the type stays the first one\'s');
    }
  });

  it('[BLB-004] keeps one of two uploads of the same content that end at once', async () => {
    const store = storeOf();
    const other = storeOf();
    const scope = newScope();
    const bytes = randomBytes(6 * frameBytes + 1);
    const entries = await Promise.all(Array.from({ length: 6 }, (_, i) => put(i % 2 === 0 ? store : other, scope, bytes)));
    assert.deepEqual(new Set(entries.map(({ hash }) => hash)), new Set([hashOf(bytes)]));
    assert.equal(entries.filter(({ known }) => !known).length, 1);
    const index = await openShelf(lean, scope).index(hashOf(bytes));
    assert.equal(await stored(allOf(scope)), 1 + (index?.frames.reduce((sum, { parts }) => sum + parts.length, 0) ?? 0), 'one index, and the parts of its frames');
    assert.deepEqual(await gather((await store.open(scope, hashOf(bytes))).content()), bytes);
  });

  it('[BLB-010] keeps deployments and organizations apart, and knows nothing of what is not a hash', async () => {
    const store = storeOf();
    const scope = newScope();
    const { hash } = await put(store, scope, Buffer.from('ours'));
    const others: readonly (readonly [BlobScope, string])[] = [
      [newScope(), hash], [{ ...scope, organizationId: 'org_b' }, hash], [scope, hashOf(Buffer.from('never stored'))], [scope, hash.toUpperCase()], [scope, hash.slice(7)],
      [scope, 'sha256:*'], [scope, 'sha256:>'], [scope, ''],
    ];
    for (const [who, what] of others) await assert.rejects(store.open(who, what), { code: 'blob_not_found' }, what);
  });

  it('[BLB-016] shows nothing of an upload before its end, and keeps nothing of one that is given up', async () => {
    const store = storeOf();
    const scope = newScope();
    const bytes = randomBytes(5 * frameBytes);
    const writer = await store.begin(scope, 'text/plain');
    await writer.write(bytes);
    await assert.rejects(store.open(scope, hashOf(bytes)), { code: 'blob_not_found' });
    assert.ok(await stored(allOf(scope)) > 3, 'frames are there');
    await writer.discard();
    await writer.discard();
    assert.equal(await stored(allOf(scope)), 0);
    assert.equal(await store.used(scope), 0);
  });

  it('[BLB-007] refuses what is longer than a blob may be, and keeps nothing of it', async () => {
    const store = storeOf({ maxBytes: 3 * frameBytes });
    const scope = newScope();
    const exact = await put(store, scope, randomBytes(3 * frameBytes));
    assert.equal(exact.size, 3 * frameBytes);
    const count = await stored(allOf(scope));
    const writer = await store.begin(scope, 'text/plain');
    await writer.write(randomBytes(3 * frameBytes));
    await assert.rejects(writer.write(randomBytes(1)), { code: 'payload_too_large' });
    await writer.discard();
    assert.equal(await stored(allOf(scope)), count);
  });

  it('holds a deployment to its quota, before an upload and at its end', async () => {
    const quotaBytes = 10 * limits.blobQuotaMinBytes;
    const store = storeOf({ quotaBytes });
    const scope = newScope();
    const big = await store.begin(scope, 'text/plain');
    await big.write(randomBytes(quotaBytes));
    await assert.rejects(big.finish(), { code: 'payload_too_large', details: { quota_bytes: quotaBytes, used_bytes: 0 } });
    await big.discard();
    assert.equal(await stored(allOf(scope)), 0);
    for (let i = 0; i < 10; i++) await put(store, scope, randomBytes(20));
    await assert.rejects(store.begin(scope, 'text/plain'), { code: 'payload_too_large' }, 'small blobs count for more than they hold');
    await assert.rejects(storeOf({ quotaBytes }).begin(scope, 'text/plain'), { code: 'payload_too_large' }, 'another daemon counts the same');
    assert.equal((await store.begin(newScope(), 'text/plain')).constructor.name, 'BlobWriter', 'another deployment has its own');
  });

  it('never gives out bytes that are not the blob\'s, and never all of it', async () => {
    const store = storeOf();
    const make = async (change: (index: ReturnType<typeof decodeIndex>, scope: BlobScope) => Promise<ReturnType<typeof decodeIndex>>): Promise<[BlobScope, string, Buffer]> => {
      const scope = newScope();
      const bytes = randomBytes(4 * frameBytes);
      const { hash } = await put(store, scope, bytes);
      const shelf = openShelf(lean, scope);
      const index = await shelf.index(hash);
      assert.ok(index);
      const changed = await change(index, scope);
      await shelf.dropIndex(hash);
      await lean.request(blobSubjects(scope.organizationId, scope.deploymentId).index(hash.slice(7)), encodeIndex({ ...changed, hash }), { timeoutMs: 10_000 });
      return [scope, hash, bytes];
    };
    const flipped = await make(async (index, scope) => {
      const at = 2;
      const kept = async (seq: number): Promise<Buffer> => {
        const read = await lean.request(`$JS.API.STREAM.MSG.GET.${blobStream}`, JSON.stringify({ seq }), { timeoutMs: 10_000 });
        return Buffer.from((JSON.parse(read.string()) as { message: { data: string } }).message.data, 'base64');
      };
      // At the end of the upload's parts, so that the frames behind it go as well.
      const frames = index.frames.slice(0, at);
      for (const ref of index.frames.slice(at)) {
        const parts: number[] = [];
        for (const seq of ref.parts) {
          const data = await kept(seq);
          if (frames.length === at && parts.length === 1) data.writeUInt8(data.readUInt8(100) ^ 1, 100);
          parts.push(await openShelf(lean, scope).append(index.upload, data));
        }
        frames.push({ ...ref, parts });
      }
      return { ...index, frames };
    });
    const swapped = await make(async (index) => {
      const [first, second, ...rest] = index.frames;
      assert.ok(first && second);
      return { ...index, frames: [{ ...first, digest: second.digest }, second, ...rest] };
    });
    // Frames in order and whole, but of other content than the name says.
    const foreign = await make(async (_index, scope) => {
      const { hash } = await put(store, scope, randomBytes(4 * frameBytes));
      const other = await openShelf(lean, scope).index(hash);
      assert.ok(other);
      return other;
    });
    for (const [name, [scope, hash, bytes]] of Object.entries({ flipped, swapped, foreign })) {
      const blob = await store.open(scope, hash);
      const read = await readUntil(blob.content());
      assert.equal(read.code, 'blob_damaged', name);
      assert.ok(read.bytes.length <= 3 * frameBytes, `${name}: the end is missing`);
      if (name !== 'foreign') assert.deepEqual(read.bytes, bytes.subarray(0, read.bytes.length), `${name}: what came was right`);
      if (name !== 'foreign') assert.equal((await readUntil(blob.packed())).code, 'blob_damaged', `${name}, packed`);
    }
    const scope = newScope();
    await lean.request(blobSubjects(scope.organizationId, scope.deploymentId).index('00'.repeat(32)), 'no index', { timeoutMs: 10_000 });
    await assert.rejects(store.open(scope, `sha256:${'00'.repeat(32)}`), { code: 'blob_damaged' });
  });

  it('[BLB-016] erases what a killed daemon left of its uploads a day later, and never a blob', async () => {
    const store = storeOf();
    const scope = newScope('org_sweep');
    const bytes = randomBytes(4 * frameBytes);
    const { hash } = await put(store, scope, bytes);
    const shelf = openShelf(lean, scope);
    const published = await shelf.index(hash);
    assert.ok(published);
    // Killed behind the publication of a blob: its mark is still there.
    await shelf.mark(published.upload, { hash }, await shelf.mark(published.upload, {}, 0));
    const keeps = await stored(allOf(scope));
    // Killed before it: frames and a mark without hash; a mark with the hash of what another upload has published.
    await shelf.mark('cut', {}, 0);
    for (let i = 0; i < 3; i++) await shelf.append('cut', randomBytes(300));
    const mark = await shelf.mark('late', {}, 0);
    await shelf.append('late', randomBytes(10));
    await shelf.mark('late', { hash }, mark);
    const sweep = (ms: number): Promise<number> => sweepUploads({ lean, now: () => Date.now() + ms, log: silent, signal: new AbortController().signal });
    const all = await stored(allOf(scope));
    assert.equal(await sweep(limits.blobSweepAgeMs / 2), 0);
    assert.equal(await stored(allOf(scope)), all, 'what is young may go on');
    assert.ok(await sweep(limits.blobSweepAgeMs + 1_000) >= 3);
    assert.equal(await stored(allOf(scope)), keeps - 2, 'the blob without its marks');
    assert.deepEqual(await gather((await store.open(scope, hash)).content()), bytes);
    assert.equal(await sweep(limits.blobSweepAgeMs + 1_000), 0);
  });

  it('erases a deployment\'s blobs, an organization\'s, and what an upload would add behind that', async () => {
    const store = storeOf();
    const one = newScope('org_erased');
    const two = newScope('org_erased');
    const kept = newScope('org_erased_not');
    for (const scope of [one, two, kept]) await put(store, scope, randomBytes(2 * frameBytes));
    const late = await store.begin(one, 'text/plain');
    const content = randomBytes(3 * frameBytes);
    await late.write(content);
    await store.erase(one);
    await assert.rejects(late.finish(), { code: 'not_found' });
    await late.discard();
    assert.equal(await stored(allOf(one)), 0);
    assert.ok(await stored(allOf(two)) > 0);
    await eraseBlobsOf(lean, 'org_erased');
    assert.equal(await stored(blobsOf('org_erased')), 0);
    assert.ok(await stored(allOf(kept)) > 0);
    assert.equal(await leaderLast(lean, blobStream, blobsOf('org_erased')), undefined);
  });
});
