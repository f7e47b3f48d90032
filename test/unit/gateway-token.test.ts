/** The gateway's JWS code against jose, redaction, and configuration errors. Randomness from one printed seed (fast-check). */
import assert from 'node:assert/strict';
import { createPublicKey, createSecretKey, generateKeyPairSync } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import fc from 'fast-check';
import { compactVerify, SignJWT } from 'jose';
import { stringify } from 'smol-toml';
import { Capabilities } from '../../gateway/capability.ts';
import { systemClock } from '../../gateway/clock.ts';
import { checkConfig, loadConfig } from '../../gateway/config.ts';
import { readJws, signEs256, verifyEs256, verifyHs256 } from '../../gateway/jws.ts';
import { redact } from '../../gateway/redact.ts';
import { manualClock } from '../harness/manual-clock.ts';

const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'prime256v1' });
const passes = (token: string): boolean => {
  const jws = readJws(token);
  return jws !== undefined && verifyEs256(jws, publicKey);
};

test('jws - agrees with jose: its tokens pass here and ours pass there', async () => {
  const theirs = await new SignJWT({ sub: 'é' }).setProtectedHeader({ alg: 'ES256', kid: 'k' }).sign(privateKey);
  assert.equal(passes(theirs), true);
  assert.deepEqual(readJws(theirs)?.claims, { sub: 'é' });
  const ours = signEs256({ typ: 'JWT', kid: 'k' }, { sub: 'é' }, privateKey);
  const { payload, protectedHeader } = await compactVerify(ours, publicKey);
  assert.deepEqual([JSON.parse(Buffer.from(payload).toString('utf8')), protectedHeader.alg], [{ sub: 'é' }, 'ES256']);
  const secret = Buffer.alloc(32, 3);
  const hs = readJws(await new SignJWT({ sub: 'a' }).setProtectedHeader({ alg: 'HS256' }).sign(secret));
  assert.ok(hs !== undefined);
  assert.deepEqual([verifyHs256(hs, secret), verifyHs256(hs, Buffer.alloc(32, 4)), verifyEs256(hs, publicKey)], [true, false, false]);
  assert.equal(verifyHs256(hs, createSecretKey(secret).export()), true);
});

test('jws - any change of a token is refused', async () => {
  const token = await new SignJWT({ sub: 'alice', n: 1 }).setProtectedHeader({ alg: 'ES256', kid: 'k' }).sign(privateKey);
  fc.assert(fc.property(fc.nat(token.length - 1), fc.constantFrom(...'ABab01-_.= é\n'), (at, char) => {
    const changed = token.slice(0, at) + char + token.slice(at + 1);
    assert.equal(passes(changed), changed === token);
  }), { numRuns: 400 });
  fc.assert(fc.property(fc.string({ maxLength: 200 }), (text) => assert.equal(passes(text), false)));
  for (const text of ['', '.', '..', 'a.b', `${token}.`, `.${token}`, `${token}=`, ` ${token}`, `${token}\n`]) assert.equal(passes(text), false, text);
});

test('jws - critical headers, and headers or claims that are no object or ill-typed, are refused', async () => {
  const part = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString('base64url');
  const sign = (header: unknown, claims: unknown): string => {
    const signature = signEs256({}, {}, privateKey).split('.')[2] ?? '';
    return `${part(header)}.${part(claims)}.${signature}`;
  };
  const good = signEs256({ kid: 'k' }, { a: 1 }, privateKey);
  assert.equal(passes(good), true);
  assert.equal(passes(signEs256({ crit: 'b64' }, { a: 1 }, privateKey)), false);
  for (const header of [null, [], 'x', {}, { alg: 1 }, { alg: 'ES256', kid: 1 }]) assert.equal(passes(sign(header, {})), false);
  for (const claims of [null, [], 'x']) assert.equal(readJws(sign({ alg: 'ES256' }, claims)), undefined);
});

test('capability - for agents it is the same one until 5 minutes before it expires, then a new one', () => {
  const clock = manualClock();
  const capabilities = new Capabilities({ name: 'g', key: privateKey, clock });
  const first = capabilities.forAgent('alice', 'acme');
  assert.notEqual(capabilities.forAgent('alice', 'other'), first);
  assert.notEqual(capabilities.forAgent('bob', 'acme'), first);
  clock.advance(598_000);
  assert.equal(capabilities.forAgent('alice', 'acme'), first);
  clock.advance(3_000);
  const second = capabilities.forAgent('alice', 'acme');
  assert.notEqual(second, first);
  assert.equal(capabilities.verify(second, 'agent.user-cap').verdict, 'valid');
  clock.advance(300_000);
  assert.equal(capabilities.verify(first, 'agent.user-cap').verdict, 'invalid');
});

test('capability - another kind of key is refused at start', () => {
  for (const key of [generateKeyPairSync('ec', { namedCurve: 'secp384r1' }).privateKey, generateKeyPairSync('ed25519').privateKey, createPublicKey(privateKey)]) {
    assert.throws(() => new Capabilities({ name: 'g', key, clock: systemClock }), { code: 'bad_config' });
  }
});

test('redact - words that start with a slash go, wherever they hide; at most 256 characters stay [GWH-030] [GWH-031]', () => {
  for (const [text, expected] of [
    ['open /etc/passwd failed', 'open [redacted] failed'], ['/a', '[redacted]'], ['x\n/run/a.sock\ty', 'x\n[redacted]\ty'], ['unix:/run/x', 'unix:[redacted]'],
    ['path="/srv/x"', 'path="[redacted]'], ['(/srv/x)', '([redacted]'], ['and/or 1/2 a.b/c', 'and/or 1/2 a.b/c'], ['', ''],
  ] as const) assert.equal(redact(text), expected);
  fc.assert(fc.property(fc.array(fc.oneof(fc.string(), fc.constant('/secret'), fc.constant(' '), fc.constant(':/secret'))), (parts) => {
    const shown = redact(parts.join(' '));
    assert.ok([...shown].length <= 256);
    assert.ok(!/(^|\s)\//.test(shown), shown);
  }));
});

const base = {
  listen: { port: 0 }, tls: { cert_path: 'c', key_path: 'k' }, auth: { jwks_url: 'https://id.example/jwks' }, capability: { key_path: 'k' }, upstream: { socket_path: 's' },
};

test('config - every fault names the file and the key', async () => {
  for (const [value, named] of [
    [{ ...base, tsl: {} }, 'tsl'], [{ ...base, auth: {} }, 'auth.jwks_url'], [{ ...base, auth: { dev_mode: true } }, 'auth.dev_secret_path'], [{ ...base, auth: { jwks_url: 'http://id.example/jwks' } }, 'auth.jwks_url'],
    [{ ...base, listen: { port: 70_000 } }, 'listen.port'], [{ ...base, limits: { per_user_capacity: 0 } }, 'limits.per_user_capacity'], [{ ...base, heartbeat_ms: '30' }, 'heartbeat_ms'], ['text', 'file.toml'],
  ] as const) {
    assert.throws(() => checkConfig(value, 'file.toml'), (error: unknown) => error instanceof Error && 'code' in error && error.code === 'bad_config' && error.message.includes('file.toml') && error.message.includes(named));
  }
  assert.equal(checkConfig({ ...base, auth: { jwks_url: 'http://127.0.0.1:1/jwks' } }, 'f').auth.jwks_ttl_ms, 300_000);
  const folder = await mkdtemp(join(tmpdir(), 'troupe-config-'));
  try {
    await writeFile(join(folder, 'good.toml'), stringify(base));
    await writeFile(join(folder, 'bad.toml'), 'listen = ');
    assert.equal((await loadConfig(join(folder, 'good.toml'))).name, 'troupe-gateway');
    await assert.rejects(loadConfig(join(folder, 'bad.toml')), { code: 'bad_config' });
    await assert.rejects(loadConfig(join(folder, 'none.toml')), { code: 'bad_config' });
  } finally {
    await rm(folder, { recursive: true });
  }
});
