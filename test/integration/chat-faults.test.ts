/**
 * What goes wrong at a vendor, as a turn of public chat and of a session ends by it: both vendors' official clients over real HTTP, the actors on
 * a host in the test. Each fault is a clear error with a code and a sentence of ours, and what was used is metered, once.
 */
import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import { agent } from '../../actors/agent/agent.ts';
import { memoryBlobs } from '../../actors/blobs/memory.ts';
import { completion } from '../../actors/completion/completion.ts';
import { anthropic } from '../../actors/providers/anthropic.ts';
import { openai } from '../../actors/providers/openai.ts';
import type { Provider } from '../../actors/providers/provider.ts';
import { createRegistry } from '../../actors/providers/registry.ts';
import type { VendorOptions } from '../../actors/providers/vendor.ts';
import { session } from '../../actors/session/session.ts';
import { wallet } from '../../actors/wallet/wallet.ts';
import { modelEntry } from '../../contracts/config.ts';
import type { StoredEvent } from '../../contracts/event.ts';
import { limits } from '../../contracts/limits.ts';
import { actorHost } from '../harness/actor-host.ts';
import { anthropicEvent, modelServer, openaiChunk, openaiDone, openaiUsage, sse, type Answer, type ModelServer } from '../harness/model-server.ts';
import { keptWebhook, paidUser } from '../harness/paid.ts';

const key = 'sk-very-secret-0123456789';
/** Words of a vendor, which nobody here may repeat. */
const quoted = `the key ${key} is bad at http://127.0.0.1`;
const org = `u-${paidUser}`;
const prompt = 'Tell me all of it.';

interface Vendor {
  readonly name: 'openai' | 'anthropic';
  make(url: string, vendor: Partial<VendorOptions>): Provider;
  /** The beginning of an answer with this text; the test does the rest. */
  begin(response: Parameters<Answer>[1], text: string): void;
  /** A text and its good end, with the vendor's own count of 7 and 3. */
  readonly rest: (text: string) => string;
  readonly malformed: string;
  /** An error inside the stream: the vendor is overloaded. */
  readonly overloaded: string;
}

const anthropicText = (text: string): string => anthropicEvent('content_block_delta', { index: 0, delta: { type: 'text_delta', text } });
const vendors: readonly Vendor[] = [
  {
    name: 'openai',
    make: (url, vendor) => openai({ apiKey: key, baseUrl: `${url}/v1`, vendor }),
    begin: (response, text) => {
      sse(response);
      response.write(openaiChunk({ role: 'assistant', content: '' }) + openaiChunk({ content: text }));
    },
    rest: (text) => openaiChunk({ content: text }) + openaiChunk({}, 'stop') + openaiUsage(7, 3) + openaiDone,
    malformed: 'data: {"choices": [oops\n\n',
    overloaded: `data: ${JSON.stringify({ error: { type: 'server_error', message: quoted } })}\n\n`,
  },
  {
    name: 'anthropic',
    make: (url, vendor) => anthropic({ apiKey: key, baseUrl: url, vendor }),
    begin: (response, text) => {
      sse(response);
      response.write(anthropicEvent('message_start', { message: { id: 'm1', type: 'message', role: 'assistant', model: 'm', content: [], stop_reason: null, usage: { input_tokens: 7, output_tokens: 1 } } })
        + anthropicEvent('content_block_start', { index: 0, content_block: { type: 'text', text: '' } }) + anthropicText(text));
    },
    rest: (text) => anthropicText(text) + anthropicEvent('content_block_stop', { index: 0 })
      + anthropicEvent('message_delta', { delta: { stop_reason: 'end_turn', stop_sequence: null }, usage: { output_tokens: 3 } }) + anthropicEvent('message_stop', {}),
    malformed: 'event: content_block_delta\ndata: {"type": oops\n\n',
    overloaded: anthropicEvent('error', { error: { type: 'overloaded_error', message: quoted } }),
  },
];

interface Ended {
  readonly code: string | undefined;
  readonly message: string | undefined;
  readonly text: string;
  readonly tokens: readonly [input: number, output: number];
}
const tokens = (chars: number): number => Math.ceil(chars / 4);

/** One turn of each kind; gives how both ended, which must be alike. */
const endOf = async (t: TestContext, vendor: Vendor, answer: Answer, options: Partial<VendorOptions> = {}): Promise<Ended & { readonly server: ModelServer; readonly asked: number }> => {
  const server = await modelServer(...Array.from({ length: 40 }, () => answer));
  const provider = vendor.make(server.url, { retryBaseMs: 1, retryMaxMs: 5, ...options });
  const registry = createRegistry({ default: 'm', registry: [modelEntry.parse({ id: 'm', provider: vendor.name, input_usd_per_mtok: 3, output_usd_per_mtok: 15 })] }, { [vendor.name]: provider });
  const blobs = memoryBlobs();
  const host = actorHost([completion({ registry, blobs, tools: new Map() }), session({ registry, blobs, tools: new Map(), metered: true, instructions: '' }), agent(), wallet(), keptWebhook]);
  t.after(async () => {
    host.stop();
    await server.stop();
  });
  const isMetered = (events: readonly StoredEvent[]): boolean => events.some(({ k }) => k === 'UsageMetered');
  const read = (events: readonly StoredEvent[], kinds: { readonly delta: string; readonly failed: string }): Ended => {
    const text = JSON.stringify(events);
    assert.ok(!text.includes(key) && !text.includes('127.0.0.1'), 'the vendor was quoted');
    const [metered, ...more] = events.filter(({ k }) => k === 'UsageMetered').map(({ d }) => d['usage'] as { input_tokens: number; output_tokens: number; cost_cents: number });
    assert.ok(metered !== undefined && more.length === 0);
    const failed = events.find(({ k }) => k === kinds.failed)?.d;
    if (failed !== undefined) assert.deepEqual(failed['usage'], metered);
    assert.equal(metered.cost_cents, Math.ceil((metered.input_tokens * 3 + metered.output_tokens * 15) / 10_000));
    return {
      code: failed?.['code'] as string | undefined, message: failed?.['message'] as string | undefined,
      text: events.filter(({ k }) => k === kinds.delta).map(({ d }) => String(d['text'])).join(''), tokens: [metered.input_tokens, metered.output_tokens],
    };
  };
  const chat = { org, type: 'completion', key: 'k' };
  await host.ask(chat, 'start', { id: 'c1', model: 'm', by: paidUser, prompt_chars: prompt.length, prompt: { messages: [{ role: 'user', text: prompt }], tools: [], options: {} } });
  const completed = read(await host.until(chat, isMetered), { delta: 'CompletionDelta', failed: 'CompletionFailed' });
  const asked = server.requests.length;
  const talk = { org, type: 'session', key: 'abcdefghijklmnopqrstuvwxyz' };
  await host.ask(talk, 'create', { user_id: paidUser, project_id: 'p' });
  await host.ask(talk, 'send', { user_id: paidUser, content: prompt });
  const said = read(await host.until(talk, isMetered), { delta: 'TextDelta', failed: 'RunErrored' });
  const { tokens: [input, output], ...rest } = said;
  const { tokens: _own, ...other } = completed;
  assert.deepEqual(rest, other, 'the two kinds of turn end alike');
  assert.equal(output, completed.tokens[1]);
  // A history's bookkeeping counts some characters besides.
  assert.ok(input >= completed.tokens[0] && input <= completed.tokens[0] + 8);
  return { ...completed, server, asked };
};

const status = (code: number, headers: Record<string, string> = {}): Answer => (_, response) => {
  response.writeHead(code, { 'content-type': 'application/json', ...headers }).end(JSON.stringify({ type: 'error', error: { type: 'some_error', message: quoted } }));
};
const attempts = limits.modelRetriesMax + 1;
const takenUp = limits.modelResumesMax + 1;

for (const vendor of vendors) {
  describe(`chat faults - ${vendor.name}`, () => {
    test(`chat faults - ${vendor.name}: 429 and 529 are tried again, then said; nothing was used`, async (t) => {
      for (const [code, message] of [[429, 'The model provider limits the rate of requests.'], [529, 'The model provider failed (status 529).']] as const) {
        const ended = await endOf(t, vendor, status(code));
        assert.deepEqual([ended.code, ended.message, ended.text, ended.tokens, ended.asked], ['provider_error', message, '', [0, 0], attempts]);
      }
    });

    test(`chat faults - ${vendor.name}: a Retry-After that is too long ends it at once; a refused key is said`, async (t) => {
      const late = await endOf(t, vendor, status(429, { 'retry-after': '3600' }));
      assert.deepEqual([late.code, late.tokens, late.asked], ['provider_error', [0, 0], 1]);
      const refused = await endOf(t, vendor, status(401));
      assert.deepEqual([refused.message, refused.tokens, refused.asked], ['The model provider refused the credentials of this installation.', [0, 0], 1]);
    });

    test(`chat faults - ${vendor.name}: 529, then an answer: the vendor's own count is metered`, async (t) => {
      let asked = 0;
      const ended = await endOf(t, vendor, (request, response) => {
        asked += 1;
        if (asked % 2 === 1) return status(529)(request, response);
        vendor.begin(response, 'All ');
        response.end(vendor.rest('of it.'));
      });
      assert.deepEqual([ended.code, ended.text, ended.tokens], [undefined, 'All of it.', [7, 3]]);
    });

    test(`chat faults - ${vendor.name}: a stream that is always cut is taken up so often, then said; what came is metered`, async (t) => {
      const ended = await endOf(t, vendor, (_, response) => {
        vendor.begin(response, 'Half of it');
        response.write(': ping\n\n', () => { response.destroy(); });
      });
      assert.deepEqual([ended.code, ended.message, ended.asked], ['provider_error', 'The connection to the model provider broke.', takenUp]);
      assert.ok(ended.text.startsWith('Half of it'));
      assert.deepEqual(ended.tokens, [tokens(prompt.length), tokens(ended.text.length)]);
    });

    test(`chat faults - ${vendor.name}: a stream that is cut once: the answer is whole, and the words before the cut are metered too`, async (t) => {
      let asked = 0;
      const ended = await endOf(t, vendor, (_, response) => {
        asked += 1;
        if (asked % 2 === 1) {
          vendor.begin(response, 'Twelve chars');
          response.write(': ping\n\n', () => { response.destroy(); });
        } else {
          vendor.begin(response, ' and ');
          response.end(vendor.rest('the rest.'));
        }
      });
      assert.deepEqual([ended.code, ended.text, ended.tokens], [undefined, 'Twelve chars and the rest.', [7, 3 + tokens('Twelve chars'.length)]]);
    });

    test(`chat faults - ${vendor.name}: a chunk that cannot be read, and an error inside the stream`, async (t) => {
      for (const text of [vendor.malformed, vendor.overloaded]) {
        const ended = await endOf(t, vendor, (_, response) => {
          vendor.begin(response, 'Half of it');
          response.end(text);
        });
        assert.deepEqual([ended.code, ended.text.startsWith('Half of it')], ['provider_error', true]);
        assert.match(ended.message ?? '', /^The (connection to the )?model provider (broke|failed \(status \d+\))\.$/);
        assert.deepEqual(ended.tokens, [tokens(prompt.length), tokens(ended.text.length)]);
      }
    });

    test(`chat faults - ${vendor.name}: silence before the first byte is a time-out that costs nothing`, async (t) => {
      const silent = await endOf(t, vendor, () => undefined, { silenceMs: 50 });
      assert.deepEqual([silent.code, silent.message, silent.tokens, silent.asked], ['provider_timeout', 'The model provider did not answer in time.', [0, 0], 1]);
      await silent.server.requests[0]?.gone;
    });
  });
}
