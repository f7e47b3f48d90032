/**
 * The whole way of a newcomer, in Chromium and with the real `troupe` command against the real stack: signs up in the browser, approves a
 * command line, makes an organization, invites a second person who accepts, makes a key and uses it, is removed and loses access at once,
 * on the page, on the command line, and in the running chat.
 */
import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import type { Page } from 'playwright-core';
import { z } from 'zod';
import { organizationRoutes } from '../../contracts/organization-routes.ts';
import { confirm, ConsoleWorld, row } from '../harness/console-world.ts';
import { Troupe, type Ran } from '../harness/troupe.ts';

test('newcomer - from sign-up to removal, in the browser and on the command line [DEV-030] [ORG-010] [ORG-038] [ORG-041] [ORG-052] [KEY-010] [CLI-008] [CLI-014]', async (t) => {
  const world = await ConsoleWorld.start();
  t.after(async () => {
    await world.endTest().finally(() => world.stop());
  });
  const { platform } = world;
  const home = await mkdtemp(join(tmpdir(), 'troupe-newcomer-'));
  t.after(() => rm(home, { recursive: true, force: true }));
  const env = { HOME: home, TROUPE_CA: platform.caPath, TROUPE_API_BASE: platform.baseUrl };
  const command = (args: readonly string[], more: Record<string, string> = {}): Troupe => new Troupe(args, home, { ...env, ...more });
  const ran = async (args: readonly string[], more?: Record<string, string>): Promise<Ran> => {
    const started = command(args, more);
    started.endInput();
    return started.ended;
  };
  const signIn = async (page: Page, email: string): Promise<void> => {
    await page.getByLabel('E-mail address').fill(email);
    await page.getByRole('button', { name: 'Send me a code' }).click();
    const code = /(?<!\d)\d{8}(?!\d)/.exec((await platform.outbox.next(email)).text)?.[0] ?? assert.fail('no code in the mail');
    await page.getByLabel('Code').fill(code);
    await page.getByRole('button', { name: 'Sign in' }).click();
  };

  // A command line asks; the newcomer signs up on the way to approving it.
  const newcomer = world.newEmail();
  const login = command(['auth', 'login', '--no-browser']);
  t.after(() => login.kill());
  await login.saw('Your code:', 'err');
  const address = /https:\/\/\S+\/device\?code=\S+/.exec(login.err)?.[0] ?? assert.fail(login.err);
  const page = await world.newPage();
  await page.goto(address);
  await signIn(page, newcomer);
  await page.getByRole('button', { name: 'Approve' }).click();
  await page.getByRole('heading', { name: 'Approved' }).waitFor();
  const signedIn = await login.ended;
  assert.equal(signedIn.code, 0, signedIn.err);
  assert.match(signedIn.out, new RegExp(newcomer));

  // An organization, and a second person who comes by mail.
  await page.goto(world.url('/console'));
  await page.getByRole('textbox', { name: 'Name' }).fill('Acme');
  await page.getByRole('textbox', { name: 'Address' }).fill('newcomers-acme');
  await page.getByRole('button', { name: 'Create organization' }).click();
  await page.getByRole('heading', { level: 1, name: 'Acme' }).waitFor();
  const orgId = new URL(page.url()).searchParams.get('org') ?? '';
  assert.match((await ran(['org', 'list'])).out, /newcomers-acme/);
  const second = world.newEmail();
  await page.getByRole('link', { name: 'Invitations' }).click();
  await page.getByLabel('E-mail address').fill(second);
  await page.getByLabel('Role').selectOption('admin');
  await page.getByRole('button', { name: 'Send invitation' }).click();
  await row(page, second).waitFor();
  const theirs = await world.newPage();
  await theirs.goto(await world.inviteLink(second));
  await theirs.getByRole('link', { name: 'Sign in or create an account' }).click();
  await signIn(theirs, second);
  await theirs.getByRole('button', { name: 'Join Acme' }).click();
  await row(theirs, second).waitFor();

  // The second makes a key, and it works on the command line.
  await theirs.getByRole('link', { name: 'API keys' }).click();
  await theirs.getByRole('textbox', { name: 'Name' }).fill('CI');
  await theirs.getByLabel('org.read').check();
  await theirs.getByLabel('member.list').check();
  await theirs.getByRole('button', { name: 'Create key' }).click();
  const key = await theirs.getByLabel('API key', { exact: true }).inputValue();
  const members = async (): Promise<{ status: number; emails: string[] }> => {
    const { status, json } = await platform.api('GET', `${organizationRoutes.members.path}?orgId=${orgId}`, { token: key });
    const read = z.object({ members: z.array(z.object({ email: z.string() })) }).safeParse(json);
    return { status, emails: read.success ? read.data.members.map(({ email }) => email) : [] };
  };
  assert.deepEqual(await members(), { status: 200, emails: [newcomer, second] });
  const status = await ran(['auth', 'status', '--json'], { TROUPE_TOKEN: key });
  assert.equal(status.code, 0, status.err);
  assert.ok(!`${status.out}${status.err}`.includes(key.slice(-20)), 'the key is not printed');

  // The second chats in the organization when they are removed: all of it ends at once, and their own workspace stays.
  const chat = await theirs.context().newPage();
  await chat.goto(world.url(`/?org=${orgId}`));
  await chat.getByLabel('Message', { exact: true }).fill('hello');
  await chat.keyboard.press('Enter');
  await chat.getByText('answer complete').waitFor();
  await page.getByRole('link', { name: 'Members' }).click();
  await page.getByRole('button', { name: `Remove ${second}` }).click();
  await confirm(page, 'Remove');
  await row(page, second).waitFor({ state: 'detached' });
  await chat.getByRole('alert').waitFor();
  await theirs.getByRole('link', { name: 'Audit log' }).click();
  await theirs.getByRole('alert').getByText('There is nothing here').waitFor();
  await theirs.goto(world.url('/console'));
  await theirs.getByText('You are in no organization yet').waitFor();
  await chat.goto(platform.baseUrl);
  await chat.getByText('Talk to an agent').waitFor();
  assert.deepEqual(await members(), { status: 200, emails: [newcomer] }, 'the key is the organization\'s and stays until it is revoked');
  await page.getByRole('link', { name: 'API keys' }).click();
  await page.getByRole('button', { name: 'Revoke the key CI' }).click();
  await confirm(page, 'Revoke');
  await row(page, 'CI').getByText(/^revoked/).waitFor();
  assert.equal((await members()).status, 401);
  assert.notEqual((await ran(['auth', 'status'], { TROUPE_TOKEN: key })).code, 0);
});
