/**
 * The test files of this repository, and which of them may be run a second time (test/README.md, decision 4).
 *
 * Listed here, because a pattern that matches nothing would fail the run. It does not run anything.
 */
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';

/** In the order in which they are given to the runner (which sorts them by name). */
const folders = ['browser', 'conformance', 'fault', 'integration', 'repo', 'unit'] as const;

/** Folders whose tests run servers, processes and browsers. What `unit` and `repo` hold runs alone in its process: it has no excuse. */
const withProcesses: ReadonlySet<string> = new Set(['browser', 'conformance', 'fault', 'integration']);

/** More failed files than this are no coincidence. */
export const runAgainMax = 5;

/** All test files under `root`, from `root`, sorted. */
export const testFiles = (root: string): string[] =>
  folders.flatMap((folder) => {
    const path = join(root, 'test', folder);
    if (!existsSync(path)) return [];
    return readdirSync(path, { recursive: true, encoding: 'utf8' }).filter((name) => name.endsWith('.test.ts')).toSorted().map((name) => join('test', folder, name));
  });

/** Files to run once more, alone: those that failed, if each of them may be and they are few; else none. */
export const runAgain = (failed: readonly string[]): readonly string[] => {
  const folderOf = (file: string): string => file.split('/')[1] ?? '';
  return failed.length <= runAgainMax && failed.every((file) => file.startsWith('test/') && withProcesses.has(folderOf(file))) ? failed : [];
};
