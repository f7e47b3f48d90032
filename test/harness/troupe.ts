/** Runs the `troupe` command as a process against a fake edge, with a dev.json of its own in a temporary folder. */
import { spawn, type ChildProcessByStdio } from 'node:child_process';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Readable, Writable } from 'node:stream';
import type { FakeEdge } from './fake-edge.ts';

export const troupeEntry = fileURLToPath(new URL('../../gateway/cli/main.ts', import.meta.url));

export interface Home {
  readonly folder: string;
  readonly adminSocket: string;
  remove(): Promise<void>;
}

/** A folder with `.troupe/dev.json` for the edge. */
export const troupeHome = async (edge: FakeEdge, token = edge.token): Promise<Home> => {
  const folder = await mkdtemp(join(tmpdir(), 'troupe-cli-'));
  const adminSocket = join(folder, 'admin.sock');
  await mkdir(join(folder, '.troupe'));
  await writeFile(join(folder, '.troupe', 'ca.pem'), edge.caPem);
  await writeFile(join(folder, '.troupe', 'dev.json'), JSON.stringify({
    baseUrl: edge.url, gatewayUrl: edge.url, deploymentUrl: edge.url, natsUrl: 'nats://127.0.0.1:1', caPath: join(folder, '.troupe', 'ca.pem'),
    adminSocket, user: { id: edge.userId, email: 'dev@example.com', accessToken: 'none', gatewayToken: token }, org: { id: 'o', slug: 'o' },
  }), { mode: 0o600 });
  return { folder, adminSocket, remove: () => rm(folder, { recursive: true, force: true }) };
};

export interface Ran {
  readonly code: number | null;
  readonly out: string;
  readonly err: string;
}

/** A running command whose output can be awaited. */
export class Troupe {
  readonly #child: ChildProcessByStdio<Writable, Readable, Readable>;
  #out = '';
  #err = '';
  #wake: (() => void)[] = [];
  #code: number | null | undefined;
  readonly ended: Promise<Ran>;

  constructor(args: readonly string[], cwd: string, env: Readonly<Record<string, string>> = {}) {
    this.#child = spawn(process.execPath, [troupeEntry, ...args], { cwd, env: { PATH: process.env['PATH'] ?? '', ...env }, stdio: ['pipe', 'pipe', 'pipe'] });
    this.#child.stdout.setEncoding('utf8').on('data', (text: string) => { this.#out += text; this.#notify(); });
    this.#child.stderr.setEncoding('utf8').on('data', (text: string) => { this.#err += text; this.#notify(); });
    // Writing to a command that has ended is the test's affair, not a crash of the test process.
    this.#child.stdin.on('error', () => undefined);
    const { promise, resolve } = Promise.withResolvers<Ran>();
    this.ended = promise;
    this.#child.on('close', (code) => {
      this.#code = code;
      this.#notify();
      resolve({ code, out: this.#out, err: this.#err });
    });
  }

  get out(): string { return this.#out; }
  get err(): string { return this.#err; }
  #notify(): void {
    for (const wake of this.#wake.splice(0)) wake();
  }
  type(text: string): void { this.#child.stdin.write(text); }
  endInput(): void { this.#child.stdin.end(); }
  interrupt(): void { this.#child.kill('SIGINT'); }
  kill(): void { this.#child.kill('SIGKILL'); }

  /** Resolves when the output holds `text`; fails when the command ends first. */
  async saw(text: string, where: 'out' | 'err' = 'out'): Promise<void> {
    while (!(where === 'out' ? this.#out : this.#err).includes(text)) {
      if (this.#code !== undefined) throw new Error(`ended with ${this.#code} before it wrote ${JSON.stringify(text)}\nout: ${this.#out}\nerr: ${this.#err}`);
      await new Promise<void>((resolve) => { this.#wake.push(resolve); });
    }
  }
}

export const troupe = async (args: readonly string[], cwd: string, input?: string, env?: Readonly<Record<string, string>>): Promise<Ran> => {
  const command = new Troupe(args, cwd, env);
  if (input !== undefined) command.type(input);
  command.endInput();
  return command.ended;
};
