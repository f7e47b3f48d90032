/**
 * Both ends of the link in processes of their own: the daemon's end with a handler that answers at once, the gateway's end
 * that calls, and for the floor the same frames echoed over a Unix socket.
 */
import { createServer, connect, type Socket } from 'node:net';
import { createLinkServer } from '../../actors/daemon/link.ts';
import { encodeRequest, frameType } from '../../contracts/link.ts';
import { routes } from '../../contracts/routes.ts';
import { connectLink, type Link } from '../../gateway/link.ts';
import { silent } from '../harness/log.ts';
import { callbackLanes, callLanes, perSec } from './lanes.ts';
import { serve } from './part.ts';

/** What a capability and a small JSON body take. */
const token = 'x'.repeat(380);
const body = JSON.stringify({ text: 'x'.repeat(168) });
const headBytes = 4;

/** Calls `onFrame` for each whole frame of a byte stream, by its length alone; gives what to feed chunks to. */
const cutter = (onFrame: (frame: Buffer) => void): ((chunk: Buffer) => void) => {
  let rest: Buffer | undefined;
  return (chunk) => {
    const bytes = rest === undefined ? chunk : Buffer.concat([rest, chunk]);
    let at = 0;
    while (bytes.length - at >= headBytes) {
      const end = at + headBytes + bytes.readUInt32BE(at);
      if (end > bytes.length) break;
      onFrame(bytes.subarray(at, end));
      at = end;
    }
    rest = at < bytes.length ? bytes.subarray(at) : undefined;
  };
};

/** Writes of one event-loop turn as one. */
const gatherer = (socket: Socket): ((frame: Buffer) => void) => {
  let frames: Buffer[] = [];
  return (frame) => {
    frames.push(frame);
    if (frames.length > 1) return;
    setImmediate(() => {
      const run = frames;
      frames = [];
      socket.write(run.length === 1 && run[0] !== undefined ? run[0] : Buffer.concat(run));
    });
  };
};

let link: Link | undefined;
let echo: Socket | undefined;

const jobs = {
  /** The daemon's end. */
  listen: async ({ path }: { readonly path: string }) => {
    const answer = Promise.resolve({ status: 200, body });
    const server = createLinkServer({
      release: 'bench', host: 'bench', partitions: 64, log: silent,
      handlers: { request: () => answer, open: (stream) => stream.close(1011, 'internal_error') },
    });
    await new Promise<void>((resolve) => { createServer({ pauseOnConnect: true }, (socket) => server.accept(socket)).listen(path, resolve); });
  },
  /** The floor's: each frame is written back, gathered once a turn of the event loop. */
  listenEcho: async ({ path }: { readonly path: string }) => {
    await new Promise<void>((resolve) => {
      createServer((socket) => {
        const write = gatherer(socket);
        socket.on('data', cutter(write));
        socket.on('error', () => socket.destroy());
      }).listen(path, resolve);
    });
  },
  connect: async ({ path, echoPath }: { readonly path: string; readonly echoPath: string }) => {
    const opened = connectLink({ socketPath: path, release: 'bench', log: silent });
    link = opened;
    await new Promise<void>((resolve) => {
      const end = opened.onState(({ connected }) => {
        if (connected !== 1) return;
        end();
        resolve();
      });
    });
    const socket = connect(echoPath);
    echo = socket;
    await new Promise<void>((resolve) => { socket.once('connect', () => resolve()); });
  },
  calls: async ({ lanes, ms }: { readonly lanes: number; readonly ms: number }) => {
    const opened = link;
    if (opened === undefined) throw new Error('not connected');
    return perSec(await callLanes(lanes, ms, () => opened.request(routes.createSession, { token, body })));
  },
  /** The same frames: made anew for each call as the link must, sent, cut by length, counted in the order they come back. */
  echoes: async ({ lanes, ms }: { readonly lanes: number; readonly ms: number }) => {
    const socket = echo;
    if (socket === undefined) throw new Error('not connected');
    const write = gatherer(socket);
    const nexts = new Map<number, () => void>();
    const onData = cutter((frame) => {
      const id = frame.readUInt32BE(5);
      const next = nexts.get(id);
      nexts.delete(id);
      next?.();
    });
    socket.on('data', onData);
    let id = 0;
    const rate = await callbackLanes(lanes, ms, (_lane, next) => {
      id += 1;
      nexts.set(id, next);
      write(encodeRequest(frameType.request, id, { route: routes.createSession.wire, deadlineMs: 10_000, token, body }));
    });
    socket.off('data', onData);
    return perSec(rate);
  },
};
export type LinkJobs = typeof jobs;
serve(jobs);
