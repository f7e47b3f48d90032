/**
 * /readyz and /metrics on a local plain listener of their own, away from the public one (decisions, Edge gateway).
 *
 * /readyz: 200 while this process takes new work and a daemon is connected, else 503. Holds no secret; still, bind it to a
 * local address. Offers none of the admin operations.
 */
import { createServer } from 'node:http';
import { refuse } from '../contracts/errors.ts';

export interface OpsOptions {
  readonly host: string;
  readonly port: number;
  readonly ready: () => boolean;
  /** Prometheus text. */
  readonly metrics: () => string;
}

export interface Ops {
  readonly port: number;
  close(): Promise<void>;
}

/** Rejects with `bad_config` if the address is not free. */
export const startOps = async (options: OpsOptions): Promise<Ops> => {
  const server = createServer({ requestTimeout: 5_000, headersTimeout: 5_000, maxHeaderSize: 8_192 }, (request, response) => {
    const text = (status: number, body: string, type = 'text/plain; charset=utf-8'): void => {
      response.writeHead(status, { 'content-type': type, 'cache-control': 'no-store' }).end(body);
    };
    const { pathname } = new URL(request.url ?? '/', 'http://local');
    if (request.method !== 'GET') text(405, 'GET only\n');
    else if (pathname === '/readyz') text(options.ready() ? 200 : 503, options.ready() ? 'ready\n' : 'not ready\n');
    else if (pathname === '/metrics') text(200, options.metrics(), 'text/plain; version=0.0.4; charset=utf-8');
    else text(404, 'not found\n');
  });
  server.maxConnections = 64;
  await new Promise<void>((resolve, reject) => {
    server.once('error', (error) => reject(refuse('bad_config', `ops: ${error.message}`)));
    server.listen(options.port, options.host, resolve);
  });
  const address = server.address();
  return {
    port: typeof address === 'object' && address !== null ? address.port : options.port,
    close: () => new Promise((resolve) => {
      server.close(() => resolve());
      server.closeAllConnections();
    }),
  };
};
