/**
 * What the scripts of package.json call: `node deploy/run.mjs <start|stop|call|troupe|test|bench> [options]`.
 *
 * Runs on Node 20 or later with nothing installed: installs first (bootstrap.mjs), then runs the command on Node 22 and
 * leaves with its exit code. It knows where commands begin, not what they do.
 */
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { bootstrap, requireNode, root, run, runEntry } from './bootstrap.mjs';

const usage = `Usage: node deploy/run.mjs <command> [options]

  start    start Troupe here (NATS, Postgres, daemon, gateway); start --help says more
  stop     stop the Troupe that was started here
  call     one call of an actor over NATS: call <type> <key> <command> [json]
  troupe   the command line client: troupe chat, troupe status, troupe --help
  test     type check, lint and all tests; with files: only those (npm test -- test/unit/x.test.ts)
  bench    the benchmarks
`;

/** Milliseconds one test file's tests may take each: a hang becomes a failure, never a stuck build. */
const testTimeoutMs = 300_000;
const testFolders = ['unit', 'conformance', 'integration', 'fault', 'browser', 'repo'];

/** Test files under test/<folder>. Listed here, because a pattern that matches nothing would fail the run. */
const testsIn = (folder) => {
  const path = join(root, 'test', folder);
  if (!existsSync(path)) return [];
  return readdirSync(path, { recursive: true, encoding: 'utf8' }).filter((name) => name.endsWith('.test.ts')).sort().map((name) => join('test', folder, name));
};

/** Stages in order; the first that fails ends the run with its code. */
const test = async (args) => {
  const node = requireNode();
  process.chdir(root);
  const options = args.filter((arg) => arg.startsWith('-'));
  const files = args.filter((arg) => !arg.startsWith('-'));
  /** @type {{ name: string, args: string[] }[]} */
  const stages = [];
  if (files.length === 0) {
    stages.push({ name: 'types', args: [join(root, 'node_modules', 'typescript', 'bin', 'tsc'), '--noEmit'] });
    stages.push({ name: 'lint', args: [
      join(root, 'node_modules', 'oxlint', 'bin', 'oxlint'), '--type-aware', '--deny-warnings', 'contracts', 'actors', 'gateway', 'deploy', 'test',
    ] });
  }
  stages.push({ name: 'tests', args: [
    // Two at a time: the machine this is meant for has two cores, and more would only make deadlines tight.
    '--test', '--test-concurrency=2', `--test-timeout=${testTimeoutMs}`, ...options,
    ...(files.length > 0 ? files : testFolders.flatMap(testsIn)),
  ] });
  const path = `${join(root, 'node_modules', '.bin')}:${process.env.PATH ?? ''}`;
  for (const { name, args: stageArgs } of stages) {
    if (stages.length > 1) process.stdout.write(`# ${name}\n`);
    const code = await run(node, stageArgs, { cwd: root, env: { ...process.env, PATH: path } });
    if (code !== 0) {
      process.stderr.write(`${name} failed (exit code ${code}).\n`);
      process.exit(code);
    }
  }
};

const [command, ...args] = process.argv.slice(2);
const commands = {
  start: () => runEntry('deploy/start/main.ts', args),
  stop: () => runEntry('deploy/start/stop.ts', args),
  call: () => runEntry('deploy/start/call.ts', args),
  troupe: () => runEntry('gateway/cli/main.ts', args),
  test: () => test(args),
  bench: () => runEntry('test/bench/main.ts', args),
};
const chosen = Object.hasOwn(commands, command ?? '') ? commands[command] : undefined;
if (chosen === undefined) {
  const asked = command === '--help' || command === '-h';
  (asked ? process.stdout : process.stderr).write(asked || command === undefined ? usage : `There is no command ${command}.\n\n${usage}`);
  process.exit(asked ? 0 : 2);
}
await bootstrap();
await chosen();
