/**
 * The client of the chat benchmark: so many streamed completions at once, each beginning when the one before it on its lane has ended.
 *
 * Guarantee: every answer is checked to have the whole text and its end, or the sample fails. Connections are kept alive, as
 * the official clients do.
 */
import { Agent as HttpAgent, request as httpRequest, type IncomingMessage } from 'node:http';
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https';
import { setTimeout as pause } from 'node:timers/promises';
import { answerText, turnsPerConversation } from './completions.ts';
import { serve } from './part.ts';

export interface CompletionsAt {
  readonly port: number;
  readonly path: string;
  readonly token: string;
  /** It is told which session a request belongs to. */
  readonly sessions?: boolean;
  /** PEM; absent = plain HTTP. */
  readonly ca?: string;
}

export interface CompletionsSample {
  /** Milliseconds from the request to the first byte of the body, and to its end. */
  readonly first: { readonly p50: number; readonly p99: number };
  readonly end: { readonly p50: number; readonly p99: number };
  /** Requests per second. */
  readonly rate: number;
}

const quantiles = (times: readonly number[]): CompletionsSample['first'] => {
  const sorted = times.toSorted((a, b) => a - b);
  return { p50: sorted[Math.floor(sorted.length / 2)] ?? Number.NaN, p99: sorted[Math.floor(sorted.length * 0.99)] ?? Number.NaN };
};

const said = (body: string): string => {
  let text = '';
  for (const line of body.split('\n')) {
    if (!line.startsWith('data: {')) continue;
    const { choices } = JSON.parse(line.slice('data: '.length)) as { readonly choices?: readonly { readonly delta?: { readonly content?: string } }[] };
    text += choices?.[0]?.delta?.content ?? '';
  }
  return text;
};

const agents = new Map<string, HttpAgent>();
const agentOf = (at: CompletionsAt): HttpAgent => {
  const name = `${at.port}`;
  const known = agents.get(name);
  if (known !== undefined) return known;
  const made = at.ca === undefined ? new HttpAgent({ keepAlive: true }) : new HttpsAgent({ keepAlive: true, ca: at.ca });
  agents.set(name, made);
  return made;
};

/** One completion; gives when its first byte and its end came, in milliseconds. */
const complete = (at: CompletionsAt, body: string): Promise<{ readonly first: number; readonly end: number }> => new Promise((resolve, reject) => {
  const startedMs = performance.now();
  const agent = agentOf(at);
  const onResponse = (response: IncomingMessage): void => {
    let first = Number.NaN;
    const pieces: Buffer[] = [];
    response.on('error', reject);
    response.on('data', (piece: Buffer) => {
      if (pieces.length === 0) first = performance.now() - startedMs;
      pieces.push(piece);
    });
    response.on('end', () => {
      const end = performance.now() - startedMs;
      const text = Buffer.concat(pieces).toString('utf8');
      if (response.statusCode !== 200 || !text.endsWith('data: [DONE]\n\n') || said(text) !== answerText) reject(new Error(`status ${response.statusCode}: ${text.slice(0, 300)}`));
      else resolve({ first, end });
    });
  };
  const common = { host: '127.0.0.1', port: at.port, method: 'POST', path: at.path, agent, headers: { authorization: `Bearer ${at.token}`, 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) } };
  const request = at.ca === undefined ? httpRequest(common, onResponse) : httpsRequest({ ...common, servername: 'localhost' }, onResponse);
  request.setNoDelay(true);
  request.on('error', reject);
  request.end(body);
});

let asked = 0;

const jobs = {
  /** `apartMs`: what a lane begins after the one before it, so that people who have nothing to do with each other do not all ask at once. */
  stream: async ({ at, model, lanes, ms, apartMs }: { readonly at: CompletionsAt; readonly model: string; readonly lanes: number; readonly ms: number; readonly apartMs: number }): Promise<CompletionsSample> => {
    const first: number[] = [];
    const end: number[] = [];
    const startedMs = performance.now();
    await Promise.all(Array.from({ length: lanes }, async (_, lane) => {
      await pause(lane * apartMs);
      let conversation = 0;
      for (let turn = 0; turn === 0 || performance.now() - startedMs < ms; turn++) {
        if (turn % turnsPerConversation === 0) conversation = ++asked;
        const body = JSON.stringify({ model, ...(at.sessions === true ? { session_id: `bench-${conversation}` } : {}), stream: true, stream_options: { include_usage: true }, messages: [{ role: 'system', content: 'You are brief.' }, { role: 'user', content: `conversation ${conversation}` }] });
        const took = await complete(at, body);
        first.push(took.first);
        end.push(took.end);
      }
    }));
    return { first: quantiles(first), end: quantiles(end), rate: first.length / ((performance.now() - startedMs) / 1_000) };
  },
};
export type CompletionsJobs = typeof jobs;
serve(jobs);
