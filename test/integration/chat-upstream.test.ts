/** Public chat over a vendor's wire: what reaches the vendor, what ends the call, what is metered, and what a lost host leaves behind. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { request as httpsRequest } from 'node:https';
import type { IncomingMessage } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import type { StoredEvent } from '../../contracts/event.ts';
import { chatWorld, completionsPath, say, type ChatWorld } from '../harness/chat.ts';
import { modelServer, openaiChunk, openaiDone, openaiUsage, sse, type Answer, type ModelServer } from '../harness/model-server.ts';
import { startPlatform, type Person, type TestPlatform } from '../harness/platform.ts';

/** Metering events, as they are journaled. */
interface Metered { readonly id: string; readonly by: string; readonly model: string; readonly counted: boolean; readonly usage: { readonly input_tokens: number; readonly output_tokens: number; readonly cost_cents: number } }

describe('public chat upstream', () => {
  let platform: TestPlatform;
  let world: ChatWorld;
  let ada: Person;
  let vendor: ModelServer;
  let folder: string;
  /** Answers of the vendor, taken in turn. */
  const script: Answer[] = [];
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'troupe-chat-'));
    await writeFile(join(folder, 'key'), 'vendor-key', { mode: 0o600 });
    const next: Answer = (request, response) => script.shift()?.(request, response);
    vendor = await modelServer(...Array.from({ length: 200 }, () => next));
    platform = await startPlatform(undefined, {
      daemons: 2, gateways: 2,
      daemon: {
        models: { default: 'm', registry: [{ id: 'm', provider: 'openai', upstream_model: 'vendor-m', max_output_tokens: 500, input_usd_per_mtok: 3_000, output_usd_per_mtok: 15_000 }, { id: 'mock', provider: 'mock' }] },
        providers: { openai: { base_url: `${vendor.url}/v1`, api_key_path: join(folder, 'key') } },
      },
    });
    world = await chatWorld(platform);
    ada = await world.person('ada@example.com');
    const { id } = await world.organizations.create(ada, 'ada-org');
    await world.setPlan(id, { plan: 'enterprise', limits: { perMinute: -1, perDay: -1, maxApiKeys: -1, maxMembers: -1, credits: 1_000_000 } });
  });
  after(async () => {
    await world.stop();
    await platform.stop();
    await vendor.stop();
    await rm(folder, { recursive: true, force: true });
  });

  const journaled = (): Promise<StoredEvent[]> => world.journaled();
  const metered = async (): Promise<Metered[]> => (await journaled()).filter((event) => event.k === 'UsageMetered').map((event) => event.d as unknown as Metered);

  /** A streaming request whose response the test reads at its own pace. */
  const open = async (body: object, signal?: AbortSignal): Promise<IncomingMessage> => {
    const request = httpsRequest({
      host: '127.0.0.1', servername: 'localhost', port: platform.gateways[0]?.port, method: 'POST', path: completionsPath, ca: platform.ca, agent: false,
      headers: { authorization: `Bearer ${ada.accessToken}`, 'content-type': 'application/json' }, ...(signal === undefined ? {} : { signal }),
    });
    request.end(JSON.stringify(body));
    const [response] = await once(request, 'response') as [IncomingMessage];
    return response;
  };

  test('public chat upstream - what is asked of the call reaches it [CHAT-018]', async () => {
    script.push((_, response) => {
      sse(response);
      response.end(openaiChunk({ content: 'ok' }) + openaiChunk({}, 'stop') + openaiUsage(1_000, 7) + openaiDone);
    });
    const tools = [{ type: 'function' as const, function: { name: 'weather', description: 'Weather', parameters: { type: 'object', properties: {} }, strict: true } }];
    const answer = await world.client(ada.accessToken).chat.completions.create({
      model: 'm', messages: [{ role: 'developer', content: 'be kind' }, { role: 'user', content: 'hi', name: 'Ada' }, { role: 'assistant', content: null, tool_calls: [{ id: 'c1', type: 'function', function: { name: 'weather', arguments: '{"a":1}' } }] }, { role: 'tool', tool_call_id: 'c1', content: 'sun' }],
      temperature: 0.5, top_p: 0.25, max_tokens: 99, stop: 'END', tool_choice: { type: 'function', function: { name: 'weather' } }, tools, user: 'u-1', metadata: { team: 'blue' },
    });
    assert.deepEqual(answer.usage, { prompt_tokens: 1_000, completion_tokens: 7, total_tokens: 1_007 });
    const { body, headers } = vendor.requests.at(-1) ?? assert.fail('no call');
    assert.equal(headers['authorization'], 'Bearer vendor-key');
    assert.deepEqual(body, {
      model: 'vendor-m', stream: true, stream_options: { include_usage: true }, max_tokens: 99, temperature: 0.5, top_p: 0.25, stop: ['END'], user: 'u-1', tools,
      tool_choice: { type: 'function', function: { name: 'weather' } },
      messages: [{ role: 'system', content: 'be kind' }, { role: 'user', content: 'hi', name: 'Ada' }, { role: 'assistant', content: null, tool_calls: [{ id: 'c1', type: 'function', function: { name: 'weather', arguments: '{"a":1}' } }] }, { role: 'tool', tool_call_id: 'c1', content: 'sun' }],
    });
    // 1,000 × 0.3 cents + 7 × 1.5 cents, rounded up.
    const event = (await metered()).find(({ id }) => id === answer.id);
    assert.deepEqual(event, { id: answer.id, by: ada.userId, model: 'm', counted: true, usage: { input_tokens: 1_000, output_tokens: 7, cost_cents: 311 } });
    const started = (await journaled()).find((e) => e.k === 'CompletionStarted' && e.d['id'] === answer.id);
    assert.deepEqual(started?.d['metadata'], { team: 'blue' });
  });

  test('public chat upstream - a bound above the model\'s is the model\'s', async () => {
    script.push((_, response) => {
      sse(response);
      response.end(openaiChunk({ content: 'ok' }, 'length') + openaiDone);
    });
    const answer = await world.client(ada.accessToken).chat.completions.create({ model: 'm', messages: say('hello'), max_completion_tokens: 100_000 });
    assert.equal(vendor.requests.at(-1)?.body['max_tokens'], 500);
    // The vendor counted nothing: four characters a token.
    assert.deepEqual((await metered()).find(({ id }) => id === answer.id), { id: answer.id, by: ada.userId, model: 'm', counted: false, usage: { input_tokens: 2, output_tokens: 1, cost_cents: 3 } });
  });

  test('public chat upstream - an image that a vendor makes is neither given nor kept [CHAT-016]', async () => {
    const image = Buffer.from('an image').toString('base64');
    for (const stream of [true, false]) {
      script.push((_, response) => {
        sse(response);
        response.end(openaiChunk({ content: 'ok', images: [{ type: 'image_url', image_url: { url: `data:image/png;base64,${image}` } }] }) + openaiChunk({}, 'stop') + openaiDone);
      });
      const reply = await world.post(ada.accessToken, { model: 'm', messages: say('a cat'), stream });
      assert.equal(reply.status, 200, reply.body);
      assert.match(reply.body, /"content":"ok"/);
      assert.equal(reply.body.includes(image), false);
    }
    assert.equal(JSON.stringify(await journaled()).includes(image), false);
  });

  for (const stream of [true, false]) {
    test(`public chat upstream - a client that leaves ends the vendor's call, and what was used is metered (stream: ${stream})`, async () => {
      const called = Promise.withResolvers<{ readonly gone: Promise<void> }>();
      script.push((request, response) => {
        sse(response);
        response.write(openaiChunk({ content: 'one two ' }));
        called.resolve(request);
      });
      const before = (await metered()).length;
      const leave = new AbortController();
      const answer = world.client(ada.accessToken).chat.completions.create({ model: 'm', messages: say('go on'), stream }, { signal: leave.signal });
      const { gone } = await called.promise;
      if (stream) {
        for await (const chunk of (await answer) as AsyncIterable<{ choices: { delta: { content?: string } }[] }>) if (chunk.choices[0]?.delta.content === 'one two ') break;
      }
      leave.abort();
      if (!stream) await assert.rejects(answer, /abort/i);
      await gone;
      const all = await until(metered, (now) => now.length > before);
      assert.equal(all.length, before + 1);
      const { usage, counted } = all.at(-1) ?? assert.fail();
      assert.deepEqual([counted, usage.input_tokens], [false, 2]);
      const end = (await journaled()).findLast((event) => event.k === 'CompletionFinished');
      assert.equal(end?.d['finish_reason'], 'cancelled');
    });
  }

  test('public chat upstream - what a client sees is in the journal, and a daemon that dies is told of at the end of the stream', async () => {
    const more = Promise.withResolvers<void>();
    script.push(async (_, response) => {
      sse(response);
      response.write(openaiChunk({ content: 'first ' }));
      await more.promise;
      response.end(openaiChunk({ content: 'second' }, 'stop') + openaiUsage(3, 2) + openaiDone);
    });
    // Whichever daemon is lost, the vendor is asked again where the actor goes on.
    script.push((_, response) => {
      sse(response);
      response.end(openaiChunk({ content: 'second' }, 'stop') + openaiUsage(3, 2) + openaiDone);
    });
    const response = await open({ model: 'm', messages: say('twice'), stream: true });
    let text = '';
    response.setEncoding('utf8');
    const first = Promise.withResolvers<void>();
    response.on('data', (piece: string) => {
      text += piece;
      if (text.includes('first ')) first.resolve();
    });
    await first.promise;
    const id = /"id":"(chatcmpl-[^"]+)"/.exec(text)?.[1];
    assert.ok((await journaled()).some((event) => event.k === 'CompletionDelta' && event.d['id'] === id && event.d['text'] === 'first '));
    const ended = once(response, 'end');
    await Promise.all(platform.daemons.map((daemon) => daemon.kill()));
    await ended;
    const last = text.trimEnd().split('\n\n').at(-1) ?? '';
    assert.deepEqual(JSON.parse(last.slice(6)), { error: { message: 'The upstream cannot be reached.', type: 'api_error', code: 'upstream_unavailable', param: null } });
    assert.equal(text.includes('[DONE]'), false);
    // It goes on without the client, from where the journal ends, and is metered once.
    await Promise.all(platform.daemons.map((daemon) => daemon.start()));
    for (const gateway of [0, 1]) await until(() => platform.api('GET', '/api/v1/models', { token: ada.accessToken, gateway }), ({ status }) => status === 200);
    const all = await until(metered, (now) => now.some((event) => event.id === id));
    assert.equal(all.filter((event) => event.id === id).length, 1);
    const said = (await journaled()).filter((event) => event.k === 'CompletionDelta' && event.d['id'] === id).map((event) => event.d['text']).join('');
    assert.equal(said, 'first second');
    more.resolve();
  });

  test('public chat upstream - a reader that stops holds nothing up but itself, and gets everything in the end', async () => {
    const words = Array.from({ length: 60_000 }, (_, i) => `w${i + 1}`).join(' ').slice(0, 256 * 1024);
    const response = await open({ model: 'mock', messages: say('/long 60000'), stream: true });
    response.pause();
    const quick = await world.client(ada.accessToken).chat.completions.create({ model: 'mock', messages: say('/say quick') });
    assert.equal(quick.choices[0]?.message.content, 'quick');
    let text = '';
    response.setEncoding('utf8');
    for await (const piece of response) text += String(piece);
    const said = text.split('\n\n').filter((event) => event.startsWith('data: {')).map((event) => (JSON.parse(event.slice(6)) as { choices: { delta: { content?: string } }[] }).choices[0]?.delta.content ?? '').join('');
    assert.equal(said, words);
    assert.match(text, /data: \[DONE\]\n\n$/);
  });

  test('public chat upstream - a daemon that drains finishes the answers it is giving', async () => {
    const [last, other] = platform.daemons;
    assert.ok(last !== undefined && other !== undefined);
    await other.stop();
    await until(() => world.status(ada.accessToken), (status) => status === 200);
    const more = Promise.withResolvers<void>();
    let aborted = false;
    script.push(async (request, response) => {
      void request.gone.then(() => { aborted = true; });
      sse(response);
      response.write(openaiChunk({ content: 'first ' }));
      await more.promise;
      response.end(openaiChunk({ content: 'second' }, 'stop') + openaiDone);
    });
    const response = await open({ model: 'm', messages: say('drained'), stream: true });
    const stopped = last.stop();
    // It takes nothing new, and is still there.
    await until(() => platform.api('GET', '/healthz'), ({ status }) => status === 503);
    for (let i = 0; i < 200; i++) await platform.api('GET', '/healthz');
    assert.equal(aborted, false);
    more.resolve();
    let text = '';
    response.setEncoding('utf8');
    for await (const piece of response) text += String(piece);
    assert.match(text, /"second"[\s\S]*data: \[DONE\]\n\n$/);
    await stopped;
  });

  test('public chat upstream - without a daemon the answer is 503 [CHAT-026]', async () => {
    await Promise.all(platform.daemons.map((daemon) => daemon.stop()));
    const refused = await world.post(ada.accessToken, { model: 'm', messages: say('x') });
    assert.equal(refused.status, 503, refused.body);
    assert.equal((refused.json as { error: { type: string } }).error.type, 'api_error');
  });
});

/** Looks until it is so; bounded by the test's own time. */
const until = async <T>(look: () => Promise<T>, isSo: (value: T) => boolean): Promise<T> => {
  for (;;) {
    const value = await look();
    if (isSo(value)) return value;
  }
};
