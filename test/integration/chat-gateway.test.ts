/** The gateway's part of public chat, over real TLS with a fake daemon: answers in pieces, the client's pace, ends of every kind. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { after, before, describe, test } from 'node:test';
import { chatRoutes } from '../../contracts/chat-routes.ts';
import { closeCodes } from '../../contracts/close.ts';
import { limits } from '../../contracts/limits.ts';
import { platformCall } from '../../contracts/platform.ts';
import type { PeerStream } from '../harness/peer.ts';
import { startPlatformEdge, type PlatformEdge } from '../harness/platform-edge.ts';

const { path } = chatRoutes.completions;
const body = { model: 'm', messages: [{ role: 'user', content: 'hi' }] };
const sse = { 'content-type': 'text/event-stream; charset=utf-8', 'cache-control': 'no-cache, no-transform' };
const head = (status: number, headers: object, whole: boolean): string => JSON.stringify({ status, headers, whole });
const { normal, internal_error: broken, upstream_unavailable: lost } = closeCodes;

describe('chat gateway', () => {
  let edge: PlatformEdge;
  let token: string;
  before(async () => {
    edge = await startPlatformEdge();
    token = await edge.access('usr_00000000000000000000000001');
  });
  after(() => edge.stop());

  /** A request, and the stream it opens at the daemon. */
  const ask = async (headers: Record<string, string> = {}): Promise<{ readonly response: Promise<IncomingMessage>; readonly stream: PeerStream; readonly leave: () => void }> => {
    const opened = edge.peer.opened();
    const request = httpsRequest({
      host: '127.0.0.1', servername: 'localhost', port: edge.port, method: 'POST', path, ca: edge.ca, agent: false, headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json', ...headers },
    });
    request.on('error', () => undefined);
    const response = once(request, 'response').then(([first]) => first as IncomingMessage);
    response.catch(() => undefined);
    request.end(JSON.stringify(body));
    return { response, stream: await opened, leave: () => { request.destroy(); } };
  };
  const textOf = async (response: IncomingMessage): Promise<string> => {
    let text = '';
    response.setEncoding('utf8');
    for await (const piece of response) text += String(piece);
    return text;
  };

  test('chat gateway - the daemon is told who asks, what, and the headers the route names, and nothing else', async () => {
    const { response, stream } = await ask({ 'troupe-organization': 'personal', 'x-session-id': 's1', 'x-other': 'no', 'user-agent': 'test', cookie: '__Host-troupe=secret' });
    assert.deepEqual(platformCall.parse(stream.json), { context: { ip: '127.0.0.1', user_agent: 'test', headers: { 'troupe-organization': 'personal', 'x-session-id': 's1' } }, body });
    assert.equal(stream.token, token);
    stream.send(head(200, {}, true), '{"a":', '1}');
    stream.close(normal.code, normal.reason);
    const answer = await response;
    assert.equal(answer.statusCode, 200);
    assert.deepEqual([answer.headers['content-type'], answer.headers['cache-control'], answer.headers['transfer-encoding']], ['application/json', 'no-store', undefined]);
    assert.equal(await textOf(answer), '{"a":1}');
  });

  test('chat gateway - pieces are passed on as they come, with the headers first', async () => {
    const { response, stream } = await ask();
    stream.send(head(200, sse, false), 'data: 1\n\n');
    const answer = await response;
    assert.deepEqual([answer.statusCode, answer.headers['content-type'], answer.headers['cache-control'], answer.headers['x-content-type-options']], [200, sse['content-type'], sse['cache-control'], 'nosniff']);
    answer.setEncoding('utf8');
    assert.deepEqual(await once(answer, 'data'), ['data: 1\n\n']);
    const next = once(answer, 'data');
    stream.send('data: 2\n\n');
    assert.deepEqual(await next, ['data: 2\n\n']);
    stream.close(normal.code, normal.reason);
    await once(answer, 'end');
  });

  test('chat gateway - a refusal has its status, shape and headers [CHAT-020] [CHAT-022]', async () => {
    const { response, stream } = await ask();
    stream.send(head(429, {}, true), JSON.stringify({ code: 'rate_limited', message: 'Too many.', details: { limit: 10, remaining: 0, reset: 1_800_000_000, retry_after: 7 } }));
    stream.close(normal.code, normal.reason);
    const answer = await response;
    assert.equal(answer.statusCode, 429);
    assert.deepEqual(['retry-after', 'x-ratelimit-limit', 'x-ratelimit-remaining', 'x-ratelimit-reset'].map((name) => answer.headers[name]), ['7', '10', '0', '1800000000']);
    assert.deepEqual(JSON.parse(await textOf(answer)), { error: { message: 'Too many.', type: 'rate_limit_error', code: 'rate_limited', param: null } });
  });

  for (const [what, end] of [
    ['closes', (stream: PeerStream): void => stream.close(broken.code, broken.reason)], ['is lost', (stream: PeerStream): void => stream.peer.destroy()],
  ] as const) {
    test(`chat gateway - a daemon that ${what} before it answered is 503, in the middle one event with the error and no more [CHAT-007] [CHAT-026]`, async () => {
      const early = await ask();
      end(early.stream);
      const refused = await early.response;
      assert.equal(refused.statusCode, 503);
      assert.equal((JSON.parse(await textOf(refused)) as { error: { code: string } }).error.code, 'upstream_unavailable');
      for (;;) if ((await edge.call('/healthz')).status === 200) break;
      const whole = await ask();
      whole.stream.send(head(200, {}, true), '{"half":');
      end(whole.stream);
      assert.equal((await whole.response).statusCode, 503);
      for (;;) if ((await edge.call('/healthz')).status === 200) break;
      const late = await ask();
      late.stream.send(head(200, sse, false), 'data: 1\n\n');
      const answer = await late.response;
      end(late.stream);
      const events = (await textOf(answer)).split('\n\n');
      assert.equal(events[0], 'data: 1');
      assert.deepEqual(JSON.parse(events[1]?.slice(6) ?? ''), { error: { message: 'The upstream cannot be reached.', type: 'api_error', code: 'upstream_unavailable', param: null } });
      assert.deepEqual(events.slice(2), ['']);
      for (;;) if ((await edge.call('/healthz')).status === 200) break;
    });
  }

  test('chat gateway - a client that leaves ends the daemon\'s stream, before the answer and in the middle of it', async () => {
    const early = await ask();
    early.leave();
    assert.equal((await early.stream.ended).code, normal.code);
    const late = await ask();
    late.stream.send(head(200, sse, false), 'data: 1\n\n');
    await late.response;
    late.leave();
    assert.equal((await late.stream.ended).code, normal.code);
  });

  test('chat gateway - a client that reads nothing gets no more than the window; when it reads, everything in order', async () => {
    const { response, stream } = await ask();
    const piece = 64 * 1024;
    const total = 48 * 1024 * 1024;
    // The head leaves with the first piece.
    stream.send(head(200, sse, false), 'a'.repeat(piece));
    const answer = await response;
    answer.pause();
    let sent = head(200, sse, false).length + piece;
    let at = piece;
    const fill = (): void => {
      // As the daemon: never more than the credit.
      while (at < total && sent + piece <= limits.linkInitialCreditBytes + stream.granted) {
        stream.send(String.fromCharCode(97 + (at / piece) % 26).repeat(piece));
        at += piece;
        sent += piece;
      }
    };
    // Until the kernel's buffers are full and nothing is granted any more: seen by asking something else, many times.
    let standing = 0;
    for (let granted = -1; standing < 50;) {
      fill();
      assert.equal((await edge.call('/healthz')).status, 200);
      standing = stream.granted === granted ? standing + 1 : 0;
      granted = stream.granted;
    }
    assert.ok(at < total / 2, `${at} bytes were taken for a client that reads nothing`);
    answer.resume();
    let got = 0;
    let wrong = 0;
    answer.on('data', (chunk: Buffer) => {
      for (const byte of chunk) {
        if (byte !== 97 + Math.floor(got / piece) % 26) wrong += 1;
        got += 1;
      }
    });
    while (at < total) {
      await stream.grantedAtLeast(sent + piece - limits.linkInitialCreditBytes);
      fill();
    }
    stream.close(normal.code, normal.reason);
    await once(answer, 'end');
    assert.deepEqual([got, wrong], [total, 0]);
  });

  test('chat gateway - an answer that is not the contract\'s is a fault of ours, and says nothing', async () => {
    const bad = [['no JSON'], [head(200, { 'x-evil': '1' }, true)], [head(200, { 'content-type': 'text/event-stream\r\nset-cookie: a=b' }, false)], [head(202, {}, true), '{}'], [head(500, {}, true), JSON.stringify({ code: 'internal_error', message: 'at /srv/secret.ts' })]];
    for (const texts of bad) {
      const { response, stream } = await ask();
      stream.send(...texts);
      if (texts.length > 1) stream.close(normal.code, normal.reason);
      const answer = await response;
      assert.equal(answer.statusCode, 500, texts[0]);
      assert.equal(answer.headers['set-cookie'], undefined);
      const { error } = JSON.parse(await textOf(answer)) as { error: { code: string; message: string } };
      assert.deepEqual([error.code, error.message.includes('secret')], ['internal_error', false]);
    }
  });

  test('chat gateway - a stream whose head cannot be used is ended', async () => {
    for (const [bad, status] of [[head(200, { location: 'a\r\nb' }, false), 500], [head(206, sse, false), 502]] as const) {
      const { response, stream } = await ask();
      stream.send(bad, 'data: 1\n\n');
      assert.equal((await stream.ended).code, broken.code);
      assert.equal((await response).statusCode, status);
    }
  });

  test('chat gateway - an endless answer that is to be whole is given up', async () => {
    const { response, stream } = await ask();
    stream.send(head(200, {}, true));
    const text = 'x'.repeat(128 * 1024);
    for (let sent = 0; stream.closedBy === undefined && sent < 2 * limits.linkFrameMaxBytes; sent += text.length) {
      await Promise.race([stream.grantedAtLeast(Math.max(0, sent + 2 * text.length - limits.linkInitialCreditBytes)), stream.ended]);
      stream.send(text);
    }
    assert.equal((await stream.ended).code, broken.code);
    assert.equal((await response).statusCode, 502);
  });

  test('chat gateway - what is wrong with a request never reaches the daemon', async () => {
    const opened = edge.peer.opened();
    const refusals = await Promise.all([
      edge.call(path, { method: 'POST', body }), edge.call(path, { method: 'POST', token, body: { ...body, model: 1 } }), edge.call(path, { method: 'POST', token, body: 'x'.repeat(limits.chatBodyMaxBytes + 1) }),
    ]);
    assert.deepEqual(refusals.map(({ status }) => status), [401, 400, 413]);
    const { stream } = await ask();
    // The first that was opened is the good one.
    assert.equal((await opened).id, stream.id);
    stream.close(lost.code, lost.reason);
  });
});
