/** The console as the real gateway serves it, in Chromium: a conversation and an approval, with gateway and daemon killed on the way. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { launchBrowser } from '../harness/browser.ts';
import { startStack } from '../harness/stack.ts';

test('console - served by the real gateway, it outlives kill -9 of gateway and daemon: every word once, in order [WSS-026] [WSS-050]', async (t) => {
  const [stack, browser] = await Promise.all([startStack(t), launchBrowser()]);
  t.after(() => browser.close());
  const [gateway] = stack.gateways;
  const [daemon] = stack.daemons;
  assert.ok(gateway && daemon);
  const page = await (await browser.newContext({ ignoreHTTPSErrors: true })).newPage();
  page.setDefaultTimeout(30_000);
  const complaints: string[] = [];
  page.on('pageerror', (error) => complaints.push(error.message));
  page.on('console', (message) => {
    if (message.type() === 'error' && !/ERR_|WebSocket|Failed to load resource/.test(message.text())) complaints.push(message.text());
  });
  await page.goto(`${stack.url}/#token=${await stack.token('user-1')}`);
  const field = page.getByLabel('Message', { exact: true });
  const say = async (text: string): Promise<void> => {
    await field.fill(text);
    await field.press('Enter');
  };
  const words = 300;
  await say(`/slow 20 ${words}`);
  await page.getByText(/ w20 /).waitFor();
  await gateway.restart();
  await page.getByRole('status').getByText(/^reconnected in \d+\.\d s, 0 events lost$/).waitFor();
  await page.getByText(/ w100 /).waitFor();
  await daemon.restart();
  await page.getByText('answer complete').waitFor();
  const said = async (): Promise<string[]> => (await page.locator('.said').allInnerTexts()).join(' ').match(/w\d+/g) ?? [];
  const whole = Array.from({ length: words }, (_, i) => `w${i + 1}`);
  assert.deepEqual(await said(), whole);

  await say('/approve the report');
  await page.getByRole('button', { name: 'Approve' }).click();
  await page.locator('.tool.done').waitFor();
  await page.getByText('answer complete').waitFor();
  const log = await page.getByRole('log').innerText();
  await page.reload();
  await page.locator('.tool.done').waitFor();
  await page.waitForFunction((expected) => document.querySelector<HTMLElement>('[role=log]')?.innerText === expected, log);
  assert.deepEqual(await said(), whole);
  assert.deepEqual(complaints, []);
});
