/**
 * `npm run bench [-- name…] [--runs 5] [--json]`: every figure beside its floor, measured in the same run.
 *
 * It starts what it needs (nats-server, daemon, gateway, load clients), ends all of it, and asserts nothing: the exit code
 * is 0 when everything could be measured, 1 when something failed, 2 for wrong arguments.
 */
import { mkdirSync } from 'node:fs';
import { resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { activation } from './activation.ts';
import { command, local, remote } from './actors.ts';
import { allowanceAsks } from './allowance.ts';
import { chat } from './chat.ts';
import { deploymentServices } from './deployments.ts';
import type { Benchmark, Row, Settings } from './figure.ts';
import { knowledgeSearch } from './knowledge.ts';
import { link } from './link.ts';
import { machineLine } from './machine.ts';
import { actorMemory, socketMemory } from './memory.ts';
import { events, fanout, replay } from './streams.ts';
import { jsonText, tableText } from './table.ts';

/** In the order they run. */
const benchmarks: ReadonlyMap<string, { readonly about: string; readonly run: Benchmark }> = new Map([
  ['local', { about: 'an ask on the same host', run: local }],
  ['remote', { about: 'an ask of another host, 1, 64 and 256 actors', run: remote }],
  ['command', { about: 'a journaled command, 1, 64 and 256 actors', run: command }],
  ['allowance', { about: 'requests under a limit, 1 and 100 callers, against an ask for each', run: allowanceAsks }],
  ['chat', { about: 'streamed completions of public chat, 1 and 50 at once, metering on', run: chat }],
  ['deployments', { about: 'a deployment\'s journal, blobs and chat', run: deploymentServices }],
  ['knowledge', { about: 'search in 10,000 notes, its import, restart and memory', run: knowledgeSearch }],
  ['link', { about: 'calls over the link', run: link }],
  ['events', { about: 'session events from emit to a TLS WebSocket client, 200 sessions', run: events }],
  ['fanout', { about: 'one session to 2,000 watchers', run: fanout }],
  ['replay', { about: '10,000 events to a reconnecting client', run: replay }],
  ['activation', { about: 'cold activation of 100 and 1,000 events, with and without snapshot', run: activation }],
  ['actors', { about: 'memory per idle and passivated actor', run: actorMemory }],
  ['sockets', { about: 'memory per idle WebSocket', run: socketMemory }],
]);

const usage = `Usage: npm run bench [-- name… options]

Measures each figure beside its floor in the same run, in turns, and prints the medians.

${[...benchmarks].map(([name, { about }]) => `  ${name.padEnd(12)}${about}`).join('\n')}

Options
  --runs <n>        samples of each figure and of its floor (default 5)
  --ms <n>          milliseconds of one sample of a rate (default 1000)
  --sync            nats-server syncs each message before it acknowledges it
  --json            JSON on standard output instead of the table
  --profile <dir>   writes a CPU profile of every process into this folder
  --help            this text
`;

const wrong = (why: string): never => {
  process.stderr.write(`${why}\n\n${usage}`);
  process.exit(2);
};

const positive = (text: string | undefined, otherwise: number, name: string): number => {
  if (text === undefined) return otherwise;
  const value = Number(text);
  return Number.isInteger(value) && value > 0 ? value : wrong(`${name} must be a whole number above 0.`);
};

const readArguments = () => {
  try {
    return parseArgs({
      allowPositionals: true,
      options: {
        runs: { type: 'string' }, ms: { type: 'string' }, sync: { type: 'boolean', default: false }, json: { type: 'boolean', default: false },
        profile: { type: 'string' }, help: { type: 'boolean', short: 'h', default: false },
      },
    });
  } catch (error) {
    return wrong(error instanceof Error ? error.message : String(error));
  }
};

const { values, positionals } = readArguments();
if (values.help) {
  process.stdout.write(usage);
  process.exit(0);
}
for (const name of positionals) if (!benchmarks.has(name)) wrong(`There is no benchmark ${name}.`);
const settings: Settings = {
  runs: positive(values.runs, 5, '--runs'), sampleMs: positive(values.ms, 1_000, '--ms'), sync: values.sync,
  profiles: values.profile === undefined ? undefined : resolve(values.profile),
  // The table alone goes to standard output.
  say: (line) => process.stderr.write(`${line}\n`),
};
if (settings.profiles !== undefined) mkdirSync(settings.profiles, { recursive: true });

// What was started is bound to this process's end.
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => process.exit(130));

const machine = machineLine();
const startedAt = new Date().toISOString();
const rows: Row[] = [];
settings.say(machine);
for (const [name, { run }] of benchmarks) {
  if (positionals.length > 0 && !positionals.includes(name)) continue;
  settings.say(`# ${name}`);
  try {
    await run(settings, (row) => { rows.push(row); });
  } catch (error) {
    // The others can be measured all the same.
    process.exitCode = 1;
    settings.say(`${name} failed: ${error instanceof Error ? error.stack ?? error.message : String(error)}`);
  }
}
if (values.json) process.stdout.write(`${jsonText({ machine, startedAt, runs: settings.runs, rows })}\n`);
else process.stdout.write(`${tableText(rows)}\n\n${machine}\nmedian of ${settings.runs}; ${startedAt}\n`);
