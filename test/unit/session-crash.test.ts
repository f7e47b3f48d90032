// A session whose host is lost at any append of a turn: nothing said twice, nothing lost, no tool run twice, a legal feed.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { z } from 'zod';
import { memoryBlobs } from '../../actors/blobs/memory.ts';
import { definitions } from '../../actors/definitions.ts';
import { mock, scripted } from '../../actors/providers/mock.ts';
import type { PromptMessage, Provider } from '../../actors/providers/provider.ts';
import { createRegistry } from '../../actors/providers/registry.ts';
import { fold, initialSession, type SessionState } from '../../actors/session/state.ts';
import { defineTool, toolSet, type Tool } from '../../actors/tools/index.ts';
import { modelEntry } from '../../contracts/config.ts';
import type { StoredEvent } from '../../contracts/event.ts';
import { limits } from '../../contracts/limits.ts';
import { feedKind, sessionEvents, type SessionEventKind } from '../../contracts/session.ts';
import { actorHost, type ActorHost } from '../harness/actor-host.ts';
import { recorder } from '../harness/log.ts';

const address = { org: 'o', type: 'session', key: 'abcdefghijklmnopqrstuvwxyz' };
const user_id = 'ann';

const isKind = (kind: string): kind is SessionEventKind => Object.hasOwn(sessionEvents, kind);
const text = (value: unknown): string => (typeof value === 'string' ? value : assert.fail('not a string'));

/** Folds as the engine does; the types of one kind are joined by the schema. */
const apply = (state: SessionState, event: StoredEvent, number: number): SessionState => {
  if (!isKind(event.k)) return state;
  const step: (state: SessionState, payload: never, meta: { id: string; at: number; number: number }) => SessionState = fold[event.k];
  return step(state, sessionEvents[event.k].parse(event.d) as never, { id: event.id, at: 0, number });
};

/** Tools that count their runs by call; some lose their host while they run. */
const countingTools = (ran: Map<string, number>): readonly Tool[] => {
  const make = (name: string, idempotent: boolean, needsApproval: boolean): Tool => defineTool({
    name, description: '', parameters: z.object({ n: z.number() }), idempotent, needsApproval, preview: ({ n }) => `${name} ${n}`,
    run: async ({ n }, context) => {
      ran.set(context.id, (ran.get(context.id) ?? 0) + 1);
      // Two turns of the actor's own queue: room for a crash while the tool runs.
      await new Promise((resolve) => { setImmediate(resolve); });
      if (name === 'noted') await context.agent('remember', { fact: `fact ${context.id}`, source: 'test' });
      return { n };
    },
  });
  return [make('again', true, false), make('once', false, false), make('asked', false, true), make('noted', true, false)];
};

/** What is legal on the feed, whatever happened; gives the text of each run. */
const checkFeed = (events: readonly StoredEvent[]): string[] => {
  const texts: string[] = [];
  let run: string | undefined;
  let ended = true;
  const open = new Map<string, string>();
  for (const { k: kind, d } of events) {
    if (kind === 'RunStarted') {
      assert.ok(ended, 'a run began before the other ended');
      run = text(d['run_id']);
      ended = false;
      texts.push('');
      continue;
    }
    if (feedKind(kind) === undefined || kind === 'MessageRefused' || kind === 'SessionHibernated') continue;
    assert.ok(!ended, `${kind} after the end of its run`);
    assert.equal(d['run_id'], run, `${kind} of another run`);
    switch (kind) {
      case 'TextDelta': texts[texts.length - 1] += text(d['text']); break;
      case 'ToolCall':
        assert.ok(!open.has(text(d['call_id'])), 'a call is shown twice');
        open.set(text(d['call_id']), 'called');
        break;
      case 'ApprovalRequested':
        assert.equal(open.get(text(d['call_id'])), 'called', 'approval of an unknown call, or asked twice');
        open.set(text(d['call_id']), 'asked');
        break;
      case 'ToolResult':
        assert.ok(['called', 'asked'].includes(open.get(text(d['call_id'])) ?? ''), 'a result without its call, or a second one');
        open.set(text(d['call_id']), 'ended');
        break;
      default:
        ended = true;
        assert.ok([...open.values()].every((state) => state === 'ended'), 'a run ended with open calls');
    }
  }
  assert.ok(ended, 'the last run did not end');
  return texts;
};

/** What the scripted model says in each step of the journal, from the history each step began with. */
const expectedTexts = (events: readonly StoredEvent[]): string[] => {
  const texts: string[] = [];
  let state = initialSession();
  for (const [i, event] of events.entries()) {
    state = apply(state, event, i + 1);
    if (event.k === 'RunStarted') texts.push('');
    if (event.k !== 'StepStarted') continue;
    const prompt: PromptMessage[] = state.history.map((m) => (m.role === 'user' ? { role: 'user', text: m.text } : m));
    const step = scripted(prompt);
    texts[texts.length - 1] += step.end === 'cut' ? `${step.text} and on.` : step.text;
  }
  return texts;
};

const step = fc.record({
  words: fc.integer({ min: 0, max: 40 }),
  cut: fc.boolean(),
  tools: fc.array(fc.constantFrom('again', 'once', 'asked', 'noted'), { maxLength: 3 }),
});
const script = (steps: readonly { words: number; cut: boolean; tools: readonly string[] }[]): string => {
  const made = steps.map((s, i) => [
    `/say Step ${i}.`, s.cut && s.tools.length === 0 ? `/cut-after ${s.words}` : `/long ${s.words}`,
    ...s.tools.map((name, n) => `/tool ${name} {"n":${n}}`),
  ].join('\n'));
  // A step without calls is the last that is reached.
  return made.join('\n/then\n');
};

/** A model whose words come one task apart, so that a step takes several commits. */
const paced = (): Provider => {
  const inner = mock();
  return {
    continues: 'exact',
    stream: async function* stream(call) {
      for await (const part of inner.stream(call)) {
        await new Promise((resolve) => { setImmediate(resolve); });
        yield part;
      }
    },
  };
};

describe('session - loss of its host', () => {
  it('says everything once, runs no tool twice, and keeps its feed legal, wherever it is lost', async () => {
    const crash = fc.record({ at: fc.integer({ min: 1, max: 14 }), stored: fc.boolean() });
    let crashes = 0;
    let turns = 0;
    await fc.assert(fc.asyncProperty(fc.array(fc.array(step, { minLength: 1, maxLength: 3 }), { minLength: 1, maxLength: 3 }), fc.array(crash, { maxLength: 6 }), async (messages, losses) => {
      const ran = new Map<string, number>();
      const left = [...losses];
      const aim = (host: ActorHost): void => {
        const loss = left.shift();
        if (loss !== undefined) host.crashAt(loss.at, loss.stored);
      };
      const registry = createRegistry({ default: 'm', registry: [modelEntry.parse({ id: 'm', provider: 'mock' })] }, { mock: paced() });
      const log = recorder();
      const host = actorHost(definitions({ registry, tools: toolSet(countingTools(ran)), blobs: memoryBlobs() }), {
        log,
        onCrash: (lost) => {
          aim(lost);
          // Nobody asks: the reminder of the running turn wakes the session on its new host.
          setImmediate(() => { lost.advance(limits.turnWakeMs + 1); });
        },
      });
      try {
        await host.ask(address, 'create', { user_id, project_id: 'p' });
        aim(host);
        for (const [i, steps] of messages.entries()) await host.ask(address, 'send', { user_id, content: script(steps), message_id: `m${i}` });
        const isEnd = (e: StoredEvent): boolean => e.k === 'RunFinished' || e.k === 'RunErrored';
        const unanswered = (events: readonly StoredEvent[]): string | undefined => {
          const granted = new Set(events.filter((e) => e.k === 'ApprovalGranted').map((e) => e.d['dispatch_id']));
          const asked = events.find((e) => e.k === 'ApprovalRequested' && !granted.has(e.d['dispatch_id']));
          return asked === undefined ? undefined : text(asked.d['dispatch_id']);
        };
        let events: StoredEvent[];
        for (;;) {
          events = await host.until(address, (found) => found.filter(isEnd).length === messages.length || unanswered(found) !== undefined);
          const dispatch_id = unanswered(events);
          if (dispatch_id === undefined) break;
          await host.ask(address, 'approve', { user_id, dispatch_id });
        }
        crashes += host.crashes;
        turns += messages.length;
        assert.deepEqual(checkFeed(events), expectedTexts(events));
        assert.ok(events.filter(isEnd).every((e) => e.k === 'RunFinished'), 'a turn failed');
        assert.deepEqual(log.lines.filter((l) => l.level === 'error'), []);
        const started = events.filter((e) => e.k === 'ToolStarted');
        assert.equal(new Set(started.map((e) => e.d['call_id'])).size, started.length, 'a tool was started twice');
        for (const e of started) {
          const call = events.find((c) => c.k === 'ToolCall' && c.d['call_id'] === e.d['call_id']);
          const result = events.find((c) => c.k === 'ToolResult' && c.d['call_id'] === e.d['call_id']);
          const times = ran.get(text(e.d['effect_id'])) ?? 0;
          const name = text(call?.d['tool_name']);
          if (name === 'again' || name === 'noted') {
            assert.ok(times >= 1, `${name} did not run`);
            assert.equal(result?.d['is_error'], false);
          } else if (result?.d['is_error'] === true) {
            assert.ok(times <= 1, `${name} ran ${times} times`);
            assert.match(JSON.stringify(result.d['result']), /interrupted/);
          } else {
            assert.equal(times, 1, `${name} ran ${times} times`);
          }
        }
        // A tool that ran again after a loss stored its fact once all the same.
        const facts = (await host.events({ ...address, type: 'agent', key: `agent-${address.key}` })).filter((e) => e.k === 'MemoryStored').map((e) => e.d['fact']);
        assert.equal(new Set(facts).size, facts.length);
        assert.equal(facts.length, events.filter((e) => e.k === 'ToolCall' && e.d['tool_name'] === 'noted').length);
      } finally {
        host.stop();
      }
    }), { numRuns: 80, seed: Number(process.env['SEED'] ?? 20_261_121), verbose: 1 });
    assert.ok(crashes > turns / 2, `only ${crashes} losses in ${turns} turns`);
  });

  it('does not ask the model again once a call of the step is journaled', async (t) => {
    let streams = 0;
    const wavering: Provider = {
      continues: 'exact',
      stream: async function* stream(call) {
        streams += 1;
        if (call.messages.some((m) => m.role === 'tool')) {
          yield { kind: 'end', finish_reason: 'stop', usage: undefined };
          return;
        }
        yield { kind: 'tool_call', call_id: `c${streams}`, name: 'once', arguments: { n: streams } };
        await new Promise((_, reject) => { call.signal.addEventListener('abort', () => { reject(new Error('lost')); }); });
      },
    };
    const ran = new Map<string, number>();
    const registry = createRegistry({ default: 'm', registry: [modelEntry.parse({ id: 'm', provider: 'mock' })] }, { mock: wavering });
    const host = actorHost(definitions({ registry, tools: toolSet(countingTools(ran)), blobs: memoryBlobs() }));
    t.after(() => { host.stop(); });
    await host.ask(address, 'create', { user_id, project_id: 'p' });
    await host.ask(address, 'send', { user_id, content: 'x' });
    await host.until(address, (events) => events.some((e) => e.k === 'ToolCall'));
    host.crash();
    host.advance(limits.turnWakeMs + 1);
    const events = await host.until(address, (found) => found.some((e) => e.k === 'RunFinished'));
    assert.equal(streams, 2);
    assert.deepEqual(events.filter((e) => e.k === 'ToolCall').map((e) => e.d['call_id']), ['c1']);
    assert.deepEqual([...ran.values()], [1]);
  });

  it('gives the same state for the same journal, in whatever pieces it is folded', async (t) => {
    const registry = createRegistry({ default: 'm', registry: [modelEntry.parse({ id: 'm', provider: 'mock' })] }, { mock: mock() });
    const host = actorHost(definitions({ registry, tools: toolSet(countingTools(new Map())), blobs: memoryBlobs() }));
    t.after(() => { host.stop(); });
    await host.ask(address, 'create', { user_id, project_id: 'p' });
    await host.ask(address, 'send', { user_id, content: '/tool again {"n":1}\n/then\n/long 9' });
    const events = await host.until(address, (found) => found.some((e) => e.k === 'RunFinished'));
    const whole = events.reduce((state, e, i) => apply(state, e, i + 1), initialSession());
    for (let at = 0; at <= events.length; at++) {
      const head = events.slice(0, at).reduce((state, e, i) => apply(state, e, i + 1), initialSession());
      const frozen = JSON.stringify(head);
      const stored = JSON.parse(frozen) as SessionState;
      const tail = events.slice(at).reduce((state, e, i) => apply(state, e, at + i + 1), stored);
      assert.equal(JSON.stringify(tail), JSON.stringify(whole), `split at ${at}`);
      assert.equal(JSON.stringify(stored), frozen, 'the fold changed its argument');
    }
  });

  it('bounds its history by rule: oldest turns first, the running one last', () => {
    let state = initialSession();
    const at = (kind: SessionEventKind, d: Record<string, unknown>): void => { state = apply(state, { id: 'x', k: kind, d }, 1); };
    const usage = { input_tokens: 0, output_tokens: 0, cost_cents: 0 };
    for (let i = 0; i < 12; i++) {
      at('UserMessage', { content: `${i} ${'x'.repeat(30_000)}`, user_id });
      at('RunStarted', { run_id: `r${i}` });
      at('StepStarted', { run_id: `r${i}`, step: 0, effect_id: 'e' });
      at('AssistantMessage', { run_id: `r${i}`, step: 0, content: 'fine', usage });
      at('RunFinished', { run_id: `r${i}`, finish_reason: 'stop', usage });
    }
    assert.ok(state.historyChars <= limits.sessionHistoryMaxChars);
    assert.match(state.history[0]?.text ?? '', /^4 /);
    assert.equal(state.history[0]?.role, 'user');
    at('UserMessage', { content: 'tools', user_id });
    at('RunStarted', { run_id: 'r' });
    for (let i = 0; i < 10; i++) {
      at('StepStarted', { run_id: 'r', step: i, effect_id: 'e' });
      at('ToolCall', { run_id: 'r', step: i, call_id: `c${i}`, tool_name: 'big', arguments: {}, needs_approval: false });
      at('AssistantMessage', { run_id: 'r', step: i, content: '', usage });
      at('ToolResult', { run_id: 'r', call_id: `c${i}`, tool_name: 'big', result: 'y'.repeat(60_000), is_error: false });
    }
    assert.ok(state.historyChars <= limits.sessionHistoryMaxChars);
    assert.equal(state.history[0]?.text, 'tools');
    assert.match(state.history[2]?.text ?? '', /no longer kept/);
    assert.equal(state.history.at(-1)?.text.length, 60_002);
    assert.equal(state.history.length, 21);
  });
});
