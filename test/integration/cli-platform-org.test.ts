/** `troupe org` and `troupe keys` as processes against a whole Troupe, with a second person; and what they say when they are refused. */
import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import { z } from 'zod';
import { authRoutes } from '../../contracts/auth-routes.ts';
import { apiKey, invitation, member, organization, organizationCreated, organizationListed } from '../../contracts/organization.ts';
import { commandLine, type CommandLine } from '../harness/newcomer.ts';
import { answered, startPlatform, type Person, type TestPlatform } from '../harness/platform.ts';

const listed = z.strictObject({ organizations: z.array(organizationListed) });
const members = z.strictObject({ members: z.array(member) });

suite('cli for organizations', { timeout: 240_000 }, () => {
  let platform: TestPlatform;
  const ends: (() => Promise<void>)[] = [];
  before(async () => {
    platform = await startPlatform(undefined, { gateway: { auth: { platform: true } } });
  });
  after(async () => {
    for (const end of ends) await end();
    await platform.stop();
  });

  interface Signed {
    readonly person: Person;
    readonly command: CommandLine;
  }
  const signedIn = async (email: string): Promise<Signed> => {
    const person = await platform.signUp(email);
    const { token } = answered(await platform.api('POST', authRoutes.makeApiToken.path, { cookie: person.cookie, csrf: person.csrf, json: {} }), 200, z.object({ token: z.string() }));
    const command = await commandLine({ after: (end) => void ends.push(end) }, platform);
    const ran = await command.run(['auth', 'login', '--manual'], { input: `${token}\n` });
    assert.equal(ran.code, 0, ran.err);
    return { person, command };
  };
  const linkOf = async (email: string): Promise<string> => {
    const { text } = await platform.outbox.next(email);
    return /https:\/\/\S+\/invite\?token=\S+/.exec(text)?.[0] ?? assert.fail(text);
  };
  /** By the link in the mail. */
  const join = async ({ person, command }: Signed): Promise<string> => {
    const joined = await command.run(['org', 'join', await linkOf(person.email)]);
    assert.equal(joined.code, 0, joined.err);
    return joined.out;
  };
  /** The last words of a command that was refused: its exit code and what it wrote for a person. */
  const refused = async ({ command }: Signed, args: readonly string[]): Promise<string> => {
    const { code, out, err } = await command.run(args);
    assert.equal(out, '', args.join(' '));
    return `${code} ${err}`;
  };

  test('cli for organizations - made, shown, renamed, joined by a second person, roles, handed over, deleted [ORG-010] [ORG-058]', async () => {
    const ada = await signedIn('ada@example.com');
    const bob = await signedIn('bob@example.com');
    assert.match((await ada.command.run(['org', 'list'])).err, /`troupe org create <slug>` makes one/);
    const made = await ada.command.json(['org', 'create', 'cli-acme', '--name', 'Acme'], organizationCreated);
    assert.equal((await ada.command.json(['org', 'show'], organization)).name, 'Acme');
    assert.equal((await ada.command.run(['org', 'rename', 'Acme & Söhne'])).out, 'cli-acme is now called Acme & Söhne.\n');
    const { invitation: sent } = await ada.command.json(['org', 'invite', bob.person.email, '--role', 'member'], z.strictObject({ invitation }));
    assert.equal(sent.status, 'pending');
    assert.equal(await join(bob), 'You are in cli-acme now, as member.\n');
    const { members: two } = await ada.command.json(['org', 'members'], members);
    assert.deepEqual(two.map(({ email, role }) => [email, role]), [['ada@example.com', 'owner'], ['bob@example.com', 'member']]);
    const { invitations } = await ada.command.json(['org', 'invitations'], z.strictObject({ invitations: z.array(invitation) }));
    assert.deepEqual(invitations.map(({ id, status }) => [id, status]), [[sent.id, 'accepted']]);
    const again = await ada.command.json(['org', 'invite', 'carol@example.com'], z.strictObject({ invitation }));
    assert.match((await ada.command.run(['org', 'uninvite', again.invitation.id])).out, /^The invitation of carol@example\.com is revoked\.$/m);

    assert.equal((await ada.command.run(['org', 'role', 'Bob@example.com', 'admin'])).out, 'bob@example.com is now admin.\n');
    assert.equal((await ada.command.run(['org', 'transfer', bob.person.userId])).out, 'bob@example.com owns cli-acme now; you are admin.\n');
    assert.deepEqual((await bob.command.json(['org', 'list'], listed)).organizations.map(({ id, role, memberCount }) => [id, role, memberCount]), [[made.id, 'owner', 2]]);
    assert.match(await refused(ada, ['org', 'delete', 'cli-acme', '--confirm', 'cli-acme']), /^4 troupe: forbidden: /);
    assert.match(await refused(bob, ['org', 'leave', 'cli-acme']), /^4 troupe: .*owner/);
    assert.equal((await ada.command.run(['org', 'leave', 'cli-acme'])).out, 'You have left cli-acme.\n');
    const log = await bob.command.run(['org', 'audit']);
    const actions = log.out.trim().split('\n').map((line) => z.object({ action: z.string() }).parse(JSON.parse(line)).action);
    assert.deepEqual(actions.slice(0, 4), ['audit.exported', 'member.left', 'organization.transferred', 'member.role_changed']);
    assert.match((await bob.command.run(['org', 'audit', '--format', 'csv'])).out, /^id,/);

    assert.match(await refused(bob, ['org', 'delete', 'cli-acme']), /^2 .*Repeat with --confirm cli-acme\./);
    assert.equal((await bob.command.run(['org', 'delete', 'cli-acme', '--confirm', 'cli-acme'])).out, 'cli-acme is deleted.\n');
    for (const { command } of [ada, bob]) assert.deepEqual(await command.json(['org', 'list'], listed), { organizations: [] });
  });

  test('cli for organizations - a key is made, serves as token, is listed by its prefix and ends; a removed member sees nothing more [KEY-001] [KEY-010] [ORG-052]', async () => {
    const ada = await signedIn('key-ada@example.com');
    const bob = await signedIn('key-bob@example.com');
    const { id } = await ada.command.json(['org', 'create', 'cli-keys'], organizationCreated);
    assert.equal((await ada.command.run(['org', 'invite', bob.person.email, '--role', 'viewer'])).code, 0);
    await join(bob);
    const made = await ada.command.json(['keys', 'create', 'ci', '--scope', 'org.read', 'member.list'], apiKey.extend({ key: z.string() }));
    const env = { TROUPE_TOKEN: made.key };
    assert.equal((await ada.command.json(['org', 'members', '--org', id], members, { env })).members.length, 2);
    const status = await ada.command.run(['auth', 'status', '--json'], { env });
    assert.deepEqual(JSON.parse(status.out), { authenticated: true, source: 'env', expiresAt: null });
    const shown = await ada.command.run(['keys', 'list']);
    assert.match(shown.out, new RegExp(`^${made.id}  ${made.keyPrefix}…  valid  used .*  ci  org\\.read member\\.list\\n$`));
    assert.ok(!shown.out.includes(made.key));
    const chat = await ada.command.run(['chat', 'hello'], { env });
    assert.deepEqual([chat.code, /An API key holds no session/.test(chat.err)], [2, true]);
    assert.equal((await ada.command.run(['keys', 'revoke', made.id])).out, `${made.id} is revoked.\n`);
    const ended = await ada.command.run(['org', 'members', '--org', id], { env });
    assert.deepEqual([ended.code, /troupe: unauthorized/.test(ended.err)], [4, true]);

    assert.equal((await bob.command.run(['org', 'members'])).code, 0);
    assert.equal((await ada.command.run(['org', 'remove', bob.person.email])).out, 'key-bob@example.com is no longer in cli-keys.\n');
    assert.match(await refused(bob, ['org', 'members', '--org', id]), /^4 troupe: not_found: You are in no organization org_/);
  });

  test('cli for organizations - a chat in an organization is there and nowhere else; it ends with the membership [TOK-045] [ORG-052]', async () => {
    const ada = await signedIn('chat-ada@example.com');
    const bob = await signedIn('chat-bob@example.com');
    const env = { TROUPE_API_BASE: '' };
    assert.equal((await ada.command.run(['org', 'create', 'cli-chat'])).code, 0);
    assert.equal((await ada.command.run(['org', 'invite', bob.person.email, '--role', 'member'])).code, 0);
    await join(bob);
    const said = await bob.command.run(['chat', '--org', 'cli-chat', '--json', '/say hello there'], { env });
    assert.equal(said.code, 0, said.out + said.err);
    const { sid } = z.object({ sid: z.string() }).parse(JSON.parse(said.out.split('\n')[0] ?? ''));
    assert.match((await bob.command.run(['chat', '--org', 'cli-chat', '--sid', sid, '/say and again'], { env })).out, /^and again\n$/);
    assert.match((await bob.command.run(['replay', '--org', 'cli-chat', sid, '--json'], { env })).err, /"lost":0,"repeated":0/);
    const elsewhere = await bob.command.run(['chat', '--sid', sid, '/say where'], { env });
    assert.deepEqual([elsewhere.code, /session_not_found/.test(elsewhere.err)], [4, true]);

    const running = bob.command.start(['chat', '--org', 'cli-chat', '/slow 50 2000'], { env });
    await running.saw('w20 ');
    assert.equal((await ada.command.run(['org', 'remove', bob.person.email])).code, 0);
    const ended = await running.ended;
    assert.equal(ended.code, 4, ended.err);
    const after_ = await bob.command.run(['chat', '--org', 'cli-chat', '/say no more'], { env });
    assert.deepEqual([after_.code, /You are in no organization cli-chat/.test(after_.err)], [4, true]);
    assert.match((await bob.command.run(['chat', '/say my own'], { env })).out, /^my own\n$/);
  });

  test('cli for organizations - refusals: exit code, the code, and what to do', async () => {
    const ada = await signedIn('no-ada@example.com');
    const bob = await signedIn('no-bob@example.com');
    assert.equal((await ada.command.run(['org', 'create', 'cli-no'])).code, 0);
    assert.equal((await ada.command.run(['org', 'invite', bob.person.email, '--role', 'member'])).code, 0);
    await join(bob);
    const cases: [who: Signed, args: string[], said: RegExp][] = [
      [bob, ['org', 'invite', 'x@example.com'], /^4 troupe: forbidden: .*\nYour role .* ask an owner or an admin/],
      [bob, ['keys', 'create', 'mine'], /^4 troupe: forbidden: /],
      [bob, ['org', 'role', bob.person.email, 'owner'], /^4 troupe: forbidden: /],
      [bob, ['org', 'show', '--org', 'nowhere'], /^4 troupe: not_found: You are in no organization nowhere\.[^]*`troupe org list`/],
      [ada, ['org', 'remove', 'stranger@example.com'], /^4 troupe: not_found: stranger@example\.com is not a member\. `troupe org members`/],
      [bob, ['org', 'join', `${platform.baseUrl}/invite?token=none`], /^4 troupe: (not_found|validation_error): /],
      [ada, ['org', 'create', 'admin'], /^4 troupe: validation_error: .*\n {2}slug is a reserved word; choose another\n/],
      [ada, ['org', 'create', 'Ünïcode'], /^4 troupe: validation_error: .*\n {2}slug /],
      [ada, ['org', 'create', 'cli-no'], /^4 troupe: conflict: The slug is taken\.\n/],
      [ada, ['org', 'invite', bob.person.email], /^4 troupe: conflict: /],
      [ada, ['org', 'invite', 'not an address'], /^4 troupe: validation_error: .*\n {2}email /],
      [ada, ['org', 'remove', ada.person.email], /^4 troupe: .*owner/],
      [ada, ['org', 'role', bob.person.email, 'king'], /^2 error: .*king/],
      [ada, ['keys', 'create', 'k', '--scope', 'org.delete'], /^2 error: .*org\.delete/],
    ];
    for (const [who, args, said] of cases) assert.match(await refused(who, args), said, args.join(' '));
    for (const name of ['one', 'two']) assert.equal((await ada.command.run(['keys', 'create', name])).code, 0);
    assert.match(await refused(ada, ['keys', 'create', 'three']), /^4 troupe: plan_limit: .*\n {2}at most 2 on this plan; .*\/pricing/);
    const asJson = await ada.command.run(['keys', 'create', 'three', '--json']);
    assert.deepEqual([asJson.code, z.looseObject({ code: z.string(), details: z.looseObject({ limit: z.int() }) }).parse(JSON.parse(asJson.out)).details.limit], [4, 2]);
    assert.equal((await ada.command.run(['org', 'create', 'cli-second'])).code, 0);
    assert.match(await refused(ada, ['org', 'show']), /^2 troupe: bad_usage: Name one of your organizations with --org: .*cli-no/);
  });
});
