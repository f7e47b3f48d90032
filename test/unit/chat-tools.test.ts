/**
 * The completion actor's loop on a host whose time and crashes the test controls: tools that run here, step after step, calls that wait for a
 * person, a model that is not read while its client is slow.
 */
import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import fc from 'fast-check';
import { z } from 'zod';
import { agent } from '../../actors/agent/agent.ts';
import { memoryBlobs } from '../../actors/blobs/memory.ts';
import { completion, type CompletionDeps } from '../../actors/completion/completion.ts';
import { fold, initialCompletions } from '../../actors/completion/state.ts';
import { mock } from '../../actors/providers/mock.ts';
import type { Part, Provider, ProviderCall } from '../../actors/providers/provider.ts';
import { createRegistry } from '../../actors/providers/registry.ts';
import { builtinTools, defineTool, toolSet, type Tools } from '../../actors/tools/index.ts';
import { offersOf } from '../../actors/tools/call.ts';
import { completionCommands, completionEvents, type CompletionPrompt, type CompletionStart } from '../../contracts/completion.ts';
import { modelEntry } from '../../contracts/config.ts';
import { CodedError } from '../../contracts/errors.ts';
import type { StoredEvent } from '../../contracts/event.ts';
import { limits } from '../../contracts/limits.ts';
import { actorHost, type ActorHost } from '../harness/actor-host.ts';
import { runSeed } from '../harness/seed.ts';

const address = { org: 'org_1', type: 'completion', key: 'k' };
const agentOf = (by: string) => ({ org: 'org_1', type: 'agent', key: `chat-${by}` });
const builtin = builtinTools({ fetchAllow: [] });
const ulid = (n: number): string => `01JD00000000000000000000${String(n).padStart(2, '0')}`;
const idOf = (n: number): string => `chatcmpl-${ulid(n)}`;
const callOf = (n: number, at: number): string => `call_${ulid(n)}_${at}`;

interface Made { readonly host: ActorHost; readonly start: (n: number, messages: CompletionPrompt['messages'] | string, more?: Partial<CompletionStart>) => Promise<unknown> }
const made = (t: TestContext | undefined, options: { readonly tools?: Tools; readonly provider?: Provider; readonly onCrash?: (host: ActorHost) => void; readonly holdMs?: number } = {}): Made => {
  const tools = options.tools ?? builtin;
  const registry = createRegistry({ default: 'm', registry: [modelEntry.parse({ id: 'm', provider: 'mock', input_usd_per_mtok: 1_000, output_usd_per_mtok: 10_000 })] }, { mock: options.provider ?? mock() });
  const deps: CompletionDeps = { registry, blobs: memoryBlobs(), tools, ...(options.holdMs === undefined ? {} : { holdMs: options.holdMs }) };
  const host = actorHost([completion(deps), agent()], options.onCrash === undefined ? {} : { onCrash: options.onCrash });
  t?.after(() => { host.stop(); });
  return {
    host,
    start: (n, messages, more = {}) => {
      const list: CompletionPrompt['messages'] = typeof messages === 'string' ? [{ role: 'user', text: messages }] : messages;
      const offers = offersOf(tools).map((offer) => ({ ...offer, parameters: { ...offer.parameters } }));
      return host.ask(address, 'start', {
        id: idOf(n), model: 'm', by: 'usr_1', prompt: { messages: list, tools: offers, options: {} }, prompt_chars: 40, tools: [...tools.keys()], ...more,
      } satisfies CompletionStart, { kind: 'system' }, `start-${n}`);
    },
  };
};
const of = (events: readonly StoredEvent[], kind: string, n?: number): StoredEvent['d'][] => events.filter((e) => e.k === kind && (n === undefined || e.d['id'] === idOf(n))).map((e) => e.d);
const ended = (count: number) => (events: readonly StoredEvent[]): boolean => of(events, 'UsageMetered').length >= count;
const textOf = (events: readonly StoredEvent[], n: number): string => of(events, 'CompletionDelta', n).map((d) => String(d['text'])).join('');
const kinds = (events: readonly StoredEvent[]): string[] => events.map((e) => e.k).filter((k, i, all) => !k.startsWith('$') && k !== all[i - 1]);
const codeOf = (asked: Promise<unknown>): Promise<string> => asked.then(() => assert.fail('not refused'), (e: unknown) => (e instanceof CodedError ? e.code : assert.fail(String(e))));

/** The request that follows one whose call waited: the history with an empty result. */
const decided = (text: string, n: number, at = 0, name = 'send_report'): CompletionPrompt['messages'] => [
  { role: 'user', text }, { role: 'assistant', text: 'Let me.', calls: [{ call_id: callOf(n, at), name, arguments: {} }] },
  { role: 'tool', call_id: callOf(n, at), name, text: '', is_error: false },
];

test('completion tools - a call runs here, its result is what the next step reads; one end and one metering event over all steps', async (t) => {
  const seen: ProviderCall[] = [];
  const scripted = mock();
  const { host, start } = made(t, { provider: { continues: 'exact', stream: (call) => { seen.push(call); return scripted.stream(call); } } });
  await start(1, '/tool calculator {"expression":"6*7"}\n/then\n/say done');
  const events = await host.until(address, ended(1));
  assert.deepEqual(kinds(events), [
    'CompletionStarted', 'CompletionDelta', 'CompletionToolCall', 'CompletionStepEnded', 'CompletionToolStarted', 'CompletionToolResult', 'CompletionStepStarted', 'CompletionDelta', 'CompletionFinished', 'UsageMetered',
  ]);
  assert.deepEqual(of(events, 'CompletionToolCall'), [{ id: idOf(1), index: 0, call_id: callOf(1, 0), name: 'calculator', arguments: '{"expression":"6*7"}', here: true }]);
  assert.deepEqual(of(events, 'CompletionToolResult'), [{ id: idOf(1), call_id: callOf(1, 0), name: 'calculator', result: { value: '42', exact: true }, is_error: false }]);
  assert.deepEqual(seen[1]?.messages.slice(1), [
    { role: 'assistant', text: 'Let me use calculator.', calls: [{ call_id: callOf(1, 0), name: 'calculator', arguments: { expression: '6*7' } }] },
    { role: 'tool', call_id: callOf(1, 0), name: 'calculator', text: '{"value":"42","exact":true}', is_error: false },
  ]);
  const counts = seen.map(({ messages }) => messages.reduce((sum, { text }) => sum + Math.ceil(text.length / 4), 0));
  const usage = { input_tokens: (counts[0] ?? 0) + (counts[1] ?? 0), output_tokens: Math.ceil('Let me use calculator.'.length / 4) + 1, cost_cents: 0 };
  usage.cost_cents = Math.ceil(usage.input_tokens * 0.1 + usage.output_tokens);
  assert.deepEqual(of(events, 'CompletionFinished'), [{ id: idOf(1), finish_reason: 'stop', usage }]);
  assert.deepEqual(of(events, 'UsageMetered').map((d) => [d['usage'], d['counted']]), [[usage, true]]);
  assert.deepEqual(completionCommands.describe.output.parse(await host.ask(address, 'describe', {})), { running: 0, completions: 1, usage });
});

test('completion tools - what cannot run is told to the model: bad arguments, a tool that fails; a call of the client ends the answer', async (t) => {
  const { host, start } = made(t);
  await start(1, '/tool calculator {"expression":7}\n/tool calculator {"expression":"1/0"}\n/tool clock {"time_zone":"Nowhere"}');
  const events = await host.until(address, ended(1));
  const codes = of(events, 'CompletionToolResult').map((d) => [(d['result'] as { error: { code: string } }).error.code, d['is_error']]);
  assert.deepEqual(codes.map(([, isError]) => isError), [true, true, true]);
  assert.deepEqual([codes[0]?.[0], codes.map(([code]) => code).includes('unknown_time_zone')], ['bad_arguments', true]);
  assert.match(textOf(events, 1), /calculator failed: .*calculator failed: .*clock failed: /);

  await start(2, '/tool weather {"city":"Rome"}\n/tool clock');
  const mixed = await host.until(address, ended(2));
  assert.deepEqual(of(mixed, 'CompletionToolCall', 2).map((d) => [d['name'], d['here']]), [['weather', undefined], ['clock', true]]);
  assert.deepEqual(of(mixed, 'CompletionToolResult', 2).map((d) => d['name']), ['clock']);
  assert.deepEqual(of(mixed, 'CompletionFinished', 2).map((d) => d['finish_reason']), ['tool_calls']);
  assert.equal(of(mixed, 'CompletionStepStarted', 2).length, 0);
});

test('completion tools - a call that needs a person waits beyond its answer, runs once when it is allowed, and gives its result again to who allows it again', async (t) => {
  const { host, start } = made(t);
  await start(1, '/approve the numbers');
  const asked = await host.until(address, ended(1));
  assert.deepEqual(of(asked, 'CompletionApprovalRequested'), [{ id: idOf(1), call_id: callOf(1, 0), preview: 'File the report "Report": the numbers' }]);
  assert.deepEqual([of(asked, 'CompletionToolStarted').length, of(asked, 'CompletionFinished')[0]?.['finish_reason']], [0, 'tool_calls']);

  const approvals = [{ call_id: callOf(1, 0), approved: true }];
  for (const n of [2, 3]) {
    host.crash();
    await start(n, decided('/approve the numbers', 1), { approvals });
    const events = await host.until(address, ended(n));
    assert.equal(of(events, 'CompletionToolStarted').length, 1);
    assert.match(textOf(events, n), /^send_report says: \{"filed":true,"report_id":"\w+","title":"Report"\}$/);
    assert.deepEqual(of(events, 'CompletionFinished', n).map((d) => d['finish_reason']), ['stop']);
    const [first, ...more] = of(events, 'CompletionToolResult').map((d) => JSON.stringify(d['result']));
    assert.equal(more.length, n - 2);
    for (const again of more) assert.equal(again, first);
  }
  assert.equal(((await host.ask(agentOf('usr_1'), 'reports', {})) as { reports: unknown[] }).reports.length, 1);
  // No is no late: it was done.
  await start(4, decided('/approve the numbers', 1), { approvals: [{ call_id: callOf(1, 0), approved: false }] });
  assert.match(textOf(await host.until(address, ended(4)), 4), /"filed":true/);
});

test('completion tools - a denied call is never run; the model is told, with the reason', async (t) => {
  const { host, start } = made(t);
  await start(1, '/approve x');
  await host.until(address, ended(1));
  await start(2, decided('/approve x', 1), { approvals: [{ call_id: callOf(1, 0), approved: false, reason: 'not today' }] });
  const events = await host.until(address, ended(2));
  assert.deepEqual(of(events, 'CompletionApprovalDenied'), [{ id: idOf(2), call_id: callOf(1, 0), reason: 'not today' }]);
  assert.match(textOf(events, 2), /^send_report failed: .*not allow this call.*not today/);
  await start(3, decided('/approve x', 1), { approvals: [{ call_id: callOf(1, 0), approved: true }] });
  assert.match(textOf(await host.until(address, ended(3)), 3), /^send_report failed: /);
  assert.equal(of(await host.events(address), 'CompletionToolStarted').length, 0);
});

test('completion tools - a word on a call that never waited here is refused and changes nothing; only so many wait', async (t) => {
  const { host, start } = made(t);
  const word = (n: number, at: number) => start(n, decided('x', 1, at), { approvals: [{ call_id: callOf(1, at), approved: true }] });
  assert.equal(await codeOf(word(90, 0)), 'approval_unknown');
  assert.equal((await host.events(address)).filter((e) => e.k === 'CompletionStarted').length, 0);
  const many = limits.completionApprovalsMax + 2;
  await start(1, Array.from({ length: many }, () => '/approve x').join('\n'));
  const events = await host.until(address, ended(1));
  assert.equal(of(events, 'CompletionApprovalRequested').length, many);
  assert.equal(await codeOf(word(91, 1)), 'approval_unknown');
  await word(92, 2);
  await host.until(address, (now) => of(now, 'CompletionToolResult', 92).length === 1);
});

test('completion tools - a word on a call that is being run is refused, and one more call takes no room twice', async (t) => {
  const gate = Promise.withResolvers<void>();
  const slow = defineTool({ name: 'slow', description: '', parameters: z.object({}), needsApproval: true, idempotent: true, preview: () => 'Slow', run: async () => { await gate.promise; return 'ok'; } });
  const { host, start } = made(t, { tools: toolSet([slow]) });
  await start(1, '/tool slow {}');
  await host.until(address, ended(1));
  const approvals = [{ call_id: callOf(1, 0), approved: true }];
  await start(2, decided('/tool slow {}', 1, 0, 'slow'), { approvals });
  assert.equal(await codeOf(start(3, decided('/tool slow {}', 1, 0, 'slow'), { approvals })), 'session_busy');
  gate.resolve();
  assert.equal(textOf(await host.until(address, ended(2)), 2), 'slow says: "ok"');
});

test('completion tools - a cancel aborts the tool, its result says so, and nothing follows the end', async (t) => {
  const begun = Promise.withResolvers<void>();
  const aborted = Promise.withResolvers<void>();
  const stuck = defineTool({
    name: 'stuck', description: '', parameters: z.object({}), needsApproval: false, idempotent: true, preview: () => '',
    run: async (_, { signal }) => {
      begun.resolve();
      await new Promise<void>((resolve) => { signal.addEventListener('abort', () => { resolve(); }, { once: true }); });
      aborted.resolve();
      return 'late';
    },
  });
  const { host, start } = made(t, { tools: toolSet([stuck]) });
  await start(1, '/tool stuck {}');
  await begun.promise;
  await host.ask(address, 'cancel', { id: idOf(1) });
  await aborted.promise;
  await host.ask(address, 'describe', {});
  const events = await host.events(address);
  assert.deepEqual(of(events, 'CompletionToolResult').map((d) => d['result']), [{ error: { code: 'cancelled', message: 'The answer ended. It may have run.' } }]);
  assert.deepEqual(of(events, 'CompletionFinished').map((d) => d['finish_reason']), ['cancelled']);
  assert.equal(events.findLastIndex((e) => e.d['id'] === idOf(1) && !e.k.startsWith('$')), events.findIndex((e) => e.k === 'UsageMetered'));
});

test('completion tools - a model that calls for ever is ended after so many steps, one that is told too much with `length`', async (t) => {
  const again = (async function* (): AsyncGenerator<Part> {
    yield { kind: 'tool_call', call_id: 'c', name: 'clock', arguments: {} };
    yield { kind: 'end', finish_reason: 'tool_calls', usage: { input_tokens: 1, output_tokens: 1 } };
  });
  const { host, start } = made(t, { provider: { continues: 'exact', stream: again } });
  await start(1, 'x');
  const events = await host.until(address, ended(1));
  assert.deepEqual(of(events, 'CompletionFailed').map((d) => [d['code'], d['usage']]), [['too_many_steps', { input_tokens: limits.turnStepsMax, output_tokens: limits.turnStepsMax, cost_cents: Math.ceil(limits.turnStepsMax * 1.1) }]]);
  assert.equal(new Set(of(events, 'CompletionToolCall').map((d) => d['call_id'])).size, limits.turnStepsMax);

  const big = defineTool({ name: 'clock', description: '', parameters: z.object({}), needsApproval: false, idempotent: true, preview: () => '', run: async () => 'x'.repeat(limits.toolResultMaxBytes - 16) });
  const other = made(t, { provider: { continues: 'exact', stream: again }, tools: toolSet([big]) });
  await other.start(1, 'x');
  const long = await other.host.until(address, ended(1));
  assert.deepEqual(of(long, 'CompletionFinished').map((d) => d['finish_reason']), ['length']);
  assert.equal(of(long, 'CompletionToolResult').length, Math.ceil(limits.completionTranscriptMaxChars / (limits.toolResultMaxBytes - 16 + 2 + 7)));
});

test('completion tools - while the client is slow the model is not read beyond the buffer; then on, nothing lost', async (t) => {
  const piece = 'x'.repeat(1_024);
  const pieces = 160;
  let given = 0;
  const first = Promise.withResolvers<void>();
  const free = Promise.withResolvers<void>();
  const { host, start } = made(t, { provider: { continues: 'exact', stream: async function* ({ said }) {
    if (said === '') yield { kind: 'text', text: 'first' };
    first.resolve();
    await free.promise;
    const rest = `first${piece.repeat(pieces)}`.slice(Math.max(said.length, 'first'.length));
    for (given = 0; given * piece.length < rest.length; given++) yield { kind: 'text', text: rest.slice(given * piece.length, (given + 1) * piece.length) };
    yield { kind: 'end', finish_reason: 'stop', usage: undefined };
  } } });
  await start(1, 'x');
  await host.until(address, (events) => textOf(events, 1) === 'first');
  await first.promise;
  assert.deepEqual(await host.ask(address, 'pace', { id: idOf(1), held: true }), { known: true });
  free.resolve();
  // What is written while it is held: the write that was under way when the actor was told, and no other.
  await host.until(address, (events) => textOf(events, 1).length > 5);
  const bound = limits.deltaBufferBytes / piece.length;
  for (let at = -1; at !== given;) {
    at = given;
    for (let i = 0; i < 200; i++) await new Promise((resolve) => { setImmediate(resolve); });
  }
  assert.ok(given <= 2 * bound + 1 && given < pieces, `${given} pieces were read`);
  assert.ok(textOf(await host.events(address), 1).length <= 5 + limits.deltaBufferBytes);
  host.crash();
  assert.deepEqual(await host.ask(address, 'pace', { id: idOf(1), held: false }), { known: true });
  const events = await host.until(address, ended(1));
  assert.deepEqual(of(events, 'CompletionPaced').map((d) => d['held']), [true, false]);
  assert.equal(textOf(events, 1), `first${piece.repeat(pieces)}`);
  assert.deepEqual(await host.ask(address, 'pace', { id: idOf(1), held: true }), { known: false });
});

test('completion tools - a hold that nobody lifts ends by itself', async (t) => {
  const { host, start } = made(t, { holdMs: 5 });
  await start(1, '/slow 1 40');
  await host.ask(address, 'pace', { id: idOf(1), held: true });
  const events = await host.until(address, ended(1));
  assert.equal(textOf(events, 1).split(' ').length, 40);
});

test('completion tools - a host that is lost at any append: no tool that ended or must not run twice runs again, one result a call, one end and one metering event a request', async (t) => {
  const seed = runSeed();
  t.diagnostic(`seed ${seed}`);
  const step = fc.array(fc.constantFrom('again', 'once', 'asked', 'noted'), { minLength: 1, maxLength: 3 });
  const script = fc.array(step, { minLength: 1, maxLength: 3 });
  await fc.assert(fc.asyncProperty(fc.array(script, { minLength: 1, maxLength: 2 }), fc.array(fc.record({ at: fc.integer({ min: 1, max: 12 }), stored: fc.boolean() }), { maxLength: 5 }), fc.boolean(), async (scripts, crashes, approved) => {
    const ran = new Map<string, number>();
    const tool = (name: string, idempotent: boolean, needsApproval: boolean) => defineTool({
      name, description: '', parameters: z.object({ n: z.number() }), idempotent, needsApproval, preview: ({ n }) => `${name} ${n}`,
      run: async ({ n }, context) => {
        ran.set(`${name} ${context.id}`, (ran.get(`${name} ${context.id}`) ?? 0) + 1);
        await new Promise((resolve) => { setImmediate(resolve); });
        if (name === 'noted') await context.agent('remember', { fact: `fact ${context.id}`, source: 'test' });
        return { n };
      },
    });
    const left = [...crashes];
    const aim = (lost: ActorHost): void => {
      const next = left.shift();
      if (next !== undefined) lost.crashAt(next.at, next.stored);
    };
    const { host, start } = made(undefined, {
      tools: toolSet([tool('again', true, false), tool('once', false, false), tool('asked', false, true), tool('noted', true, false)]),
      // Nobody asks: the reminder wakes the actor on its new host.
      onCrash: (lost) => { aim(lost); setImmediate(() => { lost.advance(limits.turnWakeMs + 1); }); },
    });
    try {
      aim(host);
      let requests = 0;
      let n = 0;
      for (const steps of scripts) {
        const text = steps.map((calls) => calls.map((name, i) => `/tool ${name} {"n":${i}}`).join('\n')).join('\n/then\n');
        requests += 1;
        await start(++n, text);
        let events = await host.until(address, ended(requests));
        const waiting = of(events, 'CompletionApprovalRequested', n).map((d) => String(d['call_id']));
        if (waiting.length > 0) {
          // Twice: the second gets what the first did.
          for (const from of [n, n]) {
            requests += 1;
            await start(++n, [
              { role: 'user', text: '/say over' }, { role: 'assistant', text: '', calls: waiting.map((call_id) => ({ call_id, name: 'asked', arguments: { n: 0 } })) },
              ...waiting.map((call_id) => ({ role: 'tool' as const, call_id, name: 'asked', text: '', is_error: false })), { role: 'user', text: '/say over' },
            ], { approvals: waiting.map((call_id) => ({ call_id, approved })) });
            events = await host.until(address, ended(requests));
            assert.equal(textOf(events, n), 'over');
            assert.deepEqual(of(events, 'CompletionToolResult', n).map((d) => d['call_id']), waiting, `of ${from}`);
          }
          const [first, second] = [n - 1, n].map((id) => of(events, 'CompletionToolResult', id).map((d) => d['result']));
          assert.deepEqual(first, second);
        }
      }
      const events = await host.events(address);
      for (let i = 1; i <= n; i++) {
        const own = events.filter((e) => e.d['id'] === idOf(i) && !e.k.startsWith('$'));
        assert.equal(own.filter((e) => e.k === 'CompletionFinished' || e.k === 'CompletionFailed').length, 1);
        assert.equal(own.at(-1)?.k, 'UsageMetered');
        assert.equal(of(events, 'UsageMetered', i).length, 1);
        const results = of(events, 'CompletionToolResult', i).map((d) => d['call_id']);
        assert.equal(new Set(results).size, results.length, 'a call has two results');
        const waits = new Set(of(events, 'CompletionApprovalRequested', i).map((d) => d['call_id']));
        for (const { call_id: call } of of(events, 'CompletionToolCall', i)) assert.equal(results.includes(call), !waits.has(call), `${String(call)} of ${i}`);
      }
      const starts = of(events, 'CompletionToolStarted').map((d) => d['call_id']);
      assert.equal(new Set(starts).size, starts.length, 'a call was started twice');
      for (const [effect, count] of ran) if (/^(once|asked) /.test(effect)) assert.equal(count, 1, effect);
      if (!approved) assert.ok([...ran.keys()].every((effect) => !effect.startsWith('asked ')));
      if (host.crashes === 0) assert.ok([...ran.values()].every((count) => count === 1));
    } finally {
      host.stop();
    }
  }), { seed, numRuns: 60 });
});

test('completion tools - the fold takes any event at any time', () => {
  const id = idOf(1);
  const states = [
    fold.CompletionToolResult(initialCompletions(), { id, call_id: '__proto__', name: 'x', result: 1, is_error: false }),
    fold.CompletionApprovalRequested(initialCompletions(), { id, call_id: 'c', preview: '' }),
    fold.CompletionApprovalGranted(initialCompletions(), { id, call_id: 'c' }),
    fold.CompletionStepEnded(initialCompletions(), completionEvents.CompletionStepEnded.parse({ id, step: 0, tokens: { input_tokens: 1, output_tokens: 1 }, counted: true })),
    fold.CompletionStepStarted(initialCompletions(), { id, step: 3, effect_id: 'e' }),
    fold.CompletionToolStarted(initialCompletions(), { id, call_id: 'c', effect_id: 'e' }),
    fold.CompletionPaced(initialCompletions(), { id, held: true }),
  ];
  for (const state of states) assert.deepEqual(state, initialCompletions());
});
