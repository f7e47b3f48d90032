/**
 * The commands of `troupe`, their options and help. Knows no process: streams, environment and signals are arguments.
 * `run` gives the exit code and has said what went wrong; it does not exit.
 */
import { Command, CommanderError, InvalidArgumentError, Option } from 'commander';
import { adminRequest, type AdminRequest } from '../../contracts/admin.ts';
import { CodedError, refuse, shown } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { askAdmin } from './admin.ts';
import type { ChatOptions, ChatWorld } from './chat.ts';
import { runPipe } from './chat-pipe.ts';
import { runTerminal } from './chat-terminal.ts';
import { knowledgeCommands } from './knowledge-commands.ts';
import { platformCommands } from './platform-commands.ts';
import { adviceFor, exitCodeOf, exitCodes, exitHelp, type ExitCode } from './exit.ts';
import { plain } from './printer.ts';
import { replayIdleMs, runReplay } from './replay.ts';
import { runSessions } from './sessions.ts';
import { runStatus } from './status.ts';
import { loadTarget, type Target } from './target.ts';
import { createTransport, type Transport } from './transport.ts';
import type { ProgramWorld } from './world.ts';

interface Common {
  readonly config?: string;
  readonly json?: boolean;
  readonly org?: string;
}

const where = `
Connects to where you signed in with \`troupe auth login\`, or to what \`npm start\` wrote to .troupe/dev.json, found from the current folder
upward; --config names another file. In a script: TROUPE_API_BASE or TROUPE_GATEWAY_URL, with TROUPE_TOKEN.
Environment: TROUPE_API_BASE, TROUPE_GATEWAY_URL, TROUPE_TOKEN, TROUPE_USER_ID, TROUPE_CA (PEM file), TROUPE_ADMIN_SOCKET.`;

const number = (text: string): number => {
  const value = Number(text);
  if (!Number.isFinite(value)) throw new InvalidArgumentError('It is not a number.');
  return value;
};
// Commander takes null for an absent value, so `none` stays a word until the request is made.
const numberOrNone = (text: string): number | 'none' => (text === 'none' ? text : number(text));

const inOrg = 'slug or id of the organization to talk in; default your own workspace';

export const run = async (args: readonly string[], world: ProgramWorld): Promise<ExitCode> => {
  let result: ExitCode = exitCodes.ok;
  const json = args.includes('--json');

  /** Loads the target and closes the transport after the work. */
  const connected = async (options: Common, work: (target: Target, transport: Transport) => Promise<ExitCode>): Promise<void> => {
    const target = await loadTarget({ config: options.config, org: options.org, cwd: world.cwd, env: world.env });
    const transport = createTransport(target.caPem);
    try {
      result = await work(target, transport);
    } finally {
      await transport.close();
    }
  };

  const program = new Command('troupe')
    .description('Talks to agents that run in Troupe, and looks after its gateway.')
    .version('0.1.0')
    .exitOverride()
    .configureOutput({ writeOut: (text) => { world.stdout.write(text); }, writeErr: (text) => { world.stderr.write(text); } })
    .showHelpAfterError('(--help shows how)')
    .addHelpText('after', exitHelp)
    .addHelpText('after', where);
  const command = (parent: Command, name: string, description: string): Command =>
    parent.command(name).description(description).option('--config <file>', 'a dev.json to use').option('--json', 'machine-readable output').addHelpText('after', exitHelp);

  command(program, 'chat', 'Holds a conversation with an agent. Survives restarts of gateway and daemon.')
    .argument('[message...]', 'one message to send; without it, a chat (or one message a line when input is piped)')
    .option('--sid <sid>', 'go on with this session')
    .option('--model <id>', 'model of a new session')
    .option('--label <text>', 'name of a new session')
    .option('--org <slug>', inOrg)
    .option('--project <id>', 'project of the session', 'default')
    .addOption(new Option('--approve <answer>', 'answer to approvals; ask denies when there is nobody to ask').choices(['ask', 'yes', 'no']).default('ask'))
    .addHelpText('after', `
With --json every event is one line: {"kind":"session"|"agent_event"|"connection_lost"|"reconnected"|"error", ...}.
In the chat: /help, /attach <file>, /cancel, /quit; Ctrl-C cancels the running turn, a second one leaves.`)
    .action(async (words: string[], options: Common & { sid?: string; model?: string; label?: string; project: string; approve: ChatOptions['approve'] }) => {
      await connected(options, (target, transport) => {
        const chat: ChatOptions = {
          sid: options.sid, projectId: options.project, model: options.model, label: options.label, json: options.json === true,
          approve: options.approve, message: words.length === 0 ? undefined : words.join(' '), cwd: world.cwd,
        };
        const chatWorld: ChatWorld = { target, transport, out: world.stdout, err: world.stderr, onInterrupt: world.onInterrupt };
        const person = world.stdin.isTTY === true && world.stdout.isTTY === true && chat.message === undefined && !chat.json;
        return person ? runTerminal(chatWorld, chat, world.stdin, world.stdout) : runPipe(chatWorld, chat, world.stdin);
      });
    });

  command(program, 'status', 'Says whether gateway and daemon answer.')
    .action((options: Common) => connected(options, (target, transport) => runStatus(target, transport, options.json === true, world.stdout)));

  command(program, 'sessions', 'Lists your sessions, newest first.')
    .option('--org <slug>', inOrg)
    .option('--limit <n>', 'sessions to list', number, limits.sessionListUsualMax)
    .action((options: Common & { limit: number }) => connected(options, (target, transport) =>
      runSessions(target, transport, { json: options.json === true, limit: options.limit }, world.stdout, world.stderr)));

  command(program, 'replay', 'Prints the whole stream of a session from event 1 and counts what is lost or repeated.')
    .argument('<sid>')
    .option('--org <slug>', inOrg)
    .option('--project <id>', 'project of the session', 'default')
    .option('--follow', 'go on with live events until Ctrl-C')
    .option('--idle-ms <ms>', 'silence after which the replay counts as complete', number, replayIdleMs)
    .action((sid: string, options: Common & { project: string; follow?: boolean; idleMs: number }) => connected(options, (target, transport) =>
      runReplay(target, transport, { sid, projectId: options.project, json: options.json === true, follow: options.follow === true, idleMs: options.idleMs },
        world.stdout, world.stderr, world.onInterrupt)));

  const finish = (code: ExitCode): void => {
    result = code;
  };
  platformCommands(program, world, finish);
  knowledgeCommands(program, world, finish);

  const admin = program.command('admin').description('Speaks to the gateway\'s admin socket. Your user must be in its group.').addHelpText('after', exitHelp);
  const operation = (op: AdminRequest['op'], description: string): Command => command(admin, op, description)
    .action(async (options: Common & Record<string, unknown>) => {
      const { config, json: asJson, ...fields } = options;
      const request = adminRequest.safeParse({ op, ...Object.fromEntries(Object.entries(fields).map(([name, value]) => [name, value === 'none' && name !== 'key' ? null : value])) });
      if (!request.success) throw refuse('bad_usage', request.error.issues.map((i) => `--${i.path.map(String).join('.')}: ${i.message}`).join('; '));
      const target = await loadTarget({ config, cwd: world.cwd, env: world.env });
      if (target.adminSocket === undefined) throw refuse('not_configured', 'No admin socket is known; set TROUPE_ADMIN_SOCKET.');
      const waits = request.data.op === 'drain' ? request.data.timeout_ms ?? limits.drainMs : 0;
      const answer = await askAdmin(target.adminSocket, request.data, limits.clientRequestMs + waits);
      world.stdout.write(asJson === true ? `${JSON.stringify(answer)}\n` : `${JSON.stringify(answer, null, 2)}\n`);
    });
  operation('health', 'The gateway\'s state.');
  operation('jwks_flush', 'Forgets the cached public keys and fetches them again.');
  operation('jwks_dump', 'The cached public keys.');
  operation('rate_limit_inspect', 'Buckets that are not full, or the one named.').option('--kind <user|ip>').option('--key <key>');
  operation('rate_limit_override', 'Replaces the limit of one key; `none` for both numbers removes the override.')
    .requiredOption('--kind <user|ip>').requiredOption('--key <key>')
    .requiredOption('--capacity <n>', 'tokens the bucket holds', numberOrNone)
    .requiredOption('--refill_per_sec <n>', 'tokens added each second', numberOrNone);
  operation('drain', 'Accepts no new connection; streams may finish, then they are closed with 1001.').option('--timeout_ms <ms>', 'how long streams may take', number);
  operation('cert_reload', 'Loads the certificate files now.');

  try {
    await program.parseAsync(args, { from: 'user' });
    return result;
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? exitCodes.ok : exitCodes.usage;
    const { code, message, details } = shown(error);
    if (json) world.stdout.write(`${JSON.stringify({ kind: 'error', code, message, ...(details === undefined ? {} : { details }) })}\n`);
    else {
      // An error without a code is a bug of this command: where it happened is what a report needs.
      world.stderr.write(`troupe: ${code}: ${error instanceof CodedError ? message : error instanceof Error ? error.stack ?? error.message : String(error)}\n`);
      const { field, constraint, limit, upgradeUrl } = details ?? {};
      if (typeof field === 'string' && typeof constraint === 'string') world.stderr.write(`  ${plain(field)} ${plain(constraint)}\n`);
      if (typeof limit === 'number' && typeof upgradeUrl === 'string') world.stderr.write(`  at most ${limit} on this plan; the plans are at ${plain(upgradeUrl)} of the platform\n`);
      const todo = adviceFor(code);
      if (todo !== undefined) world.stderr.write(`${todo}\n`);
    }
    return exitCodeOf(error);
  }
};
