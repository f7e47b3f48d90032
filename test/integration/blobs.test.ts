// Blobs: one suite over memory and over the object store of a real nats-server, and what only a real store can do wrong.
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { after, before, describe, it } from 'node:test';
import { Objm } from '@nats-io/obj';
import type { NatsConnection } from 'nats';
import { hashOf, type Blobs } from '../../actors/blobs/blobs.ts';
import { memoryBlobs } from '../../actors/blobs/memory.ts';
import { natsBlobs } from '../../actors/blobs/nats.ts';
import { connectNats } from '../../actors/runtime/nats/connect.ts';
import { ensureStreams } from '../../actors/runtime/nats/streams.ts';
import { limits } from '../../contracts/limits.ts';
import { startNats, type NatsServer } from '../harness/nats.ts';

const suite = (name: string, make: () => Promise<Blobs>): void => {
  describe(`blobs - ${name}`, () => {
    let blobs: Blobs;
    before(async () => { blobs = await make(); });

    it('gives back what was put, by its hash, whatever the pieces', async () => {
      for (const size of [0, 1, 100_000, 300_000]) {
        const bytes = randomBytes(size);
        const put = await blobs.put('o', [bytes.subarray(0, size >> 1), bytes.subarray(size >> 1)]);
        assert.deepEqual({ hash: put.hash, size: put.size }, { hash: hashOf(bytes), size });
        assert.deepEqual(Buffer.from(await blobs.get('o', put.hash)), bytes);
      }
    });

    it('says when it had a blob already', async () => {
      const bytes = [randomBytes(10)];
      assert.equal((await blobs.put('o', bytes)).known, false);
      assert.equal((await blobs.put('o', bytes)).known, true);
      assert.equal((await blobs.put('p', bytes)).known, false, 'of another organization');
    });

    it('keeps organizations apart, and knows nothing of what is not a hash', async () => {
      const { hash } = await blobs.put('o', [Buffer.from('ours')]);
      for (const [org, ref] of [['other', hash], ['o', hashOf(Buffer.from('never stored'))], ['o', 'sha256:xyz'], ['o', '>'], ['o', '']] as const) {
        await assert.rejects(blobs.get(org, ref), { code: 'blob_not_found' }, `${org} ${ref}`);
      }
    });

    it('refuses a blob over the bound without reading on', async () => {
      let given = 0;
      const endless = function* chunks(): Generator<Uint8Array> {
        for (;;) {
          given += 1;
          yield new Uint8Array(1024 * 1024);
        }
      };
      await assert.rejects(blobs.put('o', endless()), { code: 'payload_too_large' });
      assert.equal(given, limits.attachmentMaxBytes / (1024 * 1024) + 1);
    });

    it('holds its promise when many write the same at once', async () => {
      const bytes = randomBytes(200_000);
      const puts = await Promise.all(Array.from({ length: 8 }, async () => blobs.put('o', [bytes])));
      assert.equal(new Set(puts.map((p) => p.hash)).size, 1);
      assert.deepEqual(Buffer.from(await blobs.get('o', hashOf(bytes))), bytes);
    });
  });
};

suite('memory', async () => memoryBlobs());

describe('blobs - over NATS', () => {
  let server: NatsServer;
  let nc: NatsConnection;
  before(async () => {
    server = await startNats();
    nc = await connectNats({ url: server.url, name: 'blobs-test' });
    await ensureStreams(nc, { partitions: 1, journalStreams: 1, replicas: 1 });
  });
  after(async () => {
    await nc.close();
    await server.stop();
  });

  suite('object store', async () => natsBlobs(nc));

  it('never gives out bytes that do not match their name', async () => {
    const blobs = await natsBlobs(nc);
    const { hash } = await blobs.put('o', [Buffer.from('right')]);
    const store = await new Objm(nc).open('blobs');
    await store.putBlob({ name: `o.${hash.replace(':', '-')}` }, Buffer.from('wrong'));
    await assert.rejects(blobs.get('o', hash), { code: 'journal_unavailable' });
  });

  it('is there again for another daemon and after the server was killed', async () => {
    const { hash } = await (await natsBlobs(nc)).put('o', [Buffer.from('kept')]);
    await server.kill('SIGKILL');
    await server.restart();
    const other = await connectNats({ url: server.url, name: 'blobs-test-2' });
    try {
      assert.equal(Buffer.from(await (await natsBlobs(other)).get('o', hash)).toString(), 'kept');
    } finally {
      await other.close();
    }
  });
});
