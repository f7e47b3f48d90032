/** Positions of the session stream on the whole stack: where a watcher begins, what it is given again, and what is refused. */
import assert from 'node:assert/strict';
import { after, afterEach, before, describe, test } from 'node:test';
import { jetstreamManager } from '@nats-io/jetstream';
import { connect } from 'nats';
import { z } from 'zod';
import { decodeCommit } from '../../actors/runtime/commit.ts';
import { streams } from '../../contracts/subjects.ts';
import { closedWith, isEnd, journalOf, numbered, startEndToEnd, textOf, type EndToEnd, type Visitor, type Watcher } from '../harness/e2e.ts';
import { runSeed, seeded } from '../harness/seed.ts';

const place = z.looseObject({ seq: z.int().positive() });

/** Purges the head of a journal as far as its snapshot allows; gives the `seq_no` of the first event that is left. */
const trim = async (url: string, subject: string): Promise<number> => {
  const nc = await connect({ servers: url });
  try {
    const manager = await jetstreamManager(nc);
    const snapshot = await manager.streams.getMessage(streams.snapshot, { last_by_subj: subject.replace(/^journal/, 'snapshot') });
    assert.ok(snapshot !== null, 'there is a snapshot');
    const { seq } = place.parse(snapshot.json());
    const { purged } = await manager.streams.purge(streams.journal(0, 1), { filter: subject, seq });
    assert.ok(purged > 0);
    const left = await manager.direct.getMessage(streams.journal(0, 1), { seq: 1, next_by_subj: subject });
    assert.ok(left !== null);
    return decodeCommit(left.data).f;
  } finally {
    await nc.close();
  }
};

describe('e2e replay', () => {
  let e: EndToEnd;
  before(async () => { e = await startEndToEnd({ gateways: 2 }); });
  afterEach((t) => e.blame(t));
  after(() => e.stop());

  /** A new watcher that has everything after a position up to the end of so many turns. */
  const replayed = async (visitor: Visitor, sid: string, lastSeqNo: number, head: number): Promise<Watcher> => {
    const watcher = visitor.watch(sid, { lastSeqNo });
    await watcher.opened;
    await watcher.until(() => watcher.last === head, `event ${head}`);
    return watcher;
  };

  test('e2e replay - last_seq_no N replays from N + 1, byte for byte; 0 replays all, the head nothing [WSS-025]', async () => {
    const visitor = await e.visitor();
    const { sid, watcher } = await visitor.chat();
    await watcher.turn('/slow 3 30');
    await watcher.turn('/tool clock');
    await watcher.turn('/fail');
    const head = watcher.last ?? 0;
    assert.ok(head > 10);
    // Once from the daemon's recent frames, once from the journal alone.
    for (const cold of [false, true]) {
      if (cold) {
        await e.stack.daemons[0]?.restart();
        for (const gateway of e.stack.gateways) await gateway.ready();
      }
      for (const position of [0, 1, 2, Math.floor(head / 2), head - 1]) {
        const again = await replayed(visitor, sid, position, head);
        assert.deepEqual(again.raw, watcher.raw.slice(position).filter((text) => text.includes('"agent_event"')), `from ${position}`);
        await again.leave();
      }
    }
    // At the head there is nothing to repeat: the next thing it gets is the next event.
    const atHead = visitor.watch(sid, { lastSeqNo: head });
    const next = await atHead.turn('/say next');
    assert.equal(next[0]?.seq_no, head + 1);
    assert.equal(textOf(next), 'next');
  });

  test('e2e replay - without a position: the running turn so far, then live, nothing of earlier turns [WSS-024]', async () => {
    const visitor = await e.visitor();
    const { sid, watcher } = await visitor.chat();
    await watcher.turn('/say an earlier turn');
    const mark = watcher.last ?? 0;
    // The turn stands still with some text said, so that what it has produced is known.
    watcher.say('/say so far\n/tool clock\n/approve it\n/then\n/say and the rest');
    const asked = await watcher.event('APPROVAL_REQUIRED');
    await watcher.event('TOOL_RESULT');
    const sofar = watcher.last ?? 0;
    const joined = visitor.watch(sid);
    await joined.until(() => joined.last === sofar, 'the turn so far');
    assert.deepEqual(joined.events, watcher.events.slice(mark));
    watcher.send({ kind: 'approve_dispatch', dispatch_id: asked.record.payload['dispatch_id'] });
    await Promise.all([joined.turns(1), watcher.turns(2)]);
    assert.deepEqual(joined.events, watcher.events.slice(mark));
    assert.ok(textOf(joined.events).endsWith('and the rest'));

    // While no turn runs: nothing but what comes.
    const before = watcher.last ?? 0;
    const idle = visitor.watch(sid);
    await idle.turn('/say the next turn');
    await watcher.turns(3);
    assert.deepEqual(idle.events, watcher.events.slice(before));
    assert.equal(idle.text, 'the next turn');
    // In a session that has said nothing yet, from its start.
    const fresh = visitor.watch((await visitor.create()).sid);
    await fresh.turn('/say one');
    assert.equal(fresh.events[0]?.seq_no, 1);
  });

  test('e2e replay - a client that comes and goes while turns run gets every event once, in order [WSS-026] [WSS-027]', async (t) => {
    const seed = runSeed();
    t.diagnostic(`seed ${seed}`);
    const random = seeded(seed);
    const visitor = await e.visitor();
    const { sid, watcher } = await visitor.chat();
    const words = 150;
    for (let turn = 0; turn < 3; turn++) watcher.say(`/slow 3 ${words}`);
    const seen: string[] = [];
    let last = 0;
    let visits = 0;
    while (watcher.ended < 3 || last < (watcher.last ?? 0)) {
      const guest = visitor.watch(sid, { lastSeqNo: last, gateway: e.stack.gateways[visits % 2] ?? assert.fail() });
      visits += 1;
      const enough = 1 + Math.floor(random() * 12);
      await guest.until(() => guest.events.length >= enough || (watcher.ended >= 3 && guest.last === watcher.last), `${enough} events`);
      // Gone without a word half of the time.
      if (random() < 0.5) guest.socket.terminate();
      await guest.leave();
      seen.push(...guest.events.map((event) => JSON.stringify(event)));
      last = guest.last ?? 0;
      // And now and then some happen while nobody looks.
      const missed = (watcher.last ?? 0) + Math.floor(random() * 6);
      await watcher.until(() => (watcher.last ?? 0) >= missed || watcher.ended >= 3, 'events while away');
    }
    t.diagnostic(`${visits} visits, ${seen.length} events`);
    assert.ok(visits > 3);
    assert.deepEqual(seen, watcher.events.map((event) => JSON.stringify(event)));
    assert.equal(watcher.text, numbered(words).repeat(3));
  });

  test('e2e replay - what happened while nobody was there is delivered to the one who comes back [WSS-027]', async () => {
    const visitor = await e.visitor();
    const { sid, watcher } = await visitor.chat();
    watcher.say('/slow 3 100');
    watcher.say('/tool calculator {"expression":"2+3"}');
    await watcher.event('TOKEN');
    await watcher.leave();
    const back = visitor.watch(sid, { lastSeqNo: watcher.last ?? 0 });
    await back.afterwards(watcher, 2);
    const all = [...watcher.events, ...back.events];
    assert.deepEqual(all.map((event) => event.seq_no), all.map((_, i) => i + 1));
    assert.equal(textOf(all.slice(0, all.findIndex(isEnd))), numbered(100));
  });

  test('e2e replay - a position beyond the head closes with 4005, in a quiet session and in a running one [WSS-028]', async () => {
    const visitor = await e.visitor();
    const { sid } = await visitor.create();
    closedWith(await visitor.watch(sid, { lastSeqNo: 1 }).closed(), 4005, 'sequence_retired');
    const watcher = visitor.watch(sid, { lastSeqNo: 0 });
    await watcher.turn('/say one');
    const head = watcher.last ?? 0;
    for (const lastSeqNo of [head + 1, head + 1_000, Number.MAX_SAFE_INTEGER]) {
      const ahead = visitor.watch(sid, { lastSeqNo });
      closedWith(await ahead.closed(), 4005, 'sequence_retired');
      assert.deepEqual(ahead.events, []);
    }
    watcher.say('/hang 2');
    await watcher.until(() => (watcher.last ?? 0) > head, 'the turn to run');
    closedWith(await visitor.watch(sid, { lastSeqNo: head + 100 }).closed(), 4005, 'sequence_retired');
    watcher.send({ kind: 'cancel_dispatch', dispatch_id: '' });
    await watcher.turns(2);
  });

  test('e2e replay - a position whose events are no longer kept closes with 4005; one that is kept is served [WSS-029]', async () => {
    const visitor = await e.visitor();
    const { sid, watcher } = await visitor.chat();
    // Enough events for a snapshot, on which the actor stands when its beginning is gone.
    const calls = '/tool clock\n'.repeat(30);
    for (let turn = 1; turn <= 2; turn++) await watcher.turn(`${calls}/then\n${calls}`);
    const first = await trim(e.stack.nats.url, journalOf(visitor.sub, 'session', sid));
    const kept = watcher.events.slice(first - 1);
    assert.ok(first > 50 && kept.length > 0, `event ${first} of ${watcher.last} is the first that is kept`);
    // A daemon that remembers nothing of it.
    await e.stack.daemons[0]?.restart();
    await e.stack.gateways[0]?.ready();
    for (const lastSeqNo of [0, 1, first - 2]) {
      const below = visitor.watch(sid, { lastSeqNo });
      closedWith(await below.closed(), 4005, 'sequence_retired');
      assert.deepEqual(below.events, [], 'nothing was skipped over');
    }
    const above = visitor.watch(sid, { lastSeqNo: first - 1 });
    await above.until(() => (above.last ?? 0) >= (kept.at(-1)?.seq_no ?? 0), 'what is kept');
    assert.deepEqual(above.events.slice(0, kept.length), kept);
    // To anybody else it still does not exist.
    closedWith(await (await e.visitor()).watch(sid, { lastSeqNo: 0 }).closed(), 4010, 'session_not_found');
    assert.equal(textOf(await above.turn('/say and it goes on')), 'and it goes on');
  });
});
