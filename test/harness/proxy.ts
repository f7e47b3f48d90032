/**
 * A TCP proxy that fails on command: cut connections, a stalled network, replies that never arrive.
 *
 * `dropReplies()` lets what the client sends through and discards what the server answers, so that an acknowledgement is
 * lost although the message was stored; the byte stream towards the client is then broken, so end it with `cut()`.
 * `cutAt()` aims: the connection ends at a given command, before the server gets it or before its answer is passed on.
 */
import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type Socket } from 'node:net';
import { freePort } from './port.ts';

export interface Proxy {
  readonly port: number;
  /** Same scheme and host form as the target of the tests: `nats://127.0.0.1:<port>`. */
  readonly url: string;
  /** Ends every connection at once. New ones are accepted, unless `refuse` was asked. */
  cut(): void;
  /** Ends the next connection whose client sends this text in one piece: `unsent` = the server never gets it, `unanswered` = it does, and its answer is lost. Resolves then. */
  cutAt(text: string, what: 'unsent' | 'unanswered'): Promise<void>;
  /** New connections are closed as soon as they come, until `resume()`. */
  refuse(): void;
  /** Nothing passes either way until `resume()`; what comes meanwhile waits in the sockets. */
  stall(): void;
  /** The client's bytes pass, the server's are thrown away, until `resume()`. */
  dropReplies(): void;
  resume(): void;
  /** Bytes that `dropReplies` threw away so far. */
  readonly droppedBytes: number;
  /** Resolves at the next thrown-away chunk: the server has answered something. */
  dropped(): Promise<void>;
  stop(): Promise<void>;
}

type Mode = 'pass' | 'stall' | 'drop-replies' | 'refuse';

/** Starts a proxy on a free port in front of `127.0.0.1:<targetPort>`. */
export const startProxy = async (targetPort: number): Promise<Proxy> => {
  const pairs = new Set<{ readonly client: Socket; readonly server: Socket }>();
  let mode: Mode = 'pass';
  let droppedBytes = 0;
  let waiting: (() => void)[] = [];
  let aim: { readonly text: string; readonly what: 'unsent' | 'unanswered'; readonly hit: () => void } | undefined;

  const apply = (): void => {
    for (const { client, server } of pairs) {
      if (mode === 'stall') { client.pause(); server.pause(); } else { client.resume(); server.resume(); }
    }
  };
  const listener = createServer((client) => {
    if (mode === 'refuse') { client.destroy(); return; }
    const server = connect(targetPort, '127.0.0.1');
    const pair = { client, server };
    pairs.add(pair);
    const end = (): void => { pairs.delete(pair); client.destroy(); server.destroy(); };
    for (const socket of [client, server]) {
      socket.setNoDelay(true);
      socket.on('close', end);
      // A broken socket also closes, and closing is what is acted on.
      socket.on('error', end);
    }
    let cutAtAnswer: (() => void) | undefined;
    client.on('data', (chunk) => {
      const hit = aim !== undefined && chunk.includes(aim.text) ? aim : undefined;
      if (hit !== undefined) aim = undefined;
      if (hit?.what === 'unsent') { end(); hit.hit(); return; }
      cutAtAnswer ??= hit?.hit;
      server.write(chunk);
    });
    server.on('data', (chunk) => {
      if (cutAtAnswer !== undefined) { end(); cutAtAnswer(); return; }
      if (mode !== 'drop-replies') { client.write(chunk); return; }
      droppedBytes += chunk.length;
      const woken = waiting;
      waiting = [];
      for (const wake of woken) wake();
    });
    if (mode === 'stall') { client.pause(); server.pause(); }
  });
  listener.listen(await freePort(), '127.0.0.1');
  await once(listener, 'listening');
  const { port } = listener.address() as AddressInfo;
  const cut = (): void => { for (const { client, server } of pairs) { client.destroy(); server.destroy(); } };
  return {
    port,
    url: `nats://127.0.0.1:${port}`,
    cut,
    cutAt: (text, what) => new Promise((resolve) => { aim = { text, what, hit: resolve }; }),
    refuse: () => { mode = 'refuse'; },
    stall: () => { mode = 'stall'; apply(); },
    dropReplies: () => { mode = 'drop-replies'; apply(); },
    resume: () => { mode = 'pass'; apply(); },
    get droppedBytes() { return droppedBytes; },
    dropped: () => new Promise((resolve) => { waiting.push(resolve); }),
    stop: async () => {
      cut();
      listener.close();
      await once(listener, 'close');
    },
  };
};
