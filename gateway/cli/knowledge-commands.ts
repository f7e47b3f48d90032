/**
 * The commands `troupe knowledge …`: their options and help, and the deployment they speak to.
 *
 * The address is --deployment-url, else TROUPE_DEPLOYMENT_URL, else that of the Troupe that runs here (.troupe/dev.json); the key is --key, else
 * TROUPE_DEPLOYMENT_KEY, else, with the address of the Troupe here, its deployment's.
 */
import { InvalidArgumentError, type Command } from 'commander';
import { refuse } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { findDevFile, readDevFile, readText } from './dev-file.ts';
import { exitHelp, type ExitCode } from './exit.ts';
import { importFolder, searchKnowledge, type KnowledgeWorld } from './knowledge.ts';
import { createPlatform } from './platform.ts';
import { createTransport } from './transport.ts';
import type { ProgramWorld } from './world.ts';

interface Common {
  readonly deploymentUrl?: string;
  readonly key?: string;
  readonly json?: boolean;
}

const where = `
The deployment is --deployment-url, TROUPE_DEPLOYMENT_URL, or the one of the Troupe that runs here (.troupe/dev.json). Its key is --key,
TROUPE_DEPLOYMENT_KEY, or the one there. An argument can be seen by other users of this machine: prefer the environment. TROUPE_CA: a PEM file.`;

interface Services {
  readonly url: string;
  readonly key: string;
  readonly caPem: string | undefined;
}

/** Throws `not_configured` with a sentence saying what is missing. */
const servicesOf = async ({ env, cwd }: ProgramWorld, options: Common): Promise<Services> => {
  const given = (value: string | undefined): string | undefined => (value === '' ? undefined : value);
  const dev = await findDevFile(cwd).then(readDevFile, () => undefined);
  const url = given(options.deploymentUrl) ?? given(env['TROUPE_DEPLOYMENT_URL']) ?? dev?.deploymentUrl;
  if (url === undefined || !URL.canParse(url)) throw refuse('not_configured', 'No deployment is known: give --deployment-url, or set TROUPE_DEPLOYMENT_URL.');
  const here = dev !== undefined && new URL(dev.deploymentUrl).origin === new URL(url).origin;
  // A key goes to the deployment it is of and to nobody else.
  const key = given(options.key) ?? given(env['TROUPE_DEPLOYMENT_KEY']) ?? (here ? dev.deployment?.key : undefined);
  if (key === undefined) throw refuse('not_configured', 'No deployment key is known: set TROUPE_DEPLOYMENT_KEY, or give --key. `troupe deployments create` shows one once.');
  const ca = given(env['TROUPE_CA']);
  const caPem = ca !== undefined ? await readText(ca, 'The certificate file of TROUPE_CA,') : here ? await readText(dev.caPath, 'The certificate file') : undefined;
  return { url, key, caPem };
};

const wait = (ms: number, signal: AbortSignal): Promise<void> => new Promise((resolve) => {
  const end = (): void => {
    clearTimeout(timer);
    signal.removeEventListener('abort', end);
    resolve();
  };
  const timer = setTimeout(end, ms);
  signal.addEventListener('abort', end, { once: true });
  if (signal.aborted) end();
});

/** Adds the commands to the program; `finish` takes each one's exit code. */
export const knowledgeCommands = (program: Command, world: ProgramWorld, finish: (code: ExitCode) => void): void => {
  const connected = async (options: Common, work: (of: KnowledgeWorld) => Promise<ExitCode>): Promise<void> => {
    const { url, key, caPem } = await servicesOf(world, options);
    const transport = createTransport(caPem);
    try {
      finish(await work({
        services: createPlatform({ url, fetch: transport.fetch }), key, json: options.json === true, out: world.stdout, err: world.stderr,
        cwd: world.cwd, onInterrupt: world.onInterrupt, cut: () => transport.close(), wait,
      }));
    } finally {
      await transport.close();
    }
  };
  const command = (name: string, description: string): Command => knowledge.command(name).description(description)
    .option('--deployment-url <url>', 'address of the deployment\'s services').option('--key <key>', 'deployment key')
    .option('--json', 'machine-readable output').addHelpText('after', exitHelp).addHelpText('after', where);
  const count = (text: string): number => {
    const value = Number(text);
    if (!Number.isInteger(value) || value < 1 || value > limits.knowledgeResultsMax) throw new InvalidArgumentError(`It is no number from 1 to ${limits.knowledgeResultsMax}.`);
    return value;
  };

  const knowledge = program.command('knowledge').description('The documents that a deployment\'s agent knows.').addHelpText('after', exitHelp);
  command('import', 'Indexes the markdown files of a folder. Repeated, it sends only what has changed; stopped, it goes on.').argument('<folder>')
    .action((folder: string, o: Common) => connected(o, (w) => importFolder(w, folder)));
  command('search', 'Searches them.').argument('<query...>').option('--limit <n>', 'results', count, limits.knowledgeResultsUsual)
    .action((words: string[], o: Common & { limit: number }) => connected(o, (w) => searchKnowledge(w, words.join(' '), o.limit)));
};
