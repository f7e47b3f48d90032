/** Reading markdown for the index: frontmatter, links, facts, what is code; the words of a text. mdast is the judge of what is code. */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { fromMarkdown } from 'mdast-util-from-markdown';
import { frontmatterFromMarkdown } from 'mdast-util-frontmatter';
import { frontmatter } from 'micromark-extension-frontmatter';
import { visit } from 'unist-util-visit';
import { readMarkdown } from '../../actors/knowledge/markdown.ts';
import { wordsOf } from '../../actors/knowledge/words.ts';
import { limits } from '../../contracts/limits.ts';
import { root } from '../repo/source.ts';
import { draw, runSeed } from '../harness/seed.ts';

const names = (content: string): string[] => readMarkdown('notes/here.md', content).links.map(({ name }) => name);

test('knowledge markdown - wikilinks with headings and aliases name their document, in code they name nothing [KNO-010]', () => {
  assert.deepEqual(names('[[One]] [[Two#Part]] [[Three|3]] [[Four#Part|4]] ![[Five]] [[folder/Six^block]] | [[Seven\\|in a table]] |'),
    ['One', 'Two', 'Three', 'Four', 'Five', 'folder/Six', 'Seven']);
  assert.deepEqual(names('`[[One]]` ``a ` [[Two]]`` [[Real]] \\[[Escaped]] [[#Here]] [[]] `no end [[Kept]]'), ['Real', 'Kept']);
  assert.deepEqual(names('```md\n[[One]]\n```\n\n~~~\n[[Two]]\n```\n~~~\n\n    [[Three]]\n\ntext [[Real]]\n'), ['Real']);
  assert.deepEqual(names('a code span `that\ngoes on [[One]]` and ends\n\nbut `not over\n\na blank line [[Two]]`'), ['Two']);
});

test('knowledge markdown - frontmatter gives title, tags and aliases, however YAML writes them [KNO-006]', () => {
  const read = readMarkdown('a.md', '---\r\ntitle: "The: Title"\r\ntags: [one, "#two", 3]\r\naliases:\r\n  - First\r\n  - Second name\r\n---\r\n# Another\r\ntext\r\n');
  assert.deepEqual([read.title, read.tags, read.aliases], ['The: Title', ['one', 'two', '3'], ['First', 'Second name']]);
  const short = readMarkdown('a.md', '---\ntags: one, two three\nalias: A, B c\n---\ntext');
  assert.deepEqual([short.tags, short.aliases], [['one', 'two', 'three'], ['A', 'B c']]);
  assert.equal(readMarkdown('a.md', '# Heading `x` **b** #\n').title, 'Heading x b');
  assert.equal(readMarkdown('a.md', 'Heading\n===\n').title, 'Heading');
  assert.equal(readMarkdown('folder/The file.md', 'text').title, 'The file');
});

test('knowledge markdown - a block that is no YAML, is too long or expands its aliases is text, not a fault', () => {
  for (const block of ['title: [', '- a list', 'a: &a [x]\nb: *a', `title: ${'x'.repeat(limits.knowledgeFrontmatterMaxBytes)}`]) {
    const read = readMarkdown('the file.md', `---\n${block}\n---\nbody words`);
    assert.equal(read.title, 'the file', block.slice(0, 30));
    assert.match(read.text, /body words/);
  }
  assert.equal(readMarkdown('a.md', '---\n__proto__: {polluted: yes}\ntitle: T\n---\n').title, 'T');
  assert.equal(Object.hasOwn(Object.prototype, 'polluted'), false);
});

test('knowledge markdown - relations of the frontmatter are links, and so are wikilinks in any of its values', () => {
  const { links } = readMarkdown('a.md', '---\nrelated: [[Beta]]\nsee_also: ["[[Gamma|g]]", Delta]\nparent: "[[Up#x]]"\n---\n[[Beta]]\n');
  assert.deepEqual(links, [
    { name: 'Beta', relation: 'related_to' }, { name: 'Gamma', relation: 'related_to' }, { name: 'Delta', relation: 'related_to' }, { name: 'Up', relation: 'references' },
  ]);
});

test('knowledge markdown - facts are scalars of the frontmatter, fields, terms, statements and definitions [KNO-009]', () => {
  const { facts } = readMarkdown('a.md', [
    '---', 'status: shipped', 'size: 12', 'people: [Ann, Bob]', 'tags: [t]', '---',
    'owner:: Maria [[Maria|M.]]', '', '- **Port**: 8443', '- The cache is `cold` at start', '- nothing here', '1. Paris was first', '', 'Term', ': what it means', '',
    '```', 'not:: a fact', '```', 'A sentence that is long is no list item.',
  ].join('\n'));
  assert.deepEqual(facts, ['status: shipped', 'size: 12', 'people: Ann, Bob', 'owner: Maria M.', 'Port: 8443', 'The cache is cold at start', 'Paris was first', 'Term: what it means']);
});

test('knowledge markdown - what a document may hold is bounded', () => {
  const many = readMarkdown('a.md', Array.from({ length: 3_000 }, (_, i) => `- Name ${i}: value [[Link ${i}]] #tag${i}`).join('\n'));
  assert.deepEqual([many.links.length, many.facts.length, many.tags.length], [limits.knowledgeLinksMax, limits.knowledgeFactsMax, limits.knowledgeTagsMax]);
  const long = readMarkdown('a.md', `# ${'x'.repeat(5_000)}\n- Name: ${'y'.repeat(5_000)}\n[[${'z'.repeat(300)}]]\n`);
  assert.equal(long.title.length, limits.knowledgeTitleMaxChars);
  assert.equal(long.facts[0]?.length, limits.knowledgeFactMaxChars);
  assert.deepEqual(long.links, []);
});

/** Markdown files of installed packages, small enough for mdast. */
const installed = (): string[] => readdirSync(join(root, 'node_modules'), { recursive: true, withFileTypes: true })
  .filter((entry) => entry.isFile() && /\.md$/i.test(entry.name)).map((entry) => join(entry.parentPath, entry.name)).toSorted()
  .map((path) => readFileSync(path, 'utf8')).filter((text) => text.length > 500 && text.length < 6_000);

test('knowledge markdown - agrees with mdast on which places of installed packages\' documents are code [KNO-010]', (t) => {
  const { next: random, seed } = draw(runSeed());
  t.diagnostic(`TROUPE_SEED=${seed}`);
  const texts = installed();
  assert.ok(texts.length > 100);
  let probes = 0;
  for (let n = 0; n < 60; n++) {
    const text = texts[Math.floor(random() * texts.length)] ?? '';
    const start = /^---\n[^]*?\n---\n/.exec(text)?.[0].length ?? 0;
    // Behind a word, where the document goes on with a space: never in the middle of markup.
    const gaps = [...text.matchAll(/(?<=[a-z]) (?=[a-z])/g)].map(({ index }) => index).filter((index) => index > start && random() < 0.2);
    let probed = text;
    for (const [i, gap] of [...gaps.entries()].toReversed()) probed = `${probed.slice(0, gap)} [[Probe ${i}]]${probed.slice(gap)}`;
    const code = new Set<string>();
    visit(fromMarkdown(probed, { extensions: [frontmatter(['yaml'])], mdastExtensions: [frontmatterFromMarkdown(['yaml'])] }), (node) => {
      if (node.type === 'code' || node.type === 'inlineCode') for (const [, name = ''] of node.value.matchAll(/\[\[(Probe \d+)\]\]/g)) code.add(name);
    });
    const found = new Set(readMarkdown('a.md', probed).links.map(({ name }) => name));
    for (const i of gaps.keys()) assert.equal(found.has(`Probe ${i}`), !code.has(`Probe ${i}`), `Probe ${i} of:\n${probed}`);
    probes += gaps.length;
  }
  assert.ok(probes > 500);
});

test('knowledge markdown - words are found whatever their case, accents and plural; unspaced scripts by pairs', () => {
  assert.deepEqual(wordsOf('Café cafés CAFE class', 9), ['cafe', 'class']);
  assert.deepEqual(wordsOf('東京タワー', 9), ['東京', '京タ', 'タワ', 'ワー']);
  assert.deepEqual(wordsOf('a b c d', 2), ['a', 'b']);
});
