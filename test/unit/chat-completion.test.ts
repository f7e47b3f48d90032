/** The completion actor on a host whose time and crashes the test controls: one end and one metering event for each, whatever happens. */
import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import fc from 'fast-check';
import { memoryBlobs } from '../../actors/blobs/memory.ts';
import { completion } from '../../actors/completion/completion.ts';
import { fold, initialCompletions } from '../../actors/completion/state.ts';
import { mock } from '../../actors/providers/mock.ts';
import { ProviderFault, type Part, type Provider, type ProviderCall } from '../../actors/providers/provider.ts';
import { createRegistry } from '../../actors/providers/registry.ts';
import { completionCommands, completionEvents, type CompletionStart } from '../../contracts/completion.ts';
import { modelEntry } from '../../contracts/config.ts';
import { CodedError } from '../../contracts/errors.ts';
import type { StoredEvent } from '../../contracts/event.ts';
import { limits } from '../../contracts/limits.ts';
import { actorHost, type ActorHost } from '../harness/actor-host.ts';
import { runSeed } from '../harness/seed.ts';

const address = { org: 'org_1', type: 'completion', key: 'k' };
const start = (id: string, text: string, more: Partial<CompletionStart> = {}): CompletionStart => ({
  id, model: 'm', by: 'usr_1', prompt: { messages: [{ role: 'user', text }], tools: [], options: {} }, prompt_chars: text.length, ...more,
});
const host = (t: TestContext | undefined, provider: Provider = mock(), onCrash?: () => void): { host: ActorHost; blobs: ReturnType<typeof memoryBlobs> } => {
  const blobs = memoryBlobs();
  const registry = createRegistry({ default: 'm', registry: [modelEntry.parse({ id: 'm', provider: 'mock', max_output_tokens: 100, input_usd_per_mtok: 1_000, output_usd_per_mtok: 10_000 })] }, { mock: provider });
  const made = actorHost([completion({ registry, blobs, tools: new Map() })], onCrash === undefined ? {} : { onCrash });
  t?.after(() => { made.stop(); });
  return { host: made, blobs };
};
const of = (events: readonly StoredEvent[], kind: string, id?: string): StoredEvent['d'][] => events.filter((e) => e.k === kind && (id === undefined || e.d['id'] === id)).map((e) => e.d);
const ended = (count: number) => (events: readonly StoredEvent[]): boolean => of(events, 'UsageMetered').length >= count;
const textOf = (events: readonly StoredEvent[], id: string): string => of(events, 'CompletionDelta', id).map((d) => String(d['text'])).join('');

/** A provider of one's own. */
const saying = (stream: (call: ProviderCall) => AsyncIterable<Part>): Provider => ({ continues: 'exact', stream });

test('completion - request, text, end and cost are journaled, the end and its one metering event in one commit', async (t) => {
  const { host: h } = host(t);
  await h.ask(address, 'start', start('c1', '/long 10', { metadata: { team: 'blue' } }));
  const events = await h.until(address, ended(1));
  assert.deepEqual(events.map((e) => e.k).filter((k, i, all) => !k.startsWith('$') && k !== all[i - 1]), ['CompletionStarted', 'CompletionDelta', 'CompletionFinished', 'UsageMetered']);
  const usage = { input_tokens: 2, output_tokens: 8, cost_cents: 9 };
  assert.equal(textOf(events, 'c1'), 'w1 w2 w3 w4 w5 w6 w7 w8 w9 w10');
  assert.deepEqual(of(events, 'CompletionFinished'), [{ id: 'c1', finish_reason: 'stop', usage }]);
  assert.deepEqual(of(events, 'UsageMetered'), [{ id: 'c1', by: 'usr_1', model: 'm', usage, counted: true }]);
  assert.deepEqual(completionCommands.describe.output.parse(await h.ask(address, 'describe', {})), { running: 0, completions: 1, usage });
});

test('completion - a repeat of a start that runs changes nothing; so do a cancel of what is over and one of what never was', async (t) => {
  const { host: h } = host(t);
  await h.ask(address, 'start', start('c1', '/hang 2'));
  await h.ask(address, 'start', start('c1', '/say other'));
  await h.until(address, (events) => textOf(events, 'c1') === 'w1 w2');
  assert.deepEqual(await h.ask(address, 'cancel', { id: 'c1' }), { known: true });
  assert.deepEqual(await h.ask(address, 'cancel', { id: 'c1' }), { known: false });
  assert.deepEqual(await h.ask(address, 'cancel', { id: 'c9' }), { known: false });
  const events = await h.events(address);
  assert.equal(of(events, 'CompletionStarted').length, 1);
  // Two tokens in, five characters out.
  assert.deepEqual(of(events, 'UsageMetered'), [{ id: 'c1', by: 'usr_1', model: 'm', usage: { input_tokens: 2, output_tokens: 2, cost_cents: 3 }, counted: false }]);
  assert.deepEqual(of(events, 'CompletionFinished').map((d) => d['finish_reason']), ['cancelled']);
});

test('completion - a cancel aborts the model call, and what it sends after that is nowhere', async (t) => {
  const aborted = Promise.withResolvers<void>();
  const { host: h } = host(t, saying(async function* (call) {
    yield { kind: 'text', text: 'before' };
    await new Promise<void>((resolve) => { call.signal.addEventListener('abort', () => { resolve(); }, { once: true }); });
    aborted.resolve();
    yield { kind: 'text', text: 'after' };
    yield { kind: 'end', finish_reason: 'stop', usage: { input_tokens: 900, output_tokens: 900 } };
  }));
  await h.ask(address, 'start', start('c1', 'x'));
  await h.until(address, (events) => textOf(events, 'c1') === 'before');
  await h.ask(address, 'cancel', { id: 'c1' });
  await aborted.promise;
  await h.ask(address, 'describe', {});
  const events = await h.events(address);
  assert.equal(textOf(events, 'c1'), 'before');
  assert.equal(of(events, 'UsageMetered').length, 1);
});

test('completion - a failure is told with its code, bugs without their words; one that never began costs nothing', async (t) => {
  const { host: h } = host(t, saying(async function* (call) {
    const [message] = call.messages;
    if (message?.text === 'bug') throw new TypeError('at secret.ts');
    if (message?.text === 'begun') throw new ProviderFault('provider_error', 'cut', false, true);
    yield { kind: 'text', text: 'some' };
    throw new CodedError('provider_error', 'The model failed.');
  }));
  await h.ask(address, 'start', start('c1', 'bug'));
  await h.ask(address, 'start', start('c2', 'fault'));
  await h.ask(address, 'start', start('c3', 'begun'));
  const events = await h.until(address, ended(3));
  // What the provider read until it broke off is used, though nothing of its answer arrived.
  assert.deepEqual(of(events, 'UsageMetered', 'c3').map((d) => [(d['usage'] as { input_tokens: number }).input_tokens, d['counted']]), [[2, false]]);
  assert.deepEqual(of(events, 'CompletionFailed', 'c1'), [{ id: 'c1', code: 'internal_error', message: 'Something went wrong on our side.', usage: { input_tokens: 0, output_tokens: 0, cost_cents: 0 } }]);
  assert.deepEqual(of(events, 'CompletionFailed', 'c2'), [{ id: 'c2', code: 'provider_error', message: 'The model failed.', usage: { input_tokens: 2, output_tokens: 1, cost_cents: 2 } }]);
});

test('completion - tool calls are given out in order with ids, and are never asked for again after a lost host', async (t) => {
  let calls = 0;
  const gate = Promise.withResolvers<void>();
  const { host: h } = host(t, saying(async function* () {
    calls += 1;
    yield { kind: 'tool_call', call_id: '', name: 'a', arguments: { n: 1 } };
    yield { kind: 'tool_call', call_id: 'mine', name: 'b', arguments: 'not JSON' };
    await gate.promise;
    yield { kind: 'end', finish_reason: 'tool_calls', usage: undefined };
  }));
  await h.ask(address, 'start', start('c1', 'x'));
  await h.until(address, (events) => of(events, 'CompletionToolCall').length === 2);
  h.crash();
  const events = await Promise.all([h.ask(address, 'describe', {}), h.until(address, ended(1))]).then(([, found]) => found);
  gate.resolve();
  assert.equal(calls, 1);
  const made = of(events, 'CompletionToolCall');
  assert.match(String(made[0]?.['call_id']), /^call_[0-9A-Z]{26}$/);
  assert.deepEqual(made.map(({ call_id: _id, ...rest }) => rest), [{ id: 'c1', index: 0, name: 'a', arguments: '{"n":1}' }, { id: 'c1', index: 1, name: 'b', arguments: 'not JSON' }]);
  assert.deepEqual(of(events, 'CompletionFinished').map((d) => d['finish_reason']), ['tool_calls']);
});

test('completion - a large prompt is read from its blob; one that is gone is a failure', async (t) => {
  const { host: h, blobs } = host(t);
  const { hash } = await blobs.put(address.org, [Buffer.from(JSON.stringify({ messages: [{ role: 'user', text: '/say from the blob' }], tools: [], options: {} }))]);
  const { prompt: _prompt, ...rest } = start('c1', 'x');
  await h.ask(address, 'start', { ...rest, blob: hash });
  await h.ask(address, 'start', { ...rest, id: 'c2', blob: `sha256:${'0'.repeat(64)}` });
  const events = await h.until(address, ended(2));
  assert.equal(textOf(events, 'c1'), 'from the blob');
  assert.deepEqual(of(events, 'CompletionFailed', 'c2').map((d) => d['code']), ['blob_not_found']);
});

test('completion - at most so many run at once here, an unknown model begins nothing', async (t) => {
  const { host: h } = host(t);
  const code = async (input: CompletionStart): Promise<string> => {
    const error: unknown = await h.ask(address, 'start', input).then(() => assert.fail('not refused'), (e: unknown) => e);
    return error instanceof CodedError ? error.code : assert.fail(String(error));
  };
  assert.equal(await code(start('c0', 'x', { model: 'none' })), 'model_not_supported');
  for (let i = 0; i < limits.completionsPerActorMax; i++) await h.ask(address, 'start', start(`c${i}`, '/hang 1'));
  assert.equal(await code(start('over', 'x')), 'session_busy');
  await h.ask(address, 'cancel', { id: 'c0' });
  await h.ask(address, 'start', start('now', '/say x'));
  for (let i = 1; i < limits.completionsPerActorMax; i++) await h.ask(address, 'cancel', { id: `c${i}` });
  assert.equal(of(await h.until(address, ended(limits.completionsPerActorMax + 1)), 'CompletionStarted').length, limits.completionsPerActorMax + 1);
});

test('completion - a host that is lost at any append: every text once and whole, one end and one metering event each', async (t) => {
  const seed = runSeed();
  t.diagnostic(`seed ${seed}`);
  const script = fc.record({ words: fc.integer({ min: 1, max: 60 }), end: fc.constantFrom('stop', 'cut', 'fail') });
  await fc.assert(fc.asyncProperty(fc.array(script, { minLength: 1, maxLength: 4 }), fc.array(fc.record({ at: fc.integer({ min: 1, max: 9 }), stored: fc.boolean() }), { maxLength: 4 }), async (scripts, crashes) => {
    const left = [...crashes];
    const aim = (): void => {
      const next = left.shift();
      if (next !== undefined) h.crashAt(next.at, next.stored);
      // Whoever holds the actor next is woken as by the reminder.
      h.ask(address, 'describe', {}).catch(() => undefined);
    };
    const { host: h } = host(undefined, mock(), aim);
    try {
      aim();
      const line = { stop: '/long', cut: '/cut-after', fail: '/fail-after' } as const;
      await Promise.all(scripts.map((one, i) => h.ask(address, 'start', start(`c${i}`, `${line[one.end]} ${one.words}`), { kind: 'system' }, `c${i}`)));
      const events = await h.until(address, ended(scripts.length));
      for (const [i, one] of scripts.entries()) {
        const id = `c${i}`;
        const words = Array.from({ length: one.words }, (_, n) => `w${n + 1}`).join(' ');
        assert.equal(textOf(events, id), one.end === 'cut' ? `${words} and on.` : words);
        const [first, ...more] = [...of(events, 'CompletionFinished', id), ...of(events, 'CompletionFailed', id)];
        assert.ok(first !== undefined && more.length === 0);
        assert.deepEqual(of(events, 'UsageMetered', id).map((d) => d['usage']), [first['usage']]);
        assert.equal(events.findLastIndex((e) => e.d['id'] === id && !e.k.startsWith('$')), events.findIndex((e) => e.k === 'UsageMetered' && e.d['id'] === id));
      }
    } finally {
      h.stop();
    }
  }), { seed, numRuns: 60 });
});

test('completion - the fold takes any event at any time', () => {
  const usage = { input_tokens: 1, output_tokens: 1, cost_cents: 1 };
  const begun = fold.CompletionStarted(initialCompletions(), { ...start('c1', 'x'), effect_id: 'e' });
  const over = fold.CompletionFinished(begun, completionEvents.CompletionFinished.parse({ id: 'c1', finish_reason: 'stop', usage }));
  assert.deepEqual(over, initialCompletions());
  assert.deepEqual(fold.CompletionDelta(over, { id: 'c1', text: 'late' }), over);
  assert.deepEqual(fold.CompletionToolCall(over, { id: '__proto__', index: 0, call_id: 'a', name: 'b', arguments: '' }), over);
});
