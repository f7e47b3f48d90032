/** Signing in with Google and GitHub, as `emulate` plays them, in a real Chromium: from the button there and back to where one was going. */
import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import type { BrowserContext } from 'playwright-core';
import { cookieNames } from '../../contracts/platform.ts';
import { freePort } from '../harness/port.ts';
import { launchBrowser } from '../harness/browser.ts';
import { githubClient, googleClient, startGithub, startGoogle } from '../harness/oauth.ts';
import { complaintsOf } from '../harness/page-check.ts';
import { startPlatform } from '../harness/platform.ts';

/** Names of our cookies: the emulators set theirs for the same host. */
const ours = async (context: BrowserContext): Promise<string[]> => (await context.cookies()).map(({ name }) => name).filter((name) => name.startsWith('__Host-'));

test('signin - the buttons of Google and GitHub lead there and back into one account; an unverified address is told why [TOK-048] [TOK-051] [TOK-052]', async (t) => {
  const port = await freePort();
  const baseUrl = `https://localhost:${port}`;
  const folder = await mkdtemp(join(tmpdir(), 'troupe-signin-'));
  t.after(() => rm(folder, { recursive: true, force: true }));
  const [googleSecret, githubSecret] = [join(folder, 'google.secret'), join(folder, 'github.secret')];
  await writeFile(googleSecret, `${googleClient.secret}\n`, { mode: 0o600 });
  await writeFile(githubSecret, `${githubClient.secret}\n`, { mode: 0o600 });
  const google = await startGoogle(t, baseUrl, [{ email: 'ada@example.com', name: 'Ada Lovelace' }, { email: 'eve@example.com', name: 'Eve', email_verified: false }]);
  const github = await startGithub(t, baseUrl, [{ login: 'ada', name: 'Ada L.', email: 'ada@example.com' }]);
  await startPlatform(t, {
    port,
    daemon: {
      platform: {
        google: { issuer: google.url, client_id: googleClient.id, client_secret_path: googleSecret, allow_insecure: true },
        github: {
          authorize_url: `${github.url}/login/oauth/authorize`, token_url: `${github.url}/login/oauth/access_token`, api_url: github.url,
          client_id: githubClient.id, client_secret_path: githubSecret, allow_insecure: true,
        },
      },
    },
  });
  const browser = await launchBrowser();
  t.after(() => browser.close());
  const ids: string[] = [];
  for (const [provider, person] of [['Google', 'Ada Lovelace'], ['GitHub', 'ada']] as const) {
    const context = await browser.newContext({ ignoreHTTPSErrors: true });
    const page = await context.newPage();
    page.setDefaultTimeout(15_000);
    const complaints = complaintsOf(page);
    await page.goto(`${baseUrl}/console/account`);
    await page.getByRole('link', { name: 'Sign in' }).click();
    await page.getByRole('link', { name: `Continue with ${provider}` }).click();
    await page.waitForURL((address) => address.port !== String(port));
    await page.getByRole('button', { name: person }).first().click();
    await page.waitForURL(`${baseUrl}/console/account`);
    ids.push(await page.locator('dd code').innerText());
    assert.deepEqual(await ours(context), [cookieNames.session], 'what the way back needed is gone');
    assert.deepEqual(complaints, []);
    await context.close();
  }
  assert.equal(ids[0], ids[1]);

  const context = await browser.newContext({ ignoreHTTPSErrors: true });
  const page = await context.newPage();
  page.setDefaultTimeout(15_000);
  await page.goto(`${baseUrl}/signin`);
  await page.getByRole('link', { name: 'Continue with Google' }).click();
  await page.getByRole('button', { name: 'Eve' }).first().click();
  await page.getByRole('alert').getByText('no e-mail address which its provider has verified').waitFor();
  assert.deepEqual(await ours(context), []);
});
