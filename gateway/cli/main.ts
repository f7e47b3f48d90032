/**
 * Entry of the `troupe` command: gives the program its process (streams, environment, signals) and leaves with its exit code. Who reads its
 * output may leave before the end (`troupe org audit | head`): then the command ends too, without a complaint.
 */
import { exitCodes } from './exit.ts';
import { run } from './program.ts';

const leave = (error: NodeJS.ErrnoException): void => {
  if (error.code !== 'EPIPE') throw error;
  process.exit(exitCodes.ok);
};
process.stdout.on('error', leave);
process.stderr.on('error', leave);

process.exitCode = await run(process.argv.slice(2), {
  stdin: process.stdin,
  stdout: process.stdout,
  stderr: process.stderr,
  env: process.env,
  cwd: process.cwd(),
  onInterrupt: (listener) => {
    process.on('SIGINT', listener);
    return () => process.off('SIGINT', listener);
  },
});
