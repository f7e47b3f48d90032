/** How long a stream lives and how it ends, on the whole stack: heartbeat, expiry, limits, slow readers, drain, faults, idling. */
import assert from 'node:assert/strict';
import { after, afterEach, before, describe, test } from 'node:test';
import { jetstream } from '@nats-io/jetstream';
import { connect } from 'nats';
import { connectAdmin } from '../harness/admin-client.ts';
import { closedWith, journalOf, numbered, startEndToEnd, textOf, wideLimits, type EndToEnd } from '../harness/e2e.ts';
import { refusal } from '../harness/gateway.ts';
import type { GatewayProcess } from '../harness/stack.ts';

describe('e2e life', () => {
  let e: EndToEnd;
  /** Wide limits; narrow rate limits and a quick heartbeat; little patience with slow readers and the default number of sockets. */
  let wide: GatewayProcess;
  let narrow: GatewayProcess;
  let plain: GatewayProcess;

  before(async () => {
    e = await startEndToEnd({
      gateways: 3,
      daemon: { session_idle_ms: 1_000 },
      gateway: (index) => [
        { limits: { ...wideLimits, sockets_per_user: 1_000 } },
        { heartbeat_ms: 300, limits: { ...wideLimits, per_user_capacity: 6, per_user_refill_per_sec: 0.001 } },
        { slow_consumer_ms: 300, limits: wideLimits },
      ][index] ?? {},
    });
    const [first, second, third] = e.stack.gateways;
    assert.ok(first !== undefined && second !== undefined && third !== undefined);
    [wide, narrow, plain] = [first, second, third];
  });
  afterEach((t) => e.blame(t));
  after(() => e.stop());

  /** Resolves when the gateway has closed so many WebSockets with a code; by its own metrics, so that no client needs to read. */
  const closes = async (gateway: GatewayProcess, code: number, count: number): Promise<void> => {
    const line = new RegExp(`^troupe_gateway_socket_closes_total\\{code="${code}"\\} (\\d+)$`, 'm');
    for (const until = performance.now() + 30_000; performance.now() < until;) {
      const metrics = await (await fetch(`http://127.0.0.1:${gateway.opsPort}/metrics`)).text();
      if (Number(line.exec(metrics)?.[1] ?? 0) >= count) return;
    }
    assert.fail(`the gateway closed nothing with ${code}`);
  };

  test('e2e life - the server pings; who answers stays beyond three intervals, who does not is closed with 1002 [WSS-036] [WSS-037] [WSS-038] [WSS-039]', async () => {
    const visitor = await e.visitor();
    const { sid, watcher } = await visitor.chat({ gateway: narrow });
    const mute = visitor.watch(sid, { autoPong: false, gateway: narrow });
    closedWith(await mute.closed(), 1002, 'protocol_error:missed_pongs');
    assert.equal(mute.pings, 3);
    await watcher.until(() => watcher.pings >= 6, 'six pings');
    await watcher.roundTrip(7);
    assert.equal(textOf(await watcher.turn('/say still here')), 'still here');
  });

  test('e2e life - when its bearer expires a stream closes with 1008, and nobody else\'s does [WSS-040] [WSS-039]', async () => {
    const visitor = await e.visitor();
    const { sid, watcher } = await visitor.chat();
    const brief = await e.visitor({ sub: visitor.sub, ttlSec: 3 });
    const expiring = brief.watch(sid, { lastSeqNo: 0 });
    await expiring.opened;
    closedWith(await expiring.closed(), 1008, 'policy_violation:token_expired');
    await watcher.roundTrip();
  });

  test('e2e life - HIBERNATE when the session idles; the same sid goes on, on the open stream and on a new one [WSS-016]', async () => {
    const visitor = await e.visitor();
    const { sid, watcher } = await visitor.chat();
    await watcher.turn('/memory save the word is plover');
    const hibernate = await watcher.event('HIBERNATE');
    assert.deepEqual(hibernate.record.payload, {});
    assert.equal(hibernate.seq_no, watcher.last);
    assert.ok(watcher.isOpen);
    await watcher.leave();
    const back = visitor.watch(sid, { lastSeqNo: hibernate.seq_no });
    const events = await back.turn('/memory find word');
    assert.equal(events[0]?.seq_no, hibernate.seq_no + 1);
    assert.match(textOf(events), /plover/);
    await back.event('HIBERNATE');
    assert.equal(textOf(await back.turn('/say on the same stream')), 'on the same stream');
    // One HIBERNATE for each sleep.
    await back.event('HIBERNATE', 2);
    const looking = visitor.watch(sid, { lastSeqNo: 0 });
    await looking.until(() => looking.last === back.last, 'the head');
    assert.equal(looking.events.filter((event) => event.agent_kind === 'HIBERNATE').length, 3);
  });

  test('e2e life - a frame of exactly 64 KiB is a message, one byte more closes with 1009 [WSS-034] [WSS-039]', async () => {
    const visitor = await e.visitor();
    const { sid, watcher } = await visitor.chat();
    const shell = JSON.stringify({ kind: 'send_message', content: '' }).length;
    const content = 'x'.repeat(64 * 1024 - shell);
    watcher.say(content);
    await watcher.turns(1);
    assert.equal(watcher.text, `You said: ${content}`);
    watcher.say(`${content}x`);
    closedWith(await watcher.closed(), 1009, 'too_big');
    const back = visitor.watch(sid, { lastSeqNo: watcher.last ?? 0 });
    await back.turn('/say fine');
    assert.equal(back.text, 'fine');
  });

  test('e2e life - a reader that has stopped is closed with 4002; it loses nothing by coming back, and the others go on [WSS-041] [WSS-039]', async () => {
    const visitor = await e.visitor();
    const { sid, watcher } = await visitor.chat();
    // More than the kernel keeps for a reader that has stopped.
    const text = 'y'.repeat(60_000);
    for (let round = 1; round <= 4; round++) {
      for (let i = 0; i < 40; i++) watcher.say(`/say ${text}`);
      await watcher.turns(round * 40);
    }
    const slow = visitor.watch(sid, { lastSeqNo: 0, gateway: plain });
    await slow.opened;
    slow.socket.pause();
    await closes(plain, 4002, 1);
    // The session is not held up by it, nor is anybody else who reads it.
    assert.equal(textOf(await watcher.turn('/say unaffected')), 'unaffected');
    const other = visitor.watch(sid, { lastSeqNo: 0, gateway: plain });
    await other.until(() => other.last === watcher.last, 'the head');
    slow.socket.resume();
    closedWith(await slow.closed(), 4002, 'backpressure:slow_consumer');
    assert.ok((slow.last ?? 0) < (watcher.last ?? 0), 'it had not been sent everything');
    const back = visitor.watch(sid, { lastSeqNo: slow.last ?? 0 });
    await back.until(() => back.last === watcher.last, 'the head');
    const whole = watcher.events.map((event) => JSON.stringify(event));
    assert.deepEqual([...slow.events, ...back.events].map((event) => JSON.stringify(event)), whole);
    assert.deepEqual(other.events.map((event) => JSON.stringify(event)), whole);
  });

  test('e2e life - a user over the rate limit on a stream is closed with 4001, another user is not [WSS-044] [WSS-039]', async () => {
    const [greedy, modest] = [await e.visitor(), await e.visitor()];
    const { sid } = await greedy.create();
    const watcher = greedy.watch(sid, { gateway: narrow, lastSeqNo: 0 });
    const other = modest.watch((await modest.create()).sid, { gateway: narrow });
    // The upgrade took one of six.
    for (let i = 0; i < 5; i++) await watcher.roundTrip(i);
    watcher.say('/say too much');
    closedWith(await watcher.closed(), 4001, 'rate_limit:per_user');
    await other.roundTrip();
    // The message over the limit was not taken: the first thing that happens in the session is another one.
    const later = greedy.watch(sid, { lastSeqNo: 0 });
    assert.equal(textOf(await later.turn('/say enough')), 'enough');
    assert.equal(later.ended, 1);
  });

  test('e2e life - a user has ten WebSockets on a process: the eleventh is 429 before the upgrade, on another process it is not [WSS-045]', async () => {
    const visitor = await e.visitor();
    const { sid } = await visitor.create();
    const watchers = Array.from({ length: 10 }, () => visitor.watch(sid, { gateway: plain }));
    await Promise.all(watchers.map((watcher) => watcher.opened));
    const eleventh = visitor.watch(sid, { gateway: plain });
    eleventh.opened.catch(() => undefined);
    assert.equal((await refusal(eleventh.socket)).status, 429);
    await visitor.watch(sid, { gateway: wide }).opened;
    const stranger = await e.visitor();
    await stranger.watch((await stranger.create()).sid, { gateway: plain }).opened;
    await watchers[3]?.leave();
    await visitor.watch(sid, { gateway: plain }).opened;
  });

  test('e2e life - a fault inside the daemon closes that session\'s streams with 1011, and no other [WSS-043] [WSS-039]', async () => {
    const visitor = await e.visitor();
    const broken = await visitor.chat();
    const sound = await visitor.chat();
    await broken.watcher.turn('/say before');
    const nc = await connect({ servers: e.stack.nats.url });
    try {
      // Nobody but an owner writes there: what it cannot be is found by the reader.
      await jetstream(nc).publish(journalOf(visitor.sub, 'session', broken.sid), 'no commit');
    } finally {
      await nc.close();
    }
    closedWith(await broken.watcher.closed(), 1011, 'internal_error');
    assert.equal(textOf(await sound.watcher.turn('/say sound')), 'sound');
  });

  test('e2e life - the daemon\'s loss closes every stream with 4004, and they resume when it is back [WSS-043] [WSS-039]', async () => {
    const visitor = await e.visitor();
    const chats = await Promise.all(Array.from({ length: 4 }, () => visitor.chat()));
    for (const { watcher } of chats) {
      watcher.say('/slow 5 120');
      await watcher.event('TOKEN');
    }
    await e.stack.daemons[0]?.kill('SIGKILL');
    for (const { watcher } of chats) closedWith(await watcher.closed(), 4004, 'upstream_unavailable');
    const [first] = chats;
    assert.ok(first !== undefined);
    closedWith(await visitor.watch(first.sid).closed(), 4004, 'upstream_unavailable');
    await e.stack.daemons[0]?.start();
    await Promise.all(e.stack.gateways.map((gateway) => gateway.ready()));
    for (const { sid, watcher } of chats) {
      const back = visitor.watch(sid, { lastSeqNo: watcher.last ?? 0 });
      await back.afterwards(watcher, 1);
      assert.equal(watcher.text + back.text, numbered(120));
    }
  });

  test('e2e life - a drain takes no new connection, lets streams run, and at its end closes them with 1001; another gateway resumes them [WSS-042] [WSS-039]', async () => {
    const visitor = await e.visitor();
    const { sid, watcher } = await visitor.chat({ gateway: plain });
    watcher.say('/slow 20 300');
    await watcher.event('TOKEN');
    const admin = await connectAdmin(plain.adminSocket);
    const drained = admin.ask({ op: 'drain', timeout_ms: 2_000 });
    const refused = async (): Promise<boolean> => visitor.watch(sid, { gateway: plain }).opened.then(() => false, () => true);
    while (!await refused());
    const during = watcher.last ?? 0;
    await watcher.until(() => (watcher.last ?? 0) > during, 'the turn to go on');
    closedWith(await watcher.closed(), 1001, 'going_away');
    await drained;
    admin.close();
    assert.equal(watcher.ended, 0);
    const back = visitor.watch(sid, { lastSeqNo: watcher.last ?? 0, gateway: wide });
    await back.turns(1);
    assert.equal(watcher.text + back.text, numbered(300));
  });
});
