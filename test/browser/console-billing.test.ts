/**
 * The console's plan page in a real Chromium against the whole stack with a Stripe-like server: buying, the portal, and each reason why a button
 * cannot be pressed. Screenshots go into TROUPE_SCREENSHOTS when it names a folder.
 */
import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, afterEach, before, test } from 'node:test';
import type { Locator, Page } from 'playwright-core';
import { billingRoutes } from '../../contracts/billing-routes.ts';
import { chatWorld, type ChatWorld } from '../harness/chat.ts';
import { ConsoleWorld } from '../harness/console-world.ts';
import { axeViolations, shots } from '../harness/page-check.ts';
import type { Person } from '../harness/platform.ts';
import { signed, startStripe, stripeSecrets, type StripeEvent, type StripeServer } from '../harness/stripe.ts';

let world: ConsoleWorld;
let chat: ChatWorld;
let stripe: StripeServer;
let folder: string;

before(async () => {
  folder = await mkdtemp(join(tmpdir(), 'troupe-console-billing-'));
  const [keyPath, webhookPath] = [join(folder, 'key'), join(folder, 'webhook')];
  [stripe] = await Promise.all([startStripe(), writeFile(keyPath, stripeSecrets.key, { mode: 0o600 }), writeFile(webhookPath, stripeSecrets.webhook, { mode: 0o600 })]);
  world = await ConsoleWorld.start({
    daemons: 1, gateways: 1, daemonEnvironment: { SELF_SERVICE_CHECKOUT_ENABLED: 'true' },
    daemon: { billing: { stripe: { api_url: stripe.url, secret_key_path: keyPath, webhook_secret_path: webhookPath }, prices: { pro: ['price_pro'] } } },
  });
  chat = await chatWorld(world.platform);
});
after(async () => {
  await chat.stop();
  await world.stop();
  await stripe.stop();
  await rm(folder, { recursive: true });
});
afterEach(() => world.endTest());

const open = async (person: Person, orgId: string): Promise<Page> => {
  const page = await world.newPage(person);
  await page.goto(world.url(`/console/plan?org=${orgId}`));
  await page.getByRole('heading', { name: 'All plans' }).waitFor();
  return page;
};
const choose = (page: Page, plan: string): Locator => page.getByRole('button', { name: `Choose ${plan}` });
const portal = (page: Page): Locator => page.getByRole('button', { name: 'Open customer portal' });
/** Why the button cannot be pressed, as assistive technology is told; undefined if it can. */
const reason = async (button: Locator): Promise<string | undefined> => {
  if (await button.getAttribute('aria-disabled') !== 'true') return undefined;
  const id = await button.getAttribute('aria-describedby');
  return button.page().locator(`[id="${id ?? ''}"]`).innerText();
};
/** Where the press leads outside; the page there is not loaded. */
const leadsTo = async (page: Page, button: Locator): Promise<string> => {
  await page.route((address) => address.hostname.endsWith('.stripe.example'), (route) => route.fulfill({ contentType: 'text/html', body: '<!doctype html><title>t</title>' }));
  await button.click();
  await page.waitForURL((address) => address.hostname.endsWith('.stripe.example'));
  return page.url();
};
const deliver = async (events: readonly StripeEvent[]): Promise<void> => {
  for (const event of events) assert.equal((await world.platform.api('POST', billingRoutes.paymentEvents.path, signed(event))).status, 200);
};
const accepted = async (): Promise<Person> => {
  const person = await world.signUp();
  return { ...person, accessToken: await chat.accept(person) };
};

test('console plan - an owner buys a plan at the hosted checkout, sees it and its credits here, and manages it in the portal from then on [BIL-024] [BIL-034] [BIL-044]', async () => {
  const owner = await accepted();
  const { id } = await world.newOrganization(owner);
  const page = await open(owner, id);
  await page.getByText('50 of 50 credits left').waitFor();
  assert.equal(await reason(portal(page)), 'This organization has not paid for anything yet.');
  assert.equal(await reason(choose(page, 'Pro')), undefined);
  const checkout = await leadsTo(page, choose(page, 'Pro'));
  assert.match(checkout, /^https:\/\/checkout\.stripe\.example\//);
  await deliver(stripe.pay(checkout).events);
  for (let plan = ''; plan !== 'pro';) plan = /"plan":"(\w+)"/.exec((await world.platform.api('GET', billingRoutes.tier.path, { token: owner.accessToken })).body)?.[1] ?? '';
  await page.goto(world.url(`/console/plan?org=${id}`));
  await page.getByRole('heading', { level: 2, name: 'Pro', exact: true }).waitFor();
  await page.getByText('5,000 of 5,000 credits left').waitFor();
  await page.getByRole('row', { name: /^Pro \(yours\)/ }).waitFor();
  assert.match(String(await reason(choose(page, 'Team'))), /A subscription is running: change it in the customer portal/);
  assert.match(await leadsTo(page, portal(page)), /^https:\/\/billing\.stripe\.example\//);
});

test('console plan - who is no admin sees why: by role, in the page and to assistive technology; pressing does nothing [BIL-029] [BIL-035]', async () => {
  const owner = await accepted();
  const { id } = await world.newOrganization(owner);
  const viewer = await world.addMember(owner, id, 'viewer');
  const page = await open(viewer, id);
  const asked: string[] = [];
  page.on('request', (request) => { if (request.method() === 'POST' && request.url().includes('/api/payments/')) asked.push(request.url()); });
  for (const button of [choose(page, 'Pro'), choose(page, 'Team'), portal(page)]) {
    assert.equal(await reason(button), 'This is for admins and the owner; your role is viewer.');
    await button.focus();
    await page.keyboard.press('Enter');
  }
  assert.deepEqual(asked, []);
});

test('console plan - without the terms the way to them is shown, and back again [BIL-028] [BIL-036]', async () => {
  const owner = await world.signUp();
  const { id } = await world.newOrganization(owner);
  const page = await open(owner, id);
  assert.match(String(await reason(choose(page, 'Pro'))), /^The current terms must be accepted first\./);
  await page.locator('.offer').first().getByRole('link', { name: 'Read and accept them' }).click();
  for (const box of await page.getByRole('checkbox').all()) await box.check();
  await page.getByRole('button', { name: 'Accept and continue' }).click();
  await page.waitForURL(world.url(`/console/plan?org=${id}`));
  await choose(page, 'Pro').waitFor();
  assert.equal(await reason(choose(page, 'Pro')), undefined);
});

test('console plan - while nothing is sold, that is the reason for everybody; the question has no effect [BIL-025] [BIL-026]', async () => {
  const owner = await accepted();
  const { id } = await world.newOrganization(owner);
  const page = await world.newPage(owner);
  const bodies: unknown[] = [];
  await page.route((address) => address.pathname === billingRoutes.checkout.path, (route) => {
    bodies.push(route.request().postDataJSON());
    return route.fulfill({ status: 503, json: { error: { code: 'checkout_disabled', message: 'Plans cannot be bought here at the moment.', details: {} } } });
  });
  await page.goto(world.url(`/console/plan?org=${id}`));
  await choose(page, 'Pro').waitFor();
  for (const plan of ['Pro', 'Team']) assert.equal(await reason(choose(page, plan)), 'Plans cannot be bought here at the moment.');
  assert.deepEqual(bodies, [{}]);
  await page.unrouteAll();
  const before = stripe.requests.length;
  await page.reload();
  await choose(page, 'Pro').waitFor();
  assert.equal(await reason(choose(page, 'Pro')), undefined);
  assert.equal(stripe.requests.length, before, 'the payment service is not asked');
});

test('console plan - a plan without a price, a payment service that fails and an address that is not https are said beside the button [BIL-031] [BIL-032]', async () => {
  const owner = await accepted();
  const { id } = await world.newOrganization(owner);
  const page = await open(owner, id);
  await choose(page, 'Team').click();
  await page.getByRole('alert').getByText('Team is not sold here. Ask the operator of this installation.').waitFor();
  stripe.failing = { status: 500, message: 'secret words of the processor' };
  try {
    await choose(page, 'Pro').click();
    await page.getByRole('alert').getByText('The payment service failed. Try again later.').waitFor();
    assert.equal(await page.getByText('secret words').count(), 0);
  } finally {
    stripe.failing = undefined;
  }
  await page.route((address) => address.pathname === billingRoutes.checkout.path, (route) => route.fulfill({ json: { url: 'http://elsewhere.example/' } }));
  await choose(page, 'Pro').click();
  await page.getByRole('alert').getByText('is not https').waitFor();
  assert.equal(new URL(page.url()).pathname, '/console/plan');
});

for (const colorScheme of ['light', 'dark'] as const) {
  test(`console plan - is clean for assistive technology and fits 320 pixels in ${colorScheme}`, async () => {
    const owner = await world.signUp();
    const { id } = await world.newOrganization(owner);
    const page = await open(owner, id);
    await page.emulateMedia({ colorScheme });
    const shot = shots(page, `plan-${colorScheme}`);
    for (const width of [320, 1_100]) {
      await page.setViewportSize({ width, height: 700 });
      await shot(String(width));
      assert.deepEqual(await axeViolations(page), [], `at ${width}`);
      assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), width);
    }
  });
}
