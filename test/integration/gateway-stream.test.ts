/** WebSockets at the gateway over real TLS, with a fake daemon behind the link: upgrade, envelopes, closes, heartbeat, credit. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { WebSocket } from 'ws';
import { limits } from '../../contracts/limits.ts';
import { ending, nextFrame, opened, refusal, startEdge, type Edge, type EdgeOptions, type Ending } from '../harness/gateway.ts';
import { manualClock } from '../harness/manual-clock.ts';
import type { PeerStream } from '../harness/peer.ts';

const wide = { limits: { per_user_capacity: 10_000, per_ip_capacity: 10_000, sockets_per_user: 1_000 } };
const frame = (value: object): string => JSON.stringify(value);

interface Watched {
  readonly socket: WebSocket;
  readonly stream: PeerStream;
  readonly ended: Promise<Ending>;
}

const watch = async (edge: Edge, options: Parameters<Edge['socket']>[1] = {}, sid = 's'): Promise<Watched> => {
  const token = options.token ?? await edge.issuer.token('alice');
  const stream = edge.peer.opened();
  const socket = edge.socket(sid, { ...options, token });
  const ended = ending(socket);
  await opened(socket);
  return { socket, stream: await stream, ended };
};

/** The close with this code and reason, a closing frame with the same reason before it. */
const closedWith = ({ code, reason, frames }: Ending, expectedCode: number, expectedReason: string): void => {
  assert.deepEqual([code, reason], [expectedCode, expectedReason]);
  assert.deepEqual(frames.at(-1), { kind: 'closing', reason: expectedReason });
  assert.equal(frames.filter((one) => JSON.stringify(one).includes('"closing"')).length, 1);
};

/** Sends a ping and waits for its pong: whatever was sent before has been handled on both sides then. */
const roundTrip = async (socket: WebSocket, seqNo = 1): Promise<void> => {
  const answer = nextFrame(socket);
  socket.send(frame({ kind: 'ping', seq_no: seqNo }));
  assert.equal(await answer, `{"kind":"pong","seq_no":${seqNo}}`);
};

const withEdge = async (options: EdgeOptions, body: (edge: Edge) => Promise<void>): Promise<void> => {
  const edge = await startEdge(options);
  try {
    await body(edge);
  } finally {
    await edge.stop();
  }
};

describe('gateway stream', () => {
  let edge: Edge;
  before(async () => {
    edge = await startEdge({ config: wide });
  });
  after(() => edge.stop());

  test('gateway stream - an upgrade with sid and bearer is 101 and carries texts both ways, unchanged and in order [WSS-001]', async () => {
    const { socket, stream, ended } = await watch(edge, {}, 'abc');
    assert.deepEqual(stream.json, { sid: 'abc' });
    const texts = ['{"kind":"agent_event","n":1}', '{"kind":"agent_event","n":2,"t":"é\u{1F600}"}', '{"kind":"agent_event","n":3}'];
    stream.send(...texts);
    stream.send('{"kind":"agent_event","n":4}');
    const sent = frame({ kind: 'send_message', content: 'h\u00e9llo \u{1F600}', message_id: 'm' });
    socket.send(sent);
    assert.equal(await stream.next(), sent);
    await roundTrip(socket);
    socket.close();
    assert.deepEqual((await ended).frames, [...texts, '{"kind":"agent_event","n":4}', '{"kind":"pong","seq_no":1}'].map((text): unknown => JSON.parse(text)));
  });

  test('gateway stream - the position goes to the daemon as a number', async () => {
    for (const [query, body] of [['sid=x&last_seq_no=0', { sid: 'x', last_seq_no: 0 }], ['sid=x&last_seq_no=41', { sid: 'x', last_seq_no: 41 }], ['last_seq_no=7&sid=a%20b', { sid: 'a b', last_seq_no: 7 }]] as const) {
      const { socket, stream, ended } = await watch(edge, { query });
      assert.deepEqual(stream.json, body);
      socket.close();
      await ended;
    }
  });

  test('gateway stream - one copy from the daemon reaches every addressed socket', async () => {
    const watchers = [await watch(edge), await watch(edge), await watch(edge)];
    const frames = watchers.map(({ socket }) => nextFrame(socket));
    watchers[0]?.stream.peer.multicast(watchers.map(({ stream }) => stream), '{"kind":"agent_event","n":1}');
    assert.deepEqual(await Promise.all(frames), watchers.map(() => '{"kind":"agent_event","n":1}'));
    for (const { socket, ended } of watchers) {
      socket.close();
      await ended;
    }
  });

  test('gateway stream - no sid, or a last_seq_no that is no non-negative integer, is 400 [WSS-002]', async () => {
    const token = await edge.issuer.token('alice');
    for (const query of ['', 'sid=', 'last_seq_no=1', 'sid=s&last_seq_no=-1', 'sid=s&last_seq_no=1.5', 'sid=s&last_seq_no=x', 'sid=s&last_seq_no=', 'sid=s&last_seq_no=01', 'sid=s&last_seq_no=1e3', 'sid=s&last_seq_no=99999999999999999', 'sid=s&sid=t', 'sid=s&x=1', `sid=${'s'.repeat(129)}`]) {
      const { status, json } = await refusal(edge.socket('s', { token, query: query === '' ? ' ' : query }));
      assert.equal(status, 400, query);
      assert.ok(typeof json === 'object' && json !== null && 'error' in json && json.error === 'bad_request', query);
    }
    assert.equal((await edge.call('/v1/agent/stream?sid=s', { token })).status, 400);
  });

  test('gateway stream - the five client kinds in snake_case are accepted, envelope names are not [WSS-005] [WSS-006]', async () => {
    const { socket, stream, ended } = await watch(edge);
    for (const sent of [{ kind: 'send_message', content: '' }, { kind: 'approve_dispatch', dispatch_id: 'd' }, { kind: 'cancel_dispatch', dispatch_id: '' }]) {
      socket.send(frame(sent));
      assert.deepEqual(JSON.parse(await stream.next()), sent);
    }
    await roundTrip(socket);
    socket.send(frame({ kind: 'close', reason: 'done' }));
    closedWith(await ended, 1000, 'normal');
    for (const kind of ['SendMessage', 'agent_event', 'pong', 'closing', 'SEND_MESSAGE', 'sendMessage', '']) {
      const other = await watch(edge);
      other.socket.send(frame({ kind, content: 'x' }));
      closedWith(await other.ended, 1003, 'unsupported');
      assert.deepEqual(other.stream.received, []);
    }
  });

  test('gateway stream - what the gateway itself sends is pong and closing, nothing else [WSS-007]', async () => {
    const { socket, stream, ended } = await watch(edge);
    await roundTrip(socket, 3);
    stream.close(4010, 'session_not_found');
    assert.deepEqual((await ended).frames, [{ kind: 'pong', seq_no: 3 }, { kind: 'closing', reason: 'session_not_found' }]);
  });

  test('gateway stream - ping is answered with pong of the same seq_no, by the gateway alone [WSS-021]', async () => {
    const { socket, stream, ended } = await watch(edge);
    for (const seqNo of [0, 1, 9_007_199_254_740_991]) await roundTrip(socket, seqNo);
    assert.deepEqual(stream.received, []);
    socket.close();
    await ended;
  });

  test('gateway stream - close leads to a closing frame and 1000, and ends the daemon\'s half [WSS-022]', async () => {
    for (const sent of [{ kind: 'close' }, { kind: 'close', reason: 'bye' }]) {
      const { socket, stream, ended } = await watch(edge);
      socket.send(frame(sent));
      closedWith(await ended, 1000, 'normal');
      assert.deepEqual(await stream.ended, { code: 1000, reason: 'normal' });
    }
  });

  test('gateway stream - a frame of unknown kind closes with 1003 [WSS-030]', async () => {
    const { socket, stream, ended } = await watch(edge);
    socket.send(frame({ kind: 'subscribe' }));
    closedWith(await ended, 1003, 'unsupported');
    assert.equal((await stream.ended).code, 1003);
  });

  test('gateway stream - a binary frame closes with 1003 [WSS-031]', async () => {
    const { socket, ended } = await watch(edge);
    socket.send(Buffer.from(frame({ kind: 'ping', seq_no: 1 })), { binary: true });
    closedWith(await ended, 1003, 'unsupported');
  });

  test('gateway stream - a text that is not JSON closes with 1007 [WSS-032]', async () => {
    for (const text of ['', 'hello', '{"kind":"ping"', '{"kind":"ping","seq_no":1}}', '\u0000']) {
      const { socket, ended } = await watch(edge);
      socket.send(text);
      closedWith(await ended, 1007, 'invalid_payload');
    }
  });

  test('gateway stream - missing, ill-typed and unknown fields close with 1007 and reach no daemon [WSS-033]', async () => {
    for (const text of [
      'null', '[]', '1', '"ping"', '{}', '{"kind":1}', frame({ kind: 'send_message' }), frame({ kind: 'send_message', content: 1 }), frame({ kind: 'send_message', content: 'x', extra: 1 }),
      frame({ kind: 'send_message', content: 'x', message_id: '' }), frame({ kind: 'send_message', content: 'x', attachment_blob_ref: 'sha256:1' }), frame({ kind: 'approve_dispatch', dispatch_id: '' }),
      frame({ kind: 'approve_dispatch' }), frame({ kind: 'cancel_dispatch', dispatch_id: null }), frame({ kind: 'ping', seq_no: -1 }), frame({ kind: 'ping', seq_no: 1.5 }), frame({ kind: 'ping' }), frame({ kind: 'close', reason: 1 }),
    ]) {
      const { socket, stream, ended } = await watch(edge);
      socket.send(text);
      closedWith(await ended, 1007, 'invalid_payload');
      assert.deepEqual(stream.received, [], text);
    }
  });

  test('gateway stream - 64 KiB are accepted, one byte more closes with 1009, fragmented or far larger too [WSS-034]', async () => {
    const sized = (bytes: number): string => {
      const shell = frame({ kind: 'send_message', content: '' }).length;
      return frame({ kind: 'send_message', content: 'x'.repeat(bytes - shell) });
    };
    const exact = await watch(edge);
    exact.socket.send(sized(64 * 1024));
    assert.equal(Buffer.byteLength(await exact.stream.next()), 64 * 1024);
    exact.socket.close();
    await exact.ended;
    for (const bytes of [64 * 1024 + 1, 1024 * 1024, limits.clientFrameCutBytes]) {
      const over = await watch(edge);
      over.socket.send(sized(bytes));
      closedWith(await over.ended, 1009, 'too_big');
      assert.deepEqual(over.stream.received, []);
    }
    const parts = await watch(edge);
    const text = sized(64 * 1024 + 1);
    parts.socket.send(text.slice(0, 40_000), { fin: false });
    parts.socket.send(text.slice(40_000));
    closedWith(await parts.ended, 1009, 'too_big');
  });

  test('gateway stream - the daemon\'s closes keep code and reason behind a closing frame; one that is none is 1011 [WSS-039]', async () => {
    for (const [given, code, reason] of [
      [[4010, 'session_not_found'], 4010, 'session_not_found'], [[4005, 'sequence_retired'], 4005, 'sequence_retired'], [[1001, 'going_away'], 1001, 'going_away'],
      [[4004, 'upstream_unavailable'], 4004, 'upstream_unavailable'], [[1011, 'at /srv/x'], 1011, 'internal_error'], [[4999, '/secret'], 1011, 'internal_error'], [[0, ''], 1011, 'internal_error'],
    ] as const) {
      const { stream, ended } = await watch(edge);
      stream.close(given[0], given[1]);
      closedWith(await ended, code, reason);
    }
  });

  test('gateway stream - a client that goes without a word ends the daemon\'s half', async () => {
    const { socket, stream, ended } = await watch(edge);
    socket.terminate();
    assert.equal((await stream.ended).code, 1000);
    await ended;
  });

  test('gateway stream - an internal fault of the daemon closes with 1011, its loss with 4004 [WSS-043]', async () => {
    const faulty = await watch(edge);
    faulty.stream.close(1011, 'internal_error');
    closedWith(await faulty.ended, 1011, 'internal_error');
    const lost = await watch(edge);
    lost.stream.peer.destroy();
    closedWith(await lost.ended, 4004, 'upstream_unavailable');
  });
});

test('gateway stream - without a daemon a stream closes with 4004 [WSS-043]', async () => {
  await withEdge({ peer: false }, async (edge) => {
    const socket = edge.socket('s', { token: await edge.issuer.token('alice') });
    closedWith(await ending(socket), 4004, 'upstream_unavailable');
  });
});

test('gateway stream - a ping every 30 s, and an idle client that answers stays beyond 3 intervals [WSS-036] [WSS-038]', async () => {
  const clock = manualClock();
  await withEdge({ clock, config: wide }, async (edge) => {
    const { socket, ended } = await watch(edge, { token: await edge.issuer.token('alice', { expiresIn: 86_400 }) });
    let pings = 0;
    socket.on('ping', () => {
      pings += 1;
    });
    clock.advance(29_999);
    await roundTrip(socket);
    assert.equal(pings, 0);
    clock.advance(1);
    await roundTrip(socket);
    assert.equal(pings, 1);
    for (let beat = 2; beat <= 9; beat++) {
      clock.advance(30_000);
      await roundTrip(socket);
      assert.equal(pings, beat);
    }
    socket.close();
    assert.equal((await ended).code, 1005);
  });
});

test('gateway stream - a client that answers no ping is closed with 1002 after 3 missed pongs, not before [WSS-037]', async () => {
  const clock = manualClock();
  await withEdge({ clock, config: wide }, async (edge) => {
    const { socket, ended } = await watch(edge, { autoPong: false, token: await edge.issuer.token('alice', { expiresIn: 86_400 }) });
    let pings = 0;
    socket.on('ping', () => {
      pings += 1;
    });
    clock.advance(3 * 30_000 + 29_999);
    await roundTrip(socket);
    assert.equal(pings, 3);
    clock.advance(1);
    closedWith(await ended, 1002, 'protocol_error:missed_pongs');
  });
});

test('gateway stream - a pong after two missed ones starts the count anew', async () => {
  const clock = manualClock();
  await withEdge({ clock, config: wide }, async (edge) => {
    const { socket, ended } = await watch(edge, { autoPong: false, token: await edge.issuer.token('alice', { expiresIn: 86_400 }) });
    clock.advance(60_000);
    await roundTrip(socket);
    socket.pong();
    await roundTrip(socket);
    clock.advance(90_000);
    await roundTrip(socket);
    clock.advance(30_000);
    closedWith(await ended, 1002, 'protocol_error:missed_pongs');
  });
});

test('gateway stream - when the bearer expires the stream closes with 1008, not before [WSS-040]', async () => {
  const clock = manualClock();
  await withEdge({ clock, config: wide }, async (edge) => {
    const inForce = await watch(edge, { token: await edge.issuer.token('alice', { expiresIn: 20 }) });
    // Let in within its leeway: it has until the end of that.
    const late = await watch(edge, { token: await edge.issuer.token('alice', { expiresIn: -20 }) });
    clock.advance(5_000);
    await roundTrip(inForce.socket);
    await roundTrip(late.socket);
    clock.advance(10_000);
    closedWith(await late.ended, 1008, 'policy_violation:token_expired');
    clock.advance(6_000);
    closedWith(await inForce.ended, 1008, 'policy_violation:token_expired');
    assert.equal((await inForce.stream.ended).code, 1008);
  });
});

test('gateway stream - a user over the rate limit is closed with 4001; a user with tokens is not [WSS-044]', async () => {
  const clock = manualClock();
  await withEdge({ clock, config: { limits: { per_user_capacity: 4, per_user_refill_per_sec: 1 } } }, async (edge) => {
    const { socket, stream, ended } = await watch(edge);
    const other = await watch(edge, { token: await edge.issuer.token('bob') });
    for (let i = 0; i < 3; i++) await roundTrip(socket);
    socket.send(frame({ kind: 'send_message', content: 'x' }));
    closedWith(await ended, 4001, 'rate_limit:per_user');
    assert.deepEqual(stream.received, []);
    await roundTrip(other.socket);
    clock.advance(2_000);
    const back = await watch(edge);
    await roundTrip(back.socket);
    for (const one of [other, back]) {
      one.socket.close();
      await one.ended;
    }
  });
});

test('gateway stream - 10 sockets a user by default: the 11th is 429 before the upgrade, a closed one makes room [WSS-045]', async () => {
  await withEdge({}, async (edge) => {
    const token = await edge.issuer.token('alice');
    const open = await Promise.all(Array.from({ length: 10 }, async () => {
      const socket = edge.socket('s', { token });
      const ended = ending(socket);
      await opened(socket);
      return { socket, ended };
    }));
    const { status, json } = await refusal(edge.socket('s', { token }));
    assert.equal(status, 429);
    assert.ok(typeof json === 'object' && json !== null && 'error' in json && json.error === 'too_many_sockets');
    const other = await watch(edge, { token: await edge.issuer.token('bob') });
    other.socket.close();
    await other.ended;
    open[0]?.socket.send(frame({ kind: 'close' }));
    await open[0]?.ended;
    const again = await watch(edge, { token });
    again.socket.close();
    await again.ended;
    for (const { socket, ended } of open.slice(1)) {
      socket.close();
      await ended;
    }
  });
});

test('gateway stream - the number of sockets a user may have is configurable, and counts upgrades that wait for keys [WSS-045]', async () => {
  await withEdge({ config: { limits: { sockets_per_user: 2 } } }, async (edge) => {
    const token = await edge.issuer.token('alice');
    const held = edge.issuer.hold();
    const sockets = Array.from({ length: 5 }, () => edge.socket('s', { token }));
    const outcomes = sockets.map((socket) => Promise.race([
      opened(socket).then(() => 101), new Promise<number>((resolve) => {
        socket.once('unexpected-response', (_request, answer) => {
          answer.resume();
          resolve(answer.statusCode ?? 0);
        });
      }),
    ]));
    await held.waiting;
    held.release();
    assert.deepEqual((await Promise.all(outcomes)).sort(), [101, 101, 429, 429, 429]);
    for (const socket of sockets) {
      socket.on('error', () => undefined);
      socket.terminate();
    }
  });
});

/** A session that never ends: 30 KB events from `last_seq_no` + 1, as far as credit goes. */
const endless = (stream: PeerStream): void => {
  const { json } = stream;
  let seqNo = typeof json === 'object' && json !== null && 'last_seq_no' in json && typeof json.last_seq_no === 'number' ? json.last_seq_no : 0;
  let sent = 0;
  const pump = (): void => {
    for (;;) {
      const text = frame({ kind: 'agent_event', seq_no: seqNo + 1, pad: 'x'.repeat(30_000) });
      if (sent + text.length > limits.linkInitialCreditBytes + stream.granted || stream.closedBy !== undefined) break;
      stream.send(text);
      seqNo += 1;
      sent += text.length;
    }
    if (stream.closedBy === undefined) void stream.grantedAtLeast(stream.granted + 1).then(pump);
  };
  pump();
};

const seqNos = (frames: readonly unknown[]): number[] => frames.flatMap((one) =>
  (typeof one === 'object' && one !== null && 'seq_no' in one && typeof one.seq_no === 'number' ? [one.seq_no] : []));

test('gateway stream - a reader that has stopped is closed with 4002, loses nothing by coming back, and holds nobody up [WSS-041]', async () => {
  await withEdge({ config: { ...wide, slow_consumer_ms: 200 }, on: { open: endless } }, async (edge) => {
    const slow = await watch(edge);
    const fast = await watch(edge);
    slow.socket.pause();
    // The daemon's half ends although the client has not read a byte of the close.
    assert.deepEqual(await slow.stream.ended, { code: 4002, reason: 'backpressure:slow_consumer' });
    slow.socket.resume();
    const first = await slow.ended;
    closedWith(first, 4002, 'backpressure:slow_consumer');
    const seen = seqNos(first.frames);
    assert.deepEqual(seen, seen.map((_, i) => i + 1));
    const last = seen.at(-1) ?? 0;
    const back = await watch(edge, { query: `sid=s&last_seq_no=${last}` });
    const next = await nextFrame(back.socket);
    assert.equal(seqNos([JSON.parse(next)])[0], last + 1);
    await nextFrame(fast.socket);
    for (const { socket, ended } of [back, fast]) {
      socket.terminate();
      await ended;
    }
    const kept = seqNos((await fast.ended).frames);
    assert.ok(kept.length > seen.length, 'the fast reader was held up');
    assert.deepEqual(kept, kept.map((_, i) => i + 1));
  });
});

test('gateway stream - credit is granted for what a socket has taken, and only for that', async () => {
  await withEdge({ config: { ...wide, slow_consumer_ms: 60_000 } }, async (edge) => {
    const { socket, stream, ended } = await watch(edge);
    const small = frame({ kind: 'agent_event', seq_no: 1 });
    stream.send(small);
    await stream.grantedAtLeast(small.length);
    assert.equal(stream.granted, small.length);
    const large = frame({ kind: 'agent_event', pad: 'x'.repeat(100_000) });
    stream.send(large);
    stream.send(large);
    await stream.grantedAtLeast(small.length + 2 * large.length);
    assert.equal(stream.granted, small.length + 2 * large.length);
    socket.close();
    await ended;
  });
});

test('gateway stream - a drain lets streams go on, takes no new one, and at its end closes the rest with 1001 [WSS-042]', async () => {
  const clock = manualClock();
  await withEdge({ clock, config: wide }, async (edge) => {
    const { socket, stream, ended } = await watch(edge);
    const leaving = await watch(edge);
    const drained = edge.gateway.drain(10_000);
    await assert.rejects(edge.call('/healthz'), { code: 'ECONNREFUSED' });
    stream.send('{"kind":"agent_event","n":1}');
    assert.equal(await nextFrame(socket), '{"kind":"agent_event","n":1}');
    leaving.socket.send(frame({ kind: 'close' }));
    closedWith(await leaving.ended, 1000, 'normal');
    clock.advance(9_999);
    await roundTrip(socket);
    clock.advance(1);
    closedWith(await ended, 1001, 'going_away');
    assert.deepEqual(await stream.ended, { code: 1001, reason: 'going_away' });
    assert.equal(await drained, 1);
  });
});
