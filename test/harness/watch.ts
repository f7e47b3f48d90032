/** A watcher of a session at a gateway under test: socket, the fake daemon's half, and how it ended. */
import assert from 'node:assert/strict';
import type { WebSocket } from 'ws';
import { ending, nextFrame, opened, startEdge, type Edge, type EdgeOptions, type Ending } from './gateway.ts';
import type { PeerStream } from './peer.ts';

/** Limits that no test meets by accident. */
export const wide = { limits: { per_user_capacity: 10_000, per_ip_capacity: 10_000, sockets_per_user: 1_000 } };
export const frame = (value: object): string => JSON.stringify(value);

export interface Watched {
  readonly socket: WebSocket;
  readonly stream: PeerStream;
  readonly ended: Promise<Ending>;
}

export const watch = async (edge: Edge, options: Parameters<Edge['socket']>[1] = {}, sid = 's'): Promise<Watched> => {
  const token = options.token ?? await edge.issuer.token('alice');
  const stream = edge.peer.opened();
  const socket = edge.socket(sid, { ...options, token });
  const ended = ending(socket);
  await opened(socket);
  return { socket, stream: await stream, ended };
};

/** The close with this code and reason, a closing frame with the same reason before it. */
export const closedWith = ({ code, reason, frames }: Ending, expectedCode: number, expectedReason: string): void => {
  assert.deepEqual([code, reason], [expectedCode, expectedReason]);
  assert.deepEqual(frames.at(-1), { kind: 'closing', reason: expectedReason });
  assert.equal(frames.filter((one) => JSON.stringify(one).includes('"closing"')).length, 1);
};

/** Sends a ping and waits for its pong: whatever was sent before has been handled on both sides then. */
export const roundTrip = async (socket: WebSocket, seqNo = 1): Promise<void> => {
  const answer = nextFrame(socket);
  socket.send(frame({ kind: 'ping', seq_no: seqNo }));
  assert.equal(await answer, `{"kind":"pong","seq_no":${seqNo}}`);
};

export const withEdge = async (options: EdgeOptions, body: (edge: Edge) => Promise<void>): Promise<void> => {
  const edge = await startEdge(options);
  try {
    await body(edge);
  } finally {
    await edge.stop();
  }
};
