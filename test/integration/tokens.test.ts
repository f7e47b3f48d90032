/** Access and refresh tokens over HTTP: what they say, how they are renewed, how they end. One platform of two daemons and two gateways. */
import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, suite, test } from 'node:test';
import { createLocalJWKSet, decodeJwt, decodeProtectedHeader, importPKCS8, jwtVerify, SignJWT, type JSONWebKeySet, type JWTPayload } from 'jose';
import { z } from 'zod';
import { tokenAnswer } from '../../contracts/auth-routes.ts';
import { organizationCreated } from '../../contracts/organization.ts';
import { accessClaims } from '../../contracts/platform.ts';
import { answered, startPlatform, type ApiReply, type Person, type TestPlatform } from '../harness/platform.ts';

const madeToken = z.strictObject({ token: z.string(), refresh_token: z.string(), expires_at: z.iso.datetime() });
const flat = z.strictObject({ error: z.string(), error_description: z.string() });
const envelope = z.strictObject({ error: z.object({ code: z.string(), message: z.string() }) });
const revoked = z.strictObject({ revoked: z.int() });
const me = z.strictObject({
  id: z.string(), email: z.string(), name: z.string(), orgs: z.array(z.object({ id: z.string(), role: z.string() })), expiresAt: z.string(),
});
const keySet = z.object({ keys: z.array(z.record(z.string(), z.string())) });

suite('tokens', { timeout: 240_000 }, () => {
  let platform: TestPlatform;
  let ada: Person;
  let eve: Person;
  before(async () => {
    platform = await startPlatform(undefined, { gateways: 2, daemons: 2 });
    ada = await platform.signUp('ada@example.com');
    eve = await platform.signUp('eve@example.com');
  });
  after(async () => platform.stop());

  const apiToken = async (person: Person): Promise<z.output<typeof madeToken>> =>
    answered(await platform.api('GET', '/api/auth/api-token', { cookie: person.cookie, headers: { accept: 'application/json' } }), 200, madeToken);
  const refresh = (token: string | undefined, localAddress: string, gateway = 0): Promise<ApiReply> =>
    platform.api('POST', '/api/auth/refresh', { json: token === undefined ? {} : { refresh_token: token }, localAddress, gateway });
  const statusOf = async (token: string, gateway = 0): Promise<number> => (await platform.api('GET', '/api/auth/me', { token, gateway })).status;
  const revoke = (token: string, body: unknown): Promise<ApiReply> => platform.api('POST', '/api/auth/revoke', { token, json: body });

  test('tokens - the key set is public, short-lived in caches, and verifies every access token [TOK-001] [TOK-004] [TOK-005] [TOK-006]', async () => {
    const reply = await platform.api('GET', '/api/auth/jwks.json');
    const { keys } = answered(reply, 200, keySet);
    assert.match(String(reply.headers['cache-control']), /(^|[ ,])max-age=300($|,)/);
    assert.equal(reply.headers['content-type'], 'application/json');
    for (const key of keys) assert.deepEqual(Object.keys(key).toSorted(), ['alg', 'crv', 'kid', 'kty', 'use', 'x', 'y']);
    const { token } = await apiToken(ada);
    for (const one of [token, ada.accessToken]) {
      assert.equal(one.split('.').length, 3);
      assert.equal(decodeProtectedHeader(one).alg, 'ES256');
      await jwtVerify(one, createLocalJWKSet({ keys } as unknown as JSONWebKeySet), { algorithms: ['ES256'] });
    }
  });

  test('tokens - an access token names its person, audience, times and itself [TOK-007] [TOK-008] [TOK-010] [TOK-011] [TOK-013]', async () => {
    const first = accessClaims.parse(decodeJwt(ada.accessToken));
    const second = accessClaims.parse(decodeJwt((await apiToken(ada)).token));
    for (const claims of [first, second]) {
      assert.equal(claims.iss, platform.baseUrl);
      assert.equal(claims.aud, 'troupe-platform');
      assert.equal(claims.sub, ada.userId);
      assert.equal(claims.email, 'ada@example.com');
      assert.equal(claims.policy, '');
      assert.equal(claims.scopes, undefined);
      assert.ok(claims.exp > claims.iat);
    }
    assert.notEqual(first.jti, second.jti);
  });

  test('tokens - orgs are the memberships at the time of issue, and a renewed token has those of now [TOK-009]', async () => {
    const person = await platform.signUp('orgs@example.com');
    const { token, refresh_token } = await apiToken(person);
    assert.deepEqual(accessClaims.parse(decodeJwt(token)).orgs, []);
    const made = answered(await platform.api('POST', '/api/organization', { token, json: { name: 'Orgs', slug: 'orgs-of-token' } }), 201, organizationCreated);
    const renewed = answered(await refresh(refresh_token, '127.0.0.20', 1), 200, tokenAnswer);
    assert.deepEqual(accessClaims.parse(decodeJwt(renewed.access_token)).orgs, [{ id: made.id, role: 'owner' }]);
    assert.deepEqual(answered(await platform.api('GET', '/api/auth/me', { token, gateway: 1 }), 200, me).orgs, [{ id: made.id, role: 'owner' }]);
  });

  test('tokens - a token of the page lives 90 days and works as bearer; it takes a signed-in browser to get one [TOK-028] [TOK-029] [TOK-030] [TOK-063]', async () => {
    const before = Date.now();
    const { token, refresh_token, expires_at } = await apiToken(ada);
    const { iat, exp } = accessClaims.parse(decodeJwt(token));
    assert.equal(exp - iat, 90 * 86_400);
    assert.equal(Date.parse(expires_at), exp * 1_000);
    assert.ok(iat * 1_000 >= before - 1_000);
    assert.match(refresh_token, /^[0-9a-f]{64}$/);
    assert.equal(await statusOf(token, 1), 200);
    const json = { accept: 'application/json' };
    for (const options of [{ headers: json }, { headers: json, token: ada.accessToken }, { headers: json, cookie: `${ada.cookie.slice(0, -1)}_` }, { headers: json, cookie: 'nonsense' }]) {
      const reply = await platform.api('GET', '/api/auth/api-token', options);
      assert.equal(reply.status, 401);
      assert.doesNotMatch(reply.body, /eyJ/);
    }
  });

  test('tokens - a refresh token is opaque, works in JSON and as a form, and is replaced each time [TOK-002] [TOK-012] [TOK-014] [TOK-015] [TOK-016] [TOK-018] [TOK-026]', async () => {
    const { refresh_token: first } = await apiToken(ada);
    const reply = await refresh(first, '127.0.0.21');
    const one = answered(reply, 200, tokenAnswer);
    assert.equal(reply.headers['cache-control'], 'no-store');
    assert.equal(one.token_type, 'Bearer');
    const { iat, exp } = accessClaims.parse(decodeJwt(one.access_token));
    assert.equal(one.expires_in, exp - iat);
    assert.equal(one.expires_in, 86_400);
    const form = await platform.api('POST', '/api/auth/refresh', { form: { grant_type: 'refresh_token', refresh_token: String(one.refresh_token), client_id: 'any' }, localAddress: '127.0.0.21', gateway: 1 });
    const two = answered(form, 200, tokenAnswer);
    assert.equal(new Set([first, one.refresh_token, two.refresh_token]).size, 3);
    for (const token of [one.refresh_token, two.refresh_token]) assert.match(String(token), /^[0-9a-f]{64}$/);
    assert.equal(await statusOf(two.access_token), 200);
  });

  test('tokens - a replaced refresh token that comes again ends its family on every process, and no other [TOK-019] [TOK-020] [TOK-025]', async () => {
    const other = await apiToken(ada);
    const { token, refresh_token: first } = await apiToken(ada);
    const next = answered(await refresh(first, '127.0.0.22'), 200, tokenAnswer);
    const again = await refresh(first, '127.0.0.22', 1);
    assert.equal(answered(again, 401, flat).error, 'invalid_grant');
    assert.equal(answered(await refresh(next.refresh_token, '127.0.0.22'), 401, flat).error, 'invalid_grant');
    for (const one of [token, next.access_token]) for (const gateway of [0, 1]) assert.equal(await statusOf(one, gateway), 401);
    assert.equal(await statusOf(other.token), 200);
    answered(await refresh(other.refresh_token, '127.0.0.22'), 200, tokenAnswer);
  });

  test('tokens - of refreshes with one token at once on two gateways one gets a pair', async () => {
    const { refresh_token } = await apiToken(ada);
    const replies = await Promise.all([0, 1, 0, 1].map((gateway) => refresh(refresh_token, '127.0.0.23', gateway)));
    assert.deepEqual(replies.map(({ status }) => status).toSorted(), [200, 401, 401, 401]);
  });

  test('tokens - refresh errors are flat: missing, unknown, guessed, of another kind [TOK-022] [TOK-023] [TOK-025]', async () => {
    const { token, refresh_token } = await apiToken(ada);
    const cases: [unknown, number, string][] = [
      [{}, 400, 'invalid_request'], [{ refresh_token: '' }, 400, 'invalid_request'], [{ refresh_token: 7 }, 400, 'invalid_request'],
      [{ refresh_token: 'f'.repeat(64) }, 401, 'invalid_grant'], [{ refresh_token: refresh_token.toUpperCase() }, 401, 'invalid_grant'],
      [{ refresh_token: `${refresh_token.slice(0, -1)}${refresh_token.endsWith('0') ? '1' : '0'}` }, 401, 'invalid_grant'],
      [{ refresh_token: token }, 401, 'invalid_grant'], [{ refresh_token: ada.cookie }, 401, 'invalid_grant'],
      [{ refresh_token, grant_type: 'password' }, 400, 'unsupported_grant_type'],
    ];
    for (const [json, status, error] of cases) {
      const reply = await platform.api('POST', '/api/auth/refresh', { json, localAddress: '127.0.0.24' });
      assert.equal(answered(reply, status, flat).error, error, JSON.stringify(json));
    }
    // None of it used the token up.
    answered(await refresh(refresh_token, '127.0.0.124'), 200, tokenAnswer);
  });

  test('tokens - ten refreshes a minute from one address over all gateways, the eleventh is 429 with its headers; another address goes on [TOK-024]', async () => {
    for (let i = 0; i < 10; i++) assert.equal((await refresh('f'.repeat(64), '127.0.0.25', i % 2)).status, 401);
    const reply = await refresh('f'.repeat(64), '127.0.0.25', 1);
    assert.equal(answered(reply, 429, flat).error, 'rate_limit_exceeded');
    assert.equal(reply.headers['x-ratelimit-limit'], '10');
    assert.equal(reply.headers['x-ratelimit-remaining'], '0');
    const wait = Number(reply.headers['retry-after']);
    assert.ok(wait >= 1 && wait <= 60, String(wait));
    assert.ok(Math.abs(Number(reply.headers['x-ratelimit-reset']) - Date.now() / 1_000 - wait) <= 2);
    assert.equal((await refresh('f'.repeat(64), '127.0.0.26', 1)).status, 401);
  });

  test('tokens - a revoked access token gets 401 at once on every gateway, others of its login live [TOK-031] [TOK-044] [TOK-064]', async () => {
    const { token, refresh_token } = await apiToken(ada);
    const { access_token: sibling } = answered(await refresh(refresh_token, '127.0.0.27'), 200, tokenAnswer);
    assert.deepEqual(answered(await revoke(ada.accessToken, { token }), 200, revoked), { revoked: 1 });
    for (const gateway of [0, 1]) assert.equal(await statusOf(token, gateway), 401);
    for (const gateway of [0, 1]) assert.equal(await statusOf(sibling, gateway), 200);
    assert.deepEqual(answered(await revoke(ada.accessToken, { token }), 200, revoked), { revoked: 0 });
    assert.equal((await revoke(token, { all: true })).status, 401);
  });

  test('tokens - revoking a refresh token ends its family [TOK-032]', async () => {
    const { token, refresh_token: first } = await apiToken(ada);
    const { refresh_token: second = '' } = answered(await refresh(first, '127.0.0.28'), 200, tokenAnswer);
    assert.deepEqual(answered(await revoke(ada.accessToken, { token: second }), 200, revoked), { revoked: 1 });
    assert.equal((await refresh(second, '127.0.0.28')).status, 401);
    assert.equal(await statusOf(token), 401);
  });

  test('tokens - nobody revokes another person\'s token, and nobody without one revokes anything [TOK-034]', async () => {
    const { token, refresh_token } = await apiToken(ada);
    for (const theirs of [token, refresh_token, 'nonsense', eve.cookie]) assert.deepEqual(answered(await revoke(eve.accessToken, { token: theirs }), 200, revoked), { revoked: 0 });
    assert.equal(await statusOf(token), 200);
    for (const body of [{ all: true }, { token }]) assert.equal((await platform.api('POST', '/api/auth/revoke', { json: body })).status, 401);
    assert.equal(await statusOf(token), 200);
    for (const body of [{}, { all: false }, { all: true, token }, { token, more: 1 }]) assert.equal((await revoke(ada.accessToken, body)).status, 422, JSON.stringify(body));
    answered(await refresh(refresh_token, '127.0.0.29'), 200, tokenAnswer);
  });

  test('tokens - all of a person\'s tokens and sessions end together; another person\'s live [TOK-033]', async () => {
    const person = await platform.signUp('leaver@example.com');
    const { token, refresh_token } = await apiToken(person);
    assert.deepEqual(answered(await revoke(token, { all: true }), 200, revoked), { revoked: 2 });
    for (const one of [token, person.accessToken]) for (const gateway of [0, 1]) assert.equal(await statusOf(one, gateway), 401);
    assert.equal((await platform.api('POST', '/api/auth/session/token', { cookie: person.cookie, csrf: person.csrf, json: {} })).status, 401);
    assert.equal((await refresh(refresh_token, '127.0.0.30')).status, 401);
    assert.equal(await statusOf(eve.accessToken), 200);
  });

  test('tokens - a login is listed, and ended from the list: its token gets 401 [TOK-035]', async () => {
    const { token } = await apiToken(ada);
    const { grant } = accessClaims.parse(decodeJwt(token));
    const listed = z.object({ grants: z.array(z.object({ id: z.string(), kind: z.string(), current: z.boolean() })) });
    const { grants } = answered(await platform.api('GET', '/api/auth/grants', { token }), 200, listed);
    assert.deepEqual(grants.filter((g) => g.current), [{ id: grant, kind: 'api-token', current: true }]);
    const end = (as: Person, gateway: number): Promise<ApiReply> => platform.api('DELETE', '/api/auth/grants', { token: as.accessToken, json: { id: grant }, gateway });
    assert.equal(answered(await end(eve, 0), 404, envelope).error.code, 'not_found');
    assert.equal(await statusOf(token), 200);
    assert.deepEqual(answered(await end(ada, 1), 200, revoked), { revoked: 1 });
    for (const gateway of [0, 1]) assert.equal(await statusOf(token, gateway), 401);
    assert.equal((await end(ada, 0)).status, 404);
  });

  test('tokens - me says whose token it is and until when [TOK-043]', async () => {
    const { exp } = accessClaims.parse(decodeJwt(ada.accessToken));
    const answer = answered(await platform.api('GET', '/api/auth/me', { token: ada.accessToken }), 200, me);
    assert.deepEqual(answer, { id: ada.userId, email: 'ada@example.com', name: 'ada', orgs: [], expiresAt: new Date(exp * 1_000).toISOString() });
  });

  test('tokens - what is no token of ours gets 401: none, other schemes, forged, expired, of another audience or issuer [TOK-036] [TOK-037] [TOK-038] [TOK-039] [TOK-040] [TOK-041] [TOK-044] [ERR-003]', async () => {
    const pem = await readFile(join(platform.keysFolder, 'platform-signing.key'), 'utf8');
    const ours = await importPKCS8(pem, 'ES256');
    const header = decodeProtectedHeader(ada.accessToken);
    const claims = decodeJwt(ada.accessToken);
    const now = Math.floor(Date.now() / 1_000);
    const sign = (more: JWTPayload, alg = 'ES256', key: Parameters<SignJWT['sign']>[0] = ours): Promise<string> =>
      new SignJWT({ ...claims, ...more }).setProtectedHeader({ ...header, alg }).sign(key);
    const [head = '', payload = '', signature = ''] = ada.accessToken.split('.');
    const encode = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString('base64url');
    const foreign = generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey;
    const { access_token: gatewayToken } = answered(await platform.api('POST', '/api/auth/gateway-token', { token: ada.accessToken, json: {} }), 200, tokenAnswer);
    const spki = (await platform.api('GET', '/api/auth/jwks.json')).body;
    // The key and the claims are right where nothing is said: so this one passes.
    assert.equal(await statusOf(await sign({})), 200);
    const cases: Record<string, string> = {
      expired: await sign({ iat: now - 7_200, exp: now - 1 }),
      'changed payload': `${head}.${encode({ ...claims, sub: eve.userId })}.${signature}`,
      'foreign signature': await sign({}, 'ES256', foreign),
      none: `${encode({ ...header, alg: 'none' })}.${payload}.`,
      'HS256 with the public key': await sign({}, 'HS256', Buffer.from(spki)),
      'other audience': await sign({ aud: 'troupe-gateway' }), 'two audiences': await sign({ aud: ['troupe-platform', 'other'] }),
      'gateway token': gatewayToken,
      'other issuer': await sign({ iss: 'https://evil.example' }), 'no issuer': await sign({ iss: undefined }),
      'no expiry': await sign({ exp: undefined }), 'no login': await sign({ grant: undefined }), 'unknown login': await sign({ grant: 'grt_01jd0000000000000000000000' }),
      'unknown person': await sign({ sub: 'usr_01jd0000000000000000000000' }), 'no person at all': await sign({ sub: '../../x' }),
      'unknown key': await new SignJWT(claims).setProtectedHeader({ ...header, alg: 'ES256', kid: 'other' }).sign(ours),
      'cut signature': ada.accessToken.slice(0, -3), noise: 'not.a.token', 'a word': 'token',
    };
    for (const [what, token] of Object.entries(cases)) {
      const reply = await platform.api('GET', '/api/auth/me', { token });
      assert.equal(answered(reply, 401, envelope).error.code, 'unauthorized', what);
    }
    for (const authorization of ['', 'Bearer', 'Bearer ', `Basic ${ada.accessToken}`, `Token ${ada.accessToken}`, ada.accessToken, `Bearer ${ada.accessToken} x`]) {
      const reply = await platform.api('GET', '/api/auth/me', { headers: authorization === '' ? {} : { authorization } });
      assert.equal(answered(reply, 401, envelope).error.code, 'unauthorized', authorization.slice(0, 12));
    }
    assert.equal((await platform.api('GET', '/api/auth/me', { cookie: ada.cookie })).status, 401);
  });

  test('tokens - a gateway token is the person\'s identity for the edge [TOK-045] [TOK-046] [TOK-047]', async () => {
    const { keys } = answered(await platform.api('GET', '/api/auth/jwks.json'), 200, keySet);
    const made = answered(await platform.api('POST', '/api/auth/gateway-token', { token: ada.accessToken, json: {} }), 200, tokenAnswer);
    const { payload, protectedHeader } = await jwtVerify(made.access_token, createLocalJWKSet({ keys } as unknown as JSONWebKeySet), { audience: platform.audience, issuer: platform.baseUrl });
    assert.ok(keys.some(({ kid }) => kid === protectedHeader.kid));
    assert.equal(payload.sub, ada.userId);
    assert.equal(payload['org'], undefined);
    assert.equal(made.expires_in, Number(payload.exp) - Number(payload.iat));
    for (const token of [undefined, eve.cookie, made.access_token]) {
      assert.equal((await platform.api('POST', '/api/auth/gateway-token', { ...(token === undefined ? {} : { token }), json: {} })).status, 401);
    }
    const organization = answered(await platform.api('POST', '/api/organization', { token: ada.accessToken, json: { name: 'Edge', slug: 'edge-org' } }), 201, organizationCreated);
    const acting = answered(await platform.api('POST', '/api/auth/gateway-token', { token: ada.accessToken, json: { orgId: organization.id } }), 200, tokenAnswer);
    assert.equal(decodeJwt(acting.access_token)['org'], organization.id);
    assert.equal((await platform.api('POST', '/api/auth/gateway-token', { token: eve.accessToken, json: { orgId: organization.id } })).status, 404);
  });
});
