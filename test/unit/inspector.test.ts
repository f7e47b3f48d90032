/** What the console's pages of deployments compute: conversation, differences, replay, graph, following a journal, the id of a session's stream. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { sessionAddress } from '../../actors/daemon/deployment/branch.ts';
import { coded } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { differences } from '../../gateway/console/platform/deployments/diff.ts';
import { Following, type Journal } from '../../gateway/console/platform/deployments/following.ts';
import { pictureOf } from '../../gateway/console/platform/deployments/graph.ts';
import { nextStop } from '../../gateway/console/platform/deployments/replay.ts';
import { servicePath, type Envelope } from '../../gateway/console/platform/deployments/services.ts';
import { sidOf } from '../../gateway/console/platform/deployments/sid.ts';
import { isRunning, transcriptOf } from '../../gateway/console/platform/deployments/transcript.ts';
import { hrefOf, placeOf } from '../../gateway/console/platform/place.ts';

const event = (kind: string, payload: Envelope['payload'] = {}, timestamp = 0): Envelope => ({ id: `${kind}-${timestamp}-${JSON.stringify(payload)}`, kind, timestamp, payload });

test('console inspector - the id of a session\'s stream is the one its actor has', async () => {
  for (const [session, branch] of [['support', 'main'], ['support', 'what-if'], ['A_1.b-c', 'main']] as const) {
    const { key } = sessionAddress({ organizationId: 'org_a', deploymentId: 'dep_01jd0000000000000000000000' }, session, branch);
    assert.equal(await sidOf('dep_01jd0000000000000000000000', session, branch), key);
  }
});

test('console inspector - places survive the address, names are escaped in it and in the paths of services', () => {
  const place = { view: 'deployments', org: 'org_1', within: { deployment: 'dep_1', part: 'sessions', session: 'a.b-c', branch: 'x' } } as const;
  const url = new URL(hrefOf(place), 'https://x.example');
  assert.deepEqual(placeOf(url.pathname, url.search), place);
  assert.deepEqual(placeOf('/console/members', '?org=o&other=1'), { view: 'members', org: 'o' });
  assert.equal(servicePath('dep_1', 'sessions', '../x?y', 'events'), '/api/deployments/dep_1/v1/sessions/..%2Fx%3Fy/events');
});

test('console inspector - a conversation is what was said up to an event: pieces are one text, a call has its decision and its end', () => {
  const run = { run_id: 'r1' };
  const call = { ...run, call_id: 'c1', tool_name: 'send_report', step: 0, arguments: { title: 'T' } };
  const events = [
    event('UserMessage', { content: 'hello' }), event('RunStarted', run), event('TextDelta', { ...run, step: 0, text: 'Let ' }), event('TextDelta', { ...run, step: 0, text: 'me.' }),
    event('ToolCall', call), event('AssistantMessage', { ...run, step: 0, content: 'Let me.' }), event('ApprovalRequested', { ...run, call_id: 'c1', dispatch_id: 'd1', preview: 'Send T' }),
    event('ApprovalDenied', { ...run, call_id: 'c1', dispatch_id: 'd1' }), event('ToolResult', { ...run, call_id: 'c1', result: { error: { code: 'denied' } }, is_error: true }), event('RunFinished', run),
  ];
  const callAt = (count: number) => transcriptOf(events.slice(0, count)).find((item) => item.kind === 'call');
  assert.deepEqual(transcriptOf(events.slice(0, 3)).map((item) => ('text' in item ? [item.kind, item.text] : [])), [['user', 'hello'], ['agent', 'Let ']]);
  assert.deepEqual(transcriptOf(events).map(({ kind }) => kind), ['user', 'agent', 'call']);
  assert.equal(callAt(5)?.status, 'called');
  assert.deepEqual([callAt(7)?.status, callAt(7)?.dispatch, callAt(7)?.preview], ['waiting', 'd1', 'Send T']);
  assert.equal(callAt(10)?.status, 'denied', 'what was denied stays denied, whatever its result says');
  assert.deepEqual([isRunning(events.slice(0, 1)), isRunning(events.slice(0, 9)), isRunning(events)], [false, true, false]);
});

test('console inspector - what regulation stopped is told from what failed; the same call id in another turn is another call', () => {
  const turn = (run: string, result: unknown) => [
    event('ToolCall', { run_id: run, call_id: 'c', tool_name: 't', step: 0, arguments: {} }), event('ToolResult', { run_id: run, call_id: 'c', result, is_error: true }),
  ];
  const items = transcriptOf([...turn('a', { error: { code: 'policy_denied' } }), ...turn('b', { error: { code: 'tool_failed' } }), event('RunErrored', { run_id: 'c', code: 'policy_denied', message: 'No.' })]);
  assert.deepEqual(items.map((item) => (item.kind === 'call' ? item.status : item.kind === 'note' ? `${item.tone} ${item.text}` : '')), ['blocked', 'failed', 'bad Blocked by regulation: No.']);
});

test('console inspector - differences are the places added, removed and changed, and none between equals', () => {
  const before = { model: 'a', run: { phase: 'model' }, history: [{ text: 'one' }], gone: 1 };
  const after = { model: 'b', run: null, history: [{ text: 'one' }, { text: 'two' }] };
  assert.deepEqual(differences(before, after), [
    { path: 'gone', kind: 'removed', before: '1', after: '' }, { path: 'model', kind: 'changed', before: 'a', after: 'b' },
    { path: 'run', kind: 'changed', before: '{"phase":"model"}', after: 'null' }, { path: 'history.1', kind: 'added', before: '', after: '{"text":"two"}' },
  ]);
  assert.deepEqual(differences(before, structuredClone(before)), []);
});

test('console inspector - a replay keeps the pauses of the events, divided by its speed, long ones cut; what is together comes together', () => {
  const events = [0, 0, 5, 400, 60_400].map((timestamp) => ({ timestamp }));
  assert.deepEqual(nextStop(events, 0, '1×'), { shown: 3, afterMs: 0 });
  assert.deepEqual(nextStop(events, 3, '1×'), { shown: 4, afterMs: 395 });
  assert.deepEqual(nextStop(events, 3, '4×'), { shown: 4, afterMs: 98.75 });
  assert.deepEqual(nextStop(events, 4, '1×'), { shown: 5, afterMs: limits.replayPauseMs });
  assert.equal(nextStop(events, 5, '1×'), undefined);
  for (const speed of ['1×', '64×'] as const) {
    let shown = 0;
    for (let stop = nextStop(events, shown, speed); stop !== undefined; stop = nextStop(events, shown, speed)) {
      assert.ok(stop.shown > shown && stop.shown <= events.length);
      ({ shown } = stop);
    }
    assert.equal(shown, events.length);
  }
});

test('console inspector - the picture of a graph has the nearest documents, each at its own place, and only lines between them', () => {
  const nodes = Array.from({ length: limits.graphDrawnMax + 20 }, (_, at) => ({ id: `n${at}`, title: `N ${at}`, depth: at === 0 ? 0 : at < 10 ? 1 : 2 }));
  const edges = nodes.slice(1).map(({ id }, at) => ({ from: at < 9 ? 'n0' : `n${1 + (at % 9)}`, to: id, edge: 'references' as const }));
  const picture = pictureOf(nodes, edges);
  assert.deepEqual([picture.nodes.length, picture.left], [limits.graphDrawnMax, 20]);
  assert.equal(new Set(picture.nodes.map(({ x, y }) => `${x} ${y}`)).size, picture.nodes.length);
  assert.equal(picture.edges.length, limits.graphDrawnMax - 1);
  assert.ok(picture.nodes.every(({ x, y }) => Math.hypot(x, y) < picture.reach));
});

/** A journal to follow, with a clock of its own. */
const followed = (pages: (readonly Envelope[] | Error)[]) => {
  let journal: Journal | undefined;
  const asked: (string | undefined)[] = [];
  const waits: { call: () => void; ms: number; stopped: boolean }[] = [];
  const following = new Following({
    page: async (after) => {
      asked.push(after);
      const page = pages.shift() ?? [];
      if (page instanceof Error) throw page;
      return page;
    },
    onChange: (to) => { journal = to; }, now: () => 0,
    later: (call, ms) => {
      const wait = { call, ms, stopped: false };
      waits.push(wait);
      return () => { wait.stopped = true; };
    },
  });
  const open = () => waits.filter(({ stopped }) => !stopped);
  /** Lets the answer in, then the next look begin. */
  const settle = () => new Promise<void>((resolve) => { setImmediate(resolve); });
  const look = async (): Promise<number> => {
    const [wait, ...more] = open();
    assert.ok(wait !== undefined && more.length === 0, 'one look is due');
    wait.stopped = true;
    wait.call();
    await settle();
    return wait.ms;
  };
  return { following, asked, open, settle, look, journal: () => journal ?? assert.fail('nothing yet') };
};

test('console inspector - a journal is read to its end without a pause, then looked at from time to time, at once when told, each event once', async () => {
  const [a, b, c] = ['a', 'b', 'c'].map((id) => ({ ...event('TextDelta'), id }));
  assert.ok(a !== undefined && b !== undefined && c !== undefined);
  const w = followed([[a], [b], [], [c]]);
  await w.settle();
  assert.equal(w.journal().complete, false);
  assert.deepEqual([await w.look(), await w.look()], [0, 0]);
  assert.deepEqual([w.journal().complete, w.journal().events.map(({ id }) => id)], [true, ['a', 'b']]);
  assert.deepEqual(w.open().map(({ ms }) => ms), [limits.inspectorLookMs]);
  w.following.poke();
  w.following.poke();
  assert.deepEqual(w.open().map(({ ms }) => ms), [limits.inspectorPaceMs], 'told twice, looked once');
  await w.look();
  assert.deepEqual(w.journal().events.map(({ id }) => id), ['a', 'b', 'c']);
  assert.deepEqual(w.asked, [undefined, 'a', 'b', 'b']);
  const due = w.open()[0] ?? assert.fail('no look is due');
  due.stopped = true;
  due.call();
  w.following.poke();
  await w.settle();
  assert.deepEqual(w.open().map(({ ms }) => ms), [limits.inspectorPaceMs], 'told while it looked, it looks again soon');
  w.following.close();
  assert.deepEqual(w.open(), []);
});

test('console inspector - a failure is shown and tried again, a refusal ends it, and what a page takes is bounded', async () => {
  const faulty = followed([coded('upstream_unavailable'), [event('SessionCreated')]]);
  await faulty.settle();
  assert.equal(faulty.journal().problem?.code, 'upstream_unavailable');
  assert.equal(await faulty.look(), limits.inspectorLookMs);
  assert.deepEqual([faulty.journal().problem, faulty.journal().events.length], [undefined, 1]);

  const refused = followed([coded('session_not_found')]);
  await refused.settle();
  refused.following.poke();
  assert.deepEqual([refused.journal().problem?.code, refused.open().length], ['session_not_found', 0]);

  const many = followed([Array.from({ length: limits.inspectorEventsMax + 5 }, (_, at) => ({ ...event('TextDelta'), id: String(at) }))]);
  await many.settle();
  assert.deepEqual([many.journal().events.length, many.journal().full, many.open().length], [limits.inspectorEventsMax, true, 0]);
});
