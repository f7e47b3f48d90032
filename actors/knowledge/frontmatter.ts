/**
 * YAML frontmatter of a document (KNO-006): title, tags, aliases, relations, and every other scalar as a fact.
 *
 * A block between `---` at the very start and `---` or `...`. One that is no YAML mapping, or is longer than the limit, is text like all else. Aliases and
 * anchors of YAML are not expanded, so a small block cannot become a large value; a key named twice has its last value.
 */
import { parseDocument } from 'yaml';
import { limits } from '../../contracts/limits.ts';

export interface Frontmatter {
  readonly title: string | undefined;
  readonly tags: readonly string[];
  readonly aliases: readonly string[];
  /** Names that `related`, `related_to` and `see_also` hold. */
  readonly related: readonly string[];
  /** Wikilinks in any other value. */
  readonly references: readonly string[];
  /** `key: value`. */
  readonly facts: readonly string[];
}

export const noFrontmatter: Frontmatter = { title: undefined, tags: [], aliases: [], related: [], references: [], facts: [] };

const relations: ReadonlySet<string> = new Set(['related', 'related_to', 'related-to', 'see_also', 'see-also']);

const isRecord = (value: unknown): value is Readonly<Record<string, unknown>> => typeof value === 'object' && value !== null && !Array.isArray(value);

/** The scalars of a value, lists opened. `[[Name]]` without quotes is YAML for a list in a list: it is the link that was meant. */
const scalars = (value: unknown, depth = 0): string[] => {
  if (typeof value === 'string') return [value.trim()];
  if (typeof value === 'number' || typeof value === 'boolean') return [String(value)];
  if (!Array.isArray(value) || depth > 4) return [];
  const [first, ...others] = value as unknown[];
  if (others.length === 0 && Array.isArray(first) && first.length === 1 && typeof first[0] === 'string') return [`[[${first[0]}]]`];
  return value.flatMap((item: unknown) => scalars(item, depth + 1));
};

const wikilink = /\[\[([^[\]\n]{1,400})\]\]/g;
/** The part of a wikilink's inside that names a document; empty = the document itself. */
export const linkName = (inside: string): string => (inside.split(/\\?\||#|\^/, 1)[0] ?? '').trim();
const linksIn = (text: string): string[] => [...text.matchAll(wikilink)].map(([, inside = '']) => linkName(inside));

const short = (names: readonly string[], most: number): string[] =>
  [...new Set(names.filter((name) => name !== '' && name.length <= limits.knowledgeNameMaxChars))].slice(0, most);

const readYaml = (block: string): Readonly<Record<string, unknown>> | undefined => {
  const document = parseDocument(block, { schema: 'core', uniqueKeys: false, logLevel: 'silent', strict: false });
  if (document.errors.length > 0) return undefined;
  try {
    const value: unknown = document.toJS({ maxAliasCount: 0 });
    return isRecord(value) ? value : undefined;
  } catch {
    // An alias, which is not expanded.
    return undefined;
  }
};

/** `rest`: the text after the block; everything, if there is none. `text`: line ends are `\n`. */
export const readFrontmatter = (text: string): { readonly frontmatter: Frontmatter; readonly rest: string } => {
  const none = { frontmatter: noFrontmatter, rest: text };
  if (!text.startsWith('---\n')) return none;
  // `---` at once is an empty block.
  const end = /^(?:---|\.\.\.)[ \t]*$/m.exec(text.slice(4, 4 + limits.knowledgeFrontmatterMaxBytes));
  if (end === null) return none;
  const value = readYaml(text.slice(4, 4 + end.index));
  const rest = text.slice(4 + end.index + end[0].length + 1);
  if (value === undefined) return end.index === 0 ? { ...none, rest } : none;
  const get = (...keys: string[]): unknown => keys.map((key) => (Object.hasOwn(value, key) ? value[key] : undefined)).find((found) => found !== undefined && found !== null);
  const listed = (found: unknown, separator: RegExp): string[] => (typeof found === 'string' ? found.split(separator).map((part) => part.trim()) : scalars(found));
  const facts: string[] = [];
  const references: string[] = [];
  const related: string[] = [];
  for (const [key, held] of Object.entries(value)) {
    const texts = scalars(held);
    const links = texts.flatMap(linksIn);
    if (relations.has(key.toLowerCase())) related.push(...texts.flatMap((one) => (one.includes('[[') ? linksIn(one) : [linkName(one)])));
    else references.push(...links);
    if (['title', 'tag', 'tags', 'alias', 'aliases'].includes(key) || texts.length === 0) continue;
    facts.push(`${key}: ${texts.join(', ').replaceAll(/\[\[|\]\]/g, '')}`);
  }
  const title = scalars(get('title'))[0];
  return {
    frontmatter: {
      title: title === '' ? undefined : title,
      tags: short(listed(get('tags', 'tag'), /[,\s]+/).map((tag) => tag.replace(/^#/, '')), limits.knowledgeTagsMax),
      aliases: short(listed(get('aliases', 'alias'), /,/), limits.knowledgeTagsMax),
      related: short(related, limits.knowledgeLinksMax), references: short(references, limits.knowledgeLinksMax), facts,
    },
    rest,
  };
};
