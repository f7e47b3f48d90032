/** A platform as the command sees it: a TLS server whose answers a test scripts, and what it was asked. For client behaviour only. */
import { createServer, type Server } from 'node:https';
import type { AddressInfo } from 'node:net';
import { generate } from 'selfsigned';

export interface Asked {
  readonly method: string;
  readonly path: string;
  readonly query: URLSearchParams;
  readonly authorization: string | undefined;
  readonly body: unknown;
  /** As `performance.now()`. */
  readonly atMs: number;
}
export interface Said {
  readonly status: number;
  readonly body: unknown;
  readonly headers?: Readonly<Record<string, string>>;
}
/** By `METHOD /path`. What is missing is 404. */
export type Script = Readonly<Record<string, (asked: Asked) => Said>>;

export class FakePlatform {
  readonly asked: Asked[] = [];
  script: Script = {};
  readonly caPem: string;
  readonly #server: Server;

  private constructor(server: Server, caPem: string) {
    this.#server = server;
    this.caPem = caPem;
  }

  static async start(): Promise<FakePlatform> {
    const pair = await generate([{ name: 'commonName', value: 'localhost' }], {
      keyType: 'ec', extensions: [{ name: 'subjectAltName', altNames: [{ type: 2, value: 'localhost' }] }, { name: 'basicConstraints', cA: true }],
    });
    const server = createServer({ cert: pair.cert, key: pair.private });
    const fake = new FakePlatform(server, pair.cert);
    server.on('request', (request, response) => {
      const chunks: Buffer[] = [];
      request.on('data', (chunk: Buffer) => chunks.push(chunk));
      request.on('end', () => {
        const url = new URL(request.url ?? '/', 'https://localhost');
        const text = Buffer.concat(chunks).toString();
        const asked: Asked = {
          method: request.method ?? '', path: url.pathname, query: url.searchParams, authorization: request.headers.authorization,
          body: text === '' ? undefined : JSON.parse(text), atMs: performance.now(),
        };
        fake.asked.push(asked);
        const answer = fake.script[`${asked.method} ${asked.path}`];
        const said = answer?.(asked) ?? { status: 404, body: { error: { code: 'not_found', message: 'There is nothing here.' } } };
        response.writeHead(said.status, { 'content-type': 'application/json', ...said.headers }).end(typeof said.body === 'string' ? said.body : JSON.stringify(said.body));
      });
    });
    await new Promise<void>((resolve) => { server.listen(0, '127.0.0.1', resolve); });
    return fake;
  }

  get url(): string {
    return `https://localhost:${(this.#server.address() as AddressInfo).port}`;
  }

  times(route: string): number {
    return this.asked.filter((a) => `${a.method} ${a.path}` === route).length;
  }

  async stop(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise<void>((resolve) => { this.#server.close(() => { resolve(); }); });
  }
}
