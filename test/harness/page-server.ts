/** Pages for the fetch tool, on a free port of this machine: each path has its own text, and every request is written down. */
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';

export interface PageServer {
  readonly url: string;
  /** Paths asked for, in order. */
  readonly asked: readonly string[];
  stop(): Promise<void>;
}

export const pageServer = async (): Promise<PageServer> => {
  const asked: string[] = [];
  const server = createServer((request, response) => {
    const path = request.url ?? '';
    asked.push(path);
    response.writeHead(200, { 'content-type': 'text/plain' }).end(`The page ${path}.`);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}`, asked,
    stop: async () => {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
};
