/** A deployment's client for tests of its runtime: turns over `/v1/chat`, events as they come, its sessions watched over the gateway. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { z } from 'zod';
import { eventEnvelope, type EventEnvelope } from '../../contracts/event.ts';
import type { TestDeployment, ServiceCall } from './deployment.ts';
import { Watcher } from './e2e.ts';
import { openSocket } from './gateway.ts';
import type { Person } from './platform.ts';

/** One event of a stream (WHATWG HTML, 9.2.6), as it was written. */
export interface Frame {
  readonly event: string | undefined;
  readonly id: string | undefined;
  readonly data: string;
}

const parseFrame = (text: string): Frame | undefined => {
  const field = (name: string): string | undefined => text.split('\n').find((line) => line.startsWith(`${name}: `))?.slice(name.length + 2);
  const data = field('data');
  return data === undefined ? undefined : { event: field('event'), id: field('id'), data };
};

/** The frames of an answer as they come; comments are left out. */
export async function* framesOf(answer: IncomingMessage): AsyncGenerator<Frame, void, undefined> {
  let text = '';
  answer.setEncoding('utf8');
  for await (const piece of answer) {
    text += String(piece);
    for (let at = text.indexOf('\n\n'); at >= 0; at = text.indexOf('\n\n')) {
      const frame = parseFrame(text.slice(0, at));
      text = text.slice(at + 2);
      if (frame !== undefined) yield frame;
    }
  }
}

/** Envelopes of a native stream's text, which must be whole; checked against the contract. */
export const envelopesOf = (body: string): EventEnvelope[] => {
  const frames = body.split('\n\n').map(parseFrame).filter((frame) => frame !== undefined);
  assert.equal(frames.at(-1)?.event, 'done', body.slice(-200));
  return frames.slice(0, -1).map((frame) => {
    assert.equal(frame.event, 'event');
    const envelope = eventEnvelope.parse(JSON.parse(frame.data));
    assert.equal(frame.id, envelope.id);
    return envelope;
  });
};

export const kindsOf = (events: readonly { readonly kind: string }[]): string[] => events.map(({ kind }) => kind).filter((kind, i, all) => kind !== 'TextDelta' || all[i - 1] !== 'TextDelta');
export const textOf = (events: readonly EventEnvelope[]): string => events.map(({ kind, payload }) => (kind === 'TextDelta' ? String(payload['text']) : '')).join('');

export interface RuntimeClient {
  /** The whole answer of one turn in the native format; must be 200. */
  turn(session: string, content: string, call?: ServiceCall & { readonly more?: object }): Promise<EventEnvelope[]>;
  /** All events of a session, page by page. */
  events(session: string, query?: string): Promise<EventEnvelope[]>;
  /** A turn's answer as it comes. */
  open(session: string, content: string, call?: ServiceCall & { readonly more?: object; readonly query?: string }): Promise<IncomingMessage>;
  /** A person of the organization watches the session over the gateway. */
  watch(sid: string, person: Person, lastSeqNo?: number): Promise<Watcher>;
}

const page = z.strictObject({ events: z.array(eventEnvelope) });
export const chatBody = (session: string, content: string, more: object = {}): object => ({ session_id: session, messages: [{ role: 'user', content }], ...more });

export const runtimeClient = (world: TestDeployment): RuntimeClient => ({
  turn: async (session, content, { more, ...call } = {}) => {
    const reply = await world.service('POST', '/v1/chat', { json: chatBody(session, content, more), ...call });
    assert.equal(reply.status, 200, reply.body);
    return envelopesOf(reply.body);
  },
  events: async (session, query = '') => {
    const reply = await world.service('GET', `/v1/sessions/${session}/events${query}`);
    assert.equal(reply.status, 200, reply.body);
    return page.parse(reply.json).events;
  },
  open: async (session, content, { more, query = '', ...call } = {}) => {
    const answer = await world.open('POST', `/v1/chat${query}`, { json: chatBody(session, content, more), ...call });
    assert.equal(answer.statusCode, 200);
    return answer;
  },
  watch: async (sid, person, lastSeqNo = 0) => {
    const reply = await world.api('POST', '/api/auth/gateway-token', { token: person.accessToken, json: { orgId: world.org.id } });
    assert.equal(reply.status, 200, reply.body);
    const { access_token: token } = z.object({ access_token: z.string() }).parse(reply.json);
    const [gateway] = world.gateways;
    assert.ok(gateway !== undefined);
    const watcher = new Watcher(openSocket(gateway.port, world.ca.toString('utf8'), sid, { token, query: `sid=${sid}&last_seq_no=${lastSeqNo}` }), sid, lastSeqNo);
    await watcher.opened;
    return watcher;
  },
});

/** Reads frames until one passes, then cuts the connection; gives what was read. */
export const readUntil = async (answer: IncomingMessage, test: (frame: Frame) => boolean): Promise<Frame[]> => {
  const frames: Frame[] = [];
  for await (const frame of framesOf(answer)) {
    frames.push(frame);
    if (test(frame)) break;
  }
  if (!answer.closed) {
    const closed = once(answer, 'close');
    answer.destroy();
    await closed;
  }
  return frames;
};
