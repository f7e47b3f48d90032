/** API keys over HTTP, on two gateways and two daemons (interface 5.1; decisions, Organizations). */
import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import { setImmediate as tick } from 'node:timers/promises';
import { z } from 'zod';
import { apiKey, organizationListed } from '../../contracts/organization.ts';
import { createdKey, organizationClient, refusal, type OrganizationClient } from '../harness/organization.ts';
import { answered, startPlatform, type ApiReply, type Method, type Person, type TestPlatform } from '../harness/platform.ts';

const keyList = z.strictObject({ keys: z.array(apiKey) });

suite('api keys', { timeout: 240_000 }, () => {
  let platform: TestPlatform;
  let client: OrganizationClient;
  let owner: Person;
  before(async () => {
    platform = await startPlatform(undefined, { gateways: 2, daemons: 2 });
    client = organizationClient(platform);
    owner = await platform.signUp('owner@example.com');
  });
  after(async () => platform.stop());

  const list = async (orgId: string): Promise<z.output<typeof keyList>['keys']> => answered(await client.call('GET', '/api-keys', owner, { orgId }), 200, keyList).keys;

  test('api keys - the key is in the answer that makes it and nowhere else; its record is complete [KEY-001] [KEY-002] [KEY-003] [KEY-009] [KEY-016]', async () => {
    const { id: orgId } = await client.create(owner);
    const { key, ...made } = answered(await client.call('POST', '/api-keys', owner, { orgId, name: ' Build server ', scopes: ['org.read', 'org.read', 'chat.create'] }), 201, createdKey);
    assert.match(key, /^trp_sk_[0-9a-z]{26}_[A-Za-z0-9_-]{43}$/);
    assert.deepEqual(Object.keys(made).toSorted(), ['createdAt', 'createdBy', 'id', 'keyPrefix', 'lastUsedAt', 'name', 'revokedAt', 'scopes']);
    assert.deepEqual([made.name, made.scopes, made.createdBy, made.lastUsedAt, made.revokedAt], ['Build server', ['org.read', 'chat.create'], owner.userId, null, null]);
    assert.ok(key.startsWith(made.keyPrefix) && key.length - made.keyPrefix.length > 36);
    const shown = await client.call('GET', '/api-keys', owner, { orgId });
    assert.deepEqual(answered(shown, 200, keyList).keys, [made]);
    assert.ok(!shown.body.includes(key.slice(made.keyPrefix.length)));
  });

  test('api keys - one works as a bearer until it is revoked; the use is noted [KEY-004] [KEY-010] [KEY-016]', async () => {
    const { id: orgId, slug } = await client.create(owner);
    const { id, key } = await client.key(orgId, owner);
    const mine = answered(await client.call('GET', '', key), 200, z.strictObject({ organizations: z.array(organizationListed) }));
    assert.deepEqual(mine.organizations.map((one) => [one.id, one.slug, one.role]), [[orgId, slug, 'admin']]);
    assert.equal((await client.call('PATCH', '', key, { orgId, name: 'By key' })).status, 200);
    const [used] = await list(orgId);
    assert.ok(used?.lastUsedAt !== null && used?.revokedAt === null);
    const revoked = answered(await client.call('DELETE', '/api-keys', owner, { orgId, id }), 200, apiKey);
    assert.ok(revoked.revokedAt !== null);
    assert.equal(refusal(await client.call('GET', '', key, { orgId })), '401 unauthorized');
    assert.equal((await list(orgId))[0]?.revokedAt, revoked.revokedAt);
  });

  test('api keys - a prefix, an altered and an unknown key do not pass [KEY-007] [KEY-015]', async () => {
    const { id: orgId } = await client.create(owner);
    const { key } = await client.key(orgId, owner);
    const prefix = (await list(orgId))[0]?.keyPrefix ?? '';
    const last = key.slice(-1);
    const other = await client.create(owner);
    const altered = [
      prefix, prefix.padEnd(key.length, 'A'), `${key.slice(0, -1)}${last === 'A' ? 'B' : 'A'}`, key.slice(0, -1), `${key}A`, key.toUpperCase(), key.toLowerCase(), 'trp_sk_', `trp_sk_${'0'.repeat(26)}_${'A'.repeat(43)}`,
      key.replace(orgId.slice(4), other.id.slice(4)), key.replace('trp_sk_', 'trp_dk_'), `${key}.`, `${orgId}`,
    ].filter((text) => text !== key);
    for (const text of altered) assert.equal(refusal(await client.call('GET', '', text, { orgId })), '401 unauthorized', text);
    assert.equal((await client.call('GET', '', key, { orgId })).status, 200);
  });

  test('api keys - one reaches its own organization only [KEY-011]', async () => {
    const { id: orgId } = await client.create(owner);
    const { id: other } = await client.create(owner);
    const { key } = await client.key(orgId, owner);
    const calls: readonly [Method, string, object][] = [['GET', '', {}], ['PATCH', '', { name: 'x' }], ['GET', '/members', {}], ['POST', '/api-keys', { name: 'k', scopes: ['*'] }], ['GET', '/audit', {}], ['DELETE', '', {}]];
    for (const [method, path, fields] of calls) {
      for (const id of [other, 'org_01jd0000000000000000000000', 'x']) assert.equal(refusal(await client.call(method, path, key, { ...fields, orgId: id })), '404 not_found', `${method} ${path}`);
    }
  });

  test('api keys - each scope opens its own routes and no other; `*` all but the owner\'s [KEY-008] [KEY-012] [KEY-013]', async () => {
    const { id: orgId } = await client.create(owner);
    const unknown = 'inv_01jd0000000000000000000000';
    const routes: readonly [scope: string, Method, string, object, allowed: number][] = [
      ['org.read', 'GET', '', {}, 200], ['org.update', 'PATCH', '', { settings: { sharedMemory: true } }, 200], ['member.list', 'GET', '/members', {}, 200],
      ['member.invite', 'GET', '/invitations', {}, 200], ['member.invite', 'DELETE', '/invitations', { invitationId: unknown }, 404], ['member.update_role', 'PATCH', '/members', { userId: unknown, role: 'viewer' }, 404],
      ['member.remove', 'DELETE', '/members', { userId: unknown }, 404], ['api_key.create', 'GET', '/api-keys', {}, 200], ['api_key.revoke', 'DELETE', '/api-keys', { id: unknown }, 404],
      ['audit.read', 'GET', '/audit', {}, 200], ['audit.export', 'GET', '/audit', { format: 'jsonl' }, 200], ['org.update', 'GET', '/webhook', {}, 200],
      ['owner', 'DELETE', '', {}, 403], ['owner', 'POST', '/transfer', { userId: owner.userId }, 403], ['owner', 'PATCH', '', { settings: { retentionDays: 1 } }, 403], ['owner', 'POST', '/leave', {}, 403],
    ];
    for (const scope of [...new Set(routes.map(([name]) => name))].filter((name) => name !== 'owner').concat('*')) {
      const { id, key } = await client.key(orgId, owner, [scope]);
      for (const [needs, method, path, fields, allowed] of routes) {
        const { status, body } = await client.call(method, path, key, { ...fields, orgId });
        assert.equal(status, needs === scope || scope === '*' ? allowed : 403, `${scope}: ${method} ${path} ${body}`);
      }
      await client.call('DELETE', '/api-keys', owner, { orgId, id });
    }
    for (const scopes of [['org.delete'], ['member.remove_admin'], ['plan.change'], ['no.such'], ['*', 'org.transfer'], [], ['org.read', 7], '*']) {
      assert.equal(refusal(await client.call('POST', '/api-keys', owner, { orgId, name: 'k', scopes })), '400 validation_error', JSON.stringify(scopes));
    }
    assert.equal(refusal(await client.call('POST', '', (await client.key(orgId, owner)).key, { name: 'x', slug: 'made-by-key' })), '403 forbidden', 'a key founds nothing');
  });

  test('api keys - a revoked key is refused by every gateway and daemon at once [KEY-014]', async () => {
    const { id: orgId } = await client.create(owner);
    const { id, key } = await client.key(orgId, owner);
    for (const gateway of [0, 1]) assert.equal((await client.call('GET', '', key, { orgId }, gateway)).status, 200);
    // Under load: requests are on their way everywhere while it is revoked.
    let going = true;
    const seen: ApiReply[] = [];
    const load = [0, 1].map(async (gateway) => {
      while (going) seen.push(await client.call('GET', '', key, { orgId }, gateway));
    });
    while (seen.length < 4) await tick();
    assert.equal((await client.call('DELETE', '/api-keys', owner, { orgId, id }, 1)).status, 200);
    const after_ = await Promise.all(Array.from({ length: 10 }, (_, i) => client.call('GET', '', key, { orgId }, i % 2)));
    going = false;
    await Promise.all(load);
    assert.deepEqual([...new Set(after_.map(refusal))], ['401 unauthorized'], 'whatever begins after the answer');
    assert.ok(seen.every(({ status }) => status === 200 || status === 401));
  });

  test('api keys - a plan allows so many; a revoked one makes room [KEY-017] [KEY-018]', async () => {
    const { id: orgId } = await client.create(owner);
    const first = await client.key(orgId, owner);
    await client.key(orgId, owner);
    const full = await client.call('POST', '/api-keys', owner, { orgId, name: 'third', scopes: ['*'] });
    assert.deepEqual([full.status, z.object({ error: z.object({ code: z.string(), details: z.unknown() }) }).parse(full.json).error], [403, { code: 'plan_limit', details: { limit: 2, upgradeUrl: '/pricing' } }]);
    for (const id of ['key_01jd0000000000000000000000', 'x', `${first.id}x`]) assert.equal(refusal(await client.call('DELETE', '/api-keys', owner, { orgId, id })), '404 not_found');
    await client.call('DELETE', '/api-keys', owner, { orgId, id: first.id });
    await client.key(orgId, owner);
    assert.equal((await list(orgId)).length, 3);
  });

  test('api keys - a key outlives its maker\'s membership and still says who made it [KEY-016] [ORG-052]', async () => {
    const { id: orgId } = await client.create(owner);
    const admin = await platform.signUp('admin@example.com');
    await client.join(orgId, owner, admin, 'admin');
    const { key } = await client.key(orgId, admin);
    assert.equal((await client.call('DELETE', '/members', owner, { orgId, userId: admin.userId })).status, 200);
    assert.equal((await client.call('GET', '', key, { orgId })).status, 200);
    assert.equal((await list(orgId))[0]?.createdBy, admin.userId);
  });
});
