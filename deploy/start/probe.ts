/** One look each at whether something serves: a TCP port that greets, a Unix socket that accepts, a gateway that is healthy. */
import { readFileSync } from 'node:fs';
import { get as getPlain } from 'node:http';
import { get } from 'node:https';
import { connect } from 'node:net';

const lookMs = 1_000;

/** Whether a NATS server greets on the port (its INFO line). */
export const natsGreets = (port: number, host = '127.0.0.1'): Promise<boolean> => new Promise((resolve) => {
  const socket = connect({ host, port });
  const done = (greets: boolean): void => { socket.destroy(); resolve(greets); };
  socket.setTimeout(lookMs, () => done(false));
  socket.once('data', (chunk: Buffer) => done(chunk.toString('latin1').startsWith('INFO ')));
  socket.once('error', () => done(false));
  socket.once('close', () => resolve(false));
});

/** Whether somebody accepts connections on a Unix socket. */
export const socketAccepts = (path: string): Promise<boolean> => new Promise((resolve) => {
  const socket = connect({ path });
  const done = (accepts: boolean): void => { socket.destroy(); resolve(accepts); };
  socket.setTimeout(lookMs, () => done(false));
  socket.once('connect', () => done(true));
  socket.once('error', () => done(false));
});

/** Whether `GET /healthz` answers 200, which it does only when a daemon answers behind it. The certificate is verified. */
export const gatewayHealthy = (port: number, caPath: string, host = '127.0.0.1'): Promise<boolean> => new Promise((resolve) => {
  const request = get({ host, port, path: '/healthz', ca: readFileSync(caPath), servername: 'localhost', timeout: lookMs, agent: false }, (response) => {
    response.resume();
    response.once('end', () => resolve(response.statusCode === 200));
    response.once('error', () => resolve(false));
  });
  request.once('timeout', () => request.destroy());
  request.once('error', () => resolve(false));
});

/** Whether one gateway process is ready: `/readyz` of its own operations listener, also where several share the public port. */
export const gatewayReady = (opsPort: number, host = '127.0.0.1'): Promise<boolean> => new Promise((resolve) => {
  const request = getPlain({ host, port: opsPort, path: '/readyz', timeout: lookMs, agent: false }, (response) => {
    response.resume();
    response.once('end', () => resolve(response.statusCode === 200));
    response.once('error', () => resolve(false));
  });
  request.once('timeout', () => request.destroy());
  request.once('error', () => resolve(false));
});
