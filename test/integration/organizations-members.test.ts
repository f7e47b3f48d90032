/** Members, roles and invitations over HTTP, by people who really signed up (interface 4.3; decisions). */
import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import { z } from 'zod';
import { limits } from '../../contracts/limits.ts';
import { invitation, member, organizationListed } from '../../contracts/organization.ts';
import { createdKey, organizationClient, refusal, type OrganizationClient } from '../harness/organization.ts';
import { answered, startPlatform, type ApiReply, type Method, type Person, type TestPlatform } from '../harness/platform.ts';

const inviteAnswer = z.strictObject({ invitation });
type Who = 'owner' | 'admin' | 'member' | 'viewer';
const ranks: readonly Who[] = ['viewer', 'member', 'admin', 'owner'];

suite('members', { timeout: 240_000 }, () => {
  let platform: TestPlatform;
  let client: OrganizationClient;
  let people: Readonly<Record<Who | 'spare', Person>>;
  before(async () => {
    platform = await startPlatform(undefined, { gateways: 1, daemons: 1 });
    client = organizationClient(platform);
    const [owner, admin, member_, viewer, spare] = await Promise.all(['owner', 'admin', 'member', 'viewer', 'spare'].map((name) => platform.signUp(`${name}@example.com`)));
    assert.ok(owner !== undefined && admin !== undefined && member_ !== undefined && viewer !== undefined && spare !== undefined);
    people = { owner, admin, member: member_, viewer, spare };
  });
  after(async () => platform.stop());

  /** A new organization with one of each role. */
  const staffed = async (): Promise<string> => {
    const { id } = await client.create(people.owner);
    for (const role of ['admin', 'member', 'viewer'] as const) await client.join(id, people.owner, people[role], role);
    return id;
  };
  /** Everything an owner sees, to compare. */
  const all = async (orgId: string): Promise<string> =>
    (await Promise.all(['', '/members', '/invitations', '/api-keys'].map((path) => client.call('GET', path, people.owner, { orgId })))).map(({ body }) => body).join('\n');

  test('members - one address is invited so often a day, by all organizations together; another one still is, and who may not invite uses nothing up', async () => {
    const [one, two] = await Promise.all([client.create(people.owner), client.create(people.admin)]);
    const email = 'much-wanted@example.com';
    assert.equal((await client.call('POST', '/members', people.viewer, { orgId: one.id, email })).status, 404);
    for (let i = 0; i < limits.invitationsOfAddressPerDayMax; i++) {
      const [org, who] = i % 2 === 0 ? [one, people.owner] : [two, people.admin];
      assert.equal((await client.call('POST', '/members', who, { orgId: org.id, email })).status, 200, `invitation ${i + 1}`);
    }
    const refused = await client.call('POST', '/members', people.owner, { orgId: one.id, email });
    assert.equal(refusal(refused), '429 rate_limited');
    assert.ok(Number(refused.headers['retry-after']) >= 1);
    assert.equal((await client.call('POST', '/members', people.owner, { orgId: one.id, email: 'other@example.com' })).status, 200);
  });

  test('members - every route asks for its role: below it 403, and nothing has changed; from it on it is done [RBAC-002] [RBAC-003] [RBAC-009] [RBAC-010] [RBAC-011] [RBAC-012] [RBAC-015] [RBAC-016] [ORG-005] [ORG-024] [ORG-026] [ORG-031] [ORG-040] [ORG-046] [ORG-050] [ORG-058] [ORG-061] [KEY-005]', async () => {
    const orgId = await staffed();
    const email = { spare: people.spare.email };
    let fresh = 0;
    const routes: readonly (readonly [least: Who, method: Method, path: string, fields: () => Promise<object>])[] = [
      ['viewer', 'GET', '', async () => ({})],
      ['viewer', 'GET', '/members', async () => ({})],
      ['viewer', 'GET', '/audit', async () => ({})],
      ['admin', 'GET', '/audit', async () => ({ format: 'csv' })],
      ['admin', 'GET', '/audit', async () => ({ format: 'jsonl' })],
      ['admin', 'PATCH', '', async () => ({ name: `Name ${fresh++}` })],
      ['owner', 'PATCH', '', async () => ({ settings: { retentionDays: 30 + fresh++ } })],
      ['admin', 'POST', '/members', async () => ({ email: `invited-${fresh++}@example.com` })],
      ['admin', 'GET', '/invitations', async () => ({})],
      ['admin', 'DELETE', '/invitations', async () => ({ invitationId: (await client.invite(orgId, people.owner, email.spare)).id })],
      ['admin', 'PATCH', '/members', async () => ({ userId: people.viewer.userId, role: 'viewer' })],
      ['admin', 'GET', '/api-keys', async () => ({})],
      ['admin', 'POST', '/api-keys', async () => ({ name: 'k', scopes: ['org.read'] })],
      ['admin', 'DELETE', '/api-keys', async () => ({ id: (await client.key(orgId, people.owner)).id })],
      ['admin', 'GET', '/webhook', async () => ({})],
      ['owner', 'POST', '/transfer', async () => ({ userId: people.member.userId })],
      ['owner', 'DELETE', '', async () => ({})],
    ];
    const mails = (await platform.outbox.all()).length;
    for (const [least, method, path, make] of routes) {
      const what = { ...await make(), orgId };
      const before = await all(orgId);
      for (const who of ranks.filter((rank) => ranks.indexOf(rank) < ranks.indexOf(least))) {
        assert.equal(refusal(await client.call(method, path, people[who], what)), '403 forbidden', `${who} ${method} ${path}`);
      }
      assert.equal(await all(orgId), before, `${method} ${path}`);
      // Those that hand the ownership on or end it are tried by tests of their own.
      if (path === '/transfer' || (method === 'DELETE' && path === '')) continue;
      for (const who of ranks.filter((rank) => ranks.indexOf(rank) >= ranks.indexOf(least))) {
        const reply = await client.call(method, path, people[who], { ...what, ...await make() });
        assert.ok([200, 201].includes(reply.status), `${who} ${method} ${path}: ${reply.body}`);
        if (path === '/api-keys' && method === 'POST') await client.call('DELETE', '/api-keys', people.owner, { orgId, id: answered(reply, 201, createdKey).id });
      }
    }
    const invited = (await platform.outbox.all()).slice(mails).map(({ to }) => to).filter((to) => to.startsWith('invited-'));
    assert.ok(invited.length <= 2, 'the refused mailed nobody');
  });

  test('members - the list says who they are and since when; the changed one is the answer [ORG-031] [ORG-045] [RBAC-019]', async () => {
    const orgId = await staffed();
    const list = answered(await client.call('GET', '/members', people.viewer, { orgId }), 200, z.strictObject({ members: z.array(member) })).members;
    assert.deepEqual(list.map(({ userId, email, role }) => [userId, email, role]), ranks.toReversed().map((role) => [people[role].userId, people[role].email, role]));
    // With the token of before: it is the membership of now that counts.
    assert.equal(refusal(await client.call('PATCH', '', people.member, { orgId, name: 'No' })), '403 forbidden');
    const changed = answered(await client.call('PATCH', '/members', people.admin, { orgId, userId: people.member.userId, role: 'admin' }), 200, member);
    assert.deepEqual(changed, { ...list.find(({ userId }) => userId === people.member.userId), role: 'admin' });
    assert.equal((await client.call('PATCH', '', people.member, { orgId, name: 'Yes' })).status, 200);
  });

  test('members - a role or a member that does not exist is refused [ORG-048] [ORG-049] [RBAC-001]', async () => {
    const orgId = await staffed();
    const userId = people.viewer.userId;
    for (const body of [{ orgId, userId }, { orgId, role: 'viewer' }, { userId, role: 'viewer' }, { orgId, userId, role: 'root' }, { orgId, userId, role: 'OWNER' }, { orgId, userId, role: ['admin'] }, { orgId, userId, role: 'viewer', x: 1 }]) {
      assert.equal(refusal(await client.call('PATCH', '/members', people.owner, body)), '400 validation_error', JSON.stringify(body));
    }
    for (const unknown of [people.spare.userId, 'usr_x', '../x', 'usr_01jd0000000000000000000000']) {
      assert.equal(refusal(await client.call('PATCH', '/members', people.owner, { orgId, userId: unknown, role: 'viewer' })), '404 not_found');
      assert.equal(refusal(await client.call('DELETE', '/members', people.owner, { orgId, userId: unknown })), '404 not_found');
      assert.equal(refusal(await client.call('POST', '/transfer', people.owner, { orgId, userId: unknown })), '404 not_found');
    }
  });

  test('members - nobody climbs: not by making themselves owner, admin, or a key, on any member route [RBAC-018] [ORG-047] [ORG-051]', async () => {
    const orgId = await staffed();
    const { owner, admin, member: plain, viewer } = people;
    const before = await all(orgId);
    const tries: readonly [Person, Method, string, object][] = [
      [admin, 'PATCH', '/members', { userId: admin.userId, role: 'owner' }], [admin, 'PATCH', '/members', { userId: plain.userId, role: 'owner' }],
      [admin, 'PATCH', '/members', { userId: owner.userId, role: 'admin' }], [admin, 'DELETE', '/members', { userId: owner.userId }], [admin, 'DELETE', '/members', { userId: admin.userId }],
      [plain, 'PATCH', '/members', { userId: plain.userId, role: 'admin' }], [plain, 'DELETE', '/members', { userId: plain.userId }], [viewer, 'PATCH', '/members', { userId: viewer.userId, role: 'member' }],
      [viewer, 'POST', '/members', { email: 'mine@example.com', role: 'admin' }], [plain, 'POST', '/api-keys', { name: 'k', scopes: ['*'] }],
    ];
    for (const [who, method, path, fields] of tries) assert.equal(refusal(await client.call(method, path, who, { orgId, ...fields })), '403 forbidden', `${who.email} ${method} ${path}`);
    assert.equal(await all(orgId), before);
    assert.equal(refusal(await client.call('POST', '/members', owner, { orgId, email: 'x@example.com', role: 'owner' })), '400 validation_error');
  });

  test('members - two owners who remove each other at once leave one [ORG-054] [ORG-055]', async () => {
    const orgId = await staffed();
    const { owner, admin } = people;
    assert.equal(refusal(await client.call('DELETE', '/members', owner, { orgId, userId: owner.userId })), '400 validation_error');
    assert.equal(refusal(await client.call('PATCH', '/members', owner, { orgId, userId: owner.userId, role: 'viewer' })), '400 validation_error');
    assert.equal(refusal(await client.call('POST', '/leave', owner, { orgId })), '400 validation_error');
    assert.equal((await client.call('PATCH', '/members', owner, { orgId, userId: admin.userId, role: 'owner' })).status, 200);
    const both = await Promise.all([client.call('DELETE', '/members', owner, { orgId, userId: admin.userId }), client.call('DELETE', '/members', admin, { orgId, userId: owner.userId })]);
    assert.deepEqual(both.map(({ status }) => status).toSorted((a, b) => a - b), [200, 404]);
  });

  test('members - a transfer makes the member owner and the former one admin [ORG-058]', async () => {
    const orgId = await staffed();
    const made = answered(await client.call('POST', '/transfer', people.owner, { orgId, userId: people.member.userId }), 200, member);
    assert.equal(made.role, 'owner');
    assert.equal(await client.roleOf(orgId, people.viewer, people.owner.userId), 'admin');
    assert.equal(refusal(await client.call('DELETE', '', people.owner, { orgId })), '403 forbidden');
  });

  test('members - a removed one is out at the next request, with the token that names the organization [ORG-050] [ORG-052] [ORG-053]', async () => {
    const orgId = await staffed();
    const own = await client.create(people.member);
    const again = await platform.signUp(people.member.email);
    const claims = z.object({ orgs: z.array(z.object({ id: z.string() })) }).parse(JSON.parse(Buffer.from(again.accessToken.split('.')[1] ?? '', 'base64url').toString('utf8')));
    assert.ok(claims.orgs.some(({ id }) => id === orgId), 'the token names it');
    assert.equal((await client.call('GET', '', again, { orgId })).status, 200);
    assert.equal((await client.call('DELETE', '/members', people.admin, { orgId, userId: people.member.userId })).status, 200);
    for (const path of ['', '/members', '/audit']) assert.equal(refusal(await client.call('GET', path, again, { orgId })), '404 not_found', path);
    assert.equal((await client.call('GET', '', again, { orgId: own.id })).status, 200, 'their own is as it was');
  });

  test('members - a role counts in its own organization only [RBAC-004]', async () => {
    const { id: a } = await client.create(people.owner);
    const { id: b } = await client.create(people.spare);
    assert.equal(refusal(await client.call('GET', '', people.owner, { orgId: b })), '404 not_found');
    assert.equal(refusal(await client.call('DELETE', '', people.spare, { orgId: a })), '404 not_found');
    assert.equal(refusal(await client.call('PATCH', '/members', people.owner, { orgId: b, userId: people.spare.userId, role: 'viewer' })), '404 not_found');
  });

  test('invitations - the answer, the default role, and what is refused [ORG-033] [ORG-034] [ORG-035] [ORG-036] [ORG-037] [ORG-039]', async () => {
    const { id: orgId } = await client.create(people.owner);
    const ask = (fields: object): Promise<ApiReply> => client.call('POST', '/members', people.owner, { orgId, ...fields });
    const begun = Date.now();
    const { invitation: made } = answered(await ask({ email: '  Someone@Example.COM ' }), 200, inviteAnswer);
    assert.deepEqual([made.email, made.role, made.status], ['someone@example.com', 'member', 'pending']);
    const days = (Date.parse(made.expiresAt) - begun) / 86_400_000;
    assert.ok(days >= 14 && days < 14.01, `${days}`);
    for (const role of ['admin', 'member', 'viewer']) assert.equal(answered(await ask({ email: `${role}-1@example.com`, role }), 200, inviteAnswer).invitation.role, role);
    const bad = [{}, { email: '' }, { email: 'no-at' }, { email: 'a@b' }, { email: 'a@@example.com' }, { email: 'a b@example.com' }, { email: 'ä@example.com' }, { email: 'а@example.com' }, { email: 'a@example.com\nBcc: b@example.com' },
      { email: 'a@example.com,b@example.com' }, { email: ['a@example.com'] }, { email: `${'x'.repeat(65)}@example.com` }, { email: 'a@example.com', role: 'root' }, { email: 'a@example.com', role: null }, { email: 'a@example.com', name: 'x' }];
    for (const fields of bad) assert.equal(refusal(await ask(fields)), '400 validation_error', JSON.stringify(fields));
    assert.equal(refusal(await client.call('POST', '/members', people.owner, { email: 'a@example.com' })), '400 validation_error');
    assert.equal(refusal(await ask({ email: people.owner.email })), '409 conflict');
  });

  test('invitations - the link shows what it is for, and joins the invited person only, once [ORG-038] [ORG-041] [ORG-042] [ORG-044]', async () => {
    const { id: orgId, name } = await client.create(people.owner);
    const { id, token } = await client.invite(orgId, people.owner, people.spare.email, 'viewer');
    const shown = await platform.api('POST', '/api/organization/invitations/show', { json: { token } });
    assert.deepEqual(z.object({ organizationName: z.string(), invitation: z.object({ id: z.string(), email: z.string(), role: z.string() }) }).parse(shown.json), { organizationName: name, invitation: { id, email: people.spare.email, role: 'viewer' } });
    const accept = (who: Person, text: string): Promise<ApiReply> => client.call('POST', '/invitations/accept', who, { token: text });
    const [head = '', middle = '', proof = ''] = token.split('.');
    const flipped = `${proof.slice(0, -1)}${proof.endsWith('A') ? 'B' : 'A'}`;
    const other = await client.create(people.owner);
    for (const forged of ['x', `${head}.${middle}`, `${head}.${middle}.${flipped}`, `${other.id}.${middle}.${proof}`, `${token}.`, `${token}=`, token.toUpperCase(), `${head}.inv_01jd0000000000000000000000.${proof}`]) {
      assert.equal(refusal(await accept(people.spare, forged)), '404 not_found', forged);
      assert.equal(refusal(await platform.api('POST', '/api/organization/invitations/show', { json: { token: forged } })), '404 not_found');
    }
    assert.equal(refusal(await accept(people.member, token)), '403 forbidden', 'not theirs');
    assert.equal(refusal(await accept(people.owner, token)), '409 conflict', 'a member already');
    const joined = answered(await accept(people.spare, token), 200, z.strictObject({ organization: organizationListed }));
    assert.deepEqual([joined.organization.id, joined.organization.role, joined.organization.memberCount], [orgId, 'viewer', 2]);
    assert.equal(refusal(await accept(people.spare, token)), '409 conflict');
    const { invitations } = z.object({ invitations: z.array(invitation) }).parse((await client.call('GET', '/invitations', people.owner, { orgId })).json);
    assert.deepEqual(invitations.map((one) => [one.id, one.status]), [[id, 'accepted']]);
    assert.equal((await client.call('DELETE', '/members', people.owner, { orgId, userId: people.spare.userId })).status, 200);
    assert.equal(refusal(await accept(people.spare, token)), '409 conflict', 'used: a removed person cannot come back by it');
  });

  test('invitations - a revoked one is revoked for good; unknown ids are 404 [ORG-060] [ORG-061]', async () => {
    const { id: orgId } = await client.create(people.owner);
    const { id, token } = await client.invite(orgId, people.owner, people.spare.email);
    const revoke = (invitationId: string): Promise<ApiReply> => client.call('DELETE', '/invitations', people.owner, { orgId, invitationId });
    assert.equal(answered(await revoke(id), 200, inviteAnswer).invitation.status, 'revoked');
    assert.equal(refusal(await client.call('POST', '/invitations/accept', people.spare, { token })), '409 conflict');
    for (const unknown of ['inv_01jd0000000000000000000000', 'x', `${id} `]) assert.equal(refusal(await revoke(unknown)), '404 not_found');
    assert.equal(refusal(await client.call('DELETE', '/invitations', people.owner, { orgId })), '400 validation_error');
  });

  test('invitations - a full organization takes nobody in, whoever holds an invitation [ORG-056]', async () => {
    const orgId = await staffed();
    const { token } = await client.invite(orgId, people.owner, people.spare.email);
    const fifth = await platform.signUp('fifth@example.com');
    await client.join(orgId, people.owner, fifth, 'viewer');
    const full = await client.call('POST', '/invitations/accept', people.spare, { token });
    assert.deepEqual([full.status, z.object({ error: z.object({ code: z.string(), details: z.unknown() }) }).parse(full.json).error], [403, { code: 'plan_limit', details: { limit: 5, upgradeUrl: '/pricing' } }]);
    assert.equal(refusal(await client.call('POST', '/members', people.owner, { orgId, email: 'sixth@example.com' })), '403 plan_limit');
    assert.equal((await client.read(orgId, people.owner)).memberCount, 5);
  });
});
