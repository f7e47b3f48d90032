/**
 * One start per folder: the file `run/start.pid` names the process that holds `.troupe`.
 *
 * Guarantee: of any number of starts at once, one gets the lock (the file appears by `link`, which fails when it exists);
 * a file whose process is gone is moved away by whoever finds it, and only if it still is the file that was looked at.
 */
import { linkSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { writePrivate, type Folder } from './folder.ts';
import { isAlive, markOf, readMark, type ProcessMark } from './process-mark.ts';

export type Lock = { readonly held: true; release(): void } | { readonly held: false; readonly by: ProcessMark };

const codeOf = (error: unknown): unknown => (error instanceof Error && 'code' in error ? error.code : undefined);

export const startFile = (folderPath: string): string => join(folderPath, 'run', 'start.pid');

/** Takes the folder for this process, or says who has it. */
export const takeLock = (folder: Folder): Lock => {
  const file = startFile(folder.path);
  const own = markOf(process.pid);
  if (own === undefined) throw new Error('The start time of this process cannot be read.');
  const draft = `${file}.${process.pid}`;
  writePrivate(draft, JSON.stringify(own));
  try {
    for (;;) {
      try {
        linkSync(draft, file);
        return { held: true, release: () => { if (readMark(file)?.pid === process.pid) rmSync(file, { force: true }); } };
      } catch (error) {
        if (codeOf(error) !== 'EEXIST') throw error;
      }
      const holder = readMark(file);
      if (holder !== undefined && isAlive(holder)) return { held: false, by: holder };
      const aside = `${draft}.old`;
      try {
        renameSync(file, aside);
      } catch (error) {
        if (codeOf(error) === 'ENOENT') continue;
        throw error;
      }
      const moved = readMark(aside);
      if (moved !== undefined && isAlive(moved)) {
        // Another start took the lock between the look and the move: give it back.
        renameSync(aside, file);
        return { held: false, by: moved };
      }
      rmSync(aside, { force: true });
    }
  } finally {
    rmSync(draft, { force: true });
  }
};
