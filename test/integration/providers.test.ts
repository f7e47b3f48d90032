// Model providers over real HTTP: the vendors' official clients against aimock (well-behaved) and a server that breaks its answers.
import assert from 'node:assert/strict';
import { describe, it, type TestContext } from 'node:test';
import { LLMock } from '@copilotkit/aimock';
import { anthropic } from '../../actors/providers/anthropic.ts';
import { openai } from '../../actors/providers/openai.ts';
import { ProviderFault, type Part, type Provider, type ProviderCall } from '../../actors/providers/provider.ts';
import type { VendorOptions } from '../../actors/providers/vendor.ts';
import { anthropicEvent, modelServer, openaiChunk, openaiDone, openaiUsage, sse, type Answer, type ModelServer } from '../harness/model-server.ts';

const key = 'sk-very-secret-0123456789';
const quick: Partial<VendorOptions> = { retryBaseMs: 1, silenceMs: 5_000 };

interface Vendor {
  readonly name: 'openai' | 'anthropic';
  make(url: string, vendor?: Partial<VendorOptions>): Provider;
  /** A whole text answer in this vendor's stream. */
  readonly hello: Answer;
  /** Text, then the socket is destroyed. */
  readonly cut: Answer;
  readonly malformed: Answer;
  /** A text and no end, held open. */
  readonly hang: Answer;
}

const start = (response: Parameters<Answer>[1]): void => {
  sse(response);
  response.write(anthropicEvent('message_start', { message: { id: 'm1', type: 'message', role: 'assistant', model: 'm', content: [], stop_reason: null, usage: { input_tokens: 7, output_tokens: 1 } } }));
  response.write(anthropicEvent('content_block_start', { index: 0, content_block: { type: 'text', text: '' } }));
};
const anthropicText = (text: string): string => anthropicEvent('content_block_delta', { index: 0, delta: { type: 'text_delta', text } });

const vendors: readonly Vendor[] = [
  {
    name: 'openai',
    make: (url, vendor) => openai({ apiKey: key, baseUrl: `${url}/v1`, vendor: { ...quick, ...vendor } }),
    hello: (_, response) => {
      sse(response);
      response.end(openaiChunk({ role: 'assistant', content: '' }) + openaiChunk({ content: 'Hello ' }) + openaiChunk({ content: 'there' }) + openaiChunk({}, 'stop') + openaiUsage(7, 3) + openaiDone);
    },
    cut: (_, response) => {
      sse(response);
      response.write(openaiChunk({ content: 'Half' }), () => response.destroy());
    },
    malformed: (_, response) => {
      sse(response);
      response.end(`${openaiChunk({ content: 'Half' })}data: {"choices": [oops\n\n`);
    },
    hang: (_, response) => {
      sse(response);
      response.write(openaiChunk({ content: 'Half' }));
    },
  },
  {
    name: 'anthropic',
    make: (url, vendor) => anthropic({ apiKey: key, baseUrl: url, vendor: { ...quick, ...vendor } }),
    hello: (_, response) => {
      start(response);
      response.write(anthropicText('Hello ') + anthropicText('there') + anthropicEvent('content_block_stop', { index: 0 }));
      response.end(anthropicEvent('message_delta', { delta: { stop_reason: 'end_turn', stop_sequence: null }, usage: { output_tokens: 3 } }) + anthropicEvent('message_stop', {}));
    },
    cut: (_, response) => {
      start(response);
      response.write(anthropicText('Half'), () => response.destroy());
    },
    malformed: (_, response) => {
      start(response);
      response.end(`${anthropicText('Half')}event: content_block_delta\ndata: {"type": oops\n\n`);
    },
    hang: (_, response) => {
      start(response);
      response.write(anthropicText('Half'));
    },
  },
];

const ask = (changes: Partial<ProviderCall> = {}): ProviderCall => ({
  model: 'm', messages: [{ role: 'system', text: 'Be brief.' }, { role: 'user', text: 'hello' }], said: '', tools: [], maxOutputTokens: 64,
  signal: new AbortController().signal, ...changes,
});
const all = async (parts: AsyncIterable<Part>): Promise<Part[]> => {
  const seen: Part[] = [];
  for await (const part of parts) seen.push(part);
  return seen;
};
/** Parts up to the failure, and the failure. */
const failing = async (parts: AsyncIterable<Part>): Promise<{ seen: Part[]; fault: ProviderFault }> => {
  const seen: Part[] = [];
  try {
    for await (const part of parts) seen.push(part);
  } catch (error) {
    assert.ok(error instanceof ProviderFault, `not a ProviderFault: ${String(error)}`);
    assert.ok(!JSON.stringify([error.message, error.code, error.details]).includes(key), 'the key is in the error');
    assert.ok(!error.message.includes('127.0.0.1'), 'the URL is in the error');
    assert.equal(error.cause, undefined);
    return { seen, fault: error };
  }
  return assert.fail('the stream did not fail');
};
const textOf = (parts: readonly Part[]): string => parts.map((p) => (p.kind === 'text' ? p.text : '')).join('');
const serve = async (t: TestContext, ...answers: Answer[]): Promise<ModelServer> => {
  const server = await modelServer(...answers);
  t.after(async () => server.stop());
  return server;
};
const status = (code: number, headers: Record<string, string> = {}): Answer => (_, response) => {
  response.writeHead(code, { 'content-type': 'application/json', ...headers })
    .end(JSON.stringify({ type: 'error', error: { type: 'some_error', message: `the key ${key} is bad at http://127.0.0.1` } }));
};

for (const vendor of vendors) {
  describe(`providers - ${vendor.name}`, () => {
    it('streams text and usage, and sends what it was asked', async (t) => {
      const server = await serve(t, vendor.hello);
      const seen = await all(vendor.make(server.url).stream(ask()));
      assert.equal(textOf(seen), 'Hello there');
      assert.deepEqual(seen.at(-1), { kind: 'end', finish_reason: 'stop', usage: { input_tokens: 7, output_tokens: 3 } });
      assert.equal(seen.filter((p) => p.kind === 'end').length, 1);
      assert.equal(server.requests[0]?.body['model'], 'm');
      assert.equal(server.requests[0]?.body['max_tokens'], 64);
    });

    it('tries again after 429, 529 and a broken connection, and then answers', async (t) => {
      const server = await serve(t, status(429), status(529), (_, response) => { response.destroy(); }, vendor.hello);
      assert.equal(textOf(await all(vendor.make(server.url).stream(ask()))), 'Hello there');
      assert.equal(server.requests.length, 4);
    });

    it('waits as long as Retry-After says, and gives up at once when that is too long', async (t) => {
      const server = await serve(t, status(429, { 'retry-after-ms': '30' }), status(503, { 'retry-after': '2' }), vendor.hello, status(429, { 'retry-after': '120' }));
      const waited: number[] = [];
      const provider = vendor.make(server.url, { wait: async (ms) => { waited.push(ms); } });
      assert.equal(textOf(await all(provider.stream(ask()))), 'Hello there');
      assert.deepEqual(waited, [30, 2_000]);
      const { fault } = await failing(provider.stream(ask()));
      assert.equal(fault.code, 'provider_error');
      assert.equal(server.requests.length, 4);
      assert.equal(waited.length, 2);
    });

    it('doubles its waits up to their bound', async (t) => {
      const server = await serve(t, status(500), status(500), status(500), vendor.hello);
      const waited: number[] = [];
      const provider = vendor.make(server.url, { retryBaseMs: 100, retryMaxMs: 300, random: () => 1, wait: async (ms) => { waited.push(ms); } });
      await all(provider.stream(ask()));
      assert.deepEqual(waited, [100, 200, 300]);
    });

    it('ends its wait when it is aborted', async (t) => {
      const abort = new AbortController();
      const server = await serve(t, (request, response) => {
        response.on('finish', () => { setImmediate(() => { abort.abort(); }); });
        return status(429, { 'retry-after': '15' })(request, response);
      });
      const { fault } = await failing(vendor.make(server.url).stream(ask({ signal: abort.signal })));
      assert.equal(fault.code, 'provider_error');
      assert.equal(server.requests.length, 1);
    });

    it('gives up after its attempts with a safe error', async (t) => {
      const server = await serve(t, ...Array.from({ length: 9 }, () => status(503)));
      const { fault } = await failing(vendor.make(server.url, { retriesMax: 2 }).stream(ask()));
      assert.equal(fault.code, 'provider_error');
      assert.equal(server.requests.length, 3);
    });

    it('does not try again what is refused', async (t) => {
      const server = await serve(t, status(401), vendor.hello);
      const { fault } = await failing(vendor.make(server.url).stream(ask()));
      assert.match(fault.message, /credentials/);
      assert.equal(fault.resumable, false);
      assert.equal(server.requests.length, 1);
    });

    it('reports a cut after the first byte as resumable and does not try again by itself', async (t) => {
      const server = await serve(t, vendor.cut, vendor.hello);
      const { seen, fault } = await failing(vendor.make(server.url).stream(ask()));
      assert.equal(textOf(seen), 'Half');
      assert.equal(fault.code, 'provider_error');
      assert.equal(fault.resumable, true);
      assert.equal(server.requests.length, 1);
    });

    it('reports a malformed chunk without its content', async (t) => {
      const server = await serve(t, vendor.malformed);
      const { seen, fault } = await failing(vendor.make(server.url).stream(ask()));
      assert.equal(textOf(seen), 'Half');
      assert.equal(fault.code, 'provider_error');
      assert.ok(!fault.message.includes('oops'));
    });

    it('gives up on a model that is silent before the first byte', async (t) => {
      const server = await serve(t, () => undefined);
      const { seen, fault } = await failing(vendor.make(server.url, { silenceMs: 20 }).stream(ask()));
      assert.deepEqual(seen, []);
      assert.equal(fault.code, 'provider_timeout');
      assert.equal(fault.resumable, false);
      await server.requests[0]?.gone;
    });

    it('gives up on a model that falls silent in the middle', async (t) => {
      const server = await serve(t, vendor.hang);
      const { seen, fault } = await failing(vendor.make(server.url, { silenceMs: 50 }).stream(ask()));
      assert.equal(textOf(seen), 'Half');
      assert.equal(fault.code, 'provider_timeout');
      assert.equal(fault.resumable, true);
    });

    it('does not count the time a slow reader takes as silence', async (t) => {
      let finish = (): void => undefined;
      const server = await serve(t, (request, response) => {
        void vendor.hang(request, response);
        finish = () => { response.destroy(); };
      });
      t.mock.timers.enable({ apis: ['setTimeout'] });
      const iterator = vendor.make(server.url, { silenceMs: 40 }).stream(ask())[Symbol.asyncIterator]();
      const first = await iterator.next();
      assert.deepEqual(first.value, { kind: 'text', text: 'Half' });
      // The reader has its text and is busy for longer than the limit; that the connection breaks only now is a break, not a silence.
      t.mock.timers.tick(1_000);
      const next = iterator.next();
      finish();
      await assert.rejects(next, { code: 'provider_error' });
    });

    it('closes the upstream connection when it is aborted', async (t) => {
      const server = await serve(t, vendor.hang);
      const abort = new AbortController();
      const reading = (async () => {
        for await (const part of vendor.make(server.url).stream(ask({ signal: abort.signal }))) if (part.kind === 'text') abort.abort();
      })();
      await assert.rejects(reading, ProviderFault);
      await server.requests[0]?.gone;
    });

    it('closes the upstream connection when the reader leaves early', async (t) => {
      const server = await serve(t, vendor.hang);
      for await (const part of vendor.make(server.url).stream(ask())) if (part.kind === 'text') break;
      await server.requests[0]?.gone;
    });

    it('tells the model what it had said when it takes a reply up again', async (t) => {
      const server = await serve(t, vendor.hello);
      await all(vendor.make(server.url).stream(ask({ said: 'Half a sen' })));
      const sent = JSON.stringify(server.requests[0]?.body['messages']);
      assert.ok(sent.includes('Half a sen'));
      assert.ok(sent.indexOf('Half a sen') < sent.indexOf('cut off'));
    });

    it('agrees with aimock on text, tool calls and tool results', async (t) => {
      const mock = new LLMock({ port: 0 });
      mock.on({ userMessage: 'two tools', hasToolResult: false }, {
        content: 'Looking.', toolCalls: [{ id: 'toolu_a', name: 'clock', arguments: '{}' }, { id: 'toolu_b', name: 'calculator', arguments: '{"expression":"1+1"}' }],
      });
      mock.on({ userMessage: 'two tools', hasToolResult: true }, { content: 'It is two.' });
      await mock.start();
      t.after(async () => mock.stop());
      const provider = vendor.make(mock.url);
      const tools = [{ name: 'clock', description: 'time', parameters: { type: 'object', properties: {} } }, { name: 'calculator', description: 'sums', parameters: { type: 'object', properties: { expression: { type: 'string' } } } }];
      const first = await all(provider.stream(ask({ messages: [{ role: 'user', text: 'two tools' }], tools })));
      assert.equal(textOf(first), 'Looking.');
      const calls = first.filter((p) => p.kind === 'tool_call');
      assert.deepEqual(calls.map((c) => [c.call_id, c.name, c.arguments]), [['toolu_a', 'clock', {}], ['toolu_b', 'calculator', { expression: '1+1' }]]);
      const end = first.at(-1);
      assert.equal(end?.kind === 'end' ? end.finish_reason : undefined, 'tool_calls');
      const second = await all(provider.stream(ask({
        tools,
        messages: [
          { role: 'user', text: 'two tools' }, { role: 'assistant', text: 'Looking.', calls },
          { role: 'tool', call_id: 'toolu_a', name: 'clock', text: '"noon"', is_error: false }, { role: 'tool', call_id: 'toolu_b', name: 'calculator', text: '"2"', is_error: false },
        ],
      })));
      assert.equal(textOf(second), 'It is two.');
    });
  });
}

describe('providers - openai, compatible servers', () => {
  it('takes a call as final when the next one begins, without indexes, and estimates nothing it was not told', async (t) => {
    const server = await serve(t, (_, response) => {
      sse(response);
      response.write(openaiChunk({ tool_calls: [{ id: 'a', function: { name: 'clock', arguments: '{' } }] }));
      response.write(openaiChunk({ tool_calls: [{ id: 'a', function: { arguments: '}' } }] }));
      response.write(openaiChunk({ tool_calls: [{ id: 'b', function: { name: 'clock', arguments: 'not json' } }] }));
      response.end(openaiChunk({}, 'tool_calls') + openaiDone);
    });
    const seen = await all(openai({ apiKey: key, baseUrl: server.url }).stream(ask()));
    assert.deepEqual(seen, [
      { kind: 'tool_call', call_id: 'a', name: 'clock', arguments: {} },
      { kind: 'tool_call', call_id: 'b', name: 'clock', arguments: 'not json' },
      { kind: 'end', finish_reason: 'tool_calls', usage: undefined },
    ]);
  });

  it('treats a stream that ends without a finish reason as broken', async (t) => {
    const server = await serve(t, (_, response) => {
      sse(response);
      response.end(openaiChunk({ content: 'Half' }));
    });
    const { fault } = await failing(openai({ apiKey: key, baseUrl: server.url }).stream(ask()));
    assert.equal(fault.resumable, true);
  });
});
