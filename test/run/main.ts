/**
 * `npm test [-- files or options of node --test]`: type check, lint and all tests; with files only those.
 *
 * Prints a line for each test file, and last what failed with its errors (summary.ts). Exit code 0 when everything passed.
 */
import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { testFiles } from './files.ts';
import { runFiles, runNode } from './run.ts';
import { green, summary } from './summary.ts';

const root = dirname(dirname(dirname(fileURLToPath(import.meta.url))));
const print = (text: string): void => { process.stdout.write(text); };
const inModules = (...path: string[]): string => join(root, 'node_modules', ...path);

// A runner that is told it is inside another one's file runs nothing.
const { NODE_TEST_CONTEXT: _, ...outer } = process.env;
const env = { ...outer, PATH: `${inModules('.bin')}:${process.env['PATH'] ?? ''}` };

// The Node that came with the packages, where there is one for this machine.
const node = existsSync(inModules('.bin', 'node')) ? inModules('.bin', 'node') : process.execPath;

const args = process.argv.slice(2);
const options = args.filter((arg) => arg.startsWith('-'));
const named = args.filter((arg) => !arg.startsWith('-'));

if (named.length === 0) {
  const checks = [
    { name: 'types', args: [inModules('typescript', 'bin', 'tsc'), '--noEmit'] },
    { name: 'lint', args: [inModules('oxlint', 'bin', 'oxlint'), '--type-aware', '--deny-warnings', 'contracts', 'actors', 'gateway', 'deploy', 'test'] },
  ];
  for (const check of checks) {
    print(`# ${check.name}\n`);
    const { code } = await runNode(check.args, { root, node, env, print });
    if (code !== 0) {
      process.stderr.write(`${check.name} failed (exit code ${code}).\n`);
      process.exit(code);
    }
  }
  print('# tests\n');
}

const files = named.length > 0 ? named : testFiles(root);
const run = await runFiles({ root, node, files, options, again: named.length === 0, env, print });
print(`${summary(run).join('\n')}\n`);
if (run.code !== 0 || !green(run)) process.exitCode = run.code === 0 ? 1 : run.code;
