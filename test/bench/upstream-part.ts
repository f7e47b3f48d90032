/**
 * A model vendor of the chat benchmark: OpenAI's streamed completions over plain HTTP, from a process of its own.
 *
 * Two models, the same text: `burst` says all of it at once, so that only what is done with it takes time; `paced` says it at the speed of
 * a fast model. It answers whoever calls it, the daemon and the floor's client, in the same way; what it is asked is read and not looked at.
 */
import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { answerChunks, pacedChunkMs, pacedFirstMs } from './completions.ts';
import { serve } from './part.ts';

const chunk = (delta: object, finish: string | null): string =>
  `data: ${JSON.stringify({ id: 'c1', object: 'chat.completion.chunk', created: 1, model: 'm', choices: [{ index: 0, delta, finish_reason: finish }] })}\n\n`;
const texts = answerChunks.map((content) => Buffer.from(chunk({ content }, null)));
const last = Buffer.from(`${chunk({}, 'stop')}data: ${JSON.stringify({
  id: 'c1', object: 'chat.completion.chunk', created: 1, model: 'm', choices: [], usage: { prompt_tokens: 20, completion_tokens: texts.length, total_tokens: 20 + texts.length },
})}\n\ndata: [DONE]\n\n`);

const burst = (response: ServerResponse): void => {
  for (const text of texts) response.write(text);
  response.end(last);
};

const paced = (response: ServerResponse): void => {
  let next = 0;
  const startedMs = performance.now();
  // Against the clock, so that a late timer delays one chunk and not all that follow.
  const tick = (): void => {
    if (response.destroyed) return;
    const text = texts[next++];
    if (text === undefined) {
      response.end(last);
      return;
    }
    response.write(text);
    setTimeout(tick, Math.max(0, startedMs + pacedFirstMs + next * pacedChunkMs - performance.now()));
  };
  setTimeout(tick, pacedFirstMs);
};

const jobs = {
  start: async () => {
    const server = createServer((request, response) => {
      const pieces: Buffer[] = [];
      request.on('data', (piece: Buffer) => pieces.push(piece));
      request.on('end', () => {
        const { model } = JSON.parse(Buffer.concat(pieces).toString('utf8')) as { readonly model: string };
        response.writeHead(200, { 'content-type': 'text/event-stream' });
        if (model === 'paced') paced(response);
        else burst(response);
      });
    });
    server.keepAliveTimeout = 60_000;
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    return { port: (server.address() as AddressInfo).port };
  },
};
export type UpstreamJobs = typeof jobs;
serve(jobs);
