/**
 * The whole way of a newcomer, in Chromium and with the real `troupe` command, against a whole Troupe of two gateways on one port and two
 * daemons: signs up in the browser, accepts the terms, approves a command line, makes an organization, invites a second person who joins,
 * makes a key and uses it, is removed and loses access at once: on the page, on the command line, over HTTP and in what is running.
 */
import assert from 'node:assert/strict';
import { after, afterEach, before, test } from 'node:test';
import type { Page } from 'playwright-core';
import { z } from 'zod';
import { authRoutes, tokenAnswer } from '../../contracts/auth-routes.ts';
import { chatRoutes } from '../../contracts/chat-routes.ts';
import { organizationRoutes } from '../../contracts/organization-routes.ts';
import { organizationListed } from '../../contracts/organization.ts';
import { routes } from '../../contracts/routes.ts';
import { confirm, ConsoleWorld, row } from '../harness/console-world.ts';
import { commandLine, openStream, shownCode } from '../harness/newcomer.ts';
import { answered, type TestPlatform } from '../harness/platform.ts';

let world: ConsoleWorld;
let platform: TestPlatform;

before(async () => {
  world = await ConsoleWorld.start({ gateways: 2, daemons: 2, onePort: true });
  ({ platform } = world);
});
after(() => world.stop());
afterEach(() => world.endTest());

const signIn = async (page: Page, email: string): Promise<void> => {
  await page.getByLabel('E-mail address').fill(email);
  await page.getByRole('button', { name: 'Send me a code' }).click();
  const code = /(?<!\d)\d{8}(?!\d)/.exec((await platform.outbox.next(email)).text)?.[0] ?? assert.fail('no code in the mail');
  await page.getByLabel('Code').fill(code);
  await page.getByRole('button', { name: 'Sign in' }).click();
};
const acceptTerms = async (page: Page): Promise<void> => {
  await page.goto(world.url('/console/account'));
  await page.getByRole('link', { name: 'Read and accept them' }).click();
  for (const box of await page.getByRole('checkbox').all()) await box.check();
  await page.getByRole('button', { name: 'Accept and continue' }).click();
  await page.waitForURL(world.url('/console/account'));
};
const status = z.strictObject({ authenticated: z.boolean(), source: z.string(), expiresAt: z.iso.datetime() });
const organizations = z.strictObject({ organizations: z.array(organizationListed) });

test('newcomer - signs up, approves the command line, makes an organization, invites; who joined makes a key and uses it, is removed, and all of it ends at once [DEV-030] [ORG-010] [ORG-038] [ORG-041] [ORG-052] [KEY-001] [CLI-008] [CLI-014]', { timeout: 180_000 }, async (t) => {
  // A newcomer signs up in the browser and accepts the terms.
  const ada = world.newEmail();
  const page = await world.newPage();
  await page.goto(world.url('/signin'));
  await signIn(page, ada);
  await acceptTerms(page);

  // Their command line shows an address and a code; the page of that address approves it.
  const mine = await commandLine(t, platform);
  const login = mine.start(['auth', 'login']);
  const { url, userCode } = await shownCode(login);
  await page.goto(url);
  await page.getByText(userCode, { exact: true }).waitFor();
  await page.getByRole('button', { name: 'Approve' }).click();
  await page.getByRole('heading', { name: 'Approved' }).waitFor();
  const signedIn = await login.ended;
  assert.equal(signedIn.code, 0, signedIn.err);
  assert.ok(signedIn.out.includes(ada));
  const seen = await mine.json(['auth', 'status'], status);
  assert.deepEqual([seen.authenticated, seen.source], [true, 'config-file']);

  // An organization, made on the page, seen by the command, which invites a second person.
  await page.goto(world.url('/console'));
  await page.getByRole('textbox', { name: 'Name' }).fill('Acme');
  await page.getByRole('textbox', { name: 'Address' }).fill('newcomers-acme');
  await page.getByRole('button', { name: 'Create organization' }).click();
  await page.getByRole('heading', { level: 1, name: 'Acme' }).waitFor();
  const { organizations: [acme] } = await mine.json(['org', 'list'], organizations);
  assert.deepEqual([acme?.slug, acme?.role], ['newcomers-acme', 'owner']);
  const orgId = acme?.id ?? '';
  const bob = world.newEmail();
  const invited = await mine.run(['org', 'invite', bob, '--role', 'admin']);
  assert.equal(invited.code, 0, invited.err);

  // The second opens the mailed link in a browser of their own, signs up, joins, accepts the terms, makes a token for their command line.
  const theirs = await world.newPage();
  await theirs.goto(await world.inviteLink(bob));
  await theirs.getByRole('link', { name: 'Sign in or create an account' }).click();
  await signIn(theirs, bob);
  await theirs.getByRole('button', { name: 'Join Acme' }).click();
  await row(theirs, bob).waitFor();
  await acceptTerms(theirs);
  await theirs.goto(world.url(authRoutes.apiToken.path));
  await theirs.getByRole('button', { name: 'Make a token' }).click();
  const token = await theirs.getByLabel('Token', { exact: true }).inputValue();
  const other = await commandLine(t, platform);
  const pasted = await other.run(['auth', 'login', '--manual'], { input: `${token}\n` });
  assert.equal(pasted.code, 0, pasted.err);
  assert.ok(!`${pasted.out}${pasted.err}`.includes(token), 'the token is not printed');

  // They make a key on the command line, and use it: the organization's members, and a chat that the organization pays for.
  const made = await other.run(['keys', 'create', 'CI', '--scope', 'member.list', '--scope', 'chat.create']);
  assert.equal(made.code, 0, made.err);
  const key = made.out.trim();
  const members = async (bearer: string): Promise<number> => (await platform.api('GET', `${organizationRoutes.members.path}?orgId=${orgId}`, { token: bearer })).status;
  const complete = async (): Promise<number> =>
    (await platform.api('POST', chatRoutes.completions.path, { token: key, json: { model: 'mock', messages: [{ role: 'user', content: 'hello' }] } })).status;
  assert.deepEqual([await members(key), await complete(), await members(token)], [200, 200, 200]);

  // They chat in the organization: on the page, and with a program; and in their own workspace.
  const gatewayToken = async (body: object): Promise<string> =>
    answered(await platform.api('POST', authRoutes.gatewayToken.path, { token, json: body }), 200, tokenAnswer).access_token;
  const { id: userId } = answered(await platform.api('GET', authRoutes.me.path, { token }), 200, z.object({ id: z.string() }));
  const within = await gatewayToken({ orgId });
  const streams = [await openStream(t, platform, within, userId), await openStream(t, platform, within, userId)];
  const ownStream = await openStream(t, platform, await gatewayToken({}), userId);
  const chat = await theirs.context().newPage();
  await chat.goto(world.url(`/?org=${orgId}`));
  await chat.getByLabel('Message', { exact: true }).fill('hello');
  await chat.keyboard.press('Enter');
  await chat.getByText('answer complete').waitFor();

  // They are removed: nothing of the organization answers them any more, what is theirs stays.
  await theirs.goto(world.url(`/console/members?org=${orgId}`));
  await row(theirs, bob).waitFor();
  await page.reload();
  await page.getByRole('button', { name: `Remove ${bob}` }).click();
  await confirm(page, 'Remove');
  await row(page, bob).waitFor({ state: 'detached' });
  assert.equal(await members(token), 404);
  assert.equal((await platform.api('POST', authRoutes.gatewayToken.path, { token, json: { orgId } })).status, 404);
  assert.equal((await platform.api('POST', routes.createSession.path, { token: within, json: { user_id: userId, project_id: 'p' } })).status, 401);
  for (const stream of streams) assert.equal((await stream.closed).code, 1008);
  await chat.getByRole('alert').waitFor();
  await theirs.getByRole('link', { name: 'Audit log' }).click();
  await theirs.getByRole('alert').getByText('There is nothing here').waitFor();
  const listed = await other.run(['org', 'members', '--org', orgId]);
  assert.equal(listed.code, 4);
  assert.match(listed.err, /no organization/);
  assert.deepEqual(await other.json(['org', 'list'], organizations), { organizations: [] });
  assert.equal((await other.json(['auth', 'status'], status)).authenticated, true);
  await ownStream.chat('still here');

  // The key is the organization's; it ends when it is revoked.
  assert.deepEqual([await members(key), await complete()], [200, 200]);
  await page.getByRole('link', { name: 'API keys' }).click();
  await page.getByRole('button', { name: 'Revoke the key CI' }).click();
  await confirm(page, 'Revoke');
  await row(page, 'CI').getByText(/^revoked/).waitFor();
  assert.deepEqual([await members(key), await complete()], [401, 401]);
  assert.equal((await mine.run(['auth', 'status'], { env: { TROUPE_TOKEN: key } })).code, 4);

  // The log on the page tells the story.
  await page.getByRole('link', { name: 'Audit log' }).click();
  await row(page, 'api_key.revoked').waitFor();
  const told = await page.getByRole('region', { name: 'Audit log' }).getByRole('listitem').locator('strong').allInnerTexts();
  assert.deepEqual(told, ['api_key.revoked', 'member.removed', 'api_key.created', 'member.joined', 'member.invited', 'organization.created']);
});

test('newcomer - a command line that is denied in the browser says so, stores nothing and ends with an error [CLI-012]', { timeout: 60_000 }, async (t) => {
  const person = await world.signUp();
  const command = await commandLine(t, platform);
  const login = command.start(['auth', 'login']);
  const page = await world.newPage(person);
  await page.goto((await shownCode(login)).url);
  await page.getByRole('button', { name: 'Deny' }).click();
  await page.getByRole('heading', { name: 'Denied' }).waitFor();
  const ended = await login.ended;
  assert.deepEqual([ended.code, ended.out], [4, '']);
  assert.match(ended.err, /access_denied/);
  assert.equal(await command.config(), undefined);
});
