/**
 * The server-rendered pages in a real Chromium against the whole stack: signing in, approving a device, API tokens and the documents,
 * without JavaScript, by keyboard, and from a foreign site. Screenshots go into TROUPE_SCREENSHOTS when it names a folder.
 */
import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { after, afterEach, before, beforeEach, test } from 'node:test';
import type { Browser, BrowserContext, Page } from 'playwright-core';
import { z } from 'zod';
import { authRoutes } from '../../contracts/auth-routes.ts';
import { invitation, member, organizationCreated } from '../../contracts/organization.ts';
import { organizationRoutes } from '../../contracts/organization-routes.ts';
import { cookieNames } from '../../contracts/platform.ts';
import { launchBrowser } from '../harness/browser.ts';
import { axeViolations, complaintsOf, shots } from '../harness/page-check.ts';
import { answered, startPlatform, type TestPlatform } from '../harness/platform.ts';

let platform: TestPlatform;
let browser: Browser;
let context: BrowserContext;
let page: Page;
let complaints: string[];
let turn = 0;

before(async () => {
  [platform, browser] = await Promise.all([startPlatform(undefined), launchBrowser()]);
});
after(async () => {
  await browser.close();
  await platform.stop();
});
const open = async (javaScriptEnabled: boolean): Promise<void> => {
  context = await browser.newContext({ ignoreHTTPSErrors: true, javaScriptEnabled });
  page = await context.newPage();
  page.setDefaultTimeout(15_000);
  complaints = complaintsOf(page);
};
beforeEach(() => open(false));
afterEach(async () => {
  await context.close();
  assert.deepEqual(complaints, []);
});

const newEmail = (): string => `page-${++turn}@example.com`;
const url = (path: string): string => `${platform.baseUrl}${path}`;
const heading = (): Promise<string> => page.getByRole('heading', { level: 1 }).innerText();

const codeFor = async (email: string): Promise<string> => {
  const { text } = await platform.outbox.next(email);
  return /(?<!\d)\d{8}(?!\d)/.exec(text)?.[0] ?? assert.fail(`no code in the mail:\n${text}`);
};
/** From the sign-in page on, as a person does it. */
const signInHere = async (email: string): Promise<void> => {
  await page.getByLabel('E-mail address').fill(email);
  await page.getByRole('button', { name: 'Send me a code' }).click();
  await page.getByLabel('Code').fill(await codeFor(email));
  await page.getByRole('button', { name: 'Sign in' }).click();
};

const started = z.object({ device_code: z.string(), user_code: z.string(), verification_uri_complete: z.string() });
const startDevice = async (clientId = 'troupe-cli'): Promise<z.output<typeof started>> =>
  answered(await platform.api('POST', authRoutes.deviceCode.path, { json: { client_id: clientId } }), 200, started);
const poll = async (deviceCode: string): Promise<{ status: number; error: string | undefined; token: string | undefined }> => {
  const { status, json } = await platform.api('POST', authRoutes.deviceToken.path, { form: { grant_type: 'urn:ietf:params:oauth:grant-type:device_code', device_code: deviceCode } });
  const body = z.object({ error: z.string().optional(), access_token: z.string().optional() }).parse(json);
  return { status, error: body.error, token: body.access_token };
};
const me = async (token: string): Promise<string> => answered(await platform.api('GET', authRoutes.me.path, { token }), 200, z.object({ email: z.string() })).email;

test('pages - a device is approved without JavaScript: sign-in on the way, then back to the code [DEV-009] [DEV-010] [DEV-011] [DEV-031]', async () => {
  const email = newEmail();
  const device = await startDevice();
  await page.goto(device.verification_uri_complete);
  assert.equal(await heading(), 'Sign in');
  assert.equal(new URL(page.url()).searchParams.get('return_to'), `/device?code=${device.user_code}`);
  await signInHere(email);
  assert.equal(page.url(), device.verification_uri_complete);
  assert.equal(await heading(), 'Approve this sign-in?');
  const shown = await page.getByRole('main').innerText();
  for (const text of ['troupe-cli', device.user_code, email]) assert.ok(shown.includes(text), `${text} is not shown`);
  assert.equal((await poll(device.device_code)).error, 'authorization_pending');
  await page.getByRole('button', { name: 'Approve' }).click();
  assert.equal(await heading(), 'Approved');
  const { token } = await poll(device.device_code);
  assert.equal(await me(token ?? ''), email);
  await page.goto(device.verification_uri_complete);
  assert.match(await page.getByRole('alert').innerText(), /no such code, or it was used/);
});

test('pages - a denied device gets nothing; an unknown code can be corrected, in lower case and without hyphen [DEV-011] [DEV-044]', async () => {
  const device = await startDevice();
  await page.goto(url('/device'));
  await signInHere(newEmail());
  await page.getByLabel('Code').fill('ABCD-2222');
  await page.getByRole('button', { name: 'Continue' }).click();
  assert.match(await page.getByRole('alert').innerText(), /no such code/);
  await page.getByLabel('Code').fill(device.user_code.replace('-', '').toLowerCase());
  await page.getByRole('button', { name: 'Continue' }).click();
  await page.getByRole('button', { name: 'Deny' }).click();
  assert.equal(await heading(), 'Denied');
  assert.equal((await poll(device.device_code)).error, 'access_denied');
});

test('pages - what a client calls itself is text, never markup', async () => {
  const name = '<img src=x onerror=alert(1)><b>Official</b>"\'';
  const device = await startDevice(name);
  await page.goto(device.verification_uri_complete);
  await signInHere(newEmail());
  assert.ok((await page.getByRole('main').innerText()).includes(name));
  assert.equal(await page.locator('main img, main b').count(), 0);
  await page.goto(url(`/signin?return_to=${encodeURIComponent('/"><script>alert(1)</script>')}&error=${encodeURIComponent('<b>x</b>')}`));
  assert.equal(await page.locator('main script, main b').count(), 0);
});

test('pages - a wrong code can be tried again, a new one sent; nothing says whether the address has an account [TOK-049]', async () => {
  const email = newEmail();
  await page.goto(url('/signin'));
  await page.getByLabel('E-mail address').fill(email);
  await page.getByRole('button', { name: 'Send me a code' }).click();
  const unknown = (await page.getByRole('main').innerText()).replaceAll(email, '');
  const code = await codeFor(email);
  await page.getByLabel('Code').fill(code === '00000000' ? '00000001' : '00000000');
  await page.getByRole('button', { name: 'Sign in' }).click();
  assert.match(await page.getByRole('alert').innerText(), /not right/);
  assert.equal((await context.cookies()).length, 0);
  await page.getByLabel('Code').fill(code);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.waitForURL(url('/console'));
  await context.clearCookies();
  await page.goto(url('/signin'));
  await page.getByLabel('E-mail address').fill(email);
  await page.getByRole('button', { name: 'Send me a code' }).click();
  assert.equal((await page.getByRole('main').innerText()).replaceAll(email, ''), unknown);
});

test('pages - signing in leads to a path of this site only', async () => {
  for (const [returnTo, to] of [['https://evil.example/', '/console'], ['//evil.example', '/console'], ['/\\evil.example', '/console'], ['/legal', '/legal']] as const) {
    await page.goto(url(`/signin?return_to=${encodeURIComponent(returnTo)}`));
    await signInHere(newEmail());
    assert.equal(page.url(), url(to));
    await context.clearCookies();
  }
});

test('pages - an API token is shown once, for 90 days, to who is signed in only, and works [TOK-027] [TOK-029] [TOK-030] [TOK-063]', async () => {
  const email = newEmail();
  await page.goto(url('/api/auth/api-token'));
  assert.equal(await heading(), 'Sign in');
  await signInHere(email);
  assert.equal(page.url(), url('/api/auth/api-token'));
  assert.equal(await page.locator('textarea').count(), 0, 'no token before the button');
  await page.getByRole('button', { name: 'Make a token' }).click();
  const token = await page.getByLabel('Token', { exact: true }).inputValue();
  assert.equal(await me(token), email);
  assert.ok(!page.url().includes(token.slice(0, 20)));
  const claims = z.object({ exp: z.number(), iat: z.number() }).parse(JSON.parse(Buffer.from(token.split('.')[1] ?? '', 'base64url').toString()));
  assert.equal(claims.exp - claims.iat, 90 * 86_400);
  assert.match(await page.getByRole('main').innerText(), /90 days/);
  await page.goto(url('/api/auth/api-token'));
  assert.equal(await page.locator('textarea').count(), 0);
});

test('pages - the documents are accepted by ticking all four, without JavaScript [TOK-055] [TOK-056] [TOK-062]', async () => {
  await page.goto(url('/legal?return_to=/device'));
  assert.equal(await page.getByRole('checkbox').count(), 0, 'nobody is signed in');
  await page.goto(url('/signin?return_to=/legal%3Freturn_to%3D/device'));
  const email = newEmail();
  await signInHere(email);
  assert.equal(await page.getByRole('checkbox').count(), 4);
  for (const box of await page.getByRole('checkbox').all()) {
    assert.equal(await box.isChecked(), false);
    await box.check();
  }
  await page.getByRole('button', { name: 'Accept and continue' }).click();
  await page.waitForURL(url('/device'));
  await page.goto(url('/legal'));
  assert.match(await page.getByRole('status').innerText(), /have accepted/);
  await page.getByRole('link', { name: /^Terms/ }).click();
  assert.match(await heading(), /^Terms of service/);
});

test('pages - the invited person joins without JavaScript; the link then says so, and a revoked one adds nobody [ORG-041] [ORG-044]', async () => {
  const owner = await platform.signUp(newEmail(), { localAddress: '127.0.3.1' });
  const { id } = answered(await platform.api('POST', organizationRoutes.createOrganization.path, { token: owner.accessToken, json: { name: 'Acme', slug: 'pages-acme' } }), 201, organizationCreated);
  const invite = async (email: string): Promise<{ id: string; link: string }> => {
    const { invitation: made } = answered(await platform.api('POST', organizationRoutes.invite.path, { token: owner.accessToken, json: { orgId: id, email, role: 'member' } }), 200, z.object({ invitation }));
    return { id: made.id, link: /https:\/\/\S+\/invite\?token=\S+/.exec((await platform.outbox.next(email)).text)?.[0] ?? assert.fail('no link in the mail') };
  };
  const email = newEmail();
  const { link } = await invite(email);
  await page.goto(link);
  await page.getByRole('link', { name: 'Sign in or create an account' }).click();
  await signInHere(email);
  assert.equal(page.url(), link);
  await page.getByRole('button', { name: 'Join Acme' }).click();
  await page.waitForURL(url(`/console/members?org=${id}`));
  const { members } = answered(await platform.api('GET', `${organizationRoutes.members.path}?orgId=${id}`, { token: owner.accessToken }), 200, z.object({ members: z.array(member) }));
  assert.deepEqual(members.map((m) => [m.email, m.role]), [[owner.email, 'owner'], [email, 'member']]);
  await page.goto(link);
  assert.match(await page.getByRole('status').innerText(), /accepted already/);
  const revoked = await invite(newEmail());
  const answer = await platform.api('DELETE', organizationRoutes.revokeInvitation.path, { token: owner.accessToken, json: { orgId: id, invitationId: revoked.id } });
  assert.equal(answer.status, 200, answer.body);
  await page.goto(revoked.link);
  assert.match(await page.getByRole('main').innerText(), /taken back/);
  assert.equal(await page.getByRole('button', { name: /^Join/ }).count(), 0);
});

test('pages - a session that ended leads to sign-in, and signing out ends it', async () => {
  await page.goto(url('/legal'));
  await page.goto(url('/signin?return_to=/legal'));
  await signInHere(newEmail());
  const [cookie] = await context.cookies();
  assert.equal(cookie?.name, cookieNames.session);
  assert.deepEqual([cookie.httpOnly, cookie.secure, cookie.sameSite, cookie.path, cookie.domain], [true, true, 'Lax', '/', 'localhost']);
  await page.getByRole('button', { name: 'Sign out' }).click();
  await page.waitForURL(url('/signin'));
  assert.deepEqual(await context.cookies(), []);
  const session = await platform.api('GET', authRoutes.session.path, { cookie: cookie.value });
  assert.match(session.body, /"user":null/, 'the old cookie is worth nothing');
});

test('pages - by keyboard alone: sign-in and approval, the focus visible, nothing approved by Enter on the way [DEV-011]', async () => {
  await context.close();
  await open(true);
  const email = newEmail();
  const device = await startDevice();
  // What is typed before the page has given the focus away is lost, as with any page.
  const fieldFocused = async (name: string): Promise<void> => {
    await page.waitForFunction((wanted) => document.activeElement instanceof HTMLInputElement && document.activeElement.name === wanted, name);
  };
  await page.goto(device.verification_uri_complete);
  await fieldFocused('email');
  await page.keyboard.type(email);
  await page.keyboard.press('Enter');
  await page.getByText('Enter your code').waitFor();
  await fieldFocused('code');
  await page.keyboard.type(await codeFor(email));
  await page.keyboard.press('Enter');
  await page.getByText('Approve this sign-in?').waitFor();
  await page.keyboard.press('Enter');
  assert.equal((await poll(device.device_code)).error, 'authorization_pending');
  const approve = page.getByRole('button', { name: 'Approve' });
  for (let i = 0; i < 5 && !(await approve.evaluate((node) => node === document.activeElement)); i++) await page.keyboard.press('Tab');
  assert.notEqual(await approve.evaluate((node) => getComputedStyle(node).outlineStyle), 'none');
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: 'Approved' }).waitFor();
  assert.equal((await poll(device.device_code)).status, 200);
});

test('pages - a form on a foreign site can neither approve a device nor sign anybody in nor show a page in a frame [DEV-040]', async () => {
  await context.close();
  await open(true);
  const email = newEmail();
  const device = await startDevice();
  await page.goto(device.verification_uri_complete);
  await signInHere(email);
  await page.getByText('Approve this sign-in?').waitFor();
  const csrf = await page.locator('main input[name=csrf]').inputValue();
  const fields = (values: Record<string, string>): string => Object.entries(values).map(([name, value]) => `<input name="${name}" value="${value}">`).join('');
  const stranger = newEmail();
  const strangersCode = await platform.signInCode(stranger);
  const foreign = createServer((request, response) => {
    const form = request.url === '/approve'
      ? `<form method="post" action="${url('/api/auth/device/authorize')}">${fields({ user_code: device.user_code, action: 'approve', csrf })}<button>Win</button></form>`
      : request.url === '/login'
        ? `<form method="post" action="${url('/api/auth/email/verify')}">${fields({ email: stranger, code: strangersCode })}<button>Win</button></form>`
        : `<iframe src="${url('/signin')}"></iframe>`;
    response.writeHead(200, { 'content-type': 'text/html' }).end(form);
  }).listen(0, '127.0.0.1');
  await once(foreign, 'listening');
  try {
    const from = `http://127.0.0.1:${(foreign.address() as AddressInfo).port}`;
    const before = await context.cookies();
    for (const path of ['/approve', '/login']) {
      await page.goto(`${from}${path}`);
      const [answer] = await Promise.all([page.waitForResponse((response) => response.url().startsWith(platform.baseUrl)), page.getByRole('button', { name: 'Win' }).click()]);
      assert.equal(answer.status(), 403);
    }
    assert.deepEqual(await context.cookies(), before);
    assert.equal((await poll(device.device_code)).error, 'authorization_pending');
    const [framed] = await Promise.all([page.waitForResponse((response) => response.url() === url('/signin')), page.goto(`${from}/frame`)]);
    assert.match(framed.headers()['content-security-policy'] ?? '', /frame-ancestors 'none'/);
    assert.equal(framed.headers()['x-frame-options'], 'DENY');
    assert.equal(await page.frames()[1]?.getByRole('button').count(), 0);
    complaints.length = 0;
  } finally {
    foreign.closeAllConnections();
    foreign.close();
  }
});

for (const colorScheme of ['light', 'dark'] as const) {
  test(`pages - are clean for assistive technology and fit 320 pixels in ${colorScheme}`, async () => {
    await context.close();
    await open(true);
    await page.emulateMedia({ colorScheme });
    await page.setViewportSize({ width: 320, height: 640 });
    const shot = shots(page, `pages-${colorScheme}`);
    const check = async (name: string): Promise<void> => {
      await shot(name);
      assert.deepEqual(await axeViolations(page), [], name);
      assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), 320, `${name} is wider than the screen`);
    };
    const device = await startDevice('a-client-with-a-very-long-name-that-does-not-break-anywhere-at-all');
    const email = newEmail();
    await page.goto(device.verification_uri_complete);
    await check('signin');
    await page.getByLabel('E-mail address').fill(email);
    await page.getByRole('button', { name: 'Send me a code' }).click();
    await page.getByText('Enter your code').waitFor();
    await check('code');
    await page.getByLabel('Code').fill('00000000');
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.getByRole('alert').waitFor();
    await check('code-wrong');
    await page.getByLabel('Code').fill(await codeFor(email));
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.getByText('Approve this sign-in?').waitFor();
    await check('device');
    await page.getByRole('button', { name: 'Approve' }).click();
    await page.getByRole('heading', { name: 'Approved' }).waitFor();
    await check('device-approved');
    for (const [name, path] of [['device-code', '/device'], ['device-unknown', '/device?code=ABCD-2222'], ['token', '/api/auth/api-token'], ['legal', '/legal'], ['document', '/legal/terms'], ['invite-unknown', '/invite?token=x']] as const) {
      await page.goto(url(path));
      await check(name);
    }
    await page.goto(url('/api/auth/api-token'));
    await page.getByRole('button', { name: 'Make a token' }).click();
    await page.getByText('Your API token').waitFor();
    await check('token-made');
  });
}
