/**
 * The repository as text: its files, and for each source file the modules it imports. Reads, judges nothing; the tests
 * beside it do. Imports are found in the text with comments taken out, which fits how this code is written.
 */
import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, posix } from 'node:path';
import { fileURLToPath } from 'node:url';

export const root = dirname(dirname(dirname(fileURLToPath(import.meta.url))));
export const topFolders = ['contracts', 'actors', 'gateway', 'deploy', 'test'] as const;

export interface Source {
  /** From the root, with `/`. */
  readonly path: string;
  readonly text: string;
  /** Without comments; strings stay. */
  readonly code: string;
  readonly imports: readonly Import[];
}

export interface Import {
  /** As written. */
  readonly from: string;
  /** Path from the root of a file of ours, else undefined. */
  readonly file: string | undefined;
  /** The package's name (`zod`, `@nats-io/kv`, `node:fs`), else undefined. */
  readonly package: string | undefined;
  readonly typeOnly: boolean;
}

const skipped = new Set(['node_modules', '.troupe', '.git', 'dist']);

const walk = (folder: string): string[] => {
  if (!existsSync(join(root, folder))) return [];
  return readdirSync(join(root, folder), { withFileTypes: true }).flatMap((entry) => {
    if (skipped.has(entry.name)) return [];
    const path = folder === '' ? entry.name : `${folder}/${entry.name}`;
    return entry.isDirectory() ? walk(path) : [path];
  });
};

/** Every file of the repository: what git tracks or would, else (no git) all of it. */
export const allFiles = (): readonly string[] => {
  try {
    const listed = execFileSync('git', ['ls-files', '-co', '--exclude-standard', '-z'], { cwd: root, encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] });
    return listed.split('\0').filter((path) => path !== '' && existsSync(join(root, path)));
  } catch {
    return walk('');
  }
};

export const read = (path: string): string => readFileSync(join(root, path), 'utf8');

/** Takes comments out, keeps strings, template texts and line breaks. Regular expressions holding `//` or quotes are rare and harmless here. */
export const withoutComments = (text: string): string =>
  text.replaceAll(/\/\*[\s\S]*?\*\/|\/\/[^\n]*|'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"|`(?:\\.|[^`\\])*`/g, (found) =>
    found.startsWith('/*') || found.startsWith('//') ? found.replaceAll(/[^\n]/g, '') : found);

const packageOf = (from: string): string =>
  from.startsWith('node:') ? from : from.split('/').slice(0, from.startsWith('@') ? 2 : 1).join('/');

const importsOf = (path: string, code: string): Import[] => {
  const found = [
    ...code.matchAll(/^\s*(?:import|export)\s+(type\s)?[^'"();]*?from\s+['"]([^'"]+)['"]/gm),
    ...code.matchAll(/^\s*import\s+()['"]([^'"]+)['"]/gm),
    ...code.matchAll(/\bimport\(\s*()['"]([^'"]+)['"]\s*\)/g),
  ];
  return found.map(([, type, from = '']) => ({
    from, typeOnly: type !== undefined && type !== '',
    file: from.startsWith('.') ? posix.join(posix.dirname(path), from) : undefined,
    package: from.startsWith('.') ? undefined : packageOf(from),
  }));
};

/** Source files (.ts, .tsx, .mjs) under the top folders. */
export const sources = (): readonly Source[] =>
  allFiles().filter((path) => /\.(ts|tsx|mjs)$/.test(path) && topFolders.some((folder) => path.startsWith(`${folder}/`))).map((path) => {
    const text = read(path);
    const code = withoutComments(text);
    return { path, text, code, imports: importsOf(path, code) };
  });

/** Groups of files that import each other in a circle (Tarjan's strongly connected components of more than one file). */
export const cycles = (files: readonly Source[]): readonly (readonly string[])[] => {
  const byPath = new Map(files.map((file) => [file.path, file]));
  const order = new Map<string, { index: number; low: number; open: boolean }>();
  const stack: string[] = [];
  const found: string[][] = [];
  const visit = (path: string): { index: number; low: number; open: boolean } => {
    const mark = { index: order.size, low: order.size, open: true };
    order.set(path, mark);
    stack.push(path);
    for (const { file } of byPath.get(path)?.imports ?? []) {
      if (file === undefined || !byPath.has(file)) continue;
      const seen = order.get(file);
      if (seen === undefined) mark.low = Math.min(mark.low, visit(file).low);
      else if (seen.open) mark.low = Math.min(mark.low, seen.index);
    }
    if (mark.low === mark.index) {
      const group = stack.splice(stack.indexOf(path));
      for (const member of group) {
        const entry = order.get(member);
        if (entry !== undefined) entry.open = false;
      }
      if (group.length > 1 || byPath.get(path)?.imports.some((i) => i.file === path) === true) found.push(group);
    }
    return mark;
  };
  for (const { path } of files) if (!order.has(path)) visit(path);
  return found;
};
