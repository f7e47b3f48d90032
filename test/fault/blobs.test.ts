/**
 * Blobs on bad days and at their largest, each on processes of its own: 512 MiB through gateway and daemon in bounded memory, a daemon or NATS
 * killed in the middle of an upload.
 */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { after, before, describe, it } from 'node:test';
import { connect, type NatsConnection } from 'nats';
import { z } from 'zod';
import { sweepUploads } from '../../actors/blobs/sweep.ts';
import { createLean, type Lean } from '../../actors/runtime/nats/lean.ts';
import { blobAnswer } from '../../contracts/blob-routes.ts';
import { limits } from '../../contracts/limits.ts';
import { blobStream, blobSubjects } from '../../contracts/subjects.ts';
import { blobClient, sha256, type BlobClient } from '../harness/blob-client.ts';
import { contentOf, hashed } from '../harness/blob-content.ts';
import { startDeployment, type TestDeployment } from '../harness/deployment.ts';
import { silent } from '../harness/log.ts';
import { runSeed } from '../harness/seed.ts';

const mebibyte = 1024 * 1024;
const refusal = z.object({ error: z.object({ code: z.string() }) });
const codeOf = (body: Buffer): string => refusal.parse(JSON.parse(body.toString())).error.code;
const turn = (): Promise<void> => new Promise((resolve) => { setImmediate(resolve); });

describe('blobs - faults and size', () => {
  let d: TestDeployment;
  let client: BlobClient;
  let nc: NatsConnection;
  let lean: Lean;
  before(async () => {
    d = await startDeployment(undefined);
    client = blobClient({ port: d.deploymentPorts[0] ?? 0, ca: d.ca, key: d.key });
    nc = await connect({ servers: d.nats.url, maxReconnectAttempts: -1, reconnectTimeWait: 50 });
    lean = createLean(nc);
  });
  after(async () => {
    client.close();
    lean.close();
    await nc.close();
    await d.stop();
  });

  /** Messages kept for the deployment. */
  const kept = async (): Promise<number> => {
    const answer: unknown = JSON.parse((await lean.request(`$JS.API.STREAM.INFO.${blobStream}`, JSON.stringify({ subjects_filter: blobSubjects(d.org.id, d.id).all }), { timeoutMs: 10_000 })).string());
    const { state } = answer as { readonly state: { readonly subjects?: Readonly<Record<string, number>> } };
    return Object.values(state.subjects ?? {}).reduce((sum, count) => sum + count, 0);
  };
  const memory = (pid: number, what: 'VmRSS' | 'VmHWM'): number => Number(new RegExp(`^${what}:\\s+(\\d+) kB$`, 'm').exec(readFileSync(`/proc/${pid}/status`, 'latin1'))?.[1]) * 1_024;

  it('[BLB-007] [BLB-008] carries 512 MiB up and down while neither gateway nor daemon grows by 200 MiB, and refuses a byte more, keeping nothing of it', async (t) => {
    const seed = runSeed();
    t.diagnostic(`seed ${seed}`);
    // What a first request costs is not the blob's.
    const small = contentOf(8 * mebibyte, seed, createHash('sha256'));
    await client.call('POST', '/v1/blobs', { body: small });
    const pids = { gateway: d.gateways[0]?.pid ?? 0, daemon: d.daemons[0]?.pid ?? 0 };
    const before = { gateway: memory(pids.gateway, 'VmRSS'), daemon: memory(pids.daemon, 'VmRSS') };

    const hash = createHash('sha256');
    const size = limits.blobMaxBytes;
    assert.equal(size, 512 * mebibyte);
    const up = await client.call('POST', '/v1/blobs', { body: contentOf(size, seed + 1, hash), headers: { 'content-length': String(size), 'content-type': 'application/x-tar' } });
    assert.equal(up.status, 201, up.body.toString());
    const entry = blobAnswer.parse(JSON.parse(up.body.toString()));
    assert.deepEqual({ hash: entry.hash, size: entry.size }, { hash: `sha256:${hash.digest('hex')}`, size });
    const down = await client.open('GET', `/v1/blobs/${entry.hash}`);
    assert.deepEqual(await hashed(down), { hash: entry.hash, bytes: size });
    assert.deepEqual([down.statusCode, down.headers['content-length']], [200, String(size)]);

    const count = await kept();
    const longer = (function* longer() {
      const piece = Buffer.alloc(mebibyte, 'nothing that is not there already ');
      for (let at = 0; at < size; at += mebibyte) yield piece;
      yield Buffer.from('!');
    })();
    const refused = await client.call('POST', '/v1/blobs', { body: longer });
    assert.deepEqual([refused.status, codeOf(refused.body)], [413, 'payload_too_large']);
    assert.equal(await kept(), count);

    for (const name of ['gateway', 'daemon'] as const) {
      const grown = memory(pids[name], 'VmHWM') - before[name];
      t.diagnostic(`${name}: ${Math.round(before[name] / mebibyte)} MiB, at most ${Math.round(grown / mebibyte)} MiB more`);
      assert.ok(grown < 200 * mebibyte, `${name} grew by ${Math.round(grown / mebibyte)} MiB`);
    }
  });

  it('[BLB-008] holds little of a blob that its client does not take', async () => {
    const hash = createHash('sha256');
    const size = 48 * mebibyte;
    await client.call('POST', '/v1/blobs', { body: contentOf(size, 7, hash) });
    const name = `sha256:${hash.digest('hex')}`;
    const before = memory(d.gateways[0]?.pid ?? 0, 'VmRSS');
    const idle = await Promise.all(Array.from({ length: 5 }, () => client.open('GET', `/v1/blobs/${name}`)));
    // All five wait for their clients; another is served beside them meanwhile.
    assert.deepEqual(await hashed(await client.open('GET', `/v1/blobs/${name}`)), { hash: name, bytes: size });
    assert.ok(memory(d.gateways[0]?.pid ?? 0, 'VmRSS') - before < 100 * mebibyte, 'five times 48 MiB would be there otherwise');
    assert.deepEqual(await Promise.all(idle.map((answer) => hashed(answer))), idle.map(() => ({ hash: name, bytes: size })));
  });

  it('[BLB-016] leaves no blob of an upload whose daemon is killed; what it left is swept, and the content can be stored again', async () => {
    const before = await kept();
    const bytes = Buffer.concat([...contentOf(6 * limits.blobFrameBytes, runSeed(), createHash('sha256'))]);
    const request = client.begin('/v1/blobs', { 'content-length': String(bytes.length) });
    const status = new Promise<number | string>((resolve) => {
      request.on('response', (answer) => {
        answer.resume();
        resolve(answer.statusCode ?? 0);
      });
      request.on('error', (error) => resolve(error.message));
    });
    request.write(bytes.subarray(0, -10));
    while (await kept() < before + 3) await turn();
    const [daemon] = d.daemons;
    assert.ok(daemon);
    await daemon.kill('SIGKILL');
    assert.notEqual(await status, 201);
    request.destroy();
    await daemon.start();
    const name = sha256(bytes);
    const gone = await until(() => client.call('GET', `/v1/blobs/${name}`), ({ status: code }) => code !== 503);
    assert.deepEqual([gone.status, codeOf(gone.body)], [404, 'blob_not_found']);
    assert.ok(await kept() > before, 'its frames are there, under no name');
    const again = await client.call('POST', '/v1/blobs', { body: bytes });
    assert.equal(again.status, 201, again.body.toString());
    assert.ok(await sweepUploads({ lean, now: () => Date.now() + limits.blobSweepAgeMs + 60_000, log: silent, signal: new AbortController().signal }) >= 1);
    assert.deepEqual(await hashed(await client.open('GET', `/v1/blobs/${name}`)), { hash: name, bytes: bytes.length });
    const index = Math.ceil(blobAnswer.parse(JSON.parse(again.body.toString())).compressed_size / limits.blobPartBytes);
    assert.ok(await kept() <= before + index + 6 + 1, 'no more than its own parts and index');
  });

  it('[BLB-009] an upload goes on over a NATS that is killed and comes back, and what it stored is whole', async () => {
    const bytes = Buffer.concat([...contentOf(8 * limits.blobFrameBytes, runSeed(), createHash('sha256'))]);
    const before = await kept();
    const request = client.begin('/v1/blobs', { 'content-length': String(bytes.length) });
    const answered = new Promise<number>((resolve, reject) => {
      request.on('response', (answer) => {
        answer.resume();
        resolve(answer.statusCode ?? 0);
      });
      request.on('error', reject);
    });
    const half = bytes.length / 2;
    request.write(bytes.subarray(0, half));
    while (await kept() < before + 3) await turn();
    await d.nats.kill('SIGKILL');
    request.write(bytes.subarray(half, half + limits.blobFrameBytes));
    await d.nats.restart();
    request.end(bytes.subarray(half + limits.blobFrameBytes));
    assert.equal(await answered, 201);
    const name = sha256(bytes);
    const back = await until(() => client.open('GET', `/v1/blobs/${name}`), ({ statusCode }) => statusCode === 200);
    assert.deepEqual(await hashed(back), { hash: name, bytes: bytes.length });
  });
});

/** Asks until the answer fits: who was killed needs a moment. */
const until = async <T>(ask: () => Promise<T>, fits: (answer: T) => boolean): Promise<T> => {
  for (;;) {
    const answer = await ask();
    if (fits(answer)) return answer;
    await turn();
  }
};
