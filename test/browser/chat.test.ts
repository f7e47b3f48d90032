/**
 * The console in a real Chromium over TLS, against the fake edge: a conversation, tools, approvals, cancel, reload, forced
 * reconnects, keyboard, the strict content security policy. Screenshots of both colour schemes and two widths go into a
 * temporary folder when TROUPE_SCREENSHOTS names one.
 */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, afterEach, before, beforeEach, test } from 'node:test';
import type { Browser, BrowserContext, Page } from 'playwright-core';
import { launchBrowser } from '../harness/browser.ts';
import { axeViolations } from '../harness/page-check.ts';
import { FakeEdge } from '../harness/fake-edge.ts';
import { buildConsole } from '../../gateway/console/build.ts';

const userId = 'user-1';
const token = `e30.${Buffer.from(JSON.stringify({ sub: userId })).toString('base64url')}.sig`;

let browser: Browser;
let edge: FakeEdge;
let context: BrowserContext;
let page: Page;
let complaints: string[];

before(async () => {
  edge = await FakeEdge.start({ files: await buildConsole(), token, userId });
  browser = await launchBrowser();
});
after(async () => {
  await browser.close();
  await edge.stop();
});

const watch = (opened: Page): void => {
  opened.setDefaultTimeout(15_000);
  opened.on('pageerror', (error) => complaints.push(error.message));
  // A refusal of the content security policy shows up here; a broken connection, which the tests make, does not count.
  opened.on('console', (message) => {
    if (message.type() === 'error' && !/ERR_|WebSocket|Failed to load resource/.test(message.text())) complaints.push(message.text());
  });
};
beforeEach(async () => {
  complaints = [];
  edge.refuseUpgrades = undefined;
  context = await browser.newContext({ ignoreHTTPSErrors: true });
  page = await context.newPage();
  watch(page);
});
afterEach(async () => {
  await context.close();
  assert.deepEqual(complaints, []);
});

const signIn = async (): Promise<void> => {
  await page.goto(`${edge.url}/#token=${token}`);
  await page.getByText('Talk to an agent').waitFor();
};
const field = (): ReturnType<Page['getByLabel']> => page.getByLabel('Message', { exact: true });
const say = async (text: string): Promise<void> => {
  await field().fill(text);
  await field().press('Enter');
};
const sidOf = (): string => new URL(page.url()).searchParams.get('sid') ?? '';
const log = (): Promise<string> => page.getByRole('log').innerText();
const shot = async (name: string): Promise<void> => {
  const folder = process.env['TROUPE_SCREENSHOTS'];
  if (folder !== undefined) await page.screenshot({ path: join(folder, `${name}.png`) });
};

test('console - without a token says what to run', async () => {
  await page.goto(edge.url);
  await page.getByText('You are not signed in').waitFor();
  assert.match(await page.getByRole('main').innerText(), /npm start/);
  await shot('sign-in');
});

test('console - takes the token out of the address and keeps it for this tab only', async () => {
  await signIn();
  assert.equal(page.url(), `${edge.url}/`);
  await page.reload();
  await page.getByText('Talk to an agent').waitFor();
  const other = await context.newPage();
  watch(other);
  await other.goto(edge.url);
  await other.getByText('You are not signed in').waitFor();
});

test('console - a conversation: Enter sends, Shift+Enter makes a line, the answer streams in', async () => {
  await signIn();
  await field().press('h');
  await field().press('i');
  await field().press('Shift+Enter');
  await field().press('y');
  await field().press('Enter');
  await page.getByText('You said: hi').waitFor();
  assert.equal(edge.received.at(-1)?.content, 'hi\ny');
  assert.match(sidOf(), /^[a-z2-7]{26}$/);
  assert.equal(await field().inputValue(), '');
  assert.equal(await field().evaluate((node) => node === document.activeElement), true);
  await page.getByText('answer complete').waitFor();
  assert.equal(await page.getByText('connected', { exact: true }).isVisible(), true);
});

test('console - what was written and said is text, never markup', async () => {
  await signIn();
  await say('<img src=x onerror=alert(1)><b>bold</b>');
  await page.getByText('You said: <img src=x').waitFor();
  assert.equal(await page.locator('[role=log] img, [role=log] b').count(), 0);
});

test('console - a tool call opens to its arguments and result', async () => {
  await signIn();
  await say('/tool now');
  await page.getByText('The answer is 42.').waitFor();
  const call = page.locator('.tool');
  assert.equal(await call.locator('pre').first().isVisible(), false);
  await call.locator('summary').click();
  assert.deepEqual(await call.locator('pre').allInnerTexts(), ['{\n  "expression": "6*7",\n  "note": "/tool now"\n}', '{\n  "value": 42\n}']);
});

test('console - an approval takes the focus, waits, and runs or does not run the tool', async () => {
  await signIn();
  await say('/approve one');
  const approve = page.getByRole('button', { name: 'Approve' });
  await approve.waitFor();
  await page.waitForFunction(() => document.activeElement?.textContent === 'Approve');
  assert.match(await log(), /send_mail to ops@example\.com/);
  await page.keyboard.press('Enter');
  await page.getByText('The answer is 42.').waitFor();
  await say('/approve two');
  await page.getByRole('button', { name: 'Deny' }).click();
  await page.getByText('Then I will not.').waitFor();
  assert.equal(await page.locator('.tool.failed').count(), 1);
});

test('console - Escape and the button cancel the running turn', async () => {
  await signIn();
  for (const way of ['Escape', 'button']) {
    await say(`/slow ${way}`);
    await page.getByRole('button', { name: 'Cancel' }).waitFor();
    await page.getByText('Thinking').nth(way === 'Escape' ? 0 : 1).waitFor();
    if (way === 'Escape') await page.keyboard.press('Escape');
    else await page.getByRole('button', { name: 'Cancel' }).click();
    await page.getByText('Cancelled.').nth(way === 'Escape' ? 0 : 1).waitFor();
    await page.getByRole('button', { name: 'Cancel' }).waitFor({ state: 'hidden' });
  }
});

test('console - a reload shows the whole session again, one\'s own messages in their places [WSS-025]', async () => {
  await signIn();
  await say('first');
  await page.getByText('You said: first').waitFor();
  await say('/tool second');
  await page.getByText('The answer is 42.').waitFor();
  const shown = await log();
  await page.reload();
  await page.getByText('The answer is 42.').waitFor();
  assert.equal(await log(), shown);
  await say('third');
  await page.getByText('You said: third').waitFor();
});

test('console - a forced reconnect in the middle of a turn loses and repeats nothing and says so [WSS-027]', async () => {
  await signIn();
  await say('/slow once');
  await page.getByText('Thinking').waitFor();
  edge.refuseUpgrades = 503;
  edge.cut();
  await page.getByText('reconnecting …', { exact: true }).waitFor();
  edge.release(sidOf());
  edge.refuseUpgrades = undefined;
  await page.getByText(/reconnected in \d+\.\d s, 0 events lost/).or(page.getByText('answer complete')).first().waitFor();
  await page.getByText(/^Agent: Thinking done\.$/).waitFor();
  assert.equal(edge.sessions.get(sidOf())?.ids.size, 1);
});

test('console - says that it reconnected and that nothing was lost', async () => {
  await signIn();
  await say('hello');
  await page.getByText('answer complete').waitFor();
  edge.cut();
  await page.getByRole('status').getByText(/^reconnected in \d+\.\d s, 0 events lost$/).waitFor();
});

test('console - after an expired token it does not reconnect and says how to sign in [WSS-050]', async () => {
  await signIn();
  await say('hello');
  await page.getByText('answer complete').waitFor();
  const upgrades = edge.upgrades;
  edge.closeAll(1008, 'policy_violation:token_expired');
  await page.getByRole('alert').waitFor();
  assert.match(await page.getByRole('alert').innerText(), /unauthorized The token has expired[^]*npm start/);
  assert.equal(edge.upgrades, upgrades);
  await page.getByRole('button', { name: 'Connect again' }).click();
  await page.getByText('connected', { exact: true }).waitFor();
});

test('console - who is signed in chats on when a gateway token ends: a new one is fetched, nothing is lost [WSS-050]', async () => {
  let made = 0;
  const answers: Record<string, (() => object) | undefined> = {
    '/api/auth/session': () => ({ user: { id: userId, email: 'a@example.com', name: 'A' }, csrf: 'proof', legalAccepted: true, providers: ['email'] }),
    '/api/auth/session/token': () => ({ access_token: 'access', token_type: 'Bearer', expires_in: 900 }),
    // Shorter than the margin before the end: every use fetches a new one.
    '/api/auth/gateway-token': () => {
      made += 1;
      return { access_token: token, token_type: 'Bearer', expires_in: 30 };
    },
  };
  await context.route((address) => address.pathname.startsWith('/api/'), (route) => {
    const answer = answers[new URL(route.request().url()).pathname];
    return answer === undefined ? route.fulfill({ status: 404, json: { error: { code: 'not_found', message: '' } } }) : route.fulfill({ json: answer() });
  });
  await page.goto(edge.url);
  await page.getByText('Talk to an agent').waitFor();
  await say('before');
  await page.getByText('You said: before').waitFor();
  const upgrades = edge.upgrades;
  const before = made;
  edge.closeAll(1008, 'policy_violation:token_expired');
  await page.waitForRequest((request) => request.url().endsWith('/api/auth/gateway-token'));
  await page.getByText('connected', { exact: true }).waitFor();
  await say('after');
  await page.getByText('You said: after').waitFor();
  assert.ok(made > before && edge.upgrades === upgrades + 1);
  assert.equal(await page.getByRole('alert').count(), 0);
  assert.equal(await page.getByText('You said: before').count(), 1);
  assert.equal(await page.evaluate(() => sessionStorage.getItem('troupe.token')), null);
});

test('console - a broken stream is shown as broken', async () => {
  await signIn();
  await say('hello');
  await page.getByText('answer complete').waitFor();
  edge.forge(sidOf(), 99);
  await page.getByText('stream broken', { exact: true }).waitFor();
  assert.match(await page.getByRole('alert').innerText(), /expected event \d+, got 99/);
});

test('console - a new session starts empty and the browser\'s back shows the old one', async () => {
  await signIn();
  await say('old');
  await page.getByText('answer complete').waitFor();
  const old = sidOf();
  await page.getByRole('button', { name: 'New session' }).click();
  await page.getByText('Talk to an agent').waitFor();
  await page.getByLabel('Model').fill('mock-2');
  await say('new');
  await page.getByText('You said: new').waitFor();
  assert.notEqual(sidOf(), old);
  assert.equal(edge.sessions.get(sidOf())?.model, 'mock-2');
  assert.equal(await page.getByText('mock-2').isVisible(), true);
  await page.goBack();
  await page.getByText('Talk to an agent').waitFor();
  await page.goBack();
  await page.getByText('You said: old').waitFor();
  assert.equal(sidOf(), old);
  await page.goForward();
  await page.goForward();
  await page.getByText('You said: new').waitFor();
  const watchers = [...edge.sessions.values()].filter((s) => s.sid === old).map((s) => s.watchers.size);
  assert.deepEqual(watchers, [0], 'the session left behind is no longer watched');
});

test('console - the empty page lists one\'s own sessions, and a click goes on with one', async () => {
  await signIn();
  await say('remember this');
  await page.getByText('answer complete').waitFor();
  const sid = sidOf();
  for (let i = 0; i < 25; i++) edge.addSession();
  await page.getByRole('button', { name: 'New session' }).click();
  const list = page.getByRole('region', { name: 'Your sessions' });
  await list.getByRole('listitem').nth(19).waitFor();
  assert.equal(await list.getByRole('listitem').count(), 20);
  await list.getByRole('button', { name: 'More' }).click();
  const link = list.locator(`a[href="?sid=${sid}"]`);
  await link.waitFor();
  await shot('sessions');
  await link.click();
  await page.getByText('You said: remember this').waitFor();
  assert.equal(sidOf(), sid);
});

test('console - an error of the turn and a refused session are shown', async () => {
  await signIn();
  await page.getByLabel('Model').fill('no-such-model');
  await say('hi');
  await page.getByRole('alert').getByText('model_not_supported').waitFor();
  assert.equal(await field().inputValue(), 'hi', 'what was written is not lost');
  await page.getByLabel('Model').fill('');
  await say('/error');
  await page.getByText('provider_error: The model provider failed.').waitFor();
});

test('console - a file goes along as an attachment', async () => {
  await signIn();
  await page.locator('input[type=file]').setInputFiles({ name: 'notes.txt', mimeType: 'text/plain', buffer: Buffer.from('12345') });
  await page.getByText('notes.txt (5 bytes)').waitFor();
  await say('look');
  await page.getByText('You said: look (5 bytes attached)').waitFor();
});

for (const colorScheme of ['light', 'dark'] as const) {
  for (const [device, width, height] of [['desktop', 1280, 800], ['phone', 390, 844]] as const) {
    test(`console - fits ${device} width in ${colorScheme}: nothing is wider than the page, and it is clean for assistive technology`, async () => {
      await page.emulateMedia({ colorScheme });
      await page.setViewportSize({ width, height });
      await signIn();
      await shot(`start-${device}-${colorScheme}`);
      assert.deepEqual(await axeViolations(page), []);
      await say(`Summarise ${'averyverylongword'.repeat(12)}, please.`);
      await page.getByText('answer complete').waitFor();
      await say('/tool now');
      await page.getByText('The answer is 42.').waitFor();
      await page.locator('.tool summary').click();
      await say('/approve it');
      await page.getByRole('button', { name: 'Approve' }).waitFor();
      await say('and then this, queued');
      assert.equal(await page.evaluate(() => document.documentElement.scrollWidth > document.documentElement.clientWidth), false);
      await shot(`chat-${device}-${colorScheme}`);
      assert.deepEqual(await axeViolations(page), []);
      edge.closeAll(1008, 'policy_violation:token_expired');
      await page.getByRole('alert').waitFor();
      await shot(`ended-${device}-${colorScheme}`);
      assert.deepEqual(await axeViolations(page), []);
    });
  }
}
