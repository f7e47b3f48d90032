/**
 * What a test run prints: a line for each file, and last of all what failed and why.
 *
 * Guarantee: the end of a run has at most 200 lines however much failed, the names of what failed stand right before the counts
 * (a build machine may keep only the last lines), and nothing comes after the counts.
 */
import { passed, type FileResult } from './result.ts';

/** Lines of the whole end of a run. */
export const summaryLinesMax = 200;
/** Lines of it for errors and output together; shared among the failures. */
const detailLinesMax = 130;
const namesMax = 40;
/** Lines of output that are worth showing beside an error. */
const outputLinesMin = 4;
const outputLinesMax = 20;
const errorLinesMax = 25;

const count = (n: number, what: string): string => `${n.toLocaleString('en')} ${what}${n === 1 ? '' : 's'}`;
const ms = (n: number): string => `${Math.round(n).toLocaleString('en')} ms`;

/** One file of a run, as it ends. */
export const fileLines = (result: FileResult): string[] => [
  `${passed(result) ? 'ok  ' : 'FAIL'} ${result.file}  ${count(result.tests, 'test')}, ${ms(result.durationMs)}`,
  ...result.failures.map((failure) => `     failed: ${failure.name}`),
  ...result.remarks.map((remark) => `     ${remark}`),
];

/** An error in one line. */
const brief = (error: readonly string[]): string => error.slice(0, 2).map((line) => line.trim()).join(' ');
const first = (lines: readonly string[], max: number): string[] =>
  (lines.length <= max ? [...lines] : [...lines.slice(0, Math.max(1, max - 1)), `… ${lines.length - Math.max(1, max - 1)} lines more`]);

/** The failures of one file with errors and output, in at most `max` lines or little more. */
const details = (result: FileResult, max: number): string[] => {
  const each = Math.min(errorLinesMax, Math.max(2, Math.floor((max - 2) / Math.max(1, result.failures.length)) - 1));
  const failures = result.failures.flatMap((failure) => [
    `  failed: ${failure.name}${failure.line === undefined ? '' : `  (line ${failure.line})`}`,
    ...first(failure.error, each).map((line) => `      ${line}`),
  ]);
  const shown = first(failures, Math.max(2, max - 1));
  const left = Math.min(outputLinesMax, max - shown.length - 2, result.output.length);
  const output = left < Math.min(outputLinesMin, result.output.length) || left <= 0 ? [] : [
    `  its output, the last ${left} of ${count(result.outputLines, 'line')}:`, ...result.output.slice(-left).map((line) => `      ${line}`),
  ];
  return [`${result.file}${result.seed === undefined ? '' : `  (TROUPE_SEED=${result.seed})`}`, ...shown, ...output];
};

export interface Run {
  /** The last result of each file. */
  readonly results: readonly FileResult[];
  /** First results of files that failed, were run once more alone and passed. */
  readonly onlyAlone: readonly FileResult[];
  /** Files that failed, were run once more alone and failed again. */
  readonly alsoAlone: readonly string[];
  /** Files that were to be run and of which the runner told nothing. */
  readonly missing: readonly string[];
  readonly durationMs: number;
}

/** A run is green when every file has a result and each passed. */
export const green = (run: Run): boolean => run.missing.length === 0 && run.results.every(passed);

/** The end of a run. */
export const summary = (run: Run): string[] => {
  const failed = run.results.filter((result) => !passed(result));
  const total = (of: (result: FileResult) => number): number => run.results.reduce((sum, result) => sum + of(result), 0);
  const each = Math.max(3, Math.floor(detailLinesMax / Math.max(1, failed.length + run.onlyAlone.length)));
  const lines: string[] = [];
  if (failed.length > 0) {
    lines.push('', '# What failed, and why', ...first(failed.flatMap((result) => details(result, each)), detailLinesMax));
  }
  const alone = run.onlyAlone.flatMap((result) => [`${result.file}: ${result.failures[0]?.name ?? ''}: ${brief(result.failures[0]?.error ?? [])}`, ...details(result, each).slice(1)]);
  if (alone.length > 0) {
    lines.push('', '# Passed only when run alone; if it happens again it is a bug (test/README.md, decision 4)');
    lines.push(...first(alone, Math.max(run.onlyAlone.length * 2, detailLinesMax - lines.length)));
  }
  const names = failed.flatMap((result) => result.failures.map((failure) => `  ${result.file}: ${failure.name}: ${brief(failure.error)}${run.alsoAlone.includes(result.file) ? '  (alone too)' : ''}`.slice(0, 400)));
  if (names.length > 0) lines.push('', '# Failed', ...first(names, namesMax));
  if (run.missing.length > 0) lines.push('', '# Without a result', ...first(run.missing.map((file) => `  ${file}`), 10));
  lines.push('', [
    count(run.results.length, 'file'), count(total((r) => r.tests), 'test'), `${total((r) => r.passed).toLocaleString('en')} passed`, `${total((r) => r.failed)} failed`,
    `${total((r) => r.cancelled)} cancelled`, `${total((r) => r.skipped)} skipped`, `${run.onlyAlone.length} files passed only when run alone`, `${Math.round(run.durationMs / 1_000)} s`,
  ].join(', '));
  return lines;
};
