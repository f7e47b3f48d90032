/** The session stream on the whole stack, two gateways: who may watch, what the frames hold, and that every watcher sees the same. */
import assert from 'node:assert/strict';
import { after, afterEach, before, describe, test } from 'node:test';
import type { AgentEvent } from '../../contracts/stream.ts';
import { closedWith, isEnd, kindsOf, numbered, startEndToEnd, textOf, type EndToEnd } from '../harness/e2e.ts';

const kindsOnTheWire = ['TOKEN', 'FINISH', 'ERROR', 'TOOL_CALL_PENDING', 'TOOL_RESULT', 'APPROVAL_REQUIRED', 'HIBERNATE'];
/** The events of a kind, at least one. */
const only = (events: readonly AgentEvent[], kind: string): AgentEvent[] => {
  const found = events.filter((event) => event.agent_kind === kind);
  assert.ok(found.length > 0, `no ${kind} in ${events.map((event) => event.agent_kind).join(' ')}`);
  return found;
};
const keys = (value: object): string[] => Object.keys(value).toSorted();

describe('e2e stream', () => {
  let e: EndToEnd;
  before(async () => { e = await startEndToEnd({ gateways: 2 }); });
  afterEach((t) => e.blame(t));
  after(() => e.stop());

  test('e2e stream - with sid and bearer the upgrade is 101, and a message sent comes back as a turn of events [WSS-001] [WSS-017]', async () => {
    const visitor = await e.visitor();
    const { sid } = await visitor.create();
    for (const given of [{}, { protocols: [`bearer.${visitor.token}`, 'troupe.v1'] }]) {
      const watcher = visitor.watch(sid, given);
      await watcher.opened;
      const events = await watcher.turn('hello there');
      assert.deepEqual(kindsOf(events), ['TOKEN', 'FINISH']);
      assert.equal(textOf(events), 'You said: hello there');
      await watcher.leave();
    }
  });

  test('e2e stream - every frame is a JSON text tagged by kind, with exactly the contract\'s fields [WSS-005] [WSS-007] [WSS-008] [WSS-009]', async () => {
    const visitor = await e.visitor();
    const { sid, watcher } = await visitor.chat();
    const from = Date.now();
    await watcher.turn('/say well then\n/tool clock\n/tool no_such_tool {"a":1}');
    await watcher.turn('/fail');
    watcher.say('/approve the plan');
    await watcher.event('APPROVAL_REQUIRED');
    watcher.send({ kind: 'cancel_dispatch', dispatch_id: '' });
    await watcher.turns(3);
    await watcher.roundTrip(12);
    watcher.send({ kind: 'close' });
    closedWith(await watcher.closed(), 1000, 'normal');

    const frames = watcher.raw.map((text) => JSON.parse(text) as Record<string, unknown>);
    assert.deepEqual(frames.slice(-2), [{ kind: 'pong', seq_no: 12 }, { kind: 'closing', reason: 'normal' }]);
    const seen = new Set<unknown>();
    for (const frame of frames.slice(0, -2)) {
      assert.deepEqual(keys(frame), ['agent_kind', 'kind', 'record', 'seq_no']);
      assert.equal(frame['kind'], 'agent_event');
      assert.ok(kindsOnTheWire.includes(String(frame['agent_kind'])));
      seen.add(frame['agent_kind']);
      const record = frame['record'] as Record<string, unknown>;
      assert.deepEqual(keys(record), ['at', 'kind', 'payload', 'sequence', 'session_id']);
      assert.deepEqual([record['session_id'], record['sequence']], [sid, frame['seq_no']]);
      assert.equal(typeof record['kind'], 'string');
      const at = String(record['at']);
      assert.match(at, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
      assert.ok(Date.parse(at) >= from - 1 && Date.parse(at) <= Date.now());
      assert.ok(typeof record['payload'] === 'object' && record['payload'] !== null && !Array.isArray(record['payload']));
    }
    assert.deepEqual([...seen].toSorted(), ['APPROVAL_REQUIRED', 'ERROR', 'FINISH', 'TOKEN', 'TOOL_CALL_PENDING', 'TOOL_RESULT']);
  });

  test('e2e stream - the texts of TOKEN in order are the message, FINISH with usage ends the turn [WSS-010] [WSS-011]', async () => {
    const visitor = await e.visitor();
    const { watcher } = await visitor.chat();
    const turns = [await watcher.turn('/slow 5 60'), await watcher.turn('/say grün → \u{1F7E2} "quoted" \\ end'), await watcher.turn('/long 3\n/length')];
    const long = await watcher.turn('/long 30000');
    assert.ok(textOf(long).length > 150_000 && textOf(long) === numbered(30_000), 'a long text comes whole');
    assert.deepEqual(turns.map(textOf), [numbered(60), 'grün → \u{1F7E2} "quoted" \\ end', numbered(3)]);
    assert.ok(only(turns[0] ?? [], 'TOKEN').length > 1, 'a slow reply comes in parts');
    for (const [i, events] of turns.entries()) {
      for (const token of only(events, 'TOKEN')) assert.deepEqual(keys(token.record.payload), ['text']);
      const [finish, ...more] = only(events, 'FINISH');
      assert.deepEqual(more, []);
      assert.equal(events.at(-1), finish, 'nothing of the turn follows');
      const payload = finish?.record.payload ?? {};
      assert.deepEqual(keys(payload), ['finish_reason', 'usage']);
      assert.equal(payload['finish_reason'], i === 2 ? 'length' : 'stop');
      const usage = payload['usage'] as Record<string, unknown>;
      assert.deepEqual(keys(usage), ['cost_cents', 'input_tokens', 'output_tokens']);
      assert.ok(Object.values(usage).every(Number.isSafeInteger));
      assert.equal(usage['output_tokens'], Math.ceil(textOf(events).length / 4));
    }
  });

  test('e2e stream - ERROR with code and message ends the turn as failed, and the next one runs [WSS-012]', async () => {
    const visitor = await e.visitor();
    const { watcher } = await visitor.chat();
    for (const [script, said] of [['/fail', ''], ['/fail-after 4', numbered(4)]] as const) {
      const failed = await watcher.turn(script);
      assert.equal(textOf(failed), said);
      assert.deepEqual(failed.filter(isEnd).map((event) => event.agent_kind), ['ERROR']);
      const error = failed.at(-1);
      assert.equal(error?.agent_kind, 'ERROR');
      assert.deepEqual(keys(error.record.payload), ['code', 'message']);
      assert.equal(error.record.payload['code'], 'provider_error');
      assert.ok(typeof error.record.payload['message'] === 'string' && error.record.payload['message'] !== '');
      assert.equal(textOf(await watcher.turn('/say on we go')), 'on we go');
    }
  });

  test('e2e stream - TOOL_CALL_PENDING and TOOL_RESULT share a call_id and say what was asked and what came of it [WSS-013] [WSS-014]', async () => {
    const visitor = await e.visitor();
    const { watcher } = await visitor.chat();
    const events = await watcher.turn('/tool calculator {"expression":"6*7"}\n/tool clock {"time_zone":"Nowhere/None"}\n/tool no_such_tool {"x":[1]}');
    const pending = only(events, 'TOOL_CALL_PENDING');
    const results = only(events, 'TOOL_RESULT');
    assert.deepEqual([pending.length, results.length], [3, 3]);
    for (const { record } of pending) assert.deepEqual(keys(record.payload), ['arguments', 'call_id', 'tool_name']);
    for (const { record } of results) assert.deepEqual(keys(record.payload), ['call_id', 'is_error', 'result', 'tool_name']);
    assert.deepEqual(pending.map(({ record: { payload } }) => [payload['tool_name'], payload['arguments']]), [
      ['calculator', { expression: '6*7' }], ['clock', { time_zone: 'Nowhere/None' }], ['no_such_tool', { x: [1] }],
    ]);
    assert.equal(new Set(pending.map(({ record }) => record.payload['call_id'])).size, 3);
    for (const call of pending) {
      const { call_id: id, tool_name: name } = call.record.payload;
      const found = results.filter(({ record }) => record.payload['call_id'] === id);
      assert.equal(found.length, 1);
      const [result] = found;
      assert.ok(result !== undefined && result.seq_no > call.seq_no);
      assert.equal(result.record.payload['tool_name'], name);
      assert.equal(result.record.payload['is_error'], name !== 'calculator');
      if (name === 'calculator') assert.match(JSON.stringify(result.record.payload['result']), /42/);
    }
    // What the tool gave is what the model was told.
    assert.match(textOf(events), /calculator says: .*42/);
  });

  test('e2e stream - an unknown sid closes with 4010 and shows nothing [WSS-003] [WSS-039]', async () => {
    const visitor = await e.visitor();
    for (const sid of ['a'.repeat(26), 'no-such-session', '../../x', 'é \u{1F600}', `${'b'.repeat(25)}1`]) {
      for (const lastSeqNo of [undefined, 0, 5]) {
        const watcher = visitor.watch(sid, lastSeqNo === undefined ? {} : { lastSeqNo });
        closedWith(await watcher.closed(), 4010, 'session_not_found');
        assert.deepEqual(watcher.raw, ['{"kind":"closing","reason":"session_not_found"}']);
      }
    }
  });

  test('e2e stream - a sid of another user closes exactly like an unknown one, and what he sends changes nothing [WSS-004]', async () => {
    const owner = await e.visitor();
    const { sid, watcher } = await owner.chat();
    watcher.say('/slow 20 60');
    await watcher.event('TOKEN');
    const others = [await e.visitor(), await e.visitor({ org: `u-${owner.sub}` }), await e.visitor({ sub: owner.sub, org: 'acme' })];
    for (const other of others) {
      for (const lastSeqNo of [undefined, 0, 1]) {
        const peeping = other.watch(sid, lastSeqNo === undefined ? {} : { lastSeqNo });
        await peeping.opened;
        // Sent before the refusal has come.
        peeping.say('/say mine now');
        peeping.send({ kind: 'cancel_dispatch', dispatch_id: '' });
        closedWith(await peeping.closed(), 4010, 'session_not_found');
        assert.deepEqual(peeping.raw, ['{"kind":"closing","reason":"session_not_found"}']);
      }
    }
    // One that nobody has watched yet: the first look at whose it is is another user's.
    const { sid: unwatched } = await owner.create();
    for (const other of others) closedWith(await other.watch(unwatched, { lastSeqNo: 0 }).closed(), 4010, 'session_not_found');
    assert.equal(textOf(await owner.watch(unwatched).turn('/say untouched')), 'untouched');
    await watcher.turns(1);
    assert.equal(watcher.text, numbered(60));
    assert.deepEqual((await watcher.event('FINISH')).record.payload['finish_reason'], 'stop');
    // A turn of the owner's still is the next thing that happens.
    assert.equal(textOf(await watcher.turn('/say still mine')), 'still mine');
    assert.equal(watcher.ended, 2);
  });

  test('e2e stream - every event reaches all watchers of a sid, with the same number, counted from 1, over both gateways [WSS-046] [WSS-023]', async () => {
    const visitor = await e.visitor();
    const { sid } = await visitor.create();
    const watchers = Array.from({ length: 8 }, (_, i) => {
      const gateway = e.stack.gateways[i % 2];
      assert.ok(gateway !== undefined);
      return visitor.watch(sid, { gateway, ...(i < 4 ? { lastSeqNo: 0 } : {}) });
    });
    await Promise.all(watchers.map((watcher) => watcher.opened));
    const [first, second] = watchers;
    assert.ok(first !== undefined && second !== undefined);
    // The turn waits for a person until everybody has it so far, those too who came without a position.
    first.say('/approve the plan');
    const [asked] = await Promise.all(watchers.map((watcher) => watcher.event('APPROVAL_REQUIRED')));
    second.send({ kind: 'approve_dispatch', dispatch_id: asked?.record.payload['dispatch_id'] });
    second.say('/slow 5 50');
    await Promise.all(watchers.map((watcher) => watcher.turns(2)));
    const expected = first.events;
    assert.deepEqual(expected.map((event) => event.seq_no), expected.map((_, i) => i + 1));
    for (const watcher of watchers.slice(1)) assert.deepEqual(watcher.events, expected);
    const late = visitor.watch(sid, { lastSeqNo: 0 });
    await late.turns(2);
    assert.deepEqual(late.events, expected);
    // Another session of the same user counts for itself.
    const other = await visitor.chat();
    await other.watcher.turn('/say one');
    assert.equal(other.watcher.events[0]?.seq_no, 1);
  });
});
