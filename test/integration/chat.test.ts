/** Public chat through a whole stack with the official client: answers, streams, tools, models, errors. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type OpenAI from 'openai';
import { chatChunk, chatCompletion } from '../../contracts/chat.ts';
import { chatWorld, say, type ChatWorld } from '../harness/chat.ts';
import { startPlatform, type Person, type TestPlatform } from '../harness/platform.ts';

type Params = OpenAI.Chat.Completions.ChatCompletionCreateParamsNonStreaming;

describe('public chat', () => {
  let platform: TestPlatform;
  let world: ChatWorld;
  let ada: Person;
  let openai: OpenAI;
  before(async () => {
    platform = await startPlatform(undefined, { daemons: 2, gateways: 2, daemon: { models: { default: 'mock', registry: [{ id: 'mock', provider: 'mock', input_usd_per_mtok: 3, output_usd_per_mtok: 15 }, { id: 'mock-2', provider: 'mock' }] } } });
    world = await chatWorld(platform);
    ada = await world.person('ada@example.com');
    // No test of this file is about limits.
    const { id } = await world.organizations.create(ada, 'ada-org');
    await world.setPlan(id, { plan: 'enterprise', limits: { perMinute: -1, perDay: -1, maxApiKeys: -1, maxMembers: -1, credits: 1_000_000 } });
    openai = world.client(ada.accessToken);
  });
  after(async () => {
    await world.stop();
    await platform.stop();
  });

  test('public chat - answers one JSON object without stream, with usage [CHAT-001]', async () => {
    const answer = await openai.chat.completions.create({ model: 'mock', messages: say('/say Hello there.') });
    const { id, created, ...rest } = chatCompletion.parse(answer);
    assert.match(id, /^chatcmpl-/);
    assert.ok(Math.abs(created - Date.now() / 1_000) < 60);
    assert.deepEqual(rest, {
      object: 'chat.completion', model: 'mock',
      choices: [{ index: 0, finish_reason: 'stop', logprobs: null, message: { role: 'assistant', content: 'Hello there.', refusal: null } }],
      usage: { prompt_tokens: 5, completion_tokens: 3, total_tokens: 8 },
    });
  });

  test('public chat - streams role, content, end, usage and [DONE], all of one id and model [CHAT-002] [CHAT-003] [CHAT-004] [CHAT-005]', async () => {
    const body = { model: 'mock', messages: say('/long 50'), stream: true };
    for (const usage of [true, false]) {
      const raw = await world.post(ada.accessToken, usage ? { ...body, stream_options: { include_usage: true } } : body);
      assert.deepEqual([raw.status, raw.headers['content-type']], [200, 'text/event-stream; charset=utf-8'], raw.body);
      const events = raw.body.split('\n\n').filter((event) => event !== '' && !event.startsWith(':'));
      assert.ok(events.every((event) => event.startsWith('data: ')));
      assert.equal(events.pop(), 'data: [DONE]');
      const chunks = events.map((event) => chatChunk.parse(JSON.parse(event.slice(6))));
      assert.equal(new Set(chunks.map((chunk) => `${chunk.id} ${chunk.model} ${chunk.created}`)).size, 1);
      if (usage) assert.deepEqual(chunks.pop(), { ...chunks[0], choices: [], usage: { prompt_tokens: 2, completion_tokens: 48, total_tokens: 50 } });
      assert.deepEqual(chunks[0]?.choices[0]?.delta, { role: 'assistant', content: '', refusal: null });
      assert.deepEqual([chunks.at(-1)?.choices[0]?.delta, chunks.at(-1)?.choices[0]?.finish_reason], [{}, 'stop']);
      const middle = chunks.slice(1, -1);
      assert.ok(middle.every((chunk) => chunk.choices[0]?.finish_reason === null && Object.keys(chunk.choices[0].delta).join('') === 'content'));
      assert.equal(middle.map((chunk) => chunk.choices[0]?.delta.content).join(''), Array.from({ length: 50 }, (_, i) => `w${i + 1}`).join(' '));
      assert.equal(chunks.some((chunk) => (chunk.usage ?? null) !== null), false);
    }
  });

  test('public chat - the official client reads a stream to its end', async () => {
    const stream = openai.chat.completions.stream({ model: 'mock', messages: say('/slow 2 30'), stream_options: { include_usage: true } });
    const final = await stream.finalChatCompletion();
    assert.equal(final.choices[0]?.message.content, Array.from({ length: 30 }, (_, i) => `w${i + 1}`).join(' '));
    assert.equal(final.usage?.completion_tokens, Math.ceil((final.choices[0]?.message.content?.length ?? 0) / 4));
  });

  test('public chat - tools are offered, called by the model, run by the client and answered [CHAT-017] [CHAT-006]', async () => {
    const tools: OpenAI.Chat.Completions.ChatCompletionTool[] = [{ type: 'function', function: { name: 'weather', description: 'Weather of a city', parameters: { type: 'object', properties: { city: { type: 'string' } } } } }];
    const messages: Params['messages'] = [{ role: 'user', content: '/tool weather {"city":"Berlin"}\n/tool weather {"city":"Rome"}' }];
    const raw = await world.post(ada.accessToken, { model: 'mock', messages, tools, stream: true });
    const deltas = raw.body.split('\n\n').filter((event) => event.startsWith('data: {')).map((event) => chatChunk.parse(JSON.parse(event.slice(6))).choices[0]);
    const calls = deltas.flatMap((choice) => choice?.delta.tool_calls ?? []);
    assert.deepEqual(calls.map(({ index }) => index), [0, 0, 1, 1]);
    assert.deepEqual(calls[0], { index: 0, id: 'call_1_0', type: 'function', function: { name: 'weather', arguments: '' } });
    assert.deepEqual(calls[1], { index: 0, function: { arguments: '{"city":"Berlin"}' } });
    assert.equal(deltas.at(-1)?.finish_reason, 'tool_calls');

    const asked = await openai.chat.completions.create({ model: 'mock', messages, tools });
    const [choice] = asked.choices;
    assert.equal(choice?.finish_reason, 'tool_calls');
    const made = choice.message.tool_calls ?? [];
    assert.deepEqual(made.map((call) => (call.type === 'function' ? JSON.parse(call.function.arguments) as unknown : undefined)), [{ city: 'Berlin' }, { city: 'Rome' }]);
    const answered = await openai.chat.completions.create({
      model: 'mock', tools,
      messages: [...messages, choice.message, ...made.map((call) => ({ role: 'tool' as const, tool_call_id: call.id, content: `sun in ${call.id}` }))],
    });
    assert.equal(answered.choices[0]?.message.content, 'weather says: sun in call_1_0 weather says: sun in call_1_1');
    assert.equal(answered.choices[0].finish_reason, 'stop');
  });

  test('public chat - the models are listed, and each is accepted [CHAT-029]', async () => {
    const models = await openai.models.list();
    assert.deepEqual(models.data.map((model) => [model.id, model.object]), [['mock', 'model'], ['mock-2', 'model']]);
    for (const { id } of models.data) assert.equal((await openai.chat.completions.create({ model: id, messages: say('/say yes') })).choices[0]?.message.content, 'yes');
    assert.equal((await platform.api('GET', '/api/v1/models')).status, 401);
  });

  test('public chat - an unknown model is refused by name [CHAT-009]', async () => {
    const refused = await world.post(ada.accessToken, { model: 'gpt-none', messages: say('x') });
    assert.equal(refused.status, 400);
    assert.deepEqual(refused.json, { error: { message: 'The model is not in the registry.', type: 'invalid_request_error', code: 'model_not_supported', param: 'model' } });
  });

  const bad: readonly [string, string, string, unknown][] = [
    ['no model', '[CHAT-008]', 'model', { messages: say('x') }],
    ['no messages', '[CHAT-010]', 'messages', { model: 'mock' }],
    ['empty messages', '[CHAT-010]', 'messages', { model: 'mock', messages: [] }],
    ['a last message of the assistant', '[CHAT-012]', 'messages.1.role', { model: 'mock', messages: [...say('x'), { role: 'assistant', content: 'y' }] }],
    ['a last message of the system', '[CHAT-012]', 'messages.0.role', { model: 'mock', messages: [{ role: 'system', content: 'y' }] }],
    ['two answers', '[CHAT-013]', 'n', { model: 'mock', messages: say('x'), n: 2 }],
    ['an image', '[CHAT-014]', 'messages.0.content', { model: 'mock', messages: [{ role: 'user', content: [{ type: 'image_url', image_url: { url: 'data:image/png;base64,AA==' } }] }] }],
    ['a file', '[CHAT-015]', 'messages.0.content', { model: 'mock', messages: [{ role: 'user', content: [{ type: 'text', text: 'x' }, { type: 'file', file: { file_id: 'f' } }] }] }],
    ['a file of its own', '[CHAT-015]', 'messages.0.content', { model: 'mock', messages: [{ role: 'user', content: [{ type: 'input_file', file_id: 'f' }] }] }],
    ['an image in an earlier message', '[CHAT-014]', 'messages.0.content', { model: 'mock', messages: [{ role: 'user', content: [{ type: 'input_image', image_url: 'https://example.com/a.png' }] }, { role: 'assistant', content: 'a cat' }, ...say('x')] }],
    ['image output', '[CHAT-016]', 'modalities', { model: 'mock', messages: say('x'), modalities: ['text', 'image'] }],
    ['an image as the format', '[CHAT-016]', 'response_format.type', { model: 'mock', messages: say('x'), response_format: { type: 'image' } }],
    ['a tool that makes images', '[CHAT-016]', 'tools.0', { model: 'mock', messages: say('x'), tools: [{ type: 'image_generation' }] }],
    ['an image\'s size', '[CHAT-016]', 'size', { model: 'mock', messages: say('x'), size: '1024x1024' }],
    ...['seed', 'logit_bias', 'top_logprobs', 'audio', 'prediction', 'functions', 'reasoning_effort', 'web_search_options'].map((name): [string, string, string, unknown] =>
      [name, '[CHAT-019]', name, { model: 'mock', messages: say('x'), [name]: 1 }]),
    ['log probabilities', '[CHAT-019]', 'logprobs', { model: 'mock', messages: say('x'), logprobs: true }],
    ['JSON mode', '[CHAT-019]', 'response_format.type', { model: 'mock', messages: say('x'), response_format: { type: 'json_object' } }],
    ['a penalty', '[CHAT-019]', 'frequency_penalty', { model: 'mock', messages: say('x'), frequency_penalty: 1 }],
    ['a tool result of no call', '[CHAT-019]', 'messages.0.tool_call_id', { model: 'mock', messages: [{ role: 'tool', tool_call_id: 'c', content: 'x' }] }],
  ];
  for (const [what, rule, param, body] of bad) {
    test(`public chat - ${what} is refused by its name ${rule}`, async () => {
      const refused = await world.post(ada.accessToken, body);
      assert.equal(refused.status, 400, refused.body);
      const { error } = refused.json as { error: Record<string, unknown> };
      assert.deepEqual([error['type'], error['code'], Object.keys(error).sort().join()], ['invalid_request_error', 'validation_error', 'code,message,param,type']);
      assert.ok(error['param'] === param || (typeof error['param'] === 'string' && error['param'].startsWith(`${param}.`)), refused.body);
    });
  }

  test('public chat - n = 1 and what means the same as nothing is accepted [CHAT-013] [CHAT-018]', async () => {
    const answer = await openai.chat.completions.create({
      model: 'mock', messages: [{ role: 'developer', content: [{ type: 'text', text: 'be kind' }] }, { role: 'user', content: [{ type: 'text', text: '/say ' }, { type: 'text', text: 'fine' }], name: 'Ada' }],
      n: 1, temperature: 0.2, top_p: 0.9, max_tokens: 100, max_completion_tokens: 100, stop: ['END'], user: 'u-1', metadata: { a: 'b' }, frequency_penalty: 0, logprobs: false, stream: false,
    });
    assert.equal(answer.choices[0]?.message.content, 'fine');
  });

  test('public chat - a body that is not JSON, or too large, is refused [CHAT-011]', async () => {
    const text = await platform.api('POST', '/api/v1/chat/completions', { token: ada.accessToken, form: { model: 'mock' } });
    assert.equal(text.status, 400, text.body);
    const cut = await platform.api('POST', '/api/v1/chat/completions', { token: ada.accessToken, headers: { 'content-type': 'application/json' } });
    assert.deepEqual([cut.status, (cut.json as { error: { code: string } }).error.code], [400, 'validation_error'], cut.body);
    const large = await world.post(ada.accessToken, { model: 'mock', messages: say('x'.repeat(3 * 1024 * 1024)) });
    assert.deepEqual([large.status, (large.json as { error: { code: string } }).error.code], [413, 'payload_too_large']);
  });

  test('public chat - a conversation of two megabytes is answered', async () => {
    const turns = Array.from({ length: 20 }, (_, i): Params['messages'] => [{ role: 'user', content: `${i} ${'ä'.repeat(25_000)}` }, { role: 'assistant', content: 'y'.repeat(50_000) }]).flat();
    const answer = await openai.chat.completions.create({ model: 'mock', messages: [...turns, ...say('/say heard')] });
    assert.equal(answer.choices[0]?.message.content, 'heard');
    assert.ok((answer.usage?.prompt_tokens ?? 0) > 300_000);
  });

  test('public chat - a long answer comes whole, streamed and not', async () => {
    const words = Array.from({ length: 30_000 }, (_, i) => `w${i + 1}`).join(' ');
    const whole = await openai.chat.completions.create({ model: 'mock', messages: say('/long 30000') });
    assert.equal(whole.choices[0]?.message.content, words);
    let text = '';
    for await (const chunk of await openai.chat.completions.create({ model: 'mock', messages: say('/long 30000'), stream: true })) text += chunk.choices[0]?.delta.content ?? '';
    assert.equal(text, words);
  });

  test('public chat - a failure before the first byte has its status, and no address of ours [CHAT-027] [CHAT-020] [CHAT-023]', async () => {
    for (const stream of [false, true]) {
      const failed = await world.post(ada.accessToken, { model: 'mock', messages: say('/fail'), stream });
      assert.equal(failed.status, 502, failed.body);
      assert.deepEqual(failed.json, { error: { message: 'The model provider failed.', type: 'api_error', code: 'provider_error', param: null } });
    }
  });

  test('public chat - a failure after it is one event with the error, and no [DONE] [CHAT-007] [CHAT-020]', async () => {
    const raw = await world.post(ada.accessToken, { model: 'mock', messages: say('/fail-after 20'), stream: true });
    const events = raw.body.split('\n\n').filter((event) => event !== '');
    assert.equal(raw.status, 200);
    assert.deepEqual(JSON.parse(events.at(-1)?.slice(6) ?? ''), { error: { message: 'The model failed as it was told to.', type: 'api_error', code: 'provider_error', param: null } });
    assert.equal(events.filter((event) => event.includes('"error"')).length, 1);
    assert.equal(raw.body.includes('[DONE]'), false);
    await assert.rejects(async () => {
      for await (const _chunk of await openai.chat.completions.create({ model: 'mock', messages: say('/fail-after 20'), stream: true })) void _chunk;
    }, /The model failed as it was told to/);
  });

  test('public chat - a reply that broke is taken up again, nothing twice', async () => {
    const stream = openai.chat.completions.stream({ model: 'mock', messages: say('/cut-after 5') });
    assert.equal((await stream.finalChatCompletion()).choices[0]?.message.content, 'w1 w2 w3 w4 w5 and on.');
  });

  test('public chat - the reason of an early end is told', async () => {
    for (const [line, reason] of [['/length', 'length'], ['/filter', 'content_filter']] as const) {
      const answer = await openai.chat.completions.create({ model: 'mock', messages: say(`/say x\n${line}`) });
      assert.equal(answer.choices[0]?.finish_reason, reason);
    }
  });

  test('public chat - nobody is answered without a good bearer [CHAT-024] [CHAT-021]', async () => {
    for (const token of ['', 'nonsense', `trp_sk_${'a'.repeat(43)}`, `${ada.accessToken.slice(0, -4)}AAAA`]) {
      const refused = await platform.api('POST', '/api/v1/chat/completions', { json: { model: 'mock', messages: say('x') }, ...(token === '' ? {} : { token }) });
      assert.equal(refused.status, 401, token);
      assert.equal((refused.json as { error: { type: string } }).error.type, 'authentication_error');
    }
  });

  test('public chat - the same path without a version does not exist [VER-003] [VER-001]', async () => {
    for (const path of ['/api/chat/completions', '/api/models', '/api/v2/chat/completions']) {
      assert.equal((await platform.api('POST', path, { token: ada.accessToken, json: { model: 'mock', messages: say('x') } })).status, 404, path);
    }
  });
});
