/**
 * Gets from whatever Node runs this (20 or later, nothing installed) to Node 22 with the packages of the lock file.
 *
 * Guarantee: after `bootstrap()` the installed packages are those of package-lock.json; `runEntry()` runs an entry on a Node
 * that strips types, passes signals on and keeps the exit code. Plain JavaScript without dependencies, because it runs first.
 * It does not decide what is run: run.mjs and troupe.mjs do.
 */
import { spawn } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { constants } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

export const root = dirname(dirname(fileURLToPath(import.meta.url)));

/** The Node that runs this strips types without a flag (22.18 and later). */
const stripsTypes = () => {
  const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
  return major > 22 || (major === 22 && minor >= 18);
};

const readJson = (path) => {
  try {
    return JSON.parse(readFileSync(path, 'utf8'));
  } catch (error) {
    if (error instanceof SyntaxError || error.code === 'ENOENT') return undefined;
    throw error;
  }
};

/**
 * Whether node_modules holds what package-lock.json asks for. npm writes node_modules/.package-lock.json last, so an
 * interrupted install has none. An optional package may be missing (another platform's).
 */
const installed = () => {
  const asked = readJson(join(root, 'package-lock.json'))?.packages ?? {};
  const have = readJson(join(root, 'node_modules', '.package-lock.json'))?.packages;
  if (have === undefined) return false;
  return Object.entries(asked).every(([path, entry]) =>
    path === '' || (have[path] === undefined ? entry.optional === true || entry.devOptional === true : have[path].version === entry.version));
};

/** Exit code of a child process; 128 + n when signal n ended it, as a shell says it. */
const exitCodeOf = (code, signal) => code ?? 128 + (constants.signals[signal] ?? 0);

/**
 * Runs a program on this terminal and gives its exit code. SIGTERM and SIGHUP are passed on; SIGINT too, except at a
 * terminal, which sends it to the whole foreground group itself (passing it on would make one Ctrl-C two).
 */
export const run = (file, args, options = {}) => new Promise((resolve, reject) => {
  const child = spawn(file, args, { cwd: process.cwd(), stdio: 'inherit', ...options });
  const pass = (signal) => {
    if (signal === 'SIGINT' && process.stdin.isTTY) return;
    child.kill(signal);
  };
  const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'];
  for (const signal of signals) process.on(signal, pass);
  const done = () => { for (const signal of signals) process.off(signal, pass); };
  child.once('error', (error) => { done(); reject(error); });
  child.once('exit', (code, signal) => { done(); resolve(exitCodeOf(code, signal)); });
});

/** Runs `npm ci` where needed. Exits the process with npm's code when that fails. */
export const bootstrap = async () => {
  if (installed()) return;
  process.stderr.write('Installing the packages of package-lock.json (npm ci) …\n');
  const npm = process.platform === 'win32' ? 'npm.cmd' : 'npm';
  // npm's own output goes to stderr, so that --json commands keep a clean stdout even on the first run.
  const code = await run(npm, ['ci', '--no-audit', '--no-fund'], { cwd: root, stdio: ['ignore', 2, 2], shell: process.platform === 'win32' });
  if (code !== 0) {
    process.stderr.write(`npm ci failed with code ${code}. Its messages above say why; run it by hand in ${root} to see more.\n`);
    process.exit(code);
  }
};

/** The Node to use: the one that came with the packages, else this one where it is new enough, else undefined. */
export const nodePath = () => {
  const own = join(root, 'node_modules', '.bin', 'node');
  if (existsSync(own)) return own;
  return stripsTypes() ? process.execPath : undefined;
};

/** Leaves with a sentence when no usable Node exists. */
export const requireNode = () => {
  const node = nodePath();
  if (node !== undefined) return node;
  process.stderr.write(
    `Troupe needs Node 22.18 or later to run; this is ${process.versions.node} and npm has no Node package for ${process.platform}-${process.arch}. Install Node 22 and start again.\n`,
  );
  process.exit(1);
};

/** Runs a TypeScript entry of this repository with arguments: in this process where it can, else in a child. */
export const runEntry = async (entry, args) => {
  const path = join(root, entry);
  if (!existsSync(path)) {
    process.stderr.write(`${entry} is not part of this checkout.\n`);
    process.exit(1);
  }
  const node = requireNode();
  if (stripsTypes()) {
    process.argv.splice(1, process.argv.length, path, ...args);
    await import(pathToFileURL(path).href);
    return;
  }
  process.exitCode = await run(node, [path, ...args]);
};
