/**
 * Runs test files with Node's own runner, and once more, alone, the few that failed and may be run again (test/README.md, decision 4).
 *
 * Guarantee: what it gives names every file that was to be run: with a result, or as missing. Signals end it: it passes them on to
 * the runner and runs nothing again.
 */
import { spawn } from 'node:child_process';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { constants, tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { runAgain } from './files.ts';
import { fileResult, passed, type FileResult } from './result.ts';
import type { Run } from './summary.ts';

/** Milliseconds one test file may take: a hang becomes a failure, never a stuck build. */
const fileTimeoutMs = 300_000;
/** Two at a time: the machine this is meant for has two cores, and more would only make deadlines tight. */
const concurrency = 2;

export interface RunOptions {
  /** Folder the files are named from. */
  readonly root: string;
  /** The Node to run them on. */
  readonly node: string;
  readonly files: readonly string[];
  /** Further options of `node --test`. */
  readonly options?: readonly string[];
  /** Files that failed may be run again; default no. */
  readonly again?: boolean;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Gets what the runner prints while it runs: a line for each file. */
  readonly print: (text: string) => void;
}

/** A child on this terminal: its end, and the signals that were passed on to it. */
interface Ended {
  /** As a shell says it: 128 + n when signal n ended it. */
  readonly code: number;
  /** A signal was passed on. */
  readonly stopped: boolean;
}

/** Runs Node with arguments; its standard output goes to `print`, its standard error where ours goes. */
export const runNode = (args: readonly string[], options: Pick<RunOptions, 'root' | 'node' | 'env' | 'print'>): Promise<Ended> => new Promise((resolve, reject) => {
  const child = spawn(options.node, [...args], { cwd: options.root, env: options.env, stdio: ['ignore', 'pipe', 'inherit'] });
  let stopped = false;
  const pass = (signal: NodeJS.Signals): void => {
    stopped = true;
    // A terminal sends Ctrl-C to the whole foreground group itself.
    if (signal !== 'SIGINT' || !process.stdin.isTTY) child.kill(signal);
  };
  const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
  for (const signal of signals) process.on(signal, pass);
  const over = (): void => { for (const signal of signals) process.off(signal, pass); };
  child.stdout.setEncoding('utf8').on('data', options.print);
  child.once('error', (error) => { over(); reject(error); });
  child.once('close', (code, signal) => {
    over();
    resolve({ code: code ?? 128 + (signal === null ? 0 : constants.signals[signal]), stopped });
  });
});

const reporter = (name: string): string => fileURLToPath(new URL(`./${name}.ts`, import.meta.url));

/** The runner once: its end, and what it told of each file. */
const runOnce = async (options: RunOptions, files: readonly string[]): Promise<{ readonly ended: Ended; readonly results: readonly FileResult[] }> => {
  const folder = await mkdtemp(join(tmpdir(), 'troupe-test-run-'));
  try {
    const record = join(folder, 'results.jsonl');
    const given = options.options ?? [];
    const chosen = given.some((option) => option.startsWith('--test-reporter='));
    const ended = await runNode([
      '--test', `--test-concurrency=${concurrency}`, `--test-timeout=${fileTimeoutMs}`, ...given,
      ...(chosen ? [] : [`--test-reporter=${reporter('lines')}`]),
      ...(given.some((option) => option.startsWith('--test-reporter-destination=')) ? [] : ['--test-reporter-destination=stdout']),
      `--test-reporter=${reporter('record')}`, `--test-reporter-destination=${record}`,
      ...files,
    ], options);
    const text = await readFile(record, 'utf8').catch((error: unknown) => {
      // A runner that refuses its arguments writes no record; its own words are on standard error.
      if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return '';
      throw error;
    });
    // A runner that was killed may leave its last line unfinished.
    const lines = text.slice(0, text.lastIndexOf('\n') + 1).split('\n').filter((line) => line !== '');
    return { ended, results: lines.map((line) => fileResult.parse(JSON.parse(line))) };
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
};

/** Runs files; `code` is the runner's own, for when it failed without a file that did. */
export const runFiles = async (options: RunOptions): Promise<Run & { readonly code: number; readonly stopped: boolean }> => {
  const begun = performance.now();
  const { ended, results } = await runOnce(options, options.files);
  const byFile = new Map(results.map((result) => [result.file, result]));
  const onlyAlone: FileResult[] = [];
  const alsoAlone: string[] = [];
  const failed = results.filter((result) => !passed(result));
  const again = options.again === true && !ended.stopped ? runAgain(failed.map((result) => result.file)) : [];
  let { stopped } = ended;
  if (again.length > 0) options.print(`\n# once more, alone: ${again.join(', ')}\n`);
  for (const file of again) {
    if (stopped) break;
    const before = byFile.get(file);
    const { TROUPE_SEED: seed = before?.seed } = options.env;
    const once = await runOnce({ ...options, env: seed === undefined ? options.env : { ...options.env, TROUPE_SEED: seed } }, [file]);
    stopped = once.ended.stopped;
    const after = once.results.find((result) => result.file === file);
    if (after === undefined || before === undefined) continue;
    // Of two failures the first is told: it is the one that came in company.
    if (passed(after) && once.ended.code === 0) {
      byFile.set(file, after);
      onlyAlone.push(before);
    } else alsoAlone.push(file);
  }
  const green = [...byFile.values()].every(passed);
  return {
    results: [...byFile.values()], onlyAlone, alsoAlone, missing: options.files.filter((file) => !file.includes('*') && !byFile.has(file)),
    durationMs: performance.now() - begun, code: green && onlyAlone.length > 0 ? 0 : ended.code, stopped,
  };
};
