/** A chat request: what is taken, what it becomes for the model, which conversation it belongs to. No stack. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { conversationOf, promptChars, promptOf } from '../../actors/daemon/platform/chat-prompt.ts';
import { ChunkWriter, wholeAnswer } from '../../actors/daemon/platform/chat-wire.ts';
import { chatChunk, chatCompletion, chatError, completionRequest } from '../../contracts/chat.ts';
import { completionPrompt } from '../../contracts/completion.ts';
import { limits } from '../../contracts/limits.ts';
import { isShallow } from '../../contracts/nesting.ts';
import { uiChatRequest } from '../../contracts/ui-chat.ts';
import { issuesOf, parseJson } from '../../contracts/validate.ts';
import { runSeed } from '../harness/seed.ts';

const user = (content: string): object => ({ role: 'user', content });
const request = (messages: readonly object[], more: object = {}) => completionRequest.parse({ model: 'm', messages, ...more });
const fields = (value: unknown): string[] => (completionRequest.safeParse(value).error?.issues ?? []).map((issue) => issue.path.join('.'));
const nested = (levels: number, open: string, close: string): unknown => JSON.parse(`${open.repeat(levels)}1${close.repeat(levels)}`);

test('chat request - each field that is not honoured is named, also beside others [CHAT-019]', () => {
  assert.deepEqual(fields({ model: 'm', messages: [user('x')], seed: 1, logit_bias: {}, __proto__x: 1 }), ['seed', 'logit_bias', '__proto__x']);
  assert.deepEqual(fields({ model: 'm', messages: [user('x')], store: true }), ['store']);
  assert.deepEqual(fields({ messages: [user('x')] }), ['model']);
  assert.deepEqual(fields({ model: 'm', messages: [user('x')], stop: ['a', 'b', 'c', 'd', 'e'] }), ['stop']);
  assert.deepEqual(fields({ model: 'm', messages: [user('x')], tool_choice: 'required' }), ['tool_choice']);
  assert.deepEqual(fields({ model: 'm', messages: [user('x')], tools: [1, 1].map(() => ({ type: 'function', function: { name: 'same' } })) }), ['tools.1.function.name']);
});

test('chat request - null is as if it were left out', () => {
  const names = ['stream', 'stream_options', 'tools', 'tool_choice', 'temperature', 'top_p', 'max_tokens', 'max_completion_tokens', 'stop', 'user', 'metadata', 'n', 'frequency_penalty', 'presence_penalty', 'logprobs', 'response_format', 'modalities', 'parallel_tool_calls'];
  assert.deepEqual(promptOf(request([user('x')], Object.fromEntries(names.map((name) => [name, null])))), { messages: [{ role: 'user', text: 'x' }], tools: [], options: {} });
});

test('chat request - parameters nested deeper than any stack are refused, arguments so deep stay text', () => {
  const tool = (parameters: unknown): object => ({ type: 'function', function: { name: 't', parameters } });
  assert.deepEqual(fields({ model: 'm', messages: [user('x')], tools: [tool({ a: nested(100_000, '[', ']') })] }), ['tools.0.function.parameters']);
  assert.deepEqual(fields({ model: 'm', messages: [user('x')], tools: [tool(nested(limits.chatDepthMax, '{"a":', '}'))] }), []);
  assert.equal(isShallow(nested(limits.chatDepthMax + 1, '[', ']')), false);
  const deep = `${'['.repeat(500_000)}${']'.repeat(500_000)}`;
  const prompt = promptOf(request([{ role: 'assistant', tool_calls: [{ id: 'c', type: 'function', function: { name: 't', arguments: deep } }] }, { role: 'tool', tool_call_id: 'c', content: 'r' }]));
  assert.deepEqual(prompt.messages[0], { role: 'assistant', text: '', calls: [{ call_id: 'c', name: 't', arguments: deep }] });
  assert.doesNotThrow(() => JSON.stringify(prompt));
});

test('chat request - whatever is taken can be journaled, and read again as it was', () => {
  const text = fc.string({ unit: 'binary' });
  const turn = fc.oneof(
    fc.record({ role: fc.constantFrom('system', 'developer', 'user'), content: fc.oneof(text, fc.array(fc.record({ type: fc.constant('text'), text }), { minLength: 1, maxLength: 3 })) }),
    fc.record({ role: fc.constant('assistant'), content: fc.oneof(text, fc.constant(null)), tool_calls: fc.uniqueArray(fc.record({ id: fc.constantFrom('a', 'b'), type: fc.constant('function'), function: fc.record({ name: fc.constant('t'), arguments: fc.oneof(fc.json(), text) }) }), { maxLength: 2, selector: ({ id }) => id }) }),
  );
  const seed = runSeed();
  fc.assert(fc.property(fc.array(turn, { maxLength: 6 }), text, (turns, last) => {
    const prompt = promptOf(request([...turns, user(last)]));
    const read = completionPrompt.parse(JSON.parse(JSON.stringify(prompt)));
    assert.equal(JSON.stringify(read), JSON.stringify(prompt));
    assert.ok(Number.isInteger(promptChars(prompt)));
  }), { seed });
});

test('chat request - a conversation is named by its beginning, and goes on under that name [CHAT-031]', () => {
  const of = (...messages: object[]): string => conversationOf(promptOf(request(messages)));
  const system = { role: 'system', content: 's' };
  const name = of(system, user('first'));
  assert.equal(of(system, user('first'), { role: 'assistant', content: 'a' }, user('second')), name);
  assert.notEqual(of(system, user('other')), name);
  assert.notEqual(of(user('first')), name);
});

test('chat request - chunks and whole answers are of the contract; content is null for calls alone [CHAT-003] [CHAT-004]', () => {
  const head = { id: 'c', created: 1, model: 'm' };
  const usage = { input_tokens: 1, output_tokens: 2, cost_cents: 0 };
  const call = { id: 'c', index: 0, call_id: 'k', name: 't', arguments: '{}' };
  const writer = new ChunkWriter(head, true);
  const text = writer.text('a') + writer.toolCall(call) + writer.finished({ id: 'c', finish_reason: 'other', usage });
  const events = text.split('\n\n').slice(0, -1).map((event) => event.slice('data: '.length));
  assert.equal(events.pop(), '[DONE]');
  const chunks = events.map((event) => chatChunk.parse(JSON.parse(event)));
  assert.deepEqual(chunks.map((chunk) => chunk.choices[0]?.finish_reason ?? null), [null, null, null, null, 'tool_calls', null]);
  assert.deepEqual(chunks.at(-1)?.usage, { prompt_tokens: 1, completion_tokens: 2, total_tokens: 3 });
  const empty = new ChunkWriter(head, false).finished({ id: 'c', finish_reason: 'stop', usage });
  assert.equal(empty.split('\n\n').length, 4);
  const whole = chatCompletion.parse(wholeAnswer(head, '', [call], { id: 'c', finish_reason: 'tool_calls', usage }));
  assert.deepEqual([whole.choices[0]?.message.content, whole.choices[0]?.finish_reason], [null, 'tool_calls']);
  assert.equal(chatCompletion.parse(wholeAnswer(head, '', [], { id: 'c', finish_reason: 'stop', usage })).choices[0]?.message.content, '');
});

test('chat request - the type of an error follows its status [CHAT-021] [CHAT-022] [CHAT-023]', () => {
  const typeOf = (status: number): unknown => (chatError(status, { code: 'c', message: 'm' }) as { error: { type: unknown } }).error.type;
  assert.deepEqual([400, 401, 402, 403, 404, 413, 429, 500, 502, 503, 504].map(typeOf), [
    'invalid_request_error', 'authentication_error', 'invalid_request_error', 'permission_error', 'not_found_error', 'invalid_request_error', 'rate_limit_error', 'api_error', 'api_error', 'api_error', 'api_error',
  ]);
});

test('chat request - what is deeper than any stack is refused wherever it is, never thrown over', () => {
  const deep = nested(200_000, '[', ']');
  const parts = (...all: object[]): object => ({ model: 'm', messages: [{ id: 'a', role: 'assistant', parts: all }, { role: 'user', parts: [{ type: 'text', text: 'x' }] }] });
  for (const body of [
    parts({ type: 'text', text: 'x', more: deep }), parts({ type: 'tool-a', toolCallId: 'c', state: 'output-available', input: deep }),
    parts({ type: 'tool-a', toolCallId: 'c', state: 'output-available', output: deep }), { ...parts(), messages: [{ role: 'user', parts: [{ type: 'text', text: 'x' }], metadata: deep }] },
  ]) assert.equal(uiChatRequest.safeParse(body).success, false);
  assert.throws(() => parseJson(`{"a":${'['.repeat(200_000)}${']'.repeat(200_000)}}`), { code: 'bad_request' });
  assert.deepEqual(parseJson('[[1]]'), [[1]]);
});

test('chat request - a hundred thousand wrong names or pairs are a few short problems', () => {
  const many = Object.fromEntries(Array.from({ length: 100_000 }, (_, i) => [`k${i}`, 0]));
  for (const [body, most] of [
    [{ model: 'm', messages: [user('x')], metadata: many }, 1], [{ model: 'm', messages: [user('x')], ...many }, limits.issuesMax], [{ model: 'm', messages: [{ ...user('x'), ...many }] }, 1],
    [{ model: 'm', messages: [user('x')], ['k'.repeat(1_000_000)]: 0 }, 1],
  ] as const) {
    const { error } = completionRequest.safeParse(body);
    assert.ok(error !== undefined && error.issues.length <= most, String(error?.issues.length));
    assert.ok(JSON.stringify(issuesOf(error)).length < 5_000);
  }
  assert.equal(completionRequest.safeParse({ model: 'm', messages: [user('x')], metadata: { a: 'b' } }).success, true);
  for (const metadata of ['x', 7, [], { a: 1 }]) assert.equal(completionRequest.safeParse({ model: 'm', messages: [user('x')], metadata }).success, false);
});

test('chat request - a call has one id, one result and one decision; an id of a turn before may come again', () => {
  const made = (...ids: string[]): object => ({ role: 'assistant', content: '', tool_calls: ids.map((id) => ({ id, type: 'function', function: { name: 't', arguments: '{}' } })) });
  const told = (id: string, content: unknown = 'x'): object => ({ role: 'tool', tool_call_id: id, content });
  const of = (...messages: object[]): string[] => fields({ model: 'm', messages: [user('x'), ...messages] });
  assert.deepEqual(of(made('a', 'b'), told('a'), told('b')), []);
  assert.deepEqual(of(made('a'), told('a'), made('a'), told('a')), []);
  assert.deepEqual(of(made('a', 'a'), told('a')), ['messages.1.tool_calls.1.id']);
  assert.deepEqual(of(made('a'), told('a'), told('a')), ['messages.3.tool_call_id']);
  assert.deepEqual(of(told('a')), ['messages.1.tool_call_id']);
  const word = (approved: boolean): object => told('a', [{ type: 'tool-approval-response', approved }]);
  const decided = (...words: object[]): boolean => uiChatRequest.safeParse({ model: 'm', messages: [user('x'), made('a'), ...words] }).success;
  assert.deepEqual([decided(word(true)), decided(word(true), word(false)), decided(word(true), told('a'))], [true, false, false]);
  const part = (approved: boolean): object => ({ type: 'tool-t', toolCallId: 'a', state: 'approval-responded', input: {}, approval: { id: 'a', approved } });
  const parts = (...all: object[]): boolean => uiChatRequest.safeParse({ model: 'm', messages: [{ role: 'user', parts: [{ type: 'text', text: 'x' }] }, { role: 'assistant', parts: all }] }).success;
  assert.deepEqual([parts(part(true)), parts(part(true), part(false)), parts(part(true), { type: 'step-start' }, part(false))], [true, false, false]);
});
