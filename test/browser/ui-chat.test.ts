/**
 * A React page in a real Chromium that talks to `/api/chat` through AI SDK v6's own `useChat` and transport: a conversation, tools of the installation,
 * calls that the person allows or denies, an answer that is stopped and asked for again, a daemon that is lost.
 */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, afterEach, before, beforeEach, test } from 'node:test';
import { build } from 'esbuild';
import type { Browser, BrowserContext, Locator, Page } from 'playwright-core';
import { z } from 'zod';
import { chatWorld, type ChatWorld } from '../harness/chat.ts';
import { launchBrowser } from '../harness/browser.ts';
import { startPlatform, type Person, type TestPlatform } from '../harness/platform.ts';

const pagePath = '/ui-chat-test';
const words = (count: number): string => Array.from({ length: count }, (_, i) => `w${i + 1}`).join(' ');

let platform: TestPlatform;
let world: ChatWorld;
let ada: Person;
let orgId: string;
let browser: Browser;
let script: string;
let context: BrowserContext;
let page: Page;
let complaints: string[];

before(async () => {
  const made = build({ entryPoints: [join(import.meta.dirname, '..', 'harness', 'ui-chat-page.jsx')], bundle: true, write: false, format: 'iife', platform: 'browser', logLevel: 'silent', tsconfigRaw: { compilerOptions: { jsx: 'react-jsx', jsxImportSource: 'react' } }, define: { 'process.env.NODE_ENV': '"production"' } });
  [platform, browser] = await Promise.all([
    startPlatform(undefined, { daemons: 1, gateways: 1, daemon: { tools: { chat: ['calculator', 'send_report'] } } }), launchBrowser(),
  ]);
  const { outputFiles: [file] } = await made;
  assert.ok(file !== undefined);
  script = file.text;
  world = await chatWorld(platform);
  ada = await world.person('ada@example.com');
  orgId = (await world.organizations.create(ada, 'ada-org')).id;
  await world.setPlan(orgId, { plan: 'enterprise', limits: { perMinute: -1, perDay: -1, maxApiKeys: -1, maxMembers: -1, credits: 1_000_000 } });
});
after(async () => {
  await browser.close();
  await world.stop();
  await platform.stop();
});

beforeEach(async () => {
  complaints = [];
  context = await browser.newContext({ ignoreHTTPSErrors: true });
  // The page is somebody's who builds with the library; the gateway serves the chat at the same address.
  await context.route((address) => address.pathname === pagePath, (route) => route.fulfill({ contentType: 'text/html', body: `<!doctype html><html lang="en"><title>t</title><body><script src="${pagePath}.js"></script>` }));
  await context.route((address) => address.pathname === `${pagePath}.js`, (route) => route.fulfill({ contentType: 'text/javascript; charset=utf-8', body: script }));
  page = await context.newPage();
  page.setDefaultTimeout(30_000);
  page.on('pageerror', (error) => complaints.push(error.message));
  await page.goto(`${platform.gateways[0]?.url ?? ''}${pagePath}#${ada.accessToken}`);
});
afterEach(async () => {
  await context.close();
  assert.deepEqual(complaints, []);
});

const say = async (text: string): Promise<void> => {
  await page.getByLabel('Message').fill(text);
  await page.getByRole('button', { name: 'Send' }).click();
};
const is = (status: string): Promise<void> => page.getByRole('status').getByText(status, { exact: true }).waitFor();
const answers = (): Locator => page.locator('article.assistant');
const filed = async (): Promise<string[]> => z.object({ reports: z.array(z.object({ body: z.string() })) })
  .parse(await world.system({ org: orgId, type: 'agent', key: `chat-${ada.userId}` }, 'reports', {})).reports.map(({ body }) => body);

test('ui chat page - a conversation of two turns, streamed [CHAT-049]', async () => {
  await say('/slow 5 60');
  await page.getByText(/^w1 w2/).waitFor();
  await is('ready');
  await say('and then?');
  await page.getByText('You said: and then?').waitFor();
  await is('ready');
  assert.deepEqual(await page.locator('article p').allInnerTexts(), ['/slow 5 60', words(60), 'and then?', 'You said: and then?']);
});

test('ui chat page - a tool of the installation: its input, its output, the model\'s next words [CHAT-046]', async () => {
  await say('/tool calculator {"expression":"6*7"}\\n/then\\n/say It is 42.');
  await page.getByText('It is 42.', { exact: true }).waitFor();
  await is('ready');
  const tool = page.locator('.tool');
  assert.deepEqual([await tool.count(), await tool.getAttribute('data-state')], [1, 'output-available']);
  assert.match(await tool.innerText(), /^tool-calculator output-available \{"expression":"6\*7"\} \{"value":"42","exact":true\}$/);
  assert.equal(await answers().count(), 1);
});

for (const [word, allowed] of [['Allow', true], ['Deny', false]] as const) {
  test(`ui chat page - a call that needs the person: ${word}, and the answer goes on in the same message [CHAT-046]`, async () => {
    const before = await filed();
    await say(`/approve ${word} it`);
    await page.locator('.tool[data-state="approval-requested"]').waitFor();
    assert.deepEqual(await filed(), before);
    await page.getByRole('button', { name: word }).click();
    await page.getByText(/send_report (says|failed):/).waitFor();
    await is('ready');
    assert.equal(await page.locator('.tool').getAttribute('data-state'), 'output-available');
    assert.deepEqual(await filed(), allowed ? [`${word} it`, ...before] : before);
    assert.deepEqual([await answers().count(), await page.getByText(/not on this page/).count() > 0], [1, !allowed]);
  });
}

test('ui chat page - an answer that is stopped ends the model\'s call, and can be asked for again', async () => {
  await say('/hang 3');
  await page.getByText(/^w1 w2 w3/).waitFor();
  await page.getByRole('button', { name: 'Stop' }).click();
  await is('ready');
  for (let ended = false; !ended;) ended = (await world.journaled(orgId)).some(({ k, d }) => k === 'CompletionFinished' && d['finish_reason'] === 'cancelled');
  await say('/slow 10 40');
  await page.getByText(/^w1 w2 w3 w4/).waitFor();
  await page.getByRole('button', { name: 'Stop' }).click();
  await is('ready');
  await page.getByRole('button', { name: 'Again' }).click();
  await page.getByText(words(40), { exact: true }).waitFor();
  await is('ready');
  assert.equal(await answers().count(), 2);
});

test('ui chat page - a daemon that is lost in the middle is told of, and the answer comes when it is asked for again', async () => {
  await say('/slow 100 60');
  await page.getByText(/^w1 w2 w3/).waitFor();
  await platform.daemons[0]?.kill();
  await page.getByRole('alert').getByText('The upstream cannot be reached.').waitFor();
  await is('error');
  await platform.daemons[0]?.start();
  while ((await platform.api('GET', '/api/v1/models', { token: ada.accessToken })).status !== 200) await platform.api('GET', '/healthz');
  await page.getByRole('button', { name: 'Again' }).click();
  await page.getByText(words(60), { exact: true }).waitFor();
  await is('ready');
  assert.equal(await answers().count(), 1);
});
