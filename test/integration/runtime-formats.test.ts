/** The formats of `/v1/chat`, each read by its vendor's own client, unmodified but for where it connects; what gates block; resume in every format. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import Anthropic from '@anthropic-ai/sdk';
import { DefaultChatTransport, readUIMessageStream, type UIMessage, type UIMessageChunk } from 'ai';
import OpenAI from 'openai';
import { Agent, fetch as undiciFetch } from 'undici';
import { z } from 'zod';
import { regulationAddress } from '../../contracts/deployment.ts';
import { streamFormats } from '../../contracts/runtime-routes.ts';
import { uiPartEvent } from '../../contracts/ui-chat.ts';
import { walletAddress } from '../../actors/wallet/address.ts';
import { startDeployment, type Held, type TestDeployment } from '../harness/deployment.ts';
import { numbered } from '../harness/e2e.ts';
import { chatBody, envelopesOf, framesOf, kindsOf, readUntil, runtimeClient, textOf, type Frame, type RuntimeClient } from '../harness/runtime.ts';

const twoSteps = '/say Let me see.\n/tool calculator {"expression":"6*7"}\n/then\n/say It is 42.';

describe('runtime formats', () => {
  let world: TestDeployment;
  let client: RuntimeClient;
  let dispatcher: Agent;
  before(async () => {
    world = await startDeployment(undefined, {
      daemon: { models: { default: 'mock', registry: [{ id: 'mock', provider: 'mock' }, { id: 'dear', provider: 'mock', input_usd_per_mtok: 1, output_usd_per_mtok: 5 }] } },
    });
    client = runtimeClient(world);
    dispatcher = new Agent({ connect: { ca: world.ca } });
  });
  after(async () => {
    await dispatcher.destroy();
    await world.stop();
  });
  /** A vendor's client's fetch: its request goes to `/v1/chat` with the session's name in its body. */
  const fetchAs = (format: string, session: string) => ((_url: string, init: { readonly body?: unknown; readonly headers?: HeadersInit }) => {
    const headers = new Headers(init.headers);
    headers.set('authorization', `Bearer ${world.key}`);
    return undiciFetch(`${world.deploymentUrl}/v1/chat?format=${format}`, {
      ...init as object, headers: Object.fromEntries(headers), dispatcher, body: JSON.stringify({ ...JSON.parse(String(init.body)), session_id: session }),
    });
  }) as unknown as typeof globalThis.fetch;
  const openai = (session: string) => new OpenAI({ apiKey: 'unused', baseURL: 'https://vendor.invalid/v1', maxRetries: 0, fetch: fetchAs('openai', session) });
  const anthropic = (session: string) => new Anthropic({ apiKey: 'unused', baseURL: 'https://vendor.invalid', maxRetries: 0, fetch: fetchAs('anthropic', session) });
  const post = (session: string, content: string, query: string, headers: Record<string, string> = {}) => world.service('POST', `/v1/chat${query}`, { json: chatBody(session, content), headers });

  test('runtime formats - openai: the official client reads text, finish reason and usage, and a failure as an error [RUN-013]', async () => {
    const stream = openai('openai').chat.completions.stream({ model: 'mock', messages: [{ role: 'user', content: twoSteps }], stream_options: { include_usage: true } });
    const completion = await stream.finalChatCompletion();
    assert.equal(completion.choices[0]?.message.content, 'Let me see.\n\nIt is 42.');
    assert.equal(completion.choices[0]?.finish_reason, 'stop');
    assert.equal(completion.model, 'mock');
    assert.ok((completion.usage?.total_tokens ?? 0) > 0);
    let text = '';
    for await (const chunk of await openai('openai').chat.completions.create({ model: 'mock', stream: true, messages: [{ role: 'user', content: '/long 300' }] })) text += chunk.choices[0]?.delta.content ?? '';
    assert.equal(text, numbered(300));
    await assert.rejects(openai('openai').chat.completions.stream({ model: 'mock', messages: [{ role: 'user', content: '/fail-after 20' }] }).finalContent(), OpenAI.APIError);
    await assert.rejects(openai('openai').chat.completions.create({ model: 'mock', stream: true, messages: [{ role: 'user', content: '/fail' }] }), { status: 502 });
    await assert.rejects(openai('openai').chat.completions.create({ model: 'none', stream: true, messages: [{ role: 'user', content: 'x' }] }), OpenAI.BadRequestError);
  });

  test('runtime formats - anthropic: the official client reads blocks, stop reason and usage, and a failure as an error [RUN-014]', async () => {
    const ask = (content: string, model = 'mock') => anthropic('anthropic').messages.stream({ model, max_tokens: 1_000, messages: [{ role: 'user', content }] });
    const message = await ask(twoSteps).finalMessage();
    assert.deepEqual(message.content.map((block) => (block.type === 'text' ? block.text : block.type)), ['Let me see.', 'It is 42.']);
    assert.deepEqual([message.stop_reason, message.role, message.model], ['end_turn', 'assistant', 'mock']);
    assert.ok(message.usage.output_tokens > 0 && message.usage.input_tokens > 0);
    const raw = (await post('anthropic', twoSteps, '?format=anthropic')).body.split('\n\n').map((frame) => /^event: (.*)$/m.exec(frame)?.[1]).filter((type, i, all) => type !== undefined && type !== all[i - 1]);
    const block = ['content_block_start', 'content_block_delta', 'content_block_stop'];
    assert.deepEqual(raw, ['message_start', ...block, ...block, 'message_delta', 'message_stop']);
    assert.equal(await ask('/long 300').finalText(), numbered(300));
    assert.equal((await ask('/length').finalMessage()).stop_reason, 'max_tokens');
    await assert.rejects(ask('/fail-after 20').finalMessage(), Anthropic.APIError);
    await assert.rejects(ask('/fail').finalMessage(), { status: 502 });
    await assert.rejects(ask('x', 'none').finalMessage(), Anthropic.BadRequestError);
  });

  const partsOf = (body: string) => body.split('\n\n').filter((frame) => frame.includes('data: ')).map((frame) => uiPartEvent.parse(JSON.parse(frame.slice(frame.indexOf('data: ') + 6))));

  test('runtime formats - ui_sdk: UiPart events for messages of content, by query or Accept [RUN-010] [RUN-015]', async () => {
    const reply = await post('parts', twoSteps, '', { accept: 'text/html, application/vnd.troupe.ui_sdk+event-stream' });
    assert.equal(reply.status, 200, reply.body);
    const parts = partsOf(reply.body);
    const types = parts.map(({ type }) => type).filter((type, i, all) => type !== 'text-delta' || all[i - 1] !== 'text-delta');
    assert.deepEqual(types, ['text-delta', 'tool-call', 'tool-result', 'text-delta', 'finish']);
    const call = parts.find((part) => part.type === 'tool-call');
    assert.deepEqual(call === undefined ? undefined : [call.toolName, call.args], ['calculator', { expression: '6*7' }]);
    const failed = partsOf((await post('parts', '/fail-after 20', '?format=ui_sdk')).body).at(-1);
    assert.deepEqual(failed?.type === 'error' ? failed.error.code : failed, 'provider_error');
    assert.equal((await post('parts', '/fail', '?format=ui_sdk')).status, 502);
  });

  test('runtime formats - ui_sdk: AI SDK v6\'s own transport and reader for messages with parts [RUN-016]', async () => {
    const transport = new DefaultChatTransport<UIMessage>({ api: 'https://app.invalid/chat', fetch: fetchAs('ui_sdk', 'ui') });
    const send = (content: string) => transport.sendMessages({
      chatId: 'c', trigger: 'submit-message', messageId: undefined, abortSignal: undefined, messages: [{ id: 'm', role: 'user', parts: [{ type: 'text', text: content }] }],
    });
    const read = async (stream: ReadableStream<UIMessageChunk>): Promise<UIMessage | undefined> => {
      let last: UIMessage | undefined;
      for await (const message of readUIMessageStream({ stream, terminateOnError: true })) last = message;
      return last;
    };
    const message = await read(await send(twoSteps));
    assert.deepEqual(message?.parts.map((part) => (part.type === 'text' ? part.text : part.type)), ['step-start', 'Let me see.', 'tool-calculator', 'step-start', 'It is 42.']);
    const [, , tool] = message?.parts ?? [];
    assert.deepEqual(tool !== undefined && 'state' in tool ? tool.state : undefined, 'output-available');
    await assert.rejects(send('/fail-after 20').then(read), /failed as it was told to/);
  });

  test('runtime formats - each format is chosen by query before header, and says the same text with resumable ids [RUN-009] [RUN-010] [RUN-017]', async () => {
    const content = '/slow 3 40';
    const textIn = (format: string, frames: readonly Frame[]): string => frames.map(({ data }) => {
      if (data === '[DONE]') return '';
      const value = z.record(z.string(), z.unknown()).parse(JSON.parse(data));
      const inner = z.object({ payload: z.object({ text: z.string().optional() }).optional(), text: z.string().optional(), delta: z.object({ text: z.string().optional() }).optional(),
        choices: z.array(z.object({ delta: z.object({ content: z.string().optional() }) })).optional() }).loose().parse(value);
      if (format === 'native') return value['kind'] === 'TextDelta' ? inner.payload?.text ?? '' : '';
      return inner.choices?.[0]?.delta.content ?? inner.delta?.text ?? inner.text ?? '';
    }).join('');
    for (const format of streamFormats) {
      const session = `formats-${format}`;
      const open = (headers: Record<string, string> = {}) =>
        client.open(session, content, { query: `?format=${format}`, headers: { accept: 'application/vnd.troupe.anthropic+event-stream', ...headers } });
      let texts = 0;
      const frames = await readUntil(await open(), ({ data }) => textIn(format, [{ data, id: undefined, event: undefined }]) !== '' && ++texts === 3);
      const lastId = frames.findLast(({ id }) => id !== undefined)?.id ?? '';
      const rest: Frame[] = [];
      for await (const frame of framesOf(await open({ 'last-event-id': lastId }))) rest.push(frame);
      assert.equal(textIn(format, frames) + textIn(format, rest), numbered(40), format);
      const nothing = await readUntil(await open({ 'last-event-id': rest.findLast(({ id }) => id !== undefined)?.id ?? '' }), () => false);
      assert.deepEqual(nothing.map(({ event }) => event), format === 'native' ? ['done'] : [], `${format} with its last event`);
      assert.equal((await client.events(session)).filter(({ kind }) => kind === 'RunStarted').length, 1);
    }
  });

  test('runtime formats - a turn that a gate blocks is 403 with the explanation in every format, journaled, without a model call; before, while all gates allow, it goes through [RUN-036] [REG-023] [REG-025]', async () => {
    const { owner, id: org } = await world.organization();
    const held = await world.provision(owner, org, 'Poor');
    const chat = (content: string, format = 'native', more: object = {}) => world.service('POST', `/v1/chat?format=${format}`, { token: held.key, json: chatBody('poor', content, more) });
    assert.equal(textOf(envelopesOf((await chat('rich')).body)), 'You said: rich');
    const wallet = walletAddress(org);
    assert.ok(wallet !== undefined);
    const { remaining } = z.object({ remaining: z.int() }).parse(await world.system.ask(wallet, 'balance', {}));
    await world.system.ask(wallet, 'charge', { turn_id: 'all', cents: remaining, model: 'mock', by: 'dep', input_tokens: 1, output_tokens: 1, at: Date.now() });
    for (const format of streamFormats) {
      const reply = await chat('poor now', format);
      assert.equal(reply.status, 403, reply.body);
      const { error } = z.object({ error: z.object({ code: z.string(), message: z.string() }) }).parse(reply.json);
      assert.equal(error.code, 'policy_denied');
      assert.match(error.message, /Hibernate/);
    }
    const events = await eventsOf(held, 'poor');
    const errored = events.filter(({ kind }) => kind === 'RunErrored');
    assert.equal(errored.length, streamFormats.length);
    assert.deepEqual(errored.map(({ payload }) => [payload['code'], payload['usage']]), streamFormats.map(() => ['policy_denied', { input_tokens: 0, output_tokens: 0, cost_cents: 0 }]));
    const { gates } = z.object({ gates: z.array(z.object({ decision: z.string(), about: z.string() })) }).parse(await world.system.ask(regulationAddress(org, held.id), 'history', {}));
    assert.ok(gates.filter(({ decision, about }) => decision === 'block' && about.includes('poor')).length === streamFormats.length);
    // A session that is new is made all the same, so that its client finds what happened.
    const fresh = await world.service('POST', '/v1/chat', { token: held.key, json: chatBody('poor-2', 'x') });
    assert.equal(fresh.status, 403);
    assert.deepEqual(kindsOf(await eventsOf(held, 'poor-2')), ['SessionCreated', 'UserMessage', 'RunStarted', 'AssistantMessage', 'RunErrored']);
  });

  test('runtime formats - a tool that a gate blocks is not run: the model is told why, it is journaled, and the turn goes on [RUN-034] [REG-025]', async () => {
    const held = await world.provision(undefined, undefined, 'Failing');
    const at = Date.now();
    await world.system.ask(regulationAddress(world.org.id, held.id), 'observe', {
      observations: Array.from({ length: 10 }, (_, i) => ({ kind: 'tool', id: `bad-${i}`, at, ok: false, latency_ms: 1 })),
    });
    const reply = await world.service('POST', '/v1/chat', { token: held.key, json: chatBody('failing', '/tool remember {"fact":"never stored"}') });
    const events = envelopesOf(reply.body);
    const result = events.find(({ kind }) => kind === 'ToolResult')?.payload;
    const { error } = z.object({ error: z.object({ code: z.string(), message: z.string() }) }).parse(result?.['result']);
    assert.deepEqual([result?.['is_error'], error.code], [true, 'policy_denied']);
    assert.match(error.message, /more than 30 %/);
    assert.equal(events.at(-1)?.kind, 'RunFinished');
    assert.equal(events.some(({ kind }) => kind === 'MemoryStored'), false);
  });

  test('runtime formats - regulation learns of turns and tools: how long, how many, what they cost', async () => {
    const held = await world.provision(undefined, undefined, 'Watched');
    for (const content of ['/tool clock {}', '/long 400', '/fail']) await world.service('POST', '/v1/chat', { token: held.key, json: chatBody('watched', content, { model: 'dear' }) });
    const state = async () => z.object({ state: z.object({ operational: z.object({ error_rate: z.number() }), economic: z.object({ burn_rate_per_hour: z.number() }) }) })
      .parse(await world.system.ask(regulationAddress(world.org.id, held.id), 'state', {})).state;
    // What is told arrives on its own: the state is asked until the last turn has.
    let seen = await state();
    for (const deadline = performance.now() + 30_000; seen.operational.error_rate !== 0.25 && performance.now() < deadline;) seen = await state();
    assert.equal(seen.operational.error_rate, 0.25);
    assert.ok(seen.economic.burn_rate_per_hour > 0);
  });

  const eventsOf = async (held: Held, session: string) => z.object({ events: z.array(z.object({ kind: z.string(), payload: z.record(z.string(), z.unknown()) })) })
    .parse((await world.service('GET', `/v1/sessions/${session}/events`, { token: held.key })).json).events;
});
