/**
 * Calls one actor of the development organization over NATS, as an integrator in any language would: a request to
 * `actor.<org>.<type>.<key>.<command>` with JSON, the answer in JSON, errors in the service headers (NATS ADR-32).
 * Uses the credentials in `.troupe/dev.json`. Leaves with 0, 1 when the actor refused or nobody answered, 2 for wrong use.
 */
import { readFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Command } from 'commander';
import { connect, TimeoutError, NoRespondersError, RequestError } from 'nats';
import { devFile } from '../../contracts/config.ts';
import { limits } from '../../contracts/limits.ts';
import { commandSubject } from '../../contracts/subjects.ts';
import { integrator } from './nats.ts';

const root = dirname(dirname(dirname(fileURLToPath(import.meta.url))));

const fail = (text: string, code = 1): never => {
  process.stderr.write(`${text}\n`);
  process.exit(code);
};

const command = new Command('node deploy/run.mjs call')
  .description('Calls an actor over NATS: actor.<org>.<type>.<key>.<command>, of the organization in dev.json. The input is JSON.')
  .argument('<type>').argument('<key>').argument('<command>').argument('[input]', 'JSON', '{}')
  .option('--dir <path>', 'folder that holds .troupe', root)
  .exitOverride((error) => process.exit(error.exitCode === 0 ? 0 : 2))
  .parse();
const [type = '', key = '', name = '', input = '{}'] = command.processedArgs as string[];
const path = join(resolve(command.opts<{ dir: string }>().dir), '.troupe', 'dev.json');

try {
  JSON.parse(input);
} catch {
  fail(`The input is not JSON: ${input}`, 2);
}
let text: string;
try {
  text = readFileSync(path, 'utf8');
} catch {
  text = fail(`There is no ${path}. Start Troupe first: npm start`);
}
const dev = devFile.parse(JSON.parse(text));
const url = new URL(dev.natsUrl);
const inboxPrefix = url.username === integrator.user ? { inboxPrefix: integrator.inboxPrefix } : {};
try {
  const nc = await connect({
    servers: url.host, user: decodeURIComponent(url.username), pass: decodeURIComponent(url.password), ...inboxPrefix, reconnect: false,
  });
  const answer = await nc.request(commandSubject({ org: dev.org.id, type, key }, name), input, { timeout: limits.askDeadlineMs });
  await nc.close();
  const code = answer.headers?.get('Nats-Service-Error-Code') ?? '';
  if (code !== '') fail(`${code} ${answer.headers?.get('Nats-Service-Error') ?? ''}\n${answer.string()}`);
  process.stdout.write(`${answer.string()}\n`);
} catch (error) {
  const cause = error instanceof RequestError ? error.cause : error;
  if (cause instanceof NoRespondersError) fail('Nobody serves that address. Is Troupe running?');
  if (cause instanceof TimeoutError) fail(`No answer within ${limits.askDeadlineMs / 1000} s. The call may have taken effect.`);
  fail(`The call failed: ${error instanceof Error ? error.message : String(error)}`);
}
