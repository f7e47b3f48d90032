/**
 * A process of a benchmark: forked from a file of this folder, asked for jobs by name, ended with its parent.
 *
 * Guarantee: `stop` leaves no process; a job that throws rejects here with its message; a process that ends unasked rejects
 * what runs. The names and types of the jobs are those of the file's `serve` call.
 */
import { fork } from 'node:child_process';
import { once } from 'node:events';

/** What a part can be asked for. Input and output must survive JSON. */
export type Jobs = Readonly<Record<string, (input: never) => Promise<unknown>>>;

type InputOf<Job> = Job extends (input: infer Input) => Promise<unknown> ? Input : never;
type OutputOf<Job> = Job extends (input: never) => Promise<infer Output> ? Output : never;

interface Asked {
  readonly id: number;
  readonly job: string;
  readonly input: unknown;
}
type Answered = { readonly id: number; readonly output: unknown } | { readonly id: number; readonly failure: string };

/** In the child: answers jobs until the parent is gone. */
export const serve = (jobs: Jobs): void => {
  process.on('message', (asked: Asked) => {
    const answer = (answered: Answered): void => { process.send?.(answered); };
    const job = jobs[asked.job] as ((input: unknown) => Promise<unknown>) | undefined;
    if (job === undefined) {
      answer({ id: asked.id, failure: `there is no job ${asked.job}` });
      return;
    }
    job(asked.input).then(
      (output) => answer({ id: asked.id, output }),
      (error: unknown) => answer({ id: asked.id, failure: error instanceof Error ? error.stack ?? error.message : String(error) }),
    );
  });
  process.on('disconnect', () => process.exit(0));
};

export interface Part<J extends Jobs> {
  readonly name: string;
  readonly pid: number;
  run<Name extends keyof J & string>(job: Name, input: InputOf<J[Name]>): Promise<OutputOf<J[Name]>>;
  stop(): Promise<void>;
}

export interface PartOptions {
  /** Shown in notes and file names. */
  readonly name: string;
  /** Folder for its CPU profile. */
  readonly profiles?: string | undefined;
  readonly nodeArgs?: readonly string[];
}

/** Node's arguments for a process whose CPU profile is wanted. */
export const profileArgs = (folder: string | undefined, name: string): readonly string[] =>
  (folder === undefined ? [] : ['--cpu-prof', `--cpu-prof-dir=${folder}`, `--cpu-prof-name=${name}-${Date.now()}.cpuprofile`]);

/** Starts a part from a file of this folder (`./x-part.ts`). */
export const startPart = async <J extends Jobs>(file: string, options: PartOptions): Promise<Part<J>> => {
  const child = fork(new URL(file, import.meta.url), [], {
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    execArgv: ['--no-warnings', ...profileArgs(options.profiles, options.name), ...(options.nodeArgs ?? [])],
  });
  const waiting = new Map<number, { readonly resolve: (output: unknown) => void; readonly reject: (error: Error) => void }>();
  let lastId = 0;
  let ended: string | undefined;
  child.on('message', (answered: Answered) => {
    const wait = waiting.get(answered.id);
    waiting.delete(answered.id);
    if ('failure' in answered) wait?.reject(new Error(`${options.name}: ${answered.failure}`));
    else wait?.resolve(answered.output);
  });
  const exited = once(child, 'exit');
  child.once('exit', (code, signal) => {
    ended = `${options.name} ended with ${code ?? signal}`;
    for (const { reject } of waiting.values()) reject(new Error(ended));
    waiting.clear();
  });
  await once(child, 'spawn');
  const { pid } = child;
  if (pid === undefined) throw new Error(`${options.name} has no pid`);
  const run = (job: string, input: unknown): Promise<unknown> => new Promise((resolve, reject) => {
    if (ended !== undefined) {
      reject(new Error(ended));
      return;
    }
    const id = ++lastId;
    waiting.set(id, { resolve, reject });
    child.send({ id, job, input } satisfies Asked);
  });
  return {
    name: options.name, pid,
    // What the child's `serve` call promises: the one place that says so by a cast.
    run: run as Part<J>['run'],
    stop: async () => {
      if (ended !== undefined) return;
      child.disconnect();
      await exited;
    },
  };
};
