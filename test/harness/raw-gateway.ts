/**
 * A gateway end of the link that a test drives frame by frame, right or wrong: for tests of the daemon's end.
 * Keeps every frame received (payload copied); `until` resolves with the first that fits, already there or to come.
 */
import { connect, type Socket } from 'node:net';
import { once } from 'node:events';
import { encodeFrame, encodeRequest, FrameReader, frameType, linkVersion, type Frame, type FrameType } from '../../contracts/link.ts';

export interface RawGateway {
  readonly socket: Socket;
  readonly frames: readonly Frame[];
  readonly closed: Promise<void>;
  write(...bytes: Uint8Array[]): void;
  hello(version?: number): void;
  request(id: number, route: number, body: string, options?: { readonly token?: string; readonly deadlineMs?: number; readonly open?: boolean }): void;
  /** The first frame that fits and was not given before. Rejects when the connection ends before. */
  until(type: FrameType, id?: number): Promise<Frame>;
}

export const rawGateway = async (socketPath: string): Promise<RawGateway> => {
  const socket = connect({ path: socketPath });
  await once(socket, 'connect');
  const frames: Frame[] = [];
  const given = new Set<Frame>();
  const closed = Promise.withResolvers<void>();
  let waits: { readonly type: FrameType; readonly id: number | undefined; readonly resolve: (frame: Frame) => void; readonly reject: (error: Error) => void }[] = [];
  const reader = new FrameReader((view) => {
    const frame = { ...view, payload: Buffer.from(view.payload) };
    frames.push(frame);
    const wait = waits.find((w) => w.type === frame.type && (w.id === undefined || w.id === frame.id));
    if (wait === undefined) return;
    waits = waits.filter((w) => w !== wait);
    given.add(frame);
    wait.resolve(frame);
  });
  socket.on('data', (chunk: Buffer) => reader.push(chunk));
  socket.on('error', () => socket.destroy());
  socket.on('close', () => {
    closed.resolve();
    for (const wait of waits) wait.reject(new Error(`the connection ended before a frame of type ${wait.type}`));
  });
  return {
    socket, frames, closed: closed.promise,
    write: (...bytes) => void socket.write(Buffer.concat(bytes)),
    hello: (version = linkVersion) => void socket.write(encodeFrame(frameType.hello, 0, JSON.stringify({ version, role: 'gateway', release: 'test', pid: process.pid }))),
    request: (id, route, body, options = {}) => void socket.write(encodeRequest(options.open === true ? frameType.open : frameType.request, id, {
      route, body, deadlineMs: options.deadlineMs ?? 10_000, token: options.token ?? 'token',
    })),
    until: (type, id) => {
      const found = frames.find((frame) => !given.has(frame) && frame.type === type && (id === undefined || frame.id === id));
      if (found !== undefined) {
        given.add(found);
        return Promise.resolve(found);
      }
      return new Promise((resolve, reject) => waits.push({ type, id, resolve, reject }));
    },
  };
};
