/**
 * Free TCP ports on the loopback address.
 *
 * A port is tried by listening on it without SO_REUSEPORT, because the gateway listens with it and would otherwise join a
 * stranger's port. Between the try and the use another process may take it: then the child's own error says so.
 */
import { createServer } from 'node:net';
import { limits } from '../../contracts/limits.ts';

/** Whether nobody listens on the port (0 = any free one); gives the port tried. */
const tryPort = (host: string, port: number): Promise<number | undefined> => new Promise((resolve, reject) => {
  const server = createServer();
  server.once('error', (error: NodeJS.ErrnoException) => {
    if (error.code === 'EADDRINUSE' || error.code === 'EACCES') resolve(undefined);
    else reject(error);
  });
  server.listen({ host, port, exclusive: true }, () => {
    const address = server.address();
    const found = typeof address === 'object' && address !== null ? address.port : undefined;
    server.close(() => resolve(found));
  });
});

/** The wanted port, or the next free one above it. Throws a sentence after `limits.portTriesMax` taken ones. */
export const freePortFrom = async (wanted: number, host = '127.0.0.1', taken: ReadonlySet<number> = new Set()): Promise<number> => {
  for (let port = wanted; port < Math.min(wanted + limits.portTriesMax, 65_536); port++) {
    if (!taken.has(port) && await tryPort(host, port) !== undefined) return port;
  }
  throw new Error(`No free port on ${host} from ${wanted} to ${wanted + limits.portTriesMax - 1}.`);
};

/** Any free port. */
export const freePort = async (host = '127.0.0.1'): Promise<number> => {
  const port = await tryPort(host, 0);
  if (port === undefined) throw new Error(`The system gives no free port on ${host}.`);
  return port;
};
