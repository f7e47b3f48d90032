/**
 * The console of accounts and organizations in a real Chromium against the whole stack: what a person can do there, what a lower role
 * does not get to see, errors at their fields, tokens in memory only. Screenshots go into TROUPE_SCREENSHOTS when it names a folder.
 */
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { after, afterEach, before, test } from 'node:test';
import type { Browser, BrowserContext, Locator, Page } from 'playwright-core';
import { z } from 'zod';
import { authRoutes } from '../../contracts/auth-routes.ts';
import { organizationCreated } from '../../contracts/organization.ts';
import { organizationRoutes } from '../../contracts/organization-routes.ts';
import { cookieNames } from '../../contracts/platform.ts';
import { launchBrowser } from '../harness/browser.ts';
import { axeViolations, complaintsOf, shots } from '../harness/page-check.ts';
import { answered, startPlatform, type Person, type TestPlatform } from '../harness/platform.ts';

let platform: TestPlatform;
let browser: Browser;
let turn = 0;
const contexts: BrowserContext[] = [];
const complaints: string[][] = [];

before(async () => {
  [platform, browser] = await Promise.all([startPlatform(undefined, { gateway: { auth: { platform: true } } }), launchBrowser()]);
});
after(async () => {
  await browser.close();
  await platform.stop();
});
afterEach(async () => {
  await Promise.all(contexts.splice(0).map((context) => context.close()));
  assert.deepEqual(complaints.splice(0).flat(), []);
});

const url = (path: string): string => `${platform.baseUrl}${path}`;
const newEmail = (): string => `console-${++turn}@example.com`;
/** Sign-ups are counted per address of the network: each person has one. */
const signUp = (email = newEmail()): Promise<Person> => platform.signUp(email, { localAddress: `127.0.1.${turn}` });

const newPage = async (person?: Person): Promise<Page> => {
  const context = await browser.newContext({ ignoreHTTPSErrors: true, acceptDownloads: true });
  contexts.push(context);
  if (person !== undefined) await context.addCookies([{ name: cookieNames.session, value: person.cookie, url: platform.baseUrl, secure: true, httpOnly: true, sameSite: 'Lax' }]);
  const page = await context.newPage();
  page.setDefaultTimeout(15_000);
  complaints.push(complaintsOf(page));
  return page;
};

const newOrganization = async (owner: Person, name = `Org ${turn}`): Promise<{ id: string; slug: string; name: string }> =>
  answered(await platform.api('POST', organizationRoutes.createOrganization.path, { token: owner.accessToken, json: { name, slug: `org-${++turn}` } }), 201, organizationCreated);

/** The link in the invitation's mail. */
const inviteLink = async (email: string): Promise<string> => {
  const { text } = await platform.outbox.next(email);
  return /https:\/\/\S+\/invite\?token=\S+/.exec(text)?.[0] ?? assert.fail(`no link in the mail:\n${text}`);
};
const addMember = async (owner: Person, orgId: string, role: 'admin' | 'member' | 'viewer'): Promise<Person> => {
  const person = await signUp();
  const invited = await platform.api('POST', organizationRoutes.invite.path, { token: owner.accessToken, json: { orgId, email: person.email, role } });
  assert.equal(invited.status, 200, invited.body);
  const token = new URL(await inviteLink(person.email)).searchParams.get('token');
  const accepted = await platform.api('POST', organizationRoutes.acceptInvitation.path, { token: person.accessToken, json: { token } });
  assert.equal(accepted.status, 200, accepted.body);
  return person;
};

const tabs = (page: Page): Promise<string[]> => page.getByRole('navigation', { name: /^Views of/ }).getByRole('link').allInnerTexts();
const row = (page: Page, text: string): Locator => page.getByRole('listitem').filter({ hasText: text });
const confirm = (page: Page, name: string): Promise<void> => page.getByRole('dialog').getByRole('button', { name, exact: true }).click();

test('console - a newcomer signs up, makes an organization, invites somebody who signs up and joins, changes the role, removes: access ends at once [ORG-038] [ORG-041] [ORG-052]', async () => {
  const owner = await newPage();
  const ownerEmail = newEmail();
  await owner.goto(url('/console'));
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
  const guestEmail = newEmail();
  await owner.getByLabel('E-mail address').fill(guestEmail);
  await owner.getByLabel('Role').selectOption('viewer');
  await owner.getByRole('button', { name: 'Send invitation' }).click();
  await row(owner, guestEmail).getByText('viewer · until').waitFor();

  const guest = await newPage();
  await guest.goto(await inviteLink(guestEmail));
  await guest.getByRole('heading', { name: 'Join Acme & Söhne GmbH' }).waitFor();
  await guest.getByRole('link', { name: 'Sign in or create an account' }).click();
  await guest.getByLabel('E-mail address').fill(guestEmail);
  await guest.getByRole('button', { name: 'Send me a code' }).click();
  await guest.getByLabel('Code').fill(await code(guestEmail));
  await guest.getByRole('button', { name: 'Sign in' }).click();
  await guest.getByRole('button', { name: 'Join Acme & Söhne GmbH' }).click();
  await row(guest, guestEmail).getByText('viewer', { exact: true }).waitFor();
  assert.deepEqual(await tabs(guest), ['Members', 'Audit log']);

  await owner.getByRole('link', { name: 'Members' }).click();
  await owner.getByLabel(`Role of ${guestEmail}`).selectOption('admin');
  await owner.getByRole('button', { name: 'Change role' }).click();
  await owner.getByText(`${guestEmail} is now admin`).waitFor();
  await guest.reload();
  await guest.getByRole('link', { name: 'Settings' }).waitFor();
  assert.deepEqual(await tabs(guest), ['Members', 'Invitations', 'API keys', 'Audit log', 'Settings']);

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
  const person = await signUp();
  const { slug } = await newOrganization(person);
  const page = await newPage(person);
  await page.goto(url('/console'));
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
});

test('console - an API key is shown once, works, is listed by its prefix and refused after revocation [KEY-001] [KEY-003] [KEY-004]', async () => {
  const owner = await signUp();
  const { id } = await newOrganization(owner);
  const page = await newPage(owner);
  await page.goto(url(`/console/keys?org=${id}`));
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
  const person = await signUp();
  const made = answered(await platform.api('POST', authRoutes.makeApiToken.path, { cookie: person.cookie, csrf: person.csrf, json: {} }), 200, z.object({ token: z.string() }));
  const other = await platform.signUp(person.email, { localAddress: '127.0.2.1' });
  const status = async (token: string): Promise<number> => (await platform.api('GET', authRoutes.me.path, { token })).status;
  const page = await newPage(person);
  await page.goto(url('/console/account'));
  await row(page, 'API token').getByRole('button').click();
  await confirm(page, 'End it');
  await row(page, 'API token').waitFor({ state: 'detached' });
  assert.deepEqual([await status(made.token), await status(other.accessToken)], [401, 200]);
  await page.getByRole('button', { name: 'End all sign-ins' }).click();
  await confirm(page, 'End all');
  await page.getByRole('heading', { name: 'You are not signed in' }).waitFor();
  assert.equal(await status(other.accessToken), 401);
  await page.goto(url('/legal'));
  assert.equal(await page.getByRole('button', { name: 'Sign out' }).count(), 0);
});

test('console - settings: what is wrong is said at its field, only what was changed is sent, deletion wants the address typed [ORG-021] [ORG-022] [ORG-029]', async () => {
  const owner = await signUp();
  const { id, slug, name } = await newOrganization(owner);
  const page = await newPage(owner);
  await page.goto(url(`/console/settings?org=${id}`));
  const webhook = page.getByLabel('Webhook address');
  await webhook.fill('http://plain.example/hook');
  await page.getByRole('button', { name: 'Save' }).click();
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
  const owner = await signUp();
  const { id } = await newOrganization(owner);
  const page = await newPage(owner);
  const letters = ['evt_1', 'evt_2'].map((letter) => ({ id: letter, type: 'member.joined', created: '2026-01-01T00:00:00.000Z', attempts: 9, lastError: 'status 500' }));
  let sentAgain: unknown;
  await page.route((address) => address.pathname === organizationRoutes.webhook.path, (route) => route.fulfill({ json: { url: 'https://hooks.example.com/', secret: 'whsec_x', deadLetters: letters } }));
  await page.route((address) => address.pathname === organizationRoutes.redeliver.path, (route) => {
    sentAgain = route.request().postDataJSON();
    letters.shift();
    return letters.length === 1 ? route.fulfill({ json: {} }) : route.fulfill({ status: 409, json: { error: { code: 'conflict', message: 'There is no address to send to.' } } });
  });
  await page.goto(url(`/console/settings?org=${id}`));
  await row(page, 'status 500').nth(1).waitFor();
  await page.getByRole('button', { name: 'Send member.joined evt_1 again' }).click();
  await page.getByRole('button', { name: 'Send member.joined evt_1 again' }).waitFor({ state: 'detached' });
  assert.deepEqual(sentAgain, { orgId: id, id: 'evt_1' });
  await page.getByRole('button', { name: 'Send member.joined evt_2 again' }).click();
  await row(page, 'status 500').getByRole('alert').getByText('no address').waitFor();
});

test('console - is never framed, and its addresses are those it has: another is not found', async () => {
  const console = await platform.api('GET', '/console/members');
  assert.equal(console.status, 200);
  assert.match(String(console.headers['content-security-policy']), /default-src 'none'.*frame-ancestors 'none'/);
  assert.equal((await platform.api('GET', '/console/none')).status, 404);
});

test('console - the owner hands over and is an admin from then on; a member can leave [ORG-058]', async () => {
  const owner = await signUp();
  const { id } = await newOrganization(owner);
  const member = await addMember(owner, id, 'member');
  const page = await newPage(owner);
  await page.goto(url(`/console/settings?org=${id}`));
  await page.getByRole('button', { name: 'Hand over' }).click();
  await confirm(page, 'Hand over');
  await page.getByText('the owner sets this').waitFor();
  assert.equal(await page.getByRole('button', { name: 'Delete organization' }).count(), 0);
  const theirs = await newPage(member);
  await theirs.goto(url(`/console/settings?org=${id}`));
  await theirs.getByRole('button', { name: 'Delete organization' }).waitFor();
  await page.getByRole('link', { name: 'Members' }).click();
  assert.equal(await page.getByRole('button', { name: `Remove ${member.email}` }).count(), 0, 'an admin does not remove the owner');
  await page.getByRole('button', { name: /^Leave/ }).click();
  await confirm(page, 'Leave');
  await page.getByText('You are in no organization yet').waitFor();
});

test('console - nothing of a role is drawn before the role is known, and an address does not open what the role lacks', async () => {
  const owner = await signUp();
  const { id } = await newOrganization(owner);
  const viewer = await addMember(owner, id, 'viewer');
  const page = await newPage(viewer);
  const asked = Promise.withResolvers<undefined>();
  const held = Promise.withResolvers<undefined>();
  await page.route((address) => address.pathname === '/api/organization', async (route) => {
    asked.resolve(undefined);
    await held.promise;
    await route.continue();
  });
  await page.goto(url(`/console/keys?org=${id}`));
  await asked.promise;
  assert.equal(await page.getByRole('button').count() + await page.getByRole('link').count(), 0);
  held.resolve(undefined);
  await page.getByRole('alert').getByText('needs a higher role').waitFor();
  assert.deepEqual(await tabs(page), ['Members', 'Audit log']);
  await page.getByRole('link', { name: 'Audit log' }).click();
  await row(page, owner.email).first().waitFor();
  assert.equal(await page.getByRole('button', { name: 'Export CSV' }).count(), 0);
  await page.getByRole('link', { name: 'Members' }).click();
  await row(page, viewer.email).waitFor();
  assert.equal(await page.getByRole('combobox').count(), 0);
  assert.deepEqual(await page.getByRole('main').getByRole('button').allInnerTexts(), ['Leave']);
});

test('console - the audit log is exported as a file [AUD-002] [AUD-003]', async () => {
  const owner = await signUp();
  const { id, slug } = await newOrganization(owner);
  const page = await newPage(owner);
  await page.goto(url(`/console/audit?org=${id}`));
  for (const [button, file, start] of [['Export CSV', `audit-${slug}.csv`, /^id,/], ['Export JSONL', `audit-${slug}.jsonl`, /^\{"id"/]] as const) {
    const [download] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: button }).click()]);
    assert.equal(download.suggestedFilename(), file);
    assert.match(await readFile(await download.path(), 'utf8'), start);
  }
});

test('console - names are text, never markup, in the console and on the invitation', async () => {
  const name = '<img src=x onerror="document.title=1"><b>Acme</b>';
  const owner = await signUp();
  const { id } = await newOrganization(owner, name);
  const guest = newEmail();
  const invited = await platform.api('POST', organizationRoutes.invite.path, { token: owner.accessToken, json: { orgId: id, email: guest } });
  assert.equal(invited.status, 200, invited.body);
  const page = await newPage(owner);
  for (const path of ['/console', `/console/members?org=${id}`, `/console/settings?org=${id}`]) {
    await page.goto(url(path));
    await page.getByText(name).first().waitFor();
    assert.equal(await page.locator('main img, main b').count(), 0, path);
  }
  const stranger = await newPage();
  await stranger.goto(await inviteLink(guest));
  assert.equal(await stranger.getByRole('heading', { level: 1 }).innerText(), `Join ${name}`);
  assert.equal(await stranger.locator('main img, main b').count(), 0);
  await page.goto(stranger.url());
  assert.match(await page.getByRole('alert').innerText(), new RegExp(`invitation is for ${guest}`));
  assert.equal(await page.getByRole('button', { name: /^Join/ }).count(), 0);
});

test('console - tokens are in no storage and no address; a refused one is renewed once, by all calls together', async () => {
  const person = await signUp();
  const { id } = await newOrganization(person);
  const page = await newPage(person);
  const tokens: string[] = [];
  page.on('request', (request) => {
    const token = request.headers()['authorization'];
    if (token !== undefined) tokens.push(token.slice('Bearer '.length));
  });
  let made = 0;
  page.on('request', (request) => { if (new URL(request.url()).pathname === authRoutes.sessionToken.path) made += 1; });
  await page.goto(url(`/console/settings?org=${id}`));
  await page.getByRole('button', { name: 'Hand over' }).or(page.getByText('nobody else to hand')).waitFor();
  assert.equal(made, 1);
  const kept = await page.evaluate(() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie, location.href]));
  for (const token of tokens) assert.ok(!kept.includes(token.slice(-20)));
  const revoked = await platform.api('POST', authRoutes.revoke.path, { token: tokens[0] ?? '', json: { token: tokens[0] } });
  assert.equal(revoked.status, 200, revoked.body);
  await page.getByRole('link', { name: 'Members' }).click();
  await row(page, person.email).waitFor();
  assert.equal(made, 2);
});

test('console - by keyboard alone: a skip link, a new organization, a dialog that Escape leaves with the focus back', async () => {
  const person = await signUp();
  const page = await newPage(person);
  await page.goto(url('/console'));
  await page.getByRole('textbox', { name: 'Name' }).waitFor();
  await page.keyboard.press('Tab');
  assert.equal(await page.evaluate(() => document.activeElement?.textContent), 'To the content');
  await page.keyboard.press('Enter');
  for (let i = 0; i < 4 && !(await page.getByRole('textbox', { name: 'Name' }).evaluate((node) => node === document.activeElement)); i++) await page.keyboard.press('Tab');
  await page.keyboard.type('Keys Only');
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { level: 1, name: 'Keys Only' }).waitFor();
  assert.equal(await page.evaluate(() => document.activeElement?.id), 'view', 'the new view is announced by its heading');
  const leave = page.getByRole('button', { name: 'Leave Keys Only' });
  await leave.waitFor();
  for (let i = 0; i < 12 && !(await leave.evaluate((node) => node === document.activeElement)); i++) await page.keyboard.press('Tab');
  assert.notEqual(await leave.evaluate((node) => getComputedStyle(node).outlineStyle), 'none');
  await page.keyboard.press('Enter');
  await page.getByRole('dialog').waitFor();
  await page.keyboard.press('Escape');
  assert.equal(await leave.evaluate((node) => node === document.activeElement), true);
  await page.keyboard.press('Enter');
  await page.keyboard.press('Enter');
  await page.getByRole('alert').waitFor();
  assert.equal(await page.getByRole('dialog').isVisible(), true, 'the last owner stays, and is told why');
});

test('console - the terms are asked for until they are accepted; signing out ends the session [TOK-062]', async () => {
  const person = await signUp();
  const page = await newPage(person);
  await page.goto(url('/console/account'));
  await page.getByRole('link', { name: 'Read and accept them' }).click();
  for (const box of await page.getByRole('checkbox').all()) await box.check();
  await page.getByRole('button', { name: 'Accept and continue' }).click();
  await page.waitForURL(url('/console/account'));
  await row(page, 'this one').waitFor();
  assert.equal(await page.getByRole('link', { name: 'Read and accept them' }).count(), 0);
  await page.getByRole('button', { name: 'Sign out' }).click();
  await page.waitForURL(url('/signin'));
  await page.goto(url('/console/account'));
  await page.getByRole('heading', { name: 'You are not signed in' }).waitFor();
});

test('chat page - serves who is signed in with a gateway token of their own, in no storage [TOK-045] [TOK-046]', async () => {
  const person = await signUp();
  const page = await newPage(person);
  await page.goto(platform.baseUrl);
  await page.getByText('Talk to an agent').waitFor();
  await page.getByLabel('Message', { exact: true }).fill('hello');
  await page.keyboard.press('Enter');
  await page.getByText('answer complete').waitFor();
  await page.reload();
  await page.locator('.said').first().waitFor();
  assert.equal(await page.evaluate(() => sessionStorage.getItem('troupe.token')), null);
  const stranger = await newPage();
  await stranger.goto(platform.baseUrl);
  await stranger.getByRole('link', { name: 'Sign in or create an account' }).waitFor();
});

for (const colorScheme of ['light', 'dark'] as const) {
  test(`console - is clean for assistive technology and fits 320 pixels in ${colorScheme}`, async () => {
    const owner = await signUp();
    const { id } = await newOrganization(owner, `A very long name of an organization ${'thatnevereverbreaks'.repeat(3)}`);
    await addMember(owner, id, 'viewer');
    const page = await newPage(owner);
    await page.emulateMedia({ colorScheme });
    const shot = shots(page, `console-${colorScheme}`);
    const check = async (name: string): Promise<void> => {
      for (const width of [320, 1_100]) {
        await page.setViewportSize({ width, height: 700 });
        await shot(`${width}-${name}`);
        assert.deepEqual(await axeViolations(page), [], `${name} at ${width}`);
        assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), width, `${name} is wider than the screen`);
      }
    };
    const open = async (path: string, ready: string): Promise<void> => {
      await page.goto(url(path));
      await page.getByText(ready).first().waitFor();
    };
    await open('/console', 'New organization');
    await check('organizations');
    await open(`/console/members?org=${id}`, '(you)');
    await check('members');
    await page.getByRole('button', { name: /^Remove/ }).click();
    await check('dialog');
    await open(`/console/invitations?org=${id}`, 'accepted');
    await page.getByLabel('E-mail address').fill('nobody');
    await page.getByRole('button', { name: 'Send invitation' }).click();
    await page.getByRole('alert').waitFor();
    await check('invitations');
    await open(`/console/keys?org=${id}`, 'There is no API key yet');
    await page.getByRole('textbox', { name: 'Name' }).fill('CI');
    await page.getByLabel('Everything an admin may do').check();
    await page.getByRole('button', { name: 'Create key' }).click();
    await page.getByLabel('API key', { exact: true }).waitFor();
    await check('keys');
    await open(`/console/audit?org=${id}`, 'organization.created');
    await check('audit');
    await open(`/console/settings?org=${id}`, 'Delete organization');
    await page.getByLabel('New owner').waitFor();
    await check('settings');
    await open('/console/account', 'this one');
    await check('account');
  });
}
