/** A name server (RFC 1035) on a free UDP port of 127.0.0.1: answers A and AAAA questions as the test says, and counts them. */
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { isIPv4 } from 'node:net';

/** Addresses; `nxdomain`, `servfail`: a refusal; `silent`: no answer. */
export type Zone = (name: string, type: 'A' | 'AAAA') => readonly string[] | 'nxdomain' | 'servfail' | 'silent';

export interface NameServer {
  /** `127.0.0.1:port`. */
  readonly address: string;
  /** Questions so far, as `name type`. */
  readonly asked: readonly string[];
  stop(): Promise<void>;
}

const bytesOf = (address: string): Buffer => {
  if (isIPv4(address)) return Buffer.from(address.split('.').map(Number));
  const [head = '', tail = ''] = address.split('::');
  const left = head === '' ? [] : head.split(':');
  const right = tail === '' ? [] : tail.split(':');
  const groups = [...left, ...Array.from({ length: 8 - left.length - right.length }, () => '0'), ...right];
  return Buffer.from(groups.flatMap((group) => [Number.parseInt(group, 16) >> 8, Number.parseInt(group, 16) & 0xff]));
};

/** Answers one query message; undefined = says nothing. */
const respond = (query: Buffer, zone: Zone, asked: string[]): Buffer | undefined => {
  const labels: string[] = [];
  let at = 12;
  for (let length = query.readUInt8(at); length > 0; length = query.readUInt8(at)) {
    labels.push(query.toString('latin1', at + 1, at + 1 + length));
    at += 1 + length;
  }
  const kind = query.readUInt16BE(at + 1);
  const type = kind === 28 ? 'AAAA' : 'A';
  const name = labels.join('.').toLowerCase();
  asked.push(`${name} ${type}`);
  const answer = zone(name, type);
  if (answer === 'silent') return undefined;
  const addresses = typeof answer === 'string' ? [] : answer;
  const head = Buffer.from(query.subarray(0, 12));
  // A response, recursion desired and available, with its code (RFC 1035 section 4.1.1).
  head.writeUInt16BE(0x8180 | (answer === 'nxdomain' ? 3 : answer === 'servfail' ? 2 : 0), 2);
  head.writeUInt16BE(1, 4);
  head.writeUInt16BE(addresses.length, 6);
  head.writeUInt32BE(0, 8);
  const records = addresses.map((address) => {
    const data = bytesOf(address);
    const record = Buffer.alloc(12 + data.length);
    record.writeUInt16BE(0xc00c, 0);
    record.writeUInt16BE(kind, 2);
    record.writeUInt16BE(1, 4);
    record.writeUInt32BE(0, 6);
    record.writeUInt16BE(data.length, 10);
    data.copy(record, 12);
    return record;
  });
  return Buffer.concat([head, query.subarray(12, at + 5), ...records]);
};

export const startNameServer = async (zone: Zone): Promise<NameServer> => {
  const asked: string[] = [];
  const socket = createSocket('udp4');
  socket.on('message', (query, from) => {
    const response = respond(query, zone, asked);
    if (response !== undefined) socket.send(response, from.port, from.address);
  });
  socket.bind(0, '127.0.0.1');
  await once(socket, 'listening');
  return {
    address: `127.0.0.1:${socket.address().port}`, asked,
    stop: () => new Promise((resolve) => { socket.close(() => resolve()); }),
  };
};
