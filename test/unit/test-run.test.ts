/**
 * The test run itself (test/run), on small test files in a temporary folder: what it says of each file, what stands last, what is
 * run once more, and that nothing that failed is called green.
 */
import assert from 'node:assert/strict';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import test, { type TestContext } from 'node:test';
import { runAgain, runAgainMax, testFiles } from '../run/files.ts';
import type { FileResult } from '../run/result.ts';
import { runFiles, type RunOptions } from '../run/run.ts';
import { green, summary, summaryLinesMax, type Run } from '../run/summary.ts';

const head = "import assert from 'node:assert/strict';\nimport test, { describe } from 'node:test';\n";
const passes = `${head}test('passes', () => {});\n`;
/** Passes when it is run for the second time. */
const passesSecond = `${head}import { existsSync, writeFileSync } from 'node:fs';
test('in company', (t) => {
  t.diagnostic(\`TROUPE_SEED=\${process.env['TROUPE_SEED'] ?? 4711}\`);
  const again = existsSync(new URL('./ran', import.meta.url));
  writeFileSync(new URL('./ran', import.meta.url), process.env['TROUPE_SEED'] ?? 'none');
  assert.ok(again, 'too much company');
});\n`;

/** A folder with test files; gives how to run them. */
const given = async (t: TestContext, files: Readonly<Record<string, string>>): Promise<{ root: string; run: (more?: Partial<RunOptions>) => ReturnType<typeof runFiles>; printed: () => string }> => {
  const root = await mkdtemp(join(tmpdir(), 'troupe-run-'));
  t.after(() => rm(root, { recursive: true, force: true }));
  for (const [path, text] of Object.entries(files)) {
    await mkdir(dirname(join(root, path)), { recursive: true });
    await writeFile(join(root, path), text);
  }
  let printed = '';
  // A runner that is told it is inside another one's file runs nothing.
  const { NODE_TEST_CONTEXT: _, TROUPE_SEED: __, ...env } = process.env;
  const options = { root, node: process.execPath, files: Object.keys(files), env, print: (text: string) => { printed += text; } };
  return { root, run: (more) => runFiles({ ...options, ...more }), printed: () => printed };
};

test('test run - one line for each file while it runs, and what its tests remarked', async (t) => {
  const { run, printed } = await given(t, { 'test/unit/a.test.ts': `${head}test('a', (t) => t.diagnostic('seen 3 of 4'));\ntest('b', () => console.error('noise'));\n` });
  const ran = await run();
  assert.match(printed(), /^ok {3}test\/unit\/a\.test\.ts {2}2 tests, [\d,]+ ms\n {5}seen 3 of 4\n$/);
  assert.deepEqual([ran.code, green(ran), ran.results[0]?.output], [0, true, ['noise']]);
  assert.match(summary(ran).join('\n'), /^\n1 file, 2 tests, 2 passed, 0 failed, 0 cancelled, 0 skipped, 0 files passed only when run alone, \d+ s$/);
});

test('test run - what failed stands last with its suite, line, error, stack, seed and output; after it only the counts', async (t) => {
  const { run } = await given(t, {
    'test/unit/a.test.ts': passes,
    'test/unit/b.test.ts': `${head}describe('group', () => {
  test('inner [G1]', (t) => { console.log('before'); for (let i = 0; i < 9; i += 1) console.error('same'); t.diagnostic('TROUPE_SEED=77'); assert.equal(1, 2, 'one is two'); });
});\n`,
  });
  const ran = await run();
  const lines = summary(ran);
  assert.deepEqual([ran.code, green(ran)], [1, false]);
  const text = lines.join('\n');
  assert.match(text, /# What failed, and why\ntest\/unit\/b\.test\.ts {2}\(TROUPE_SEED=77\)\n {2}failed: group > inner \[G1\] {2}\(line 4\)\n {6}AssertionError \[ERR_ASSERTION\]: one is two\n/);
  assert.match(text, /at .*b\.test\.ts:4:\d+/);
  assert.match(text, /its output, the last 2 of 10 lines:\n {6}before\n {6}same {2}\(9 times\)/);
  assert.match(lines.slice(-4).join('\n'), /^# Failed\n {2}test\/unit\/b\.test\.ts: group > inner \[G1\]: AssertionError \[ERR_ASSERTION\]: one is two .*\n\n2 files, 2 tests, 1 passed, 1 failed,/);
});

test('test run - a file that does not load, one that ends by itself and one that hangs have failed, and it is said how', async (t) => {
  const { run } = await given(t, {
    'test/unit/ends.test.ts': `${head}test('x', () => {});\nprocess.exit(3);\n`,
    'test/unit/hangs.test.ts': `${head}test('never', () => new Promise(() => { setInterval(() => {}, 1_000); }));\n`,
    'test/unit/throws.test.ts': `throw new TypeError('at load');\n`,
  });
  const ran = await run({ options: ['--test-timeout=10000'] });
  const of = (name: string): FileResult => ran.results.find((result) => result.file === `test/unit/${name}.test.ts`) ?? assert.fail(name);
  assert.equal(green(ran), false);
  assert.notEqual(ran.code, 0);
  assert.ok(of('ends').failures[0]?.error.includes('its process ended with code 3'));
  assert.ok(of('hangs').failures.some((failure) => failure.error.includes('begun and not ended: never')), JSON.stringify(of('hangs')));
  assert.ok(of('throws').output.includes('TypeError: at load'));
});

test('test run - a file that fails in company and passes alone, with its seed, is green and told with its first error', async (t) => {
  const { root, run, printed } = await given(t, { 'test/fault/a.test.ts': passesSecond, 'test/unit/b.test.ts': passes });
  const ran = await run({ again: true });
  assert.deepEqual([ran.code, green(ran), ran.onlyAlone.map((result) => result.file)], [0, true, ['test/fault/a.test.ts']]);
  assert.equal(await readFile(join(root, 'test/fault/ran'), 'utf8'), '4711');
  assert.match(printed(), /FAIL test\/fault\/a\.test\.ts[^]*# once more, alone: test\/fault\/a\.test\.ts\nok {3}test\/fault\/a\.test\.ts/);
  const lines = summary(ran);
  assert.match(lines.join('\n'), /# Passed only when run alone[^\n]*\ntest\/fault\/a\.test\.ts: in company: AssertionError \[ERR_ASSERTION\]: too much company/);
  assert.match(lines.at(-1) ?? '', /2 passed, 0 failed, .* 1 files passed only when run alone/);
});

test('test run - without leave nothing is run again, nor what fails in unit or repo, nor more files than a few', async (t) => {
  const { run, printed } = await given(t, { 'test/fault/a.test.ts': passesSecond, 'test/unit/b.test.ts': `${head}test('fails', () => assert.fail());\n` });
  assert.equal(green(await run({ again: true })), false, 'beside a failed unit test');
  assert.doesNotMatch(printed(), /once more/);
  const asked = await given(t, { 'test/fault/a.test.ts': passesSecond });
  assert.equal(green(await asked.run()), false, 'not asked to');
  assert.doesNotMatch(asked.printed(), /once more/);
  const few = Array.from({ length: runAgainMax }, (_, i) => `test/integration/${i}.test.ts`);
  assert.deepEqual(runAgain(few), few);
  for (const more of ['test/browser/x.test.ts', 'test/unit/x.test.ts', 'test/repo/x.test.ts', 'x.test.ts']) assert.deepEqual(runAgain([...few.slice(more.includes('browser') ? 0 : 1), more]), []);
});

test('test run - a file that fails again alone stays failed', async (t) => {
  const { run } = await given(t, { 'test/fault/a.test.ts': `${head}test('fails', () => assert.fail('always'));\n` });
  const ran = await run({ again: true });
  assert.deepEqual([ran.code, green(ran), ran.alsoAlone], [1, false, ['test/fault/a.test.ts']]);
  assert.match(summary(ran).join('\n'), /test\/fault\/a\.test\.ts: fails: AssertionError \[ERR_ASSERTION\]: always .*\(alone too\)/);
});

test('test run - a file that was to be run and is not there is no green run', async (t) => {
  const { run } = await given(t, { 'test/unit/a.test.ts': passes });
  const ran = await run({ files: ['test/unit/a.test.ts', 'test/unit/gone.test.ts'] });
  assert.equal(green(ran), false);
  assert.ok(summary(ran).includes('  test/unit/gone.test.ts'), summary(ran).join('\n'));
});

test('test run - however much failed, the end is bounded, and names stand before the counts', () => {
  const failed = (file: number, failures: number): FileResult => ({
    file: `test/unit/${file}.test.ts`, tests: failures, passed: 0, failed: failures, cancelled: 0, skipped: 0, todo: 0, durationMs: 1, remarks: [],
    output: Array.from({ length: 60 }, (_, i) => `line ${i}`), outputLines: 900, seed: undefined,
    failures: Array.from({ length: Math.min(20, failures) }, (_, i) => ({ name: `test ${i}`, line: i, error: Array.from({ length: 60 }, (__, n) => `error ${n}`) })),
  });
  for (const [files, failures] of [[1, 1], [1, 20], [5, 1], [40, 1], [150, 30]] as const) {
    const results = Array.from({ length: files }, (_, i) => failed(i, failures));
    const run: Run = { results, onlyAlone: files <= runAgainMax ? results : [], alsoAlone: [], missing: results.map(({ file }) => file), durationMs: 1 };
    const lines = summary(run);
    assert.ok(lines.length <= summaryLinesMax, `${files} × ${failures}: ${lines.length}`);
    assert.ok(lines.includes('# Failed') && lines.some((line) => line === '  test/unit/0.test.ts: test 0: error 0 error 1'));
    assert.match(lines.at(-1) ?? '', /^\d+ files?, /);
  }
});

test('test run - every test file of this repository is run', () => {
  const files = testFiles(join(import.meta.dirname, '..', '..'));
  assert.ok(files.includes('test/unit/test-run.test.ts') && files.length > 100);
  assert.deepEqual([...new Set(files.map((file) => file.split('/')[1]))], ['browser', 'conformance', 'fault', 'integration', 'repo', 'unit']);
});

test('test run - tests that another module defines belong to the file that imports it', async (t) => {
  const shared = `${head}export const suite = (ok) => { test('shared', (t) => { t.diagnostic('said ' + ok); assert.ok(ok); }); };\n`;
  const { root, run, printed } = await given(t, { 'test/unit/a.test.ts': "import { suite } from './shared.mjs';\nsuite(true);\n", 'test/unit/b.test.ts': "import { suite } from './shared.mjs';\nsuite(false);\n" });
  await writeFile(join(root, 'test/unit/shared.mjs'), shared);
  const ran = await run();
  assert.deepEqual(ran.results.map(({ file, failed, passed }) => [file, passed, failed]), [['test/unit/a.test.ts', 1, 0], ['test/unit/b.test.ts', 0, 1]]);
  assert.match(printed(), /^ok {3}test\/unit\/a.*\n {5}said true\nFAIL test\/unit\/b.*\n {5}failed: shared\n {5}said false\n$/);
});
