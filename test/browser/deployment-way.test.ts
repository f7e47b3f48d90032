/**
 * The way of an agent, end to end, as its team sees it in a real Chromium: its vault is imported, it answers from it with a tool, remembers, is
 * forked, is stopped by regulation as its budget falls, and goes on when credits arrive. Screenshots go into TROUPE_SCREENSHOTS when it names a folder.
 */
import assert from 'node:assert/strict';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, before, suite, test } from 'node:test';
import type { Locator, Page } from 'playwright-core';
import { z } from 'zod';
import { arrived, ConsoleWorld, row } from '../harness/console-world.ts';
import { startDeployment, type TestDeployment } from '../harness/deployment.ts';
import { commandLine } from '../harness/newcomer.ts';
import { axeViolations, shots } from '../harness/page-check.ts';
import { chatBody, runtimeClient, textOf, type RuntimeClient } from '../harness/runtime.ts';

/** A word of `/long` is some 20 credits: a long answer takes more than half of the month's 20,000. */
const dear = { id: 'dear', provider: 'mock', output_usd_per_mtok: 200_000 } as const;
const vault = {
  'Animals/Narwhal.md': '---\ntitle: The narwhal\ntags: [whales]\n---\nThe narwhal dives to 1500 metres. See [[Beluga]] and [[Arctic Ocean|the ocean]].\n\nHabitat:: the Arctic\n',
  'Animals/Beluga.md': '---\ntitle: The beluga\n---\nThe beluga is white, and a relative of the [[Narwhal]].\n',
  'Places/Arctic Ocean.md': '---\ntitle: The Arctic Ocean\n---\nThe smallest ocean. Home of the [[Beluga]].\n',
};

suite('deployment way', { timeout: 300_000 }, () => {
  let on: TestDeployment;
  let world: ConsoleWorld;
  let client: RuntimeClient;
  let page: Page;
  const ends: (() => Promise<void>)[] = [];
  const shot = (name: string): Promise<void> => shots(page, 'way')(name);
  const at = (query: Readonly<Record<string, string>>): string =>
    world.url(`/console/deployments?${new URLSearchParams({ org: on.org.id, deployment: on.id, ...query }).toString()}`);
  /** Decision of the deployment's client about a turn that is refused. */
  const refusal = async (content: string): Promise<{ status: number; message: string }> => {
    const reply = await on.service('POST', '/v1/chat', { json: chatBody('support', content) });
    return { status: reply.status, message: z.object({ error: z.object({ message: z.string() }) }).parse(reply.json).error.message };
  };
  const conversation = (): Locator => page.getByRole('region', { name: 'Conversation' });
  const said = (text: string): Locator => conversation().getByText(text, { exact: true });
  const state = (): Locator => page.getByRole('region', { name: /^State after event/ });
  const dial = (name: string): Promise<string | null> => page.getByRole('meter', { name }).getAttribute('aria-valuetext');

  before(async () => {
    on = await startDeployment(undefined, {
      gateway: { auth: { platform: true }, console: true },
      daemon: { models: { default: 'dear', registry: [{ id: 'free', provider: 'mock' }, dear] }, deployments: { mode_hold_ms: 0 } },
    });
    world = await ConsoleWorld.over(on);
    client = runtimeClient(on);
    page = await world.newPage(on.owner);
  });
  after(async () => {
    for (const end of ends) await end();
    await world.endTest();
    await world.stop();
  });

  test('deployment way - a vault is imported, found, drawn as a graph, answered from, and a fact is remembered, seen live', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'troupe-way-'));
    ends.push(() => rm(folder, { recursive: true, force: true }));
    for (const [path, content] of Object.entries(vault)) {
      await mkdir(dirname(join(folder, path)), { recursive: true });
      await writeFile(join(folder, path), content);
    }
    const command = await commandLine({ after: (end) => void ends.push(end) }, on);
    const imported = await command.run(['knowledge', 'import', folder], { env: { TROUPE_DEPLOYMENT_URL: on.deploymentUrl, TROUPE_DEPLOYMENT_KEY: on.key } });
    assert.equal(imported.code, 0, imported.err);

    await page.goto(at({ part: 'knowledge' }));
    await page.getByLabel('Words').fill('narwhal dives');
    await page.keyboard.press('Enter');
    await page.getByText(/documents for “narwhal dives”/).waitFor();
    await row(page, '1500 metres').getByRole('link', { name: 'The narwhal' }).click();
    const graph = page.getByRole('group', { name: 'Graph of 3 documents' });
    await graph.waitFor();
    assert.deepEqual(await graph.getByRole('link').evaluateAll((all) => all.map((one) => one.getAttribute('aria-label')).toSorted()),
      ['The Arctic Ocean, 1 link away', 'The beluga, 1 link away', 'The narwhal, the middle']);
    await shot('knowledge');

    const answered = await client.turn('support', '/tool knowledge_search {"query":"narwhal dives"}\n/then\n/say The narwhal dives to 1500 metres.');
    assert.match(textOf(answered), /1500 metres/);
    await page.goto(at({ part: 'sessions' }));
    const listed = page.getByRole('link', { name: 'support', exact: true });
    await arrived(page, listed);
    await listed.click();
    await said('The narwhal dives to 1500 metres.').waitFor();
    const call = conversation().getByRole('listitem').filter({ hasText: 'knowledge_search' });
    await call.getByText('done', { exact: true }).waitFor();
    await call.locator('summary').click();
    await call.getByText(/1500 metres\. See/).waitFor();

    // The page stays open: what comes is shown as it happens.
    await page.getByText('Live: new events come as they happen').waitFor();
    await client.turn('support', '/tool remember {"fact":"The customer likes narwhals"}\n/then\n/say Noted.');
    await said('Remembered: The customer likes narwhals').waitFor();
    await said('Noted.').waitFor();
    await state().getByRole('heading', { name: 'Memories' }).waitFor();
    await state().getByText('The customer likes narwhals').first().waitFor();
    assert.deepEqual(await axeViolations(page), []);
    await shot('inspector');
  });

  test('deployment way - it is forked at an event of its past, and the two go on apart [RUN-025]', async () => {
    const { number } = (await client.events('support')).map((event, index) => ({ event, number: index + 1 })).find(({ event }) => event.kind === 'RunFinished') ?? assert.fail('no turn ended');
    await page.getByRole('button', { name: new RegExp(`^${number} RunFinished`) }).click();
    await page.getByRole('heading', { name: `State after event ${number}` }).waitFor();
    assert.equal(await said('Noted.').count(), 0, 'the past knows nothing of what came later');
    await page.getByLabel('Name of a new branch').fill('what-if');
    // On a machine under load the list of branches may lag behind the journal for longer than the daemon waits: nothing was forked, and one presses again.
    for (let tries = 1; ; tries++) {
      const [answer] = await Promise.all([
        page.waitForResponse((response) => response.request().method() === 'POST' && response.url().endsWith('/branches')),
        page.getByRole('button', { name: `Fork after event ${number}` }).click(),
      ]);
      if (answer.status() === 201) break;
      assert.ok(answer.status() >= 500 && tries < 5, await answer.text());
      await page.getByRole('form', { name: 'New branch' }).getByRole('alert').waitFor();
    }
    await page.getByRole('heading', { name: 'support › what-if' }).waitFor();
    await conversation().getByText(/^Forked from main/).waitFor();
    await client.turn('support', '/say Belugas, then.', { more: { branch: 'what-if' } });
    await said('Belugas, then.').waitFor();
    await state().getByText('disarmed', { exact: true }).waitFor();
    await shot('branch');
    const main = page.getByRole('region', { name: 'Branches' }).getByRole('link', { name: 'main' });
    await arrived(page, main);
    await main.click();
    await said('Noted.').waitFor();
    assert.equal(await said('Belugas, then.').count(), 0);
  });

  test('deployment way - its budget falls, regulation stops it and says why, credits arrive and it goes on [RUN-036] [REG-025]', async () => {
    await client.turn('support', '/long 450');
    const stopped = await refusal('one more');
    assert.equal(stopped.status, 403);
    assert.match(stopped.message, /expensive model is not allowed now \(mode Hustle/);
    await conversation().getByText(/^Blocked by regulation: .*mode Hustle/).waitFor();
    await shot('blocked');
    await page.getByRole('link', { name: 'Regulation' }).click();
    await page.getByRole('heading', { name: 'Mode history' }).waitFor();
    assert.equal(await dial('Mode'), 'Hustle');
    assert.ok(Number(await dial('Credits over 30 days\' use')) < 1);
    await row(page, 'Expensive models').getByText('blocked').waitFor();
    await row(page, 'session support').getByText(/mode Hustle/).first().waitFor();
    await shot('hustle');

    await on.system.ask({ org: on.org.id, type: 'organization', key: on.org.id }, 'set_plan', { plan: 'enterprise', reason: 'test' });
    assert.match(textOf(await client.turn('support', '/say Back at work.')), /Back at work/);
    await page.getByRole('button', { name: 'Refresh' }).click();
    await row(page, 'Expensive models').getByText('allowed').waitFor();
    assert.equal(await dial('Mode'), 'Sovereign');
    const table = page.getByRole('region', { name: 'Mode history, as a table' });
    assert.match(await table.getByRole('row').nth(1).innerText(), /Hustle\s+Sovereign/);
    assert.deepEqual(await axeViolations(page), []);
    await shot('recovered');
    await page.goBack();
    await said('Back at work.').waitFor();
  });
});
