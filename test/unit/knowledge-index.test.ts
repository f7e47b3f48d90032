/** The index by itself: ranking, excerpts, names and the graph, its snapshot. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { readArchive, writeArchive } from '../../actors/knowledge/archive.ts';
import { excerptOf } from '../../actors/knowledge/excerpt.ts';
import { packText, unpackText } from '../../actors/knowledge/index-document.ts';
import { Inverted } from '../../actors/knowledge/inverted.ts';
import { graphOf, Names } from '../../actors/knowledge/links.ts';
import { readMarkdown } from '../../actors/knowledge/markdown.ts';
import { distinctId, slugOf } from '../../actors/knowledge/slug.ts';
import { wordsOf } from '../../actors/knowledge/words.ts';
import { nodeId } from '../../contracts/knowledge.ts';
import { limits } from '../../contracts/limits.ts';
import { runSeed } from '../harness/seed.ts';

interface Indexed {
  readonly index: Inverted;
  readonly names: Names;
  add(path: string, content: string): void;
  remove(path: string): void;
  readonly search: (query: string, limit?: number) => [id: string, score: number][];
}

const indexed = (documents: Readonly<Record<string, string>> = {}): Indexed => {
  const index = new Inverted();
  const names = new Names();
  const remove = (path: string): void => {
    const document = index.find(slugOf(path));
    if (document === undefined) return;
    index.remove(document.id);
    names.remove(document);
  };
  const add = (path: string, content: string): void => {
    remove(path);
    const read = readMarkdown(path, content);
    const { title, tags, aliases, links } = read;
    index.add({ id: slugOf(path), path, title, hash: '', size: content.length, ref: '', tags, aliases, links, packed: packText(read.text) }, read);
    const document = index.find(slugOf(path));
    if (document !== undefined) names.add(document);
  };
  for (const [path, content] of Object.entries(documents)) add(path, content);
  return {
    index, names, add, remove,
    search: (query, limit = 10) => index.search(wordsOf(query, limits.knowledgeQueryWordsMax), limit).hits.map(({ document, score }) => [document.id, score]),
  };
};
const ids = (hits: readonly [string, number][]): string[] => hits.map(([id]) => id);

test('knowledge index - the best come first, equal ones by id, no more than asked for [KNO-001]', () => {
  const { search } = indexed({ 'a.md': 'apple pear', 'c.md': 'apple apple apple', 'b.md': 'apple pear', 'd.md': 'plum' });
  const hits = search('apple');
  assert.deepEqual(ids(hits), ['c', 'a', 'b']);
  assert.ok(hits.every(([, score], i) => score > 0 && score <= (hits[i - 1]?.[1] ?? Infinity)));
  assert.deepEqual(ids(search('apple', 2)), ['c', 'a']);
  assert.deepEqual(search('nowhere'), []);
  assert.deepEqual(search('… — !'), []);
});

test('knowledge index - a rarer word weighs more than a common one, in whichever field [KNO-004]', () => {
  const documents = Object.fromEntries(Array.from({ length: 30 }, (_, i) => [`n${i}.md`, `common filler text number${i}`]));
  const { search } = indexed({ ...documents, 'rare.md': 'seldom filler text', 'often.md': 'common filler text' });
  assert.equal(ids(search('common seldom'))[0], 'rare');
  const titled = indexed({ ...Object.fromEntries(Array.from({ length: 20 }, (_, i) => [`t${i}.md`, `# Common ${i}\n`])), 'body.md': 'seldom word', 'both.md': '# Common\n' });
  assert.equal(titled.search('seldom')[0]?.[0], 'body');
});

test('knowledge index - a match in title or tags ranks above the same match in any text, however often it stands there [KNO-005]', () => {
  fc.assert(fc.property(fc.integer({ min: 1, max: 400 }), fc.integer({ min: 0, max: 40 }), fc.integer({ min: 0, max: 12 }), (times, filler, others) => {
    const { search } = indexed({
      'title.md': `---\ntitle: About zebras\n---\n${'long text '.repeat(filler)}`,
      'tag.md': `---\ntags: [zebra]\n---\n${'long text '.repeat(filler)}`,
      'alias.md': `---\naliases: [Zebra]\n---\n${'long text '.repeat(filler)}`,
      'text.md': `## Zebra\n- Zebra: a zebra is one\n${'zebra '.repeat(times)}`,
      ...Object.fromEntries(Array.from({ length: others }, (_, i) => [`zt${i}.md`, '# Zebra\n'])),
    });
    const found = ids(search('zebra', 100));
    const at = (id: string): number => found.indexOf(id);
    assert.ok(at('title') < at('tag') && at('tag') < at('text') && at('alias') < at('text') && at('text') !== -1);
  }), { seed: runSeed(), numRuns: 60 });
});

test('knowledge index - tags, aliases, headings, facts and frontmatter are found, and a word that nobody has is completed [KNO-006] [KNO-009]', () => {
  const { search } = indexed({
    'one.md': '---\nstatus: shipped\ntags: [logistics]\naliases: [The Old Name]\n---\n## Delivery times\ntext\n- **Port**: 8443\n', 'two.md': 'nothing of that',
  });
  for (const query of ['shipped', 'status', 'logistics', 'old name', 'delivery', '8443', 'logis']) assert.deepEqual(ids(search(query)), ['one'], query);
});

test('knowledge index - what was replaced or removed is not found; after a sweep the same documents give the same answers', () => {
  const seed = runSeed();
  fc.assert(fc.property(fc.array(fc.tuple(fc.integer({ min: 0, max: 9 }), fc.option(fc.array(fc.constantFrom('ash', 'birch', 'cedar', 'dogwood', 'elm'), { minLength: 1, maxLength: 12 }), { nil: undefined })), { maxLength: 60 }), (steps) => {
    const grown = indexed();
    const last = new Map<string, string>();
    for (const [n, words] of steps) {
      const path = `n${n}.md`;
      if (words === undefined) grown.remove(path);
      else grown.add(path, words.join(' '));
      if (words === undefined) last.delete(path);
      else last.set(path, words.join(' '));
    }
    const fresh = indexed(Object.fromEntries(last));
    for (const query of ['ash', 'birch elm', 'cedar dogwood ash']) assert.deepEqual(grown.search(query), fresh.search(query));
    grown.index.sweep();
    assert.equal(grown.index.documents.length, last.size);
    for (const query of ['ash', 'birch elm', 'cedar dogwood ash']) assert.deepEqual(grown.search(query), fresh.search(query));
    assert.equal(grown.index.size, last.size);
  }), { seed, numRuns: 100 });
});

test('knowledge index - a snapshot answers as the index it was made of; one that is not whole is none', async () => {
  const made = indexed({ 'a.md': '---\ntags: [t]\naliases: [Al]\n---\n# Apple\n[[B|see]] pear', 'b.md': 'apple café 東京 [[A]]', 'gone.md': 'apple' });
  made.remove('gone.md');
  const bytes = await writeArchive(made.index, { seq: 70_000, number: 5 });
  const read = await readArchive(bytes);
  assert.deepEqual(read?.place, { seq: 70_000, number: 5 });
  const words = (query: string): readonly string[] => wordsOf(query, 9);
  for (const query of ['apple', 'al pear', 'cafe', '東京', 't']) {
    const of = (index: Inverted): unknown => index.search(words(query), 9).hits.map(({ document, score }) => [document.id, document.links, unpackText(document.packed), score]);
    assert.deepEqual(of(read.index), of(made.index), query);
  }
  assert.equal(await readArchive(bytes.subarray(0, bytes.length - 1)), undefined);
  assert.equal(await readArchive(bytes.with(60, (bytes[60] ?? 0) ^ 1)), undefined);
  assert.equal(await readArchive(bytes.with(0, 0)), undefined);
  assert.equal(await readArchive(new Uint8Array()), undefined);
});

test('knowledge index - an excerpt is short, whole words, around the rarest match; without one the beginning [KNO-001]', () => {
  const filler = 'lorem ipsum dolor sit amet '.repeat(60);
  const text = `Start of it. common ${filler} the Élan vital of a common thing ${filler}`;
  const excerpt = excerptOf(text, [{ word: 'common', weight: 0.2 }, { word: 'elan', weight: 3 }]);
  assert.match(excerpt, /^….*Élan vital of a common thing.*…$/);
  assert.ok(excerpt.length <= limits.knowledgeExcerptMaxChars, String(excerpt.length));
  assert.match(excerptOf(text, []), /^Start of it\..*…$/);
  assert.equal(excerptOf('short\n\ntext', [{ word: 'none', weight: 1 }]), 'short text');
  assert.ok(excerptOf('x'.repeat(5_000), [{ word: 'x', weight: 1 }]).length <= limits.knowledgeExcerptMaxChars);
  fc.assert(fc.property(fc.string({ unit: 'grapheme', maxLength: 2_000 }), fc.string({ minLength: 1, maxLength: 8 }), (any, word) => {
    const shown = excerptOf(any, [{ word, weight: 1 }]);
    assert.ok(shown.length <= limits.knowledgeExcerptMaxChars && (shown.isWellFormed() || !any.isWellFormed()));
  }), { seed: runSeed() });
});

test('knowledge index - a node\'s id is the slug of its path, and always an id [KNO-011]', () => {
  assert.equal(slugOf('notes/Alpha Centauri.md'), 'notes-alpha-centauri');
  assert.equal(slugOf('Überblick & Ziele.markdown'), 'uberblick-ziele');
  assert.equal(slugOf('a b.md'), slugOf('a-b.md'));
  assert.notEqual(distinctId('a b.md'), distinctId('a-b.md'));
  assert.notEqual(slugOf('東京.md'), slugOf('大阪.md'));
  fc.assert(fc.property(fc.string({ unit: 'grapheme', minLength: 1, maxLength: limits.knowledgePathMaxChars }), (path) => {
    assert.ok(nodeId.safeParse(slugOf(path)).success && nodeId.safeParse(distinctId(path)).success);
  }), { seed: runSeed() });
});

const graph = ({ index, names }: Indexed, node: string, depth: number, edges = false) => graphOf({ names, find: (id) => index.find(id) }, node, depth, edges);

test('knowledge graph - follows links up to the depth; the root has no edge, every other node has one [KNO-012] [KNO-013] [KNO-014]', () => {
  const made = indexed({ 'a.md': '---\nrelated: [[C]]\n---\n[[B]] [[A]] [[Nobody]]', 'b.md': '[[D#h|d]]', 'c.md': '', 'd.md': '[[E]]', 'e.md': '', 'x.md': '[[A]]' });
  assert.deepEqual(graph(made, 'a', 1), { root: 'a', depth: 1, nodes: [
    { id: 'a', title: 'a', depth: 0 }, { id: 'c', title: 'c', depth: 1, edge: 'related_to' }, { id: 'b', title: 'b', depth: 1, edge: 'references' },
  ] });
  assert.deepEqual(graph(made, 'a', 2)?.nodes.map(({ id, depth }) => [id, depth]), [['a', 0], ['c', 1], ['b', 1], ['d', 2]]);
  assert.equal(graph(made, 'nobody', 1), undefined);
  assert.deepEqual(graph(made, 'a', 1, true)?.edges, [{ from: 'a', to: 'c', edge: 'related_to' }, { from: 'a', to: 'b', edge: 'references' }]);
});

test('knowledge graph - circles end: each node once, at its smallest depth [KNO-017]', () => {
  const made = indexed({ 'a.md': '[[B]] [[C]]', 'b.md': '[[C]] [[A]]', 'c.md': '[[D]]', 'd.md': '[[A]] [[B]]' });
  assert.deepEqual(graph(made, 'a', 5)?.nodes.map(({ id, depth }) => [id, depth]), [['a', 0], ['b', 1], ['c', 1], ['d', 2]]);
  assert.deepEqual(graph(made, 'd', 1)?.nodes.map(({ id }) => id), ['d', 'a', 'b']);
});

test('knowledge graph - holds the 500 nearest nodes [KNO-016]', () => {
  const ring = (name: string, count: number, to: (i: number) => string): [string, string][] => Array.from({ length: count }, (_, i) => [`${name}${i}.md`, to(i)]);
  const made = indexed(Object.fromEntries([
    ['root.md', ring('near', 300, () => '').map(([path]) => `[[${path}]]`).join(' ')], ...ring('near', 300, (i) => `[[far${i * 2}]] [[far${i * 2 + 1}]]`), ...ring('far', 600, () => ''),
  ]));
  const nodes = graph(made, 'root', 3)?.nodes ?? [];
  assert.equal(nodes.length, limits.knowledgeNodesMax);
  assert.equal(nodes.filter(({ depth }) => depth === 1).length, 300);
  assert.equal(new Set(nodes.map(({ id }) => id)).size, nodes.length);
});

test('knowledge graph - a name means the path, the file with its folders, the title, the alias, in this order; of several the shortest path [KNO-010]', () => {
  const made = indexed({
    'Topic.md': '', 'deep/Topic.md': '', 'deep/er/Topic.md': '', 'other.md': '---\ntitle: Topic\n---', 'titled.md': '# The Title\n', 'aliased.md': '---\naliases: [Nick]\n---', 'nick/other name.md': '',
    'deep/from.md': '[[./Topic]] [[../Topic]]',
  });
  const means = (name: string): string | undefined => made.names.resolve(name, (id) => made.index.find(id))?.path;
  assert.equal(means('topic'), 'Topic.md');
  assert.equal(means('deep/TOPIC.md'), 'deep/Topic.md');
  assert.equal(means('er/Topic'), 'deep/er/Topic.md');
  assert.equal(means('the  title'), 'titled.md');
  assert.equal(means('Nick'), 'aliased.md');
  assert.equal(means('Other Name'), 'nick/other name.md');
  assert.equal(means('no/Topic'), undefined);
  assert.deepEqual(graph(made, 'deep-from', 1)?.nodes.map(({ id }) => id), ['deep-from', 'deep-topic', 'topic']);
  made.remove('Topic.md');
  assert.equal(means('topic'), 'deep/Topic.md');
});
