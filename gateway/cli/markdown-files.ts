/**
 * The markdown files of a folder, as an import takes them.
 *
 * Links are not followed, and nothing whose name begins with a dot (`.obsidian`, `.git`) nor `node_modules` is entered. Paths are relative, with
 * slashes, in the order of their names: the same folder gives the same list.
 */
import { readdir, readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { refuse } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';

const left: ReadonlySet<string> = new Set(['node_modules']);
const markdown = /\.(?:md|markdown)$/i;

const codeOf = (error: unknown): string => (error instanceof Error && 'code' in error ? String(error.code) : 'unknown');

/** Throws `not_configured` for a folder that cannot be read, `bad_usage` for more files than an import takes. */
export const markdownFiles = async (folder: string): Promise<readonly string[]> => {
  const files: string[] = [];
  const enter = async (path: string): Promise<void> => {
    const entries = await readdir(join(folder, path), { withFileTypes: true }).catch((error: unknown) => {
      throw refuse('not_configured', `The folder ${join(folder, path)} cannot be read (${codeOf(error)}).`);
    });
    for (const entry of entries.toSorted((a, b) => (a.name < b.name ? -1 : 1))) {
      const inside = path === '' ? entry.name : `${path}/${entry.name}`;
      if (entry.name.startsWith('.') || left.has(entry.name)) continue;
      if (entry.isDirectory()) await enter(inside);
      else if (entry.isFile() && markdown.test(entry.name)) files.push(inside);
      if (files.length > limits.knowledgeImportFilesMax) throw refuse('bad_usage', `The folder has more than ${limits.knowledgeImportFilesMax} markdown files.`);
    }
  };
  await enter('');
  return files;
};

/** Its text, or why it is none. */
export const readMarkdownFile = async (folder: string, path: string): Promise<{ readonly content: string } | { readonly problem: string }> => {
  try {
    const { size } = await stat(join(folder, path));
    if (size > limits.knowledgeDocumentMaxBytes) return { problem: `has ${size} bytes; ${limits.knowledgeDocumentMaxBytes} are allowed` };
    // Without a mark of the byte order, which is no part of the text.
    return { content: new TextDecoder('utf-8', { fatal: true }).decode(await readFile(join(folder, path))) };
  } catch (error) {
    return { problem: error instanceof TypeError ? 'is not UTF-8' : `cannot be read (${codeOf(error)})` };
  }
};
