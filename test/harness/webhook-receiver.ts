/**
 * A receiver of webhooks: a real https server on a loopback address that keeps what it gets and answers as the test says. Waiting is by
 * what arrives.
 */
import { once } from 'node:events';
import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from 'node:http';
import { createServer } from 'node:https';
import type { AddressInfo, Socket } from 'node:net';
import type { ServerCertificate } from './certificate.ts';

export interface ReceivedWebhook {
  readonly method: string;
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}

/**
 * A status with further headers; `stall` = no answer; `reset` = the connection is cut; `endless` = 200 and a body that never ends, fast;
 * `trickle` = 200 and a body that says nothing more; `bighead` = 200 with a head beyond all bounds.
 */
export type Answer = number | { readonly status: number; readonly headers: Readonly<Record<string, string>> } | 'stall' | 'reset' | 'endless' | 'trickle' | 'bighead';

export interface WebhookReceiver {
  readonly port: number;
  readonly webhooks: readonly ReceivedWebhook[];
  /** Connections so far, also those without a request. */
  readonly connections: number;
  /** Bytes of endless bodies written so far. */
  readonly written: number;
  /** What each request gets from now on; a function gets its number, from 1. */
  answer(by: Answer | ((nth: number) => Answer)): void;
  /** Resolves when so many requests came in all. */
  received(count: number): Promise<void>;
  /** Resolves when no connection is open. */
  idle(): Promise<void>;
  stop(): Promise<void>;
}

const endless = (response: ServerResponse, wrote: (bytes: number) => void): void => {
  const chunk = Buffer.alloc(64 * 1024, 'x');
  response.writeHead(200, { 'content-type': 'text/plain' });
  const more = (): void => {
    while (!response.destroyed && response.write(chunk)) wrote(chunk.length);
    if (response.destroyed) return;
    wrote(chunk.length);
    response.once('drain', more);
  };
  more();
};

/** Listens on `host` (default 127.0.0.1) and a free port. */
export const startWebhookReceiver = async (certificate: ServerCertificate, host = '127.0.0.1', port = 0): Promise<WebhookReceiver> => {
  const webhooks: ReceivedWebhook[] = [];
  const waits: { readonly count: number; readonly give: () => void }[] = [];
  const idlers: (() => void)[] = [];
  const sockets = new Set<Socket>();
  let connections = 0;
  let written = 0;
  let answerOf: (nth: number) => Answer = () => 200;

  const reply = (answer: Answer, response: ServerResponse): void => {
    if (typeof answer === 'number') response.writeHead(answer).end('thanks');
    else if (typeof answer === 'object') response.writeHead(answer.status, answer.headers).end();
    else if (answer === 'reset') response.socket?.destroy();
    else if (answer === 'endless') endless(response, (bytes) => { written += bytes; });
    else if (answer === 'trickle') response.writeHead(200).write('.');
    else if (answer === 'bighead') response.writeHead(200, { 'x-filler': 'x'.repeat(100_000) }).end();
  };
  const take = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const { method = '', url = '', headers } = request;
    webhooks.push({ method, path: url, headers, body: Buffer.concat(chunks).toString('utf8') });
    reply(answerOf(webhooks.length), response);
    for (const wait of waits) if (webhooks.length >= wait.count) wait.give();
  };
  const server = createServer({ ...certificate, keepAlive: true, keepAliveTimeout: 60_000 }, (request, response) => {
    // A sender that gives up in the middle is part of some tests.
    take(request, response).catch(() => response.destroy());
  });
  server.on('connection', (socket: Socket) => {
    connections += 1;
    sockets.add(socket);
    socket.once('close', () => {
      sockets.delete(socket);
      if (sockets.size === 0) for (const give of idlers.splice(0)) give();
    });
  });
  server.listen(port, host);
  await once(server, 'listening');
  return {
    port: (server.address() as AddressInfo).port,
    webhooks,
    get connections() { return connections; },
    get written() { return written; },
    answer: (by) => { answerOf = typeof by === 'function' ? by : () => by; },
    received: (count) => new Promise((resolve) => {
      if (webhooks.length >= count) resolve();
      else waits.push({ count, give: resolve });
    }),
    idle: () => new Promise((resolve) => {
      if (sockets.size === 0) resolve();
      else idlers.push(resolve);
    }),
    stop: () => new Promise((resolve) => {
      server.close(() => resolve());
      for (const socket of sockets) socket.destroy();
    }),
  };
};
