/**
 * A child process under test (Node unless said otherwise): started from source, killed, paused and started again by the test, its output kept.
 *
 * Guarantee: `stop()` leaves no process behind, also a paused one; a process that ends unasked is remembered as such, so that
 * a test can tell a crash from a kill of its own. Waiting is by probe with a deadline, never by a fixed sleep.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';

const keptLines = 500;
const probeEveryMs = 10;
/** Milliseconds: many test files may be starting whole stacks on two cores. */
const readyMs = 90_000;

export interface ProcessOptions {
  readonly name: string;
  /** Program; default this Node. */
  readonly file?: string;
  /** Arguments; for Node the entry (a .ts file) first. */
  readonly args: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  readonly as?: { readonly uid: number; readonly gid: number };
  /** Gets every line of output as it is written; `lines()` keeps the last only. */
  readonly onLine?: (line: string) => void;
  /** One look whether it serves. */
  readonly probe: () => Promise<boolean>;
}

export interface TestProcess {
  readonly name: string;
  /** Pid of the running process; throws when it is down. */
  readonly pid: number;
  readonly running: boolean;
  /** How the last process ended, if it did so without being asked. */
  readonly crashed: string | undefined;
  /** Output of all its lives, newest last, bounded. */
  lines(): readonly string[];
  /** Resolves with the first line, already written or to come, that matches. Rejects after `withinMs`. */
  line(pattern: RegExp, withinMs?: number): Promise<string>;
  /** Spawns without waiting until it serves; resolves with the pid. */
  launch(): Promise<number>;
  /** Spawns and waits until it serves. */
  start(): Promise<void>;
  /** Resolves when the probe gives true. */
  ready(): Promise<void>;
  /** Sends a signal and waits for the end of the process; gives its exit code or signal. */
  kill(signal?: NodeJS.Signals): Promise<number | string>;
  /** SIGKILL (where it still runs), then start. */
  restart(): Promise<void>;
  /** SIGSTOP, SIGCONT. */
  pause(): void;
  resume(): void;
  /** SIGTERM, and SIGKILL if it has not ended after `withinMs`. */
  stop(withinMs?: number): Promise<void>;
}

const tick = (): Promise<void> => new Promise((resolve) => { setTimeout(resolve, probeEveryMs); });

export const testProcess = (options: ProcessOptions): TestProcess => {
  let child: ChildProcess | undefined;
  let asked = false;
  let crashed: string | undefined;
  const output: string[] = [];
  const watchers = new Set<(line: string) => void>();

  const onLine = (line: string): void => {
    output.push(line);
    if (output.length > keptLines) output.shift();
    for (const watch of watchers) watch(line);
    options.onLine?.(line);
  };
  const alive = (): ChildProcess => {
    if (child === undefined) throw new Error(`${options.name} is down`);
    return child;
  };
  const failure = (what: string): Error => new Error(`${options.name} ${what}. Its last lines:\n${output.slice(-20).join('\n')}`);

  const launch = async (): Promise<number> => {
    if (child !== undefined) throw new Error(`${options.name} runs already`);
    asked = false;
    crashed = undefined;
    const started = spawn(options.file ?? process.execPath, [...options.args], {
      ...options.as, stdio: ['ignore', 'pipe', 'pipe'], env: { ...process.env, NODE_OPTIONS: '', ...options.env },
    });
    child = started;
    // The net under a test run that dies before its clean-up: nothing is left running.
    const net = (): void => { started.kill('SIGKILL'); };
    process.once('exit', net);
    for (const stream of [started.stdout, started.stderr]) createInterface({ input: stream }).on('line', onLine);
    started.once('exit', (code, signal) => {
      process.off('exit', net);
      if (!asked) crashed = `ended with ${code ?? signal}`;
      if (child === started) child = undefined;
    });
    await once(started, 'spawn');
    if (started.pid === undefined) throw failure('has no pid');
    return started.pid;
  };

  const ready = async (): Promise<void> => {
    const deadline = performance.now() + readyMs;
    while (!(await options.probe())) {
      if (child === undefined) throw failure(crashed ?? 'was stopped before it was ready');
      if (performance.now() > deadline) throw failure(`is not ready after ${readyMs} ms`);
      await tick();
    }
  };

  const kill = async (signal: NodeJS.Signals = 'SIGKILL'): Promise<number | string> => {
    const victim = alive();
    asked = true;
    const ended = once(victim, 'exit') as Promise<[number | null, string | null]>;
    victim.kill(signal);
    const [code, by] = await ended;
    return code ?? by ?? 'unknown';
  };

  const start = async (): Promise<void> => {
    await launch();
    await ready();
  };

  return {
    name: options.name,
    get pid(): number {
      const { pid } = alive();
      if (pid === undefined) throw new Error(`${options.name} has no pid`);
      return pid;
    },
    get running(): boolean { return child !== undefined; },
    get crashed(): string | undefined { return crashed; },
    lines: () => output,
    line: (pattern, withinMs = readyMs) => {
      const written = output.find((line) => pattern.test(line));
      if (written !== undefined) return Promise.resolve(written);
      return new Promise((resolve, reject) => {
        const timer = setTimeout(() => { watchers.delete(watch); reject(failure(`wrote no line like ${String(pattern)}`)); }, withinMs);
        const watch = (line: string): void => {
          if (!pattern.test(line)) return;
          clearTimeout(timer);
          watchers.delete(watch);
          resolve(line);
        };
        watchers.add(watch);
      });
    },
    launch, start, ready, kill,
    restart: async () => {
      if (child !== undefined) await kill('SIGKILL');
      await start();
    },
    pause: () => { alive().kill('SIGSTOP'); },
    resume: () => { alive().kill('SIGCONT'); },
    stop: async (withinMs = 10_000) => {
      const victim = child;
      if (victim === undefined) return;
      const insist = setTimeout(() => victim.kill('SIGKILL'), withinMs);
      // A stopped process takes SIGTERM only after SIGCONT.
      victim.kill('SIGCONT');
      await kill('SIGTERM');
      clearTimeout(insist);
    },
  };
};
