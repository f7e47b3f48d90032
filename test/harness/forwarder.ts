/**
 * Stands between a client and a whole Troupe, over TLS with a certificate of its own: passes each request on from an address that the test
 * chooses, and remembers what was asked and answered. What it does not do: change anything that passes.
 */
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { certificateFor } from './certificate.ts';
import type { ApiReply, Method, TestPlatform } from './platform.ts';

export interface Passed {
  readonly path: string;
  readonly reply: ApiReply;
  /** When the request came, as `performance.now()`. */
  readonly atMs: number;
}

export interface Forwarder {
  readonly url: string;
  readonly caPem: string;
  /** Address of the loopback network that requests come from. */
  from: string;
  /** Runs before a request is passed on. */
  before: (path: string) => Promise<void>;
  /** The next request of the path that no earlier call has given, and its answer; passed already or to come. */
  next(path: string): Promise<Passed>;
  stop(): Promise<void>;
}

const methods: readonly Method[] = ['GET', 'POST', 'PATCH', 'DELETE'];

export const startForwarder = async (platform: TestPlatform, from: string): Promise<Forwarder> => {
  const { cert, key } = await certificateFor(['localhost']);
  const untaken: Passed[] = [];
  let waiting: { readonly path: string; readonly done: (passed: Passed) => void }[] = [];
  const server = createServer({ cert, key }, (request, response) => {
    const chunks: Buffer[] = [];
    const atMs = performance.now();
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const path = request.url ?? '/';
      const method = methods.find((name) => name === request.method) ?? 'GET';
      const { authorization } = request.headers;
      const pass = async (): Promise<void> => {
        await forwarder.before(path);
        const text = Buffer.concat(chunks).toString('utf8');
        const reply = await platform.api(method, path, {
          localAddress: forwarder.from, ...(text === '' ? {} : { json: JSON.parse(text) as unknown }), headers: authorization === undefined ? {} : { authorization },
        });
        response.writeHead(reply.status, { 'content-type': reply.headers['content-type'] ?? '', ...(reply.headers['retry-after'] === undefined ? {} : { 'retry-after': reply.headers['retry-after'] }) }).end(reply.body);
        const passed = { path, reply, atMs };
        const taker = waiting.find((one) => one.path === path);
        if (taker === undefined) untaken.push(passed);
        else {
          waiting = waiting.filter((one) => one !== taker);
          taker.done(passed);
        }
      };
      pass().catch((error: unknown) => response.destroy(error instanceof Error ? error : new Error(String(error))));
    });
  });
  await new Promise<void>((resolve) => { server.listen(0, '127.0.0.1', resolve); });
  const forwarder: Forwarder = {
    url: `https://localhost:${(server.address() as AddressInfo).port}`, caPem: cert, from,
    before: () => Promise.resolve(),
    next: (path) => new Promise((done) => {
      const at = untaken.findIndex((passed) => passed.path === path);
      const [there] = at === -1 ? [] : untaken.splice(at, 1);
      if (there === undefined) waiting.push({ path, done });
      else done(there);
    }),
    stop: async () => {
      server.closeAllConnections();
      await new Promise<void>((resolve) => { server.close(() => { resolve(); }); });
    },
  };
  return forwarder;
};
