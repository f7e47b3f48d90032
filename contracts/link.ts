/**
 * The link between gateway and daemon: length-prefixed binary frames over a Unix socket, multiplexed.
 *
 * Invariants:
 * L1  A frame is `u32 length | u8 type | u32 id | payload`, big endian; length counts type, id and payload and is at most
 *     `limits.linkFrameMaxBytes`. Anything else closes the connection with `protocol_error` / `frame_too_large`.
 * L2  The first frame each way is `hello`; nothing is served before it. A different version is refused by name.
 * L3  Ids are chosen by the gateway; a request and a stream never share an id while both live. The daemon answers each
 *     request exactly once, unless it was cancelled or the connection ended.
 * L4  A request names a route by its number in the closed table of `routes.ts`, never by a free name.
 * L5  Data towards a stream is sent only against credit (bytes of payload). Without credit the daemon reads nothing
 *     further for that stream. One data frame may address many streams (a fan-out is one copy). A single text larger than
 *     the initial credit may be sent alone while the stream's credit is at least the initial credit; the debt is then
 *     paid by the next grants.
 *     The other way round a request's body that is streamed (`body`) comes only against credit too, of which it has none at first: a
 *     daemon that never grants any, one that does not know of bodies for one, is never sent any.
 * L6  `close` ends a stream; either side may send it; after it neither side sends for that id.
 * L7  After `goaway` no new request or stream is accepted; what runs may finish.
 *
 * The payload of a data frame towards the gateway is finished WebSocket text: the gateway copies bytes and parses nothing.
 */
import { z } from 'zod';
import { limits } from './limits.ts';
import { coded } from './errors.ts';

export const linkVersion = 1;

export const frameType = {
  /** Both ways. JSON `hello`. */
  hello: 1,
  /** g→d. Request: see `encodeRequest`. */
  request: 2,
  /** d→g. Response: u16 HTTP status, then the body (JSON text; for errors `{code, message, details?}`). */
  response: 3,
  /** g→d. Gives up a request; nothing is answered. */
  cancel: 4,
  /** g→d. Opens a stream: same payload as a request; its id is the stream's id. */
  open: 5,
  /** d→g: see `encodeData`. g→d: one client text message (UTF-8). */
  data: 6,
  /** Both ways. u32 bytes of further credit for the stream `id`: towards the daemon for data, from it for the request's body. */
  credit: 7,
  /** Both ways. Ends stream `id`: u16 close code, UTF-8 reason. */
  close: 8,
  ping: 9,
  pong: 10,
  /** Both ways. UTF-8 reason. */
  goaway: 11,
  /** d→g. JSON `{partitions: number[]}`: what this daemon owns now. Sent after hello and on every change. */
  owns: 12,
  /** g→d. The next bytes of the request's body for the stream `id`, as they are; none at all = it is complete. */
  body: 13,
} as const;
export type FrameType = (typeof frameType)[keyof typeof frameType];

export const hello = z.strictObject({
  version: z.int(),
  role: z.enum(['gateway', 'daemon']),
  /** Product version, for the log line of a mismatch. */
  release: z.string().max(64),
  pid: z.int(),
  /** Daemon only: name of the host and number of partitions in the cluster. */
  host: z.string().max(128).optional(),
  partitions: z.int().positive().optional(),
});
export type Hello = z.infer<typeof hello>;

export const owns = z.strictObject({ partitions: z.array(z.int().nonnegative()).max(65_536) });

export interface Frame {
  readonly type: FrameType;
  readonly id: number;
  /** A view into the receive buffer: copy it if it must outlive the callback. */
  readonly payload: Buffer;
}

const headBytes = 9;
const knownTypes: ReadonlySet<number> = new Set(Object.values(frameType));

/** One frame with its length prefix. */
export const encodeFrame = (type: FrameType, id: number, payload?: Uint8Array | string): Buffer => {
  const bytes = payload === undefined ? 0 : typeof payload === 'string' ? Buffer.byteLength(payload) : payload.length;
  if (bytes + 5 > limits.linkFrameMaxBytes) throw coded('frame_too_large');
  const frame = Buffer.allocUnsafe(headBytes + bytes);
  writeHead(frame, type, id, bytes);
  if (typeof payload === 'string') frame.write(payload, headBytes, 'utf8');
  else if (payload !== undefined) frame.set(payload, headBytes);
  return frame;
};

const writeHead = (frame: Buffer, type: FrameType, id: number, bytes: number): void => {
  frame.writeUInt32BE(bytes + 5, 0);
  frame.writeUInt8(type, 4);
  frame.writeUInt32BE(id, 5);
};

/** Request and open: `u16 route | u32 deadlineMs | u16 token bytes | token | body`. Token = the capability; empty where the route needs none. */
export const encodeRequest = (
  type: typeof frameType.request | typeof frameType.open,
  id: number,
  request: { readonly route: number; readonly deadlineMs: number; readonly token: string; readonly body: Uint8Array | string },
): Buffer => {
  const tokenBytes = Buffer.byteLength(request.token);
  if (tokenBytes > limits.bearerMaxBytes) throw coded('bad_bearer');
  const body = request.body;
  const bodyBytes = typeof body === 'string' ? Buffer.byteLength(body) : body.length;
  const bytes = 8 + tokenBytes + bodyBytes;
  if (bytes + 5 > limits.linkFrameMaxBytes) throw coded('frame_too_large');
  const frame = Buffer.allocUnsafe(headBytes + bytes);
  writeHead(frame, type, id, bytes);
  frame.writeUInt16BE(request.route, 9);
  frame.writeUInt32BE(request.deadlineMs, 11);
  frame.writeUInt16BE(tokenBytes, 15);
  if (tokenBytes > 0) frame.write(request.token, 17, 'latin1');
  if (typeof body === 'string') frame.write(body, 17 + tokenBytes, 'utf8');
  else frame.set(body, 17 + tokenBytes);
  return frame;
};

export interface RequestPayload {
  readonly route: number;
  readonly deadlineMs: number;
  readonly token: string;
  readonly body: Buffer;
}

export const decodeRequest = (payload: Buffer): RequestPayload => {
  if (payload.length < 8) throw coded('protocol_error');
  const tokenBytes = payload.readUInt16BE(6);
  if (payload.length < 8 + tokenBytes) throw coded('protocol_error');
  return {
    route: payload.readUInt16BE(0),
    deadlineMs: payload.readUInt32BE(2),
    token: payload.toString('latin1', 8, 8 + tokenBytes),
    body: payload.subarray(8 + tokenBytes),
  };
};

export const encodeResponse = (id: number, status: number, body: Uint8Array | string): Buffer => {
  const bytes = typeof body === 'string' ? Buffer.byteLength(body) : body.length;
  if (bytes + 7 > limits.linkFrameMaxBytes) throw coded('frame_too_large');
  const frame = Buffer.allocUnsafe(headBytes + 2 + bytes);
  writeHead(frame, frameType.response, id, 2 + bytes);
  frame.writeUInt16BE(status, 9);
  if (typeof body === 'string') frame.write(body, 11, 'utf8');
  else frame.set(body, 11);
  return frame;
};

export const decodeResponse = (payload: Buffer): { readonly status: number; readonly body: Buffer } => {
  if (payload.length < 2) throw coded('protocol_error');
  return { status: payload.readUInt16BE(0), body: payload.subarray(2) };
};

/**
 * Data towards the gateway: `u16 streams | u32 stream … | (u32 bytes | UTF-8 text) …`. The frame's own id is unused (0).
 * Every listed stream gets every text, in order. The credit it costs a stream is the total of the texts' bytes.
 */
export const encodeData = (streams: readonly number[], texts: readonly Uint8Array[]): Buffer => {
  let bytes = 2 + 4 * streams.length;
  for (const text of texts) bytes += 4 + text.length;
  if (bytes + 5 > limits.linkFrameMaxBytes) throw coded('frame_too_large');
  if (streams.length > 0xffff) throw coded('frame_too_large');
  const frame = Buffer.allocUnsafe(headBytes + bytes);
  writeHead(frame, frameType.data, 0, bytes);
  let at = frame.writeUInt16BE(streams.length, headBytes);
  for (const stream of streams) at = frame.writeUInt32BE(stream, at);
  for (const text of texts) {
    at = frame.writeUInt32BE(text.length, at);
    frame.set(text, at);
    at += text.length;
  }
  return frame;
};

/** Calls `deliver` for each text with the streams it goes to; texts are views into `payload`. */
export const decodeData = (payload: Buffer): { readonly streams: number[]; readonly texts: Buffer[]; readonly bytes: number } => {
  if (payload.length < 2) throw coded('protocol_error');
  const count = payload.readUInt16BE(0);
  let at = 2;
  if (payload.length < at + 4 * count) throw coded('protocol_error');
  const streams: number[] = [];
  for (let i = 0; i < count; i++, at += 4) streams.push(payload.readUInt32BE(at));
  const texts: Buffer[] = [];
  let total = 0;
  while (at < payload.length) {
    if (payload.length < at + 4) throw coded('protocol_error');
    const bytes = payload.readUInt32BE(at);
    at += 4;
    if (payload.length < at + bytes) throw coded('protocol_error');
    texts.push(payload.subarray(at, at + bytes));
    total += bytes;
    at += bytes;
  }
  return { streams, texts, bytes: total };
};

export const encodeCredit = (id: number, bytes: number): Buffer => {
  const frame = Buffer.allocUnsafe(headBytes + 4);
  writeHead(frame, frameType.credit, id, 4);
  frame.writeUInt32BE(bytes, 9);
  return frame;
};

export const encodeClose = (id: number, code: number, reason: string): Buffer => {
  const payload = Buffer.allocUnsafe(2 + Buffer.byteLength(reason));
  payload.writeUInt16BE(code, 0);
  payload.write(reason, 2, 'utf8');
  return encodeFrame(frameType.close, id, payload);
};

export const decodeClose = (payload: Buffer): { readonly code: number; readonly reason: string } => {
  if (payload.length < 2) throw coded('protocol_error');
  return { code: payload.readUInt16BE(0), reason: payload.toString('utf8', 2) };
};

/**
 * Cuts a byte stream into frames. `push` calls `onFrame` for each complete one and throws `frame_too_large` or
 * `protocol_error` (L1). Bytes of an incomplete frame are kept; at most one frame is kept.
 */
export class FrameReader {
  readonly #onFrame: (frame: Frame) => void;
  #parts: Buffer[] = [];
  #have = 0;
  #need = 4;

  constructor(onFrame: (frame: Frame) => void) {
    this.#onFrame = onFrame;
  }

  push(chunk: Buffer): void {
    if (this.#have > 0) {
      this.#parts.push(chunk);
      this.#have += chunk.length;
      if (this.#have < this.#need) return;
      chunk = this.#parts.length === 1 ? chunk : Buffer.concat(this.#parts, this.#have);
      this.#parts = [];
      this.#have = 0;
      this.#need = 4;
    }
    let at = 0;
    while (chunk.length - at >= 4) {
      const length = chunk.readUInt32BE(at);
      if (length > limits.linkFrameMaxBytes) throw coded('frame_too_large');
      if (length < 5) throw coded('protocol_error');
      if (chunk.length - at < 4 + length) {
        this.#need = 4 + length;
        break;
      }
      const type = chunk.readUInt8(at + 4);
      if (!knownTypes.has(type)) throw coded('protocol_error');
      this.#onFrame({
        type: type as FrameType,
        id: chunk.readUInt32BE(at + 5),
        payload: chunk.subarray(at + headBytes, at + 4 + length),
      });
      at += 4 + length;
    }
    if (at < chunk.length) {
      // Copied, so that a small rest does not keep a large receive buffer alive.
      this.#parts = [Buffer.from(chunk.subarray(at))];
      this.#have = chunk.length - at;
    }
  }
}
