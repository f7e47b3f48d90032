/**
 * `npm start`: a whole Troupe on this machine, kept running until it is told to stop.
 *
 * The first Ctrl-C (or SIGTERM, or `npm stop`) drains; a second one ends everything at once, which loses nothing either,
 * because the journal is the truth. Leaves with 0 after a drain, 1 when the start failed, 2 for a wrong option, 3 when Troupe
 * runs here already, 130 after the second Ctrl-C.
 */
import { dirname, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Command, InvalidArgumentError } from 'commander';
import type { Child } from './child.ts';
import { openFolder } from './folder.ts';
import { takeLock } from './lock.ts';
import { createSay } from './say.ts';
import { defaultPort, startStack, type Stack, type StackOptions } from './stack.ts';

/** Milliseconds within which signals count as one: at a terminal, npm passes on the Ctrl-C that the group got already. */
const sameSignalMs = 300;

const portOption = (text: string): number => {
  const port = Number(text);
  if (!Number.isInteger(port) || port < 1 || port > 65_535) throw new InvalidArgumentError('A port is 1 to 65535.');
  return port;
};

interface ModelOption { readonly provider: 'openai' | 'anthropic'; readonly model: string }
const modelOption = (text: string, before: readonly ModelOption[]): readonly ModelOption[] => {
  const [, provider, model] = /^(openai|anthropic):(.+)$/.exec(text) ?? [];
  if (model === undefined || (provider !== 'openai' && provider !== 'anthropic')) {
    throw new InvalidArgumentError('A model is given as openai:<model> or anthropic:<model>.');
  }
  return [...before, { provider, model }];
};

const root = dirname(dirname(dirname(fileURLToPath(import.meta.url))));

const command = new Command('npm start --')
  .description('Starts Troupe here: NATS, Postgres, daemon and gateway, with their data in .troupe.')
  .option('--port <port>', 'port of the gateway; the next free one where it is taken', portOption, defaultPort)
  .option('--synced', 'NATS syncs to disk before it acknowledges: survives a power cut, slower', false)
  .option('--model <provider:model>', 'a real model besides the mock, the first one given is the default; its key is read from OPENAI_API_KEY or ANTHROPIC_API_KEY', modelOption, [])
  .option('--dir <path>', 'folder that holds .troupe', root)
  .option('--json', 'one JSON object a line: progress, warning, ready, failed', false)
  .addHelpText('after', `
Environment: NATS_URL and DATABASE_URL replace the embedded servers, NATS_SERVER names another nats-server binary,
OPENAI_BASE_URL another OpenAI-compatible service. Stop with Ctrl-C or npm stop. Exit codes: 0 stopped, 1 start failed,
2 wrong option, 3 runs already, 130 stopped by a second Ctrl-C.`)
  .exitOverride((error) => process.exit(error.exitCode === 0 ? 0 : 2));

const options = command.parse().opts<{ port: number; synced: boolean; model: readonly ModelOption[]; dir: string; json: boolean }>();
const say = createSay(options.json, (line) => process.stdout.write(`${line}\n`), (line) => process.stderr.write(`${line}\n`));
const given = (name: string): string | undefined => process.env[name] || undefined;

const models = options.model.map((choice) => {
  const variable = choice.provider === 'openai' ? 'OPENAI_API_KEY' : 'ANTHROPIC_API_KEY';
  const apiKey = given(variable);
  if (apiKey === undefined) {
    say.fail(`${choice.provider}:${choice.model} needs its key in ${variable}.`);
    process.exit(2);
  }
  const baseUrl = given(choice.provider === 'openai' ? 'OPENAI_BASE_URL' : 'ANTHROPIC_BASE_URL');
  return { ...choice, apiKey, ...(baseUrl === undefined ? {} : { baseUrl }) };
});

const readyText = (stack: Stack, devFilePath: string, seconds: string): string => `
Troupe is ready after ${seconds} s.

  Gateway     ${stack.baseUrl}   (CA: ${stack.caPath})
  Deployments ${stack.deploymentUrl}
  NATS        ${stack.natsUrl}   (${stack.durability})
  Metrics     ${stack.opsUrl}/metrics
  Mail        ${stack.mailUrl}   (kept here in place of being sent; also printed)
  Models      ${stack.models.join(', ')}
  Identity    ${devFilePath}

Things to try:
  1. Chat here:              npm run -s troupe -- chat
  2. Chat in a browser:      ${stack.baseUrl}/#token=${stack.token()}
  3. Sign up as yourself:    ${stack.baseUrl}/signin   (any address; its code appears here)
  4. Call an actor (NATS):   node deploy/run.mjs call session hello create '{"user_id":"${stack.userId}","project_id":"tour"}'

Kill any process and watch it heal: ${Object.entries(stack.pids()).map(([name, pid]) => `${name} ${pid}`).join(', ')}
Ctrl-C stops.
`;

const began = performance.now();
const folder = openFolder(resolve(options.dir));
const lock = takeLock(folder);
if (!lock.held) {
  say.fail(`Troupe runs here already (${lock.by === undefined ? 'it is just starting' : `process ${lock.by.pid}`}). Stop it with npm stop; its addresses are in ${folder.devFile}.`);
  process.exit(3);
}

const children: Child[] = [];
let stack: Stack | undefined;
let stopping: { readonly at: number } | undefined;

const stop = async (running: Stack): Promise<void> => {
  await running.stop();
  lock.release();
  say.progress('Stopped. npm start continues where this left off.');
  process.exit(0);
};

const onSignal = (): void => {
  const now = performance.now();
  if (stopping !== undefined) {
    if (now - stopping.at < sameSignalMs) return;
    say.warn('Stopped at once.');
    for (const child of children) child.kill();
    lock.release();
    process.exit(130);
  }
  stopping = { at: now };
  say.progress('Stopping; once more stops at once.');
  // While it still starts, the stop follows when the start is done.
  if (stack !== undefined) void stop(stack);
};
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, onSignal);

const stackOptions: StackOptions = {
  root, folder, say, children, port: options.port, synced: options.synced, models, searchPath: process.env['PATH'] ?? '',
  ...(given('NATS_URL') === undefined ? {} : { natsUrl: given('NATS_URL') as string }),
  ...(given('NATS_SERVER') === undefined ? {} : { natsServer: given('NATS_SERVER') as string }),
  ...(given('DATABASE_URL') === undefined ? {} : { databaseUrl: given('DATABASE_URL') as string }),
};
try {
  stack = await startStack(stackOptions);
  const seconds = ((performance.now() - began) / 1000).toFixed(1);
  say.ready(readyText(stack, folder.devFile, seconds), {
    baseUrl: stack.baseUrl, deploymentUrl: stack.deploymentUrl, natsUrl: stack.natsUrl, opsUrl: stack.opsUrl, mailUrl: stack.mailUrl, caPath: stack.caPath, devFile: folder.devFile,
    durability: stack.durability, models: stack.models, pids: stack.pids(), seconds: Number(seconds),
  });
  if (stopping !== undefined) await stop(stack);
} catch (error) {
  lock.release();
  say.fail(`Troupe could not start: ${error instanceof Error ? error.message : String(error)}`);
  process.exit(1);
}
