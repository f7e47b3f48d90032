/**
 * A fake daemon on a real Unix socket: speaks contracts/link.ts, answers by a script. For tests of the gateway and its link.
 *
 * By default it says hello, answers pings and keeps whatever else arrives. `on.request` and `on.open` say what to do;
 * everything received is in `seen`, and `arrival` resolves when a frame of a kind has come. It checks nothing that the
 * script does not check: it can be told to break every rule (`raw`, `hello: false`, another version).
 */
import { createServer, type Socket } from 'node:net';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  decodeClose, decodeRequest, encodeClose, encodeData, encodeFrame, encodeResponse, FrameReader, frameType, linkVersion, type Frame, type FrameType,
} from '../../contracts/link.ts';
import { anyRouteByWire, type AnyRoute } from '../../contracts/platform-routes.ts';

export interface PeerRequest {
  readonly peer: PeerConnection;
  readonly id: number;
  readonly route: AnyRoute | undefined;
  readonly deadlineMs: number;
  readonly token: string;
  /** The body, decoded if it is JSON, else undefined. */
  readonly json: unknown;
  readonly body: Buffer;
  /** Answers the request: `body` is sent as JSON. */
  answer(status: number, body: unknown): void;
}

export interface PeerStream {
  readonly peer: PeerConnection;
  readonly id: number;
  readonly token: string;
  /** Body of the open frame, decoded. */
  readonly json: unknown;
  /** Bytes the gateway has granted beyond the initial credit. */
  readonly granted: number;
  /** Client texts so far. */
  readonly received: readonly string[];
  /** Code and reason when the gateway closed it. */
  readonly closedBy: { readonly code: number; readonly reason: string } | undefined;
  send(...texts: string[]): void;
  close(code: number, reason: string): void;
  /** The next client text that has not been taken by an earlier call. */
  next(): Promise<string>;
  /** Resolves when the gateway has granted at least this many bytes in all. */
  grantedAtLeast(bytes: number): Promise<void>;
  /** Resolves when the gateway closes the stream. */
  readonly ended: Promise<{ readonly code: number; readonly reason: string }>;
}

export interface PeerScript {
  request?: (request: PeerRequest) => void;
  open?: (stream: PeerStream) => void;
  cancel?: (id: number, peer: PeerConnection) => void;
}

export interface PeerConnection {
  /** Writes bytes as they are. */
  raw(bytes: Uint8Array): void;
  frame(type: FrameType, id: number, payload?: Uint8Array | string): void;
  /** One data frame to many streams. */
  multicast(streams: readonly PeerStream[], ...texts: string[]): void;
  owns(partitions: readonly number[]): void;
  goaway(reason?: string): void;
  /** Stops or continues reading from the socket. */
  pause(): void;
  resume(): void;
  destroy(): void;
  /** Every frame received, payload copied. */
  readonly seen: readonly Frame[];
  readonly ended: Promise<void>;
}

export interface PeerOptions {
  /** Default: a fresh path in a fresh temporary folder, removed by `stop`. */
  readonly socketPath?: string;
  readonly on?: PeerScript;
  /** False = never says hello. */
  readonly hello?: boolean;
  readonly version?: number;
  /** False = never answers a ping. */
  readonly pong?: boolean;
  readonly partitions?: number;
  /** Announced after hello. Default: all. */
  readonly owned?: readonly number[];
}

export interface Peer {
  readonly socketPath: string;
  /** May be replaced at any time. */
  readonly on: PeerScript;
  readonly connections: readonly PeerConnection[];
  /** Resolves with the next connection that says hello. */
  connection(): Promise<PeerConnection>;
  /** Resolves when a frame of this type arrives from now on. */
  arrival(type: FrameType): Promise<Frame>;
  /** Resolves with the next stream opened from now on. */
  opened(): Promise<PeerStream>;
  /** Closes every connection and the socket; `listen` on the same path may follow with a new peer. */
  stop(): Promise<void>;
}

class Waits<T> {
  #waiting: ((value: T) => void)[] = [];
  next(): Promise<T> {
    return new Promise((resolve) => this.#waiting.push(resolve));
  }
  give(value: T): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const resolve of waiting) resolve(value);
  }
}

/** Starts a fake daemon; resolves when it listens. */
export const startPeer = async (options: PeerOptions = {}): Promise<Peer> => {
  const folder = options.socketPath === undefined ? await mkdtemp(join(tmpdir(), 'troupe-peer-')) : undefined;
  const socketPath = options.socketPath ?? join(folder ?? '', 'd0.sock');
  const on: PeerScript = { ...options.on };
  const partitions = options.partitions ?? 64;
  const connections: PeerConnection[] = [];
  const sockets = new Set<Socket>();
  const arrivals = new Map<FrameType, Waits<Frame>>();
  const greeted = new Waits<PeerConnection>();
  const openedStreams = new Waits<PeerStream>();

  const server = createServer((socket) => {
    sockets.add(socket);
    const seen: Frame[] = [];
    const streams = new Map<number, { stream: PeerStream; onText(text: string): void; onCredit(bytes: number): void; onClose(code: number, reason: string): void }>();
    let over: () => void = () => undefined;
    const ended = new Promise<void>((resolve) => {
      over = resolve;
    });
    const peer: PeerConnection = {
      raw: (bytes) => void socket.write(bytes),
      frame: (type, id, payload) => void socket.write(encodeFrame(type, id, payload)),
      multicast: (to, ...texts) => void socket.write(encodeData(to.map((s) => s.id), texts.map((t) => Buffer.from(t)))),
      owns: (owned) => void socket.write(encodeFrame(frameType.owns, 0, JSON.stringify({ partitions: owned }))),
      goaway: (reason = 'draining') => void socket.write(encodeFrame(frameType.goaway, 0, reason)),
      pause: () => void socket.pause(),
      resume: () => void socket.resume(),
      destroy: () => void socket.destroy(),
      seen,
      ended,
    };

    const onOpen = (frame: Frame): void => {
      const { token, body } = decodeRequest(frame.payload);
      const opened = makeStream(peer, socket, frame.id, token, jsonOf(body));
      streams.set(frame.id, opened);
      on.open?.(opened.stream);
      openedStreams.give(opened.stream);
    };

    const onFrame = (view: Frame): void => {
      const frame = { ...view, payload: Buffer.from(view.payload) };
      seen.push(frame);
      switch (frame.type) {
        case frameType.hello: {
          if (options.hello === false) break;
          const own = { version: options.version ?? linkVersion, role: 'daemon', release: 'test', pid: process.pid, host: 'test', partitions };
          peer.frame(frameType.hello, 0, JSON.stringify(own));
          peer.owns(options.owned ?? Array.from({ length: partitions }, (_, n) => n));
          connections.push(peer);
          greeted.give(peer);
          break;
        }
        case frameType.request: {
          const { route, deadlineMs, token, body } = decodeRequest(frame.payload);
          on.request?.({
            peer, id: frame.id, route: anyRouteByWire.get(route), deadlineMs, token, body, json: jsonOf(body),
            answer: (status, answer) => void socket.write(encodeResponse(frame.id, status, JSON.stringify(answer))),
          });
          break;
        }
        case frameType.open:
          onOpen(frame);
          break;
        case frameType.data:
          streams.get(frame.id)?.onText(frame.payload.toString('utf8'));
          break;
        case frameType.credit:
          streams.get(frame.id)?.onCredit(frame.payload.readUInt32BE(0));
          break;
        case frameType.close: {
          const { code, reason } = decodeClose(frame.payload);
          streams.get(frame.id)?.onClose(code, reason);
          break;
        }
        case frameType.cancel:
          on.cancel?.(frame.id, peer);
          break;
        case frameType.ping:
          if (options.pong !== false) peer.frame(frameType.pong, 0);
          break;
        default:
          break;
      }
      arrivals.get(frame.type)?.give(frame);
    };

    const reader = new FrameReader(onFrame);
    socket.on('data', (chunk: Buffer) => reader.push(chunk));
    // A gateway that dies resets the socket; `ended` is how a test sees it.
    socket.on('error', () => socket.destroy());
    socket.on('close', () => {
      sockets.delete(socket);
      const at = connections.indexOf(peer);
      if (at >= 0) connections.splice(at, 1);
      over();
    });
  });

  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(socketPath, resolve);
  });

  return {
    socketPath,
    on,
    connections,
    connection: () => greeted.next(),
    arrival: (type) => {
      let waits = arrivals.get(type);
      if (waits === undefined) arrivals.set(type, (waits = new Waits()));
      return waits.next();
    },
    opened: () => openedStreams.next(),
    stop: async () => {
      const closed = new Promise<void>((resolve) => void server.close(() => resolve()));
      for (const socket of sockets) socket.destroy();
      await closed;
      if (folder !== undefined) await rm(folder, { recursive: true, force: true });
    },
  };
};

const makeStream = (peer: PeerConnection, socket: Socket, id: number, token: string, json: unknown) => {
  const received: string[] = [];
  const takers: ((text: string) => void)[] = [];
  let grants: { bytes: number; resolve: () => void }[] = [];
  let taken = 0;
  let granted = 0;
  let closedBy: { readonly code: number; readonly reason: string } | undefined;
  let end: (by: { readonly code: number; readonly reason: string }) => void = () => undefined;
  const ended = new Promise<{ readonly code: number; readonly reason: string }>((resolve) => {
    end = resolve;
  });
  const stream: PeerStream = {
    peer, id, token, json, received, ended,
    get granted() {
      return granted;
    },
    get closedBy() {
      return closedBy;
    },
    send: (...texts) => void socket.write(encodeData([id], texts.map((t) => Buffer.from(t)))),
    close: (code, reason) => void socket.write(encodeClose(id, code, reason)),
    next: () => {
      const text = received[taken];
      taken += 1;
      return text === undefined ? new Promise((resolve) => takers.push(resolve)) : Promise.resolve(text);
    },
    grantedAtLeast: (bytes) => (granted >= bytes ? Promise.resolve() : new Promise((resolve) => grants.push({ bytes, resolve }))),
  };
  return {
    stream,
    onText: (text: string) => {
      received.push(text);
      takers.shift()?.(text);
    },
    onCredit: (bytes: number) => {
      granted += bytes;
      const due = grants.filter((grant) => grant.bytes <= granted);
      grants = grants.filter((grant) => grant.bytes > granted);
      for (const grant of due) grant.resolve();
    },
    onClose: (code: number, reason: string) => {
      closedBy = { code, reason };
      end(closedBy);
    },
  };
};

const jsonOf = (body: Buffer): unknown => {
  try {
    return JSON.parse(body.toString('utf8'));
  } catch {
    return undefined;
  }
};
