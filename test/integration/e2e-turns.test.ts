/** What a client can do to turns, on the whole stack: approve, cancel, queue, repeat, attach. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { after, afterEach, before, describe, test } from 'node:test';
import { z } from 'zod';
import type { AgentEvent } from '../../contracts/stream.ts';
import { isEnd, journaled, journalOf, kindsOf, numbered, startEndToEnd, textOf, type EndToEnd, type Visitor, type Watcher } from '../harness/e2e.ts';

const blob = z.strictObject({ hash: z.string(), size: z.int() });
const payloads = (events: readonly AgentEvent[], kind: string): AgentEvent['record']['payload'][] =>
  events.filter((event) => event.agent_kind === kind).map((event) => event.record.payload);

describe('e2e turns', () => {
  let e: EndToEnd;
  before(async () => { e = await startEndToEnd(); });
  afterEach((t) => e.blame(t));
  after(() => e.stop());

  /** Asks for a report and gives the dispatch_id that waits. */
  const asked = async (watcher: Watcher, body: string): Promise<string> => {
    const before = payloads(watcher.events, 'APPROVAL_REQUIRED').length;
    watcher.say(`/approve ${body}`);
    const { record } = await watcher.event('APPROVAL_REQUIRED', before + 1);
    return z.string().min(1).parse(record.payload['dispatch_id']);
  };
  /** Bodies of the reports that the tool has really filed, from the agent's journal. */
  const filed = async (visitor: Visitor, sid: string): Promise<unknown[]> =>
    (await journaled(e.stack.nats.url, journalOf(visitor.sub, 'agent', `agent-${sid}`))).filter((event) => event.k === 'ReportFiled').map((event) => event.d['body']);

  test('e2e turns - APPROVAL_REQUIRED names dispatch and call; the tool runs after approve_dispatch and not before [WSS-015] [WSS-018]', async () => {
    const visitor = await e.visitor();
    const { sid, watcher } = await visitor.chat();
    const dispatch = await asked(watcher, 'the plan');
    const [required] = payloads(watcher.events, 'APPROVAL_REQUIRED');
    const [pending] = payloads(watcher.events, 'TOOL_CALL_PENDING');
    assert.deepEqual(required, { dispatch_id: dispatch, call_id: pending?.['call_id'], preview: 'File the report "Report": the plan' });
    // Unknown ids, another session's and another user's approval change nothing: nor does time, nor a restart of the daemon.
    watcher.send({ kind: 'approve_dispatch', dispatch_id: 'another' });
    const other = await visitor.chat();
    other.watcher.send({ kind: 'approve_dispatch', dispatch_id: dispatch });
    await other.watcher.turn('/say handled');
    await e.stack.daemons[0]?.restart();
    await e.stack.gateways[0]?.ready();
    const back = visitor.watch(sid, { lastSeqNo: watcher.last ?? 0 });
    // It waits behind the turn.
    await back.opened;
    back.say('/say afterwards');
    const second = visitor.watch(sid, { lastSeqNo: 0 });
    await second.event('APPROVAL_REQUIRED');
    assert.deepEqual(payloads([...watcher.events, ...back.events], 'TOOL_RESULT'), []);
    assert.deepEqual(await filed(visitor, sid), []);
    second.send({ kind: 'approve_dispatch', dispatch_id: dispatch });
    await back.turns(2);
    const [result, ...more] = payloads(back.events, 'TOOL_RESULT');
    assert.deepEqual(more, []);
    assert.equal(result?.['call_id'], pending?.['call_id']);
    assert.equal(result?.['is_error'], false);
    assert.deepEqual(z.looseObject({ filed: z.boolean(), title: z.string() }).parse(result?.['result']).filed, true);
    // Approved again: it does not run again.
    back.send({ kind: 'approve_dispatch', dispatch_id: dispatch });
    await back.turn('/say done');
    assert.equal(payloads(back.events, 'TOOL_RESULT').length, 1);
    assert.deepEqual(await filed(visitor, sid), ['the plan']);
    assert.equal(back.text.includes('afterwards'), true);
  });

  test('e2e turns - cancel_dispatch stops that call alone: it never runs, its sibling may, an approval comes too late [WSS-019]', async () => {
    const visitor = await e.visitor();
    const { sid, watcher } = await visitor.chat();
    watcher.say('/approve one\n/approve two');
    const [first, second] = [await watcher.event('APPROVAL_REQUIRED', 1), await watcher.event('APPROVAL_REQUIRED', 2)];
    const [one, two] = [first, second].map(({ record }) => z.string().parse(record.payload['dispatch_id']));
    watcher.send({ kind: 'cancel_dispatch', dispatch_id: one });
    const denied = await watcher.event('TOOL_RESULT');
    assert.deepEqual([denied.record.payload['call_id'], denied.record.payload['is_error']], [first.record.payload['call_id'], true]);
    watcher.send({ kind: 'approve_dispatch', dispatch_id: one });
    watcher.send({ kind: 'approve_dispatch', dispatch_id: two });
    await watcher.turns(1);
    const results = payloads(watcher.events, 'TOOL_RESULT');
    assert.deepEqual(results.map((payload) => [payload['call_id'], payload['is_error']]), [
      [first.record.payload['call_id'], true], [second.record.payload['call_id'], false],
    ]);
    assert.deepEqual(await filed(visitor, sid), ['two']);
    assert.deepEqual(watcher.events.at(-1)?.record.payload['finish_reason'], 'stop', 'the turn goes on to its end');
  });

  test('e2e turns - cancel_dispatch with an empty id cancels the running turn: its model call, its waiting call, and nothing after it [WSS-020]', async () => {
    const visitor = await e.visitor();
    const { sid, watcher } = await visitor.chat();
    watcher.say('/hang 5');
    watcher.say('/say next');
    await watcher.until(() => watcher.text === numbered(5), 'the text');
    watcher.send({ kind: 'cancel_dispatch', dispatch_id: '' });
    await watcher.turns(2);
    assert.deepEqual(watcher.events.filter(isEnd).map((event) => event.record.payload['finish_reason']), ['cancelled', 'stop']);
    assert.equal(watcher.text, `${numbered(5)}next`);
    const dispatch = await asked(watcher, 'a secret plan');
    watcher.send({ kind: 'cancel_dispatch', dispatch_id: '' });
    watcher.send({ kind: 'approve_dispatch', dispatch_id: dispatch });
    await watcher.turns(3);
    const last = await watcher.turn('/say over');
    assert.deepEqual(kindsOf(last), ['TOKEN', 'FINISH']);
    assert.deepEqual(await filed(visitor, sid), []);
    // Nothing runs: it changes nothing.
    watcher.send({ kind: 'cancel_dispatch', dispatch_id: '' });
    assert.equal(textOf(await watcher.turn('/say fine')), 'fine');
  });

  test('e2e turns - one turn at a time: what is sent meanwhile, by whoever, runs in order after it [WSS-047]', async () => {
    const visitor = await e.visitor();
    const { sid, watcher } = await visitor.chat();
    watcher.say('/slow 5 40');
    for (let i = 0; i < 20; i++) watcher.say(`/say <${i}>\n/tool clock`);
    await watcher.turns(21);
    const ends = watcher.events.flatMap((event, i) => (isEnd(event) ? [i] : []));
    const turns = ends.map((end, i) => watcher.events.slice(i === 0 ? 0 : (ends[i - 1] ?? 0) + 1, end + 1));
    assert.equal(textOf(turns[0] ?? []), numbered(40));
    for (const [i, turn] of turns.slice(1).entries()) {
      assert.deepEqual(kindsOf(turn), ['TOKEN', 'TOOL_CALL_PENDING', 'TOOL_RESULT', 'TOKEN', 'FINISH']);
      assert.ok(textOf(turn).startsWith(`<${i}>clock says:`), `turn ${i} says ${textOf(turn)}`);
    }
    // Of two senders at once each one's order is kept, and no turn is mixed with another.
    const second = visitor.watch(sid, { lastSeqNo: watcher.last ?? 0 });
    await second.opened;
    for (let i = 0; i < 10; i++) for (const [who, sender] of [['a', watcher], ['b', second]] as const) sender.say(`/say ${who}${i}.`);
    await second.turns(20);
    const said = second.text.match(/[ab]\d+\./g) ?? [];
    assert.equal(said.join(''), second.text);
    for (const who of ['a', 'b']) assert.deepEqual(said.filter((one) => one.startsWith(who)), Array.from({ length: 10 }, (_, i) => `${who}${i}.`));
  });

  test('e2e turns - 64 messages queue behind the running turn; the next one is ERROR session_busy and the turn is not disturbed [WSS-048]', async () => {
    const visitor = await e.visitor();
    const { watcher } = await visitor.chat();
    watcher.say('/hang 1');
    await watcher.event('TOKEN');
    for (let i = 0; i < 64; i++) watcher.say(`/say q${i}.`);
    watcher.say('/say one too many', { message_id: 'late' });
    const error = await watcher.event('ERROR');
    assert.equal(error.record.payload['code'], 'session_busy');
    assert.deepEqual(kindsOf(watcher.events), ['TOKEN', 'ERROR'], 'nothing else has happened: all 64 wait');
    watcher.send({ kind: 'cancel_dispatch', dispatch_id: '' });
    await watcher.turns(66);
    assert.equal(watcher.text, `w1${Array.from({ length: 64 }, (_, i) => `q${i}.`).join('')}`);
    assert.equal(payloads(watcher.events, 'ERROR').length, 1);
    // Refused is not taken: the same id may be sent again when there is room.
    watcher.say('/say at last', { message_id: 'late' });
    await watcher.turns(67);
    assert.ok(watcher.text.endsWith('at last'));
  });

  test('e2e turns - a message_id sent again runs no second turn, on the same stream, on another, or after a kill of the daemon [WSS-049]', async () => {
    const visitor = await e.visitor();
    const { sid, watcher } = await visitor.chat();
    watcher.say('/say once', { message_id: 'm-1' });
    watcher.say('/say once', { message_id: 'm-1' });
    await watcher.turns(1);
    const other = visitor.watch(sid, { lastSeqNo: watcher.last ?? 0 });
    await other.opened;
    other.say('/say once more', { message_id: 'm-1' });
    await other.turn('/say second');
    assert.deepEqual(kindsOf(other.events), ['TOKEN', 'FINISH']);
    await e.stack.daemons[0]?.restart();
    await e.stack.gateways[0]?.ready();
    const back = visitor.watch(sid, { lastSeqNo: 0 });
    await back.turns(2);
    back.say('/say once', { message_id: 'm-1' });
    await back.turn('/say third');
    assert.equal(back.text, 'oncesecondthird');
    assert.equal(back.ended, 3);
    // The id counts in its session only.
    const elsewhere = await visitor.chat();
    elsewhere.watcher.say('/say here too', { message_id: 'm-1' });
    await elsewhere.watcher.turns(1);
    assert.equal(elsewhere.watcher.text, 'here too');
  });

  test('e2e turns - content too big for a frame goes by attachment_blob_ref, and the turn sees it [WSS-035]', async () => {
    const upload = (visitor: Visitor, body: Uint8Array | string) => visitor.call('/v1/agent/blobs', { method: 'POST', body, headers: { 'content-type': 'application/octet-stream' } });
    const visitor = await e.visitor();
    const { watcher } = await visitor.chat();
    const content = Array.from({ length: 8_000 }, (_, i) => `line ${i} \u00e9\n`).join('');
    assert.ok(Buffer.byteLength(content) > 64 * 1024 && content.length < 128 * 1024);
    const stored = await upload(visitor, Buffer.from(content));
    assert.equal(stored.status, 201, stored.text);
    const { hash, size } = blob.parse(stored.json);
    assert.deepEqual([hash, size], [`sha256:${createHash('sha256').update(content).digest('hex')}`, Buffer.byteLength(content)]);
    watcher.say('What do you make of this?', { attachment_blob_ref: hash });
    await watcher.turns(1);
    assert.equal(watcher.text, `You said: What do you make of this?\n\n[attachment ${hash}]\n${content}`);
    // A user of another organization has no way to it.
    const eve = await (await e.visitor()).chat();
    eve.watcher.say('and now', { attachment_blob_ref: hash });
    await eve.watcher.turns(1);
    assert.deepEqual(eve.watcher.events.map((event) => [event.agent_kind, event.record.payload['code']]), [['ERROR', 'blob_not_found']]);
  });
});
