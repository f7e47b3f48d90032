/**
 * Texts made to cost much: each is done in another process, which is killed at a deadline. As it should be, each takes well under a second; what took
 * the square of a text's length took minutes, in the thread that all deployments share.
 */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { createIndexer } from '../../actors/knowledge/indexer.ts';
import { fold } from '../../actors/knowledge/words.ts';
import { displayName } from '../../contracts/ids.ts';
import { limits } from '../../contracts/limits.ts';
import { codeOf } from '../harness/memory-host.ts';
import { recorder } from '../harness/log.ts';

const deadlineMs = 45_000;
/** What the code prints. `from`: the module, from the repository's root. Rejects when it is not done by the deadline. */
const printed = async (from: string, names: string, code: string): Promise<string> => {
  const url = new URL(`../../${from}`, import.meta.url).href;
  const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '-e', `import { ${names} } from ${JSON.stringify(url)}; process.stdout.write(String(${code}));`], { timeout: deadlineMs, killSignal: 'SIGKILL' });
  return stdout;
};
const marks = `'a' + '\\u0301\\u0316'.repeat(250_000) + ' b'`;

test('attack - a megabyte of combining marks out of order is folded in linear time: by the index, and where memories are chosen', async () => {
  assert.equal(await printed('actors/knowledge/words.ts', 'fold', `fold(${marks})`), 'a b');
  assert.equal(await printed('actors/agent/recall.ts', 'wordsOf', `[...wordsOf(${marks})]`), 'a,b');
});

test('attack - marks are taken off as by NFKD, whatever they stand on', () => {
  for (let c = 1; c < 0x11_0000; c++) {
    if (c >= 0xd800 && c < 0xe000) continue;
    const text = `a${String.fromCodePoint(c)}\u0301b\u0316\u0301`;
    if (fold(text) !== text.normalize('NFKD').replace(/\p{M}+/gu, '').toLowerCase()) assert.fail(`U+${c.toString(16)}`);
  }
});

test('attack - a message of very many words is compared with a thousand memories by their words, not by its own', async () => {
  const memories = `Array.from({ length: 1000 }, (_, i) => ({ id: String(i), fact: 'word' + i + ' stands here', source: '', relevance: 0.5, at: 1 }))`;
  const message = `Array.from({ length: 400_000 }, (_, i) => 'x' + i).join(' ') + ' word7'`;
  assert.equal(await printed('actors/session/memories.ts', 'fitting', `fitting(${memories}, ${message})[0].id`), '7');
});

test('attack - a name is measured before it is normalized', (t) => {
  const long = `a${'\u0301\u0316'.repeat(20_000)}`;
  const { mock: count } = t.mock.method(String.prototype, 'normalize');
  assert.equal(displayName.safeParse(long).success, false);
  assert.equal(displayName.safeParse('Zoe\u0308').data, 'Zo\u00eb');
  assert.equal(count.callCount(), 1);
});

test('attack - a deployment that searches without end is refused at its bound, and another waits for one of its searches, not for all', async () => {
  const indexer = createIndexer({ log: recorder() });
  try {
    const order: string[] = [];
    const search = (index: string): Promise<void> => indexer.ask('search', { index, query: 'x', limit: 1 }).then(() => { order.push(index); });
    // Asked before the thread has begun, so it finds them all.
    const busy = Array.from({ length: limits.knowledgeAsksOfOneMax }, () => search('busy'));
    assert.equal(await codeOf(search('busy')), 'overloaded');
    await Promise.all([...busy, search('other')]);
    assert.equal(order.indexOf('other'), 1);
    await search('busy');
  } finally {
    await indexer.close();
  }
});
