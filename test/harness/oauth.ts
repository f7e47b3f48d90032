/**
 * Google and GitHub as `emulate` plays them, and the person at their consent page: clicks the account and gives the address the browser
 * is sent to. No browser and no network beyond the loopback address.
 */
import { createEmulator } from 'emulate';
import type { TestScope } from './stack.ts';

export const googleClient = { id: 'google-client', secret: 'google-client-secret-Zx81' } as const;
export const githubClient = { id: 'github-client', secret: 'github-client-secret-Qp42' } as const;

export interface GoogleUser {
  readonly email: string;
  readonly name: string;
  readonly email_verified?: boolean;
}
export interface GithubUser {
  readonly login: string;
  readonly name: string;
  readonly email: string;
}

export interface EmulatedProvider {
  readonly url: string;
  close(): Promise<void>;
}

/** Ends with the test. */
export const startGoogle = async (scope: TestScope, baseUrl: string, users: readonly GoogleUser[]): Promise<EmulatedProvider> => {
  const emulator = await createEmulator({
    service: 'google', port: 0,
    seed: { google: { users, oauth_clients: [{ client_id: googleClient.id, client_secret: googleClient.secret, name: 'Troupe', redirect_uris: [`${baseUrl}/api/auth/callback/google`] }] } },
  });
  scope.after(() => emulator.close());
  return emulator;
};

export const startGithub = async (scope: TestScope, baseUrl: string, users: readonly GithubUser[]): Promise<EmulatedProvider> => {
  const emulator = await createEmulator({
    service: 'github', port: 0,
    seed: { github: { users, oauth_apps: [{ client_id: githubClient.id, client_secret: githubClient.secret, name: 'Troupe', redirect_uris: [`${baseUrl}/api/auth/callback/github`] }] } },
  });
  scope.after(() => emulator.close());
  return emulator;
};

/** Opens the provider's page and signs in as the person whose e-mail address or login is given: the address the browser is sent back to. */
export const consent = async (authorizeUrl: string, who: string): Promise<URL> => {
  const page = await (await fetch(authorizeUrl)).text();
  for (const [, action = '', fields = ''] of page.matchAll(/<form class="user-form" method="post" action="([^"]*)">\n?(.*?)<button/gs)) {
    const form = new URLSearchParams([...fields.matchAll(/name="([^"]*)" value="([^"]*)"/g)].map(([, name = '', value = '']) => [name, unescaped(value)]));
    if (form.get('email') !== who && form.get('login') !== who) continue;
    const answer = await fetch(new URL(action, authorizeUrl), { method: 'POST', body: form, redirect: 'manual' });
    const location = answer.headers.get('location');
    if (location !== null) return new URL(location);
  }
  throw new Error(`nobody called ${who} at ${authorizeUrl}:\n${page.replaceAll(/<style>.*?<\/style>/gs, '').slice(0, 2_000)}`);
};

const unescaped = (text: string): string =>
  text.replaceAll('&quot;', '"').replaceAll('&#39;', '\'').replaceAll('&#x27;', '\'').replaceAll('&lt;', '<').replaceAll('&gt;', '>').replaceAll('&amp;', '&');
