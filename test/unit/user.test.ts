/** The user actor: accounts, logins, refresh families, revocation, acceptance, and their bounds. Real engine, moved clock. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { test } from 'node:test';
import { limits } from '../../contracts/limits.ts';
import { userCommands, type GrantKind, type NewGrant } from '../../contracts/user.ts';
import { user } from '../../actors/user/user.ts';
import { userAddress } from '../../actors/user/address.ts';
import { askBy } from '../../actors/daemon/platform/ask.ts';
import { codeOf, createCluster, createHost, domainOf } from '../harness/memory-host.ts';

const userId = 'usr_01m7y5k0emwn9k1s928k7rjpdr';
const address = userAddress(userId);
const sha = (text: string): string => createHash('sha256').update(text).digest('hex');
const dayMs = 86_400_000;

const setup = () => {
  const cluster = createCluster();
  const host = createHost(cluster, { definitions: [user()] });
  const asks = askBy({ ask: (message) => host.engine.deliver(message) }, userCommands);
  const ask: typeof asks = asks;
  const now = (): number => cluster.clock.now();
  const grant = (id: string, kind: GrantKind, secret: string): NewGrant => ({
    id, kind, client_id: '', secret_sha256: sha(secret), expires_at: now() + 7 * dayMs,
    access_expires_at: now() + (kind === 'browser' ? 7 : kind === 'api-token' ? 90 : 1) * dayMs, ip: '192.0.2.1', user_agent: 'test',
  });
  const signIn = (id = 'grt_browser', secret = 'cookie', email = 'ann@example.com') =>
    ask(address, 'sign_in', { email, name: '', provider: 'email', provider_id: email, grant: grant(id, 'browser', secret) });
  const refresh = (secret: string, next: string) =>
    ask(address, 'refresh', { secret_sha256: sha(secret), next_sha256: sha(next), expires_at: now() + 7 * dayMs, access_expires_at: now() + dayMs });
  const events = (): string[] => domainOf(cluster, address).map((line) => line.split(' ')[0] ?? '');
  return { cluster, host, ask, now, grant, signIn, refresh, events };
};

test('user - the first sign-in makes the account, later ones and other providers reach it; a name is learnt where there was only the address [TOK-051]', async () => {
  const { ask, signIn, grant, events } = setup();
  assert.deepEqual(await signIn(), { account: { user_id: userId, email: 'ann@example.com', name: 'ann', policy: '' }, created: true });
  assert.equal((await signIn('grt_2', 'cookie2')).created, false);
  const google = await ask(address, 'sign_in', { email: 'ann@example.com', name: 'Ann Arbor', provider: 'google', provider_id: '117', grant: grant('grt_3', 'browser', 'c3') });
  assert.deepEqual(google, { account: { user_id: userId, email: 'ann@example.com', name: 'Ann Arbor', policy: '' }, created: false });
  assert.deepEqual((await ask(address, 'profile', {})).identities, ['email', 'google']);
  assert.equal(events().filter((e) => e === 'IdentityAdded').length, 2);
  assert.equal(await codeOf(signIn('grt_4', 'c4', 'eve@example.com')), 'conflict');
});

test('user - identities of an account are bounded', async () => {
  const { cluster, ask, signIn, grant } = setup();
  await signIn();
  for (let i = 0; i < limits.identitiesMax; i++) await ask(address, 'sign_in', { email: 'ann@example.com', name: '', provider: 'google', provider_id: String(i), grant: grant(`grt_g${i}`, 'browser', `g${i}`) });
  assert.deepEqual((await ask(address, 'profile', {})).identities, ['google']);
  assert.equal(domainOf(cluster, address).filter((line) => line.startsWith('IdentityAdded')).length, limits.identitiesMax + 1);
});

test('user - nobody is asked for in vain: an account that was never made is unauthorized, and nothing is journaled', async () => {
  const { ask, grant, events } = setup();
  assert.equal(await codeOf(ask(address, 'open_grant', { grant: grant('grt_1', 'device', 's') })), 'unauthorized');
  assert.equal(await codeOf(ask(address, 'check', { grant_id: 'grt_1', jti: 'j' })), 'unauthorized');
  assert.equal(await codeOf(ask(address, 'check_cookie', { secret_sha256: sha('x') })), 'unauthorized');
  assert.equal(await codeOf(ask(address, 'policy', {})), 'unauthorized');
  assert.deepEqual(await ask(address, 'revoke_all', {}), { revoked: 0 });
  assert.deepEqual(events(), []);
});

test('user - a refresh token rotates once; the replaced one ends its family, the newest included, and no other login [TOK-018] [TOK-019] [TOK-020]', async () => {
  const { ask, signIn, refresh, grant, events } = setup();
  await signIn();
  await ask(address, 'open_grant', { grant: grant('grt_d', 'device', 'r1') });
  await ask(address, 'open_grant', { grant: grant('grt_e', 'device', 'other') });
  assert.deepEqual((await refresh('r1', 'r2')).state, 'rotated');
  assert.deepEqual((await refresh('r2', 'r3')).state, 'rotated');
  assert.equal((await ask(address, 'check', { grant_id: 'grt_d', jti: 'a' })).user_id, userId);
  assert.deepEqual(await refresh('r1', 'rx'), { state: 'reused' });
  assert.deepEqual(await refresh('r3', 'r4'), { state: 'unknown' });
  assert.equal(await codeOf(ask(address, 'check', { grant_id: 'grt_d', jti: 'a' })), 'unauthorized');
  assert.equal((await ask(address, 'check', { grant_id: 'grt_e', jti: 'a' })).user_id, userId);
  assert.equal((await ask(address, 'check_cookie', { secret_sha256: sha('cookie') })).grant_id, 'grt_browser');
  assert.equal(events().at(-1), 'GrantsEnded');
});

test('user - of refreshes with one token at once exactly one rotates, and the family ends, since one of them is a thief\'s [TOK-020]', async () => {
  const { ask, signIn, refresh, grant } = setup();
  await signIn();
  await ask(address, 'open_grant', { grant: grant('grt_d', 'device', 'r1') });
  const states = (await Promise.all(['a', 'b', 'c', 'd'].map((next) => refresh('r1', next)))).map(({ state }) => state);
  assert.equal(states.filter((s) => s === 'rotated').length, 1);
  assert.equal(states.filter((s) => s === 'reused').length, 1);
  assert.equal(await codeOf(ask(address, 'check', { grant_id: 'grt_d', jti: 'a' })), 'unauthorized');
});

test('user - a refresh token of 7 days is expired to the millisecond, while its access token of 90 days lives on [TOK-017] [TOK-063]', async () => {
  const { cluster, ask, signIn, refresh, grant } = setup();
  await signIn();
  await ask(address, 'open_grant', { grant: grant('grt_t', 'api-token', 'r1') });
  await ask(address, 'open_grant', { grant: grant('grt_u', 'api-token', 'u1') });
  cluster.clock.jump(7 * dayMs - 1);
  assert.equal((await refresh('r1', 'r2')).state, 'rotated');
  cluster.clock.jump(1);
  assert.deepEqual(await refresh('u1', 'u2'), { state: 'expired' });
  assert.equal((await ask(address, 'check', { grant_id: 'grt_u', jti: 'a' })).user_id, userId);
  cluster.clock.jump(83 * dayMs - 1);
  assert.equal((await ask(address, 'check', { grant_id: 'grt_u', jti: 'a' })).user_id, userId);
  cluster.clock.jump(1);
  assert.equal(await codeOf(ask(address, 'check', { grant_id: 'grt_u', jti: 'a' })), 'unauthorized');
});

test('user - a browser session lasts 7 days from its last use, noted at most once an hour', async () => {
  const { cluster, ask, signIn, events } = setup();
  await signIn();
  const use = () => ask(address, 'check_cookie', { secret_sha256: sha('cookie') });
  for (let i = 0; i < 20; i++) await use();
  assert.equal(events().filter((e) => e === 'GrantUsed').length, 0);
  cluster.clock.jump(6 * dayMs);
  const { expires_at } = await use();
  assert.equal(expires_at, cluster.clock.now() + limits.browserSessionTtlMs);
  await use();
  assert.equal(events().filter((e) => e === 'GrantUsed').length, 1);
  cluster.clock.jump(7 * dayMs - 1);
  await use();
  cluster.clock.jump(7 * dayMs);
  assert.equal(await codeOf(use()), 'unauthorized');
  assert.deepEqual(await ask(address, 'grants', {}), { grants: [] });
});

test('user - one token is revoked by its jti and stays so; others of its login live [TOK-031]', async () => {
  const { cluster, ask, signIn, now, grant } = setup();
  await signIn();
  await ask(address, 'open_grant', { grant: grant('grt_d', 'device', 'r1') });
  const revoke = (jti: string) => ask(address, 'revoke_token', { grant_id: 'grt_d', jti, expires_at: now() + dayMs - 1 });
  assert.deepEqual(await revoke('one'), { revoked: 1 });
  assert.deepEqual(await revoke('one'), { revoked: 0 });
  assert.equal(await codeOf(ask(address, 'check', { grant_id: 'grt_d', jti: 'one' })), 'unauthorized');
  assert.equal((await ask(address, 'check', { grant_id: 'grt_d', jti: 'two' })).user_id, userId);
  assert.deepEqual(await ask(address, 'revoke_token', { grant_id: 'grt_x', jti: 'two', expires_at: now() + 1 }), { revoked: 0 });
  // Until it would have expired, whatever else is noted meanwhile.
  cluster.clock.jump(dayMs - 10);
  await revoke('three');
  assert.equal(await codeOf(ask(address, 'check', { grant_id: 'grt_d', jti: 'one' })), 'unauthorized');
});

test('user - more revoked tokens than are remembered end their login instead of coming back to life', async () => {
  const { ask, signIn, now, grant } = setup();
  await signIn();
  await ask(address, 'open_grant', { grant: grant('grt_d', 'device', 'r1') });
  for (let i = 0; i < limits.revokedTokensMax; i++) await ask(address, 'revoke_token', { grant_id: 'grt_d', jti: `j${i}`, expires_at: now() + dayMs });
  assert.equal((await ask(address, 'check', { grant_id: 'grt_d', jti: 'fine' })).user_id, userId);
  assert.deepEqual(await ask(address, 'revoke_token', { grant_id: 'grt_d', jti: 'last', expires_at: now() + dayMs }), { revoked: 1 });
  assert.equal(await codeOf(ask(address, 'check', { grant_id: 'grt_d', jti: 'fine' })), 'unauthorized');
});

test('user - a refresh token is revoked with its family, by its newest or by a replaced one; a cookie is no refresh token [TOK-032]', async () => {
  const { ask, signIn, refresh, grant } = setup();
  await signIn();
  for (const [id, secret] of [['grt_a', 'a1'], ['grt_b', 'b1']] as const) await ask(address, 'open_grant', { grant: grant(id, 'device', secret) });
  await refresh('a1', 'a2');
  assert.deepEqual(await ask(address, 'revoke_refresh', { secret_sha256: sha('a1') }), { revoked: 1 });
  assert.deepEqual(await refresh('a2', 'a3'), { state: 'unknown' });
  assert.deepEqual(await ask(address, 'revoke_refresh', { secret_sha256: sha('b1') }), { revoked: 1 });
  assert.deepEqual(await refresh('b1', 'b2'), { state: 'unknown' });
  assert.deepEqual(await ask(address, 'revoke_refresh', { secret_sha256: sha('cookie') }), { revoked: 0 });
  assert.deepEqual(await refresh('cookie', 'x'), { state: 'unknown' });
  assert.equal((await ask(address, 'check_cookie', { secret_sha256: sha('cookie') })).grant_id, 'grt_browser');
});

test('user - all logins end at once and are counted [TOK-033]', async () => {
  const { ask, signIn, refresh, grant } = setup();
  await signIn();
  await ask(address, 'open_grant', { grant: grant('grt_d', 'device', 'r1') });
  assert.deepEqual(await ask(address, 'revoke_all', {}), { revoked: 2 });
  assert.equal(await codeOf(ask(address, 'check', { grant_id: 'grt_d', jti: 'a' })), 'unauthorized');
  assert.equal(await codeOf(ask(address, 'check_cookie', { secret_sha256: sha('cookie') })), 'unauthorized');
  assert.deepEqual(await refresh('r1', 'r2'), { state: 'unknown' });
  await signIn('grt_new', 'again');
  assert.equal((await ask(address, 'grants', {})).grants.length, 1);
});

test('user - what was agreed to before all logins ended opens none; what is agreed to afterwards does, and so does one after a single sign-out', async () => {
  const { cluster, ask, signIn, grant } = setup();
  await signIn();
  await ask(address, 'revoke_grant', { grant_id: 'grt_browser', why: 'signed_out' });
  await ask(address, 'open_grant', { grant: grant('grt_a', 'device', 'a'), agreed_at: cluster.clock.now() - 1 });
  await ask(address, 'revoke_all', {});
  const ended = cluster.clock.now();
  for (const agreed_at of [ended - 1, ended]) assert.equal(await codeOf(ask(address, 'open_grant', { grant: grant('grt_b', 'device', 'b'), agreed_at })), 'unauthorized');
  cluster.clock.jump(1);
  await ask(address, 'open_grant', { grant: grant('grt_c', 'device', 'c'), agreed_at: ended + 1 });
  await ask(address, 'open_grant', { grant: grant('grt_d', 'api-token', 'd') });
  assert.deepEqual((await ask(address, 'grants', {})).grants.map(({ id }) => id), ['grt_c', 'grt_d']);
});

test('user - logins are bounded: a new one takes the place of the one of its kind that was not used for longest', async () => {
  const { cluster, ask, signIn, grant } = setup();
  await signIn();
  for (let i = 1; i < limits.grantsMax; i++) {
    cluster.clock.jump(1);
    await ask(address, 'open_grant', { grant: grant(`grt_${i}`, 'device', `s${i}`) });
  }
  cluster.clock.jump(limits.grantTouchMs);
  await ask(address, 'check', { grant_id: 'grt_1', jti: 'a' });
  await ask(address, 'open_grant', { grant: grant('grt_more', 'device', 'more') });
  const { grants } = await ask(address, 'grants', {});
  assert.equal(grants.length, limits.grantsMax);
  const ids = new Set(grants.map(({ id }) => id));
  assert.deepEqual(['grt_browser', 'grt_1', 'grt_2', 'grt_more'].map((id) => ids.has(id)), [true, true, false, true]);
});

test('user - replaced refresh tokens that are remembered are bounded; one beyond is merely refused', async () => {
  const { ask, signIn, refresh, grant } = setup();
  await signIn();
  await ask(address, 'open_grant', { grant: grant('grt_d', 'device', 'r0') });
  for (let i = 0; i < limits.formerRefreshMax + 1; i++) await refresh(`r${i}`, `r${i + 1}`);
  assert.deepEqual(await refresh('r0', 'x'), { state: 'unknown' });
  assert.equal((await ask(address, 'check', { grant_id: 'grt_d', jti: 'a' })).user_id, userId);
  assert.deepEqual(await refresh('r1', 'x'), { state: 'reused' });
});

test('user - an acceptance is kept with where it came from; the same again journals nothing [TOK-056]', async () => {
  const { cluster, ask, signIn } = setup();
  await signIn();
  const accept = (hash: string) => ask(address, 'accept_policy', { hash, version: 'v1', ip: '192.0.2.7', user_agent: 'browser' });
  assert.equal((await accept(sha('m1'))).policy, sha('m1'));
  await accept(sha('m1'));
  const lines = domainOf(cluster, address).filter((line) => line.startsWith('PolicyAccepted'));
  assert.equal(lines.length, 1);
  assert.match(lines[0] ?? '', /"ip":"192.0.2.7","user_agent":"browser"/);
  assert.equal((await accept(sha('m2'))).policy, sha('m2'));
});

test('user - a new owner of the partition folds the same logins [TOK-020]', async () => {
  const { cluster, ask, signIn, refresh, grant } = setup();
  await signIn();
  await ask(address, 'open_grant', { grant: grant('grt_d', 'device', 'r1') });
  await refresh('r1', 'r2');
  const second = createHost(cluster, { definitions: [user()], epoch: 2 });
  const there = askBy({ ask: (message) => second.engine.deliver(message) }, userCommands);
  assert.deepEqual((await there(address, 'grants', {})).grants.map(({ id }) => id), ['grt_browser', 'grt_d']);
  assert.equal((await there(address, 'refresh', { secret_sha256: sha('r1'), next_sha256: sha('x'), expires_at: 1, access_expires_at: 1 })).state, 'reused');
});
