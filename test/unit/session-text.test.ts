// The parts of a model step that need no actor: continued replies, coalesced writes, the scripted model, the prompt, prices.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { memoryBlobs } from '../../actors/blobs/memory.ts';
import { mock } from '../../actors/providers/mock.ts';
import { costCents, priceOf } from '../../actors/providers/price.ts';
import type { Part, PromptMessage, ProviderCall } from '../../actors/providers/provider.ts';
import { deltas } from '../../actors/providers/deltas.ts';
import { stripper } from '../../actors/providers/overlap.ts';
import { buildPrompt } from '../../actors/session/prompt.ts';
import type { HistoryMessage } from '../../actors/session/state.ts';

/** Splits a text at seeded places. */
const pieces = (text: string, cuts: readonly number[]): string[] => {
  const at = [...new Set(cuts.map((c) => c % (text.length + 1)))].sort((a, b) => a - b);
  return [0, ...at].map((from, i) => text.slice(from, at[i] ?? text.length)).filter((p) => p !== '');
};
const continued = (said: string, chunks: readonly string[]): string => {
  const strip = stripper(said);
  return chunks.map((c) => strip.push(c)).join('') + strip.end();
};

describe('session text - continued replies', () => {
  const full = 'The quick brown fox jumps over the lazy dog, and then it sleeps under a tree by the river until noon.';

  it('strips what a model says again, however it is cut into chunks', () => {
    fc.assert(fc.property(fc.integer({ min: 1, max: full.length }), fc.integer({ min: 16, max: full.length }), fc.array(fc.nat(), { maxLength: 12 }), fc.boolean(), (end, back, cuts, restart) => {
      const said = full.slice(0, end);
      const from = restart ? 0 : Math.max(0, end - back);
      assert.equal(said + continued(said, pieces(full.slice(from), cuts)), full);
    }));
  });

  it('leaves a reply alone that goes on where it ended', () => {
    fc.assert(fc.property(fc.integer({ min: 1, max: full.length }), fc.array(fc.nat(), { maxLength: 12 }), (end, cuts) => {
      const said = full.slice(0, end);
      assert.equal(continued(said, pieces(full.slice(end), cuts)), full.slice(end));
    }));
  });

  it('does not take a short likeness for a repeat', () => {
    assert.equal(continued('a long enough start, hel', ['lo']), 'lo');
    assert.equal(continued('the end of the', [' the end']), ' the end');
  });

  it('holds back no more than what was said, and gives it out when it differs', () => {
    const strip = stripper('abcdefghijklmnopqrstuvwxyz');
    assert.equal(strip.push('abcdefgh'), '');
    assert.equal(strip.push('X'), 'abcdefghX');
    assert.equal(strip.push('yz'), 'yz');
  });
});

/** Resolves when what waits for its turn has had it. */
const aTurn = (): Promise<void> => new Promise((resolve) => { setImmediate(resolve); });

describe('session text - coalesced writes', () => {
  it('writes what arrives at once as one', async () => {
    const written: [number, string][] = [];
    const out = deltas(3, async (at, text) => { written.push([at, text]); });
    for (const text of ['a', 'b', 'c']) await out.push(text);
    await out.flush();
    await out.push('d');
    await out.flush();
    assert.deepEqual(written, [[3, 'abc'], [6, 'd']]);
  });

  it('keeps one write in flight and gathers meanwhile', async () => {
    const written: [number, string][] = [];
    const release: (() => void)[] = [];
    const out = deltas(3, async (at, text) => {
      written.push([at, text]);
      await new Promise<void>((resolve) => { release.push(resolve); });
    });
    await out.push('a');
    await aTurn();
    await out.push('b');
    await out.push('c');
    assert.deepEqual(written, [[3, 'a']]);
    const flushed = out.flush();
    release.shift()?.();
    while (written.length < 2) await Promise.resolve();
    release.shift()?.();
    await flushed;
    assert.deepEqual(written, [[3, 'a'], [4, 'bc']]);
  });

  it('stops its reader at the bound and writes in pieces of at most that', async () => {
    const written: string[] = [];
    let release = (): void => undefined;
    const out = deltas(0, async (_, text) => {
      written.push(text);
      await new Promise<void>((resolve) => { release = resolve; });
    }, 4);
    await out.push('ab');
    await aTurn();
    let through = false;
    const pushed = out.push('cdefg').then(() => { through = true; });
    await aTurn();
    assert.equal(through, false);
    release();
    await pushed;
    while (written.length < 3) {
      release();
      await Promise.resolve();
    }
    release();
    await out.flush();
    assert.deepEqual(written, ['ab', 'cdef', 'g']);
  });

  it('hands on the failure of a write', async () => {
    const out = deltas(0, async () => { throw new Error('fenced'); });
    await out.push('a');
    await assert.rejects(out.flush(), /fenced/);
    await assert.rejects(out.push('b'), /fenced/);
  });

  it('loses and reorders nothing', async () => {
    await fc.assert(fc.asyncProperty(fc.array(fc.string({ maxLength: 9 })), fc.integer({ min: 1, max: 12 }), async (texts, max) => {
      let written = '';
      const out = deltas(0, async (at, text) => {
        assert.equal(at, written.length);
        assert.ok(text.length <= max);
        await Promise.resolve();
        written += text;
      }, max);
      for (const text of texts) await out.push(text);
      await out.flush();
      assert.equal(written, texts.join(''));
    }));
  });
});

const call = (messages: readonly PromptMessage[], said = ''): ProviderCall =>
  ({ model: 'mock', messages, said, tools: [], maxOutputTokens: 1_000, signal: new AbortController().signal });
const read = async (messages: readonly PromptMessage[], said = ''): Promise<Part[]> => {
  const parts: Part[] = [];
  for await (const part of mock().stream(call(messages, said))) parts.push(part);
  return parts;
};
const textOf = (parts: readonly Part[]): string => parts.map((p) => (p.kind === 'text' ? p.text : '')).join('');

describe('session text - the scripted model', () => {
  it('goes on after any prefix exactly', async () => {
    const messages: PromptMessage[] = [{ role: 'user', text: '/long 40' }];
    const full = textOf(await read(messages));
    assert.equal(full.split(' ').length, 40);
    for (let at = 0; at <= full.length; at += 7) assert.equal(full.slice(0, at) + textOf(await read(messages, full.slice(0, at))), full);
  });

  it('calls tools in steps and then says what they gave', async () => {
    const user: PromptMessage = { role: 'user', text: '/tool clock {}\n/then\n/tool calculator {"expression":"1"}' };
    const first = await read([user]);
    const calls = first.filter((p) => p.kind === 'tool_call');
    assert.deepEqual(calls.map((c) => c.name), ['clock']);
    const after: PromptMessage[] = [user, { role: 'assistant', text: '', calls }, { role: 'tool', call_id: 'c', name: 'clock', text: '"noon"', is_error: false }];
    const second = (await read(after)).filter((p) => p.kind === 'tool_call');
    assert.deepEqual(second.map((c) => c.name), ['calculator']);
    const last = await read([...after, { role: 'assistant', text: '', calls: second }, { role: 'tool', call_id: 'd', name: 'calculator', text: '"1"', is_error: false }]);
    assert.match(textOf(last), /clock says: "noon".*calculator says: "1"/);
  });
});

describe('session text - the prompt', () => {
  const signal = new AbortController().signal;
  const options = { org: 'o', instructions: 'Be kind.', blobs: memoryBlobs(), maxTokens: 1_000, signal };

  it('keeps the newest turns that fit, and the running one always', async () => {
    const turn = (n: number): HistoryMessage[] => [{ role: 'user', text: `question ${n}` }, { role: 'assistant', text: 'x'.repeat(400), calls: [] }];
    const history = [...turn(1), ...turn(2), ...turn(3), { role: 'user' as const, text: 'now' }];
    const small = await buildPrompt(history, { ...options, maxTokens: 250 });
    assert.deepEqual(small.map((m) => m.text.slice(0, 10)), ['Be kind.', 'question 2', 'xxxxxxxxxx', 'question 3', 'xxxxxxxxxx', 'now']);
    assert.deepEqual((await buildPrompt(history, { ...options, maxTokens: 1 })).map((m) => m.text), ['Be kind.', 'now']);
  });

  it('fills in attachments: text, cut text, what is not text, and a lost one of an earlier turn', async () => {
    const text = await options.blobs.put('o', [Buffer.from('the attached words')]);
    const binary = await options.blobs.put('o', [Uint8Array.of(0xff, 0xfe)]);
    const gone = `sha256:${'0'.repeat(64)}`;
    const prompt = await buildPrompt([
      { role: 'user', text: 'old', blob: gone }, { role: 'user', text: 'see', blob: binary.hash }, { role: 'user', text: 'read', blob: text.hash },
    ], options);
    assert.match(prompt[1]?.text ?? '', /no longer available/);
    assert.match(prompt[2]?.text ?? '', /2 bytes that are not text/);
    assert.match(prompt[3]?.text ?? '', /^read\n\n.*\nthe attached words$/s);
    await assert.rejects(buildPrompt([{ role: 'user', text: 'x', blob: gone }], options), { code: 'blob_not_found' });
  });

  it('does not show an organization the blobs of another', async () => {
    const { hash } = await options.blobs.put('o', [Buffer.from('ours')]);
    await assert.rejects(options.blobs.get('other', hash), { code: 'blob_not_found' });
  });
});

describe('session text - money', () => {
  it('rounds a turn up to whole cents, exactly', () => {
    const price = priceOf({ input_usd_per_mtok: 3, output_usd_per_mtok: 15 });
    assert.equal(costCents(price, { input_tokens: 0, output_tokens: 0 }), 0);
    assert.equal(costCents(price, { input_tokens: 1, output_tokens: 0 }), 1);
    assert.equal(costCents(price, { input_tokens: 10_000, output_tokens: 0 }), 3);
    assert.equal(costCents(price, { input_tokens: 10_000, output_tokens: 1 }), 4);
    assert.equal(costCents(priceOf({ input_usd_per_mtok: 0.1, output_usd_per_mtok: 0.3 }), { input_tokens: 100_000, output_tokens: 100_000 }), 4);
    assert.equal(costCents(priceOf({ input_usd_per_mtok: 0, output_usd_per_mtok: 0 }), { input_tokens: 1e9, output_tokens: 1e9 }), 0);
  });
});
