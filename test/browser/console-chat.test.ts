/**
 * The console's chat page in a real Chromium against the whole stack: conversations, tools, approvals, stopping, reload, what is said when something
 * goes wrong, keyboard, both colour schemes. Screenshots go into TROUPE_SCREENSHOTS when it names a folder.
 */
import assert from 'node:assert/strict';
import { after, afterEach, before, test } from 'node:test';
import type { Locator, Page, Request } from 'playwright-core';
import { z } from 'zod';
import { chatRoutes } from '../../contracts/chat-routes.ts';
import { chatWorld, type ChatWorld } from '../harness/chat.ts';
import { ConsoleWorld } from '../harness/console-world.ts';
import { axeViolations, shots } from '../harness/page-check.ts';
import type { Person } from '../harness/platform.ts';

let world: ConsoleWorld;
let chat: ChatWorld;
let ada: Person;
let orgId: string;
const words = (count: number): string => Array.from({ length: count }, (_, i) => `w${i + 1}`).join(' ');
const wide = { plan: 'enterprise', limits: { perMinute: -1, perDay: -1, maxApiKeys: -1, maxMembers: -1, credits: 1_000_000 } } as const;

before(async () => {
  world = await ConsoleWorld.start({
    daemons: 1, gateways: 1,
    daemon: { tools: { chat: ['calculator', 'send_report'] }, models: { default: 'mock', registry: [{ id: 'mock', provider: 'mock', output_usd_per_mtok: 10_000 }, { id: 'mock-large', provider: 'mock' }] } },
  });
  chat = await chatWorld(world.platform);
  ada = await world.signUp();
  await chat.accept(ada);
  orgId = (await world.newOrganization(ada, 'Ada & Co')).id;
  await chat.setPlan(orgId, wide);
});
after(async () => {
  await chat.stop();
  await world.stop();
});
afterEach(() => world.endTest());

const open = async (person: Person = ada, org: string | undefined = orgId): Promise<Page> => {
  const page = await world.newPage(person);
  page.setDefaultTimeout(30_000);
  await page.goto(world.url(`/console/chat${org === undefined ? '' : `?org=${org}`}`));
  await message(page).waitFor();
  return page;
};
const message = (page: Page): Locator => page.getByRole('textbox', { name: 'Message' });
const say = async (page: Page, text: string): Promise<void> => {
  await message(page).fill(text);
  await message(page).press('Enter');
};
const status = (page: Page, text: string): Promise<void> => page.getByRole('status').getByText(text, { exact: true }).waitFor();
const complete = (page: Page): Promise<void> => status(page, 'Answer complete.');
const texts = (page: Page): Promise<string[]> => page.locator('.mine, .text').allInnerTexts();
const asksChat = (request: Request): boolean => new URL(request.url()).pathname === chatRoutes.uiChat.path;
const sentBody = z.object({ model: z.string(), messages: z.array(z.object({ role: z.string(), content: z.unknown() })) });
const filed = async (): Promise<string[]> => z.object({ reports: z.array(z.object({ body: z.string() })) })
  .parse(await chat.system({ org: orgId, type: 'agent', key: `chat-${ada.userId}` }, 'reports', {})).reports.map(({ body }) => body);

test('console chat - a streamed conversation that a reload shows again and goes on with, and a new one begins without [CHAT-033] [CHAT-038]', async () => {
  const page = await open();
  await say(page, '/slow 60 30');
  await page.getByText(/^w1 w2/).waitFor();
  assert.equal(await page.getByRole('button', { name: 'Stop' }).count(), 1, 'it is shown as it comes');
  await complete(page);
  await page.getByText(/mock · \d+ tokens in, \d+ out/).waitFor();
  await page.reload();
  await message(page).waitFor();
  assert.deepEqual(await texts(page), ['/slow 60 30', words(30)]);
  const [request] = await Promise.all([page.waitForRequest(asksChat), say(page, 'and then?')]);
  assert.deepEqual(sentBody.parse(request.postDataJSON()).messages, [{ role: 'user', content: '/slow 60 30' }, { role: 'assistant', content: words(30) }, { role: 'user', content: 'and then?' }]);
  assert.equal(request.headers()['troupe-organization'], orgId);
  await complete(page);
  assert.deepEqual((await texts(page)).slice(2), ['and then?', 'You said: and then?']);
  await page.getByRole('button', { name: 'New conversation' }).click();
  assert.deepEqual(await texts(page), []);
  await page.reload();
  await page.getByText('Ask something.').waitFor();
});

test('console chat - the models of the registry are offered, the chosen one answers, the chosen payer pays [CHAT-029]', async () => {
  const page = await open();
  assert.deepEqual(await page.getByLabel('Model').getByRole('option').allInnerTexts(), ['mock', 'mock-large']);
  await page.getByLabel('Model').selectOption('mock-large');
  await page.getByLabel('Paid by').selectOption('Your own workspace');
  const [request] = await Promise.all([page.waitForRequest(asksChat), say(page, '/say hello')]);
  assert.equal(sentBody.parse(request.postDataJSON()).model, 'mock-large');
  assert.equal(request.headers()['troupe-organization'], 'personal');
  await page.getByText(/^mock-large · /).waitFor();
  await page.reload();
  await message(page).waitFor();
  assert.equal(await page.getByLabel('Model').inputValue(), 'mock-large', 'the conversation goes on with its model');
});

test('console chat - a tool shows what it is asked and what it answered, and its result goes along with the next question [CHAT-039] [CHAT-040]', async () => {
  const page = await open();
  await say(page, '/tool calculator {"expression":"6*7"}\n/then\n/say It is 42.');
  await page.getByText('It is 42.', { exact: true }).waitFor();
  await complete(page);
  await page.locator('summary').filter({ hasText: 'calculator' }).getByText('done').waitFor();
  await page.locator('summary').click();
  assert.match(await page.getByLabel('What calculator answered').innerText(), /"value": "42"/);
  const [request] = await Promise.all([page.waitForRequest(asksChat), say(page, '/say next')]);
  const { messages } = sentBody.parse(request.postDataJSON());
  assert.deepEqual(messages.map(({ role }) => role), ['user', 'assistant', 'tool', 'assistant', 'user']);
  await complete(page);
});

for (const [word, allowed] of [['Allow', true], ['Deny', false]] as const) {
  test(`console chat - a call that needs the person waits over a reload: ${word}, and the answer goes on`, async () => {
    const page = await open();
    const before = await filed();
    await say(page, `/approve ${word} it`);
    await status(page, 'Your approval is needed.');
    await page.reload();
    const approval = page.getByRole('group', { name: 'Approval of send_report' });
    await approval.waitFor();
    assert.match(await page.getByLabel('What send_report is asked').innerText(), new RegExp(`${word} it`));
    assert.deepEqual(await filed(), before, 'nothing happens before the person\'s word');
    await approval.getByRole('button', { name: word }).click();
    await page.getByText(/send_report (says|failed):/).waitFor();
    await complete(page);
    assert.equal(await approval.count(), 0);
    await page.locator('summary').getByText(allowed ? 'done' : 'denied', { exact: true }).waitFor();
    assert.deepEqual(await filed(), allowed ? [`${word} it`, ...before] : before);
  });
}

test('console chat - Escape stops an answer, which ends the model\'s call; what came stays, and it can be asked for again', async () => {
  const page = await open();
  await say(page, '/hang 3');
  await page.getByText('w1 w2 w3', { exact: true }).waitFor();
  await message(page).press('Escape');
  await page.getByText('You stopped this answer.').waitFor();
  for (let ended = false; !ended;) ended = (await chat.journaled(orgId)).some(({ k, d }) => k === 'CompletionFinished' && d['finish_reason'] === 'cancelled');
  assert.deepEqual(await texts(page), ['/hang 3', 'w1 w2 w3']);
  await page.getByRole('button', { name: 'Ask again' }).click();
  await page.getByRole('button', { name: 'Stop' }).waitFor();
  await page.getByText('w1 w2 w3', { exact: true }).waitFor();
  await page.getByRole('button', { name: 'Stop' }).click();
  await page.getByText('You stopped this answer.').waitFor();
  await say(page, '/say something else');
  await complete(page);
  assert.deepEqual(await texts(page), ['/hang 3', 'w1 w2 w3', '/say something else', 'something else']);
});

test('console chat - a reload in the middle shows what had come and says so; another view ends the answer as well', async () => {
  const page = await open();
  await say(page, '/hang 3');
  await page.getByText('w1 w2 w3', { exact: true }).waitFor();
  await page.reload();
  await page.getByText('The page was reloaded or left while this was answered').waitFor();
  assert.deepEqual(await texts(page), ['/hang 3', 'w1 w2 w3']);
  await page.getByRole('button', { name: 'Ask again' }).click();
  await page.getByRole('button', { name: 'Stop' }).waitFor();
  await page.getByText('w1 w2 w3', { exact: true }).waitFor();
  await page.getByRole('link', { name: 'Account' }).click();
  await page.getByRole('heading', { level: 1, name: 'Your account' }).waitFor();
  await page.getByRole('link', { name: 'Chat' }).click();
  await page.getByText(/You stopped this answer|The page was reloaded or left/).waitFor();
  assert.deepEqual(await texts(page), ['/hang 3', 'w1 w2 w3']);
});

test('console chat - credits that are used up: what it means, when new ones come, the way to the plan; nothing is lost [CHAT-028] [BIL-023]', async () => {
  const poor = (await world.newOrganization(ada)).id;
  await chat.setPlan(poor, { plan: 'enterprise', limits: { ...wide.limits, credits: 0 } });
  const page = await open(ada, poor);
  await say(page, '/say hello');
  const alert = page.getByRole('alert');
  await alert.getByText(/credits of this plan are used up\. New ones come on .*\d{4}/).waitFor();
  assert.equal(await alert.getByRole('link', { name: 'See plan and credits' }).getAttribute('href'), `/console/plan?org=${poor}`);
  assert.equal(await alert.getByRole('button').count(), 0, 'asking again would not help');
  await page.getByLabel('Paid by').selectOption('Ada & Co');
  await say(page, '/say paid');
  await complete(page);
  assert.deepEqual(await texts(page), ['/say hello', '/say paid', 'paid']);
});

test('console chat - without the terms the way to them is shown, and the question stays to be asked again [TOK-062]', async () => {
  const person = await world.signUp();
  const page = await open(person, undefined);
  await say(page, '/say hello');
  await page.getByRole('alert').getByRole('link', { name: 'Read and accept them' }).click();
  for (const box of await page.getByRole('checkbox').all()) await box.check();
  await page.getByRole('button', { name: 'Accept and continue' }).click();
  await page.waitForURL(world.url('/console/chat'));
  await page.getByRole('button', { name: 'Ask again' }).click();
  await complete(page);
  assert.deepEqual(await texts(page), ['/say hello', 'hello']);
});

test('console chat - a provider that fails, before the first word or after it, and a connection that breaks: each says what to do', async () => {
  const page = await open();
  await say(page, '/fail');
  await page.getByRole('alert').getByText('The model\'s provider failed. Ask again, or choose another model.').waitFor();
  await say(page, '/fail-after 3');
  await page.getByText('w1 w2 w3', { exact: true }).waitFor();
  await page.getByRole('alert').nth(1).getByText('The model\'s provider failed.').waitFor();
  assert.equal(await page.getByRole('button', { name: 'Ask again' }).count(), 1, 'only of the last');
  await page.route((address) => address.pathname === chatRoutes.uiChat.path, (route) => route.abort('connectionreset'));
  await say(page, '/say hello');
  await page.getByRole('alert').nth(2).getByText('The connection was lost before the answer was complete.').waitFor();
  await page.unroute((address) => address.pathname === chatRoutes.uiChat.path);
  for (const [status_, code, said] of [[429, 'rate_limit_exceeded', /more than the plan allows.*in 7 seconds/], [503, 'overloaded', /very busy/], [400, 'model_not_supported', /Choose another one/], [403, 'forbidden', /Your role/]] as const) {
    await page.unrouteAll();
    await page.route((address) => address.pathname === chatRoutes.uiChat.path, (route) => route.fulfill({ status: status_, headers: { 'retry-after': '7' }, json: { error: { code, message: 'x', details: {} } } }));
    await page.getByRole('button', { name: 'Ask again' }).click();
    await page.getByRole('alert').last().getByText(said).waitFor();
  }
  await page.unrouteAll();
  // A stream that just ends is no answer.
  await page.route((address) => address.pathname === chatRoutes.uiChat.path, (route) => route.fulfill({ contentType: 'text/event-stream', body: 'data: {"type":"text-delta","id":"c","text":"half of"}\n\ndata: {"type":"fin' }));
  await page.getByRole('button', { name: 'Ask again' }).click();
  await page.getByText('half of').waitFor();
  await page.getByRole('alert').last().getByText('The connection was lost').waitFor();
});

test('console chat - a conversation is the person\'s: signing out leaves nothing of it in the tab, no token is ever kept, text is never markup', async () => {
  const page = await open();
  const bearers: string[] = [];
  page.on('request', (request) => { if (asksChat(request)) bearers.push(request.headers()['authorization'] ?? ''); });
  const markup = '<img src=x onerror="document.title=1">secret';
  await say(page, markup);
  await complete(page);
  assert.deepEqual(await texts(page), [markup, `You said: ${markup}`]);
  assert.equal(await page.locator('main .turns img').count(), 0);
  const kept = await page.evaluate(() => JSON.stringify([{ ...sessionStorage }, { ...localStorage }]));
  assert.ok(kept.includes('secret'));
  assert.equal(bearers.length, 1);
  for (const bearer of bearers) assert.ok(!kept.includes(bearer.slice(-20)));
  await page.getByRole('button', { name: 'Sign out' }).click();
  await page.waitForURL(world.url('/signin'));
  assert.deepEqual(await page.evaluate(() => ({ ...sessionStorage })), {});
  // Another session: the tests share this person.
  ada = { ...ada, ...(await world.platform.signUp(ada.email, { localAddress: '127.0.3.1' })) };
});

for (const colorScheme of ['light', 'dark'] as const) {
  test(`console chat - is clean for assistive technology, fits 320 pixels and is used by keyboard alone in ${colorScheme}`, async () => {
    const page = await open();
    await page.emulateMedia({ colorScheme });
    const shot = shots(page, `chat-${colorScheme}`);
    const check = async (name: string): Promise<void> => {
      for (const width of [320, 1_100]) {
        await page.setViewportSize({ width, height: 700 });
        await shot(`${width}-${name}`);
        assert.deepEqual(await axeViolations(page), [], `${name} at ${width}`);
        assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), width, `${name} is wider than the screen`);
      }
    };
    await check('empty');
    await say(page, `/tool calculator {"expression":"6*7"}\n/then\n/say ${'A longer answer, of several lines, as models like to give them. '.repeat(6)}${'nevereverbreaks'.repeat(12)}`);
    await complete(page);
    await say(page, '/approve The quarter in three sentences.');
    await status(page, 'Your approval is needed.');
    await check('approval');
    const allow = page.getByRole('button', { name: 'Allow' });
    for (let i = 0; i < 30 && !(await allow.evaluate((node) => node === document.activeElement)); i++) await page.keyboard.press('Shift+Tab');
    assert.notEqual(await allow.evaluate((node) => getComputedStyle(node).outlineStyle), 'none');
    await page.keyboard.press('Enter');
    await complete(page);
    await say(page, '/fail');
    await page.getByRole('alert').waitFor();
    await say(page, '/hang 3');
    await page.getByText('w1 w2 w3', { exact: true }).waitFor();
    await check('answering');
    await page.getByRole('button', { name: 'Stop' }).focus();
    await page.keyboard.press('Space');
    await page.getByText('You stopped this answer.').waitFor();
    await check('all');
  });
}
