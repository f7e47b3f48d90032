/**
 * fetch and WebSocket over TLS as Node has them, trusting the public authorities and the one given. Certificates are always
 * verified; there is no switch to turn that off.
 */
import { rootCertificates } from 'node:tls';
import { Agent, fetch } from 'undici';
import { WebSocket } from 'ws';
import { limits } from '../../contracts/limits.ts';
import type { EdgeFetch } from '../client/edge.ts';
import type { StreamSocketConstructor } from '../client/state.ts';

export interface Transport {
  readonly fetch: EdgeFetch;
  readonly WebSocket: StreamSocketConstructor;
  /** Drops the kept connections, so that the process may end. */
  close(): Promise<void>;
}

export const createTransport = (caPem: string | undefined): Transport => {
  const ca = caPem === undefined ? undefined : [...rootCertificates, caPem];
  const agent = new Agent({ connect: ca === undefined ? {} : { ca } });
  return {
    fetch: (url, init) => fetch(url, { ...init, dispatcher: agent }),
    WebSocket: class extends WebSocket {
      constructor(url: string, protocols: string[]) {
        super(url, protocols, {
          ...(ca === undefined ? {} : { ca }),
          perMessageDeflate: false, maxPayload: limits.clientReceiveMaxBytes, handshakeTimeout: limits.clientConnectMs,
        });
      }
    },
    close: () => agent.destroy(),
  };
};
