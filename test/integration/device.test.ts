/** The device flow over HTTP: two gateways and two daemons, real actors and limits, people who signed up. One platform for all tests here. */
import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import * as client from 'openid-client';
import { Agent, fetch as undiciFetch } from 'undici';
import { z } from 'zod';
import { authorizationServer, authRoutes, deviceGrant, tokenAnswer } from '../../contracts/auth-routes.ts';
import { limits } from '../../contracts/limits.ts';
import { answered, startPlatform, type ApiOptions, type ApiReply, type Person, type TestPlatform } from '../harness/platform.ts';

const codeAnswer = z.strictObject({
  device_code: z.string(), user_code: z.string(), verification_uri: z.string(), verification_uri_complete: z.string(), expires_in: z.int(), interval: z.int(),
});
type CodeAnswer = z.output<typeof codeAnswer>;
const flat = z.strictObject({ error: z.string(), error_description: z.string() });
const envelope = z.strictObject({ error: z.strictObject({ code: z.string(), message: z.string(), details: z.unknown().optional() }) });

suite('device flow over HTTP', { timeout: 240_000 }, () => {
  let platform: TestPlatform;
  let ada: Person;
  let bob: Person;
  let agent: Agent;
  let addresses = 1;

  before(async () => {
    platform = await startPlatform(undefined, { gateways: 2, daemons: 2 });
    agent = new Agent({ connect: { ca: platform.ca } });
    [ada, bob] = [await platform.signUp('ada@example.com'), await platform.signUp('bob@example.com')];
  });
  after(async () => {
    await agent.close();
    await platform.stop();
  });

  /** An address nobody here has used: limits count by address. */
  const address = (): string => {
    addresses += 1;
    return `127.0.${addresses >> 8}.${addresses & 255}`;
  };
  const begin = async (options: ApiOptions = { json: { client_id: 'cli' } }): Promise<CodeAnswer> =>
    answered(await platform.api('POST', authRoutes.deviceCode.path, { localAddress: address(), ...options }), 200, codeAnswer);
  const poll = (device_code: string, options: ApiOptions & { readonly more?: Record<string, string> } = {}): Promise<ApiReply> =>
    platform.api('POST', authRoutes.deviceToken.path, { json: { grant_type: deviceGrant, device_code, ...options.more }, ...options });
  const decide = (user_code: string, action: string, who: Pick<Person, 'cookie' | 'csrf'> = ada, options: ApiOptions = {}): Promise<ApiReply> =>
    platform.api('POST', authRoutes.deviceAuthorize.path, { cookie: who.cookie, csrf: who.csrf, json: { user_code, action }, ...options });
  const errorOf = (reply: ApiReply, status: number): string => answered(reply, status, flat).error;
  const refusalOf = (reply: ApiReply, status: number): string => answered(reply, status, envelope).error.code;
  const pending = async (device_code: string): Promise<void> => assert.equal(errorOf(await poll(device_code, { localAddress: address() }), 400), 'authorization_pending');
  const raw = async (path: string, contentType: string | undefined, body: string, at = address()): Promise<{ readonly status: number; readonly json: unknown }> => {
    const dispatcher = new Agent({ connect: { ca: platform.ca, localAddress: at } });
    const headers = contentType === undefined ? {} : { 'content-type': contentType };
    const reply = await undiciFetch(`${platform.baseUrl}${path}`, { method: 'POST', body: Buffer.from(body), headers, dispatcher });
    const json: unknown = await reply.json();
    await dispatcher.close();
    return { status: reply.status, json };
  };

  test('device code - the answer has the fields of RFC 8628 and only them [DEV-001] [DEV-002] [DEV-004] [DEV-007] [DEV-008] [DEV-009] [DEV-010]', async () => {
    const reply = await platform.api('POST', authRoutes.deviceCode.path, { json: { client_id: 'troupe-cli' }, localAddress: address() });
    const answer = answered(reply, 200, codeAnswer);
    assert.match(answer.device_code, /^[0-9a-f]{64}$/);
    assert.match(answer.user_code, /^[A-Z]{4}-[0-9]{4}$/);
    assert.equal(answer.verification_uri, `${platform.baseUrl}/device`);
    assert.equal(answer.verification_uri_complete, `${platform.baseUrl}/device?code=${answer.user_code}`);
    assert.deepEqual([answer.expires_in, answer.interval], [900, 5]);
    assert.equal(reply.headers['cache-control'], 'no-store');
  });

  test('device code - a hundred of them are all different, of the two alphabets [DEV-003] [DEV-005] [DEV-006]', async () => {
    const answers: CodeAnswer[] = [];
    for (let i = 0; i < 10; i++) {
      const localAddress = address();
      answers.push(...await Promise.all(Array.from({ length: 10 }, (_, n) => begin({ json: {}, localAddress, gateway: n % 2 }))));
    }
    assert.equal(new Set(answers.map((answer) => answer.device_code)).size, 100);
    assert.equal(new Set(answers.map((answer) => answer.user_code)).size, 100);
    for (const { user_code } of answers) assert.match(user_code, /^[ABCDEFGHJKMNPQRSTUVWXYZ]{4}-[23456789]{4}$/);
  });

  test('device code - JSON and form bodies mean the same; client_id may be missing, scope is accepted, unknown fields are ignored [DEV-012] [DEV-013] [DEV-014]', async () => {
    const bodies: readonly [ApiOptions, string][] = [
      [{ json: { client_id: 'tool' } }, 'tool'], [{ form: { client_id: 'tool' } }, 'tool'], [{ json: {} }, 'cli'], [{ form: {} }, 'cli'], [{ form: { client_id: '' } }, 'cli'],
      [{ json: { scope: 'a b', resource: 'x' } }, 'cli'], [{ form: { scope: 'a b', resource: 'x', client_id: 'tool' } }, 'tool'],
    ];
    for (const [body, client_id] of bodies) {
      const { user_code } = await begin(body);
      const shown = await platform.api('GET', `${authRoutes.deviceShow.path}?user_code=${user_code}`, { cookie: ada.cookie });
      assert.deepEqual(answered(shown, 200, z.object({ client_id: z.string(), user_code: z.string() })), { client_id, user_code });
    }
  });

  test('device code - an address gets ten a minute over all gateways, then a flat 429 with its headers; another address still gets one [DEV-017] [DEV-018] [DEV-019] [DEV-020]', async () => {
    const localAddress = address();
    await Promise.all(Array.from({ length: 10 }, (_, n) => begin({ json: {}, localAddress, gateway: n % 2 })));
    const beforeSec = Math.floor(Date.now() / 1_000);
    for (const gateway of [0, 1]) {
      const refused = await platform.api('POST', authRoutes.deviceCode.path, { json: {}, localAddress, gateway });
      assert.equal(errorOf(refused, 429), 'rate_limit_exceeded');
      const { 'retry-after': retryAfter, 'x-ratelimit-limit': limit, 'x-ratelimit-remaining': remaining, 'x-ratelimit-reset': reset } = refused.headers;
      assert.deepEqual([limit, remaining], ['10', '0']);
      assert.ok(Number(retryAfter) >= 1 && Number(retryAfter) <= 60, String(retryAfter));
      assert.ok(Number(reset) >= beforeSec && Number(reset) <= beforeSec + 120, String(reset));
    }
    await begin({ json: {} });
  });

  test('device metadata - they name the three endpoints under base_url [DEV-016]', async () => {
    const metadata = answered(await platform.api('GET', authRoutes.metadata.path), 200, authorizationServer);
    assert.equal(metadata.issuer, platform.baseUrl);
    assert.equal(metadata.device_authorization_endpoint, `${platform.baseUrl}/api/auth/device/code`);
    assert.equal(metadata.token_endpoint, `${platform.baseUrl}/api/auth/device/token`);
    assert.equal(metadata.refresh_endpoint, `${platform.baseUrl}/api/auth/refresh`);
  });

  test('device token - every refusal is 400 with a flat error, from JSON and from forms alike [DEV-015] [DEV-021] [DEV-022] [DEV-023] [DEV-024] [DEV-025] [DEV-037]', async () => {
    const { device_code } = await begin({ json: { client_id: 'tool' } });
    const cases: readonly [Record<string, string>, string][] = [
      [{ grant_type: 'authorization_code', device_code }, 'unsupported_grant_type'],
      [{ grant_type: 'urn:ietf:params:oauth:grant-type:device_cod', device_code }, 'unsupported_grant_type'],
      [{ device_code }, 'unsupported_grant_type'],
      [{ grant_type: deviceGrant }, 'invalid_request'],
      [{ grant_type: deviceGrant, device_code: 'f'.repeat(64) }, 'invalid_grant'],
      [{ grant_type: deviceGrant, device_code: 'short' }, 'invalid_grant'],
      [{ grant_type: deviceGrant, device_code, client_id: 'other' }, 'invalid_grant'],
      [{ grant_type: deviceGrant, device_code, client_id: 'tool' }, 'authorization_pending'],
    ];
    for (const [fields, error] of cases) {
      for (const body of [{ json: fields }, { form: fields }]) {
        const reply = await platform.api('POST', authRoutes.deviceToken.path, { ...body, localAddress: address() });
        assert.equal(errorOf(reply, 400), error, JSON.stringify(fields));
        assert.equal(reply.headers['content-type'], 'application/json');
      }
    }
  });

  test('device token - the sixth poll in a minute is slow_down with its headers, over all gateways; other codes and addresses are not slowed down [DEV-026] [DEV-027] [DEV-028] [DEV-029]', async () => {
    const [one, two] = [await begin(), await begin()];
    const localAddress = address();
    for (let i = 0; i < 5; i++) assert.equal(errorOf(await poll(one.device_code, { localAddress, gateway: i % 2 }), 400), 'authorization_pending');
    const refused = await poll(one.device_code, { localAddress });
    assert.equal(errorOf(refused, 400), 'slow_down');
    assert.deepEqual([refused.headers['x-ratelimit-limit'], refused.headers['x-ratelimit-remaining']], ['5', '0']);
    assert.ok(Number(refused.headers['retry-after']) >= 1 && Number(refused.headers['retry-after']) <= 60);
    assert.ok(Number(refused.headers['x-ratelimit-reset']) > 0);
    assert.equal(errorOf(await poll(two.device_code, { localAddress }), 400), 'authorization_pending');
    assert.equal((await decide(one.user_code, 'approve')).status, 200);
    assert.equal(errorOf(await poll(one.device_code, { localAddress }), 400), 'slow_down', 'nothing is told');
    answered(await poll(one.device_code, { localAddress: address() }), 200, tokenAnswer);
  });

  test('device token - an approved poll gets the approver\'s tokens, once, not to be stored anywhere [DEV-030] [DEV-031] [DEV-034] [DEV-038] [DEV-041]', async () => {
    const { device_code, user_code } = await begin({ json: { client_id: 'tool' } });
    const approved = await decide(user_code, 'approve', bob);
    assert.deepEqual(answered(approved, 200, z.unknown()), { status: 'approved', client_id: 'tool' });
    const reply = await poll(device_code, { more: { client_id: 'tool' } });
    const tokens = answered(reply, 200, tokenAnswer);
    assert.equal(reply.headers['cache-control'], 'no-store');
    assert.equal(tokens.token_type, 'Bearer');
    const me = await platform.api('GET', authRoutes.me.path, { token: tokens.access_token });
    assert.equal(answered(me, 200, z.object({ id: z.string() })).id, bob.userId);
    assert.equal(errorOf(await poll(device_code), 400), 'invalid_grant');
    assert.equal(refusalOf(await decide(user_code, 'deny', ada), 404), 'not_found');
    const text = platform.report();
    for (const secret of [device_code, tokens.access_token, tokens.refresh_token ?? '-']) assert.ok(!text.includes(secret), 'a secret is in the output of a process');
  });

  test('device token - who ends all logins after approving ends the approval with them; a sign-out does not', async () => {
    const eve = await platform.signUp('eve@example.com');
    const [stolen, own] = [await begin(), await begin()];
    assert.equal((await decide(stolen.user_code, 'approve', eve)).status, 200);
    assert.equal((await platform.api('POST', authRoutes.revoke.path, { token: eve.accessToken, json: { all: true } })).status, 200);
    assert.equal(errorOf(await poll(stolen.device_code), 400), 'access_denied');
    assert.equal(errorOf(await poll(stolen.device_code), 400), 'invalid_grant');
    const again = await platform.signUp('eve@example.com');
    assert.equal((await decide(own.user_code, 'approve', again)).status, 200);
    assert.equal((await platform.api('POST', authRoutes.signout.path, { cookie: again.cookie, csrf: again.csrf, json: {} })).status, 200);
    answered(await poll(own.device_code), 200, tokenAnswer);
  });

  test('device token - a denied poll is told so once [DEV-032] [DEV-035] [DEV-042] [DEV-046]', async () => {
    const { device_code, user_code } = await begin();
    assert.deepEqual(answered(await decide(user_code, 'deny'), 200, z.unknown()), { status: 'denied' });
    assert.equal(refusalOf(await decide(user_code, 'approve'), 404), 'not_found');
    assert.equal(errorOf(await poll(device_code), 400), 'access_denied');
    assert.equal(errorOf(await poll(device_code), 400), 'invalid_grant');
  });

  test('device token - of twenty polls at once over two gateways exactly one gets tokens [DEV-036]', async () => {
    const { device_code, user_code } = await begin();
    await decide(user_code, 'approve');
    const replies = await Promise.all(Array.from({ length: 20 }, (_, i) => poll(device_code, { localAddress: address(), gateway: i % 2 })));
    assert.equal(replies.filter(({ status }) => status === 200).length, 1);
    for (const reply of replies.filter(({ status }) => status !== 200)) assert.equal(errorOf(reply, 400), 'invalid_grant');
  });

  test('device authorize - without a session, without the proof, with another\'s proof or from another site nothing is decided [DEV-039] [DEV-040]', async () => {
    const { device_code, user_code } = await begin();
    const json = { user_code, action: 'approve' };
    const asked = (options: ApiOptions): Promise<ApiReply> => platform.api('POST', authRoutes.deviceAuthorize.path, { json, ...options });
    assert.equal(refusalOf(await asked({}), 401), 'unauthorized');
    assert.equal(refusalOf(await asked({ csrf: ada.csrf }), 401), 'unauthorized');
    assert.equal(refusalOf(await asked({ cookie: `${ada.cookie.slice(0, -1)}_`, csrf: ada.csrf }), 401), 'unauthorized');
    assert.equal(refusalOf(await asked({ token: ada.accessToken }), 401), 'unauthorized');
    assert.equal(refusalOf(await asked({ cookie: ada.cookie }), 403), 'forbidden');
    assert.equal(refusalOf(await asked({ cookie: ada.cookie, csrf: bob.csrf }), 403), 'forbidden');
    assert.equal(refusalOf(await asked({ cookie: ada.cookie, csrf: '' }), 403), 'forbidden');
    assert.equal(refusalOf(await asked({ cookie: ada.cookie, csrf: ada.csrf, headers: { origin: 'https://evil.example' } }), 403), 'forbidden');
    assert.equal((await platform.api('POST', authRoutes.deviceAuthorize.path, { cookie: ada.cookie, form: { user_code, action: 'approve' } })).status, 403);
    assert.equal((await platform.api('GET', `${authRoutes.deviceShow.path}?user_code=${user_code}`)).status, 401);
    await pending(device_code);
    assert.equal((await platform.api('POST', authRoutes.deviceAuthorize.path, { cookie: ada.cookie, form: { user_code, action: 'approve', csrf: ada.csrf } })).status, 200);
  });

  test('device authorize - another word than approve or deny, or none, decides nothing [DEV-043]', async () => {
    const { device_code, user_code } = await begin();
    for (const action of ['Approve', 'allow', '', 'approve ']) assert.equal(refusalOf(await decide(user_code, action), 422), 'validation_error');
    for (const json of [{ user_code }, { action: 'approve' }, { user_code, action: ['approve'] }, { user_code, action: 'approve', user_id: bob.userId }, []]) {
      assert.equal(refusalOf(await decide(user_code, '', ada, { json }), 422), 'validation_error', JSON.stringify(json));
    }
    await pending(device_code);
  });

  test('device authorize - a code is found as people type it, and not by look-alikes; an unknown one is 404 [DEV-044] [DEV-045]', async () => {
    const { device_code, user_code } = await begin();
    const [letters = '', digits = ''] = user_code.split('-');
    const wide = String.fromCodePoint((letters.codePointAt(0) ?? 0) + 0xfee0);
    for (const typed of [`${letters}\u2010${digits}`, `${wide}${letters.slice(1)}-${digits}`, `${letters} ${digits}`, letters, '', `${user_code}\u0000`]) {
      assert.equal(refusalOf(await decide(typed, 'approve'), 404), 'not_found', JSON.stringify(typed));
    }
    assert.equal(refusalOf(await decide(digits === '2222' ? `${letters}-2223` : `${letters}-2222`, 'approve'), 404), 'not_found');
    await pending(device_code);
    for (const typed of [user_code.toLowerCase(), `  ${letters}${digits} `, `${letters.toLowerCase()}${digits}\n`]) {
      const shown = await platform.api('GET', `${authRoutes.deviceShow.path}?user_code=${encodeURIComponent(typed)}`, { cookie: ada.cookie });
      assert.equal(answered(shown, 200, z.object({ user_code: z.string() })).user_code, user_code);
    }
    assert.equal((await decide(`\t${letters.toLowerCase()}${digits} `, 'approve')).status, 200);
  });

  test('device authorize - approval and denial by two people at once: one counts, the other finds nothing, the poll agrees', async () => {
    for (let round = 0; round < 5; round++) {
      const { device_code, user_code } = await begin();
      const replies = await Promise.all([decide(user_code, 'approve', ada, { gateway: 0 }), decide(user_code, 'deny', bob, { gateway: 1 })]);
      assert.deepEqual(replies.map(({ status }) => status).toSorted((a, b) => a - b), [200, 404]);
      const polled = await poll(device_code);
      assert.equal(polled.status === 200 ? 'approve' : errorOf(polled, 400), replies[0]?.status === 200 ? 'approve' : 'access_denied');
    }
  });

  test('device authorize - who guesses codes is stopped after twenty, on every gateway; others are not', async () => {
    const mallory = await platform.signUp('mallory@example.com');
    const { user_code } = await begin();
    const [letters = ''] = user_code.split('-');
    const guesses = ['2345', '3456', '4567', '5678', '6789'].map((digits) => `${letters}-${digits}`).filter((guess) => guess !== user_code);
    for (let i = 0; i < limits.userCodeMissesPerMinuteMax; i++) assert.equal(refusalOf(await decide(guesses[i % guesses.length] ?? '', 'approve', mallory, { gateway: i % 2 }), 404), 'not_found');
    const refused = await decide(guesses[0] ?? '', 'approve', mallory);
    assert.equal(refusalOf(refused, 429), 'rate_limited');
    assert.ok(Number(refused.headers['retry-after']) >= 1);
    assert.equal((await decide(user_code, 'deny', ada)).status, 200);
  });

  test('device flow - what is no request of these endpoints is refused as their errors are: repeated fields, other media, wrong types, too much', async () => {
    const form = 'application/x-www-form-urlencoded';
    const { device_code } = await begin();
    const grant = encodeURIComponent(deviceGrant);
    const cases: readonly (readonly [string, string | undefined, string])[] = [
      [authRoutes.deviceToken.path, form, `grant_type=${grant}&device_code=${device_code}&device_code=${device_code}`],
      [authRoutes.deviceToken.path, form, `grant_type=${grant}&grant_type=${grant}&device_code=${device_code}`],
      [authRoutes.deviceCode.path, form, 'client_id=a&client_id=b'],
      [authRoutes.deviceToken.path, 'text/plain', `grant_type=${grant}&device_code=${device_code}`],
      [authRoutes.deviceToken.path, 'multipart/form-data; boundary=x', '--x--'],
      [authRoutes.deviceToken.path, 'application/json', '{"grant_type":'],
      [authRoutes.deviceToken.path, 'application/json', JSON.stringify({ grant_type: deviceGrant, device_code: [device_code] })],
      [authRoutes.deviceToken.path, 'application/json', JSON.stringify({ grant_type: deviceGrant, device_code: { $ne: null } })],
      [authRoutes.deviceCode.path, 'application/json', '[]'],
      [authRoutes.deviceCode.path, 'application/json', '{"client_id":7}'],
      [authRoutes.deviceCode.path, 'application/json', JSON.stringify({ client_id: 'x\u0000y' })],
      [authRoutes.deviceCode.path, 'application/json', JSON.stringify({ client_id: '<b>\u202e' })],
    ];
    for (const [path, contentType, body] of cases) {
      const { status, json } = await raw(path, contentType, body);
      assert.deepEqual([status, flat.parse(json).error], [400, 'invalid_request'], `${contentType} ${body.slice(0, 80)}`);
    }
    const large = await raw(authRoutes.deviceCode.path, 'application/json', JSON.stringify({ client_id: 'x'.repeat(limits.bodyMaxBytes) }));
    assert.equal(large.status, 413);
    await pending(device_code);
  });

  test('device flow - openid-client, unmodified, discovers the endpoints, begins, polls and gets a token that works [DEV-014] [DEV-015] [DEV-016] [DEV-030]', async () => {
    const seen: string[] = [];
    let userCode = '';
    const customFetch: client.CustomFetch = async (url, { method, headers, body }) => {
      const reply = await undiciFetch(url, { method, headers: { ...headers }, body: body instanceof URLSearchParams ? body.toString() : null, dispatcher: agent });
      const text = await reply.text();
      const error = flat.safeParse(JSON.parse(text)).data?.error ?? '';
      seen.push(`${method} ${new URL(url).pathname} ${headers['content-type']?.split(';')[0] ?? ''} ${reply.status} ${error}`.trim());
      // The person decides after the first poll.
      if (error === 'authorization_pending') assert.equal((await decide(userCode, 'approve')).status, 200);
      return new Response(text, { status: reply.status, headers: [...reply.headers] });
    };
    const config = await client.discovery(new URL(platform.baseUrl), 'open-client', undefined, client.None(), { algorithm: 'oauth2', [client.customFetch]: customFetch });
    const authorization = await client.initiateDeviceAuthorization(config, { scope: 'openid' });
    assert.equal(authorization.interval, 5);
    userCode = authorization.user_code;
    // A shorter pause than asked for is this caller's own choice.
    const tokens = await client.pollDeviceAuthorizationGrant(config, { ...authorization, interval: 0.001 });
    const me = await platform.api('GET', authRoutes.me.path, { token: tokens.access_token });
    assert.equal(answered(me, 200, z.object({ id: z.string() })).id, ada.userId);
    assert.deepEqual(seen, [
      'GET /.well-known/oauth-authorization-server  200', 'POST /api/auth/device/code application/x-www-form-urlencoded 200',
      'POST /api/auth/device/token application/x-www-form-urlencoded 400 authorization_pending', 'POST /api/auth/device/token application/x-www-form-urlencoded 200',
    ]);
  });

  test('device flow - an approval is not lost with the daemon that took it: whoever owns it next tells it once', async () => {
    const begun = await Promise.all(Array.from({ length: 8 }, () => begin()));
    for (const [i, { user_code }] of begun.entries()) assert.equal((await decide(user_code, i % 2 === 0 ? 'approve' : 'deny')).status, 200);
    const [first] = platform.daemons;
    assert.ok(first !== undefined);
    await first.kill('SIGKILL');
    const told = await Promise.all(begun.map(async ({ device_code }) => {
      for (;;) {
        const reply = await poll(device_code, { localAddress: address() });
        if (reply.status < 500) return reply.status === 200 ? 'approve' : errorOf(reply, 400);
        // Not yet owned by anybody: the request has waited for it already.
        assert.ok([503, 504].includes(reply.status), reply.body);
      }
    }));
    assert.deepEqual(told, begun.map((_, i) => (i % 2 === 0 ? 'approve' : 'access_denied')));
    for (const { device_code } of begun) assert.equal(errorOf(await poll(device_code, { localAddress: address() }), 400), 'invalid_grant');
    await first.start();
  });
});
