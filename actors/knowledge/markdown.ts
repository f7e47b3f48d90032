/**
 * Reads a markdown document for the index: title, tags, aliases, links, headings, facts, and its text without markup.
 *
 * A scanner of our own, line by line and linear in the text: `mdast-util-from-markdown` took 20 s for the 4 MB of markdown among our packages, and
 * 25 kB of `[a](b` cost it more than a second. Links and facts in code (fences, indented blocks, spans) do not count, as in CommonMark;
 * a test compares with mdast what is code. The code's words are found all the same.
 *
 * Facts (KNO-009), each at most a line:
 * F1  a scalar of the frontmatter other than title, tags and aliases: `key: value`
 * F2  `key:: value`
 * F3  a list item `Term: text` or `**Term**: text`
 * F4  a list item with is, are, was, were, has, have, means or equals: `X is Y`
 * F5  a line of a definition list, `: text` under its term
 * Links: `[[Name]]`, `[[Name#Heading]]`, `[[Name|alias]]`, `[[Name#Heading|alias]]`, embeds (`![[Name]]`) too.
 */
import { limits } from '../../contracts/limits.ts';
import type { Relation } from '../../contracts/knowledge.ts';
import { linkName, readFrontmatter } from './frontmatter.ts';

export interface Link {
  readonly name: string;
  readonly relation: Relation;
}

export interface Markdown {
  readonly title: string;
  readonly tags: readonly string[];
  readonly aliases: readonly string[];
  readonly links: readonly Link[];
  readonly headings: readonly string[];
  readonly facts: readonly string[];
  /** Without markup; the frontmatter's facts stand at its end. */
  readonly text: string;
}

const fenceForm = /^[ \t>]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)?(`{3,}|~{3,})([^\n]*)$/;
const itemForm = /^[ \t>]*(?:[-*+]|\d{1,9}[.)])[ \t]+(?:\[[ xX]\][ \t]+)?(\S.*)$/;
const headingForm = /^ {0,3}(#{1,6})(?:[ \t]+(.*))?$/;
const fieldForm = /^[ \t>]*(?:[-*+][ \t]+)?\**([\p{L}\p{N}][^:\n]{0,60})::[ \t]+(\S.*)$/u;
const termForm = /^(?:\*\*|__)?([\p{L}\p{N}`][^:*\n]{0,60})(?:\*\*|__)?:(?:\*\*|__)?[ \t]+(\S.*)$/u;
const statement = /^.{1,100}? (?:is|are|was|were|has|have|means|equals) \S/i;
const wikilink = /!?\[\[([^[\]\n]{1,400})\]\]/g;
const inlineTag = /(?:^|[ \t(])#([\p{L}_][\p{L}\p{N}_/-]{0,100})/gmu;

/** Without trailing `#` and white space. Written out, because an expression for it can take the square of a line's length. */
const headingText = (text: string): string => {
  let end = text.trimEnd().length;
  while (end > 0 && text[end - 1] === '#') end--;
  return text.slice(0, end).trim();
};

/** The text with every code span's inside replaced by line ends, which no link and no tag may hold. Same length. Linear. */
export const withoutSpans = (text: string): string => {
  const runs = [...text.matchAll(/`+/g)].map(({ index, 0: { length } }) => ({ index, length }));
  if (runs.length < 2) return text;
  // From the last to the first, so that each run knows the next of its length.
  const next: (number | undefined)[] = [];
  const seen = new Map<number, number>();
  for (let i = runs.length - 1; i >= 0; i--) {
    const { length } = runs[i] ?? { length: 0 };
    next[i] = seen.get(length);
    seen.set(length, i);
  }
  let masked = '';
  let at = 0;
  for (let i = 0; i < runs.length;) {
    const open = runs[i];
    const close = runs[next[i] ?? -1];
    if (open === undefined || close === undefined) {
      i += 1;
      continue;
    }
    masked += text.slice(at, open.index) + '\n'.repeat(close.index + close.length - open.index);
    at = close.index + close.length;
    i = (next[i] ?? i) + 1;
  }
  return masked + text.slice(at);
};

/** Markup off. Every expression takes a bounded number of steps at each place. */
const plainText = (text: string): string => text
  .replace(wikilink, (_, inside: string) => inside.split(/\\?\|/).at(-1) ?? '')
  .replace(/!?\[([^[\]\n]{0,300})\](?:\([^()\n]{0,500}\)|\[[^[\]\n]{0,100}\])/g, '$1')
  .replace(/<\/?[a-zA-Z!][^<>\n]{0,300}>/g, ' ')
  .replace(/\*\*|__|~~|==|`/g, '')
  .replace(/(^|[\s(])[*_](?=\S)|(\S)[*_](?=$|[\s).,;:!?])/gm, '$1$2')
  .replace(/\\([!-/:-@[-`{-~])/g, '$1');

const oneLine = (text: string, most: number): string => {
  const line = plainText(text).replace(/\s+/g, ' ').trim();
  return line.length <= most ? line : `${line.slice(0, most - 1).toWellFormed()}…`;
};

/** The fact that a line states by itself (F2-F4), or undefined. */
const factIn = (line: string): string | undefined => {
  const field = fieldForm.exec(line);
  if (field !== null) return `${field[1] ?? ''}: ${field[2] ?? ''}`;
  const item = itemForm.exec(line)?.[1];
  if (item === undefined) return undefined;
  return termForm.test(item) || statement.test(item) ? item : undefined;
};

const fileName = (path: string): string => (path.split('/').at(-1) ?? path).replace(/\.(?:md|markdown)$/i, '');

/** `path` gives the title where the document has none. Never throws: every text is a document. */
export const readMarkdown = (path: string, content: string): Markdown => {
  const { frontmatter, rest } = readFrontmatter(content.replace(/^\ufeff/, '').replace(/\r\n?/g, '\n'));
  const headings: string[] = [];
  const facts: string[] = [];
  const texts: string[] = [];
  const tags = new Set(frontmatter.tags);
  const links = new Map<string, Relation>();
  let heading1: string | undefined;

  const link = (name: string, relation: Relation): void => {
    if (name === '' || name.length > limits.knowledgeNameMaxChars || links.size >= limits.knowledgeLinksMax || links.has(name)) return;
    links.set(name, relation);
  };
  const fact = (text: string | undefined): void => {
    if (text !== undefined && facts.length < limits.knowledgeFactsMax) facts.push(oneLine(text, limits.knowledgeFactMaxChars));
  };
  /** A block of text: what a code span cannot reach over. */
  let block: string[] = [];
  const endBlock = (): void => {
    if (block.length === 0) return;
    const text = block.join('\n');
    const masked = withoutSpans(text);
    for (const found of masked.matchAll(wikilink)) if (masked[found.index - 1] !== '\\') link(linkName(found[1] ?? ''), 'references');
    for (const [, tag = ''] of masked.matchAll(inlineTag)) if (tags.size < limits.knowledgeTagsMax) tags.add(tag);
    texts.push(plainText(text.replace(/^[ \t]*(?:[>|]|[-*+](?=[ \t])|\d{1,9}[.)](?=[ \t]))+[ \t]*/gm, '')));
    block = [];
  };
  const heading = (level: number, raw: string): void => {
    const text = oneLine(raw, limits.knowledgeTitleMaxChars);
    if (text === '') return;
    if (level === 1) heading1 ??= text;
    headings.push(text);
    for (const found of withoutSpans(raw).matchAll(wikilink)) link(linkName(found[1] ?? ''), 'references');
    texts.push(text);
  };

  for (const name of frontmatter.related) link(name, 'related_to');
  for (const name of frontmatter.references) link(name, 'references');

  let fence: { readonly mark: string; readonly length: number } | undefined;
  let code = false;
  let blank = true;
  let inList = false;
  for (const line of rest.split('\n')) {
    if (fence !== undefined) {
      const end = fenceForm.exec(line);
      if (end?.[1]?.startsWith(fence.mark) === true && end[1].length >= fence.length && (end[2] ?? '').trim() === '') fence = undefined;
      else texts.push(line);
      continue;
    }
    const opens = fenceForm.exec(line);
    if (opens !== null && !(opens[1]?.startsWith('`') === true && opens[2]?.includes('`') === true)) {
      endBlock();
      fence = { mark: opens[1]?.charAt(0) ?? '`', length: opens[1]?.length ?? 3 };
      continue;
    }
    if (line.trim() === '') {
      endBlock();
      blank = true;
      continue;
    }
    const indented = /^(?: {4}|\t)/.test(line);
    if (indented && !inList && (blank || code)) {
      code = true;
      blank = false;
      texts.push(line);
      continue;
    }
    code = false;
    const item = itemForm.test(line);
    if (item) inList = true;
    else if (blank && !/^[ \t]/.test(line)) inList = false;
    const title = headingForm.exec(line);
    if (title !== null) {
      endBlock();
      heading(title[1]?.length ?? 1, headingText(title[2] ?? ''));
    } else if (/^ {0,3}(?:=+|-+)[ \t]*$/.test(line) && block.length > 0 && !blank && !inList) {
      const raw = block.pop() ?? '';
      endBlock();
      heading(line.includes('=') ? 1 : 2, raw);
    } else {
      if (item) endBlock();
      const definition = /^:[ \t]+(\S.*)$/.exec(line);
      if (definition !== null && block.length > 0) fact(`${block.at(-1) ?? ''}: ${definition[1] ?? ''}`);
      else fact(factIn(line));
      block.push(line);
    }
    blank = false;
  }
  endBlock();

  const stated = frontmatter.facts.map((text) => oneLine(text, limits.knowledgeFactMaxChars));
  return {
    title: oneLine(frontmatter.title ?? heading1 ?? fileName(path), limits.knowledgeTitleMaxChars) || fileName(path).slice(0, limits.knowledgeTitleMaxChars),
    tags: [...tags], aliases: frontmatter.aliases,
    links: [...links].map(([name, relation]) => ({ name, relation })),
    headings, facts: [...stated, ...facts].slice(0, limits.knowledgeFactsMax),
    text: [...texts, ...stated].join('\n'),
  };
};
