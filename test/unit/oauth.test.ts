import assert from 'node:assert/strict';
import { createSecretKey, randomBytes } from 'node:crypto';
import test from 'node:test';
import { allowance } from '../../actors/allowance/allowance.ts';
import { createAllowances } from '../../actors/daemon/allowances.ts';
import type { VerifiedIdentity } from '../../actors/daemon/platform/deps.ts';
import { oauthHandlers } from '../../actors/daemon/platform/oauth.ts';
import { open, seal } from '../../actors/daemon/platform/seal.ts';
import { parsePlatform, type PlatformResult } from '../../actors/daemon/platform/serve.ts';
import { takeOutput } from '../../contracts/allowance.ts';
import { authRoutes } from '../../contracts/auth-routes.ts';
import { CodedError } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { cookieNames, type PlatformRoute } from '../../contracts/platform.ts';
import { recorder } from '../harness/log.ts';
import { codeOf, createCluster, createHost } from '../harness/memory-host.ts';
import { startFaultyProvider, type FaultyProvider } from '../harness/oauth-faults.ts';
import type { TestScope } from '../harness/stack.ts';

const base = 'https://troupe.test';

interface Site {
  readonly provider: FaultyProvider;
  readonly signedIn: VerifiedIdentity[];
  readonly log: ReturnType<typeof recorder>;
  readonly clock: ReturnType<typeof createCluster>['clock'];
  /** Asks a route by its key, with the sign-in cookie if one is given. */
  readonly call: (route: keyof typeof authRoutes, query?: unknown, cookie?: string, ip?: string) => Promise<PlatformResult>;
}

const site = async (scope: TestScope, without: 'nothing' | 'secrets' = 'nothing'): Promise<Site> => {
  const provider = await startFaultyProvider(scope);
  const cluster = createCluster();
  const host = createHost(cluster, { definitions: [allowance()] });
  const log = recorder();
  const signedIn: VerifiedIdentity[] = [];
  const handlers = oauthHandlers({
    config: {
      base_url: base, signing_key_path: '-', former_key_paths: [], gateway_name: 'troupe-gateway', access_expiry_ms: 1_000,
      google: { issuer: provider.url, client_id: 'our-id', client_secret_path: '-', allow_insecure: true },
      github: { authorize_url: `${provider.url}/authorize`, token_url: `${provider.url}/token`, api_url: provider.url, client_id: 'our-id', client_secret_path: '-', allow_insecure: true },
    },
    masterKey: createSecretKey(randomBytes(32)), clientSecrets: without === 'secrets' ? {} : { google: 'our-secret-Wb77', github: 'our-secret-Wb77' }, log,
    allowances: createAllowances({ ask: async (address, input) => takeOutput.parse(await host.ask(address, 'take', input)), clock: cluster.clock }),
    accounts: {
      signIn: async (identity) => {
        signedIn.push(identity);
        return { account: { user_id: 'usr_a', email: identity.email, name: identity.name, policy: '' }, created: true, cookie: '__Host-troupe=session' };
      },
    },
    now: () => cluster.clock.now(), clock: cluster.clock,
  });
  return {
    provider, signedIn, log, clock: cluster.clock,
    call: (key, query = {}, cookie, ip = '192.0.2.1') => {
      const route: Pick<PlatformRoute, 'id' | 'query'> = authRoutes[key];
      const handler = handlers[route.id];
      if (handler?.needs !== 'nobody' || route.query === undefined) throw new TypeError(`${key} is no route of a provider`);
      return handler.run({
        caller: undefined, token: '', query: parsePlatform(route.query, query), body: undefined, deadlineAt: Number.MAX_SAFE_INTEGER, signal: new AbortController().signal,
        context: { ip, user_agent: 'test', ...(cookie === undefined ? {} : { cookies: { [cookieNames.signin]: cookie } }) },
      });
    },
  };
};

const locationOf = ({ status, headers }: PlatformResult): string => {
  assert.equal(status, 303);
  return headers?.location ?? '';
};
/** The sign-in cookie's value that an answer sets. */
const pendingOf = ({ headers }: PlatformResult): string => {
  const line = headers?.['set-cookie']?.find((text) => text.startsWith(`${cookieNames.signin}=`)) ?? '';
  return line.slice(cookieNames.signin.length + 1, line.indexOf(';'));
};

interface Begun {
  readonly cookie: string;
  readonly url: string;
  /** What the provider sends the browser back with. */
  readonly answer: { readonly code: string; readonly state: string };
}
const begin = async ({ call, provider }: Site, name: 'google' | 'github', query: unknown = {}): Promise<Begun> => {
  const result = await call(`${name}Start`, query);
  const url = locationOf(result);
  return { url, cookie: pendingOf(result), answer: provider.answerTo(url) };
};
const cleared = ({ headers }: PlatformResult): boolean => headers?.['set-cookie']?.includes(`${cookieNames.signin}=; Path=/; Max-Age=0; HttpOnly; Secure; SameSite=Lax`) === true;
/** Ends at the sign-in page with this error, the cookie gone and nobody signed in. */
const refusedWith = (result: PlatformResult, { signedIn }: Site, error: string): void => {
  const url = new URL(locationOf(result));
  assert.equal(`${url.origin}${url.pathname}`, `${base}/signin`);
  assert.equal(url.searchParams.get('error'), error);
  assert.ok(cleared(result));
  assert.deepEqual(signedIn, []);
};

for (const name of ['google', 'github'] as const) {
  test(`oauth ${name} - the redirect asks for a code with PKCE S256 and a state; verifier and nonce are in the sealed cookie only [TOK-050]`, async (t) => {
    const run = await site(t);
    const result = await run.call(`${name}Start`, { return_to: '/device?code=ABCD-2345' });
    const query = new URL(locationOf(result)).searchParams;
    assert.equal(query.get('response_type'), 'code');
    assert.equal(query.get('code_challenge_method'), 'S256');
    assert.match(query.get('code_challenge') ?? '', /^[\w-]{43}$/);
    assert.ok((query.get('state') ?? '').length >= 43);
    assert.equal(query.get('redirect_uri'), `${base}/api/auth/callback/${name}`);
    assert.equal(query.has('nonce'), name === 'google');
    assert.match(result.headers?.['set-cookie']?.[0] ?? '', /^__Host-troupe-signin=[\w-]+; Path=\/; Max-Age=600; HttpOnly; Secure; SameSite=Lax$/);
    assert.ok(!locationOf(result).includes('our-secret'));
    assert.ok(!Buffer.from(pendingOf(result), 'base64url').toString('latin1').includes(query.get('state') ?? '-'), 'the cookie shows nothing');
    const again = new URL(locationOf(await run.call(`${name}Start`))).searchParams;
    for (const field of ['state', 'code_challenge']) assert.notEqual(again.get(field), query.get(field));
  });

  test(`oauth ${name} - a verified address signs in and leads back to where it began; the code comes with its verifier [TOK-048]`, async (t) => {
    const run = await site(t);
    const { cookie, answer } = await begin(run, name, { return_to: '/device?code=ABCD-2345' });
    const result = await run.call(`${name}Callback`, answer, cookie);
    assert.equal(locationOf(result), `${base}/device?code=ABCD-2345`);
    assert.ok(result.headers?.['set-cookie']?.includes('__Host-troupe=session'));
    assert.ok(cleared(result));
    assert.deepEqual(run.signedIn, [{ provider: name, providerId: name === 'google' ? 'sub-1' : '4711', email: 'mona@example.com', name: 'Mona Lisa' }]);
    const exchange = run.provider.asked.find(({ path }) => path === '/token')?.form;
    assert.match(exchange?.get('code_verifier') ?? '', /^[\w-]{43,128}$/);
    assert.equal(exchange?.get('client_secret'), 'our-secret-Wb77');
    assert.equal(exchange?.get('redirect_uri'), `${base}/api/auth/callback/${name}`);
  });

  test(`oauth ${name} - a wrong, missing or foreign state is refused before the provider is asked anything [TOK-050]`, async (t) => {
    const run = await site(t);
    const { cookie, answer } = await begin(run, name);
    const other = await begin(run, name);
    const asked = run.provider.asked.length;
    const wrong = [
      { ...answer, state: other.answer.state }, { ...answer, state: `${answer.state}x` }, { ...answer, state: '' }, { code: answer.code }, {}, { error: 'access_denied' },
    ];
    for (const query of wrong) refusedWith(await run.call(`${name}Callback`, query, cookie), run, 'signin_refused');
    refusedWith(await run.call(`${name}Callback`, answer), run, 'signin_refused');
    refusedWith(await run.call(`${name}Callback`, answer, other.cookie), run, 'signin_refused');
    refusedWith(await run.call(`${name}Callback`, answer, ''), run, 'signin_refused');
    refusedWith(await run.call(`${name}Callback`, answer, `${cookie.slice(0, -2)}AA`), run, 'signin_refused');
    assert.equal(run.provider.asked.length, asked);
    assert.equal(locationOf(await run.call(`${name}Callback`, answer, cookie)), `${base}/`);
  });

  test(`oauth ${name} - a callback that is replayed with its cookie is refused: the code was used`, async (t) => {
    const run = await site(t);
    const { cookie, answer } = await begin(run, name);
    await run.call(`${name}Callback`, answer, cookie);
    run.signedIn.splice(0);
    refusedWith(await run.call(`${name}Callback`, answer, cookie), run, 'signin_refused');
  });

  test(`oauth ${name} - a code of another sign-in does not fit: its verifier is another`, async (t) => {
    const run = await site(t);
    const [mine, theirs] = [await begin(run, name), await begin(run, name)];
    refusedWith(await run.call(`${name}Callback`, { code: theirs.answer.code, state: mine.answer.state }, mine.cookie), run, 'signin_refused');
  });

  test(`oauth ${name} - the cookie is good for ten minutes`, async (t) => {
    const run = await site(t);
    const { cookie, answer } = await begin(run, name);
    await run.clock.advance(limits.signinCookieSec * 1_000);
    refusedWith(await run.call(`${name}Callback`, answer, cookie), run, 'signin_refused');
  });

  test(`oauth ${name} - whoever says no at the provider is back at the sign-in page, with where to go`, async (t) => {
    const run = await site(t);
    const { cookie, answer } = await begin(run, name, { return_to: '/device' });
    const result = await run.call(`${name}Callback`, { error: 'access_denied', state: answer.state }, cookie);
    refusedWith(result, run, 'signin_refused');
    assert.equal(new URL(locationOf(result)).searchParams.get('return_to'), '/device');
  });

  test(`oauth ${name} - a provider that fails, answers nonsense, too much or nothing is unavailable, and the next sign-in tries anew`, { timeout: 60_000 }, async (t) => {
    const run = await site(t);
    const answers = [
      { status: 500, json: {} }, { status: 302, json: {} }, { text: '<html>', contentType: 'text/html' }, { text: '{"access_token":', contentType: 'application/json' },
      { text: `{"access_token":"${'x'.repeat(limits.providerAnswerMaxBytes)}"}` }, { status: 401, json: { error: 'invalid_client' } },
    ];
    for (const instead of answers) {
      const { cookie, answer } = await begin(run, name);
      run.provider.instead.set('/token', instead);
      refusedWith(await run.call(`${name}Callback`, answer, cookie), run, instead.text?.endsWith(':') === true ? 'signin_refused' : 'provider_unavailable');
      run.provider.instead.clear();
    }
    const { cookie, answer } = await begin(run, name);
    // Silence, with a deadline that is over soon.
    const real = AbortSignal.timeout.bind(AbortSignal);
    t.mock.method(AbortSignal, 'timeout', (ms: number) => real(ms === limits.providerDeadlineMs ? 20 : ms));
    run.provider.instead.set('/token', 'silent');
    refusedWith(await run.call(`${name}Callback`, answer, cookie), run, 'provider_unavailable');
    t.mock.restoreAll();
    run.provider.instead.clear();
    assert.equal(locationOf(await run.call(`${name}Callback`, answer, cookie)), `${base}/`);
  });

  test(`oauth ${name} - without its secret the provider is not there`, async (t) => {
    const run = await site(t, 'secrets');
    assert.equal(await codeOf(run.call(`${name}Start`)), 'not_found');
    assert.equal(await codeOf(run.call(`${name}Callback`, { code: 'a', state: 'b' })), 'not_found');
  });

  test(`oauth ${name} - callbacks count per address; those without a cookie of ours do not`, async (t) => {
    const run = await site(t);
    for (let i = 0; i < limits.signinCallbacksPerMinuteMax + 5; i++) refusedWith(await run.call(`${name}Callback`, { code: 'a', state: 'b' }), run, 'signin_refused');
    const { cookie, answer } = await begin(run, name);
    for (let i = 0; i < limits.signinCallbacksPerMinuteMax; i++) refusedWith(await run.call(`${name}Callback`, { code: `guess-${i}`, state: answer.state }, cookie), run, 'signin_refused');
    refusedWith(await run.call(`${name}Callback`, answer, cookie), run, 'rate_limited');
    assert.equal(locationOf(await run.call(`${name}Callback`, answer, cookie, '192.0.2.2')), `${base}/`);
  });

  test(`oauth ${name} - nothing that the provider gave or was given stands in the log`, async (t) => {
    const run = await site(t);
    for (const instead of [{ status: 400, json: { error: 'invalid_grant', error_description: 'secret-description' } }, { status: 500, text: 'secret-body' }]) {
      const { cookie, answer } = await begin(run, name);
      run.provider.instead.set('/token', instead);
      await run.call(`${name}Callback`, answer, cookie);
      const said = JSON.stringify(run.log.lines);
      assert.ok(run.log.lines.length > 0);
      for (const secret of ['secret-', 'our-secret', answer.code, answer.state, cookie]) assert.ok(!said.includes(secret), secret);
    }
  });
}

test('oauth google - an address that Google does not call verified leads to no account [TOK-052]', async (t) => {
  const run = await site(t);
  for (const verified of [false, 'true', 1, undefined, null]) {
    run.provider.claims = (claims) => ({ ...claims, email_verified: verified });
    const { cookie, answer } = await begin(run, 'google');
    refusedWith(await run.call('googleCallback', answer, cookie), run, 'email_unverified');
  }
  for (const email of [undefined, 'mönä@example.com', 'not an address']) {
    run.provider.claims = (claims) => ({ ...claims, email });
    const { cookie, answer } = await begin(run, 'google');
    refusedWith(await run.call('googleCallback', answer, cookie), run, 'email_unverified');
  }
});

test('oauth github - only the primary address counts, and only if GitHub calls it verified [TOK-052]', async (t) => {
  const run = await site(t);
  const lists = [
    [], [{ email: 'mona@example.com', primary: true, verified: false }], [{ email: 'mona@example.com', primary: false, verified: true }],
    [{ email: 'mona@example.com', primary: true, verified: false }, { email: 'other@example.com', primary: false, verified: true }],
  ];
  run.provider.user = { id: 1, login: 'mona', name: null, email: 'mona@example.com' };
  for (const emails of lists) {
    run.provider.emails = emails;
    const { cookie, answer } = await begin(run, 'github');
    refusedWith(await run.call('githubCallback', answer, cookie), run, 'email_unverified');
  }
  run.provider.emails = [{ email: 'public@example.com', primary: false, verified: true }, { email: 'Mona@Example.COM', primary: true, verified: true }];
  const { cookie, answer } = await begin(run, 'github');
  await run.call('githubCallback', answer, cookie);
  assert.deepEqual(run.signedIn, [{ provider: 'github', providerId: '1', email: 'mona@example.com', name: 'mona' }]);
});

test('oauth google - an ID token with another nonce, audience, issuer, key, of the past, or none is refused', async (t) => {
  const run = await site(t);
  const past = Math.floor(Date.now() / 1_000) - 3_600;
  const changes: FaultyProvider['claims'][] = [
    (claims) => ({ ...claims, nonce: 'another' }), (claims) => ({ ...claims, nonce: undefined }), (claims) => ({ ...claims, aud: 'another' }),
    (claims) => ({ ...claims, iss: 'https://evil.example' }), (claims) => ({ ...claims, exp: past, iat: past - 60 }),
  ];
  for (const change of changes) {
    run.provider.claims = change;
    const { cookie, answer } = await begin(run, 'google');
    refusedWith(await run.call('googleCallback', answer, cookie), run, 'signin_refused');
  }
  run.provider.claims = (claims) => claims;
  run.provider.forged = true;
  const forged = await begin(run, 'google');
  refusedWith(await run.call('googleCallback', forged.answer, forged.cookie), run, 'signin_refused');
  run.provider.forged = false;
  run.provider.instead.set('/token', { json: { access_token: 'a', token_type: 'bearer' } });
  const without = await begin(run, 'google');
  refusedWith(await run.call('googleCallback', without.answer, without.cookie), run, 'signin_refused');
});

test('oauth google - an answer that names another issuer is refused (RFC 9207)', async (t) => {
  const run = await site(t);
  const { cookie, answer } = await begin(run, 'google');
  refusedWith(await run.call('googleCallback', { ...answer, iss: 'https://evil.example' }, cookie), run, 'signin_refused');
});

test('oauth - a sign-in begun with one provider cannot end with the other', async (t) => {
  const run = await site(t);
  const { cookie, answer } = await begin(run, 'google');
  refusedWith(await run.call('githubCallback', answer, cookie), run, 'signin_refused');
});

test('oauth github - a refused code, which GitHub answers with 200, is a refusal; wrong credentials of ours are the service\'s absence', async (t) => {
  const run = await site(t);
  for (const [error, seen] of [['bad_verification_code', 'signin_refused'], ['incorrect_client_credentials', 'provider_unavailable']] as const) {
    run.provider.instead.set('/token', { json: { error, error_description: 'no' } });
    const { cookie, answer } = await begin(run, 'github');
    refusedWith(await run.call('githubCallback', answer, cookie), run, seen);
  }
  assert.equal(JSON.stringify(run.log.lines).includes('incorrect_client_credentials'), true, 'the operator learns it');
});

test('oauth github - an account that cannot be read is the service\'s absence', async (t) => {
  const run = await site(t);
  for (const [path, instead] of [['/user', { status: 500, json: {} }], ['/user/emails', { status: 403, json: {} }], ['/user', { json: { id: 'x' } }], ['/user/emails', { json: {} }], ['/user', { text: 'nonsense' }]] as const) {
    run.provider.instead.clear();
    run.provider.instead.set(path, instead);
    const { cookie, answer } = await begin(run, 'github');
    refusedWith(await run.call('githubCallback', answer, cookie), run, 'provider_unavailable');
  }
});

test('oauth google - discovery is asked once for many, tried anew after a failure, and kept when it cannot be renewed', async (t) => {
  const run = await site(t);
  const discoveries = (): number => run.provider.asked.filter(({ path }) => path.startsWith('/.well-known')).length;
  for (const instead of [{ status: 500, json: {} }, { json: { issuer: 'https://evil.example' } }, { json: { issuer: run.provider.url, authorization_endpoint: 'nowhere' } }]) {
    run.provider.instead.set('/.well-known/openid-configuration', instead);
    const failed = await run.call('googleStart', { return_to: '/console' });
    assert.equal(locationOf(failed), `${base}/signin?error=provider_unavailable&return_to=%2Fconsole`);
    assert.equal(failed.headers?.['set-cookie']?.length, 0);
  }
  run.provider.instead.clear();
  const before = discoveries();
  await Promise.all(Array.from({ length: 20 }, () => run.call('googleStart')));
  await run.call('googleStart');
  assert.equal(discoveries(), before + 1);
  run.provider.instead.set('/.well-known/openid-configuration', { status: 500, json: {} });
  await run.clock.advance(limits.discoveryTtlMs);
  assert.equal((await begin(run, 'google')).url.startsWith(`${run.provider.url}/authorize`), true);
  assert.equal(discoveries(), before + 2);
  await begin(run, 'google');
  assert.equal(discoveries(), before + 2, 'a failed renewal is not repeated at once');
  run.provider.instead.clear();
  await run.clock.advance(limits.discoveryRetryMs);
  await begin(run, 'google');
  assert.equal(discoveries(), before + 3);
});

test('oauth - so many sign-ins at once with a provider and no more; the next one waits for none of them', { timeout: 60_000 }, async (t) => {
  const run = await site(t);
  const begun: Begun[] = [];
  for (let i = 0; i <= limits.providerSignInsMax; i++) begun.push(await begin(run, 'github'));
  const real = AbortSignal.timeout.bind(AbortSignal);
  const late = new AbortController();
  t.mock.method(AbortSignal, 'timeout', (ms: number) => (ms === limits.providerDeadlineMs ? late.signal : real(ms)));
  run.provider.instead.set('/token', 'silent');
  const [last, ...others] = begun;
  assert.ok(last !== undefined);
  const waiting = others.map(({ answer, cookie }, i) => run.call('githubCallback', answer, cookie, `192.0.2.${i}`));
  await run.provider.until(() => run.provider.asked.filter(({ path }) => path === '/token').length === limits.providerSignInsMax);
  refusedWith(await run.call('githubCallback', last.answer, last.cookie, '198.51.100.1'), run, 'provider_unavailable');
  assert.equal(run.provider.asked.filter(({ path }) => path === '/token').length, limits.providerSignInsMax);
  late.abort(new DOMException('late', 'TimeoutError'));
  for (const result of await Promise.all(waiting)) refusedWith(result, run, 'provider_unavailable');
  t.mock.restoreAll();
  run.provider.instead.clear();
  assert.equal(locationOf(await run.call('githubCallback', last.answer, last.cookie, '198.51.100.1')), `${base}/`);
});

test('oauth - a name that is none leaves the account without one, never refuses it', async (t) => {
  const run = await site(t);
  for (const name of ['\u202emona', '', 7]) {
    run.provider.claims = (claims) => ({ ...claims, name });
    const { cookie, answer } = await begin(run, 'google');
    await run.call('googleCallback', answer, cookie);
    assert.equal(run.signedIn.at(-1)?.name, '');
  }
});

test('oauth - a path that a browser reads as another host is refused where a sign-in begins', async (t) => {
  const run = await site(t);
  for (const return_to of ['//evil.example', '/\\evil.example', '/\t/evil.example', '/.//evil.example', 'https://evil.example', '/a/..//evil.example']) {
    const error: unknown = await Promise.resolve().then(() => run.call('googleStart', { return_to })).then(() => undefined, (reason: unknown) => reason);
    assert.ok(error instanceof CodedError && error.code === 'validation_error', return_to);
  }
});

test('oauth - a sealed value opens with its key and use only, and not when a bit of it was changed', () => {
  const key = randomBytes(32);
  const sealed = seal(key, 'google', 'text ✓');
  assert.equal(open(key, 'google', sealed), 'text ✓');
  assert.notEqual(seal(key, 'google', 'text ✓'), sealed);
  assert.equal(open(key, 'github', sealed), undefined);
  assert.equal(open(randomBytes(32), 'google', sealed), undefined);
  const bytes = Buffer.from(sealed, 'base64url');
  for (let i = 0; i < bytes.length; i++) {
    const changed = Buffer.from(bytes);
    changed[i] = (changed[i] ?? 0) ^ 1;
    assert.equal(open(key, 'google', changed.toString('base64url')), undefined, `byte ${i}`);
  }
  for (const text of ['', 'x', sealed.slice(0, 30), '!!!!']) assert.equal(open(key, 'google', text), undefined);
});
