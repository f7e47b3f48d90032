/**
 * The console's pages of deployments in a real Chromium: made, given a new key and ended; who may see and do what; the inspector's time, state,
 * differences, replay and approvals; keyboard, assistive technology, both colour schemes. Screenshots go into TROUPE_SCREENSHOTS when it names a folder.
 */
import assert from 'node:assert/strict';
import { after, afterEach, before, suite, test } from 'node:test';
import type { Locator, Page } from 'playwright-core';
import { arrived, confirm, ConsoleWorld, row, tabs } from '../harness/console-world.ts';
import { startDeployment, type TestDeployment } from '../harness/deployment.ts';
import { axeViolations, shots } from '../harness/page-check.ts';
import type { Person } from '../harness/platform.ts';
import { framesOf, runtimeClient, type RuntimeClient } from '../harness/runtime.ts';

suite('console deployments', { timeout: 300_000 }, () => {
  let on: TestDeployment;
  let world: ConsoleWorld;
  let client: RuntimeClient;
  before(async () => {
    on = await startDeployment(undefined, { gateway: { auth: { platform: true }, console: true } });
    world = await ConsoleWorld.over(on);
    client = runtimeClient(on);
  });
  after(() => world.stop());
  afterEach(() => world.endTest());

  const at = (query: Readonly<Record<string, string>> = {}, org = on.org.id): string => world.url(`/console/deployments?${new URLSearchParams({ org, ...query }).toString()}`);
  const within = (query: Readonly<Record<string, string>>): string => at({ deployment: on.id, ...query });
  const inspect = async (session: string, person: Person = on.owner): Promise<Page> => {
    const page = await world.newPage(person);
    await page.goto(within({ part: 'sessions', session }));
    await page.getByRole('slider', { name: /^Event/ }).waitFor();
    return page;
  };
  const slider = (page: Page): Locator => page.getByRole('slider', { name: /^Event/ });
  const conversation = (page: Page): Locator => page.getByRole('region', { name: 'Conversation' });
  const state = (page: Page): Locator => page.getByRole('region', { name: /^State after event/ });
  const known = async (key: string): Promise<number> => (await on.service('GET', '/v1/sessions', { token: key })).status;

  test('console deployments - one is made, its key and secret are shown once and work, a new key ends the old one, deleting wants its name [RUN-038] [RUN-041]', async () => {
    const page = await world.newPage(on.owner);
    await page.goto(at());
    await arrived(page, row(page, on.id).getByText('running', { exact: true }));
    await page.getByRole('textbox', { name: 'Name' }).fill('<b>Support</b>');
    await page.getByLabel('Purpose').fill('Answers questions');
    await page.getByRole('button', { name: 'Create deployment' }).click();
    const key = await page.getByLabel('Deployment key').inputValue();
    const secret = await page.getByLabel('Shared secret').inputValue();
    assert.match(`${key} ${secret}`, /^trp_dk_\S+ trp_ds_\S+$/);
    assert.equal(await known(key), 200);
    await page.getByRole('button', { name: 'I have kept it' }).click();
    await page.reload();
    const mine = row(page, '<b>Support</b>');
    await mine.waitFor();
    const html = await page.content();
    assert.ok(!html.includes(key) && !html.includes(secret));
    assert.equal(await page.locator('main b').count(), 0, 'a name is text');

    await mine.getByRole('button', { name: 'New key for <b>Support</b>' }).click();
    await confirm(page, 'Rotate the key');
    const next = await page.getByLabel('Deployment key').inputValue();
    assert.deepEqual([await known(key), await known(next)], [401, 200]);
    assert.equal(await page.getByLabel('Shared secret').count(), 0, 'the secret is the old one, and not shown');
    await mine.getByRole('button', { name: 'Restart <b>Support</b>' }).click();
    await confirm(page, 'Restart');
    await page.getByText('<b>Support</b> is restarting').waitFor();
    assert.equal(await known(next), 200);

    await mine.getByRole('button', { name: 'Delete <b>Support</b>' }).click();
    const written = page.getByRole('textbox', { name: /^Write .* to confirm$/ });
    await written.press('Enter');
    assert.equal(await page.getByRole('dialog').isVisible(), true);
    assert.equal(await known(next), 200, 'nothing is deleted before the name is written');
    await written.fill('<b>Support</b>');
    await confirm(page, 'Delete');
    await page.getByText('<b>Support</b> is being deleted').waitFor();
    assert.equal(await known(next), 401);
  });

  test('console deployments - a viewer looks and is offered nothing else; a plan without deployments says so; another organization\'s is not there [RUN-039]', async () => {
    await client.turn('seen', 'hello');
    const viewer = await world.addMember(on.owner, on.org.id, 'viewer');
    const page = await world.newPage(viewer);
    await page.goto(at());
    await arrived(page, row(page, on.id).getByRole('link'));
    assert.deepEqual(await page.getByRole('main').getByRole('button').allInnerTexts(), []);
    assert.ok((await tabs(page)).includes('Deployments'));
    await page.getByRole('link', { name: 'Test', exact: true }).click();
    const seen = page.getByRole('link', { name: 'seen', exact: true });
    await arrived(page, seen);
    await seen.click();
    await conversation(page).getByText('You said: hello').last().waitFor();
    await arrived(page, page.getByRole('region', { name: 'Branches' }).getByText('main'));
    assert.equal(await page.getByRole('button', { name: /^Fork/ }).count(), 0);

    const other = await world.signUp();
    const { id } = await world.newOrganization(other);
    const theirs = await world.newPage(other);
    await theirs.goto(at({}, id));
    await arrived(theirs, theirs.getByText('There is no deployment yet'));
    await theirs.getByRole('textbox', { name: 'Name' }).fill('Mine');
    await theirs.getByRole('button', { name: 'Create deployment' }).click();
    await theirs.getByRole('alert').getByText(/team or enterprise/).waitFor();
    await theirs.goto(at({ deployment: on.id, part: 'sessions', session: 'seen' }, id));
    await theirs.getByRole('alert').waitFor();
    assert.equal(await theirs.getByText('You said: hello').count(), 0);
  });

  test('console inspector - by keyboard alone one goes through time: conversation, state and journal are those of the event, two events are compared', async () => {
    await client.turn('time', 'first words');
    await client.turn('time', 'second words');
    const events = await client.events('time');
    const page = await inspect('time');
    await page.getByText(`Event ${events.length} of ${events.length}: RunFinished`).waitFor();
    await slider(page).focus();
    await page.keyboard.press('Home');
    await page.getByText(`Event 1 of ${events.length}: SessionCreated`).waitFor();
    assert.equal(await conversation(page).getByText('first words').count(), 0);
    const ended = events.findIndex(({ kind }) => kind === 'RunFinished') + 1;
    for (let number = 2; number <= ended; number++) await page.keyboard.press('ArrowRight');
    await page.getByRole('heading', { name: `State after event ${ended}` }).waitFor();
    await state(page).getByText('Turns ended').locator('xpath=..').getByText('1', { exact: true }).waitFor();
    assert.deepEqual([await conversation(page).getByText('You said: first words').count(), await conversation(page).getByText('second words').count()], [1, 0]);
    assert.match(await page.locator('.journal [aria-current]').innerText(), new RegExp(`^${ended}\\s+RunFinished`));

    await state(page).getByRole('button', { name: `Compare with event ${ended}` }).press('Enter');
    await page.getByRole('button', { name: 'Latest' }).press('Enter');
    await state(page).getByRole('heading', { name: `From event ${ended} to event ${events.length}` }).waitFor();
    const differences = state(page).getByRole('region', { name: 'Differences' });
    const turns = differences.getByRole('row').filter({ hasText: 'turns' });
    assert.match(await turns.innerText(), /turns changed\s+1\s+2/);
    assert.match(await differences.innerText(), /You said: second words/);
    assert.doesNotMatch(await differences.innerText(), /first words/);
    await shots(page, 'deployments')('compare');
  });

  test('console inspector - a replay goes from the beginning to the end and then follows what comes', async () => {
    await client.turn('replay', '/slow 20 15');
    const page = await inspect('replay');
    await page.getByLabel('Replay speed').selectOption('64×');
    const count = (await client.events('replay')).length;
    await page.getByText(`Event ${count} of ${count}`).waitFor();
    const seen = page.evaluate(() => new Promise<number[]>((resolve) => {
      const range = document.querySelector<HTMLInputElement>('input[type=range]');
      const numbers: number[] = [];
      new MutationObserver(() => {
        const value = range?.valueAsNumber ?? 0;
        // What changes before the replay has begun is not of it.
        if (value !== numbers.at(-1) && (numbers.length > 0 || value === 1)) numbers.push(value);
        if (numbers.length > 1 && value === Number(range?.max)) resolve(numbers);
      }).observe(document.body, { subtree: true, childList: true, attributes: true, characterData: true });
    }));
    await page.getByRole('button', { name: 'Replay' }).click();
    const numbers = await seen;
    assert.ok((numbers.at(-1) ?? 0) >= count);
    assert.deepEqual(numbers, numbers.toSorted((a, b) => a - b));
    await page.getByRole('button', { name: 'Replay' }).waitFor();
    await client.turn('replay', 'after it');
    await conversation(page).getByText('You said: after it').last().waitFor();
  });

  test('console inspector - a tool call that waits is approved or denied here, a turn that runs is stopped, all seen as it happens', async () => {
    await client.turn('decide', 'hello');
    const page = await inspect('decide');
    await page.getByText('Live: new events come as they happen').waitFor();
    for (const [word, shown] of [['Approve', 'done'], ['Deny', 'denied']] as const) {
      const turn = client.turn('decide', `/approve ${word} it`);
      await page.getByRole('button', { name: `${word} send_report` }).click();
      await turn;
      await conversation(page).getByRole('listitem').filter({ has: page.locator('summary', { hasText: 'send_report' }) }).last().getByText(shown, { exact: true }).waitFor();
    }
    const answer = await client.open('decide', '/hang 3');
    const ended = (async () => {
      const frames = [];
      for await (const frame of framesOf(answer)) frames.push(frame);
      return frames;
    })();
    await conversation(page).getByText(/w1 w2 w3/).waitFor();
    await page.getByRole('button', { name: 'Stop the turn' }).click();
    assert.match((await ended).map(({ data }) => data).join(''), /"finish_reason":"cancelled"/);
    await page.getByText('at rest').waitFor();
  });

  test('console deployments - every page is clean by axe-core in both colour schemes and on a small screen, what is not there is said', async () => {
    for (const [path, content] of [['A.md', '---\ntitle: A\n---\n[[B]] and [[C]]'], ['B.md', '[[C]]'], ['C.md', 'sea']] as const) {
      const posted = await on.service('POST', '/v1/knowledge/documents', { json: { path, content } });
      assert.equal(posted.status, 201, posted.body);
    }
    await client.turn('clean', '/tool calculator {"expression":"6*7"}');
    const page = await world.newPage(on.owner);
    const pages: readonly [string, string, Locator][] = [
      ['list', at(), row(page, on.id)], ['sessions', within({ part: 'sessions' }), page.getByRole('link', { name: 'clean', exact: true })],
      ['inspector', within({ part: 'sessions', session: 'clean' }), page.getByRole('button', { name: /^Compare with event/ })],
      ['knowledge', within({ part: 'knowledge', node: 'a' }), page.getByRole('group', { name: /^Graph of 3/ })],
      ['regulation', within({ part: 'regulation' }), page.getByRole('meter', { name: 'Mode' })],
    ];
    for (const [name, url, there] of pages) {
      for (const colorScheme of ['light', 'dark'] as const) {
        await page.emulateMedia({ colorScheme });
        await page.goto(url);
        await arrived(page, there);
        assert.deepEqual(await axeViolations(page), [], `${name} ${colorScheme}`);
        await shots(page, `deployments-${colorScheme}`)(name);
      }
      await page.setViewportSize({ width: 360, height: 740 });
      assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), 360, `${name} is as wide as a small screen`);
      await shots(page, 'deployments-small')(name);
      await page.setViewportSize({ width: 1280, height: 900 });
    }
    await page.goto(within({ part: 'knowledge', node: 'a' }));
    await page.getByRole('group', { name: /^Graph of 3/ }).getByRole('link', { name: /^C,|^c,/i }).focus();
    await page.keyboard.press('Enter');
    await page.getByLabel('Text of the document').getByText('sea').waitFor();
    const missing: readonly Readonly<Record<string, string>>[] = [{ part: 'sessions', session: 'none' }, { part: 'knowledge', node: 'none' }];
    for (const query of missing) {
      await page.goto(within(query));
      await page.getByRole('alert').first().waitFor();
    }
  });
});
