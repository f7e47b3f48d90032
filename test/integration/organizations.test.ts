/** Organizations over HTTP: make, read, change, list (interface 4.3). One platform for all tests here. */
import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import { z } from 'zod';
import { reservedSlugs } from '../../contracts/ids.ts';
import { organization, organizationListed } from '../../contracts/organization.ts';
import { organizationClient, refusal, type OrganizationClient } from '../harness/organization.ts';
import { answered, startPlatform, type Person, type TestPlatform } from '../harness/platform.ts';

const unknownId = 'org_01jd0000000000000000000000';
const listed = z.strictObject({ organizations: z.array(organizationListed) });

suite('organizations', { timeout: 240_000 }, () => {
  let platform: TestPlatform;
  let client: OrganizationClient;
  let owner: Person;
  let stranger: Person;
  before(async () => {
    platform = await startPlatform(undefined, { gateways: 1, daemons: 1 });
    client = organizationClient(platform);
    owner = await platform.signUp('owner@example.com');
    stranger = await platform.signUp('stranger@example.com');
  });
  after(async () => platform.stop());

  test('organizations - the maker of a new one is its owner; its plan is free [ORG-010] [ORG-011] [ORG-012] [ORG-003] [ORG-004]', async () => {
    const made = await client.create(owner, 'acme');
    assert.deepEqual({ ...made, id: '', createdAt: '' }, { id: '', name: 'Org acme', slug: 'acme', plan: 'free', createdAt: '' });
    assert.equal(await client.roleOf(made.id, owner, owner.userId), 'owner');
    const read = await client.read(made.id, owner);
    assert.deepEqual(read, {
      ...made, memberCount: 1, settings: { defaultModel: read.settings.defaultModel, sharedMemory: false, webhookUrl: null, retentionDays: null },
    });
    assert.ok(read.settings.defaultModel.length > 0);
  });

  test('organizations - the list holds the caller\'s own only, with their role, at once after a change [ORG-001] [ORG-002]', async () => {
    const other = await platform.signUp('lister@example.com');
    const before = answered(await client.call('GET', '', other), 200, listed);
    assert.deepEqual(before.organizations, []);
    const first = await client.create(other);
    const second = await client.create(owner);
    await client.join(second.id, owner, other, 'viewer');
    const { organizations } = answered(await client.call('GET', '', other), 200, listed);
    assert.deepEqual(organizations, [{ ...first, role: 'owner', memberCount: 1 }, { ...second, role: 'viewer', memberCount: 2 }]);
    const renamed = await client.call('PATCH', '', other, { orgId: first.id, name: '  Neuer Name  ' });
    assert.equal(answered(renamed, 200, organization).name, 'Neuer Name');
    assert.equal(answered(await client.call('GET', '', other), 200, listed).organizations[0]?.name, 'Neuer Name');
    assert.equal((await client.call('POST', '/leave', other, { orgId: second.id })).status, 200);
    assert.deepEqual(answered(await client.call('GET', '', other), 200, listed).organizations.map(({ id }) => id), [first.id]);
  });

  test('organizations - for a stranger it is as if it did not exist, to the byte, on every route [ORG-007] [ORG-008] [ORG-025] [ORG-032] [ORG-057] [KEY-019] [AUD-006]', async () => {
    const { id } = await client.create(owner);
    const calls = [
      ['GET', '', {}], ['PATCH', '', { name: 'x' }], ['DELETE', '', {}], ['GET', '/members', {}],
      ['POST', '/members', { email: 'a@example.com' }], ['PATCH', '/members', { userId: owner.userId, role: 'viewer' }], ['DELETE', '/members', { userId: owner.userId }],
      ['GET', '/invitations', {}], ['DELETE', '/invitations', { invitationId: 'inv_01jd0000000000000000000000' }], ['POST', '/transfer', { userId: owner.userId }],
      ['POST', '/leave', {}], ['GET', '/api-keys', {}], ['POST', '/api-keys', { name: 'k', scopes: ['*'] }], ['DELETE', '/api-keys', { id: 'key_01jd0000000000000000000000' }],
      ['GET', '/audit', {}], ['GET', '/audit', { format: 'csv' }], ['GET', '/webhook', {}], ['POST', '/webhook/redeliver', { id: 'evt_1' }], ['POST', '/webhook/secret', {}],
    ] as const;
    for (const [method, path, fields] of calls) {
      const known = await client.call(method, path, stranger, { ...fields, orgId: id });
      for (const orgId of [unknownId, 'acme', id.toUpperCase(), `${id}x`, '../etc', 'org_*', '>']) {
        const unknown = await client.call(method, path, stranger, { ...fields, orgId });
        assert.equal(refusal(unknown), '404 not_found', `${method} ${path} ${orgId}`);
        assert.equal(known.body, unknown.body, `${method} ${path}`);
        assert.equal(known.status, unknown.status);
      }
    }
    assert.equal((await client.read(id, owner)).memberCount, 1);
  });

  test('organizations - nobody is asked without a valid bearer [ORG-009]', async () => {
    const { id } = await client.create(owner);
    for (const token of ['x', 'trp_sk_x', `${owner.accessToken.slice(0, -4)}AAAA`]) {
      assert.equal(refusal(await client.call('GET', '', token, { orgId: id })), '401 unauthorized', token.slice(0, 8));
      assert.equal(refusal(await client.call('DELETE', '', token, { orgId: id })), '401 unauthorized');
    }
    assert.equal(refusal(await platform.api('GET', '/api/organization/members?orgId=x')), '401 unauthorized');
  });

  test('organizations - a slug has 3-32 of a-z, 0-9 and hyphen, no hyphen at an end, and is not reserved [ORG-013] [ORG-014] [ORG-015] [ORG-016] [ORG-017]', async () => {
    const bad = ['', 'ab', 'a'.repeat(33), '-abc', 'abc-', 'Abc', 'a_c', 'a.c', 'a c', 'äbc', 'аcme', 'acme\n', ' acme2', 'a\u0000bc', 'ａｃｍｅ', ...reservedSlugs, 7, null, ['abc']];
    for (const slug of bad) assert.equal(refusal(await client.call('POST', '', owner, { name: 'x', slug })), '400 validation_error', JSON.stringify(slug));
    for (const fields of [{ slug: 'lonely-slug' }, { name: 'lonely name' }, {}, { name: '', slug: 'empty-name' }, { name: ' ', slug: 'empty-name' }, { name: 'x'.repeat(129), slug: 'long-name' }, { name: 'a\u202eb', slug: 'bidi-name' }, { name: 'x', slug: 'extra-field', plan: 'enterprise' }]) {
      assert.equal(refusal(await client.call('POST', '', owner, fields)), '400 validation_error', JSON.stringify(fields));
    }
    for (const slug of ['a-1', '0'.repeat(32)]) assert.equal((await client.create(owner, slug)).slug, slug);
  });

  test('organizations - a taken slug is a conflict, and of two at once one wins [ORG-018] [ORG-019]', async () => {
    await client.create(owner, 'taken-slug');
    assert.equal(refusal(await client.call('POST', '', stranger, { name: 'x', slug: 'taken-slug' })), '409 conflict');
    const all = await Promise.all(Array.from({ length: 12 }, (_, i) => client.call('POST', '', i % 2 === 0 ? owner : stranger, { name: `n${i}`, slug: 'raced-slug' })));
    assert.deepEqual(all.map(({ status }) => status).toSorted((a, b) => a - b), [201, ...Array.from({ length: 11 }, () => 409)]);
  });

  test('organizations - a change leaves what it does not name, and refuses what it does not know [ORG-020] [ORG-021] [ORG-022] [ORG-023] [ORG-006] [AUD-018]', async () => {
    const { id, slug } = await client.create(owner);
    const before = await client.read(id, owner);
    const change = async (fields: object): Promise<unknown> => {
      const reply = await client.call('PATCH', '', owner, { orgId: id, ...fields });
      return reply.status === 200 ? answered(reply, 200, organization) : refusal(reply);
    };
    assert.deepEqual(await change({}), before);
    assert.deepEqual(await change({ settings: { sharedMemory: true } }), { ...before, settings: { ...before.settings, sharedMemory: true } });
    assert.deepEqual(await change({ name: 'Zwei' }), { ...before, name: 'Zwei', settings: { ...before.settings, sharedMemory: true } });
    const url = 'https://hooks.example.com/a?b=c';
    assert.deepEqual(await change({ settings: { webhookUrl: url } }), { ...before, name: 'Zwei', settings: { ...before.settings, sharedMemory: true, webhookUrl: url } });
    const refused = [
      { slug: 'another' }, { plan: 'enterprise' }, { settings: { defaultModel: 'no-such-model' } }, { settings: { defaultModel: '' } }, { settings: { sharedMemory: 'yes' } }, { settings: { color: 1 } },
      { settings: { webhookUrl: 'http://hooks.example.com' } }, { settings: { webhookUrl: 'https://u:p@hooks.example.com' } }, { settings: { webhookUrl: 'javascript:alert(1)' } }, { settings: { webhookUrl: '' } },
      { settings: { retentionDays: 0 } }, { settings: { retentionDays: 1.5 } }, { settings: null }, { name: null },
    ];
    for (const fields of refused) assert.equal(await change(fields), '400 validation_error', JSON.stringify(fields));
    assert.equal(refusal(await client.call('PATCH', '', owner, { name: 'x' })), '400 validation_error');
    assert.deepEqual(await change({ settings: { webhookUrl: null, sharedMemory: false }, name: before.name }), before);
    assert.equal((await client.read(id, owner)).slug, slug);
  });

  test('organizations - a body that is not JSON, or too large, changes nothing [ORG-023]', async () => {
    const { id } = await client.create(owner);
    const raw = await platform.api('PATCH', '/api/organization', { token: owner.accessToken, headers: { 'content-type': 'text/plain' }, json: { orgId: id, name: 'x' } });
    assert.equal(raw.status, 400);
    const large = await client.call('PATCH', '', owner, { orgId: id, name: 'x', settings: { webhookUrl: `https://a.example/${'x'.repeat(70_000)}` } });
    assert.equal(large.status, 413);
    assert.equal((await client.read(id, owner)).settings.webhookUrl, null);
  });
});
