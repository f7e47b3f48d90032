/** WebSockets at the gateway over real TLS, with a fake daemon behind the link: upgrade, envelopes, closes. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { limits } from '../../contracts/limits.ts';
import { ending, nextFrame, refusal, startEdge, type Edge } from '../harness/gateway.ts';
import { closedWith, frame, roundTrip, watch, wide, withEdge } from '../harness/watch.ts';

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
