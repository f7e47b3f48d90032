/**
 * A vault of real text: the markdown files of the installed packages, cut into notes of about two kilobytes at their paragraphs, each with
 * frontmatter and links to others. Beyond what there is, notes are put together from paragraphs that a seed draws: words stay as common or rare as they are.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { root } from '../repo/source.ts';
import { draw } from './seed.ts';

export interface Note {
  readonly path: string;
  readonly content: string;
}

export interface Vault {
  readonly notes: readonly Note[];
  /** Files they were taken from, and notes that are the files' own text in its order. */
  readonly files: number;
  readonly own: number;
}

const noteChars = 2_000;
const fileMaxChars = 512 * 1024;

export const vaultOf = (count: number, seed: number): Vault => {
  const random = draw(seed);
  const files = readdirSync(join(root, 'node_modules'), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && /\.md$/i.test(entry.name)).map((entry) => join(entry.parentPath, entry.name)).toSorted()
    .map((path) => readFileSync(path, 'utf8')).filter((text) => text.length > 0 && text.length < fileMaxChars);
  const paragraphs: string[] = [];
  const bodies: string[] = [];
  for (const text of files) {
    let body = '';
    for (const paragraph of text.split(/\n{2,}/)) {
      paragraphs.push(paragraph);
      body += `${paragraph}\n\n`;
      if (body.length < noteChars) continue;
      bodies.push(body);
      body = '';
    }
    if (body !== '') bodies.push(body);
  }
  const own = Math.min(bodies.length, count);
  while (bodies.length < count) {
    let body = '';
    while (body.length < noteChars) body += `${random.pick(paragraphs)}\n\n`;
    bodies.push(body);
  }
  const pathOf = (i: number): string => `area ${i % 37}/topic ${i % 401}/Note ${i}.md`;
  return {
    files: files.length, own,
    notes: bodies.slice(0, count).map((body, i) => ({
      path: pathOf(i),
      content: `---\ntitle: Note ${i}\ntags: [area${i % 37}, topic${i % 401}]\nstatus: state${i % 7}\n---\n${body}\n[[Note ${random.int(0, count - 1)}]] and [[${pathOf(random.int(0, count - 1))}#Part|another]]\n`,
    })),
  };
};

/** A query of one to four words of some note, common ones as often as they stand there. */
export const queryOf = (notes: readonly Note[], random: ReturnType<typeof draw>): string => {
  const words = (random.pick(notes).content.match(/[a-z]{2,}/gi) ?? ['note']);
  return Array.from({ length: random.int(1, 4) }, () => random.pick(words)).join(' ');
};
