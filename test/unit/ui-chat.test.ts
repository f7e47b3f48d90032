/** Chat for user interfaces without a stack: what a conversation of parts becomes, and that whatever a model does is a stream AI SDK v6 reads. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DefaultChatTransport, readUIMessageStream, type UIMessage, type UIMessageChunk } from 'ai';
import fc from 'fast-check';
import { uiMessageStream, uiParts } from '../../actors/daemon/platform/ui-chat.ts';
import { limits } from '../../contracts/limits.ts';
import { acceptsEvents, approvalsOf, completionOf, hasParts, uiChatRequest, uiChunk, uiPartEvent } from '../../contracts/ui-chat.ts';
import { runSeed } from '../harness/seed.ts';

const parts = (...list: object[]): object[] => list;
const user = { id: 'u', role: 'user', parts: [{ type: 'text', text: 'hi' }] };

test('ui chat request - parts become the messages a model reads: steps, results, what nobody answered is left out', () => {
  const request = uiChatRequest.parse({
    id: 'c', trigger: 'submit-message', messageId: 'm',
    messages: [
      { id: 's', role: 'system', parts: parts({ type: 'text', text: 'be ' }, { type: 'text', text: 'kind' }) },
      user,
      {
        id: 'a', role: 'assistant', metadata: { any: 1 },
        parts: parts(
          { type: 'step-start' }, { type: 'reasoning', text: 'hm' }, { type: 'text', text: 'Let me look.', state: 'done' },
          { type: 'tool-weather', toolCallId: 'c1', state: 'output-available', input: { city: 'Rome' }, output: { sky: 'blue' } },
          { type: 'dynamic-tool', toolName: 'news', toolCallId: 'c2', state: 'output-error', input: { a: 1 }, errorText: 'no paper' },
          { type: 'tool-pay', toolCallId: 'c3', state: 'output-denied', input: {}, approval: { id: 'p', approved: false, reason: 'too much' } },
          { type: 'tool-late', toolCallId: 'c4', state: 'input-available', input: {} },
          { type: 'step-start' }, { type: 'text', text: 'Blue.' }, { type: 'source-url', sourceId: 's', url: 'https://example.com' }, { type: 'data-mood', data: 1 },
        ),
      },
      { id: 'b', role: 'assistant', parts: parts({ type: 'tool-late', toolCallId: 'c5', state: 'approval-requested', input: {}, approval: { id: 'q' } }) },
      { id: 'v', role: 'user', parts: [{ type: 'text', text: 'thanks' }] },
    ],
  });
  assert.equal(hasParts(request), true);
  const call = (id: string, name: string, text: string): object => ({ id, type: 'function', function: { name, arguments: text } });
  assert.deepEqual(completionOf(request, 'm').messages, [
    { role: 'system', content: 'be kind' }, { role: 'user', content: 'hi' },
    { role: 'assistant', content: 'Let me look.', tool_calls: [call('c1', 'weather', '{"city":"Rome"}'), call('c2', 'news', '{"a":1}'), call('c3', 'pay', '{}')] },
    { role: 'tool', tool_call_id: 'c1', content: '{"sky":"blue"}' }, { role: 'tool', tool_call_id: 'c2', content: 'no paper' }, { role: 'tool', tool_call_id: 'c3', content: 'too much' },
    { role: 'assistant', content: 'Blue.' }, { role: 'user', content: 'thanks' },
  ]);
});

test('ui chat request - messages of content are a chat request as they are, with tool calls and results', () => {
  const messages = [
    { role: 'user', content: 'x' }, { role: 'assistant', content: null, tool_calls: [{ id: 'c', type: 'function', function: { name: 't', arguments: '{}' } }] },
    { role: 'tool', tool_call_id: 'c', content: 'y' },
  ];
  const request = uiChatRequest.parse({ model: 'm', messages });
  assert.deepEqual([hasParts(request), completionOf(request, 'm').messages], [false, messages]);
  assert.equal(uiChatRequest.safeParse({ model: 'm', messages: messages.slice(2) }).success, false);
});

test('ui chat request - a person\'s word is of the last message; its call\'s result is left empty, an earlier one\'s is not run', () => {
  const part = (id: string, approved: boolean, more: object = {}): object => ({ type: 'tool-send', toolCallId: id, state: 'approval-responded', input: {}, approval: { id, approved, ...more } });
  const user = { role: 'user', parts: [{ type: 'text', text: 'hi' }] };
  const ends = uiChatRequest.parse({ messages: [user, { role: 'assistant', parts: [part('a', true), part('b', false, { reason: 'no' })] }] });
  assert.deepEqual(approvalsOf(ends), [{ call_id: 'a', approved: true }, { call_id: 'b', approved: false, reason: 'no' }]);
  assert.deepEqual(completionOf(ends, 'm').messages.slice(2), ['a', 'b'].map((id) => ({ role: 'tool', tool_call_id: id, content: '' })));
  const went = uiChatRequest.parse({ messages: [user, { role: 'assistant', parts: [part('a', true), part('b', false)] }, user] });
  assert.deepEqual(approvalsOf(went), []);
  assert.deepEqual(completionOf(went, 'm').messages.slice(2), [{ role: 'tool', tool_call_id: 'b', content: 'The call was denied.' }, { role: 'user', content: 'hi' }]);
  for (const bad of [{ ...part('a', true), approval: { id: 'a' } }, { ...part('a', true), approval: undefined }]) {
    assert.equal(uiChatRequest.safeParse({ messages: [user, { role: 'assistant', parts: [bad] }] }).success, false);
  }
  const many = Array.from({ length: limits.completionApprovalsMax + 1 }, (_, i) => part(`c${i}`, true));
  assert.equal(uiChatRequest.safeParse({ messages: [user, { role: 'assistant', parts: many }] }).success, false);
});

test('ui chat request - an issue names the message of the client, not one it became', () => {
  const two = { id: 'a', role: 'assistant', parts: parts({ type: 'text', text: 'a' }, { type: 'step-start' }, { type: 'text', text: 'b' }) };
  const parsed = uiChatRequest.safeParse({ messages: [user, two] });
  assert.deepEqual(parsed.error?.issues.map(({ path }) => path), [['messages', 1]]);
});

test('ui chat request - whatever comes is refused or taken, never a crash', () => {
  const value = fc.oneof(fc.string(), fc.integer(), fc.constant(null), fc.object({ maxDepth: 2 }));
  const part = fc.record({
    type: fc.constantFrom('text', 'tool-x', 'dynamic-tool', 'step-start', 'file', 'data-x', 'reasoning', 'tool-', ''), text: fc.string(), toolCallId: fc.string({ minLength: 1 }), toolName: value,
    state: fc.constantFrom('output-available', 'output-error', 'output-denied', 'input-available', 'x'), input: value, output: value, errorText: value,
  }, { requiredKeys: ['type'] });
  const message = fc.record({ role: fc.constantFrom('user', 'assistant', 'system', 'tool', 'x'), parts: fc.array(part, { maxLength: 4 }), content: value, id: value }, { requiredKeys: ['role'] });
  let taken = 0;
  fc.assert(fc.property(fc.record({ messages: fc.array(message, { maxLength: 4 }), stream: fc.option(fc.boolean()) }), ({ messages, ...more }) => {
    // With a good end, so that some are taken.
    const parsed = uiChatRequest.safeParse({ messages: [...messages, user], ...more });
    if (!parsed.success) {
      assert.ok(parsed.error.issues.length > 0);
      return;
    }
    taken += 1;
    // What is taken is a chat request, and is taken again by the daemon as it came from the gateway.
    const again = uiChatRequest.parse(JSON.parse(JSON.stringify(parsed.data)));
    assert.deepEqual(completionOf(again, 'm'), completionOf(parsed.data, 'm'));
  }), { seed: runSeed(), numRuns: 500 });
  assert.ok(taken > 20, `taken: ${taken}`);
});

test('ui chat request - events are asked for by media type, not by a wildcard', () => {
  for (const accept of ['text/event-stream', 'application/json, Text/Event-Stream;q=0.1', 'text/event-stream; charset=utf-8']) assert.equal(acceptsEvents(accept), true, accept);
  for (const accept of ['', '*/*', 'text/*', 'application/json', 'text/event-stream;q=0', 'text/event-stream;q=0.000', 'text/event-streams']) assert.equal(acceptsEvents(accept), false, accept);
});

const usage = { input_tokens: 1, output_tokens: 2, cost_cents: 0 };
/** The reader of the library's own transport. */
class Reading extends DefaultChatTransport<UIMessage> {
  read(text: string): ReadableStream<UIMessageChunk> {
    return this.processResponseStream(new Blob([text]).stream());
  }
}
const happening = fc.oneof(
  fc.record({ kind: fc.constant('text' as const), text: fc.string({ unit: 'binary', minLength: 1 }).map((text) => text.toWellFormed()) }),
  fc.record({ kind: fc.constant('call' as const), name: fc.constantFrom('weather', 'news'), arguments: fc.constantFrom('{}', '{"a":[1]}', 'no json', '7'), state: fc.constantFrom('input-available', 'output-available', 'approval-requested') }),
  fc.record({ kind: fc.constant('step' as const) }),
);

test('ui chat answer - whatever a model does is a stream that the AI SDK reads to its end, with all of it [CHAT-045] [CHAT-047] [CHAT-048]', async () => {
  await fc.assert(fc.asyncProperty(fc.array(happening, { maxLength: 12 }), fc.constantFrom('stop', 'length', 'content_filter', 'tool_calls', 'other', 'cancelled', 'failed'), async (list, end) => {
    const writer = uiMessageStream({ id: 'c', model: 'm' }, 'msg');
    const told = (one: (typeof list)[number], index: number): string => {
      if (one.kind === 'text') return writer.text(one.text);
      if (one.kind === 'step') return writer.step?.() ?? assert.fail('no step');
      const call = { id: 'c', call_id: `call_${index}`, name: one.name };
      const made = writer.toolCall({ ...call, index, arguments: one.arguments });
      if (one.state === 'output-available') return made + (writer.toolResult?.({ ...call, result: { n: index }, is_error: false }) ?? '');
      return one.state === 'approval-requested' ? made + (writer.approval?.({ ...call, preview: 'May it?' }) ?? '') : made;
    };
    let text = list.map(told).join('');
    text += end === 'failed' ? writer.failed({ code: 'provider_error', message: 'It broke.' }, text !== '') ?? '' : writer.finished({ id: 'c', finish_reason: end as 'stop', usage });
    const lines = text.split('\n\n').filter((line) => line !== '').map((line) => line.slice(6));
    assert.equal(lines.includes('[DONE]'), end !== 'failed');
    const chunks = lines.filter((line) => line !== '[DONE]').map((line) => uiChunk.parse(JSON.parse(line)));
    // Of every text: begun once, said inside, ended once.
    let open: string | undefined;
    const opened = new Set<string>();
    for (const chunk of chunks) {
      if (chunk.type === 'text-start') {
        assert.ok(open === undefined && !opened.has(chunk.id));
        open = chunk.id;
        opened.add(chunk.id);
      } else if (chunk.type === 'text-delta') assert.equal(chunk.id, open);
      else if (chunk.type === 'text-end') {
        assert.equal(chunk.id, open);
        open = undefined;
      } else assert.equal(open, undefined, chunk.type);
    }
    const problems: unknown[] = [];
    let last: UIMessage | undefined;
    for await (const message of readUIMessageStream({ stream: new Reading().read(text), onError: (error) => problems.push(error) })) last = message;
    assert.deepEqual(problems.map(String), end === 'failed' ? ['Error: It broke.'] : []);
    const said = (last?.parts ?? []).map((part) => (part.type === 'text' ? part.text : '')).join('');
    assert.equal(said, list.map((one) => (one.kind === 'text' ? one.text : '')).join(''));
    assert.deepEqual((last?.parts ?? []).flatMap((part) => ('toolCallId' in part ? [[part.type, part.state]] : [])), list.flatMap((one) => (one.kind === 'call' ? [[`tool-${one.name}`, one.state]] : [])));
    assert.ok((last?.parts ?? []).every((part) => part.type !== 'text' || part.state === 'done'));
  }), { seed: runSeed(), numRuns: 150 });
});

test('ui chat answer - the default stream ends in exactly one finish or error [CHAT-041] [CHAT-042] [CHAT-043]', () => {
  const writer = uiParts({ id: 'c' });
  const stream = writer.text('a') + writer.toolCall({ id: 'c', index: 0, call_id: 'c1', name: 't', arguments: '' }) + writer.finished({ id: 'c', finish_reason: 'content_filter', usage });
  assert.deepEqual(stream.split('\n\n').filter((line) => line !== '').map((line) => uiPartEvent.parse(JSON.parse(line.slice(6)))), [
    { type: 'text-delta', id: 'c', text: 'a' }, { type: 'tool-call', toolCallId: 'c1', toolName: 't', args: {} },
    { type: 'finish', finishReason: 'content-filter', usage: { inputTokens: 1, outputTokens: 2 } },
  ]);
  assert.equal(writer.failed({ code: 'provider_error', message: 'x' }, false), undefined);
  assert.equal(writer.failed({ code: 'provider_error', message: 'x' }, true), 'data: {"type":"error","error":{"code":"provider_error","message":"x"}}\n\n');
});
