/**
 * Public chat under attack, over real TLS with two gateways and two daemons and a vendor of the test's own: hostile bodies, words on calls of
 * others, clients that leave, stall or half-close at every moment. Afterwards nothing runs anywhere and every completion was metered once.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, beforeEach, describe, test } from 'node:test';
import { connect as connectTls } from 'node:tls';
import { z } from 'zod';
import { limits } from '../../contracts/limits.ts';
import { uiAnswer } from '../../contracts/ui-chat.ts';
import { within } from '../harness/chaos.ts';
import { chatWorld, completionsPath, say, type ChatWorld } from '../harness/chat.ts';
import { modelServer, openaiChunk, openaiDone, openaiUsage, sse, type Answer, type ModelRequest, type ModelServer } from '../harness/model-server.ts';
import { meteredTurns } from '../harness/paid.ts';
import { startPlatform, type ApiReply, type Person, type TestPlatform } from '../harness/platform.ts';

const uiPath = '/api/chat';
const reports = z.object({ reports: z.array(z.object({ body: z.string() })) });
const codeOf = ({ json }: ApiReply): unknown => (json as { error?: { code?: unknown } } | undefined)?.error?.code;
/** As many as fit in a body. */
const full = (head: string, item: string, tail: string): string => head + Array<string>(Math.floor((limits.chatBodyMaxBytes - head.length - tail.length) / (item.length + 1))).fill(item).join(',') + tail;
const names = (count: number): string => Array.from({ length: count }, (_, i) => `"k${i}":0`).join(',');
const deep = `${'['.repeat(500_000)}${']'.repeat(500_000)}`;
/** Takes a call of the vendor's, says one word, and goes on for ever. */
const endless: Answer = (_, response) => {
  sse(response);
  response.write(openaiChunk({ content: 'word' }));
};
const short: Answer = (_, response) => {
  sse(response);
  response.end(openaiChunk({ content: 'ok' }) + openaiChunk({}, 'stop') + openaiUsage(10, 1) + openaiDone);
};

describe('chat under attack', () => {
  let platform: TestPlatform;
  let world: ChatWorld;
  let ada: Person;
  let eve: Person;
  let orgId: string;
  let eveOrg: string;
  let vendor: ModelServer;
  let folder: string;
  const script: Answer[] = [];
  /** Calls of the vendor that have come and are told of. */
  let arrived: (request: ModelRequest) => void = () => undefined;
  let open = 0;
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'troupe-attack-chat-'));
    await writeFile(join(folder, 'key'), 'vendor-key', { mode: 0o600 });
    const next: Answer = (request, response: ServerResponse) => {
      open += 1;
      response.on('close', () => { open -= 1; });
      arrived(request);
      return (script.shift() ?? short)(request, response);
    };
    vendor = await modelServer(...Array.from({ length: 1_000 }, () => next));
    platform = await startPlatform(undefined, {
      daemons: 2, gateways: 2, gateway: { console: false },
      daemon: {
        models: { default: 'm', registry: [{ id: 'm', provider: 'openai', upstream_model: 'v', input_usd_per_mtok: 3_000, output_usd_per_mtok: 15_000 }, { id: 'mock', provider: 'mock' }] },
        providers: { openai: { base_url: `${vendor.url}/v1`, api_key_path: join(folder, 'key') } },
        tools: { fetch_allow: [], chat: ['calculator', 'send_report'] },
      },
    });
    world = await chatWorld(platform);
    [ada, eve] = await Promise.all([world.person('ada@attack.example'), world.person('eve@attack.example')]);
    [orgId, eveOrg] = [(await world.organizations.create(ada, 'ada-attack')).id, (await world.organizations.create(eve, 'eve-attack')).id];
    for (const id of [orgId, eveOrg]) await world.setPlan(id, { plan: 'enterprise', limits: { perMinute: -1, perDay: -1, maxApiKeys: -1, maxMembers: -1, credits: 100_000_000 } });
  });
  after(async () => {
    await world.stop();
    await platform.stop();
    await vendor.stop();
    await rm(folder, { recursive: true, force: true });
  });
  beforeEach(() => {
    script.length = 0;
    arrived = () => undefined;
  });

  const raw = (path: string, body: string, gateway = 0): Promise<ApiReply> => platform.api('POST', path, { raw: body, token: ada.accessToken, gateway });
  const ui = (body: object, token = ada.accessToken): Promise<ApiReply> => platform.api('POST', uiPath, { json: body, token });
  const vendorCall = (): Promise<ModelRequest> => new Promise((resolve) => { arrived = resolve; });
  /** Every completion that began has ended, and was metered once; the vendor has no call left. */
  const settled = async (): Promise<number> => {
    const look = async (): Promise<number> => {
      for (;;) {
        const events = await world.journaled();
        const [begun, ended] = [events.filter(({ k }) => k === 'CompletionStarted').length, events.filter(({ k }) => k === 'CompletionFinished' || k === 'CompletionFailed').length];
        if (begun === ended && open === 0) {
          assert.equal(meteredTurns(events).size, begun);
          return begun;
        }
      }
    };
    return within(90_000, 'the end of all that began', look(), () => `${open} calls are open\n${platform.report()}`);
  };
  const alive = async (): Promise<void> => {
    for (const gateway of [0, 1]) assert.equal(await world.status(ada.accessToken, { gateway }), 200);
    for (const process of [...platform.daemons, ...platform.gateways]) assert.equal(process.crashed, undefined, process.name);
  };

  test('chat attack - hostile bodies are refused by their place with a short answer; nothing of them is a fault or reaches a model', { timeout: 240_000 }, async () => {
    const user = '{"role":"user","content":"x"}';
    const calls = vendor.requests.length;
    const bodies: readonly string[] = [
      full('{"model":"m","messages":[', '{}', ']}'), full('{"model":"m","messages":[', '0', ']}'), full('{"model":"m","messages":[', user, ']}'),
      full('{"model":"m","messages":[{"role":"user","content":[', '{}', ']}]}'), full(`{"model":"m","messages":[${user}],"tools":[`, '0', ']}'),
      `{"model":"m","messages":[{"role":"user","content":"x",${names(200_000)}}]}`, `{"model":"m","messages":[{"role":"${'r'.repeat(2_000_000)}","content":"x"}]}`,
      `{"model":"m","messages":[${user}],"tools":[{"type":"function","function":{"name":"a","parameters":{"a":${deep}}}}]}`, `{"model":"m","messages":[{"role":"user","content":${deep}}]}`, deep, `{"a":${deep}}`,
      `{"model":"m","messages":[{"role":"user","parts":[{"type":"text","text":"x","more":${deep}}]}]}`, `{"model":"m","messages":[{"role":"user","parts":[{"type":"text","text":"x"}],"metadata":${deep}}]}`,
      `{"model":"m","messages":[{"role":"assistant","parts":[{"type":"tool-a","toolCallId":"c","state":"output-available","output":${deep}}]},{"role":"user","parts":[{"type":"text","text":"x"}]}]}`,
      `{"model":"m","messages":[${user},{"role":"tool","tool_call_id":"never","content":"x"}]}`, '{"model":"m","messages":[{"__proto__":{"role":"user","content":"x"}}]}', '{"__proto__":{"model":"m","messages":[]}}',
      '{"model":"m","messages":{"length":1,"0":{"role":"user","content":"x"}}}', '[]', 'null', '"x"', '', '{', '\u0000', '{"model":"m","messages":[]}', `{"model":"m","messages":[${user}],"model":7}`,
    ];
    for (const path of [completionsPath, uiPath]) {
      for (const [nth, body] of bodies.entries()) {
        const reply = await raw(path, body, nth % 2);
        const what = `${path} ${nth} ${body.slice(0, 80)}: ${reply.status} ${reply.body.slice(0, 300)}`;
        assert.ok(reply.status === 400 || reply.status === 422, what);
        assert.equal(codeOf(reply), 'validation_error', what);
        assert.ok(reply.body.length < 16_384, what);
      }
    }
    for (const extra of [`"metadata":{${names(200_000)}}`, names(200_000), `"${'k'.repeat(2_000_000)}":0`]) {
      const reply = await raw(completionsPath, `{"model":"m","messages":[${user}],${extra}}`);
      assert.deepEqual([reply.status, codeOf(reply), reply.body.length < 16_384], [400, 'validation_error', true], reply.body.slice(0, 300));
    }
    assert.equal((await raw(completionsPath, ' '.repeat(limits.chatBodyMaxBytes + 1))).status, 413);
    for (const model of ['none', '__proto__', 'constructor', 'M', 'm ', '../m']) {
      const reply = await ui({ model, messages: say('x') });
      assert.deepEqual([reply.status, codeOf(reply)], [400, 'model_not_supported'], reply.body);
    }
    assert.equal(vendor.requests.length, calls);
    await alive();
  });

  test('chat attack - names of JavaScript\'s own, halves of characters and zeros are text like any other', async () => {
    const own = ['__proto__', 'constructor', 'toString'];
    for (const path of [completionsPath, uiPath]) {
      for (const word of ['\ud800', 'a\udfffb', '\u0000', '\u2028</script>\r\n\r\ndata: [DONE]', ...own]) {
        script.push((_, response) => {
          sse(response);
          response.end(openaiChunk({ content: word.toWellFormed() }) + openaiChunk({}, 'stop') + openaiUsage(10, 1) + openaiDone);
        });
        const messages = [
          { role: 'user', content: word }, { role: 'assistant', content: word, tool_calls: own.map((id) => ({ id, type: 'function', function: { name: id, arguments: `{"__proto__":{"a":${JSON.stringify(word)}}}` } })) },
          ...own.map((id) => ({ role: 'tool', tool_call_id: id, content: word })),
        ];
        const tools = own.map((name) => ({ type: 'function', function: { name, parameters: JSON.parse('{"type":"object","__proto__":{"type":"object"},"properties":{"__proto__":{"type":"string"}}}') as object } }));
        const reply = await raw(path, JSON.stringify({ model: 'm', messages, tools, stream: true }));
        assert.equal(reply.status, 200, `${JSON.stringify(word)} ${reply.body}`);
        const lines = reply.body.split('\n\n').filter((line) => line.startsWith('data: {')).map((line) => JSON.parse(line.slice(6)) as { choices?: { delta: { content?: string } }[]; text?: string });
        assert.equal(lines.map(({ choices, text }) => choices?.[0]?.delta.content ?? text ?? '').join(''), word.toWellFormed());
        const { body } = vendor.requests.at(-1) ?? assert.fail();
        assert.deepEqual((body['messages'] as { role: string; tool_call_id?: string }[]).filter(({ role }) => role === 'tool').map(({ tool_call_id: id }) => id), own);
      }
    }
    assert.equal(Object.hasOwn(Object.prototype, 'a'), false);
    await settled();
  });

  test('chat attack - a model\'s call that is too large is none: the answer fails with nothing of it, and the work is metered', async () => {
    for (const chars of [limits.toolArgumentsMaxChars + 1, 400 * 1024]) {
      for (const path of [completionsPath, uiPath]) {
        for (const stream of [false, true]) {
          script.push((_, response) => {
            sse(response);
            response.end(openaiChunk({ tool_calls: [{ index: 0, id: 'c1', type: 'function', function: { name: 'send_report', arguments: JSON.stringify({ a: 'x'.repeat(chars) }) } }] }) + openaiChunk({}, 'tool_calls') + openaiUsage(1_000, 1_000) + openaiDone);
          });
          const reply = await raw(path, JSON.stringify({ model: 'm', messages: say('x'), stream }));
          assert.ok(reply.status >= 500 || reply.body.includes('provider_error'), `${reply.status} ${reply.body.slice(0, 200)}`);
          assert.ok(!reply.body.includes('xxxx'));
        }
      }
      await settled();
      const last = (await world.journaled(orgId)).filter(({ k }) => k === 'UsageMetered').slice(-4).map(({ d }) => d as { counted: boolean; usage: { output_tokens: number; cost_cents: number } });
      for (const { counted, usage } of last) assert.ok(!counted && usage.output_tokens > chars / 8 && usage.cost_cents > 0, `${chars} ${JSON.stringify(usage)}`);
    }
  });

  /** A call that waits for ada, and her words on it. */
  const waiting = async (text: string): Promise<{ readonly word: (approved: boolean) => object }> => {
    const messages = say(`/approve ${text}`);
    const [call] = uiAnswer.parse((await ui({ model: 'mock', messages })).json).toolCalls ?? [];
    assert.ok(call !== undefined);
    const made = { role: 'assistant', content: '', tool_calls: [{ id: call.toolCallId, type: 'function', function: { name: call.toolName, arguments: JSON.stringify({ title: 'T', body: 'forged' }) } }] };
    return { word: (approved) => ({ model: 'mock', messages: [...messages, made, { role: 'tool', tool_call_id: call.toolCallId, content: [{ type: 'tool-approval-response', approved }] }] }) };
  };
  const filed = async (who: Person, org: string): Promise<string[]> => reports.parse(await world.system({ org, type: 'agent', key: `chat-${who.userId}` }, 'reports', {})).reports.map(({ body }) => body);

  test('chat attack - a call runs as it was made and once, whoever decides how often, at once or against each other; others\' words and a key\'s are none', async () => {
    await world.organizations.join(orgId, ada, eve, 'member');
    const { key } = await world.organizations.key(orgId, ada, ['chat.create']);
    const first = await waiting('one');
    for (const token of [eve.accessToken, key]) {
      const foreign = await platform.api('POST', uiPath, { json: first.word(true), token, headers: { 'troupe-organization': orgId } });
      assert.deepEqual([foreign.status, codeOf(foreign)], [400, 'approval_unknown'], foreign.body);
    }
    const elsewhere = await platform.api('POST', uiPath, { json: first.word(true), token: ada.accessToken, headers: { 'troupe-organization': 'personal' } });
    assert.equal(codeOf(elsewhere), 'approval_unknown');
    const replies = await Promise.all(Array.from({ length: 12 }, (_, i) => platform.api('POST', uiPath, { json: first.word(true), token: ada.accessToken, gateway: i % 2 })));
    for (const reply of replies) assert.ok(reply.status === 200 || codeOf(reply) === 'session_busy', reply.body);
    assert.deepEqual(await filed(ada, orgId), ['one'], 'not what the message says it was');
    const second = await waiting('two');
    const words = await Promise.all(Array.from({ length: 12 }, (_, i) => ui(second.word(i % 2 === 0))));
    for (const reply of words) assert.ok(reply.status === 200 || codeOf(reply) === 'session_busy', reply.body);
    const stored = (await filed(ada, orgId)).filter((body) => body === 'two').length;
    assert.ok(stored <= 1);
    const [denied, granted] = ['CompletionApprovalDenied', 'CompletionApprovalGranted'].map((kind) => kind);
    const decisions = (await world.journaled(orgId)).filter(({ k }) => k === denied || k === granted);
    assert.equal(decisions.length, 2, 'one for each call');
    assert.equal(stored, decisions.at(-1)?.k === granted ? 1 : 0);
    await settled();
  });

  test('chat attack - keys and people of one organization get nothing in another\'s name', async () => {
    const { key } = await world.organizations.key(orgId, ada, ['chat.create']);
    const stranger = await world.person('stranger@attack.example');
    for (const [token, org] of [[key, eveOrg], [key, 'personal'], [stranger.accessToken, orgId], [ada.accessToken, eveOrg], [stranger.accessToken, `u-${ada.userId}`], [ada.accessToken, 'platform'], [ada.accessToken, '*'], [ada.accessToken, `${orgId}.x`]] as const) {
      for (const path of [completionsPath, uiPath]) {
        const reply = await platform.api('POST', path, { json: { model: 'm', messages: say('x') }, token, headers: { 'troupe-organization': org } });
        assert.ok([403, 404].includes(reply.status), `${org}: ${reply.status} ${reply.body}`);
      }
    }
  });

  /** Bytes on a TLS connection of one's own. */
  const bytes = async (text: string, then: 'answer' | 'half-close' = 'answer'): Promise<string> => {
    const socket = connectTls({ host: '127.0.0.1', port: platform.gateways[0]?.port ?? 0, servername: 'localhost', ca: platform.ca, ALPNProtocols: ['http/1.1'] });
    await once(socket, 'secureConnect');
    const chunks: Buffer[] = [];
    socket.on('data', (chunk: Buffer) => { chunks.push(chunk); });
    socket.on('error', () => undefined);
    socket.write(text);
    if (then === 'half-close') socket.end();
    await within(60_000, 'an answer, or the end', Promise.race([once(socket, then === 'answer' ? 'data' : 'close'), once(socket, 'close')]), () => platform.report());
    socket.destroy();
    return Buffer.concat(chunks).toString('latin1');
  };
  const head = (lines: string, body: string): string => `POST ${completionsPath} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer ${ada.accessToken}\r\nContent-Type: application/json\r\nContent-Length: ${Buffer.byteLength(body)}\r\n${lines}\r\n${body}`;

  test('chat attack - control characters in headers begin no line of an answer, and name nothing', async () => {
    const body = JSON.stringify({ model: 'mock', messages: say('/say x') });
    await Promise.all(['X-Session-Id: a\u0000b\r\n', 'X-Session-Id: \u0001\u007f\u0009x\r\n', 'Troupe-Organization: \u0000\r\n', `X-Session-Id: ${'s'.repeat(limits.chatNoteMaxChars + 1)}\r\n`, 'X-Session-Id: a\rX-Evil: 1\r\n', 'X-Session-Id: é€\r\n'].map(async (line) => {
      const answer = await bytes(head(line, body));
      assert.match(answer, /^(HTTP\/1\.1 [24]\d\d |$)/, `${JSON.stringify(line)} ${answer.slice(0, 200)}`);
      assert.ok(!/^x-evil/im.test(answer), answer);
    }));
    await alive();
  });

  test('chat attack - a client that leaves at any moment, or half-closes, leaves no call at the vendor; each is metered once', { timeout: 240_000 }, async () => {
    const body = (path: string): string => JSON.stringify(path === completionsPath ? { model: 'm', messages: say('x'), stream: true } : { model: 'm', messages: say('x'), stream: true });
    const begin = (path: string) => {
      const request = httpsRequest({ host: '127.0.0.1', servername: 'localhost', port: platform.gateways[1]?.port, method: 'POST', path, ca: platform.ca, agent: false, headers: { authorization: `Bearer ${ada.accessToken}`, 'content-type': 'application/json', 'content-length': Buffer.byteLength(body(path)) } });
      request.on('error', () => undefined);
      return request;
    };
    for (const path of [completionsPath, uiPath]) {
      // Within the body: nothing was asked of anybody.
      const before = vendor.requests.length;
      const cut = begin(path);
      cut.write(body(path).slice(0, 10));
      await once(cut, 'socket').then(([socket]) => once(socket as import('node:net').Socket, 'secureConnect'));
      cut.destroy();
      // While the vendor is silent.
      script.push(() => undefined);
      let came = vendorCall();
      const silent = begin(path);
      silent.end(body(path));
      let { gone } = await came;
      silent.destroy();
      await within(60_000, 'the vendor\'s call of a silent model to go', gone, () => platform.report());
      // With the first word, and in a tool call's midst.
      for (const piece of [openaiChunk({ content: 'word' }), openaiChunk({ content: 'w' }) + openaiChunk({ tool_calls: [{ index: 0, id: 'c', type: 'function', function: { name: 'calculator', arguments: '{"a' } }] })]) {
        script.push((_, response) => {
          sse(response);
          response.write(piece);
        });
        came = vendorCall();
        const leaving = begin(path);
        const response = once(leaving, 'response') as Promise<[IncomingMessage]>;
        leaving.end(body(path));
        ({ gone } = await came);
        await once((await response)[0], 'data');
        leaving.destroy();
        await within(60_000, 'the vendor\'s call to go', gone, () => platform.report());
      }
      assert.equal(vendor.requests.length, before + 3);
    }
    // One that has said all it wants to say is gone as soon as that is seen, be it before anything was asked.
    script.push(endless);
    await bytes(head('', JSON.stringify({ model: 'm', messages: say('x'), stream: true })), 'half-close');
    await settled();
  });

  test('chat attack - two hundred streams at once that all leave: no call is left, every one is metered once, the next is served', { timeout: 240_000 }, async () => {
    const before = vendor.requests.length;
    script.push(...Array.from({ length: 200 }, () => endless));
    const all: Promise<() => void>[] = [];
    for (let n = 0; n < 200; n++) {
      const request = httpsRequest({ host: '127.0.0.1', servername: 'localhost', port: platform.gateways[n % 2]?.port, method: 'POST', path: n % 3 === 0 ? uiPath : completionsPath, ca: platform.ca, agent: false, headers: { authorization: `Bearer ${ada.accessToken}`, 'content-type': 'application/json' } });
      request.on('error', () => undefined);
      const response = once(request, 'response') as Promise<[IncomingMessage]>;
      request.end(JSON.stringify({ model: 'm', messages: say(`stream ${n % 4}`), stream: true }));
      all.push(response.then(async ([answer]) => {
        assert.equal(answer.statusCode, 200);
        await once(answer, 'data');
        return () => { request.destroy(); };
      }));
    }
    for (const leave of await within(120_000, 'the first word of two hundred', Promise.all(all), () => platform.report())) leave();
    assert.equal(vendor.requests.length, before + 200);
    await settled();
    await alive();
  });
});
