/**
 * The console's usage page in a real Chromium against the whole stack: what is drawn, what stands in the tables, the same by keyboard, the balance;
 * `/pricing` without JavaScript. Screenshots go into TROUPE_SCREENSHOTS when it names a folder.
 */
import assert from 'node:assert/strict';
import { after, afterEach, before, test } from 'node:test';
import type { Page } from 'playwright-core';
import { billingRoutes } from '../../contracts/billing-routes.ts';
import { usageSummary } from '../../contracts/billing.ts';
import { plans, upgradeUrl } from '../../contracts/plans.ts';
import { chatWorld, say, type ChatWorld } from '../harness/chat.ts';
import { ConsoleWorld } from '../harness/console-world.ts';
import { axeViolations, shots } from '../harness/page-check.ts';
import { answered, type Person } from '../harness/platform.ts';

let world: ConsoleWorld;
let chat: ChatWorld;
let ada: Person;

before(async () => {
  world = await ConsoleWorld.start({
    daemons: 1, gateways: 1,
    daemon: { models: { default: 'mock', registry: [{ id: 'mock', provider: 'mock', output_usd_per_mtok: 10_000 }, { id: 'mock-large', provider: 'mock', output_usd_per_mtok: 20_000 }] } },
  });
  chat = await chatWorld(world.platform);
  const person = await world.signUp();
  ada = { ...person, accessToken: await chat.accept(person) };
  await world.newOrganization(ada, 'Ada & Co');
  for (const [model, text] of [['mock', '/long 8'], ['mock-large', '/long 4']] as const) {
    const reply = await chat.post(ada.accessToken, { model, messages: say(text) });
    assert.equal(reply.status, 200, reply.body);
  }
});
after(async () => {
  await chat.stop();
  await world.stop();
});
afterEach(() => world.endTest());

const table = (page: Page, title: string): Promise<string[]> => page.getByRole('region', { name: `${title}, as a table` }).getByRole('row').allInnerTexts();
const cells = (...texts: (string | number)[]): string => texts.join('\t');

test('console usage - charts, tables and totals say what the API says, for each period; the balance is the plan less what was used [BIL-001] [BIL-002] [BIL-004]', async () => {
  const page = await world.newPage(ada);
  await page.goto(world.url('/console/usage'));
  await page.locator('canvas').nth(1).waitFor();
  const usage = answered(await world.platform.api('GET', billingRoutes.usage.path, { token: ada.accessToken }), 200, usageSummary);
  assert.equal(usage.byModel.length, 2);
  assert.ok(usage.totalCostCents > 0);
  assert.deepEqual(await table(page, 'Credits by model'), [cells('Model', 'Credits'), ...usage.byModel.map(({ modelId, costCents }) => cells(modelId, costCents))]);
  assert.deepEqual(await table(page, 'Tokens by model'), [cells('Model', 'Tokens in', 'Tokens out'), ...usage.byModel.map(({ modelId, inputTokens, outputTokens }) => cells(modelId, inputTokens, outputTokens))]);
  await page.getByText(`US$0.${String(usage.totalCostCents).padStart(2, '0')} (${usage.totalCostCents} credits)`).waitFor();
  await page.getByText(`${plans.free.limits.credits - usage.totalCostCents} of ${plans.free.limits.credits} credits left`).waitFor();
  for (const period of ['day', 'week'] as const) {
    const [request] = await Promise.all([page.waitForRequest((asked) => new URL(asked.url()).pathname === billingRoutes.usage.path), page.getByLabel('Period', { exact: true }).selectOption(period)]);
    assert.equal(new URL(request.url()).searchParams.get('period'), period);
    await page.locator('canvas').nth(1).waitFor();
  }
});

test('console usage - the chart is drawn: bars as high as their figures, of both series', async () => {
  const page = await world.newPage(ada);
  await page.goto(world.url('/console/usage'));
  await page.locator('canvas').nth(1).waitFor();
  // Counts the pixels of each colour that is no grey: bars are the only thing in colour.
  const painted = (): Promise<Record<string, number>[]> => page.evaluate(() => [...document.querySelectorAll('canvas')].map((canvas) => {
    const { data } = canvas.getContext('2d')?.getImageData(0, 0, canvas.width, canvas.height) ?? { data: [] };
    const counts: Record<string, number> = {};
    for (let at = 0; at < data.length; at += 4) {
      const [red = 0, green = 0, blue = 0, alpha = 0] = [data[at], data[at + 1], data[at + 2], data[at + 3]];
      if (alpha === 255 && Math.max(red, green, blue) - Math.min(red, green, blue) > 60) counts[`${red},${green},${blue}`] = (counts[`${red},${green},${blue}`] ?? 0) + 1;
    }
    return counts;
  }));
  await page.waitForFunction(() => [...document.querySelectorAll('canvas')].every((canvas) => canvas.getContext('2d')?.getImageData(0, 0, canvas.width, canvas.height).data.some((value) => value !== 0)));
  const [credits = {}, tokens = {}] = await painted();
  const [blue, green] = ['59,91,219', '38,121,58'];
  assert.deepEqual(Object.keys(credits).filter((color) => (credits[color] ?? 0) > 200), [blue]);
  assert.deepEqual(Object.keys(tokens).filter((color) => (tokens[color] ?? 0) > 200).toSorted(), [green, blue].toSorted());
  const { totalInputTokens, totalOutputTokens } = answered(await world.platform.api('GET', billingRoutes.usage.path, { token: ada.accessToken }), 200, usageSummary);
  const ratio = (tokens[blue] ?? 0) / (tokens[green] ?? 1);
  assert.ok(Math.abs(ratio / (totalInputTokens / totalOutputTokens) - 1) < 0.15, `areas ${ratio}, tokens ${totalInputTokens}:${totalOutputTokens}`);
});

test('console usage - by keyboard a chart says bar after bar, within its ends', async () => {
  const page = await world.newPage(ada);
  await page.goto(world.url('/console/usage'));
  await page.locator('canvas').nth(1).waitFor();
  const chart = page.getByRole('slider', { name: 'Tokens by model' });
  await chart.focus();
  const spoken = (): Promise<string | null> => chart.getAttribute('aria-valuetext');
  assert.match(String(await spoken()), /^mock: Tokens in \d+, Tokens out \d+$/);
  await page.keyboard.press('ArrowRight');
  await page.waitForFunction(() => document.activeElement?.getAttribute('aria-valuenow') === '2');
  assert.match(String(await spoken()), /^mock-large: /);
  await page.keyboard.press('ArrowRight');
  await page.keyboard.press('Home');
  await page.waitForFunction(() => document.activeElement?.getAttribute('aria-valuenow') === '1');
  await page.keyboard.press('End');
  await page.waitForFunction(() => document.activeElement?.getAttribute('aria-valuenow') === '2');
});

test('console usage - who has used nothing and is in no organization is told so, and where the plans are; a failure can be tried again', async () => {
  const person = await world.signUp();
  const page = await world.newPage(person);
  let refusals = 1;
  await page.route((address) => address.pathname === billingRoutes.usage.path, (route) => (refusals-- > 0 ? route.fulfill({ status: 503, json: { error: { code: 'upstream_unavailable', message: 'Not now.' } } }) : route.continue()));
  await page.goto(world.url('/console/usage'));
  await page.getByRole('alert').getByText('Not now.').waitFor();
  await page.getByRole('button', { name: 'Try again' }).click();
  await page.getByText('Nothing was used since').waitFor();
  await page.getByText('You are in no organization.').waitFor();
  await page.getByRole('link', { name: 'Compare the plans' }).click();
  await page.getByRole('heading', { level: 1, name: 'Plans' }).waitFor();
});

for (const colorScheme of ['light', 'dark'] as const) {
  test(`console usage - is clean for assistive technology and fits 320 pixels in ${colorScheme}, and so is /pricing`, async () => {
    const page = await world.newPage(ada);
    await page.emulateMedia({ colorScheme });
    const shot = shots(page, `usage-${colorScheme}`);
    for (const [path, name, ready] of [['/console/usage', 'usage', 'canvas >> nth=1'], [upgradeUrl, 'pricing', 'table']] as const) {
      await page.goto(world.url(path));
      await page.locator(ready).waitFor();
      for (const width of [320, 1_100]) {
        await page.setViewportSize({ width, height: 700 });
        await page.waitForFunction(() => [...document.querySelectorAll('.plot')].every((frame) => frame.firstElementChild?.clientWidth === frame.clientWidth));
        await shot(`${width}-${name}`);
        assert.deepEqual(await axeViolations(page), [], `${name} at ${width}`);
        assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), width, `${name} is wider than the screen`);
      }
    }
  });
}

test('pricing - works without JavaScript and without an account: every plan with its figures, and the way in [BIL-013]', async () => {
  const reply = await world.platform.api('GET', upgradeUrl);
  assert.equal(reply.status, 200);
  assert.match(String(reply.headers['content-security-policy']), /default-src 'none'.*frame-ancestors 'none'/);
  assert.doesNotMatch(reply.body, / style="|<style|on(click|load)=/);
  const rows = [...reply.body.matchAll(/<tr><th scope="row">([^<]*)<\/th>(.*?)<\/tr>/gs)].map(([, title = '', rest = '']) => [title, ...[...rest.matchAll(/<td[^>]*>([^<]*)<\/td>/g)].map(([, cell]) => cell)]);
  assert.deepEqual(rows.find(([title]) => title === 'Credits a month'), ['Credits a month', '50', '5,000', '20,000', '100,000']);
  assert.deepEqual(rows.find(([title]) => title === 'Members'), ['Members', '5', '10', '50', 'unlimited']);
  assert.deepEqual(rows.find(([title]) => title === 'Managed deployments'), ['Managed deployments', 'no', 'no', 'yes', 'yes']);
  const page = await world.newPage();
  await page.goto(world.url(upgradeUrl));
  await page.getByRole('link', { name: 'Sign in or create an account' }).click();
  await page.getByLabel('E-mail address').waitFor();
});
