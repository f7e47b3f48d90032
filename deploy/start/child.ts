/**
 * One supervised process: started, watched, started again when it dies, stopped in order.
 *
 * Guarantees:
 * K1  At most one process per child lives at a time; it is in a process group of its own, so a terminal's Ctrl-C reaches
 *     this program only and the order of stopping is ours.
 * K2  A process that dies unasked is started again after a wait that doubles up to a bound, and a line says so. During the
 *     first start that is tried `firstTriesMax` times, then `start` fails with the process's last lines.
 * K3  Its pid file lives as long as it does, so that a later start can end what a killed one left behind.
 * It gives no secret to a process except through files: the environment is made of a short list of harmless names.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { limits } from '../../contracts/limits.ts';
import { writePrivate } from './folder.ts';
import { LogFile } from './log-file.ts';
import { isAlive, markOf, readMark } from './process-mark.ts';
import type { Say } from './say.ts';

const firstTriesMax = 3;
const probeEveryMs = 25;
const passedOn = ['PATH', 'HOME', 'USER', 'LOGNAME', 'TMPDIR', 'TZ', 'LANG', 'SSL_CERT_FILE', 'SSL_CERT_DIR', 'NODE_EXTRA_CA_CERTS',
  'JWT_ACCESS_EXPIRY_MS', 'SELF_SERVICE_CHECKOUT_ENABLED'];

export interface ChildSpec {
  readonly name: string;
  readonly file: string;
  /** Never secrets: every user of the machine can read them. */
  readonly args: readonly string[];
  readonly cwd?: string;
  /** Run as another user (a root start runs Postgres so). */
  readonly as?: { readonly uid: number; readonly gid: number };
  /** Asks the process to finish and end. */
  readonly stopSignal: 'SIGTERM' | 'SIGINT';
  /** Milliseconds it has for that; then SIGKILL. */
  readonly stopMs: number;
  /** One look whether it serves; called until it gives true. */
  readonly probe: () => Promise<boolean>;
}

type Life =
  | { readonly kind: 'idle' }
  | { readonly kind: 'running'; readonly process: ChildProcess; readonly since: number; readonly ended: Promise<void> }
  | { readonly kind: 'waiting'; readonly timer: NodeJS.Timeout }
  | { readonly kind: 'stopped' };

const childEnvironment = (): NodeJS.ProcessEnv => {
  const environment: NodeJS.ProcessEnv = {};
  for (const name of passedOn) if (process.env[name] !== undefined) environment[name] = process.env[name];
  return environment;
};

const after = (ms: number): Promise<void> => new Promise((resolve) => { setTimeout(resolve, ms); });

export class Child {
  readonly spec: ChildSpec;
  readonly #say: Say;
  readonly #pidFile: string;
  readonly #log: LogFile;
  #life: Life = { kind: 'idle' };
  #tries = 0;
  #waitMs: number = limits.childRestartBaseMs;
  #everReady = false;
  #failed: ((error: Error) => void) | undefined;

  constructor(spec: ChildSpec, folders: { readonly log: string; readonly run: string }, say: Say) {
    this.spec = spec;
    this.#say = say;
    this.#pidFile = join(folders.run, `${spec.name}.pid`);
    this.#log = new LogFile(join(folders.log, `${spec.name}.log`));
  }

  get pid(): number | undefined {
    return this.#life.kind === 'running' ? this.#life.process.pid : undefined;
  }

  /** Resolves when the process serves. Throws a sentence with its last lines when it cannot be brought to. */
  async start(): Promise<void> {
    const failed = new Promise<never>((_, reject) => { this.#failed = reject; });
    this.#spawn();
    await Promise.race([this.#untilReady(), failed]);
    this.#everReady = true;
    this.#failed = undefined;
  }

  /** Asks, waits, insists. Resolves when the process is gone. */
  async stop(): Promise<void> {
    const life = this.#life;
    this.#life = { kind: 'stopped' };
    if (life.kind === 'waiting') clearTimeout(life.timer);
    if (life.kind === 'running') {
      life.process.kill(this.spec.stopSignal);
      const insist = setTimeout(() => {
        this.#say.warn(`${this.spec.name} has not ended after ${this.spec.stopMs / 1000} s; it is killed.`);
        life.process.kill('SIGKILL');
      }, this.spec.stopMs);
      await life.ended;
      clearTimeout(insist);
    }
    this.#log.close();
  }

  /** Ends the process at once. */
  kill(): void {
    const life = this.#life;
    this.#life = { kind: 'stopped' };
    if (life.kind === 'waiting') clearTimeout(life.timer);
    if (life.kind === 'running') life.process.kill('SIGKILL');
  }

  #spawn(): void {
    const since = performance.now();
    const child = spawn(this.spec.file, [...this.spec.args], {
      detached: true, stdio: ['ignore', 'pipe', 'pipe'], env: childEnvironment(),
      ...(this.spec.cwd === undefined ? {} : { cwd: this.spec.cwd }), ...this.spec.as,
    });
    child.stdout.on('data', (chunk: Buffer) => this.#log.write(chunk));
    child.stderr.on('data', (chunk: Buffer) => this.#log.write(chunk));
    const ended = new Promise<void>((resolve) => {
      // `close`, not `exit`: the last lines are in the log by then. `error` = it could not be started at all.
      child.once('error', (error) => { this.#log.write(Buffer.from(`${error.message}\n`)); resolve(); });
      child.once('close', () => resolve());
    });
    const mark = child.pid === undefined ? undefined : markOf(child.pid);
    if (mark !== undefined) writePrivate(this.#pidFile, JSON.stringify(mark));
    this.#life = { kind: 'running', process: child, since, ended };
    void ended.then(() => this.#onEnd(child, since));
  }

  #onEnd(child: ChildProcess, since: number): void {
    rmSync(this.#pidFile, { force: true });
    if (this.#life.kind !== 'running' || this.#life.process !== child) return;
    const how = child.signalCode ?? `code ${child.exitCode ?? 'unknown'}`;
    if (!this.#everReady && ++this.#tries >= firstTriesMax) {
      this.#life = { kind: 'idle' };
      this.#failed?.(new Error(`${this.spec.name} does not start (${how}). Its last lines, from ${this.#log.path}:\n${this.#indented()}`));
      return;
    }
    if (performance.now() - since > limits.childSteadyMs) this.#waitMs = limits.childRestartBaseMs;
    const waitMs = this.#waitMs;
    this.#waitMs = Math.min(waitMs * 2, limits.childRestartMaxMs);
    this.#say.warn(`${this.spec.name} ended (${how}); it is started again in ${waitMs / 1000} s.`);
    this.#life = { kind: 'waiting', timer: setTimeout(() => this.#again(), waitMs) };
  }

  #again(): void {
    this.#spawn();
    if (!this.#everReady) return;
    const began = performance.now();
    this.#untilReady().then(
      () => this.#say.progress(`${this.spec.name} serves again after ${((performance.now() - began) / 1000).toFixed(1)} s.`),
      (error: unknown) => this.#say.warn(error instanceof Error ? error.message : String(error)),
    );
  }

  /** Probes the present process and its successors until one serves, the child is stopped, or the time is over. */
  async #untilReady(): Promise<void> {
    const deadline = performance.now() + limits.startReadyMs;
    while (performance.now() < deadline) {
      if (this.#life.kind === 'stopped' || this.#life.kind === 'idle') return;
      if (this.#life.kind === 'running' && await this.spec.probe()) return;
      await after(probeEveryMs);
    }
    throw new Error(`${this.spec.name} is not ready after ${limits.startReadyMs / 1000} s. Its last lines, from ${this.#log.path}:\n${this.#indented()}`);
  }

  #indented(): string {
    return this.#log.tail().map((line) => `    ${line}`).join('\n');
  }
}

/** Ends processes that a start which was itself killed has left. Gives their names. */
export const endLeftovers = async (runFolder: string): Promise<readonly string[]> => {
  const ended: string[] = [];
  for (const entry of readdirSync(runFolder)) {
    if (!entry.endsWith('.pid') || entry === 'start.pid') continue;
    const file = join(runFolder, entry);
    const mark = readMark(file);
    if (mark !== undefined && isAlive(mark)) {
      ended.push(entry.slice(0, -'.pid'.length));
      process.kill(mark.pid, 'SIGTERM');
      const deadline = performance.now() + limits.childStopMs;
      while (isAlive(mark) && performance.now() < deadline) await after(probeEveryMs);
      if (isAlive(mark)) process.kill(mark.pid, 'SIGKILL');
      while (isAlive(mark)) await after(probeEveryMs);
    }
    rmSync(file, { force: true });
  }
  return ended;
};
