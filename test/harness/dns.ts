/** A name server (RFC 1035) for TXT records on a free UDP port of 127.0.0.1: answers as the test says, and counts the questions. */
import { createSocket } from 'node:dgram';
import { once } from 'node:events';

/** Records, each a text in pieces of at most 255 bytes; or a refusal, or no answer at all. */
export type TxtZone = (name: string) => readonly (readonly string[])[] | 'nxdomain' | 'servfail' | 'silent';

export interface TxtServer {
  /** `127.0.0.1:port`. */
  readonly address: string;
  /** Names asked for so far, in lower case, as `name type`. */
  readonly asked: readonly string[];
  /** What it says from now on of names; default: no such name. */
  zone: TxtZone;
  stop(): Promise<void>;
}

const txtType = 16;

const question = (query: Buffer): { readonly name: string; readonly type: number; readonly end: number } => {
  const labels: string[] = [];
  let at = 12;
  for (let length = query.readUInt8(at); length > 0; length = query.readUInt8(at)) {
    labels.push(query.toString('latin1', at + 1, at + 1 + length));
    at += 1 + length;
  }
  return { name: labels.join('.').toLowerCase(), type: query.readUInt16BE(at + 1), end: at + 5 };
};

const record = (pieces: readonly string[]): Buffer => {
  const data = Buffer.concat(pieces.map((piece) => Buffer.concat([Buffer.from([Buffer.byteLength(piece)]), Buffer.from(piece)])));
  const head = Buffer.alloc(12);
  // A pointer to the question's name (RFC 1035 section 4.1.4), type, class IN, time to live 1 s, length.
  head.writeUInt16BE(0xc00c, 0);
  head.writeUInt16BE(txtType, 2);
  head.writeUInt16BE(1, 4);
  head.writeUInt32BE(1, 6);
  head.writeUInt16BE(data.length, 10);
  return Buffer.concat([head, data]);
};

const respond = (query: Buffer, answer: Exclude<ReturnType<TxtZone>, 'silent'>, end: number): Buffer => {
  const records = typeof answer === 'string' ? [] : answer.map(record);
  const head = Buffer.from(query.subarray(0, 12));
  head.writeUInt16BE(0x8180 | (answer === 'nxdomain' ? 3 : answer === 'servfail' ? 2 : 0), 2);
  head.writeUInt16BE(1, 4);
  head.writeUInt16BE(records.length, 6);
  head.writeUInt32BE(0, 8);
  return Buffer.concat([head, query.subarray(12, end), ...records]);
};

export const startTxtServer = async (zone: TxtZone = () => 'nxdomain'): Promise<TxtServer> => {
  const asked: string[] = [];
  const socket = createSocket('udp4');
  socket.on('message', (query, from) => {
    const { name, type, end } = question(query);
    asked.push(`${name} ${type === txtType ? 'TXT' : String(type)}`);
    const answer = type === txtType ? server.zone(name) : 'nxdomain';
    if (answer !== 'silent') socket.send(respond(query, answer, end), from.port, from.address);
  });
  socket.bind(0, '127.0.0.1');
  await once(socket, 'listening');
  const server: TxtServer = {
    address: `127.0.0.1:${socket.address().port}`, asked, zone,
    stop: () => new Promise((resolve) => { socket.close(() => resolve()); }),
  };
  return server;
};
