/**
 * `troupe org …` and `troupe keys …`: organizations, members, invitations and API keys from the command line.
 *
 * An organization is named by its slug or id; where the caller has exactly one, it may be left out. With `--json` the server's own
 * objects are printed. What one may do is decided by the server alone. What a terminal would obey is not printed on one.
 */
import { z } from 'zod';
import { organizationRoutes as routes } from '../../contracts/organization-routes.ts';
import {
  apiKey, invitation, member, organization, organizationCreated, organizationListed,
} from '../../contracts/organization.ts';
import { refuse } from '../../contracts/errors.ts';
import { exportAudit, type AuditFormat } from './audit.ts';
import { exitCodes, type ExitCode } from './exit.ts';
import type { PlatformClient } from './platform.ts';
import { plain, taken, type Out } from './printer.ts';

export interface OrgWorld {
  readonly platform: PlatformClient;
  readonly token: string;
  readonly json: boolean;
  readonly out: Out;
  readonly err: Out;
}

type Listed = z.output<typeof organizationListed>;
const gone = z.object({});

/** On a terminal, nothing that the terminal would obey; a pipe gets what the server said. */
const shownHere = ({ out }: OrgWorld, text: string): string => (out.isTTY === true ? plain(text) : text);

/** Prints the value as JSON, or the text. */
export const print = (world: OrgWorld, value: unknown, text: string): ExitCode => {
  world.out.write(`${shownHere(world, world.json ? JSON.stringify(value) : plain(text))}\n`);
  return exitCodes.ok;
};

/** Columns padded to their widest cell. */
export const table = (rows: readonly (readonly string[])[]): string => {
  const widths = rows.reduce<number[]>((all, row) => row.map((cell, i) => Math.max(all[i] ?? 0, cell.length)), []);
  return rows.map((row) => row.map((cell, i) => (i === row.length - 1 ? cell : cell.padEnd(widths[i] ?? 0))).join('  ')).join('\n');
};

type Asker = Pick<OrgWorld, 'platform' | 'token'>;

const list = async ({ platform, token }: Asker): Promise<readonly Listed[]> =>
  (await platform.call({ route: routes.readOrganization, answer: z.object({ organizations: z.array(organizationListed) }), token })).organizations;

/** By slug or id; without a name, the only one there is. Throws `not_found`, `bad_usage` where there are several. */
export const findOrganization = async (world: Asker, name: string | undefined): Promise<Listed> => {
  const all = await list(world);
  if (name === undefined) {
    const [only, ...others] = all;
    if (only === undefined) throw refuse('not_found', 'You are in no organization. `troupe org create` makes one.');
    if (others.length > 0) throw refuse('bad_usage', `Name one of your organizations with --org: ${all.map((o) => o.slug).join(', ')}.`);
    return only;
  }
  const found = all.find((o) => o.slug === name || o.id === name);
  if (found === undefined) throw refuse('not_found', `You are in no organization ${plain(name)}. \`troupe org list\` shows yours.`);
  return found;
};

export const listOrganizations = async (world: OrgWorld): Promise<ExitCode> => {
  const all = await list(world);
  if (all.length === 0 && !world.json) world.err.write('You are in no organization. `troupe org create <slug>` makes one.\n');
  if (all.length === 0 && !world.json) return exitCodes.ok;
  return print(world, { organizations: all }, table(all.map((o) => [o.slug, o.id, o.plan, o.role, o.memberCount === 1 ? '1 member' : `${o.memberCount} members`, plain(o.name)])));
};

export const showOrganization = async (world: OrgWorld, name: string | undefined): Promise<ExitCode> => {
  const { id } = await findOrganization(world, name);
  const one = await world.platform.call({ route: routes.readOrganization, answer: organization, token: world.token, query: { orgId: id } });
  return print(world, one, table([
    ['id', one.id], ['slug', one.slug], ['name', plain(one.name)], ['plan', one.plan], ['members', String(one.memberCount)], ['created', one.createdAt],
    ['default model', one.settings.defaultModel], ['webhook', one.settings.webhookUrl ?? 'none'],
  ]));
};

export const createOrganization = async (world: OrgWorld, slug: string, name: string | undefined): Promise<ExitCode> => {
  const made = await world.platform.call({ route: routes.createOrganization, answer: organizationCreated, token: world.token, body: { slug, name: name ?? slug } });
  return print(world, made, `Made ${made.slug} (${made.id}), plan ${made.plan}. \`troupe org invite <email>\` invites somebody.`);
};

export const renameOrganization = async (world: OrgWorld, org: string | undefined, name: string): Promise<ExitCode> => {
  const { id } = await findOrganization(world, org);
  const changed = await world.platform.call({ route: routes.updateOrganization, answer: organization, token: world.token, body: { orgId: id, name } });
  return print(world, changed, `${changed.slug} is now called ${plain(changed.name)}.`);
};

/** `confirm` must be the slug: deletion is for good. */
export const deleteOrganization = async (world: OrgWorld, org: string, confirm: string | undefined): Promise<ExitCode> => {
  const { id, slug } = await findOrganization(world, org);
  if (confirm !== slug) throw refuse('bad_usage', `This deletes ${slug} and all its data for good. Repeat with --confirm ${slug}.`);
  await world.platform.call({ route: routes.deleteOrganization, answer: gone, token: world.token, body: { orgId: id } });
  return print(world, { deleted: id }, `${slug} is deleted.`);
};

export const listMembers = async (world: OrgWorld, org: string | undefined): Promise<ExitCode> => {
  const { id } = await findOrganization(world, org);
  const { members } = await world.platform.call({ route: routes.members, answer: z.object({ members: z.array(member) }), token: world.token, query: { orgId: id } });
  return print(world, { members }, table(members.map((m) => [plain(m.email), m.role, m.userId, m.joinedAt.slice(0, 10), plain(m.name)])));
};

const memberId = async (world: OrgWorld, orgId: string, person: string): Promise<string> => {
  if (person.startsWith('usr_')) return person;
  const { members } = await world.platform.call({ route: routes.members, answer: z.object({ members: z.array(member) }), token: world.token, query: { orgId } });
  const found = members.find((m) => m.email === person.toLowerCase());
  if (found === undefined) throw refuse('not_found', `${plain(person)} is not a member. \`troupe org members\` shows who is.`);
  return found.userId;
};

export const setRole = async (world: OrgWorld, org: string | undefined, person: string, role: string): Promise<ExitCode> => {
  const { id } = await findOrganization(world, org);
  const changed = await world.platform.call({ route: routes.updateMember, answer: member, token: world.token, body: { orgId: id, userId: await memberId(world, id, person), role } });
  return print(world, changed, `${plain(changed.email)} is now ${changed.role}.`);
};

export const removeMember = async (world: OrgWorld, org: string | undefined, person: string): Promise<ExitCode> => {
  const { id, slug } = await findOrganization(world, org);
  const userId = await memberId(world, id, person);
  await world.platform.call({ route: routes.removeMember, answer: gone, token: world.token, body: { orgId: id, userId } });
  return print(world, { removed: userId }, `${plain(person)} is no longer in ${slug}.`);
};

/** The caller goes; the last owner cannot. */
export const leave = async (world: OrgWorld, org: string): Promise<ExitCode> => {
  const { id, slug } = await findOrganization(world, org);
  await world.platform.call({ route: routes.leave, answer: gone, token: world.token, body: { orgId: id } });
  return print(world, { left: id }, `You have left ${slug}.`);
};

/** Takes an invitation: the link of its mail, or the token in it. */
export const join = async (world: OrgWorld, link: string): Promise<ExitCode> => {
  const token = (URL.canParse(link) ? new URL(link).searchParams.get('token') : link) ?? '';
  const joined = await world.platform.call({ route: routes.acceptInvitation, answer: z.object({ organization: organizationListed }), token: world.token, body: { token } });
  return print(world, joined, `You are in ${joined.organization.slug} now, as ${joined.organization.role}.`);
};

export const invite = async (world: OrgWorld, org: string | undefined, email: string, role: string | undefined): Promise<ExitCode> => {
  const { id } = await findOrganization(world, org);
  const made = await world.platform.call({
    route: routes.invite, answer: z.object({ invitation }), token: world.token, body: { orgId: id, email, ...(role === undefined ? {} : { role }) },
  });
  return print(world, made, `Invited ${plain(made.invitation.email)} as ${made.invitation.role}; the link in the mail is good until ${made.invitation.expiresAt.slice(0, 10)}.`);
};

export const listInvitations = async (world: OrgWorld, org: string | undefined): Promise<ExitCode> => {
  const { id } = await findOrganization(world, org);
  const got = await world.platform.call({ route: routes.invitations, answer: z.object({ invitations: z.array(invitation) }), token: world.token, query: { orgId: id } });
  return print(world, got, got.invitations.length === 0 ? 'There is no invitation.' : table(got.invitations.map((i) => [plain(i.email), i.role, i.status, i.expiresAt.slice(0, 10), i.id])));
};

export const revokeInvitation = async (world: OrgWorld, org: string | undefined, invitationId: string): Promise<ExitCode> => {
  const { id } = await findOrganization(world, org);
  const got = await world.platform.call({ route: routes.revokeInvitation, answer: z.object({ invitation }), token: world.token, body: { orgId: id, invitationId } });
  return print(world, got, `The invitation of ${plain(got.invitation.email)} is ${got.invitation.status}.`);
};

export const transfer = async (world: OrgWorld, org: string | undefined, person: string): Promise<ExitCode> => {
  const { id, slug } = await findOrganization(world, org);
  const made = await world.platform.call({ route: routes.transfer, answer: member, token: world.token, body: { orgId: id, userId: await memberId(world, id, person) } });
  return print(world, made, `${plain(made.email)} owns ${slug} now; you are admin.`);
};

/** JSON lines, or CSV: the whole log, however long, part by part. */
export const audit = async (world: OrgWorld, org: string | undefined, format: AuditFormat): Promise<ExitCode> => {
  const { id } = await findOrganization(world, org);
  const { platform, token, out } = world;
  await exportAudit({ platform, token, orgId: id, format, write: (text) => taken(out, shownHere(world, text)) });
  return exitCodes.ok;
};

export const createKey = async (world: OrgWorld, org: string | undefined, name: string, scopes: readonly string[]): Promise<ExitCode> => {
  const { id } = await findOrganization(world, org);
  const made = await world.platform.call({ route: routes.createKey, answer: apiKey.extend({ key: z.string() }), token: world.token, body: { orgId: id, name, scopes } });
  if (!world.json) world.err.write(`Made ${plain(made.id)} with ${plain(made.scopes.join(', '))}. The key is shown this once:\n`);
  return print(world, made, made.key);
};

export const listKeys = async (world: OrgWorld, org: string | undefined): Promise<ExitCode> => {
  const { id } = await findOrganization(world, org);
  const got = await world.platform.call({ route: routes.apiKeys, answer: z.object({ keys: z.array(apiKey) }), token: world.token, query: { orgId: id } });
  const text = table(got.keys.map((k) => [k.id, `${k.keyPrefix}…`, k.revokedAt === null ? 'valid' : 'revoked', k.lastUsedAt === null ? 'never used' : `used ${k.lastUsedAt.slice(0, 16).replace('T', ' ')}`, plain(k.name), k.scopes.join(' ')]));
  return print(world, got, got.keys.length === 0 ? 'There is no API key. `troupe keys create <name>` makes one.' : text);
};

export const revokeKey = async (world: OrgWorld, org: string | undefined, keyId: string): Promise<ExitCode> => {
  const { id } = await findOrganization(world, org);
  const got = await world.platform.call({ route: routes.revokeKey, answer: apiKey, token: world.token, body: { orgId: id, id: keyId } });
  return print(world, got, `${got.id} is revoked.`);
};
