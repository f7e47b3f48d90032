/** Chat for user interfaces through a whole stack: UiPart events, JSON, and AI SDK v6's own client; errors, a client that leaves, a slow one, lost hosts. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, beforeEach, describe, test } from 'node:test';
import { lastAssistantMessageIsCompleteWithToolCalls, type UIMessage } from 'ai';
import { uiAnswer, uiChunk, uiPartEvent, type UiChunk, type UiPart } from '../../contracts/ui-chat.ts';
import { chatWorld, say, type ChatWorld } from '../harness/chat.ts';
import { modelServer, openaiChunk, openaiDone, openaiUsage, sse, type Answer, type ModelServer } from '../harness/model-server.ts';
import { startPlatform, type ApiReply, type Person, type TestPlatform } from '../harness/platform.ts';
import { TestChat, uiClient, type UiClient } from '../harness/ui-chat.ts';

const path = '/api/chat';
const words = (count: number): string => Array.from({ length: count }, (_, i) => `w${i + 1}`).join(' ');
const asked = (text: string): object[] => [{ id: 'u1', role: 'user', parts: [{ type: 'text', text }] }];
const textOf = (message: UIMessage | undefined): string => (message?.parts ?? []).map((part) => (part.type === 'text' ? part.text : '')).join('');
const events = (body: string): string[] => body.split('\n\n').filter((event) => event !== '' && !event.startsWith(':')).map((event) => {
  assert.ok(event.startsWith('data: '), event);
  return event.slice(6);
});
const partsOf = (body: string): UiPart[] => events(body).map((event) => uiPartEvent.parse(JSON.parse(event)));
const chunksOf = (body: string): UiChunk[] => events(body).filter((event) => event !== '[DONE]').map((event) => uiChunk.parse(JSON.parse(event)));

describe('ui chat', () => {
  let platform: TestPlatform;
  let world: ChatWorld;
  let ada: Person;
  let orgId: string;
  let ui: UiClient;
  let vendor: ModelServer;
  let folder: string;
  /** Answers of the vendor, taken in turn. */
  const script: Answer[] = [];
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'troupe-ui-chat-'));
    await writeFile(join(folder, 'key'), 'vendor-key', { mode: 0o600 });
    const next: Answer = (request, response) => script.shift()?.(request, response);
    vendor = await modelServer(...Array.from({ length: 50 }, () => next));
    platform = await startPlatform(undefined, {
      daemons: 1, gateways: 1,
      daemon: {
        models: { default: 'mock', registry: [{ id: 'mock', provider: 'mock', input_usd_per_mtok: 3, output_usd_per_mtok: 15 }, { id: 'm', provider: 'openai', upstream_model: 'vendor-m' }] },
        providers: { openai: { base_url: `${vendor.url}/v1`, api_key_path: join(folder, 'key') } },
      },
    });
    world = await chatWorld(platform);
    ui = uiClient(platform);
    ada = await world.person('ada@example.com');
    orgId = (await world.organizations.create(ada, 'ada-org')).id;
    await world.setPlan(orgId, { plan: 'enterprise', limits: { perMinute: -1, perDay: -1, maxApiKeys: -1, maxMembers: -1, credits: 1_000_000 } });
  });
  after(async () => {
    await ui.stop();
    await world.stop();
    await platform.stop();
    await vendor.stop();
    await rm(folder, { recursive: true, force: true });
  });

  // What a test that failed did not use is not the next one's.
  beforeEach(() => { script.length = 0; });

  const post = (body: object, headers: Readonly<Record<string, string>> = {}, token = ada.accessToken): Promise<ApiReply> =>
    platform.api('POST', path, { json: body, headers, ...(token === '' ? {} : { token }) });
  const chat = (body?: object, init: Partial<ConstructorParameters<typeof TestChat>[0]> = {}): { chat: TestChat; problems: Error[] } => {
    const problems: Error[] = [];
    return { chat: new TestChat({ transport: ui.transport(ada.accessToken, body), onError: (error) => { problems.push(error); }, ...init }), problems };
  };
  /** A streaming request whose response the test reads at its own pace. */
  const open = async (body: object): Promise<IncomingMessage> => {
    const request = httpsRequest({
      host: '127.0.0.1', servername: 'localhost', port: platform.gateways[0]?.port, method: 'POST', path, ca: platform.ca, agent: false,
      headers: { authorization: `Bearer ${ada.accessToken}`, 'content-type': 'application/json' },
    });
    request.end(JSON.stringify(body));
    const [response] = await once(request, 'response') as [IncomingMessage];
    return response.setEncoding('utf8');
  };

  test('ui chat - answers one JSON without a sign of streaming, metered like every completion [CHAT-033] [CHAT-037]', async () => {
    for (const more of [{}, { stream: false }]) {
      const reply = await post({ model: 'mock', messages: say('/say Hello there.'), ...more });
      assert.deepEqual([reply.status, reply.headers['content-type']], [200, 'application/json'], reply.body);
      const { id, ...rest } = uiAnswer.parse(reply.json);
      assert.deepEqual(rest, { model: 'mock', content: 'Hello there.', usage: { inputTokens: 5, outputTokens: 3 }, finishReason: 'stop' });
      const metered = (await world.journaled(orgId)).filter((event) => event.k === 'UsageMetered' && event.d['id'] === id);
      assert.deepEqual(metered.map(({ d }) => [d['by'], d['usage']]), [[ada.userId, { input_tokens: 5, output_tokens: 3, cost_cents: 1 }]]);
    }
  });

  test('ui chat - streams text-delta and one finish, by `stream` or by Accept [CHAT-035] [CHAT-036] [CHAT-038] [CHAT-041] [CHAT-043]', async () => {
    const replies = [
      await post({ model: 'mock', messages: say('/long 50'), stream: true }),
      await post({ model: 'mock', messages: say('/long 50') }, { accept: 'application/json;q=0.5, text/event-stream' }),
    ];
    for (const reply of replies) {
      assert.deepEqual([reply.status, reply.headers['content-type'], reply.headers['x-vercel-ai-ui-message-stream']], [200, 'text/event-stream; charset=utf-8', undefined], reply.body);
      const parts = partsOf(reply.body);
      assert.deepEqual(parts.pop(), { type: 'finish', finishReason: 'stop', usage: { inputTokens: 2, outputTokens: 48 } });
      assert.equal(parts.map((part) => (part.type === 'text-delta' ? part.text : assert.fail(part.type))).join(''), words(50));
      assert.equal(new Set(parts.map((part) => (part.type === 'text-delta' ? part.id : ''))).size, 1);
    }
    assert.equal((await post({ model: 'mock', messages: say('/say x') }, { accept: '*/*, text/event-stream;q=0' })).headers['content-type'], 'application/json');
  });

  test('ui chat - the model\'s tool calls are told with their arguments, streamed and not [CHAT-039]', async () => {
    const tools = [{ type: 'function', function: { name: 'weather', parameters: { type: 'object', properties: {} } } }];
    const body = { model: 'mock', messages: say('/tool weather {"city":"Berlin"}\n/tool weather no json'), tools };
    const calls = [{ toolCallId: 'call_1_0', toolName: 'weather', args: { city: 'Berlin' } }, { toolCallId: 'call_1_1', toolName: 'weather', args: ' no json' }];
    const parts = partsOf((await post({ ...body, stream: true })).body);
    assert.deepEqual(parts.filter((part) => part.type === 'tool-call'), calls.map((call) => ({ type: 'tool-call', ...call })));
    const last = parts.at(-1);
    assert.deepEqual(last?.type === 'finish' && last.finishReason, 'tool-calls');
    const whole = uiAnswer.parse((await post(body)).json);
    assert.deepEqual([whole.toolCalls, whole.finishReason], [calls, 'tool-calls']);
  });

  test('ui chat - a failure has its status before the first byte and is the last event after it [CHAT-042]', async () => {
    for (const stream of [true, false]) {
      const early = await post({ model: 'mock', messages: say('/fail'), stream });
      assert.deepEqual([early.status, early.json], [502, { error: { code: 'provider_error', message: 'The model provider failed.' } }]);
    }
    const parts = partsOf((await post({ model: 'mock', messages: say('/fail-after 20'), stream: true })).body);
    assert.deepEqual(parts.at(-1), { type: 'error', error: { code: 'provider_error', message: 'The model failed as it was told to.' } });
    assert.ok(parts.slice(0, -1).every(({ type }) => type === 'text-delta'));
    assert.ok(parts.length > 1);
  });

  test('ui chat - nobody is answered without a good bearer, in the platform\'s error shape [CHAT-034]', async () => {
    for (const token of ['', 'nonsense', `${ada.accessToken.slice(0, -4)}AAAA`]) {
      const refused = await post({ model: 'mock', messages: say('x') }, {}, token);
      assert.deepEqual([refused.status, (refused.json as { error: { code: string } }).error.code], [401, 'unauthorized']);
    }
  });

  test('ui chat - it is counted, refused and paid for as the other chat endpoint is', async () => {
    const eve = await platform.signUp('eve@example.com');
    const bare = await post({ model: 'mock', messages: say('x') }, {}, eve.accessToken);
    assert.deepEqual([bare.status, (bare.json as { error: { code: string } }).error.code], [403, 'legal_acceptance_required']);
    const token = await world.accept(eve);
    const { id } = await world.organizations.create({ ...eve, accessToken: token }, 'eve-org');
    await world.setPlan(id, { plan: 'enterprise', limits: { perMinute: 2, perDay: -1, maxApiKeys: -1, maxMembers: -1, credits: 1_000 } });
    const to = { 'troupe-organization': id };
    assert.equal((await post({ model: 'mock', messages: say('/say x') }, to, token)).status, 200);
    assert.equal(await world.status(token, { headers: to }), 200);
    const limited = await post({ model: 'mock', messages: say('/say x') }, to, token);
    assert.deepEqual([limited.status, limited.headers['x-ratelimit-limit'], (limited.json as { error: { code: string } }).error.code], [429, '2', 'rate_limited']);
  });

  const bad: readonly [string, string, object][] = [
    ['no model', 'model', { messages: say('x') }],
    ['no messages', 'messages', { model: 'mock' }],
    ['empty messages', 'messages', { model: 'mock', messages: [] }],
    ['a last message of the assistant', 'messages.1.role', { model: 'mock', messages: [...say('x'), { role: 'assistant', content: 'y' }] }],
    ['content that is no text', 'messages.0.content', { model: 'mock', messages: [{ role: 'user', content: 7 }] }],
    ['a file part', 'messages.0.parts.0.type', { messages: [{ id: 'u', role: 'user', parts: [{ type: 'file', mediaType: 'image/png', url: 'data:image/png;base64,AA==' }] }] }],
    ['an unknown part', 'messages.0.parts.0.type', { messages: [{ id: 'u', role: 'user', parts: [{ type: 'video' }] }] }],
    ['a text part without text', 'messages.0.parts.0.text', { messages: [{ id: 'u', role: 'user', parts: [{ type: 'text' }] }] }],
    ['parts of an unknown role', 'messages.0', { messages: [{ id: 'u', role: 'robot', parts: [{ type: 'text', text: 'x' }] }] }],
    ['an answer to nothing', 'messages.0', { messages: [{ id: 'a', role: 'assistant', parts: [{ type: 'text', text: 'x' }] }] }],
    ['a tool output nested without end', '', { messages: [...asked('x'), { id: 'a', role: 'assistant', parts: [{ type: 'tool-t', toolCallId: 'c', state: 'output-available', input: {}, output: JSON.parse(`${'['.repeat(2_000)}${']'.repeat(2_000)}`) as unknown }] }] }],
  ];
  for (const [what, field, body] of bad) {
    test(`ui chat - ${what} is refused by its name`, async () => {
      const refused = await post(body);
      assert.equal(refused.status, 422, refused.body);
      const { code, details } = (refused.json as { error: { code: string; details: { field: string } } }).error;
      assert.deepEqual([code, details.field], ['validation_error', field], refused.body);
    });
  }

  test('ui chat - an unknown model is refused', async () => {
    const refused = await post({ model: 'gpt-none', messages: say('x') });
    assert.deepEqual([refused.status, (refused.json as { error: { code: string } }).error.code], [400, 'model_not_supported']);
  });

  test('ui chat - messages with parts are answered in the AI SDK\'s own stream, every step and text ended [CHAT-044] [CHAT-045] [CHAT-047]', async () => {
    const reply = await post({ id: 'c', trigger: 'submit-message', messages: asked('/say one two\n/tool weather {"city":"Rome"}') });
    assert.deepEqual([reply.status, reply.headers['content-type'], reply.headers['x-vercel-ai-ui-message-stream']], [200, 'text/event-stream; charset=utf-8', 'v1'], reply.body);
    const chunks = chunksOf(reply.body);
    assert.equal(events(reply.body).at(-1), '[DONE]');
    const deltas = chunks.filter((chunk) => chunk.type === 'text-delta');
    assert.equal(deltas.map(({ delta }) => delta).join(''), 'one two');
    const [start, , text] = chunks;
    assert.ok(start?.type === 'start' && text?.type === 'text-start' && deltas.every(({ id }) => id === text.id));
    assert.deepEqual(chunks.filter(({ type }) => type !== 'text-delta'), [
      { type: 'start', messageId: start.messageId }, { type: 'start-step' }, { type: 'text-start', id: text.id }, { type: 'text-end', id: text.id },
      { type: 'tool-input-available', toolCallId: 'call_1_0', toolName: 'weather', input: { city: 'Rome' } }, { type: 'finish-step' },
      { type: 'finish', finishReason: 'tool-calls', messageMetadata: { model: 'mock', usage: { inputTokens: 11, outputTokens: 2 } } },
    ]);
    assert.match(reply.body, /"text-delta"[^]*"text-end"/);
    const whole = await post({ messages: asked('/say x'), stream: false });
    assert.equal(uiAnswer.parse(whole.json).content, 'x');
  });

  test('ui chat - the AI SDK\'s chat talks to it unmodified: turns, history, a regenerated answer [CHAT-049]', async () => {
    const { chat: talk, problems } = chat();
    await talk.sendMessage({ text: '/long 300' });
    assert.deepEqual([talk.status, problems], ['ready', []]);
    assert.deepEqual(talk.messages.map(({ role }) => role), ['user', 'assistant']);
    assert.equal(textOf(talk.messages[1]), words(300));
    assert.deepEqual(talk.messages[1]?.metadata, { model: 'mock', usage: { inputTokens: 3, outputTokens: Math.ceil(words(300).length / 4) } });
    await talk.sendMessage({ text: 'and then?' });
    assert.equal(textOf(talk.messages[3]), 'You said: and then?');
    // The model was told all of it.
    const started = (await world.journaled(orgId)).findLast((event) => event.k === 'CompletionStarted') ?? assert.fail('nothing was asked');
    assert.deepEqual((started.d['prompt'] as { messages: object[] }).messages, [
      { role: 'user', text: '/long 300' }, { role: 'assistant', text: words(300), calls: [] }, { role: 'user', text: 'and then?' },
    ]);
    await talk.regenerate();
    assert.equal(textOf(talk.messages[3]), 'You said: and then?');
    assert.deepEqual([talk.messages.length, talk.status, problems], [4, 'ready', []]);
  });

  test('ui chat - tools of the page: called, answered, gone on with in the same message [CHAT-049]', async () => {
    const tools = [{ type: 'function', function: { name: 'weather', description: 'Weather', parameters: { type: 'object', properties: {} } } }];
    const made: object[] = [];
    const done = Promise.withResolvers<void>();
    const { chat: talk, problems } = chat({ tools }, {
      sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithToolCalls,
      onToolCall: ({ toolCall }) => {
        made.push([toolCall.toolName, toolCall.input]);
        void talk.addToolOutput({ tool: 'weather', toolCallId: toolCall.toolCallId, output: { sky: `blue ${made.length}` } });
      },
      onFinish: ({ message }) => { if (textOf(message).includes('says')) done.resolve(); },
      onError: (error) => { done.reject(error); },
    });
    await talk.sendMessage({ text: '/tool weather {"city":"Berlin"}\n/tool weather {"city":"Rome"}' });
    await done.promise;
    assert.deepEqual(made, [['weather', { city: 'Berlin' }], ['weather', { city: 'Rome' }]]);
    assert.deepEqual([talk.messages.map(({ role }) => role), problems], [['user', 'assistant'], []]);
    const answer = talk.messages[1];
    assert.equal(textOf(answer), 'Let me use weather and weather.weather says: {"sky":"blue 1"} weather says: {"sky":"blue 2"}');
    assert.deepEqual(answer?.parts.flatMap((part) => ('state' in part && 'output' in part ? [[part.type, part.state, part.output]] : [])), [
      ['tool-weather', 'output-available', { sky: 'blue 1' }], ['tool-weather', 'output-available', { sky: 'blue 2' }],
    ]);
  });

  test('ui chat - a model that fails is an error chunk, before the first word and after; what was begun is ended [CHAT-048]', async () => {
    for (const [line, before] of [['/fail', []], ['/fail-after 5', ['text-start', 'text-delta', 'text-end']]] as const) {
      const reply = await post({ messages: asked(line) });
      assert.equal(reply.status, 200);
      const types = chunksOf(reply.body).map(({ type }) => type).filter((type, i, all) => type !== all[i - 1]);
      assert.deepEqual(types, ['start', 'start-step', ...before, 'error']);
      const { chat: talk, problems } = chat();
      await talk.sendMessage({ text: line });
      assert.deepEqual([talk.status, problems.map(({ message }) => message)], ['error', ['The model failed as it was told to.']]);
    }
  });

  test('ui chat - without a model it is the organization\'s; a page that stops ends the vendor\'s call, and what was used is metered', async () => {
    assert.equal((await platform.api('PATCH', '/api/organization', { token: ada.accessToken, json: { orgId, settings: { defaultModel: 'm' } } })).status, 200);
    const called = Promise.withResolvers<{ readonly gone: Promise<void> }>();
    script.push((request, response) => {
      sse(response);
      response.write(openaiChunk({ content: 'one two ' }));
      called.resolve(request);
    });
    const { chat: talk, problems } = chat();
    const sent = talk.sendMessage({ text: 'go on' });
    const { gone } = await Promise.race([called.promise, sent.then(() => assert.fail('the vendor was not asked'))]);
    while (textOf(talk.messages[1]) !== 'one two ') await new Promise((resolve) => { setImmediate(resolve); });
    await talk.stop();
    await sent;
    await gone;
    let ended = (await world.journaled(orgId)).filter((event) => event.d['model'] === 'm');
    while (!ended.some(({ k }) => k === 'UsageMetered')) ended = (await world.journaled(orgId)).filter((event) => event.d['model'] === 'm');
    const finished = (await world.journaled(orgId)).findLast((event) => event.k === 'CompletionFinished');
    assert.deepEqual([finished?.d['finish_reason'], problems, textOf(talk.messages[1])], ['cancelled', [], 'one two ']);
  });

  test('ui chat - a vendor whose stream is cut is asked again, and the page sees one answer', async () => {
    script.push((_, response) => {
      sse(response);
      response.write(openaiChunk({ content: 'first ' }), () => { response.destroy(); });
    });
    script.push((_, response) => {
      sse(response);
      response.end(openaiChunk({ content: 'second' }, 'stop') + openaiUsage(3, 2) + openaiDone);
    });
    const { chat: talk, problems } = chat({ model: 'm' });
    await talk.sendMessage({ text: 'twice' });
    assert.deepEqual([textOf(talk.messages[1]), problems], ['first second', []]);
  });

  test('ui chat - a reader that stops holds nothing up but itself, and gets everything in the end', async () => {
    const response = await open({ model: 'mock', messages: say('/long 60000'), stream: true });
    response.pause();
    assert.equal(uiAnswer.parse((await post({ model: 'mock', messages: say('/say quick') })).json).content, 'quick');
    let text = '';
    for await (const piece of response) text += String(piece);
    const parts = partsOf(text);
    assert.equal(parts.pop()?.type, 'finish');
    assert.equal(parts.map((part) => (part.type === 'text-delta' ? part.text : '')).join(''), words(60_000).slice(0, 256 * 1024));
  });

  test('ui chat - a daemon that is lost is told of in the stream\'s own words', async () => {
    const streams = await Promise.all([
      open({ model: 'mock', messages: say('/hang 3'), stream: true }),
      open({ model: 'mock', messages: asked('/hang 3') }),
    ]);
    const texts = streams.map(async (response) => {
      let text = '';
      const said = Promise.withResolvers<void>();
      response.on('data', (piece: string) => {
        text += piece;
        if (text.includes('w3')) said.resolve();
      });
      const ended = once(response, 'end');
      await said.promise;
      return { end: ended.then(() => text) };
    });
    const ends = await Promise.all(texts);
    await platform.daemons[0]?.kill();
    const [parts = '', chunks = ''] = await Promise.all(ends.map(({ end }) => end));
    assert.deepEqual(partsOf(parts).at(-1), { type: 'error', error: { code: 'upstream_unavailable', message: 'The upstream cannot be reached.' } });
    assert.deepEqual(chunksOf(chunks).at(-1), { type: 'error', errorText: 'The upstream cannot be reached.' });
    assert.equal(chunks.includes('[DONE]'), false);
  });
});
