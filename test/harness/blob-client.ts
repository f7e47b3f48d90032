/** A client of blobs over TLS: bodies that come in pieces, answers as bytes or as they come, and what became of a request that was cut. */
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import type { ClientRequest, IncomingHttpHeaders, IncomingMessage } from 'node:http';
import { Agent, request as httpsRequest } from 'node:https';

export interface BlobReply {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
}

export interface BlobCall {
  readonly headers?: Readonly<Record<string, string>>;
  /** In pieces = chunked, unless the headers say a length. */
  readonly body?: Uint8Array | AsyncIterable<Uint8Array> | Generator<Uint8Array>;
}

export interface BlobClient {
  call(method: 'GET' | 'HEAD' | 'POST', path: string, call?: BlobCall): Promise<BlobReply>;
  /** The head of an answer, its body to be read by the caller. */
  open(method: 'GET' | 'POST', path: string, call?: BlobCall): Promise<IncomingMessage>;
  /** A request whose body the caller writes. */
  begin(path: string, headers?: Readonly<Record<string, string>>): ClientRequest;
  close(): void;
}

export const blobClient = ({ port, ca, key }: { readonly port: number; readonly ca: string | Buffer; readonly key: string | undefined }): BlobClient => {
  const agent = new Agent({ ca, keepAlive: true, maxSockets: 64 });
  const start = (method: string, path: string, headers: Readonly<Record<string, string>>): ClientRequest => httpsRequest({
    host: '127.0.0.1', servername: 'localhost', port, method, path, agent,
    headers: { host: `localhost:${port}`, ...(key === undefined ? {} : { authorization: `Bearer ${key}` }), ...headers },
  });
  const write = async (request: ClientRequest, body: BlobCall['body']): Promise<void> => {
    if (body === undefined || body instanceof Uint8Array) {
      request.end(body);
      return;
    }
    for await (const piece of body) {
      if (request.destroyed) return;
      if (!request.write(piece)) await Promise.race([once(request, 'drain'), once(request, 'close')]);
    }
    request.end();
  };
  const open: BlobClient['open'] = async (method, path, { headers = {}, body } = {}) => {
    const request = start(method, path, { ...(body instanceof Uint8Array ? { 'content-length': String(body.length) } : {}), ...headers });
    const answered = Promise.withResolvers<IncomingMessage>();
    request.on('response', answered.resolve);
    request.on('error', answered.reject);
    write(request, body).catch(answered.reject);
    return answered.promise;
  };
  return {
    open,
    begin: (path, headers = {}) => start('POST', path, headers),
    call: async (method, path, call) => {
      const answer = await open(method as 'GET', path, call);
      const chunks: Buffer[] = [];
      for await (const chunk of answer) chunks.push(chunk as Buffer);
      return { status: answer.statusCode ?? 0, headers: answer.headers, body: Buffer.concat(chunks) };
    },
    close: () => agent.destroy(),
  };
};

export const sha256 = (bytes: Uint8Array): string => `sha256:${createHash('sha256').update(bytes).digest('hex')}`;
