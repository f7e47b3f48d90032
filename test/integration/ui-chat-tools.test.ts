/**
 * The installation's tools in `/api/chat` through a whole stack: UiPart events, JSON and AI SDK v6's own chat; calls that a person allows or
 * denies; a daemon that is killed after a tool has ended.
 */
import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, beforeEach, describe, test } from 'node:test';
import { lastAssistantMessageIsCompleteWithApprovalResponses, type UIMessage } from 'ai';
import { z } from 'zod';
import type { StoredEvent } from '../../contracts/event.ts';
import { limits } from '../../contracts/limits.ts';
import { uiAnswer, uiChunk, uiPartEvent, type UiChunk, type UiPart } from '../../contracts/ui-chat.ts';
import { chatWorld, say, type ChatWorld } from '../harness/chat.ts';
import { modelServer, openaiChunk, openaiDone, openaiUsage, sse, type Answer, type ModelServer } from '../harness/model-server.ts';
import { pageServer, type PageServer } from '../harness/page-server.ts';
import { startPlatform, type ApiReply, type Person, type TestPlatform } from '../harness/platform.ts';
import { TestChat, uiClient, type UiClient } from '../harness/ui-chat.ts';

const asked = (text: string): object[] => [{ id: 'u1', role: 'user', parts: [{ type: 'text', text }] }];
const textOf = (message: UIMessage | undefined): string => (message?.parts ?? []).map((part) => (part.type === 'text' ? part.text : '')).join('');
const events = (body: string): string[] => body.split('\n\n').filter((event) => event !== '' && !event.startsWith(':')).map((event) => event.slice('data: '.length));
const partsOf = (body: string): UiPart[] => events(body).map((event) => uiPartEvent.parse(JSON.parse(event)));
const chunksOf = (body: string): UiChunk[] => events(body).filter((event) => event !== '[DONE]').map((event) => uiChunk.parse(JSON.parse(event)));
/** Without neighbours of the same type. */
const typesOf = (list: readonly { readonly type: string }[]): string[] => list.map(({ type }) => type).filter((type, i, all) => type !== all[i - 1]);
const reports = z.object({ reports: z.array(z.object({ body: z.string() })) });
const toolParts = (message: UIMessage | undefined) => (message?.parts ?? []).flatMap((part) => ('toolCallId' in part ? [part] : []));

describe('ui chat tools', () => {
  let platform: TestPlatform;
  let world: ChatWorld;
  let ada: Person;
  let orgId: string;
  let ui: UiClient;
  let vendor: ModelServer;
  let pages: PageServer;
  let folder: string;
  /** Answers of the vendor, taken in turn. */
  const script: Answer[] = [];
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'troupe-ui-tools-'));
    await writeFile(join(folder, 'key'), 'vendor-key', { mode: 0o600 });
    const next: Answer = (request, response) => script.shift()?.(request, response);
    [vendor, pages] = await Promise.all([modelServer(...Array.from({ length: 50 }, () => next)), pageServer()]);
    platform = await startPlatform(undefined, {
      daemons: 1, gateways: 1,
      daemon: {
        models: { default: 'mock', registry: [{ id: 'mock', provider: 'mock', input_usd_per_mtok: 3, output_usd_per_mtok: 15 }, { id: 'm', provider: 'openai', upstream_model: 'vendor-m' }] },
        providers: { openai: { base_url: `${vendor.url}/v1`, api_key_path: join(folder, 'key') } },
        tools: { fetch_allow: [pages.url], chat: ['calculator', 'clock', 'memory_write', 'memory_search', 'fetch_url', 'send_report'] },
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
    await Promise.all([vendor.stop(), pages.stop()]);
    await rm(folder, { recursive: true, force: true });
  });
  // What a test that failed did not use is not the next one's.
  beforeEach(() => { script.length = 0; });

  const post = (body: object, token = ada.accessToken): Promise<ApiReply> => platform.api('POST', '/api/chat', { json: body, token });
  const filed = async (by: string): Promise<string[]> => reports.parse(await world.system({ org: orgId, type: 'agent', key: `chat-${by}` }, 'reports', {})).reports.map(({ body }) => body);
  const ofKind = async (kind: string): Promise<StoredEvent[]> => (await world.journaled(orgId)).filter(({ k }) => k === kind);
  const chat = (body?: object): { chat: TestChat; problems: Error[]; ended: (many: number) => Promise<void> } => {
    const problems: Error[] = [];
    let answers = 0;
    let look = (): void => undefined;
    const talk = new TestChat({
      transport: ui.transport(ada.accessToken, body), sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses,
      onError: (error) => { problems.push(error); },
      onFinish: () => { answers += 1; look(); },
    });
    const ended = (many: number): Promise<void> => new Promise((resolve) => {
      look = () => { if (answers >= many) resolve(); };
      look();
    });
    return { chat: talk, problems, ended };
  };

  test('ui chat tools - UiPart events: the call, its result with the call\'s id, the model\'s next words, one finish [CHAT-040] [CHAT-039] [CHAT-041]', async () => {
    const body = { model: 'mock', messages: say('/tool calculator {"expression":"6*7"}\n/tool fetch_url {"url":"none"}\n/then\n/say done'), stream: true };
    const reply = await post(body);
    assert.equal(reply.status, 200, reply.body);
    const parts = partsOf(reply.body);
    const calls = parts.filter((part) => part.type === 'tool-call');
    const results = parts.filter((part) => part.type === 'tool-result');
    assert.deepEqual(calls.map(({ toolName, args }) => [toolName, args]), [['calculator', { expression: '6*7' }], ['fetch_url', { url: 'none' }]]);
    const [sum, page] = calls.map(({ toolCallId }) => results.filter((result) => result.toolCallId === toolCallId));
    assert.deepEqual(sum, [{ type: 'tool-result', toolCallId: calls[0]?.toolCallId, toolName: 'calculator', result: { value: '42', exact: true } }]);
    assert.equal(page?.length, 1);
    assert.ok(page[0]?.toolName === 'fetch_url' && typeof (page[0].result as { error: { code: string } }).error.code === 'string');
    assert.ok(calls.every(({ toolCallId }) => /^[\w-]{1,40}$/.test(toolCallId)), 'vendors take no other ids');
    assert.deepEqual(typesOf(parts), ['text-delta', 'tool-call', 'tool-result', 'text-delta', 'finish']);
    const last = parts.at(-1);
    assert.equal(last?.type === 'finish' && last.finishReason, 'stop');

    const whole = uiAnswer.parse((await post({ ...body, stream: false })).json);
    assert.deepEqual([whole.content, whole.finishReason, whole.toolCalls?.length, whole.toolResults?.find(({ toolName }) => toolName === 'calculator')?.result], ['Let me use calculator and fetch_url.done', 'stop', 2, { value: '42', exact: true }]);
    // One request, one metering event over both steps.
    const metered = (await ofKind('UsageMetered')).filter(({ d }) => d['id'] === whole.id);
    assert.deepEqual(metered.map(({ d }) => [d['by'], (d['usage'] as { output_tokens: number }).output_tokens]), [[ada.userId, whole.usage.outputTokens]]);
  });

  test('ui chat tools - the other chat endpoint runs none, and a tool of the client\'s own of that name is the client\'s [CHAT-017]', async () => {
    const answer = await world.client(ada.accessToken).chat.completions.create({ model: 'mock', messages: say('/tool calculator {"expression":"1"}') });
    assert.deepEqual([answer.choices[0]?.finish_reason, answer.choices[0]?.message.tool_calls?.length], ['tool_calls', 1]);
    const tools = [{ type: 'function', function: { name: 'calculator', parameters: { type: 'object', properties: {} } } }];
    const own = uiAnswer.parse((await post({ model: 'mock', messages: say('/tool calculator {"expression":"1"}'), tools })).json);
    assert.deepEqual([own.finishReason, own.toolResults], ['tool-calls', undefined]);
  });

  test('ui chat tools - in the UiPart form a person\'s word is a part of the next message; what was allowed is done once', async () => {
    const eve = await world.person('eve@example.com');
    const to = { 'troupe-organization': 'personal' };
    const send = (body: object): Promise<ApiReply> => platform.api('POST', '/api/chat', { json: body, token: eve.accessToken, headers: to });
    const stored = async (): Promise<string[]> => reports.parse(await world.system({ org: `u-${eve.userId}`, type: 'agent', key: `chat-${eve.userId}` }, 'reports', {})).reports.map(({ body }) => body);
    const messages: object[] = say('/approve the quarter');
    const first = partsOf((await send({ model: 'mock', messages, stream: true })).body);
    assert.deepEqual(typesOf(first), ['text-delta', 'tool-call', 'finish']);
    const call = first.find((part) => part.type === 'tool-call') ?? assert.fail();
    const last = first.at(-1);
    assert.deepEqual([last?.type === 'finish' && last.finishReason, await stored()], ['tool-calls', []]);

    const made = { role: 'assistant', content: 'Let me.', tool_calls: [{ id: call.toolCallId, type: 'function', function: { name: call.toolName, arguments: JSON.stringify(call.args) } }] };
    const word = (approved: boolean): object => ({ role: 'tool', tool_call_id: call.toolCallId, content: [{ type: 'tool-approval-response', approved }] });
    for (let again = 0; again < 2; again++) {
      const second = partsOf((await send({ model: 'mock', messages: [...messages, made, word(true)], stream: true })).body);
      assert.deepEqual(typesOf(second), ['tool-result', 'text-delta', 'finish'], JSON.stringify(second));
      const [result] = second;
      assert.ok(result?.type === 'tool-result' && result.toolCallId === call.toolCallId && result.toolName === 'send_report');
      assert.equal(second.map((part) => (part.type === 'text-delta' ? part.text : '')).join(''), `send_report says: ${JSON.stringify(result.result)}`);
      assert.deepEqual(await stored(), ['the quarter']);
    }
    for (const [status, code, body] of [
      [400, 'approval_unknown', { messages: [...messages, { ...made, tool_calls: [{ ...made.tool_calls[0], id: 'call_x' }] }, { role: 'tool', tool_call_id: 'call_x', content: [{ type: 'tool-approval-response', approved: true }] }] }],
      [422, 'validation_error', { messages: [...messages, made, word(true), ...say('and?')] }],
      [422, 'validation_error', { messages: [...messages, made, { role: 'tool', tool_call_id: call.toolCallId, content: [{ type: 'tool-approval-response', approved: 'yes' }] }] }],
    ] as const) {
      const refused = await send({ model: 'mock', ...body });
      assert.deepEqual([refused.status, (refused.json as { error: { code: string } }).error.code], [status, code], refused.body);
    }
    // Somebody else's word does not reach it.
    const foreign = await post({ model: 'mock', messages: [...messages, made, word(true)] });
    assert.deepEqual([foreign.status, (foreign.json as { error: { code: string } }).error.code], [400, 'approval_unknown']);
  });

  test('ui chat tools - a call of a request that found its conversation busy waits in an actor of its own, and is found by its decision', async () => {
    const leave = new AbortController();
    const first = { role: 'user' as const, content: '/hang 1' };
    const hanging = await Promise.all(Array.from({ length: limits.completionsPerActorMax }, () => world.client(ada.accessToken).chat.completions.create({ model: 'mock', messages: [first], stream: true }, { signal: leave.signal })));
    assert.equal(hanging.length, limits.completionsPerActorMax);
    const before = await filed(ada.userId);
    const messages: object[] = [first, { role: 'assistant', content: 'w1' }, ...say('/approve while busy')];
    const answer = uiAnswer.parse((await post({ model: 'mock', messages })).json);
    const [call] = answer.toolCalls ?? [];
    assert.ok(call !== undefined, JSON.stringify(answer));
    const word = await post({ model: 'mock', messages: [
      ...messages, { role: 'assistant', content: '', tool_calls: [{ id: call.toolCallId, type: 'function', function: { name: call.toolName, arguments: '{}' } }] },
      { role: 'tool', tool_call_id: call.toolCallId, content: [{ type: 'tool-approval-response', approved: true }] },
    ] });
    leave.abort();
    assert.equal(word.status, 200, word.body);
    assert.deepEqual(await filed(ada.userId), ['while busy', ...before]);
  });

  test('ui chat tools - AI SDK v6: inputs, outputs and approval requests in their steps [CHAT-046] [CHAT-045] [CHAT-047]', async () => {
    const reply = await post({ messages: asked('/tool calculator {"expression":"6*7"}\n/then\n/approve the year') });
    const chunks = chunksOf(reply.body);
    assert.equal(events(reply.body).at(-1), '[DONE]');
    assert.deepEqual(typesOf(chunks), [
      'start', 'start-step', 'text-start', 'text-delta', 'text-end', 'tool-input-available', 'tool-output-available', 'finish-step',
      'start-step', 'text-start', 'text-delta', 'text-end', 'tool-input-available', 'tool-approval-request', 'finish-step', 'finish',
    ]);
    const inputs = chunks.filter((chunk) => chunk.type === 'tool-input-available');
    const [output] = chunks.filter((chunk) => chunk.type === 'tool-output-available');
    const [request] = chunks.filter((chunk) => chunk.type === 'tool-approval-request');
    assert.deepEqual(inputs.map(({ toolName, input }) => [toolName, input]), [['calculator', { expression: '6*7' }], ['send_report', { title: 'Report', body: 'the year' }]]);
    assert.deepEqual([output?.toolCallId, output?.output, request?.toolCallId], [inputs[0]?.toolCallId, { value: '42', exact: true }, inputs[1]?.toolCallId]);
    const last = chunks.at(-1);
    assert.equal(last?.type === 'finish' && last.finishReason, 'tool-calls');
  });

  test('ui chat tools - the AI SDK\'s chat: asked, allowed, gone on with in the same message; the next turn knows of it [CHAT-046] [CHAT-049]', async () => {
    const { chat: talk, problems, ended } = chat();
    const before = await filed(ada.userId);
    await talk.sendMessage({ text: '/tool clock {}\n/then\n/approve of the month' });
    const [clock, waiting] = toolParts(talk.messages[1]);
    assert.deepEqual([clock?.state, waiting?.type, waiting?.state], ['output-available', 'tool-send_report', 'approval-requested']);
    assert.deepEqual(await filed(ada.userId), before);
    assert.ok(waiting?.state === 'approval-requested');
    await talk.addToolApprovalResponse({ id: waiting.approval.id, approved: true });
    await ended(2);
    assert.deepEqual([problems, talk.messages.map(({ role }) => role)], [[], ['user', 'assistant']]);
    const [, done] = toolParts(talk.messages[1]);
    assert.ok(done?.state === 'output-available');
    assert.match(textOf(talk.messages[1]), /send_report says: \{"filed":true/);
    assert.deepEqual(await filed(ada.userId), ['of the month', ...before]);
    await talk.sendMessage({ text: 'thanks' });
    assert.equal(textOf(talk.messages[3]), 'You said: thanks');
    const started = (await ofKind('CompletionStarted')).at(-1);
    assert.ok(started !== undefined);
    const told = (started.d['prompt'] as { messages: { role: string; text: string; name?: string }[] }).messages;
    assert.ok(told.some(({ role, text }) => role === 'tool' && text.includes('"filed":true')));
    assert.deepEqual(problems, []);
  });

  test('ui chat tools - the AI SDK\'s chat: denied, nothing is run, the model is told why', async () => {
    const { chat: talk, problems, ended } = chat();
    const before = await filed(ada.userId);
    await talk.sendMessage({ text: '/approve of nothing' });
    const [waiting] = toolParts(talk.messages[1]);
    assert.ok(waiting?.state === 'approval-requested');
    await talk.addToolApprovalResponse({ id: waiting.approval.id, approved: false, reason: 'not now' });
    await ended(2);
    assert.match(textOf(talk.messages[1]), /send_report (failed|says): .*not allow this call.*not now/);
    assert.deepEqual([problems, await filed(ada.userId), toolParts(talk.messages[1]).map(({ state }) => state)], [[], before, ['output-available']]);
  });

  test('ui chat tools - a daemon killed after a tool has ended: the tool is not run again, the model goes on from its result, the client gets it by asking again', async () => {
    const toolCall = (name: string, args: object): Answer => (_, response) => {
      sse(response);
      response.end(openaiChunk({ tool_calls: [{ index: 0, id: 'v1', type: 'function', function: { name, arguments: JSON.stringify(args) } }] }) + openaiChunk({}, 'tool_calls') + openaiUsage(5, 5) + openaiDone);
    };
    const url = `${pages.url}/once`;
    const asking = Promise.withResolvers<void>();
    script.push(toolCall('fetch_url', { url }));
    // The next model call: the tool has ended, nothing has been said.
    script.push((_, response) => {
      sse(response);
      asking.resolve();
    });
    script.push(toolCall('send_report', { title: 'T', body: 'after the loss' }));
    const { chat: talk, problems, ended } = chat({ model: 'm' });
    const sent = talk.sendMessage({ text: 'read it' });
    await asking.promise;
    const [daemon] = platform.daemons;
    await daemon?.kill();
    await sent;
    assert.deepEqual([talk.status, problems.map(({ message }) => message)], ['error', ['The upstream cannot be reached.']]);
    assert.deepEqual(toolParts(talk.messages[1]).map(({ state }) => state), ['output-available']);
    await daemon?.start();
    const requests = async (): Promise<StoredEvent[]> => (await ofKind('CompletionApprovalRequested')).filter(({ d }) => String(d['preview']).includes('after the loss'));
    while ((await requests()).length === 0) await platform.api('GET', '/healthz');
    assert.equal(pages.asked.filter((path) => path === '/once').length, 1);
    assert.match(JSON.stringify(vendor.requests.at(-1)?.body['messages']), /The page \/once/);

    // The client asks anew from where it stood: its own history has the page already.
    script.push(toolCall('send_report', { title: 'T', body: 'of the page' }));
    problems.length = 0;
    talk.clearError();
    while ((await platform.api('GET', '/api/v1/models', { token: ada.accessToken })).status !== 200) await platform.api('GET', '/healthz');
    await talk.sendMessage();
    const waiting = toolParts(talk.messages[1]).at(-1);
    assert.ok(waiting?.state === 'approval-requested', JSON.stringify([talk.messages, problems.map(String)]));
    // Killed while the model is asked after the allowed call: the answer is repeated, the report filed once.
    const again = Promise.withResolvers<void>();
    script.push((_, response) => {
      sse(response);
      again.resolve();
    });
    const finish: Answer = (_, response) => {
      sse(response);
      response.end(openaiChunk({ content: 'filed.' }, 'stop') + openaiUsage(5, 5) + openaiDone);
    };
    script.push(finish, finish);
    const before = await filed(ada.userId);
    const answered = ended(3);
    await talk.addToolApprovalResponse({ id: waiting.approval.id, approved: true });
    await again.promise;
    await daemon?.kill();
    await answered;
    await daemon?.start();
    while ((await platform.api('GET', '/api/v1/models', { token: ada.accessToken })).status !== 200) await platform.api('GET', '/healthz');
    const word = await post({ model: 'm', messages: [
      ...asked('read it'), { id: 'a1', role: 'assistant', parts: [{ type: 'tool-send_report', toolCallId: waiting.toolCallId, state: 'approval-responded', input: {}, approval: { id: waiting.toolCallId, approved: true } }] },
    ] });
    const chunks = chunksOf(word.body);
    assert.deepEqual(typesOf(chunks).slice(0, 3), ['start', 'tool-output-available', 'start-step'], word.body);
    assert.match(word.body, /"filed\."/);
    assert.deepEqual(await filed(ada.userId), ['of the page', ...before]);
    assert.equal(pages.asked.filter((path) => path === '/once').length, 1);
  });
});
