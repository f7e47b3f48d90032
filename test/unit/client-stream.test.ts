/** The client's session stream against scripted sockets and a clock that the test moves: reconnects, proofs, repeats, heartbeat. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { closeCodes, reconnectCodes } from '../../contracts/close.ts';
import { CodedError, coded } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { openSession, type Reconnected, type SessionStream, type SessionStreamOptions } from '../../gateway/client/session-stream.ts';
import type { StreamState } from '../../gateway/client/state.ts';
import { FakeSocket, fakeSockets, ManualClock } from '../harness/fake-socket.ts';

interface Bench {
  readonly stream: SessionStream;
  readonly clock: ManualClock;
  readonly states: StreamState[];
  readonly seen: number[];
  readonly reconnected: Reconnected[];
  readonly made: FakeSocket[];
  /** The newest socket, once the token has been given. */
  socket(): Promise<FakeSocket>;
}

const bench = (extra: Partial<SessionStreamOptions> = {}): Bench => {
  const clock = new ManualClock();
  const { WebSocket, made } = fakeSockets();
  const states: StreamState[] = [];
  const seen: number[] = [];
  const reconnected: Reconnected[] = [];
  const stream = openSession({
    url: 'https://edge.test:8443', sid: 'abc', token: () => 'jwt', WebSocket, clock, lastSeqNo: 0,
    onEvent: (e) => seen.push(e.seq_no), onState: (s) => states.push(s), onReconnected: (r) => reconnected.push(r), ...extra,
  });
  const socket = async (): Promise<FakeSocket> => {
    await new Promise(setImmediate);
    const last = made.at(-1);
    assert.ok(last, 'no socket was made');
    return last;
  };
  return { stream, clock, states, seen, reconnected, made, socket };
};

test('client - connects with the sid, the position and the bearer as a subprotocol', async () => {
  const b = bench({ lastSeqNo: 7 });
  const s = await b.socket();
  assert.equal(s.url.href, 'wss://edge.test:8443/v1/agent/stream?sid=abc&last_seq_no=7');
  assert.deepEqual(s.protocols, ['troupe.v1', 'bearer.jwt']);
  b.stream.close();
  assert.equal(b.clock.waiting, 0);
});

test('client - without a position asks for none and takes the first event as the start', async () => {
  const b = bench({ lastSeqNo: undefined });
  const s = await b.socket();
  assert.equal(s.url.searchParams.has('last_seq_no'), false);
  s.open();
  s.token(41);
  s.token(42);
  s.drop(1006);
  b.clock.pass(limits.clientReconnectMaxMs);
  assert.equal((await b.socket()).url.searchParams.get('last_seq_no'), '42');
  assert.deepEqual(b.seen, [41, 42]);
  b.stream.close();
});

for (const code of [1001, 1006, 1011, 4002, 4004]) {
  test(`client - reconnects after ${code} and resumes at its position [WSS-050]`, async () => {
    assert.ok(reconnectCodes.has(code));
    const b = bench();
    const first = await b.socket();
    first.open();
    first.token(1);
    first.token(2);
    first.drop(code, 'why');
    assert.deepEqual(b.stream.state, { kind: 'waiting', attempt: 1, retryInMs: limits.clientReconnectBaseMs / 2, code, reason: 'why' });
    b.clock.pass(limits.clientReconnectBaseMs);
    const second = await b.socket();
    assert.notEqual(second, first);
    assert.equal(second.url.searchParams.get('last_seq_no'), '2');
    second.open();
    assert.deepEqual(b.reconnected, [], 'an open socket alone is not a restored stream');
    second.token(3);
    assert.deepEqual(b.reconnected, [{ downMs: limits.clientReconnectBaseMs, attempts: 1, lost: 0, repeated: 0 }]);
    assert.deepEqual(b.seen, [1, 2, 3]);
    assert.deepEqual(b.stream.counts, { delivered: 3, lost: 0, repeated: 0, reconnects: 1 });
    b.stream.close();
    assert.equal(b.clock.waiting, 0);
  });
}

const finals: [number, string | undefined][] = [
  [1000, undefined], [1002, 'protocol_error'], [1003, 'protocol_error'], [1007, 'protocol_error'], [1008, 'unauthorized'],
  [1009, 'payload_too_large'], [4001, 'rate_limited'], [4005, 'sequence_retired'], [4010, 'session_not_found'], [4999, 'protocol_error'],
];
test('client - the codes tested are all of the contract', () => {
  const tested = new Set([...finals.map(([code]) => code), ...reconnectCodes]);
  for (const { code } of Object.values(closeCodes)) assert.ok(tested.has(code), String(code));
});
for (const [code, error] of finals) {
  test(`client - does not reconnect after ${code} [WSS-050]`, async () => {
    const b = bench();
    const s = await b.socket();
    s.open();
    s.token(1);
    s.text({ kind: 'closing', reason: 'said before' });
    s.drop(code, 'said in the close');
    const end = await b.stream.closed;
    assert.equal(end.kind, 'closed');
    assert.ok(end.kind === 'closed');
    assert.equal(end.code, code);
    assert.equal(end.reason, 'said before');
    assert.equal(end.error?.code, error);
    b.clock.pass(10 * limits.clientReconnectMaxMs);
    await b.socket();
    assert.equal(b.made.length, 1);
    assert.equal(b.clock.waiting, 0);
  });
}

test('client - waits longer with every failed attempt, with jitter, and gives up at the bound', async () => {
  const b = bench();
  b.clock.chance = 0.999999;
  const waits: number[] = [];
  for (let i = 0; i < limits.clientAttemptsMax; i++) {
    (await b.socket()).drop(1006);
    if (b.stream.state.kind === 'waiting') waits.push(b.stream.state.retryInMs);
    b.clock.pass(limits.clientReconnectMaxMs);
  }
  assert.deepEqual(waits.slice(0, 4), [199, 399, 799, 1599]);
  assert.ok(waits.every((ms) => ms < limits.clientReconnectMaxMs));
  const end = await b.stream.closed;
  assert.ok(end.kind === 'closed');
  assert.equal(end.error?.code, 'upstream_unavailable');
  assert.equal(b.made.length, limits.clientAttemptsMax);
  assert.equal(b.clock.waiting, 0);
});

test('client - a connection that is accepted, answers a ping and is closed again does not reset the wait', async () => {
  const b = bench();
  for (const attempt of [2, 3, 4]) {
    const s = await b.socket();
    s.open();
    if (attempt > 2) s.pong();
    b.clock.pass(limits.clientSettleMs - 1);
    s.drop(4004);
    assert.ok(b.stream.state.kind === 'waiting');
    assert.equal(b.stream.state.attempt, attempt);
    b.clock.pass(limits.clientReconnectMaxMs);
  }
  assert.deepEqual(b.reconnected, []);
  const s = await b.socket();
  s.open();
  s.pong();
  b.clock.pass(limits.clientSettleMs);
  assert.equal(b.reconnected.length, 1);
  s.drop(4004);
  assert.ok(b.stream.state.kind === 'waiting');
  assert.equal(b.stream.state.attempt, 1);
  b.stream.close();
});

test('client - a gap ends the stream as broken and is counted', async () => {
  const b = bench();
  const s = await b.socket();
  s.open();
  s.token(1);
  s.token(4);
  assert.deepEqual(await b.stream.closed, { kind: 'broken', problem: 'gap', expected: 2, got: 4 });
  assert.deepEqual(b.stream.counts, { delivered: 1, lost: 2, repeated: 0, reconnects: 0 });
  assert.deepEqual(b.seen, [1]);
  assert.equal(s.closedWith, 1000);
  assert.equal(b.clock.waiting, 0);
});

test('client - a repeat ends the stream as broken and is not delivered again', async () => {
  const b = bench();
  const s = await b.socket();
  s.open();
  s.token(1);
  s.drop(1001);
  b.clock.pass(limits.clientReconnectMaxMs);
  const again = await b.socket();
  again.open();
  again.token(1);
  assert.deepEqual(await b.stream.closed, { kind: 'broken', problem: 'repeat', expected: 2, got: 1 });
  assert.deepEqual(b.stream.counts, { delivered: 1, lost: 0, repeated: 1, reconnects: 0 });
  assert.deepEqual(b.seen, [1]);
});

for (const [what, feed] of [
  ['text that is not JSON', (s: FakeSocket) => { s.text('{'); }],
  ['a binary frame', (s: FakeSocket) => { s.binary(); }],
  ['an unknown kind', (s: FakeSocket) => { s.text({ kind: 'greeting' }); }],
  ['a frame over the limit', (s: FakeSocket) => { s.text(`"${'x'.repeat(limits.clientReceiveMaxBytes)}"`); }],
] as const) {
  test(`client - ${what} from the server ends the stream as broken`, async () => {
    const b = bench();
    const s = await b.socket();
    s.open();
    feed(s);
    const end = await b.stream.closed;
    assert.ok(end.kind === 'broken');
    assert.equal(end.problem, 'frame');
  });
}

test('client - repeats a message with its id until the end of its turn was seen', async () => {
  const b = bench();
  const one = b.stream.send('one', { messageId: 'm1' });
  b.stream.send('two', { messageId: 'm2' });
  const first = await b.socket();
  first.open();
  assert.deepEqual(first.of('send_message').map((f) => f['message_id']), ['m1', 'm2'], 'written before it was open, in order');
  first.token(1);
  first.drop(1006);
  b.clock.pass(limits.clientReconnectMaxMs);
  const second = await b.socket();
  second.open();
  assert.deepEqual(second.of('send_message'), [
    { kind: 'send_message', content: 'one', message_id: 'm1' }, { kind: 'send_message', content: 'two', message_id: 'm2' },
  ]);
  second.finish(2);
  assert.deepEqual(await one.ended, { kind: 'finish', seqNo: 2, reason: 'stop', usage: { input_tokens: 1, output_tokens: 1, cost_cents: 0 } });
  second.drop(1006);
  b.clock.pass(limits.clientReconnectMaxMs);
  const third = await b.socket();
  third.open();
  assert.deepEqual(third.of('send_message').map((f) => f['message_id']), ['m2']);
  third.event(3, 'ERROR', { code: 'provider_error', message: 'no' }, 'RunErrored');
  assert.deepEqual(b.stream.pending, []);
  b.stream.close();
});

test('client - the end of a turn that ran before does not settle a message', async () => {
  const b = bench();
  const s = await b.socket();
  s.open();
  s.token(1);
  b.stream.send('mine', { messageId: 'm1' });
  s.finish(2);
  assert.deepEqual(b.stream.pending.map((p) => p.messageId), ['m1']);
  s.token(3);
  s.finish(4);
  assert.deepEqual(b.stream.pending, []);
  b.stream.close();
});

test('client - a message restored after a restart is settled only by ends after it was written', async () => {
  const changes: string[][] = [];
  const b = bench({
    lastSeqNo: 0, pending: [{ messageId: 'm1', content: 'mine', after: 2, behindOther: false }],
    onPending: (p) => changes.push(p.map((m) => m.messageId)),
  });
  const s = await b.socket();
  s.open();
  assert.deepEqual(s.of('send_message').map((f) => f['message_id']), ['m1']);
  s.token(1);
  s.finish(2);
  assert.equal(b.stream.pending.length, 1);
  s.token(3);
  s.finish(4);
  assert.deepEqual(changes, [[]]);
  b.stream.close();
});

test('client - a message refused as session_busy is settled, the running one is not', async () => {
  const b = bench();
  const s = await b.socket();
  s.open();
  const runs = b.stream.send('runs', { messageId: 'm1' });
  const refused = b.stream.send('refused', { messageId: 'm2' });
  s.token(1);
  s.event(2, 'ERROR', { code: 'session_busy', message: 'full' }, 'MessageRefused');
  assert.deepEqual(await refused.ended, { kind: 'error', seqNo: 2, code: 'session_busy', message: 'full' });
  assert.deepEqual(b.stream.pending.map((p) => p.messageId), ['m1']);
  b.stream.close();
  assert.deepEqual(await runs.ended, { kind: 'closed' });
});

test('client - keeps at most clientOutboxMax messages and refuses the next', async () => {
  const b = bench();
  for (let i = 0; i < limits.clientOutboxMax; i++) b.stream.send('m');
  assert.throws(() => b.stream.send('one more'), (e) => e instanceof CodedError && e.code === 'session_busy');
  assert.equal(b.stream.pending.length, limits.clientOutboxMax);
  b.stream.close();
});

test('client - refuses a message that does not fit a frame before it is sent', async () => {
  const b = bench();
  const overhead = JSON.stringify({ kind: 'send_message', content: '', message_id: 'm' }).length;
  assert.throws(
    () => b.stream.send('x'.repeat(limits.clientFrameMaxBytes - overhead + 1), { messageId: 'm' }),
    (e) => e instanceof CodedError && e.code === 'payload_too_large',
  );
  assert.throws(
    () => b.stream.send('ü'.repeat(limits.clientFrameMaxBytes / 2), { messageId: 'm' }),
    (e) => e instanceof CodedError && e.code === 'payload_too_large', 'bytes are counted, not characters',
  );
  b.stream.send('x'.repeat(limits.clientFrameMaxBytes - overhead), { messageId: 'm' });
  b.stream.close();
});

test('client - repeats an approval until the tool\'s result was seen', async () => {
  const b = bench();
  const s = await b.socket();
  s.open();
  b.stream.send('do it');
  s.event(1, 'TOOL_CALL_PENDING', { call_id: 'c1', tool_name: 't', arguments: {} }, 'ToolCall');
  s.event(2, 'APPROVAL_REQUIRED', { dispatch_id: 'd1', call_id: 'c1', preview: 'p' }, 'ApprovalRequested');
  b.stream.approve('d1');
  assert.deepEqual(s.of('approve_dispatch'), [{ kind: 'approve_dispatch', dispatch_id: 'd1' }]);
  s.drop(1011);
  b.clock.pass(limits.clientReconnectMaxMs);
  const again = await b.socket();
  again.open();
  assert.deepEqual(again.of('approve_dispatch'), [{ kind: 'approve_dispatch', dispatch_id: 'd1' }]);
  again.event(3, 'TOOL_RESULT', { call_id: 'c1', tool_name: 't', result: 1, is_error: false }, 'ToolResult');
  again.drop(1011);
  b.clock.pass(limits.clientReconnectMaxMs);
  const third = await b.socket();
  third.open();
  assert.deepEqual(third.of('approve_dispatch'), []);
  b.stream.close();
});

test('client - repeats a cancel of the turn only once the replay shows that the turn still runs', async () => {
  const b = bench();
  const s = await b.socket();
  s.open();
  b.stream.send('one');
  b.stream.send('two');
  s.token(1);
  b.stream.cancel();
  assert.equal(s.of('cancel_dispatch').length, 1);
  s.drop(1006);
  b.clock.pass(limits.clientReconnectMaxMs);

  const ended = await b.socket();
  ended.open();
  assert.equal(ended.of('cancel_dispatch').length, 0, 'not before the replay');
  b.clock.pass(limits.clientReplayQuietMs - 1);
  ended.token(2);
  b.clock.pass(limits.clientReplayQuietMs - 1);
  ended.finish(3);
  ended.token(4);
  b.clock.pass(limits.clientReplayMaxMs);
  assert.equal(ended.of('cancel_dispatch').length, 0, 'its turn ended: the next turn must not be cancelled in its place');

  b.stream.cancel();
  assert.equal(ended.of('cancel_dispatch').length, 1);
  ended.drop(1006);
  b.clock.pass(limits.clientReconnectMaxMs);
  const runs = await b.socket();
  runs.open();
  b.clock.pass(limits.clientReplayQuietMs);
  assert.deepEqual(runs.of('cancel_dispatch'), [{ kind: 'cancel_dispatch', dispatch_id: '' }]);
  b.stream.close();
  assert.equal(b.clock.waiting, 0);
});

test('client - pings a silent connection and gives a half-open one up', async () => {
  const b = bench();
  const s = await b.socket();
  s.open();
  s.pong();
  b.clock.pass(limits.clientPingMs);
  const pings = s.of('ping').length;
  assert.equal(pings, 2, 'one at the start, one for the silence');
  s.pong();
  assert.equal(b.stream.state.kind, 'open');
  b.clock.pass(2 * (limits.clientPingMs + limits.clientPongMs));
  assert.ok(b.states.some((state) => state.kind === 'waiting' && state.code === 1006 && state.reason === 'no_answer'));
  assert.equal(s.closedWith, 1000);
  s.token(1);
  assert.deepEqual(b.seen, [], 'what a connection given up still says is not heard');
  b.stream.close();
});

test('client - an upgrade that is never answered counts as a broken connection', async () => {
  const b = bench();
  await b.socket();
  b.clock.pass(limits.clientConnectMs);
  assert.ok(b.states.some((state) => state.kind === 'waiting' && state.reason === 'connect_timeout'));
  b.stream.close();
});

test('client - a refusal found by diagnose ends the stream, an outage does not', async () => {
  let answer: Error = new TypeError('no network');
  const b = bench({ diagnose: () => Promise.reject(answer) });
  (await b.socket()).drop(1006);
  await b.socket();
  assert.equal(b.stream.state.kind, 'waiting');
  b.clock.pass(limits.clientReconnectMaxMs);
  answer = coded('unauthorized');
  (await b.socket()).drop(1006);
  const end = await b.stream.closed;
  assert.ok(end.kind === 'closed');
  assert.equal(end.error?.code, 'unauthorized');
  assert.equal(b.clock.waiting, 0);
});

test('client - asks for a token with every connection and ends when there is none to be had', async () => {
  let asked = 0;
  const b = bench({
    token: () => {
      asked += 1;
      if (asked === 3) throw coded('unauthorized');
      return `t${asked}`;
    },
  });
  (await b.socket()).drop(1006);
  b.clock.pass(limits.clientReconnectMaxMs);
  assert.equal((await b.socket()).protocols[1], 'bearer.t2');
  (await b.socket()).drop(1006);
  b.clock.pass(limits.clientReconnectMaxMs);
  const end = await b.stream.closed;
  assert.ok(end.kind === 'closed');
  assert.equal(end.error?.code, 'unauthorized');
});

test('client - wake connects at once instead of waiting', async () => {
  const b = bench();
  (await b.socket()).drop(1006);
  b.stream.wake();
  await b.socket();
  assert.equal(b.made.length, 2);
  b.stream.close();
});

test('client - close says so, ends at once and lets go of every timer', async () => {
  const b = bench();
  const s = await b.socket();
  s.open();
  b.stream.close('done');
  assert.deepEqual(s.of('close'), [{ kind: 'close', reason: 'done' }]);
  assert.deepEqual(await b.stream.closed, { kind: 'closed', code: 1000, reason: 'done' });
  assert.equal(b.clock.waiting, 0);
  assert.deepEqual(await b.stream.send('late').ended, { kind: 'closed' });
});
