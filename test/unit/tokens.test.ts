/** The platform's JWTs, the secrets of logins, who calls, and the legal manifest: what is believed and what is not (actors/daemon/platform). */
import assert from 'node:assert/strict';
import { createSecretKey, generateKeyPairSync, randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { decodeJwt, decodeProtectedHeader, SignJWT, type JWTPayload } from 'jose';
import { name } from '../../actors/name/name.ts';
import { createAccounts, createCsrf } from '../../actors/daemon/platform/accounts.ts';
import { createBearers, hexOfUser, userOfHex } from '../../actors/daemon/platform/bearer.ts';
import { createCallers, personOf } from '../../actors/daemon/platform/callers.ts';
import type { Tokens } from '../../actors/daemon/platform/deps.ts';
import { readManifest, requirePolicy } from '../../actors/daemon/platform/legal.ts';
import { createTokens, type TokensOptions } from '../../actors/daemon/platform/tokens.ts';
import { readSecrets, withEnvironment } from '../../actors/daemon/config.ts';
import { Ulids } from '../../actors/runtime/ulid.ts';
import { user } from '../../actors/user/user.ts';
import { daemonConfig } from '../../contracts/config.ts';
import { coded, CodedError } from '../../contracts/errors.ts';
import { isAccountId } from '../../contracts/ids.ts';
import { limits } from '../../contracts/limits.ts';
import type { Caller } from '../../contracts/platform.ts';
import { platformRoutes } from '../../contracts/platform-routes.ts';
import { recorder, silent } from '../harness/log.ts';
import { createCluster, createHost } from '../harness/memory-host.ts';

const userId = 'usr_01m7y5k0emwn9k1s928k7rjpdr';
const account = { user_id: userId, email: 'ann@example.com', name: 'Ann', policy: '' };
const config = { base_url: 'https://troupe.example', gateway_name: 'edge', access_expiry_ms: limits.accessTtlMs };
const newKey = (): { readonly privatePem: string; readonly publicPem: string } => {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  return { privatePem: privateKey.export({ type: 'pkcs8', format: 'pem' }).toString(), publicPem: publicKey.export({ type: 'spki', format: 'pem' }).toString() };
};
const start = Date.UTC(2030, 0, 1);
const setup = async (more: Partial<TokensOptions> = {}): Promise<{ readonly tokens: Tokens; readonly clock: { now: number } }> => {
  const clock = { now: start };
  const tokens = await createTokens({
    config, signingKeyPem: newKey().privatePem, formerKeyPems: [], now: () => clock.now, log: silent, membershipsOf: async () => [], caughtUp: async () => undefined, ...more,
  });
  return { tokens, clock };
};
const codeOf = async (work: () => Promise<unknown>): Promise<string> => {
  const error = await work().then(() => undefined, (e: unknown) => e);
  return error instanceof CodedError ? error.code : `not refused: ${String(error)}`;
};

test('tokens - an access token is good to the millisecond before its exp and not at it, remembered or not [TOK-012] [TOK-038]', async () => {
  const { tokens, clock } = await setup();
  const remembered = await tokens.mintAccess(account, 'grt_1');
  const fresh = await tokens.mintAccess(account, 'grt_2');
  assert.equal(remembered.expiresInSec, 86_400);
  assert.equal(remembered.expiresAtMs, start + 86_400_000);
  assert.equal((await tokens.verifyAccess(remembered.token)).grant, 'grt_1');
  clock.now = remembered.expiresAtMs - 1;
  assert.equal((await tokens.verifyAccess(remembered.token)).sub, userId);
  clock.now = remembered.expiresAtMs;
  assert.equal(await codeOf(() => tokens.verifyAccess(remembered.token)), 'unauthorized');
  assert.equal(await codeOf(() => tokens.verifyAccess(fresh.token)), 'unauthorized');
});

test('tokens - the life of an access token is the configured one, in whole seconds [TOK-002] [TOK-012]', async () => {
  const { tokens } = await setup({ config: { ...config, access_expiry_ms: 1_999 } });
  const { token, expiresInSec } = await tokens.mintAccess(account, 'grt_1');
  const { iat = 0, exp = 0 } = decodeJwt(token);
  assert.deepEqual([expiresInSec, exp - iat], [1, 1]);
});

test('tokens - JWT_ACCESS_EXPIRY_MS goes before the configuration; what is no number of milliseconds is refused [TOK-012]', () => {
  const parsed = daemonConfig.parse({
    host: 'h', socket_path: 's', nats: { url: 'nats://x' }, capability: { public_key_path: 'p' }, master_key_path: 'm', models: { default: 'mock', registry: [{ id: 'mock', provider: 'mock' }] },
    platform: { base_url: 'https://troupe.example', signing_key_path: 'k', access_expiry_ms: 5_000 },
  });
  assert.equal(withEnvironment(parsed, undefined).platform?.access_expiry_ms, 5_000);
  assert.equal(withEnvironment(parsed, '60000').platform?.access_expiry_ms, 60_000);
  for (const wrong of ['0', '-1', '1.5', 'day', '999', '1e400']) assert.throws(() => withEnvironment(parsed, wrong), { code: 'bad_request' }, wrong);
});

test('tokens - forged, foreign and twisted tokens are unauthorized: algorithm, key, kid, audience, issuer, claims [TOK-039] [TOK-040] [TOK-041]', async () => {
  const key = newKey();
  const { tokens } = await setup({ signingKeyPem: key.privatePem });
  const { token } = await tokens.mintAccess(account, 'grt_1');
  const header = decodeProtectedHeader(token);
  const claims = decodeJwt(token);
  const { createPrivateKey } = await import('node:crypto');
  const ours = createPrivateKey(key.privatePem);
  const sign = (more: JWTPayload, head: Record<string, unknown> = {}, by: Parameters<SignJWT['sign']>[0] = ours): Promise<string> =>
    new SignJWT({ ...claims, ...more }).setProtectedHeader({ ...header, alg: 'ES256', ...head }).sign(by);
  assert.equal((await tokens.verifyAccess(await sign({}))).sub, userId);
  const part = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString('base64url');
  const cases: Record<string, string> = {
    none: `${part({ ...header, alg: 'none' })}.${part(claims)}.`, empty: '', noise: 'a.b.c',
    hs256: await sign({}, { alg: 'HS256' }, Buffer.from(key.publicPem)),
    foreign: await sign({}, {}, createPrivateKey(newKey().privatePem)),
    'other kid': await sign({}, { kid: 'x' }), 'no kid': await sign({}, { kid: undefined }),
    'key in the header': await sign({}, { kid: undefined, jwk: createSecretKey(Buffer.from('x')).export({ format: 'jwk' }) }),
    audience: await sign({ aud: 'edge' }), audiences: await sign({ aud: ['troupe-platform', 'x'] }), issuer: await sign({ iss: 'https://other.example' }),
    'no exp': await sign({ exp: undefined }), 'not yet': await sign({ nbf: start / 1_000 + 60 }), 'no grant': await sign({ grant: undefined }), 'no jti': await sign({ jti: undefined }),
    gateway: (await tokens.mintGateway(account, 'grt_1')).token,
  };
  for (const [what, bad] of Object.entries(cases)) assert.equal(await codeOf(() => tokens.verifyAccess(bad)), 'unauthorized', what);
});

test('tokens - after a change of keys the former one is still believed and published, a forgotten one is not [TOK-004]', async () => {
  const [old, current] = [newKey(), newKey()];
  const before = await setup({ signingKeyPem: old.privatePem });
  const { token } = await before.tokens.mintAccess(account, 'grt_1');
  const after = await setup({ signingKeyPem: current.privatePem, formerKeyPems: [old.publicPem] });
  assert.equal((await after.tokens.verifyAccess(token)).sub, userId);
  const kids = after.tokens.jwks.keys.map(({ kid }) => kid);
  assert.deepEqual(kids, [decodeProtectedHeader((await after.tokens.mintAccess(account, 'g')).token).kid, decodeProtectedHeader(token).kid]);
  for (const key of after.tokens.jwks.keys) assert.equal('d' in key, false);
  const forgotten = await setup({ signingKeyPem: current.privatePem });
  assert.equal(await codeOf(() => forgotten.tokens.verifyAccess(token)), 'unauthorized');
  // A daemon that is not restarted yet believes the next key too, if it was told of it.
  const next = await setup({ signingKeyPem: old.privatePem, formerKeyPems: [current.publicPem] });
  assert.equal((await next.tokens.verifyAccess((await after.tokens.mintAccess(account, 'g')).token)).sub, userId);
});

test('tokens - a file that holds no such key ends the start with the name of its configuration key, without the key', async () => {
  const rsa = generateKeyPairSync('rsa', { modulusLength: 2_048 }).privateKey.export({ type: 'pkcs8', format: 'pem' }).toString();
  for (const signingKeyPem of ['', 'no key', rsa, newKey().publicPem]) {
    const error = await setup({ signingKeyPem }).then(() => undefined, (e: unknown) => e);
    assert.ok(error instanceof CodedError && error.message.startsWith('platform.signing_key_path'), String(error));
  }
  assert.equal(await codeOf(() => setup({ formerKeyPems: ['no key'] })), 'bad_request');
  const missing = daemonConfig.parse({
    host: 'h', socket_path: 's', nats: { url: 'nats://x' }, capability: { public_key_path: '/dev/null' }, master_key_path: '/dev/null', models: { default: 'mock', registry: [{ id: 'mock', provider: 'mock' }] },
    platform: { base_url: 'https://troupe.example', signing_key_path: '/nowhere/signing.key' },
  });
  assert.equal(await codeOf(() => readSecrets(missing)), 'bad_request');
});

test('tokens - memberships are a hint: bounded, late ones taken as they are, none when the list does not answer [TOK-009]', async () => {
  const log = recorder();
  const many = Array.from({ length: limits.tokenOrgsMax + 5 }, (_, i) => ({ id: `org_${String(i).padStart(26, '0')}`, role: 'member' }));
  const orgsOf = async (tokens: Tokens): Promise<unknown> => decodeJwt((await tokens.mintAccess(account, 'g')).token)['orgs'];
  const full = await setup({ membershipsOf: async () => many });
  assert.deepEqual(await orgsOf(full.tokens), many.slice(0, limits.tokenOrgsMax));
  assert.ok((await full.tokens.mintAccess(account, 'g')).token.length < limits.bearerMaxBytes);
  const late = await setup({ membershipsOf: async () => many.slice(0, 1), caughtUp: async () => { throw coded('deadline_exceeded'); } });
  assert.deepEqual(await orgsOf(late.tokens), many.slice(0, 1));
  const down = await setup({ log, caughtUp: async () => { throw coded('upstream_unavailable'); } });
  assert.deepEqual(await orgsOf(down.tokens), []);
  assert.ok(log.lines.some(({ text }) => text.includes('without memberships')));
  assert.equal(await codeOf(() => down.tokens.membershipsOf(userId)), 'upstream_unavailable');
});

test('bearers - a cookie and a refresh token lead to their person; altered or made up they lead nowhere [TOK-016]', () => {
  const bearers = createBearers(createSecretKey(randomBytes(32)));
  const others = createBearers(createSecretKey(randomBytes(32)));
  const ulids = new Ulids(() => start);
  for (let i = 0; i < 200; i++) {
    const id = `usr_${ulids.next().toLowerCase()}`;
    assert.equal(userOfHex(hexOfUser(id)), id);
    const cookie = bearers.newCookie(id);
    const refresh = bearers.newRefresh(id);
    assert.match(refresh, /^[0-9a-f]{64}$/);
    assert.deepEqual([bearers.cookieUser(cookie), bearers.refreshUser(refresh)], [id, id]);
    assert.deepEqual([others.cookieUser(cookie), others.refreshUser(refresh)], [undefined, undefined]);
    const at = i % 64;
    const changed = `${refresh.slice(0, at)}${refresh.charAt(at) === '0' ? '1' : '0'}${refresh.slice(at + 1)}`;
    assert.equal(bearers.refreshUser(changed), undefined, changed);
    const spot = 4 + (i % (cookie.length - 4));
    const altered = `${cookie.slice(0, spot)}${cookie.charAt(spot) === 'a' ? 'b' : 'a'}${cookie.slice(spot + 1)}`;
    assert.equal(bearers.cookieUser(altered), undefined, altered);
  }
  assert.ok(isAccountId(userOfHex('f'.repeat(32))));
  // The last character of a cookie has two bits to spare: only one spelling counts.
  const cookie = bearers.newCookie(userId);
  const last = cookie.at(-1) ?? '';
  const letters = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';
  for (const twin of [1, 2, 3].map((bits) => letters.charAt(letters.indexOf(last) ^ bits))) assert.equal(bearers.cookieUser(`${cookie.slice(0, -1)}${twin}`), undefined);
  for (const text of ['', 'x', `${userId}.`, `${userId}.${'A'.repeat(43)}`, 'f'.repeat(64), 'F'.repeat(64), `${bearers.newRefresh(userId)}\n`]) {
    assert.deepEqual([bearers.cookieUser(text), bearers.refreshUser(text)], [undefined, undefined]);
  }
});

test('accounts - first sign-ins at once with one address make one account [TOK-051]', async () => {
  const cluster = createCluster();
  const host = createHost(cluster, { definitions: [user(), name()] });
  const { tokens } = await setup();
  const ulids = new Ulids(() => start);
  const accounts = createAccounts({
    config, tokens, actors: { ask: (message) => host.engine.deliver(message) }, bearers: createBearers(createSecretKey(randomBytes(32))), now: () => start, newUlid: () => ulids.next(),
  });
  const context = { ip: '192.0.2.1', user_agent: 'x' };
  const all = await Promise.all((['email', 'google', 'github', 'email'] as const).map((provider) => accounts.signIn({ email: 'ann@example.com', name: '', provider, providerId: 'p' }, context)));
  assert.equal(new Set(all.map(({ account: a }) => a.user_id)).size, 1);
  assert.equal(all.filter(({ created }) => created).length, 1);
  assert.equal(new Set(all.map(({ cookie }) => cookie)).size, 4);
  const [one] = all;
  const pair = await accounts.issue(one?.account.user_id ?? '', 'device', 'cli', context);
  assert.equal((await tokens.verifyAccess(pair.accessToken)).sub, one?.account.user_id);
  assert.equal(await codeOf(() => accounts.issue(userId, 'device', 'cli', context)), 'unauthorized');
});

test('callers - an API key goes to its verifier, is no person, and is never looked up as a token', async () => {
  const key: Caller = { kind: 'key', organizationId: 'org_01m7y5k0emwn9k1s928k7rjpdr', keyId: 'key_01m7y5k0emwn9k1s928k7rjpdr', scopes: ['*'], createdBy: userId, policy: '' };
  const { tokens } = await setup();
  const callers = createCallers({
    tokens, bearers: createBearers(createSecretKey(randomBytes(32))), csrfOf: createCsrf(createSecretKey(randomBytes(32))),
    actors: { ask: async () => { throw new TypeError('asked'); } }, verifyKey: async (token) => { if (token !== 'trp_sk_good') throw coded('unauthorized'); return key; },
  });
  const context = { ip: '', user_agent: '' };
  assert.deepEqual(await callers.authorise(platformRoutes.me as never, 'trp_sk_good', context), key);
  assert.equal(await codeOf(async () => callers.authorise(platformRoutes.me as never, 'trp_sk_bad', context)), 'unauthorized');
  assert.equal(await codeOf(async () => callers.authorise(platformRoutes.me as never, '', context)), 'unauthorized');
  assert.equal(await callers.authorise(platformRoutes.manifest as never, 'anything', context), undefined);
  assert.throws(() => personOf(key), { code: 'forbidden' });
});

test('legal - the hash names version and documents; a file takes the place of the built-in manifest [TOK-055] [TOK-061]', () => {
  const built = readManifest(undefined, 'https://troupe.example');
  const document = { id: 'terms', title: 'Terms', url: 'https://legal.example/terms', sha256: 'a'.repeat(64) };
  const own = readManifest(JSON.stringify({ version: '1', documents: [document] }), 'https://troupe.example');
  const swapped = readManifest(JSON.stringify({ documents: [Object.fromEntries(Object.entries(document).toReversed())], version: '1' }), 'https://troupe.example');
  const newer = readManifest(JSON.stringify({ version: '2', documents: [document] }), 'https://troupe.example');
  assert.equal(own.hash, swapped.hash);
  assert.equal(new Set([built.hash, own.hash, newer.hash]).size, 3);
  for (const bad of ['', '{}', '{"version":"1","documents":[]}', JSON.stringify({ version: '1', documents: [{ ...document, url: 'javascript:alert(1)' }] }), JSON.stringify({ version: '1', documents: [{ ...document, more: 1 }] })]) {
    assert.throws(() => readManifest(bad, 'https://troupe.example'), { code: 'bad_request' }, bad);
  }
});

test('legal - chatting needs a token of the manifest in force: none accepted 403, another or an older token 401 [TOK-059] [TOK-060] [TOK-061]', () => {
  const now = { hash: 'b'.repeat(64) };
  const old = 'a'.repeat(64);
  const person = (policy: string, accepted: string): Caller => ({ kind: 'user', userId, email: '', name: '', grantId: 'g', policy, accepted, expiresAtMs: 0 });
  const key = (policy: string): Caller => ({ kind: 'key', organizationId: 'o', keyId: 'k', scopes: ['*'], createdBy: userId, policy });
  requirePolicy(person(now.hash, now.hash), now);
  requirePolicy(key(now.hash), now);
  assert.throws(() => requirePolicy(person('', ''), now), { code: 'legal_acceptance_required' });
  assert.throws(() => requirePolicy(key(''), now), { code: 'legal_acceptance_required' });
  for (const caller of [person(old, old), person(old, now.hash), person('', now.hash), person('', old), key(old)]) {
    assert.throws(() => requirePolicy(caller, now), { code: 'stale_policy' });
  }
});
