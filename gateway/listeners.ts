/**
 * All listeners of a gateway as one server: each serves its surfaces, all share certificate, sockets and requests.
 *
 * Guarantee: either every listener listens or none does.
 */
import { boundReceiveBuffers } from './receive-buffer.ts';
import { startServer, type Server, type ServerOptions } from './server.ts';
import type { StreamConnection } from './stream.ts';

export type ListenerOptions = Pick<ServerOptions, 'host' | 'port' | 'surfaces'>;

export interface Listeners extends Omit<Server, 'port' | 'sockets'> {
  /** In the order they were given. */
  readonly ports: readonly number[];
  readonly socketCount: number;
  /** Those open now. */
  sockets(): readonly StreamConnection[];
}

/** Rejects with `bad_config`, `cert_reload_failed`; then nothing listens. */
export const startListeners = async (listeners: readonly ListenerOptions[], shared: Omit<ServerOptions, keyof ListenerOptions>): Promise<Listeners> => {
  const servers: Server[] = [];
  try {
    for (const listener of listeners) {
      const server = await startServer({ ...shared, ...listener });
      servers.push(server);
      await boundReceiveBuffers(server.port);
    }
  } catch (error) {
    for (const server of servers) server.close();
    throw error;
  }
  return {
    ports: servers.map((server) => server.port),
    get socketCount() {
      return servers.reduce((sum, server) => sum + server.sockets.size, 0);
    },
    sockets: () => servers.flatMap((server) => [...server.sockets]),
    get requests() {
      return servers.reduce((sum, server) => sum + server.requests, 0);
    },
    swap: (certificate) => {
      // One pair for all: what the first takes, the others take.
      for (const server of servers) server.swap(certificate);
    },
    stopListening: () => {
      for (const server of servers) server.stopListening();
    },
    close: () => {
      for (const server of servers) server.close();
    },
  };
};
