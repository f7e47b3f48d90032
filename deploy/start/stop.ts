/**
 * `npm stop`: asks the start of this folder to stop, waits until it has. `--now` ends it at once.
 * Leaves with 0 when nothing runs any more, 1 when it still does, 2 for a wrong option.
 */
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Command } from 'commander';
import { limits } from '../../contracts/limits.ts';
import { startFile } from './lock.ts';
import { isAlive, readMark } from './process-mark.ts';

const root = dirname(dirname(dirname(fileURLToPath(import.meta.url))));

const options = new Command('npm stop --')
  .description('Stops the Troupe that was started here: drains, then ends.')
  .option('--dir <path>', 'folder that holds .troupe', root)
  .option('--now', 'ends it at once, without a drain', false)
  .exitOverride((error) => process.exit(error.exitCode === 0 ? 0 : 2))
  .parse().opts<{ now: boolean; dir: string }>();

/** Milliseconds between two looks, and between the two signals of `--now` (more than main.ts takes for one). */
const lookMs = 50;
const secondSignalMs = 400;
/** Gateway and daemon drain one after the other. */
const waitMs = 2 * (limits.drainMs + limits.childStopMs) + 2 * limits.childStopMs;

const after = (ms: number): Promise<void> => new Promise((resolve) => { setTimeout(resolve, ms); });

const mark = readMark(startFile(join(resolve(options.dir), '.troupe')));
if (mark === undefined || !isAlive(mark)) {
  process.stdout.write('Troupe does not run here.\n');
  process.exit(0);
}
process.stdout.write(`Stopping process ${mark.pid} …\n`);
process.kill(mark.pid, 'SIGTERM');
if (options.now) {
  await after(secondSignalMs);
  if (isAlive(mark)) process.kill(mark.pid, 'SIGTERM');
}
const deadline = performance.now() + waitMs;
while (isAlive(mark) && performance.now() < deadline) await after(lookMs);
if (isAlive(mark)) {
  process.stderr.write(`It still runs after ${waitMs / 1000} s. npm stop -- --now ends it at once.\n`);
  process.exit(1);
}
process.stdout.write('Stopped.\n');
