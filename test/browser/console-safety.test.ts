/**
 * The console in a real Chromium: what a lower role does not get to see, names that look like markup, where tokens are, keyboard,
 * assistive technology and small screens. Screenshots go into TROUPE_SCREENSHOTS when it names a folder.
 */
import assert from 'node:assert/strict';
import { after, afterEach, before, test } from 'node:test';
import { authRoutes } from '../../contracts/auth-routes.ts';
import { organizationRoutes } from '../../contracts/organization-routes.ts';
import { ConsoleWorld, row, tabs } from '../harness/console-world.ts';
import { axeViolations, shots } from '../harness/page-check.ts';
import type { TestPlatform } from '../harness/platform.ts';

let world: ConsoleWorld;
let platform: TestPlatform;

before(async () => {
  world = await ConsoleWorld.start();
  ({ platform } = world);
});
after(() => world.stop());
afterEach(() => world.endTest());

test('console - is never framed, and its addresses are those it has: another is not found', async () => {
  const console = await platform.api('GET', '/console/members');
  assert.equal(console.status, 200);
  assert.match(String(console.headers['content-security-policy']), /default-src 'none'.*frame-ancestors 'none'/);
  assert.equal((await platform.api('GET', '/console/none')).status, 404);
});

test('console - nothing of a role is drawn before the role is known, and an address does not open what the role lacks', async () => {
  const owner = await world.signUp();
  const { id } = await world.newOrganization(owner);
  const viewer = await world.addMember(owner, id, 'viewer');
  const page = await world.newPage(viewer);
  const asked = Promise.withResolvers<undefined>();
  const held = Promise.withResolvers<undefined>();
  await page.route((address) => address.pathname === '/api/organization', async (route) => {
    asked.resolve(undefined);
    await held.promise;
    await route.continue();
  });
  await page.goto(world.url(`/console/keys?org=${id}`));
  await asked.promise;
  assert.equal(await page.getByRole('button').count() + await page.getByRole('link').count(), 0);
  held.resolve(undefined);
  await page.getByRole('alert').getByText('needs a higher role').waitFor();
  assert.deepEqual(await tabs(page), ['Members', 'Audit log', 'Plan', 'Deployments']);
  await page.getByRole('link', { name: 'Audit log' }).click();
  await row(page, owner.email).first().waitFor();
  assert.equal(await page.getByRole('button', { name: 'Export CSV' }).count(), 0);
  await page.getByRole('link', { name: 'Members' }).click();
  await row(page, viewer.email).waitFor();
  assert.equal(await page.getByRole('combobox').count(), 0);
  assert.deepEqual(await page.getByRole('main').getByRole('button').allInnerTexts(), ['Leave']);
});

test('console - names are text, never markup, in the console and on the invitation', async () => {
  const name = '<img src=x onerror="document.title=1"><b>Acme</b>';
  const owner = await world.signUp();
  const { id } = await world.newOrganization(owner, name);
  const guest = world.newEmail();
  const invited = await platform.api('POST', organizationRoutes.invite.path, { token: owner.accessToken, json: { orgId: id, email: guest } });
  assert.equal(invited.status, 200, invited.body);
  const page = await world.newPage(owner);
  for (const path of ['/console', `/console/members?org=${id}`, `/console/settings?org=${id}`]) {
    await page.goto(world.url(path));
    await page.getByText(name).first().waitFor();
    assert.equal(await page.locator('main img, main b').count(), 0, path);
  }
  const stranger = await world.newPage();
  await stranger.goto(await world.inviteLink(guest));
  assert.equal(await stranger.getByRole('heading', { level: 1 }).innerText(), `Join ${name}`);
  assert.equal(await stranger.locator('main img, main b').count(), 0);
  await page.goto(stranger.url());
  assert.match(await page.getByRole('alert').innerText(), new RegExp(`invitation is for ${guest}`));
  assert.equal(await page.getByRole('button', { name: /^Join/ }).count(), 0);
});

test('console - tokens are in no storage and no address; a refused one is renewed once, by all calls together', async () => {
  const person = await world.signUp();
  const { id } = await world.newOrganization(person);
  const page = await world.newPage(person);
  const tokens: string[] = [];
  page.on('request', (request) => {
    const token = request.headers()['authorization'];
    if (token !== undefined) tokens.push(token.slice('Bearer '.length));
  });
  let made = 0;
  page.on('request', (request) => { if (new URL(request.url()).pathname === authRoutes.sessionToken.path) made += 1; });
  await page.goto(world.url(`/console/settings?org=${id}`));
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
  const person = await world.signUp();
  const page = await world.newPage(person);
  await page.goto(world.url('/console'));
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
  await page.waitForFunction(() => document.activeElement?.getAttribute('aria-label') === 'Leave Keys Only');
  await page.keyboard.press('Enter');
  await page.keyboard.press('Enter');
  await page.getByRole('alert').waitFor();
  assert.equal(await page.getByRole('dialog').isVisible(), true, 'the last owner stays, and is told why');
});

for (const colorScheme of ['light', 'dark'] as const) {
  test(`console - is clean for assistive technology and fits 320 pixels in ${colorScheme}`, async () => {
    const owner = await world.signUp();
    const { id } = await world.newOrganization(owner, `A very long name of an organization ${'thatnevereverbreaks'.repeat(3)}`);
    await world.addMember(owner, id, 'viewer');
    const page = await world.newPage(owner);
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
      await page.goto(world.url(path));
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

test('console - who signs out leaves an empty page behind, which Back may show again as it was', async () => {
  const owner = await world.signUp();
  const { id } = await world.newOrganization(owner);
  const page = await world.newPage(owner);
  await page.goto(world.url(`/console/members?org=${id}`));
  await row(page, owner.email).waitFor();
  // The next page never comes, so that what is left of this one shows.
  await page.route((address) => address.pathname === '/signin', (route) => route.abort('aborted'));
  await page.getByRole('button', { name: 'Sign out' }).click();
  await page.getByRole('heading', { name: 'You are not signed in' }).waitFor();
  assert.equal(await page.getByText(owner.email).count(), 0);
});
