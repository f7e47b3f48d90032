/** Accounts while Postgres or a daemon is down or a signing key is changed; an API key, which is nobody. Real daemons, asked over the link. */
import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { decodeJwt, decodeProtectedHeader } from 'jose';
import { z } from 'zod';
import { deviceGrant, tokenAnswer } from '../../contracts/auth-routes.ts';
import { got, startAccounts, type TestAccounts } from '../harness/accounts.ts';

const meAnswer = z.object({ id: z.string() });

const refresh = (accounts: TestAccounts, refreshToken: string, ip: string) => accounts.call('refresh', { body: { refresh_token: refreshToken }, ip });

test('accounts faults - while Postgres is down people sign in and renew tokens without hints of organizations; lists say that they cannot [TOK-014]', { timeout: 120_000 }, async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.signUp('ann@example.com');
  const { refreshToken } = await accounts.apiToken(ann);
  await accounts.postgres.kill('SIGKILL');
  const renewed = got(await refresh(accounts, refreshToken, '192.0.2.9'), 200, tokenAnswer);
  assert.deepEqual(decodeJwt(renewed.access_token)['orgs'], []);
  const bob = await accounts.signUp('bob@example.com');
  assert.equal((await accounts.call('grants', { token: renewed.access_token })).status, 200);
  assert.deepEqual([(await accounts.call('me', { token: bob.accessToken })).status, (await accounts.call('me', { token: bob.accessToken })).code], [503, 'upstream_unavailable']);
  // It is refused at once from when the daemon knows, until it sees it answer again.
  const [daemon] = accounts.daemons;
  await daemon?.line(/Postgres cannot be reached/);
  await accounts.postgres.start();
  await daemon?.line(/Postgres answers again/);
  assert.equal(got(await accounts.call('me', { token: bob.accessToken }), 200, meAnswer).id, bob.userId);
});

test('accounts faults - while Postgres hangs nobody loses a login or an approval: tokens come in time, without hints', { timeout: 120_000 }, async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.signUp('ann@example.com');
  const { refreshToken } = await accounts.apiToken(ann);
  const { device_code, user_code } = got(await accounts.call('device_code', { ip: '192.0.2.20' }), 200, z.object({ device_code: z.string(), user_code: z.string() }));
  assert.equal((await accounts.call('device_authorize', { token: ann.cookie, csrf: ann.csrf, body: { user_code, action: 'approve' } })).status, 200);
  const server = accounts.postgres.pid;
  assert.ok(server !== undefined);
  // Its connections are processes of their own.
  const processes = [server, ...(await readFile(`/proc/${server}/task/${server}/children`, 'utf8')).split(' ').filter((pid) => pid.trim() !== '').map(Number)];
  const all = (signal: 'SIGSTOP' | 'SIGCONT'): void => {
    for (const pid of processes) process.kill(pid, signal);
  };
  all('SIGSTOP');
  try {
    const [renewed, polled] = await Promise.all([
      refresh(accounts, refreshToken, '192.0.2.20'), accounts.call('device_token', { body: { grant_type: deviceGrant, device_code }, ip: '192.0.2.20' }),
    ]);
    const next = got(renewed, 200, tokenAnswer);
    assert.deepEqual(decodeJwt(next.access_token)['orgs'], []);
    got(polled, 200, tokenAnswer);
    got(await refresh(accounts, next.refresh_token ?? '', '192.0.2.20'), 200, tokenAnswer);
  } finally {
    all('SIGCONT');
  }
});

test('accounts faults - a killed daemon takes no login and no revocation with it; the other serves meanwhile [TOK-031]', { timeout: 120_000 }, async (t) => {
  const accounts = await startAccounts(t, { count: 2 });
  const ann = await accounts.signUp('ann@example.com');
  const kept = await accounts.apiToken(ann);
  const gone = await accounts.apiToken(ann);
  assert.equal((await accounts.call('revoke', { token: kept.token, body: { token: gone.token } })).status, 200);
  for (const [killed, other] of [[0, 1], [1, 0]] as const) {
    const daemon = accounts.daemons[killed];
    await daemon?.kill('SIGKILL');
    assert.equal((await accounts.call('me', { token: kept.token, daemon: other })).status, 200);
    assert.equal((await accounts.call('me', { token: gone.token, daemon: other })).status, 401);
    assert.equal((await accounts.call('session', { token: ann.cookie, daemon: other })).status, 200);
    await daemon?.start();
    await accounts.reached(killed);
    assert.equal((await accounts.call('me', { token: kept.token, daemon: killed })).status, 200);
    assert.equal((await accounts.call('me', { token: gone.token, daemon: killed })).status, 401);
  }
});

test('accounts faults - the signing key is changed without a break: told to all first, then used; tokens of the former one stay good [TOK-004]', { timeout: 120_000 }, async (t) => {
  const accounts = await startAccounts(t, { count: 2 });
  const ann = await accounts.signUp('ann@example.com');
  const before = await accounts.apiToken(ann);
  const next = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const file = (name: string): string => join(accounts.folder, name);
  await writeFile(file('next.key'), next.privateKey.export({ type: 'pkcs8', format: 'pem' }), { mode: 0o600 });
  await writeFile(file('next.pub'), next.publicKey.export({ type: 'spki', format: 'pem' }));
  await writeFile(file('first.pub'), accounts.publicKeyPem);
  const reconfigure = async (index: number, change: (text: string) => string): Promise<void> => {
    const daemon = accounts.daemons[index];
    assert.ok(daemon !== undefined);
    await daemon.stop();
    await writeFile(daemon.configPath, change(await readFile(daemon.configPath, 'utf8')));
    await daemon.start();
    await accounts.reached(index);
  };
  const believing = (pub: string) => (text: string): string => text.replace(/^signing_key_path = .*$/m, (line) => `${line}\nformer_key_paths = [ ${JSON.stringify(file(pub))} ]`);
  for (const index of [0, 1]) await reconfigure(index, believing('next.pub'));
  await reconfigure(0, (text) => text.replace(/^signing_key_path = .*$/m, `signing_key_path = ${JSON.stringify(file('next.key'))}`).replace('next.pub', 'first.pub'));
  const { access_token: after } = got(await accounts.call('session_token', { token: ann.cookie, csrf: ann.csrf, daemon: 0 }), 200, tokenAnswer);
  assert.notEqual(decodeProtectedHeader(after).kid, decodeProtectedHeader(before.token).kid);
  for (const daemon of [0, 1]) {
    for (const token of [before.token, after]) assert.equal((await accounts.call('me', { token, daemon })).status, 200, `daemon ${daemon}`);
    const { keys } = got(await accounts.call('jwks', { daemon }), 200, z.object({ keys: z.array(z.object({ kid: z.string() })) }));
    assert.deepEqual(keys.map(({ kid }) => kid).toSorted(), [before.token, after].map((token) => decodeProtectedHeader(token).kid).toSorted());
  }
});

test('accounts faults - when the documents change, an old acceptance counts no more, and its person reads and accepts the new ones with the token they have [TOK-058] [TOK-062]', { timeout: 120_000 }, async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.signUp('ann@example.com');
  const hashOf = async (): Promise<string> => got(await accounts.call('manifest', { token: ann.accessToken }), 200, z.object({ hash: z.string() })).hash;
  const accept = (hash: string) => accounts.call('acceptance', { token: ann.accessToken, body: { hash, terms: true, privacy: true, processing: true, age: true } });
  const state = async (): Promise<{ readonly accepted: boolean; readonly policy: unknown }> => ({
    accepted: got(await accounts.call('session', { token: ann.cookie }), 200, z.object({ legalAccepted: z.boolean() })).legalAccepted,
    policy: decodeJwt(got(await accounts.call('session_token', { token: ann.cookie, csrf: ann.csrf }), 200, tokenAnswer).access_token)['policy'],
  });
  const first = await hashOf();
  assert.equal((await accept(first)).status, 200);
  assert.deepEqual(await state(), { accepted: true, policy: first });

  const path = join(accounts.folder, 'manifest.json');
  await writeFile(path, JSON.stringify({ version: '2', documents: [{ id: 'terms', title: 'Terms', url: 'https://legal.example/terms', sha256: 'a'.repeat(64) }] }));
  const [daemon] = accounts.daemons;
  assert.ok(daemon !== undefined);
  await daemon.stop();
  await writeFile(daemon.configPath, (await readFile(daemon.configPath, 'utf8')).replace(/^signing_key_path = .*$/m, (line) => `${line}\nlegal_manifest_path = ${JSON.stringify(path)}`));
  await daemon.start();
  await accounts.reached(0);
  const second = await hashOf();
  assert.notEqual(second, first);
  assert.deepEqual(await state(), { accepted: false, policy: first });
  assert.equal((await accept(first)).code, 'conflict');
  assert.equal((await accept(second)).status, 200);
  assert.deepEqual(await state(), { accepted: true, policy: second });
});

test('accounts faults - an organization\'s key is no person: what is a person\'s own is refused, me names the key [TOK-042] [KEY-010]', { timeout: 120_000 }, async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.signUp('ann@example.com');
  const { id: orgId } = got(await accounts.call('create_organization', { token: ann.accessToken, body: { name: 'Org', slug: 'org-of-key' } }), 201, z.object({ id: z.string() }));
  const made = got(await accounts.call('create_key', { token: ann.accessToken, body: { orgId, name: 'k', scopes: ['*'] } }), 201, z.object({ id: z.string(), key: z.string() }));
  const me = got(await accounts.call('me', { token: made.key }), 200, z.object({ id: z.string(), orgs: z.array(z.object({ id: z.string() })), expiresAt: z.null() }));
  assert.deepEqual([me.id, me.orgs.map(({ id }) => id)], [made.id, [orgId]]);
  const hash = got(await accounts.call('manifest'), 200, z.object({ hash: z.string() })).hash;
  const calls: [string, unknown][] = [
    ['revoke', { all: true }], ['revoke', { token: ann.accessToken }], ['gateway_token', {}], ['gateway_token', { orgId }], ['grants', undefined],
    ['revoke_grant', { id: 'grt_01jd0000000000000000000000' }], ['acceptance', { hash, terms: true, privacy: true, processing: true, age: true }],
  ];
  for (const [route, body] of calls) assert.equal((await accounts.call(route, { token: made.key, body })).code, 'forbidden', route);
  assert.equal((await accounts.call('me', { token: ann.accessToken })).status, 200);
});
