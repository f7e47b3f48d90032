/** The commands `troupe auth …`, `troupe org …`, `troupe deployments …` and `troupe keys …`: their options and help, and the process they run in. */
import { spawn } from 'node:child_process';
import { Command, Option } from 'commander';
import { refuse } from '../../contracts/errors.ts';
import { keyScopes, roles } from '../../contracts/permissions.ts';
import { runAuthStatus, runAuthToken, runLogin, runLogout, type AuthWorld } from './auth.ts';
import { findApiBase, requireToken } from './credentials.ts';
import * as deployments from './deployments.ts';
import { exitHelp, type ExitCode } from './exit.ts';
import * as org from './org.ts';
import { createPlatform, type PlatformClient } from './platform.ts';
import { askLine, spinner } from './prompt.ts';
import { createTransport } from './transport.ts';
import type { ProgramWorld } from './world.ts';

interface Common {
  readonly api?: string;
  readonly token?: string;
  readonly json?: boolean;
}
interface InOrg extends Common {
  readonly org?: string;
}

const where = `
The platform is --api, TROUPE_API_BASE, the address of the last sign-in, or the Troupe that runs here (.troupe/dev.json).
The token is --token, TROUPE_TOKEN, or the one in ~/.troupe/config.json; the first that is not empty. An argument can be seen by other
users of this machine: prefer the environment or \`troupe auth login\`.`;

/**
 * Only where somebody is there to see it, and only https: another scheme of a server's choosing could start a program here. Failing to open
 * one is no error: the address is on the screen.
 */
const openBrowser = (world: ProgramWorld, url: string): void => {
  const seen = process.platform === 'darwin' || process.platform === 'win32' || world.env['DISPLAY'] !== undefined || world.env['WAYLAND_DISPLAY'] !== undefined;
  if (world.stderr.isTTY !== true || !seen || !URL.canParse(url) || new URL(url).protocol !== 'https:') return;
  const [command, ...args] = process.platform === 'darwin' ? ['open', url] : process.platform === 'win32' ? ['rundll32', 'url.dll,FileProtocolHandler', url] : ['xdg-open', url];
  if (command === undefined) return;
  const child = spawn(command, args, { stdio: 'ignore', detached: true });
  child.on('error', () => undefined);
  child.unref();
};

/** Adds the commands to the program; `finish` takes each one's exit code. */
export const platformCommands = (program: Command, world: ProgramWorld, finish: (code: ExitCode) => void): void => {
  const connected = async (options: Common, work: (platform: PlatformClient) => Promise<ExitCode>): Promise<void> => {
    const base = await findApiBase(world, options.api);
    const transport = createTransport(base.caPem);
    try {
      finish(await work(createPlatform({ url: base.url, fetch: transport.fetch })));
    } finally {
      await transport.close();
    }
  };
  const command = (parent: Command, name: string, description: string): Command =>
    parent.command(name).description(description).option('--api <url>', 'address of the platform').option('--token <token>', 'token to use')
      .option('--json', 'machine-readable output').addHelpText('after', exitHelp).addHelpText('after', where);

  const authWorld = (platform: PlatformClient): AuthWorld => ({
    env: world.env, cwd: world.cwd, platform, out: world.stdout, err: world.stderr,
    wait: (ms) => new Promise((resolve, reject) => {
      const stop = world.onInterrupt(() => {
        clearTimeout(timer);
        stop();
        reject(refuse('interrupted_here', 'Stopped. Nothing was stored.'));
      });
      const timer = setTimeout(() => {
        stop();
        resolve();
      }, ms);
    }),
    now: () => performance.now(),
    spin: (text) => spinner(world.stderr, text),
    ask: (prompt) => askLine(world, prompt),
    openBrowser: (url) => openBrowser(world, url),
  });

  const auth = program.command('auth').description('Signs in and out, and shows the token.').addHelpText('after', exitHelp);
  command(auth, 'login', 'Signs in: approve a code in the browser. Falls back to pasting a token.')
    .option('--manual', 'paste a token made on the web page instead')
    .option('--no-browser', 'do not open a browser')
    .action((options: Common & { manual?: boolean; browser: boolean }) => connected(options, (platform) =>
      runLogin(authWorld(platform), { manual: options.manual === true, browser: options.browser, json: options.json === true })));
  command(auth, 'status', 'Says whether the token is good, and until when.')
    .action((options: Common) => connected(options, (platform) => runAuthStatus(authWorld(platform), options.token, options.json === true)));
  command(auth, 'token', 'Prints the token and nothing else.')
    .action(async (options: Common) => finish(await runAuthToken({ env: world.env, cwd: world.cwd, out: world.stdout }, options.token, options.json === true)));
  command(auth, 'logout', 'Removes the stored token. The server is not asked: the token stays valid until it expires.')
    .action(async (options: Common) => finish(await runLogout({ env: world.env, cwd: world.cwd, out: world.stdout }, options.json === true)));

  const inOrg = (parent: Command, name: string, description: string): Command => command(parent, name, description).option('--org <slug>', 'slug or id; not needed if you are in one only');
  const asked = (options: Common, work: (of: org.OrgWorld) => Promise<ExitCode>): Promise<void> => connected(options, async (platform) => {
    const { token } = await requireToken(world, options.token);
    return work({ platform, token, json: options.json === true, out: world.stdout, err: world.stderr });
  });
  const role = new Option('--role <role>', 'role of the invited').choices(roles.filter((r) => r !== 'owner'));

  const orgs = program.command('org').description('Organizations, members and invitations.').addHelpText('after', exitHelp);
  command(orgs, 'list', 'Your organizations.').action((o: Common) => asked(o, (w) => org.listOrganizations(w)));
  inOrg(orgs, 'show', 'One of them.').action((o: InOrg) => asked(o, (w) => org.showOrganization(w, o.org)));
  command(orgs, 'create', 'Makes one; you become its owner.').argument('<slug>').option('--name <name>', 'display name; default the slug')
    .action((slug: string, o: Common & { name?: string }) => asked(o, (w) => org.createOrganization(w, slug, o.name)));
  inOrg(orgs, 'rename', 'Changes its display name.').argument('<name>').action((name: string, o: InOrg) => asked(o, (w) => org.renameOrganization(w, o.org, name)));
  command(orgs, 'delete', 'Deletes one and all its data for good.').argument('<slug>').option('--confirm <slug>', 'the slug again')
    .action((slug: string, o: Common & { confirm?: string }) => asked(o, (w) => org.deleteOrganization(w, slug, o.confirm)));
  inOrg(orgs, 'members', 'Its members.').action((o: InOrg) => asked(o, (w) => org.listMembers(w, o.org)));
  inOrg(orgs, 'role', 'Changes a member\'s role.').argument('<person>', 'e-mail address or user id').addArgument(program.createArgument('<role>').choices([...roles]))
    .action((person: string, to: string, o: InOrg) => asked(o, (w) => org.setRole(w, o.org, person, to)));
  inOrg(orgs, 'remove', 'Removes a member.').argument('<person>', 'e-mail address or user id').action((person: string, o: InOrg) => asked(o, (w) => org.removeMember(w, o.org, person)));
  command(orgs, 'leave', 'You leave it; its last owner cannot.').argument('<slug>').action((slug: string, o: Common) => asked(o, (w) => org.leave(w, slug)));
  command(orgs, 'join', 'Takes an invitation.').argument('<link>', 'of the mail').action((link: string, o: Common) => asked(o, (w) => org.join(w, link)));
  inOrg(orgs, 'transfer', 'Makes a member the owner; you become admin.').argument('<person>', 'e-mail address or user id').action((person: string, o: InOrg) => asked(o, (w) => org.transfer(w, o.org, person)));
  inOrg(orgs, 'invite', 'Invites somebody by e-mail.').argument('<email>').addOption(role)
    .action((email: string, o: InOrg & { role?: string }) => asked(o, (w) => org.invite(w, o.org, email, o.role)));
  inOrg(orgs, 'invitations', 'Its invitations.').action((o: InOrg) => asked(o, (w) => org.listInvitations(w, o.org)));
  inOrg(orgs, 'uninvite', 'Takes an invitation back.').argument('<invitation>', 'its id').action((id: string, o: InOrg) => asked(o, (w) => org.revokeInvitation(w, o.org, id)));
  inOrg(orgs, 'audit', 'Its whole audit log, newest first.').addOption(new Option('--format <format>', 'csv or jsonl').choices(['csv', 'jsonl']).default('jsonl'))
    .action((o: InOrg & { format: 'csv' | 'jsonl' }) => asked(o, (w) => org.audit(w, o.org, o.format)));

  const managed = program.command('deployments').description('Managed deployments of an organization: agents with services of their own.').addHelpText('after', exitHelp);
  inOrg(managed, 'list', 'Its deployments.').action((o: InOrg) => asked(o, (w) => deployments.listDeployments(w, o.org)));
  inOrg(managed, 'create', 'Makes one with its agent. Key and secret are printed this once.').argument('<name>').option('--purpose <text>', 'what its agent is for')
    .action((name: string, o: InOrg & { purpose?: string }) => asked(o, (w) => deployments.createDeployment(w, o.org, name, o.purpose)));
  inOrg(managed, 'restart', 'Puts down what runs of it; it begins anew from its journals.').argument('<deployment>', 'id or name')
    .action((name: string, o: InOrg) => asked(o, (w) => deployments.restartDeployment(w, o.org, name)));
  inOrg(managed, 'rotate-key', 'Makes a new key and ends the old one at once. It is printed this once.').argument('<deployment>', 'id or name')
    .action((name: string, o: InOrg) => asked(o, (w) => deployments.rotateKey(w, o.org, name)));
  inOrg(managed, 'delete', 'Ends one and erases all its data for good.').argument('<deployment>', 'id or name').option('--confirm <id>', 'its id')
    .action((name: string, o: InOrg & { confirm?: string }) => asked(o, (w) => deployments.deleteDeployment(w, o.org, name, o.confirm)));

  const keys = program.command('keys').description('API keys of an organization.').addHelpText('after', exitHelp);
  inOrg(keys, 'list', 'Its keys.').action((o: InOrg) => asked(o, (w) => org.listKeys(w, o.org)));
  inOrg(keys, 'create', 'Makes a key. It is printed this once.').argument('<name>')
    .addOption(new Option('--scope <scope...>', 'what it may do; * = everything of the admin role').choices(['*', ...keyScopes]).default(['chat.create']))
    .action((name: string, o: InOrg & { scope: string[] }) => asked(o, (w) => org.createKey(w, o.org, name, o.scope)));
  inOrg(keys, 'revoke', 'Ends a key at once.').argument('<key>', 'its id').action((id: string, o: InOrg) => asked(o, (w) => org.revokeKey(w, o.org, id)));
};

