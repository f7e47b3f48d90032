/**
 * A browser on a whole Troupe with accounts, for the tests of the console: people who are signed in there, their organizations, and the
 * console's own words for what is on the screen.
 *
 * Guarantee: `endTest` closes what the test opened and fails with what its pages complained about; `stop` ends browser and stack.
 */
import assert from 'node:assert/strict';
import type { Browser, BrowserContext, Locator, Page } from 'playwright-core';
import { organizationCreated } from '../../contracts/organization.ts';
import { organizationRoutes } from '../../contracts/organization-routes.ts';
import { cookieNames } from '../../contracts/platform.ts';
import { launchBrowser } from './browser.ts';
import { complaintsOf } from './page-check.ts';
import { answered, startPlatform, type Person, type PlatformOptions, type TestPlatform } from './platform.ts';

export const tabs = (page: Page): Promise<string[]> => page.getByRole('navigation', { name: /^Views of/ }).getByRole('link').allInnerTexts();
export const row = (page: Page, text: string): Locator => page.getByRole('listitem').filter({ hasText: text });
export const confirm = (page: Page, name: string): Promise<void> => page.getByRole('dialog').getByRole('button', { name, exact: true }).click();

const triesMax = 5;

/** Resolves when it is there. Where the page says instead that loading failed, "Try again" is pressed: under load a list may lag for longer than the daemon waits. */
export const arrived = async (page: Page, wanted: Locator): Promise<void> => {
  const again = page.getByRole('button', { name: 'Try again' });
  for (let tries = 1; ; tries++) {
    await wanted.or(again).first().waitFor();
    if (await wanted.first().isVisible()) return;
    assert.ok(tries < triesMax, await page.getByRole('alert').first().innerText());
    await Promise.all([page.waitForResponse((response) => response.url().includes('/api/')), again.first().click()]);
  }
};

export class ConsoleWorld {
  readonly platform: TestPlatform;
  readonly #browser: Browser;
  readonly #contexts: BrowserContext[] = [];
  readonly #complaints: string[][] = [];
  #turn = 0;

  private constructor(platform: TestPlatform, browser: Browser) {
    this.platform = platform;
    this.#browser = browser;
  }

  static async start(options: Omit<PlatformOptions, 'gateway'> = {}): Promise<ConsoleWorld> {
    const [platform, browser] = await Promise.all([startPlatform(undefined, { ...options, gateway: { auth: { platform: true } } }), launchBrowser()]);
    return new ConsoleWorld(platform, browser);
  }

  /** On a Troupe that is there already, whose gateways have `auth.platform`. `stop` ends it too. */
  static async over(platform: TestPlatform): Promise<ConsoleWorld> {
    return new ConsoleWorld(platform, await launchBrowser());
  }

  async stop(): Promise<void> {
    await this.#browser.close();
    await this.platform.stop();
  }

  async endTest(): Promise<void> {
    await Promise.all(this.#contexts.splice(0).map((context) => context.close()));
    assert.deepEqual(this.#complaints.splice(0).flat(), []);
  }

  url(path: string): string {
    return `${this.platform.baseUrl}${path}`;
  }

  newEmail(): string {
    this.#turn += 1;
    return `console-${this.#turn}@example.com`;
  }

  /** Sign-ups are counted per address of the network: each person has one. */
  signUp(email = this.newEmail()): Promise<Person> {
    return this.platform.signUp(email, { localAddress: `127.0.1.${this.#turn}` });
  }

  /** A page of a browser of its own, in which the person is signed in, or nobody. */
  async newPage(person?: Person): Promise<Page> {
    const context = await this.#browser.newContext({ ignoreHTTPSErrors: true, acceptDownloads: true, locale: 'en-US' });
    this.#contexts.push(context);
    if (person !== undefined) await context.addCookies([{ name: cookieNames.session, value: person.cookie, url: this.platform.baseUrl, secure: true, httpOnly: true, sameSite: 'Lax' }]);
    const page = await context.newPage();
    page.setDefaultTimeout(15_000);
    this.#complaints.push(complaintsOf(page));
    return page;
  }

  async newOrganization(owner: Person, name?: string): Promise<{ id: string; slug: string; name: string }> {
    this.#turn += 1;
    const json = { name: name ?? `Org ${this.#turn}`, slug: `org-${this.#turn}` };
    return answered(await this.platform.api('POST', organizationRoutes.createOrganization.path, { token: owner.accessToken, json }), 201, organizationCreated);
  }

  /** The link in the invitation's mail. */
  async inviteLink(email: string): Promise<string> {
    const { text } = await this.platform.outbox.next(email);
    return /https:\/\/\S+\/invite\?token=\S+/.exec(text)?.[0] ?? assert.fail(`no link in the mail:\n${text}`);
  }

  async addMember(owner: Person, orgId: string, role: 'admin' | 'member' | 'viewer'): Promise<Person> {
    const person = await this.signUp();
    const invited = await this.platform.api('POST', organizationRoutes.invite.path, { token: owner.accessToken, json: { orgId, email: person.email, role } });
    assert.equal(invited.status, 200, invited.body);
    const token = new URL(await this.inviteLink(person.email)).searchParams.get('token');
    const accepted = await this.platform.api('POST', organizationRoutes.acceptInvitation.path, { token: person.accessToken, json: { token } });
    assert.equal(accepted.status, 200, accepted.body);
    return person;
  }
}
