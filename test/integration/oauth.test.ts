/** Sign-in with Google and GitHub over HTTP, both as `emulate` plays them: from the button to the session cookie. One platform for all tests here. */
import assert from 'node:assert/strict';
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, suite, test } from 'node:test';
import { z } from 'zod';
import { freePort } from '../harness/port.ts';
import { authRoutes } from '../../contracts/auth-routes.ts';
import { cookieNames } from '../../contracts/platform.ts';
import { consent, githubClient, googleClient, startGithub, startGoogle, type EmulatedProvider } from '../harness/oauth.ts';
import { answered, cookieOf, startPlatform, type ApiReply, type TestPlatform } from '../harness/platform.ts';

type Name = 'google' | 'github';
const session = z.object({ user: z.object({ id: z.string(), email: z.string(), name: z.string() }).nullable(), providers: z.array(z.string()) });

suite('sign-in with Google and GitHub over HTTP', { timeout: 240_000 }, () => {
  let platform: TestPlatform;
  let google: EmulatedProvider;
  let folder: string;
  const ends: (() => Promise<void>)[] = [];
  const scope = { after: (end: () => Promise<void>): void => void ends.push(end) };

  before(async () => {
    const port = await freePort();
    const baseUrl = `https://localhost:${port}`;
    folder = await mkdtemp(join(tmpdir(), 'troupe-oauth-'));
    ends.push(() => rm(folder, { recursive: true, force: true }));
    const [googleSecret, githubSecret] = [join(folder, 'google.secret'), join(folder, 'github.secret')];
    for (const [path, secret] of [[googleSecret, googleClient.secret], [githubSecret, githubClient.secret]] as const) {
      await writeFile(path, `${secret}\n`, { mode: 0o600 });
      await chmod(path, 0o600);
    }
    google = await startGoogle(scope, baseUrl, [
      { email: 'ada@example.com', name: 'Ada Lovelace' }, { email: 'eve@example.com', name: 'Eve', email_verified: false }, { email: 'new@example.com', name: 'New Person' },
    ]);
    const github = await startGithub(scope, baseUrl, [{ login: 'ada', name: 'Ada L.', email: 'Ada@Example.com' }, { login: 'eve', name: 'Eve', email: 'someone-else@example.com' }]);
    platform = await startPlatform(undefined, {
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
    ends.push(() => platform.stop());
  });
  after(async () => {
    for (const end of ends.toReversed()) await end();
  });

  const start = async (name: Name, returnTo?: string): Promise<{ readonly location: string; readonly pending: string; readonly reply: ApiReply }> => {
    const query = returnTo === undefined ? '' : `?${new URLSearchParams({ return_to: returnTo }).toString()}`;
    const reply = await platform.api('GET', `${authRoutes[`${name}Start`].path}${query}`);
    assert.equal(reply.status, 303, reply.body);
    return { location: reply.headers.location ?? '', pending: cookieOf(reply, cookieNames.signin) ?? '', reply };
  };
  const back = (url: URL, pending?: string): Promise<ApiReply> => {
    assert.equal(url.origin, platform.baseUrl);
    return platform.api('GET', `${url.pathname}${url.search}`, { headers: pending === undefined ? {} : { cookie: `${cookieNames.signin}=${pending}` } });
  };
  const signIn = async (name: Name, who: string, returnTo?: string): Promise<ApiReply> => {
    const { location, pending } = await start(name, returnTo);
    return back(await consent(location, who), pending);
  };
  const sessionOf = async (reply: ApiReply): Promise<z.output<typeof session>> =>
    answered(await platform.api('GET', authRoutes.session.path, { cookie: cookieOf(reply, cookieNames.session) ?? '-' }), 200, session);

  test('oauth - the three ways are offered [TOK-048]', async () => {
    assert.deepEqual(answered(await platform.api('GET', authRoutes.session.path), 200, session), { user: null, providers: ['email', 'google', 'github'] });
  });

  for (const [name, who, shown] of [['google', 'ada@example.com', 'Ada Lovelace'], ['github', 'ada', 'Ada Lovelace']] as const) {
    test(`oauth ${name} - a person signs in with a code, PKCE and a state and is back where the sign-in began [TOK-050] [TOK-053]`, async () => {
      const { location, pending, reply: begun } = await start(name, '/device?code=ABCD-2345');
      const query = new URL(location).searchParams;
      assert.equal(query.get('code_challenge_method'), 'S256');
      assert.match(query.get('code_challenge') ?? '', /^[\w-]{43}$/);
      assert.match(begun.headers['set-cookie']?.[0] ?? '', /^__Host-troupe-signin=[^;]+; Path=\/; Max-Age=600; HttpOnly; Secure; SameSite=Lax$/);
      const reply = await back(await consent(location, who), pending);
      assert.deepEqual([reply.status, reply.headers.location], [303, `${platform.baseUrl}/device?code=ABCD-2345`]);
      const line = reply.headers['set-cookie']?.find((text) => text.startsWith(`${cookieNames.session}=`)) ?? '';
      for (const attribute of ['; Path=/', '; HttpOnly', '; Secure', '; SameSite=Lax']) assert.ok(line.includes(attribute), line);
      assert.ok(!line.includes('Domain'));
      assert.equal(cookieOf(reply, cookieNames.signin), '');
      const { user } = await sessionOf(reply);
      assert.deepEqual([user?.email, user?.name], ['ada@example.com', shown]);
    });
  }

  test('oauth - by e-mail, Google and GitHub the same verified address reaches the same account [TOK-051]', async () => {
    const byMail = await platform.signUp('ada@example.com');
    for (const [name, who] of [['google', 'ada@example.com'], ['github', 'ada']] as const) {
      assert.equal((await sessionOf(await signIn(name, who))).user?.id, byMail.userId);
    }
    assert.notEqual((await sessionOf(await signIn('google', 'new@example.com'))).user?.id, byMail.userId);
  });

  test('oauth - an address that its provider has not verified opens neither its owner\'s account nor a new one [TOK-052]', async () => {
    const owner = await platform.signUp('eve@example.com');
    const reply = await signIn('google', 'eve@example.com', '/console');
    assert.deepEqual([reply.status, reply.headers.location], [303, `${platform.baseUrl}/signin?error=email_unverified&return_to=%2Fconsole`]);
    assert.equal(cookieOf(reply, cookieNames.session), undefined);
    assert.equal(cookieOf(reply, cookieNames.signin), '');
    const grants = answered(await platform.api('GET', authRoutes.grants.path, { token: owner.accessToken }), 200, z.object({ grants: z.array(z.object({ kind: z.string() })) }));
    assert.equal(grants.grants.length, 1);
  });

  for (const [name, who] of [['google', 'ada@example.com'], ['github', 'ada']] as const) {
    test(`oauth ${name} - a callback with a wrong or missing state, without its cookie, or again is refused [TOK-050]`, async () => {
      const { location, pending } = await start(name);
      const good = await consent(location, who);
      const refused = `${platform.baseUrl}/signin?error=signin_refused`;
      const changed = (change: (query: URLSearchParams) => void): URL => {
        const url = new URL(good);
        change(url.searchParams);
        return url;
      };
      const wrong = [
        await back(changed((query) => query.set('state', 'x'.repeat(43))), pending), await back(changed((query) => query.delete('state')), pending),
        await back(good), await back(good, `${pending.slice(0, -3)}AAA`), await back(changed((query) => query.delete('code')), pending),
      ];
      for (const reply of wrong) {
        assert.deepEqual([reply.status, reply.headers.location], [303, refused]);
        assert.equal(cookieOf(reply, cookieNames.session), undefined);
      }
      const twice = changed((query) => query.append('state', 'another'));
      assert.equal((await back(twice, pending)).status, 422, 'a repeated parameter');
      assert.ok(cookieOf(await back(good, pending), cookieNames.session) !== undefined);
      assert.equal((await back(good, pending)).headers.location, refused);
    });
  }

  test('oauth - a person who says no, and an address to return to that is another site\'s', async () => {
    const { location, pending } = await start('google', '/device');
    const state = new URL(location).searchParams.get('state') ?? '';
    const no = await back(new URL(`${platform.baseUrl}${authRoutes.googleCallback.path}?${new URLSearchParams({ error: 'access_denied', state }).toString()}`), pending);
    assert.equal(no.headers.location, `${platform.baseUrl}/signin?error=signin_refused&return_to=%2Fdevice`);
    for (const path of ['//evil.example', '/\\evil.example', 'https://evil.example/', '/\t/evil.example', '/.//evil.example']) {
      const reply = await platform.api('GET', `${authRoutes.googleStart.path}?${new URLSearchParams({ return_to: path }).toString()}`);
      assert.deepEqual([reply.status, reply.headers.location], [422, undefined], path);
    }
  });

  test('oauth - neither a client secret nor a code stands in what the processes write', async () => {
    const { location, pending } = await start('github');
    const url = await consent(location, 'eve');
    assert.equal((await back(url, pending)).status, 303);
    const text = platform.report();
    for (const secret of [googleClient.secret, githubClient.secret, pending, url.searchParams.get('code') ?? '-', url.searchParams.get('state') ?? '-']) assert.ok(!text.includes(secret));
  });

  test('oauth - a provider that is gone leads back to the sign-in page, which works by e-mail', async () => {
    const { location, pending } = await start('google');
    const url = await consent(location, 'ada@example.com');
    await google.close();
    const reply = await back(url, pending);
    assert.deepEqual([reply.status, reply.headers.location], [303, `${platform.baseUrl}/signin?error=provider_unavailable`]);
    await platform.signUp('ada@example.com');
  });
});
