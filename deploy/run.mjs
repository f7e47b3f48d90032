/**
 * What the scripts of package.json call: `node deploy/run.mjs <start|stop|call|troupe|test|bench> [options]`.
 *
 * Runs on Node 20 or later with nothing installed: installs first (bootstrap.mjs), then runs the command on Node 22 and
 * leaves with its exit code. It knows where commands begin, not what they do.
 */
import { bootstrap, runEntry } from './bootstrap.mjs';

const usage = `Usage: node deploy/run.mjs <command> [options]

  start    start Troupe here (NATS, Postgres, daemon, gateway); start --help says more
  stop     stop the Troupe that was started here
  call     one call of an actor over NATS: call <type> <key> <command> [json]
  troupe   the command line client: troupe chat, troupe status, troupe --help
  test     type check, lint and all tests; with files: only those (npm test -- test/unit/x.test.ts)
  bench    the benchmarks
`;

const [command, ...args] = process.argv.slice(2);
const commands = {
  start: () => runEntry('deploy/start/main.ts', args),
  stop: () => runEntry('deploy/start/stop.ts', args),
  call: () => runEntry('deploy/start/call.ts', args),
  troupe: () => runEntry('gateway/cli/main.ts', args),
  test: () => runEntry('test/run/main.ts', args),
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
