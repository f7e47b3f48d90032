/**
 * What became of each test file, told from the events of Node's test runner.
 *
 * Guarantee: a file that ended in any way (tests that fail, a crash while it loads, an exit code, a deadline) has one result, and
 * what is kept of its output, its remarks and each error is bounded. Order of events: those of a file come together and in the
 * order of its tests, except `test:complete`, which comes when it happens.
 */
import { relative } from 'node:path';
import type { TestEvent } from 'node:test/reporters';
import { inspect, stripVTControlCharacters } from 'node:util';
import { z } from 'zod';

/** Lines kept of one file's output, the newest; of its remarks (diagnostics), the first; and of one error. */
const outputLinesMax = 60;
const remarksMax = 12;
const errorLinesMax = 60;
/** Characters of a line that are kept. */
const lineMax = 300;
/** Failures of one file that are kept; all are counted. */
const failuresMax = 20;
/** Unfinished tests that are named when a file is ended from outside. */
const runningMax = 5;

const failure = z.object({
  /** Names from the outermost suite inwards, joined by ` > `. */
  name: z.string(),
  /** Line in the file where the test begins. */
  line: z.int().optional(),
  /** The error with its stack. */
  error: z.array(z.string()),
});
export type Failure = z.infer<typeof failure>;

export const fileResult = z.object({
  /** From the folder the runner was started in. */
  file: z.string(),
  tests: z.int(), passed: z.int(), failed: z.int(), cancelled: z.int(), skipped: z.int(), todo: z.int(),
  /** Milliseconds from the start of the file's process to its end. */
  durationMs: z.number(),
  /** `t.diagnostic` and what was written to standard output, in order. */
  remarks: z.array(z.string()),
  /** The end of what was written to standard output and standard error; equal lines in a row as one. */
  output: z.array(z.string()),
  /** Lines written in all. */
  outputLines: z.int(),
  /** The seed of the first failed test, if it printed one, else the file's first. */
  seed: z.string().optional(),
  failures: z.array(failure),
});
/** One file of one run. It passed when `failed` and `cancelled` are 0. */
export type FileResult = z.infer<typeof fileResult>;

export const passed = (result: FileResult): boolean => result.failed === 0 && result.cancelled === 0;

const cut = (text: string): string => {
  const plain = stripVTControlCharacters(text).trimEnd();
  return plain.length > lineMax ? `${plain.slice(0, lineMax)} …` : plain;
};

/** The error as a person reads it: what the test threw, without the runner's own wrapper and the runner's own stack lines. */
const errorLines = (error: unknown): string[] => {
  const thrown = error instanceof Error && error.cause !== undefined ? error.cause : error;
  const lines = (typeof thrown === 'string' ? thrown : inspect(thrown, { depth: 4, maxArrayLength: 20, maxStringLength: 4_000, breakLength: 150 })).split('\n')
    .filter((line) => !/^\s+at .*node:internal\//.test(line)).map(cut).filter((line) => line !== '');
  return lines.length > errorLinesMax ? [...lines.slice(0, errorLinesMax), `… ${lines.length - errorLinesMax} lines more`] : lines;
};

/** How a file's process ended, where the runner says so. */
const exitOf = (error: unknown): string[] => {
  if (!(error instanceof Error)) return [];
  const { exitCode, signal } = error as Error & { readonly exitCode?: number | null; readonly signal?: string | null };
  if (typeof signal === 'string') return [`its process was ended by ${signal}`];
  return typeof exitCode === 'number' ? [`its process ended with code ${exitCode}`] : [];
};

const seedPattern = /\b(?:TROUPE_SEED=|[Ss]eed[ =])(\d+)/;

interface Open {
  readonly file: string;
  readonly remarks: string[];
  readonly output: { text: string; times: number }[];
  outputLines: number;
  readonly failures: Failure[];
  failedCount: number;
  /** Tests that have begun and not ended. */
  readonly running: Set<string>;
  readonly suites: string[];
  /** A test has failed and the next has not begun: what is remarked now is its own. */
  afterFailure: boolean;
  seed: string | undefined;
  seedOfFailure: string | undefined;
  counts: { tests: number; passed: number; cancelled: number; skipped: number; todo: number } | undefined;
  /** Of the file as a whole. */
  end: { readonly durationMs: number; readonly error: unknown } | undefined;
}

/** What the runner calls the reason of a failure. */
const failureTypeOf = (error: unknown): string | undefined =>
  (error instanceof Error && 'failureType' in error && typeof error.failureType === 'string' ? error.failureType : undefined);

/** Takes the runner's events, gives a file's result when it has ended. `cwd`: the folder the runner was started in. */
export class Results {
  readonly #open = new Map<string, Open>();
  readonly #cwd: string;

  constructor(cwd: string) {
    this.#cwd = cwd;
  }

  /** The result of the file that ends with this event. */
  take(event: TestEvent): FileResult | undefined {
    switch (event.type) {
      case 'test:stdout':
      case 'test:stderr': {
        const open = this.#of(event.data.file);
        if (open !== undefined) this.#write(open, event.data.message, event.type === 'test:stdout');
        return undefined;
      }
      case 'test:diagnostic': {
        const open = this.#told(event.data.file);
        if (open !== undefined) this.#remark(open, event.data.message);
        return undefined;
      }
      case 'test:start': {
        const open = this.#told(event.data.file);
        if (open === undefined) return undefined;
        open.suites.length = event.data.nesting;
        open.suites[event.data.nesting] = event.data.name;
        open.afterFailure = false;
        return undefined;
      }
      case 'test:enqueue':
        // The runner's own entry for a file of the run.
        if (event.data.nesting === 0 && event.data.file !== undefined && relative(this.#cwd, event.data.file) === event.data.name) this.#begin(event.data.name);
        return undefined;
      case 'test:dequeue':
        if (event.data.nesting > 0 || event.data.name !== this.#of(event.data.file)?.file) this.#of(event.data.file)?.running.add(event.data.name);
        return undefined;
      case 'test:complete': {
        const open = this.#of(event.data.file);
        open?.running.delete(event.data.name);
        if (open === undefined || event.data.nesting !== 0 || event.data.name !== open.file) return undefined;
        const { duration_ms: durationMs, error } = event.data.details;
        open.end = { durationMs, error };
        return open.counts === undefined ? undefined : this.#close(open);
      }
      case 'test:fail': {
        const open = this.#told(event.data.file);
        if (open === undefined) return undefined;
        // The file itself: said by its end; it has no summary if it did not get so far.
        if (event.data.nesting === 0 && event.data.name === open.file) return open.end === undefined ? undefined : this.#close(open);
        this.#fail(open, event.data.name, event.data.nesting, event.data.line, event.data.details.error);
        return undefined;
      }
      case 'test:summary': {
        const open = this.#of(event.data.file);
        if (open === undefined) return undefined;
        open.counts = event.data.counts;
        return open.end === undefined ? undefined : this.#close(open);
      }
      default:
        return undefined;
    }
  }

  /** Results of files that have not ended: the run was broken off. */
  *rest(): Generator<FileResult> {
    for (const open of this.#open.values()) {
      open.end ??= { durationMs: 0, error: new Error('the run ended before this file did') };
      yield this.#close(open);
    }
  }

  #of(path: string | undefined): Open | undefined {
    return path === undefined ? undefined : this.#open.get(relative(this.#cwd, path));
  }

  /** The file an event in order is about. A test that another module defines names that module: it belongs to the file whose turn it is. */
  #told(path: string | undefined): Open | undefined {
    if (path === undefined) return undefined;
    return this.#of(path) ?? this.#open.values().next().value;
  }

  #begin(file: string): void {
    this.#open.set(file, {
      file, remarks: [], output: [], outputLines: 0, failures: [], failedCount: 0, running: new Set(), suites: [], afterFailure: false,
      seed: undefined, seedOfFailure: undefined, counts: undefined, end: undefined,
    });
  }

  #write(open: Open, text: string, standard: boolean): void {
    for (const line of text.split('\n').map(cut).filter((part) => part !== '')) {
      open.outputLines += 1;
      const last = open.output.at(-1);
      if (last?.text === line) last.times += 1;
      else open.output.push({ text: line, times: 1 });
      if (open.output.length > outputLinesMax) open.output.shift();
      if (standard) this.#remark(open, line);
    }
  }

  #remark(open: Open, text: string): void {
    const seed = seedPattern.exec(text)?.[1];
    open.seed ??= seed;
    if (open.afterFailure) open.seedOfFailure ??= seed;
    if (open.remarks.length < remarksMax) open.remarks.push(...text.split('\n').slice(0, remarksMax - open.remarks.length).map(cut));
  }

  #fail(open: Open, name: string, nesting: number, line: number | undefined, error: Error): void {
    open.afterFailure = true;
    // A suite fails with its tests: they say why.
    if (failureTypeOf(error) === 'subtestsFailed') return;
    open.failedCount += 1;
    if (open.failures.length >= failuresMax) return;
    open.failures.push({ name: [...open.suites.slice(0, nesting), name].join(' > '), ...(line === undefined ? {} : { line }), error: errorLines(error) });
  }

  #close(open: Open): FileResult {
    this.#open.delete(open.file);
    const { end } = open;
    // Not because of a test: the file could not be loaded, ended by itself, or took too long.
    if (end?.error !== undefined && (failureTypeOf(end.error) !== 'subtestsFailed' || open.failedCount === 0)) {
      open.failedCount += 1;
      const begun = [...open.running].slice(0, runningMax).map((name) => cut(`begun and not ended: ${name}`));
      open.failures.push({ name: 'the file as a whole', error: [...errorLines(end.error), ...exitOf(end.error), ...begun] });
    }
    const counts = open.counts ?? { tests: 0, passed: 0, cancelled: 0, skipped: 0, todo: 0 };
    return {
      file: open.file, tests: counts.tests, passed: counts.passed, failed: Math.max(0, open.failedCount - counts.cancelled), cancelled: counts.cancelled,
      skipped: counts.skipped, todo: counts.todo, durationMs: end?.durationMs ?? 0, remarks: open.remarks,
      output: open.output.map(({ text, times }) => (times === 1 ? text : `${text}  (${times} times)`)), outputLines: open.outputLines,
      seed: open.seedOfFailure ?? open.seed, failures: open.failures,
    };
  }
}
