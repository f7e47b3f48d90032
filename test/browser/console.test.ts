/**
 * The console of accounts and organizations in a real Chromium against the whole stack: what a person can do there, errors at their
 * fields, and the chat page of who is signed in.
 */
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { after, afterEach, before, test } from 'node:test';
import { z } from 'zod';
import { authRoutes } from '../../contracts/auth-routes.ts';
import { organizationRoutes } from '../../contracts/organization-routes.ts';
import { confirm, ConsoleWorld, row, tabs } from '../harness/console-world.ts';
import { answered, type TestPlatform } from '../harness/platform.ts';

let world: ConsoleWorld;
let platform: TestPlatform;

before(async () => {
  world = await ConsoleWorld.start();
  ({ platform } = world);
});
after(() => world.stop());
afterEach(() => world.endTest());

test('console - a newcomer signs up, makes an organization, invites somebody who signs up and joins, changes the role, removes: access ends at once [ORG-038] [ORG-041] [ORG-052]', async () => {
  const owner = await world.newPage();
  const ownerEmail = world.newEmail();
  await owner.goto(world.url('/console'));
  await owner.getByRole('link', { name: 'Sign in' }).click();
  await owner.getByLabel('E-mail address').fill(ownerEmail);
  await owner.getByRole('button', { name: 'Send me a code' }).click();
  const code = async (email: string): Promise<string> => /(?<!\d)\d{8}(?!\d)/.exec((await platform.outbox.next(email)).text)?.[0] ?? '';
  await owner.getByLabel('Code').fill(await code(ownerEmail));
  await owner.getByRole('button', { name: 'Sign in' }).click();
  await owner.getByText('You are in no organization yet').waitFor();
  await owner.getByRole('textbox', { name: 'Name' }).fill('Acme & Söhne GmbH');
  assert.equal(await owner.getByLabel('Address').inputValue(), 'acme-sohne-gmbh');
  await owner.getByRole('button', { name: 'Create organization' }).click();
  await owner.getByRole('heading', { level: 1, name: 'Acme & Söhne GmbH' }).waitFor();
  await owner.getByRole('link', { name: 'Invitations' }).click();
  const guestEmail = world.newEmail();
  await owner.getByLabel('E-mail address').fill(guestEmail);
  await owner.getByLabel('Role').selectOption('viewer');
  await owner.getByRole('button', { name: 'Send invitation' }).click();
  await row(owner, guestEmail).getByText('viewer · until').waitFor();

  const guest = await world.newPage();
  await guest.goto(await world.inviteLink(guestEmail));
  await guest.getByRole('heading', { name: 'Join Acme & Söhne GmbH' }).waitFor();
  await guest.getByRole('link', { name: 'Sign in or create an account' }).click();
  await guest.getByLabel('E-mail address').fill(guestEmail);
  await guest.getByRole('button', { name: 'Send me a code' }).click();
  await guest.getByLabel('Code').fill(await code(guestEmail));
  await guest.getByRole('button', { name: 'Sign in' }).click();
  await guest.getByRole('button', { name: 'Join Acme & Söhne GmbH' }).click();
  await row(guest, guestEmail).getByText('viewer', { exact: true }).waitFor();
  assert.deepEqual(await tabs(guest), ['Members', 'Audit log', 'Plan', 'Deployments']);

  await owner.getByRole('link', { name: 'Members' }).click();
  await owner.getByLabel(`Role of ${guestEmail}`).selectOption('admin');
  await owner.getByRole('button', { name: 'Change role' }).click();
  await owner.getByText(`${guestEmail} is now admin`).waitFor();
  await guest.reload();
  await guest.getByRole('link', { name: 'Settings' }).waitFor();
  assert.deepEqual(await tabs(guest), ['Members', 'Invitations', 'API keys', 'Audit log', 'Plan', 'Deployments', 'Settings']);

  await owner.getByRole('button', { name: `Remove ${guestEmail}` }).click();
  await confirm(owner, 'Remove');
  await row(owner, guestEmail).waitFor({ state: 'detached' });
  await owner.waitForFunction(() => document.activeElement?.id === 'view');
  await guest.getByRole('link', { name: 'Audit log' }).click();
  await guest.getByRole('alert').getByText('There is nothing here').waitFor();
  await guest.reload();
  await guest.getByRole('alert').getByText('There is no such organization').waitFor();
});

test('console - a taken or reserved address and an empty answer are said at the field, which gets the focus', async () => {
  const person = await world.signUp();
  const { slug } = await world.newOrganization(person);
  const page = await world.newPage(person);
  await page.goto(world.url('/console'));
  const address = page.getByLabel('Address');
  for (const [typed, said] of [[slug, /taken/], ['admin', /reserved/], ['Ünïcode', /a-z/]] as const) {
    await page.getByRole('textbox', { name: 'Name' }).fill('Another');
    await address.fill(typed);
    await page.getByRole('button', { name: 'Create organization' }).click();
    await page.waitForFunction(() => document.activeElement?.getAttribute('name') === 'slug');
    const problem = page.locator(`#${await address.getAttribute('aria-describedby').then((ids) => ids?.split(' ').at(-1))}`);
    await problem.getByText(said).waitFor();
    assert.equal(await address.getAttribute('aria-invalid'), 'true');
  }
  await page.getByRole('textbox', { name: 'Name' }).click();
  await page.keyboard.type(' and more');
  assert.equal(await page.getByRole('textbox', { name: 'Name' }).inputValue(), 'Another and more', 'what is written elsewhere stays there');
});

test('console - an API key is shown once, works, is listed by its prefix and refused after revocation [KEY-001] [KEY-003] [KEY-004]', async () => {
  const owner = await world.signUp();
  const { id } = await world.newOrganization(owner);
  const page = await world.newPage(owner);
  await page.goto(world.url(`/console/keys?org=${id}`));
  await page.getByRole('textbox', { name: 'Name' }).fill('CI');
  await page.getByRole('button', { name: 'Create key' }).click();
  await page.getByRole('alert').getByText('Choose at least one permission').waitFor();
  await page.getByLabel('org.read').check();
  await page.getByRole('button', { name: 'Create key' }).click();
  const key = await page.getByLabel('API key', { exact: true }).inputValue();
  assert.match(key, /^trp_sk_/);
  const use = async (): Promise<number> => (await platform.api('GET', `${organizationRoutes.readOrganization.path}?orgId=${id}`, { token: key })).status;
  assert.equal(await use(), 200);
  await page.getByRole('button', { name: 'I have kept it' }).click();
  assert.ok(!(await page.content()).includes(key));
  await page.reload();
  await row(page, 'CI').getByText('org.read', { exact: true }).waitFor();
  assert.ok(!(await page.content()).includes(key));
  await page.getByRole('button', { name: 'Revoke the key CI' }).click();
  await confirm(page, 'Revoke');
  await row(page, 'CI').getByText(/^revoked/).waitFor();
  assert.equal(await use(), 401);
});

test('console - sign-ins are listed and ended: a token revoked here is refused, and so is the other browser [TOK-035]', async () => {
  const person = await world.signUp();
  const made = answered(await platform.api('POST', authRoutes.makeApiToken.path, { cookie: person.cookie, csrf: person.csrf, json: {} }), 200, z.object({ token: z.string() }));
  const other = await platform.signUp(person.email, { localAddress: '127.0.2.1' });
  const status = async (token: string): Promise<number> => (await platform.api('GET', authRoutes.me.path, { token })).status;
  const page = await world.newPage(person);
  await page.goto(world.url('/console/account'));
  await row(page, 'API token').getByRole('button').click();
  await confirm(page, 'End it');
  await row(page, 'API token').waitFor({ state: 'detached' });
  assert.deepEqual([await status(made.token), await status(other.accessToken)], [401, 200]);
  await page.getByRole('button', { name: 'End all sign-ins' }).click();
  await confirm(page, 'End all');
  await page.getByRole('heading', { name: 'You are not signed in' }).waitFor();
  assert.equal(await status(other.accessToken), 401);
  await page.goto(world.url('/legal'));
  assert.equal(await page.getByRole('button', { name: 'Sign out' }).count(), 0);
});

test('console - settings: what is wrong is said at its field, only what was changed is sent, deletion wants the address typed [ORG-021] [ORG-022] [ORG-029]', async () => {
  const owner = await world.signUp();
  const { id, slug, name } = await world.newOrganization(owner);
  const page = await world.newPage(owner);
  await page.goto(world.url(`/console/settings?org=${id}`));
  const webhook = page.getByLabel('Webhook address');
  await webhook.fill('http://plain.example/hook');
  const [first] = await Promise.all([page.waitForRequest((r) => r.method() === 'PATCH'), page.getByRole('button', { name: 'Save' }).click()]);
  assert.deepEqual(first.postDataJSON(), { orgId: id, settings: { webhookUrl: 'http://plain.example/hook' } });
  await page.getByRole('alert').getByText(/https/).waitFor();
  await webhook.fill('');
  await page.getByLabel('Default model').fill('no-such-model');
  await page.getByRole('button', { name: 'Save' }).click();
  await page.getByRole('alert').getByText('no such model').waitFor();
  await page.getByLabel('Default model').fill('mock');
  await page.getByLabel('Days that conversations are kept').fill('soon');
  await page.getByRole('button', { name: 'Save' }).click();
  await page.getByRole('alert').getByText('whole number of days').waitFor();
  await page.getByLabel('Days that conversations are kept').fill('30');
  await page.getByRole('textbox', { name: 'Name' }).fill('Renamed');
  const [request] = await Promise.all([page.waitForRequest((r) => r.method() === 'PATCH'), page.getByRole('button', { name: 'Save' }).click()]);
  assert.deepEqual(request.postDataJSON(), { orgId: id, name: 'Renamed', settings: { retentionDays: 30 } });
  await page.getByRole('heading', { level: 1, name: 'Renamed' }).waitFor();
  await webhook.fill('https://hooks.example.com/troupe');
  await page.getByRole('button', { name: 'Save' }).click();
  await page.getByRole('button', { name: 'Show signing secret' }).click();
  assert.match(await page.getByLabel('Signing secret').inputValue(), /^whsec_/);

  await page.getByRole('button', { name: 'Delete organization' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Delete for good' }).click({ force: true });
  await page.getByLabel(`Write ${slug} to confirm`).fill(name);
  await page.keyboard.press('Enter');
  const read = async (): Promise<number> => (await platform.api('GET', `${organizationRoutes.readOrganization.path}?orgId=${id}`, { token: owner.accessToken })).status;
  assert.equal(await read(), 200, 'not without the word');
  await page.getByLabel(`Write ${slug} to confirm`).fill(slug);
  await page.keyboard.press('Enter');
  await page.getByText('You are in no organization yet').waitFor();
  assert.equal(await read(), 404);
});

test('console - dead letters of the webhook are listed and sent again; the reason for a refusal stands beside them', async () => {
  const owner = await world.signUp();
  const { id } = await world.newOrganization(owner);
  const page = await world.newPage(owner);
  const letters = ['evt_1', 'evt_2'].map((letter) => ({ id: letter, type: 'member.joined', created: '2026-01-01T00:00:00.000Z', attempts: 9, lastError: 'status 500' }));
  let sentAgain: unknown;
  await page.route((address) => address.pathname === organizationRoutes.webhook.path, (route) => route.fulfill({ json: { url: 'https://hooks.example.com/', secret: 'whsec_x', deadLetters: letters } }));
  await page.route((address) => address.pathname === organizationRoutes.redeliver.path, (route) => {
    sentAgain = route.request().postDataJSON();
    letters.shift();
    return letters.length === 1 ? route.fulfill({ json: {} }) : route.fulfill({ status: 409, json: { error: { code: 'conflict', message: 'There is no address to send to.' } } });
  });
  await page.goto(world.url(`/console/settings?org=${id}`));
  await row(page, 'status 500').nth(1).waitFor();
  await page.getByRole('button', { name: 'Send member.joined evt_1 again' }).click();
  await page.getByRole('button', { name: 'Send member.joined evt_1 again' }).waitFor({ state: 'detached' });
  assert.deepEqual(sentAgain, { orgId: id, id: 'evt_1' });
  await page.getByRole('button', { name: 'Send member.joined evt_2 again' }).click();
  await row(page, 'status 500').getByRole('alert').getByText('no address').waitFor();
});

test('console - the owner hands over and is an admin from then on; a member can leave [ORG-058]', async () => {
  const owner = await world.signUp();
  const { id } = await world.newOrganization(owner);
  const member = await world.addMember(owner, id, 'member');
  const page = await world.newPage(owner);
  await page.goto(world.url(`/console/settings?org=${id}`));
  await page.getByRole('button', { name: 'Hand over' }).click();
  await confirm(page, 'Hand over');
  await page.getByText('the owner sets this').waitFor();
  assert.equal(await page.getByRole('button', { name: 'Delete organization' }).count(), 0);
  const theirs = await world.newPage(member);
  await theirs.goto(world.url(`/console/settings?org=${id}`));
  await theirs.getByRole('button', { name: 'Delete organization' }).waitFor();
  await page.getByRole('link', { name: 'Members' }).click();
  assert.equal(await page.getByRole('button', { name: `Remove ${member.email}` }).count(), 0, 'an admin does not remove the owner');
  await page.getByRole('button', { name: /^Leave/ }).click();
  await confirm(page, 'Leave');
  await page.getByText('You are in no organization yet').waitFor();
});

test('console - the audit log is exported as a file [AUD-002] [AUD-003]', async () => {
  const owner = await world.signUp();
  const { id, slug } = await world.newOrganization(owner);
  const page = await world.newPage(owner);
  await page.goto(world.url(`/console/audit?org=${id}`));
  for (const [button, file, start] of [['Export CSV', `audit-${slug}.csv`, /^id,/], ['Export JSONL', `audit-${slug}.jsonl`, /^\{"id"/]] as const) {
    const [download] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: button }).click()]);
    assert.equal(download.suggestedFilename(), file);
    assert.match(await readFile(await download.path(), 'utf8'), start);
  }
});

test('console - the terms are asked for until they are accepted; signing out ends the session [TOK-062]', async () => {
  const person = await world.signUp();
  const page = await world.newPage(person);
  await page.goto(world.url('/console/account'));
  await page.getByRole('link', { name: 'Read and accept them' }).click();
  for (const box of await page.getByRole('checkbox').all()) await box.check();
  await page.getByRole('button', { name: 'Accept and continue' }).click();
  await page.waitForURL(world.url('/console/account'));
  await row(page, 'this one').waitFor();
  assert.equal(await page.getByRole('link', { name: 'Read and accept them' }).count(), 0);
  await page.getByRole('button', { name: 'Sign out' }).click();
  await page.waitForURL(world.url('/signin'));
  await page.goto(world.url('/console/account'));
  await page.getByRole('heading', { name: 'You are not signed in' }).waitFor();
});

test('chat page - serves who is signed in with a gateway token of their own, in no storage, until the sign-in ends [TOK-045] [TOK-046]', async () => {
  const person = await world.signUp();
  const page = await world.newPage(person);
  await page.goto(platform.baseUrl);
  await page.getByText('Talk to an agent').waitFor();
  await page.getByLabel('Message', { exact: true }).fill('hello');
  await page.keyboard.press('Enter');
  await page.getByText('answer complete').waitFor();
  await page.reload();
  await page.locator('.said').first().waitFor();
  assert.equal(await page.evaluate(() => sessionStorage.getItem('troupe.token')), null);
  await page.getByText('connected', { exact: true }).waitFor();
  const ended = await platform.api('POST', authRoutes.revoke.path, { token: person.accessToken, json: { all: true } });
  assert.equal(ended.status, 200, ended.body);
  await page.getByRole('alert').getByRole('link', { name: 'Sign in again' }).waitFor();
  const stranger = await world.newPage();
  await stranger.goto(platform.baseUrl);
  await stranger.getByRole('link', { name: 'Sign in or create an account' }).waitFor();
});
