/** The dev.json that `npm start` writes: found from a folder upward, read, checked. */
import { readFile } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { devFile, type DevFile } from '../../contracts/config.ts';
import { refuse } from '../../contracts/errors.ts';

/** Throws `not_configured` naming the path. */
export const readText = async (path: string, what: string): Promise<string> => {
  try {
    return await readFile(path, 'utf8');
  } catch (cause) {
    const code = cause instanceof Error && 'code' in cause ? String(cause.code) : 'unknown';
    throw refuse('not_configured', `${what} ${path} cannot be read (${code}).`);
  }
};

export const readDevFile = async (path: string): Promise<DevFile> => {
  const text = await readText(path, 'The configuration file');
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw refuse('not_configured', `${path} is not JSON.`);
  }
  const parsed = devFile.safeParse(value);
  if (!parsed.success) {
    // Field names only: the file holds tokens.
    throw refuse('not_configured', `${path} lacks or misspells ${parsed.error.issues.map((i) => i.path.map(String).join('.')).join(', ')}.`);
  }
  return parsed.data;
};

/** Path of the nearest `.troupe/dev.json`. Throws `not_configured` if there is none. */
export const findDevFile = async (cwd: string): Promise<string> => {
  for (let folder = resolve(cwd); ; folder = dirname(folder)) {
    const path = join(folder, '.troupe', 'dev.json');
    try {
      await readFile(path);
      return path;
    } catch (cause) {
      const code = cause instanceof Error && 'code' in cause ? cause.code : undefined;
      if (code !== 'ENOENT' && code !== 'ENOTDIR') throw refuse('not_configured', `${path} cannot be read (${String(code)}).`);
    }
    if (folder === dirname(folder)) throw refuse('not_configured', 'There is no .troupe/dev.json in this folder or above it.');
  }
};
