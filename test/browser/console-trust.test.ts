/**
 * The console's trust page in a real Chromium against the whole stack and a real name server: factors, verifying a domain step by step,
 * certifications from application to decision, an agent's score. Screenshots go into TROUPE_SCREENSHOTS when it names a folder.
 */
import assert from 'node:assert/strict';
import { after, afterEach, before, test } from 'node:test';
import type { Page } from 'playwright-core';
import { certificationAnswer, userScore } from '../../contracts/trust.ts';
import { ConsoleWorld, row } from '../harness/console-world.ts';
import { startTxtServer, type TxtServer } from '../harness/dns.ts';
import { axeViolations, shots } from '../harness/page-check.ts';
import { answered, type Person } from '../harness/platform.ts';

let world: ConsoleWorld;
let dns: TxtServer;
let staff: Person;

before(async () => {
  dns = await startTxtServer();
  world = await ConsoleWorld.start({ daemons: 1, gateways: 1, daemon: { trust: { name_servers: [dns.address] }, platform: { staff: ['staff@example.com'] } } });
  staff = await world.signUp('staff@example.com');
});
after(async () => {
  await world.stop();
  await dns.stop();
});
afterEach(() => world.endTest());

const open = async (person: Person): Promise<Page> => {
  const page = await world.newPage(person);
  await page.goto(world.url('/console/trust'));
  await page.getByRole('heading', { name: 'Identity' }).waitFor();
  return page;
};
const scoreOf = async (person: Person) => answered(await world.platform.api('GET', '/api/trust/score', { token: person.accessToken }), 200, userScore);
const identity = (page: Page, value: string): Promise<void> => page.getByRole('heading', { name: `Identity ${value}` }).waitFor();
const step = (page: Page): Promise<string> => page.locator('.steps [aria-current=step]').innerText();

test('console trust - the score, its level and each factor stand as the API says them, with what they count and what raises them [TRU-001] [TRU-003] [TRU-005]', async () => {
  const person = await world.signUp();
  const page = await open(person);
  const { score, level, factors } = await scoreOf(person);
  await page.locator('.score').getByText(score.toFixed(2)).waitFor();
  await page.locator('.score').getByText(level, { exact: true }).waitFor();
  for (const [title, value] of [['Identity', factors.identity], ['History', factors.history], ['Reputation', factors.reputation], ['Economic', factors.economic]] as const) {
    const factor = row(page, title).filter({ has: page.getByRole('heading', { name: `${title} ${value.toFixed(2)}` }) });
    assert.equal(await factor.locator('meter').evaluate((node) => (node as HTMLMeterElement).value), value);
    assert.match(await factor.innerText(), new RegExp(`25 % of the score: adds ${(value * 0.25).toFixed(3)} of 0\\.25`));
  }
});

test('console trust - a domain is verified step by step: its record, looked for in vain, found; the score follows [TRU-028] [TRU-029] [TRU-030]', async () => {
  const person = await world.signUp();
  const page = await open(person);
  await identity(page, '0.50');
  const domain = page.getByRole('textbox', { name: 'Domain' });
  assert.equal(await step(page), 'Name the domain');
  await domain.fill('https://acme.example/path');
  await domain.press('Enter');
  await page.getByRole('alert').getByText('must be a domain name such as example.com').waitFor();
  assert.equal(await domain.getAttribute('aria-invalid'), 'true');
  await domain.fill('Acme.Example');
  await domain.press('Enter');
  const name = await page.getByRole('textbox', { name: 'Name' }).inputValue();
  const value = await page.getByRole('textbox', { name: 'Value' }).inputValue();
  assert.equal(name, '_troupe.acme.example');
  assert.match(value, /^troupe-domain=/);
  assert.equal(await step(page), 'Set the record');

  dns.zone = (asked) => (asked === name ? [['troupe-domain=another']] : 'nxdomain');
  await page.getByRole('button', { name: 'I have set it: check now' }).click();
  await page.getByText('The record is not there yet.').waitFor();
  assert.equal(await step(page), 'Have it checked');
  await identity(page, '0.50');
  dns.zone = (asked) => (asked === name ? [[value]] : 'nxdomain');
  await page.getByRole('button', { name: 'Check again' }).click();
  await page.getByText('acme.example is verified').first().waitFor();
  await identity(page, '1.00');
  assert.equal(await page.locator('.steps [aria-current]').count(), 0, 'all steps are done');

  // Another account gets another value; the same account the same one, so that it can come back later.
  await page.getByRole('button', { name: 'Another domain' }).click();
  await page.getByRole('textbox', { name: 'Domain' }).fill('later.example');
  await page.getByRole('button', { name: 'Get the record' }).click();
  const later = await page.getByRole('textbox', { name: 'Value' }).inputValue();
  await page.reload();
  await page.getByRole('textbox', { name: 'Domain' }).fill('later.example');
  await page.getByRole('button', { name: 'Get the record' }).click();
  assert.equal(await page.getByRole('textbox', { name: 'Value' }).inputValue(), later);
});

test('console trust - a certification is applied for, waits, is decided by staff and shows where it stands; a member cannot apply [TRU-034] [TRU-040] [TRU-042]', async () => {
  const owner = await world.signUp();
  const { id, name } = await world.newOrganization(owner);
  const page = await open(owner);
  await page.getByText(`${name} has applied for none yet.`).waitFor();
  await page.getByLabel('Certification', { exact: true }).selectOption('Security reviewed');
  await page.getByLabel('Website').fill('https://acme.example');
  await page.getByLabel('Why it should have it').fill('Reviewed twice a year.');
  const [reply] = await Promise.all([page.waitForResponse((got) => got.request().method() === 'POST' && new URL(got.url()).pathname === '/api/trust/certify'), page.getByRole('button', { name: 'Apply' }).click()]);
  const { certificationId } = certificationAnswer.parse(await reply.json());
  assert.deepEqual(reply.request().postDataJSON(), { entityType: 'organization', entityId: id, certType: 'security-reviewed', evidence: { website: 'https://acme.example', description: 'Reviewed twice a year.' } });
  // The audit log hears of it durably, a moment later.
  while (await row(page, certificationId).count() === 0) {
    await page.reload();
    await row(page, certificationId).or(page.getByText('has applied for none yet')).first().waitFor();
  }
  await row(page, certificationId).getByText('pending', { exact: true }).waitFor();
  for (const [decision, said] of [['approved', 'staff may revoke it'], ['revoked', 'you may apply again']] as const) {
    const decided = await world.platform.api('POST', `/api/trust/certify/${certificationId}/decision`, { token: staff.accessToken, json: { decision } });
    assert.equal(decided.status, 200, decided.body);
    await page.reload();
    await row(page, certificationId).getByText(decision, { exact: true }).waitFor();
    await row(page, certificationId).getByText(said).waitFor();
  }
  await page.getByLabel('For', { exact: true }).selectOption('An agent of it');
  await page.getByLabel('Agent id').first().fill('agent-unknown');
  await page.getByLabel('Website').fill('https://acme.example');
  await page.getByLabel('Why it should have it').fill('It answers.');
  await page.getByRole('button', { name: 'Apply' }).click();
  await page.getByRole('alert').getByText('There is no agent agent-unknown').waitFor();

  const member = await world.addMember(owner, id, 'member');
  const theirs = await open(member);
  await theirs.getByText('Certifications are for admins and owners').waitFor();
  assert.equal(await theirs.getByRole('button', { name: 'Apply' }).count(), 0);
});

test('console trust - an agent\'s score is looked up by its id, with an agent\'s own factors; an unknown one is said at the field [TRU-017] [TRU-018] [TRU-019]', async () => {
  const page = await open(await world.signUp());
  const field = page.getByRole('form', { name: 'Agent' }).getByLabel('Agent id');
  await field.fill('agent-nowhere');
  await field.press('Enter');
  await page.getByRole('alert').getByText('There is no agent with this id').waitFor();
  await page.waitForFunction(() => document.activeElement?.getAttribute('name') === 'agentId');
  await page.route((address) => address.pathname === '/api/trust/score' && address.searchParams.has('agentId'), (route) => route.fulfill({
    json: { agentId: 'agent-x', score: 0.615, level: 'verified', factors: { identity: 0.5, history: 0.75, reputation: 0.8, economic: 0.25 }, deployedBy: 'org_1', updatedAt: '2026-01-01T00:00:00.000Z' },
  }));
  await field.fill('agent-x');
  await field.press('Enter');
  const found = page.getByRole('region', { name: 'Score of agent-x' });
  await found.getByText('verified', { exact: true }).waitFor();
  assert.deepEqual(await found.getByText(/% of the score/).allInnerTexts().then((texts) => texts.map((text) => /^.*? of \d\.\d+/.exec(text)?.[0])), [
    '20 % of the score: adds 0.100 of 0.20', '30 % of the score: adds 0.225 of 0.30', '30 % of the score: adds 0.240 of 0.30', '20 % of the score: adds 0.050 of 0.20',
  ]);
});

for (const colorScheme of ['light', 'dark'] as const) {
  test(`console trust - is clean for assistive technology, fits 320 pixels and verifies a domain by keyboard alone in ${colorScheme}`, async () => {
    const owner = await world.signUp();
    await world.newOrganization(owner);
    const page = await open(owner);
    await page.getByText('has applied for none yet').waitFor();
    await page.emulateMedia({ colorScheme });
    const shot = shots(page, `trust-${colorScheme}`);
    const check = async (name: string): Promise<void> => {
      for (const width of [320, 1_100]) {
        await page.setViewportSize({ width, height: 700 });
        await shot(`${width}-${name}`);
        assert.deepEqual(await axeViolations(page), [], `${name} at ${width}`);
        assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), width, `${name} is wider than the screen`);
      }
    };
    const reach = async (name: string): Promise<void> => {
      const button = page.getByRole('button', { name });
      await button.waitFor();
      for (let i = 0; i < 40 && !(await button.evaluate((node) => node === document.activeElement)); i++) await page.keyboard.press('Tab');
      assert.notEqual(await button.evaluate((node) => getComputedStyle(node).outlineStyle), 'none');
      await page.keyboard.press('Enter');
    };
    await check('score');
    dns.zone = () => 'nxdomain';
    await page.getByRole('textbox', { name: 'Domain' }).focus();
    await page.keyboard.type(`a-rather-long-name-of-a-domain.${'label'.repeat(10)}.example`);
    await page.keyboard.press('Enter');
    await reach('I have set it: check now');
    await page.getByText('The record is not there yet.').waitFor();
    await check('record');
  });
}
