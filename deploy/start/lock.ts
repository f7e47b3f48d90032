/**
 * One start per folder: whoever holds an exclusive flock(2) on `run/start.lock` has `.troupe`; `run/start.pid` names it.
 *
 * Guarantee: of any number of starts at once exactly one gets the lock, and the kernel gives it back when its process ends,
 * however it ends: a file left behind means nothing.
 */
import { closeSync, openSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import koffi from 'koffi';
import { writePrivate, type Folder } from './folder.ts';
import { isAlive, markOf, readMark, type ProcessMark } from './process-mark.ts';

/** `by` is undefined while the holder has not named itself yet. */
export type Lock = { readonly held: true; release(): void } | { readonly held: false; readonly by: ProcessMark | undefined };

export const startFile = (folderPath: string): string => join(folderPath, 'run', 'start.pid');

/** LOCK_EX | LOCK_NB of sys/file.h. */
const exclusiveNow = 2 | 4;

/** Takes the folder for this process, or says who has it. */
export const takeLock = (folder: Folder): Lock => {
  const own = markOf(process.pid);
  if (own === undefined) throw new Error('The start time of this process cannot be read.');
  const file = startFile(folder.path);
  const flock: (fd: number, operation: number) => number = koffi.load(null).func('int flock(int fd, int operation)');
  const fd = openSync(join(folder.run, 'start.lock'), 'a', 0o600);
  if (flock(fd, exclusiveNow) !== 0) {
    closeSync(fd);
    const holder = readMark(file);
    return { held: false, by: holder !== undefined && isAlive(holder) ? holder : undefined };
  }
  writePrivate(file, JSON.stringify(own));
  return {
    held: true,
    release: () => {
      rmSync(file, { force: true });
      closeSync(fd);
    },
  };
};
