/**
 * The floor of the stream benchmarks: uWebSockets.js alone in a process, TLS as the gateway's, sending the same frames in the
 * same groups to the same load client. Frames are made before the clock starts; nothing is parsed, journaled or bounded
 * but the bytes kept per socket.
 */
import { SSLApp, us_socket_local_port, type WebSocket } from 'uWebSockets.js';
import { serve } from './part.ts';
import { frameText } from './sessions.ts';

interface State {
  /** Frames given to it in this run. */
  sent: number;
  blocked: boolean;
}

/** Bytes kept for a socket above which it gets nothing more until it drains: as the gateway's. */
const highWaterBytes = 64 * 1024;
const sockets = new Set<WebSocket<State>>();
let frames: Buffer[] = [];
/** Sends when a socket opens: for replays. */
let onOpen: ((socket: WebSocket<State>) => void) | undefined;
let go: (() => void) | undefined;

/** Gives a socket frames in groups until it has them all or is full. */
const give = (socket: WebSocket<State>, perGroup: number, groups: number): void => {
  const state = socket.getUserData();
  for (let group = 0; group < groups && state.sent < frames.length; group++) {
    if (socket.getBufferedAmount() > highWaterBytes) {
      state.blocked = true;
      return;
    }
    const end = Math.min(frames.length, state.sent + perGroup);
    socket.cork(() => {
      for (; state.sent < end; state.sent++) socket.send(frames[state.sent] ?? '', false);
    });
  }
};

const build = (sid: string, from: number, total: number): void => {
  const at = new Date().toISOString();
  frames = Array.from({ length: total }, (_, i) => Buffer.from(frameText(sid, from + i + 1, at)));
};

const jobs = {
  start: async ({ certPath, keyPath }: { readonly certPath: string; readonly keyPath: string }) => {
    const app = SSLApp({ cert_file_name: certPath, key_file_name: keyPath, ssl_prefer_low_memory_usage: true });
    app.ws<State>('/*', {
      idleTimeout: 960, sendPingsAutomatically: false, maxBackpressure: 64 * 1024 * 1024,
      upgrade: (res, req, context) => {
        res.upgrade<State>({ sent: 0, blocked: false }, req.getHeader('sec-websocket-key'), req.getHeader('sec-websocket-protocol'), req.getHeader('sec-websocket-extensions'), context);
      },
      open: (socket) => {
        sockets.add(socket);
        onOpen?.(socket);
      },
      drain: (socket) => {
        if (socket.getBufferedAmount() > highWaterBytes) return;
        socket.getUserData().blocked = false;
        go?.();
      },
      close: (socket) => { sockets.delete(socket); },
    });
    const port = await new Promise<number>((resolve, reject) => {
      app.listen('127.0.0.1', 0, (listening) => {
        if (listening === false) reject(new Error('no port'));
        else resolve(us_socket_local_port(listening));
      });
    });
    return { port };
  },
  /** Makes the frames of events from+1 … from+total. */
  prepare: async ({ sid, from, total }: { readonly sid: string; readonly from: number; readonly total: number }) => { build(sid, from, total); },
  /** Sends every socket the prepared frames, `perGroup` at a time in turns. Gives when it began, Unix milliseconds. */
  send: async ({ perGroup }: { readonly perGroup: number }) => {
    for (const socket of sockets) {
      const state = socket.getUserData();
      state.sent = 0;
      state.blocked = false;
    }
    const startedAt = performance.timeOrigin + performance.now();
    let scheduled = false;
    const round = (): void => {
      scheduled = false;
      let more = false;
      for (const socket of sockets) {
        const state = socket.getUserData();
        if (state.blocked || state.sent >= frames.length) continue;
        give(socket, perGroup, 1);
        if (!state.blocked && state.sent < frames.length) more = true;
      }
      if (more) schedule();
    };
    const schedule = (): void => {
      if (scheduled) return;
      scheduled = true;
      setImmediate(round);
    };
    go = schedule;
    round();
    return { startedAt };
  },
  /** From now on a socket that opens gets events 1 … total at once. */
  replay: async ({ sid, total, perGroup }: { readonly sid: string; readonly total: number; readonly perGroup: number }) => {
    build(sid, 0, total);
    onOpen = (socket) => give(socket, perGroup, Number.POSITIVE_INFINITY);
    go = () => { for (const socket of sockets) give(socket, perGroup, Number.POSITIVE_INFINITY); };
  },
  collect: async () => { for (let i = 0; i < 3; i++) globalThis.gc?.(); },
};
export type UwsJobs = typeof jobs;
serve(jobs);
