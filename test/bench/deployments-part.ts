/**
 * The client of the deployment benchmark: appends to client streams and moves blobs, over kept TLS connections, as many at once as asked.
 *
 * Guarantee: every answer's status is checked, and a blob that comes down has the bytes that went up, or the sample fails.
 */
import { randomBytes } from 'node:crypto';
import { blobClient, type BlobClient, type BlobReply } from '../harness/blob-client.ts';
import { serve } from './part.ts';

let client: BlobClient | undefined;
const here = (): BlobClient => client ?? (() => { throw new Error('not connected'); })();
let streams = 0;

const expect = (reply: BlobReply, ...statuses: readonly number[]): BlobReply => {
  if (!statuses.includes(reply.status)) throw new Error(`status ${reply.status}: ${reply.body.toString('utf8').slice(0, 300)}`);
  return reply;
};

const jobs = {
  connect: async ({ port, ca, key }: { readonly port: number; readonly ca: string; readonly key: string }) => { client = blobClient({ port, ca, key }); },
  /** Each lane has a stream of its own; so many events a request. Gives requests per second, and milliseconds of a request. */
  append: async ({ lanes, events, ms }: { readonly lanes: number; readonly events: number; readonly ms: number }) => {
    const times: number[] = [];
    const batch = Array.from({ length: events }, (_, i) => ({ kind: 'note', payload: { i, text: 'a note of about a hundred and eighty bytes, as an agent would keep one of what it has seen and done, so that it can be read again later on' } }));
    const startedMs = performance.now();
    await Promise.all(Array.from({ length: lanes }, async () => {
      const body = Buffer.from(JSON.stringify({ stream_id: `bench-${++streams}`, events: batch }));
      while (performance.now() - startedMs < ms) {
        const from = performance.now();
        expect(await here().call('POST', '/v1/journal/append', { body, headers: { 'content-type': 'application/json' } }), 201);
        times.push(performance.now() - from);
      }
    }));
    const sorted = times.toSorted((a, b) => a - b);
    return { rate: times.length / ((performance.now() - startedMs) / 1_000), p50: sorted[Math.floor(sorted.length / 2)] ?? Number.NaN, p99: sorted[Math.floor(sorted.length * 0.99)] ?? Number.NaN };
  },
  /** One blob up and down again, new bytes each time: noise cannot be packed, text can. Gives megabytes per second. */
  blob: async ({ bytes, content }: { readonly bytes: number; readonly content: 'noise' | 'text' }) => {
    const noise = randomBytes(content === 'noise' ? bytes : 16);
    const body = content === 'noise' ? noise : Buffer.alloc(bytes, `${noise.toString('hex')} and words that agents say to each other all day long\n`);
    const upMs = performance.now();
    const stored = expect(await here().call('POST', '/v1/blobs', { body, headers: { 'content-type': 'application/octet-stream' } }), 200, 201);
    const up = performance.now() - upMs;
    const { hash } = JSON.parse(stored.body.toString('utf8')) as { readonly hash: string };
    const downMs = performance.now();
    const got = expect(await here().call('GET', `/v1/blobs/${hash}`), 200);
    const down = performance.now() - downMs;
    if (!got.body.equals(body)) throw new Error('a blob came down as another');
    return { up: bytes / 1e3 / up, down: bytes / 1e3 / down };
  },
};
export type DeploymentJobs = typeof jobs;
serve(jobs);
