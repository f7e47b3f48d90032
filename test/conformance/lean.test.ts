/** The lean request path over a real server: every way a request may end, and what a lost connection does to it. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { headers, type Msg, type NatsConnection } from 'nats';
import { connectNats } from '../../actors/runtime/nats/connect.ts';
import { HeaderLine, headerNumber, headerStatus, headerText, headerValue } from '../../actors/runtime/nats/header.ts';
import { createLean } from '../../actors/runtime/nats/lean.ts';
import { readAck } from '../../actors/runtime/nats/ack.ts';
import { coded } from '../../contracts/errors.ts';
import { startNats, type NatsServer } from '../harness/nats.ts';
import { startProxy, type Proxy } from '../harness/proxy.ts';
import { code } from './store.ts';

describe('lean requests', { timeout: 60_000 }, () => {
  let server: NatsServer;
  let proxy: Proxy;
  let nc: NatsConnection;
  let peer: NatsConnection;
  const stops: (() => void)[] = [];
  /** Answers on a subject, from another connection; resolves when the server knows. */
  const answer = async (subject: string, callback: (message: Msg) => void): Promise<void> => {
    const subscription = peer.subscribe(subject, { callback: (_error, message) => callback(message) });
    stops.push(() => subscription.unsubscribe());
    await peer.flush();
  };

  before(async () => {
    server = await startNats({ jetstream: false });
    proxy = await startProxy(server.port);
    nc = await connectNats({ url: proxy.url, name: 'lean' });
    peer = await connectNats({ url: server.url, name: 'peer' });
  });
  after(async () => {
    for (const stop of stops) stop();
    await nc.close();
    await peer.close();
    await proxy.stop();
    await server.stop();
  });

  test('lean - a thousand requests at once get each their own answer', async (t) => {
    const lean = createLean(nc);
    t.after(() => lean.close());
    await answer('echo', (message) => { message.respond(message.data); });
    const answers = await Promise.all(Array.from({ length: 1_000 }, (_, i) => lean.request('echo', `m${i}`, { timeoutMs: 10_000 })));
    assert.deepEqual(answers.map((message) => message.string()), Array.from({ length: 1_000 }, (_, i) => `m${i}`));
    assert.equal(lean.inFlight, 0);
  });

  test('lean - headers travel both ways, an empty answer is an answer', async (t) => {
    const lean = createLean(nc);
    t.after(() => lean.close());
    await answer('headers', (message) => {
      const head = headers();
      head.set('Back', message.headers?.get('Troupe-There') ?? 'none');
      message.respond('', { headers: head });
    });
    const reply = await lean.request('headers', '', { timeoutMs: 10_000, headers: new HeaderLine('Troupe-There', 'value') });
    assert.equal(reply.headers?.get('Back'), 'value');
    const text = headerText(reply);
    assert.equal(headerValue(text, 'Back'), 'value');
    assert.equal(headerValue(text, 'Absent'), undefined);
    assert.equal(headerNumber(text, 'Back'), undefined);
    assert.equal(headerStatus(text), 0);
  });

  test('lean - nobody there is no_owner, at once', async (t) => {
    const lean = createLean(nc);
    t.after(() => lean.close());
    await assert.rejects(lean.request('nobody', '', { timeoutMs: 60_000 }), code('no_owner'));
  });

  test('lean - silence is deadline_exceeded for each request at its own time, and a late answer goes to nobody', async (t) => {
    const lean = createLean(nc);
    t.after(() => lean.close());
    const held = new Map<string, Msg>();
    await answer('silent', (message) => { held.set(message.string(), message); });
    const patient = lean.request('silent', 'patient', { timeoutMs: 60_000 });
    await assert.rejects(lean.request('silent', 'first', { timeoutMs: 15 }), code('deadline_exceeded'));
    await assert.rejects(lean.request('silent', 'second', { timeoutMs: 15 }), code('deadline_exceeded'));
    assert.equal(lean.inFlight, 1, 'the patient one still waits');
    held.get('first')?.respond('late');
    held.get('patient')?.respond('in time');
    assert.equal((await patient).string(), 'in time');
    assert.equal(lean.inFlight, 0);
  });

  test('lean - an aborted request is rejected at once, an aborted signal sends nothing', async (t) => {
    const lean = createLean(nc);
    t.after(() => lean.close());
    let seen = 0;
    await answer('abortable', () => { seen++; });
    const abort = new AbortController();
    const pending = lean.request('abortable', '', { timeoutMs: 60_000, signal: abort.signal });
    await lean.settled(10_000);
    await peer.flush();
    abort.abort();
    await assert.rejects(pending, code('aborted'));
    await assert.rejects(lean.request('abortable', '', { timeoutMs: 60_000, signal: abort.signal }), code('aborted'));
    await lean.settled(10_000);
    await peer.flush();
    assert.equal(seen, 1);
  });

  test('lean - more than maxInFlight is overloaded, and a freed place can be taken', async (t) => {
    const lean = createLean(nc, { maxInFlight: 2 });
    t.after(() => lean.close());
    const held: Msg[] = [];
    let two: () => void;
    const both = new Promise<void>((resolve) => { two = resolve; });
    await answer('held', (message) => { held.push(message); if (held.length === 2) two(); });
    const pending = [lean.request('held', '', { timeoutMs: 60_000 }), lean.request('held', '', { timeoutMs: 60_000 })];
    await assert.rejects(lean.request('held', '', { timeoutMs: 60_000 }), code('overloaded'));
    await assert.rejects(lean.requestMany('held', '', { timeoutMs: 60_000, onMessage: () => true }), code('overloaded'));
    await both;
    held[0]?.respond('a');
    assert.equal((await pending[0])?.string(), 'a');
    const third = lean.request('echo', 'b', { timeoutMs: 10_000 });
    assert.equal((await third).string(), 'b');
    held[1]?.respond('c');
    assert.equal((await pending[1])?.string(), 'c');
  });

  test('lean - many answers come in order until the last, an error in between rejects', async (t) => {
    const lean = createLean(nc);
    t.after(() => lean.close());
    await answer('count', (message) => { for (let i = 0; i < 100; i++) message.respond(String(i)); message.respond('end'); });
    const seen: string[] = [];
    const last = await lean.requestMany('count', '', { timeoutMs: 10_000, onMessage: (m) => { seen.push(m.string()); return m.string() === 'end'; } });
    assert.equal(last.string(), 'end');
    assert.deepEqual(seen, [...Array.from({ length: 100 }, (_, i) => String(i)), 'end']);
    await assert.rejects(lean.requestMany('count', '', { timeoutMs: 10_000, onMessage: () => { throw coded('conflict'); } }), code('conflict'));
    await assert.rejects(lean.requestMany('count', '', { timeoutMs: 10_000, onMessage: () => { throw new TypeError('bug'); } }), code('internal_error'));
    await assert.rejects(lean.requestMany('nobody', '', { timeoutMs: 10_000, onMessage: () => true }), code('no_owner'));
    // The connection's reader survived the errors thrown in its midst.
    assert.equal((await lean.request('echo', 'alive', { timeoutMs: 10_000 })).string(), 'alive');
  });

  test('lean - a lost connection rejects what was sent, keeps what was not, and sends it when it is back', async (t) => {
    const lean = createLean(nc);
    t.after(() => lean.close());
    const held: string[] = [];
    await answer('lost', (message) => { held.push(message.string()); if (message.string() === 'after') message.respond('back'); });
    const sent = lean.request('lost', 'before', { timeoutMs: 60_000 });
    await lean.settled(10_000);
    let back: () => void;
    const reconnected = new Promise<void>((resolve) => { back = resolve; });
    t.after(lean.onReconnect(() => back()));
    proxy.refuse();
    proxy.cut();
    await assert.rejects(sent, code('deadline_exceeded'));
    assert.equal(lean.connected, false);
    assert.equal(lean.publish('lost', 'dropped'), false);
    const waiting = lean.request('lost', 'after', { timeoutMs: 60_000 });
    const impatient = lean.request('lost', 'impatient', { timeoutMs: 20 });
    await assert.rejects(impatient, code('deadline_exceeded'));
    proxy.resume();
    assert.equal((await waiting).string(), 'back');
    await reconnected;
    assert.equal(lean.connected, true);
    assert.deepEqual(held, ['before', 'after']);
  });

  test('lean - closing rejects what is in flight and refuses what comes', async () => {
    const lean = createLean(nc);
    const pending = lean.request('silent', '', { timeoutMs: 60_000 });
    lean.close();
    await assert.rejects(pending, code('interrupted'));
    await assert.rejects(lean.request('echo', '', { timeoutMs: 10_000 }), code('draining'));
    await assert.rejects(lean.settled(10_000), code('draining'));
    assert.equal(lean.publish('echo', ''), false);
    assert.equal(lean.inFlight, 0);
  });

  test('lean - a closed connection closes it', async () => {
    const own = await connectNats({ url: server.url, name: 'own' });
    const lean = createLean(own);
    const pending = lean.request('silent', '', { timeoutMs: 60_000 });
    await Promise.all([assert.rejects(pending, code('interrupted')), own.close()]);
    await assert.rejects(lean.request('echo', '', { timeoutMs: 10_000 }), code('draining'));
  });

  test('lean - what the server cannot take is refused with a code', async (t) => {
    const lean = createLean(nc);
    t.after(() => lean.close());
    await assert.rejects(lean.request('echo', new Uint8Array(2 * 1024 * 1024), { timeoutMs: 10_000 }), code('payload_too_large'));
    await assert.rejects(lean.request('white space', '', { timeoutMs: 10_000 }), code('bad_request'));
    assert.throws(() => lean.publish('echo', new Uint8Array(2 * 1024 * 1024)), code('payload_too_large'));
    assert.equal(lean.inFlight, 0);
  });

  test('acknowledgement - the usual and the unusual forms are read, and nothing unreadable counts as stored', async (t) => {
    const lean = createLean(nc);
    t.after(() => lean.close());
    const forms: [string, object][] = [
      ['{"stream":"JOURNAL_0", "seq":9007199254740991}', { stored: true, seq: 9_007_199_254_740_991 }],
      ['{"stream":"J","seq":7}', { stored: true, seq: 7 }],
      ['{"stream":"J","seq":7,"duplicate": true}', { stored: true, seq: 7 }],
      ['{"stream":"J","domain":"hub","seq":12,"val":"3"}', { stored: true, seq: 12 }],
      ['{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 4"},"stream":"J","seq":0}', { stored: false, fenced: true, code: 400, errCode: 10_071, description: 'wrong last sequence: 4' }],
      ['{"error":{"code":400,"err_code":10164,"description":"wrong last sequence"},"stream":"J","seq":0}', { stored: false, fenced: true, code: 400, errCode: 10_164, description: 'wrong last sequence' }],
      ['{"error":{"code":503,"err_code":10077,"description":"maximum messages exceeded"},"stream":"J","seq":0}', { stored: false, fenced: false, code: 503, errCode: 10_077, description: 'maximum messages exceeded' }],
      ...['', '{}', '}', '7}', '"seq":}', '{"seq":0}', '{"seq":-4}', '{"seq":"4"}', '+ACK', '{"stream":"J","seq":4'].map((body): [string, object] =>
        [body, { stored: false, fenced: false, code: 0, errCode: 0, description: 'The answer could not be read.' }]),
    ];
    let next = 0;
    await answer('ack', (message) => { message.respond(forms[next]?.[0] ?? ''); });
    for (; next < forms.length; next++) assert.deepEqual(readAck(await lean.request('ack', '', { timeoutMs: 10_000 })), forms[next]?.[1], forms[next]?.[0]);
  });
});
