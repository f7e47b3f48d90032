// Branches of a deployment's session on the real engine over memory stores: what one begins with at any event, what it may do, what its origin notices.
import assert from 'node:assert/strict';
import { describe, it, type TestContext } from 'node:test';
import { z } from 'zod';
import { agent } from '../../actors/agent/agent.ts';
import { memoryBlobs } from '../../actors/blobs/memory.ts';
import { mock } from '../../actors/providers/mock.ts';
import type { Provider, ProviderCall } from '../../actors/providers/provider.ts';
import { createRegistry } from '../../actors/providers/registry.ts';
import { compile } from '../../actors/runtime/compile.ts';
import { coreAt } from '../../actors/runtime/fork.ts';
import { session } from '../../actors/session/session.ts';
import type { HistoryMessage, SessionState } from '../../actors/session/state.ts';
import { showState } from '../../actors/daemon/deployment/state.ts';
import { builtinTools, defineTool, deploymentTools, toolSet } from '../../actors/tools/index.ts';
import { modelEntry } from '../../contracts/config.ts';
import type { StoredEvent } from '../../contracts/event.ts';
import { limits } from '../../contracts/limits.ts';
import { sessionCommands } from '../../contracts/session.ts';
import { sessionState } from '../../contracts/branch-routes.ts';
import { actorHost, type ActorHost } from '../harness/actor-host.ts';
import { kinds, one, only, said } from '../harness/session.ts';

const org = 'org_01jd0000000000000000000007';
const deploymentOf = (branch: string) => ({ id: 'dep_01jd0000000000000000000007', session_id: 's1', branch });
const openingOf = (branch: string) => ({ deployment: deploymentOf(branch), agent_id: 'agt_01jd0000000000000000000007', user_id: 'usr_1', model: 'plain' });
/** A key of a session's form for each branch. */
const addressOf = (branch: string) => ({ org, type: 'session', key: branch.padEnd(26, 'a') });
const main = addressOf('main');

interface Setup {
  readonly host: ActorHost;
  readonly calls: readonly ProviderCall[];
  readonly say: (branch: string, content: string, more?: object) => Promise<unknown>;
  readonly ends: (branch: string, runs: number) => Promise<StoredEvent[]>;
  readonly fork: (to: string, from: string, number: number, more?: object) => Promise<unknown>;
  readonly state: (branch: string, upTo?: number) => Promise<SessionState>;
  /** Lets the tool `held` end, in every session. */
  readonly release: () => void;
  /** The tool `held` runs. */
  readonly held: Promise<void>;
}

const setup = (t: TestContext): Setup => {
  const calls: ProviderCall[] = [];
  const inner = mock();
  const provider: Provider = { continues: 'exact', stream: (call) => { calls.push(call); return inner.stream(call); } };
  const released = Promise.withResolvers<undefined>();
  const held = Promise.withResolvers<void>();
  const hold = defineTool({
    name: 'held', description: '', parameters: z.strictObject({}), needsApproval: false, idempotent: true, preview: () => '',
    run: async () => {
      held.resolve();
      await released.promise;
      return 'held';
    },
  });
  const tools = toolSet([...builtinTools({ fetchAllow: [] }).values(), hold]);
  const registry = createRegistry({ default: 'plain', registry: [modelEntry.parse({ id: 'plain', provider: 'mock' }), modelEntry.parse({ id: 'other', provider: 'mock' })] }, { mock: provider });
  const definition = session({ registry, tools, deploymentTools: deploymentTools(tools), blobs: memoryBlobs() });
  const host = actorHost([definition, agent()], { onCrash: (lost) => { setImmediate(() => { lost.advance(limits.turnWakeMs + 1); }); } });
  t.after(() => { host.stop(); });
  const fold = compile(definition);
  return {
    host, calls, held: held.promise,
    release: () => { released.resolve(undefined); },
    say: (branch, content, more = {}) => host.ask(addressOf(branch), 'converse', { session: openingOf(branch), earlier: [], content, ...more }),
    ends: (branch, runs) => host.until(addressOf(branch), (events) => events.filter((e) => e.k === 'RunFinished' || e.k === 'RunErrored').length >= runs),
    fork: async (to, from, number, more = {}) => {
      const at = (await host.events(addressOf(from)))[number - 1]?.id ?? assert.fail();
      return host.ask(addressOf(to), 'branch', {
        deployment: deploymentOf(to), from: addressOf(from).key, number, past: [{ sid: addressOf(from).key, branch: from, at, count: number }], user_id: 'usr_1', effects: 'disarmed', ...more,
      });
    },
    state: async (branch, upTo) => (await coreAt(host.source, fold, addressOf(branch), upTo)).state as SessionState,
  };
};

/** Every call of a history has exactly one result, before anybody else speaks. */
const wellFormed = (history: readonly HistoryMessage[], about: string): void => {
  let open = new Set<string>();
  for (const message of history) {
    if (message.role === 'tool') assert.ok(open.delete(message.call_id), `${about}: a result of no call, or a second one`);
    else {
      assert.equal(open.size, 0, `${about}: a call without a result`);
      open = new Set(message.role === 'assistant' ? message.calls.map(({ call_id: id }) => id) : []);
    }
  }
  assert.equal(open.size, 0, `${about}: a call without a result at the end`);
};

/** What a branch has of its origin's state, and what of its own: all fields, so that a new one is thought of. */
const checkBirth = (born: SessionState, origin: SessionState, about: string): void => {
  const { key, session: of, deployment, history, historyChars: _chars, queue, seen, run, usage, turns, awake, beginnings, opening, armed, ...same } = born;
  const { key: _key, session: was, deployment: _deployment, history: before, historyChars: _before, queue: _queue, seen: _seen, run: running, usage: _usage, turns: _turns, awake: _awake, beginnings: _beginnings, opening: _opening, armed: _armed, ...kept } = origin;
  assert.deepEqual(same, kept, about);
  assert.equal(of?.sid, key, about);
  assert.deepEqual({ ...of, sid: '', created_at_unix: 0 }, { ...was, sid: '', created_at_unix: 0 }, about);
  assert.equal(deployment?.session_id, 's1', about);
  assert.deepEqual({ queue, seen, run, usage, turns, awake, beginnings, opening, armed }, {
    queue: [], seen: [], run: null, usage: { input_tokens: 0, output_tokens: 0, cost_cents: 0 }, turns: 0, awake: true, beginnings: [], opening: '', armed: false,
  }, about);
  assert.deepEqual(history.slice(0, before.length), before, about);
  wellFormed(history, about);
  const added = history.slice(before.length);
  const speaks = running?.phase === 'model' && (running.text !== '' || running.calls.length > 0);
  const [next] = speaks ? added : [];
  const results = speaks ? added.slice(1) : added;
  if (next !== undefined) assert.deepEqual(next, { role: 'assistant', text: running?.text, calls: running?.calls.map(({ call_id, name, arguments: args }) => ({ call_id, name, arguments: args })) }, about);
  assert.deepEqual(results.map((message) => message.role === 'tool' && message.is_error && message.call_id), running?.calls.filter(({ status }) => status !== 'ended').map(({ call_id: id }) => id) ?? [], about);
};

describe('session branches', () => {
  it('begin, at every event of a session, with its state there but for the turn, what waits and what is counted [RUN-025] [RUN-026]', async (t) => {
    const { host, say, ends, fork, state, release, held } = setup(t);
    await host.ask(main, 'remember', { session: openingOf('main'), fact: 'Ann likes tea', source: 'test', relevance: 1 });
    await say('main', '/tool clock {}\n/tool calculator {"expression":"6*7"}\n/then\n/long 30', { system: 'Be brief.', message_id: 'm1' });
    await ends('main', 1);
    await say('main', '/approve it\n/tool held {}\n/then\n/say done');
    await held;
    await say('main', 'queued');
    const approval = await host.until(main, (events) => events.some(({ k }) => k === 'ApprovalRequested') && events.some(({ k }) => k === 'ToolStarted'));
    const before = await host.until(main, (events) => events.length >= approval.length);
    const seen = new Set<string>();
    for (const [i, event] of before.entries()) {
      const origin = await state('main', i + 1);
      const name = `at${String.fromCharCode(98 + Math.floor(i / 20), 98 + (i % 20))}`;
      if (origin.session === null) {
        await assert.rejects(fork(name, 'main', i + 1), { code: 'session_not_found' }, event.k);
        assert.deepEqual(await host.events(addressOf(name)), []);
        continue;
      }
      await fork(name, 'main', i + 1);
      checkBirth(await state(name), origin, `${event.k} (${i + 1})`);
      assert.deepEqual(kinds(await host.events(addressOf(name))), ['BranchCreated']);
      seen.add(`${event.k} ${origin.run?.phase ?? 'rest'} ${origin.run?.calls.map(({ status }) => status).join() ?? ''}`);
    }
    for (const wanted of ['ToolStarted tools waiting,running', 'UserMessage tools waiting,running', 'TextDelta model ', 'RunFinished rest ', 'ToolCall model final', 'ToolResult tools ended,running', 'MemoryStored rest ']) {
      assert.ok(seen.has(wanted), `${wanted} was not among ${[...seen].join('; ')}`);
    }
    // Nobody told the origin.
    assert.deepEqual((await host.events(main)).slice(0, before.length), before);
    release();
    await host.ask(main, 'approve', { user_id: 'usr_1', dispatch_id: one(before, 'ApprovalRequested')['dispatch_id'] });
    const after = await ends('main', 3);
    assert.deepEqual(only(after, 'RunFinished').map((d) => d['finish_reason']), ['stop', 'stop', 'stop']);
  });

  it('keep what was said of a turn that runs, and both go on, each without the other [RUN-026]', async (t) => {
    const { host, calls, say, ends, fork, state } = setup(t);
    await say('main', '/hang 5');
    const events = await host.until(main, (now) => said(now).includes('w5'));
    await fork('b', 'main', events.length);
    await say('b', 'what was that?');
    await ends('b', 1);
    const told = calls.at(-1)?.messages.slice(1);
    assert.deepEqual(told, [{ role: 'user', text: '/hang 5' }, { role: 'assistant', text: 'w1 w2 w3 w4 w5', calls: [] }, { role: 'user', text: 'what was that?' }]);
    await host.ask(main, 'cancel', { user_id: 'usr_1', dispatch_id: '' });
    await say('main', 'still here');
    await ends('main', 2);
    const texts = async (branch: string): Promise<unknown[]> => (await state(branch)).history.filter(({ role }) => role === 'user').map(({ text }) => text);
    assert.deepEqual(await texts('main'), ['/hang 5', 'still here']);
    assert.deepEqual(await texts('b'), ['/hang 5', 'what was that?']);
  });

  it('that were not allowed effects are offered nothing that acts outside, and a model that asks for it is refused; those that were, all', async (t) => {
    const { host, calls, say, ends, fork } = setup(t);
    await say('main', 'hello');
    const { length } = await ends('main', 1);
    const offered = (): string[] => calls.at(-1)?.tools.map(({ name }) => name).toSorted() ?? [];
    const all = offered();
    await fork('calm', 'main', length);
    await say('calm', '/memory save x\n/approve y\n/tool clock {}\n/then\n/say done');
    const calm = await ends('calm', 1);
    assert.deepEqual(offered(), ['calculator', 'clock', 'memory_search', 'remember']);
    assert.deepEqual(only(calm, 'ToolResult').map((d) => [d['tool_name'], d['is_error']]).toSorted(), [['clock', false], ['memory_write', true], ['send_report', true]]);
    assert.deepEqual(only(calm, 'ApprovalRequested'), []);
    await fork('bold', 'main', length, { effects: 'armed' });
    await say('bold', '/tool clock {}');
    await ends('bold', 1);
    assert.deepEqual(offered(), all);
    assert.ok(all.includes('send_report') && all.includes('fetch_url') && all.includes('memory_write'));
    // A branch of a branch is as its own maker says.
    const events = await host.events(addressOf('calm'));
    await fork('deep', 'calm', events.length, { effects: 'armed' });
    await say('deep', 'x');
    await ends('deep', 1);
    assert.deepEqual(offered(), all);
  });

  it('are made once: a key that is taken, and one whose session has begun, are refused and stay as they are', async (t) => {
    const { host, say, ends, fork, state } = setup(t);
    await say('main', 'hello');
    const { length } = await ends('main', 1);
    await fork('b', 'main', length);
    const born = await state('b');
    await assert.rejects(fork('b', 'main', length - 1), { code: 'conflict' });
    await assert.rejects(fork('b', 'b', 1), { code: 'conflict' });
    assert.deepEqual(await state('b'), born);
    await say('c', 'mine');
    await ends('c', 1);
    await assert.rejects(fork('c', 'main', length), { code: 'conflict' });
    await assert.rejects(fork('d', 'main', length, { number: 1_000 }), { code: 'sequence_retired' });
    const outside = { kind: 'user', sub: 'usr_1', org, scopes: [] } as const;
    await assert.rejects(host.ask(addressOf('e'), 'branch', sessionCommands.branch.input.parse({
      deployment: deploymentOf('e'), from: main.key, number: length, past: [{ sid: main.key, branch: 'main', at: 'x', count: 1 }], user_id: 'usr_1', effects: 'armed',
    }), outside), { code: 'forbidden' });
  });

  it('are found again by the next host, with the state they began with', async (t) => {
    const { host, say, ends, fork, state } = setup(t);
    await say('main', '/long 20');
    const { length } = await ends('main', 1);
    await fork('b', 'main', length - 2);
    const born = await state('b');
    host.crash();
    await say('b', '/say on');
    const events = await ends('b', 1);
    assert.equal(said(events), 'on');
    assert.deepEqual((await state('b', 3)), born);
    assert.equal((await state('b')).history.at(-1)?.text, 'on');
  });
});

describe('session state', () => {
  it('is shown as its contract says, long texts cut, whatever is in it', async (t) => {
    const { say, ends, fork, state } = setup(t);
    await say('main', 'hello');
    const { length } = await ends('main', 1);
    await fork('b', 'main', length);
    const base = await state('b');
    assert.deepEqual(showState(base), { cut: false, state: sessionState.parse(showState(base).state) });
    const long = '\u0001'.repeat(200_000);
    const call = { call_id: 'c', name: 'n', arguments: { long }, status: 'final' as const, needs_approval: false };
    const full: SessionState = {
      ...base, system: long, queue: Array.from({ length: 64 }, () => ({ text: long, by: 'x' })),
      history: [{ role: 'user', text: long, blob: 'b' }, { role: 'assistant', text: long, calls: [call] }, { role: 'tool', call_id: 'c', name: 'n', text: long, is_error: true }],
      run: { run_id: 'r', step: 1, phase: 'model', effect_id: 'e', text: long, calls: [call], usage: base.usage, model: 'm', by: 'x', started_at: 1, input_tokens: 0 },
    };
    const shown = showState(full);
    assert.equal(shown.cut, true);
    sessionState.parse(shown.state);
    assert.ok(Buffer.byteLength(JSON.stringify(shown.state)) <= limits.sessionStateMaxBytes);
    assert.equal(shown.state.history[0]?.role, 'user');
    assert.ok(shown.state.queue.length === 64 && shown.state.queue.every(({ text }) => text.endsWith('…')));
  });
});
