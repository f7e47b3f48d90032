/**
 * A model vendor that misbehaves on demand: an HTTP server whose every answer a test writes itself, byte by byte. For the
 * faults that a well-behaved mock does not have: cuts, malformed chunks, silence, Retry-After, a client that goes away.
 */
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

export interface ModelRequest {
  readonly path: string;
  readonly headers: IncomingMessage['headers'];
  readonly body: Record<string, unknown>;
  /** Resolves when the client's connection of this request is gone before the answer ended. */
  readonly gone: Promise<void>;
}
/** Answers the n-th request (from 0). */
export type Answer = (request: ModelRequest, response: ServerResponse) => void | Promise<void>;

export interface ModelServer {
  readonly url: string;
  readonly requests: readonly ModelRequest[];
  stop(): Promise<void>;
}

/** Requests beyond the answers get 500. */
export const modelServer = async (...answers: Answer[]): Promise<ModelServer> => {
  const requests: ModelRequest[] = [];
  const handle = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const gone = new Promise<void>((resolve) => {
      response.on('close', () => { if (!response.writableEnded) resolve(); });
    });
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(Buffer.from(chunk));
    const made: ModelRequest = { path: request.url ?? '', headers: request.headers, body: JSON.parse(Buffer.concat(chunks).toString('utf8')), gone };
    const answer = answers[requests.length];
    requests.push(made);
    if (answer === undefined) response.writeHead(500).end('{}');
    else await answer(made, response);
  };
  const server = createServer((request, response) => {
    handle(request, response).catch((error: unknown) => response.destroy(error instanceof Error ? error : undefined));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}`,
    requests,
    stop: async () => {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
};

/** Starts an event stream. */
export const sse = (response: ServerResponse): void => {
  response.writeHead(200, { 'content-type': 'text/event-stream' });
};

/** A chat.completion.chunk with a text, a tool-call piece, a finish reason or usage. */
export const openaiChunk = (delta: Record<string, unknown>, finish: string | null = null): string =>
  `data: ${JSON.stringify({ id: 'c1', object: 'chat.completion.chunk', created: 1, model: 'm', choices: [{ index: 0, delta, finish_reason: finish }] })}\n\n`;
export const openaiUsage = (input: number, output: number): string =>
  `data: ${JSON.stringify({ id: 'c1', object: 'chat.completion.chunk', created: 1, model: 'm', choices: [], usage: { prompt_tokens: input, completion_tokens: output, total_tokens: input + output } })}\n\n`;
export const openaiDone = 'data: [DONE]\n\n';

/** An Anthropic stream event. */
export const anthropicEvent = (type: string, fields: Record<string, unknown>): string =>
  `event: ${type}\ndata: ${JSON.stringify({ type, ...fields })}\n\n`;
