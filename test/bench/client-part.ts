/**
 * The load client: many WebSockets over TLS 1.3, read as cheaply as they can be while every event is still checked.
 *
 * Guarantee: each socket's events are 1, 2, 3 … without gap or repeat, or the run fails. Frames are cut by hand and only
 * `seq_no` is read, so that the client costs little beside TLS; `cores` of its process is printed with each figure.
 */
import { connect, type TLSSocket } from 'node:tls';
import { randomBytes } from 'node:crypto';
import { serve } from './part.ts';

const prefix = Buffer.from('{"kind":"agent_event","seq_no":');
const comma = 44;
const text = 1;
const close = 8;
const ping = 9;

class Client {
  readonly socket: TLSSocket;
  readonly #counted: (lastSeqNo: number) => void;
  /** Last event received. */
  seqNo: number;
  #rest: Buffer | undefined;
  failure: string | undefined;

  constructor(socket: TLSSocket, seqNo: number, counted: (lastSeqNo: number) => void) {
    this.socket = socket;
    this.seqNo = seqNo;
    this.#counted = counted;
    socket.on('data', (chunk: Buffer) => this.onData(chunk));
    socket.on('error', (error) => { this.failure ??= error.message; });
  }

  onData(chunk: Buffer): void {
    const bytes = this.#rest === undefined ? chunk : Buffer.concat([this.#rest, chunk]);
    let at = 0;
    while (bytes.length - at >= 2) {
      const first = bytes[at] ?? 0;
      let length = (bytes[at + 1] ?? 0) & 0x7f;
      let head = 2;
      if (length === 126) {
        if (bytes.length - at < 4) break;
        length = bytes.readUInt16BE(at + 2);
        head = 4;
      } else if (length === 127) {
        if (bytes.length - at < 10) break;
        length = Number(bytes.readBigUInt64BE(at + 2));
        head = 10;
      }
      if (bytes.length - at < head + length) break;
      this.#onFrame(first & 0x0f, bytes, at + head, at + head + length);
      at += head + length;
    }
    this.#rest = at < bytes.length ? bytes.subarray(at) : undefined;
    this.#counted(this.seqNo);
  }

  #onFrame(opcode: number, bytes: Buffer, start: number, end: number): void {
    if (opcode === ping) {
      this.socket.write(Buffer.from([0x8a, 0x80, 0, 0, 0, 0]));
      return;
    }
    if (opcode === close) {
      this.failure ??= `closed with ${bytes.readUInt16BE(start)}`;
      return;
    }
    let seqNo = 0;
    for (let i = start + prefix.length; i < end; i++) {
      const byte = bytes[i] ?? 0;
      if (byte === comma) break;
      seqNo = seqNo * 10 + byte - 48;
    }
    if (opcode !== text || seqNo !== this.seqNo + 1) {
      this.failure ??= `after event ${this.seqNo} came ${bytes.toString('utf8', start, Math.min(end, start + 80))}`;
      return;
    }
    this.seqNo = seqNo;
  }
}

const clients: Client[] = [];
/** How many have reached the target that is waited for. */
let target = Number.POSITIVE_INFINITY;
let reached = 0;
let arrived: (() => void) | undefined;

const counted = (client: { at: number }) => (seqNo: number): void => {
  if (client.at >= target || seqNo < target) {
    client.at = seqNo;
    return;
  }
  client.at = seqNo;
  reached += 1;
  if (reached === clients.length) arrived?.();
};

interface Where {
  readonly port: number;
  readonly ca: string;
  readonly token: string;
}

const open = (where: Where, path: string, lastSeqNo: number): Promise<Client> => new Promise((resolve, reject) => {
  const socket = connect({ host: '127.0.0.1', port: where.port, ca: where.ca, servername: 'localhost', minVersion: 'TLSv1.3' }, () => {
    socket.write([
      `GET ${path} HTTP/1.1`, 'Host: localhost', 'Upgrade: websocket', 'Connection: Upgrade', 'Sec-WebSocket-Version: 13',
      `Sec-WebSocket-Key: ${randomBytes(16).toString('base64')}`, `Authorization: Bearer ${where.token}`, '', '',
    ].join('\r\n'));
  });
  socket.setNoDelay(true);
  socket.once('error', reject);
  let head = Buffer.alloc(0);
  const onHead = (chunk: Buffer): void => {
    head = Buffer.concat([head, chunk]);
    const end = head.indexOf('\r\n\r\n');
    if (end < 0) return;
    socket.off('data', onHead);
    socket.off('error', reject);
    const status = head.toString('latin1', 0, end);
    if (!status.startsWith('HTTP/1.1 101')) {
      reject(new Error(`no upgrade: ${status.split('\r\n')[0]}`));
      return;
    }
    const place = { at: lastSeqNo };
    const client = new Client(socket, lastSeqNo, counted(place));
    clients.push(client);
    resolve(client);
    if (head.length > end + 4) client.onData(head.subarray(end + 4));
  };
  socket.on('data', onHead);
});

const failIfBroken = (): void => {
  const broken = clients.find((client) => client.failure !== undefined);
  if (broken !== undefined) throw new Error(`a client failed: ${broken.failure}`);
};

const jobs = {
  /** Opens a socket for each path, some at a time. `lastSeqNo`: where each stands. */
  open: async ({ paths, lastSeqNo, ...where }: Where & { readonly paths: readonly string[]; readonly lastSeqNo: number }) => {
    const left = [...paths];
    await Promise.all(Array.from({ length: 16 }, async () => {
      for (let path = left.pop(); path !== undefined; path = left.pop()) await open(where, path, lastSeqNo);
    }));
    return { open: clients.length };
  },
  /** Arms the wait for every socket to receive the event `seqNo`; `arrived` waits. */
  arm: async ({ seqNo }: { readonly seqNo: number }) => {
    failIfBroken();
    target = seqNo;
    reached = clients.filter((client) => client.seqNo >= seqNo).length;
  },
  /** Unix milliseconds when the last socket had it. */
  arrived: async ({ withinMs }: { readonly withinMs: number }) => {
    await new Promise<void>((resolve, reject) => {
      const late = setTimeout(() => {
        const behind = clients.filter((client) => client.seqNo < target);
        reject(new Error(`${behind.length} of ${clients.length} sockets have not received event ${target} in ${withinMs} ms; the first stands at ${behind[0]?.seqNo}, ${behind[0]?.failure ?? 'open'}`));
      }, withinMs);
      const done = (): void => {
        clearTimeout(late);
        resolve();
      };
      if (reached >= clients.length) done();
      else arrived = done;
    });
    const at = performance.timeOrigin + performance.now();
    arrived = undefined;
    target = Number.POSITIVE_INFINITY;
    failIfBroken();
    return { at };
  },
  /** Opens one socket at `lastSeqNo`, waits for `seqNo`, closes it. Milliseconds from the request for the upgrade to the last event. */
  replay: async ({ path, lastSeqNo, seqNo, ...where }: Where & { readonly path: string; readonly lastSeqNo: number; readonly seqNo: number }) => {
    target = seqNo;
    reached = 0;
    const done = new Promise<void>((resolve) => { arrived = resolve; });
    const startedMs = performance.now();
    const client = await open(where, path, lastSeqNo);
    const openMs = performance.now() - startedMs;
    await done;
    const ms = performance.now() - startedMs;
    arrived = undefined;
    failIfBroken();
    client.socket.destroy();
    clients.length = 0;
    return { ms, openMs };
  },
  closeAll: async () => {
    for (const { socket } of clients.splice(0)) socket.destroy();
  },
};
export type ClientJobs = typeof jobs;
serve(jobs);
