/** How long a WebSocket lives at the gateway and how much it takes: heartbeat, expiry, limits, slow readers, credit, drain. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { limits } from '../../contracts/limits.ts';
import { ending, nextFrame, opened, refusal } from '../harness/gateway.ts';
import { manualClock } from '../harness/manual-clock.ts';
import type { PeerStream } from '../harness/peer.ts';
import { closedWith, frame, roundTrip, watch, wide, withEdge } from '../harness/watch.ts';

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
    assert.equal(edge.gateway.sockets, 10);
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

test('gateway stream - a second drain shortens the wait of the first, and both end', async () => {
  const clock = manualClock();
  await withEdge({ clock, config: wide }, async (edge) => {
    const { ended } = await watch(edge);
    const first = edge.gateway.drain(600_000);
    const second = edge.gateway.drain(0);
    clock.advance(0);
    closedWith(await ended, 1001, 'going_away');
    assert.deepEqual(await Promise.all([first, second]), [1, 1]);
  });
});

// Seen under load: uWebSockets.js closed some of them right after the upgrade (server.ts, enter). It takes a certain state of
// memory, so a quiet machine does not always show it.
test('gateway stream - 100 upgrades that wait for keys together all live on', async () => {
  await withEdge({ config: wide }, async (edge) => {
    const token = await edge.issuer.token('alice');
    const held = edge.issuer.hold();
    const sockets = Array.from({ length: 100 }, () => edge.socket('s', { token }));
    const all = sockets.map((socket) => ({ socket, ended: ending(socket), open: opened(socket) }));
    await held.waiting;
    while (edge.gateway.requests < sockets.length) await edge.call('/nowhere');
    held.release();
    await Promise.all(all.map(({ open }) => open));
    for (const { socket } of all) await roundTrip(socket);
    assert.equal(edge.gateway.sockets, 100);
    for (const { socket, ended } of all) {
      socket.terminate();
      await ended;
    }
  });
});
