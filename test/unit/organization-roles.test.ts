/** Who may do what in an organization: the whole matrix, against tables written down here anew from the decisions. */
import assert from 'node:assert/strict';
import test from 'node:test';
import { keyScopes, permissions, roles, type Permission, type Role } from '../../contracts/permissions.ts';
import { organizationBodies } from '../../contracts/organization.ts';
import { asKey, organizationActor, person, type OrganizationActor } from '../harness/organization-actor.ts';
import { codeOf } from '../harness/memory-host.ts';

/** Decisions, Organizations: what each role has beyond the one below. */
const added: Readonly<Record<Role, readonly string[]>> = {
  viewer: ['org.read', 'member.list', 'chat.read', 'usage.read', 'audit.read'],
  member: ['chat.create', 'prompt.create', 'prompt.update', 'document.create', 'document.update'],
  admin: [
    'org.update', 'member.invite', 'member.remove', 'member.update_role', 'api_key.create', 'api_key.revoke', 'audit.export', 'instance.restart',
    'billing.read', 'billing.checkout', 'billing.portal',
  ],
  owner: ['plan.change', 'org.delete', 'org.transfer', 'instance.provision', 'instance.deprovision', 'member.remove_admin', 'retention.configure'],
};
const order: readonly Role[] = ['viewer', 'member', 'admin', 'owner'];
const rankOf = (role: Role): number => order.indexOf(role);
const has = (role: Role, permission: string): boolean => order.slice(0, rankOf(role) + 1).some((lower) => added[lower].includes(permission));

const people = { admin: 'admin', member: 'member', viewer: 'viewer' } as const;
const founded = async (): Promise<OrganizationActor> => {
  const actor = organizationActor();
  await actor.found(people);
  return actor;
};

test('roles - there are four, in this order, and the table of permissions is the decisions\' [RBAC-001] [RBAC-008]', () => {
  assert.deepEqual([...roles], [...order]);
  assert.deepEqual(Object.keys(permissions).toSorted(), Object.values(added).flat().toSorted());
  for (const role of ['Owner', 'superadmin', 'guest', '', 'root']) {
    assert.ok(!organizationBodies.updateMember.safeParse({ orgId: 'o', userId: 'u', role }).success, role);
  }
});

test('roles - each role has its permissions and those of the lower ones, and no other [RBAC-002] [RBAC-003] [RBAC-005] [RBAC-006] [RBAC-007] [RBAC-009] [RBAC-010] [RBAC-011] [RBAC-012] [RBAC-013] [RBAC-014] [RBAC-015] [RBAC-016] [RBAC-017]', async () => {
  const actor = await founded();
  for (const role of order) {
    for (const permission of Object.keys(permissions)) {
      const asked = actor.host.ask({ org: 'x', type: 'organization', key: 'x' }, 'authorise', { permission, by: person(role) });
      assert.equal(await codeOf(asked), 'not_found');
      const outcome = await actor.ask('authorise', { permission, by: person(role) }).then((answer) => answer.role, (error: { code: string }) => error.code);
      assert.equal(outcome, has(role, permission) ? role : 'forbidden', `${role} ${permission}`);
    }
  }
  assert.equal(await actor.refused('authorise', { permission: 'no.such', by: person('owner') }), 'forbidden');
  assert.equal(await actor.refused('authorise', { permission: 'toString', by: person('owner') }), 'forbidden');
  assert.equal(await actor.refused('authorise', { permission: 'org.read', by: person('stranger') }), 'not_found');
});

test('roles - an API key has what its scopes say of the admin\'s permissions, `*` all of them, never an owner\'s [KEY-012] [KEY-013] [KEY-008]', async () => {
  const actor = await founded();
  const adminLevel = Object.keys(permissions).filter((permission) => has('admin', permission));
  assert.deepEqual([...keyScopes].toSorted(), adminLevel.toSorted());
  for (const scope of ['*', ...adminLevel] as const) {
    const id = `key_${scope}`;
    await actor.ask('create_key', { id, name: scope, scopes: [scope as Permission], key_prefix: 'p', key_sha256: scope, by: person('owner') });
    for (const permission of Object.keys(permissions)) {
      // What the caller claims counts for nothing: the scopes are the organization's own record.
      const outcome = await actor.ask('authorise', { permission, by: asKey(id, ['*', 'org.delete']) }).then(({ role }) => role, (error: { code: string }) => error.code);
      const passes = scope === '*' ? adminLevel.includes(permission) : permission === scope;
      assert.equal(outcome, passes ? null : 'forbidden', `${scope} ${permission}`);
    }
    await actor.ask('revoke_key', { key_id: id, by: person('owner') });
    assert.equal(await actor.refused('authorise', { permission: 'org.read', by: asKey(id, ['*']) }), 'unauthorized');
  }
  for (const scopes of [['org.delete'], ['*', 'plan.change'], ['nonsense'], [], 'org.read']) {
    assert.ok(!organizationBodies.createKey.safeParse({ orgId: 'o', name: 'n', scopes }).success, JSON.stringify(scopes));
  }
});

test('roles - a key makes no key that may more than itself, and a member\'s key is its maker\'s maker\'s [KEY-012] [KEY-016]', async () => {
  const actor = await founded();
  const make = (id: string, scopes: Permission[] | ['*'], by = person('owner')): Promise<{ createdBy: string }> =>
    actor.ask('create_key', { id, name: id, scopes, key_prefix: 'p', key_sha256: id, by });
  await make('key_a', ['api_key.create', 'org.read']);
  const by = asKey('key_a', ['*']);
  assert.equal(await codeOf(make('key_b', ['*'], by)), 'forbidden');
  assert.equal(await codeOf(make('key_b', ['org.read', 'org.update'], by)), 'forbidden');
  assert.equal((await make('key_b', ['org.read'], by)).createdBy, 'usr_owner');
});

test('roles - a key with a part of the scopes makes nobody admin, by invitation or by role, who would then have the rest; one with all of them does [RBAC-018] [KEY-012]', async () => {
  const actor = await founded();
  const make = (id: string, scopes: Permission[] | ['*']): Promise<unknown> => actor.ask('create_key', { id, name: id, scopes, key_prefix: 'p', key_sha256: id, by: person('owner') });
  await actor.ask('set_plan', { plan: 'team', reason: 'test' });
  await make('key_part', [...keyScopes].filter((scope) => scope !== 'org.update'));
  await make('key_all', [...keyScopes]);
  await make('key_star', ['*']);
  const invite = (id: string, key: string, role: Role): Promise<unknown> => actor.ask('invite', { id, email: `${id}@example.com`, role, by: asKey(key, ['*']) });
  const raise = (key: string, role: Role): Promise<unknown> => actor.ask('update_member', { user_id: 'usr_viewer', role, by: asKey(key, ['*']) });
  assert.equal(await codeOf(invite('inv_a', 'key_part', 'admin')), 'forbidden');
  assert.equal(await codeOf(raise('key_part', 'admin')), 'forbidden');
  await invite('inv_b', 'key_part', 'member');
  await raise('key_part', 'member');
  for (const key of ['key_all', 'key_star']) {
    await invite(`inv_${key}`, key, 'admin');
    assert.equal(await codeOf(raise(key, 'owner')), 'forbidden');
  }
  await raise('key_all', 'admin');
});

/** What becomes of `actor` giving `target` the role `to`, from the rules alone. */
const expected = (actor: Role, target: Role, to: Role): string => {
  if (rankOf(actor) < rankOf('admin')) return 'forbidden';
  if (rankOf(to) > rankOf(actor)) return 'forbidden';
  if (target === to) return to;
  const takesAdmin = rankOf(target) >= rankOf('admin') && rankOf(to) < rankOf(target);
  return takesAdmin && actor !== 'owner' ? 'forbidden' : to;
};

test('roles - every change of every role by every role ends as the rules say, and a refused one changes nothing [RBAC-018] [ORG-045] [ORG-046] [ORG-047]', async () => {
  for (const by of order) {
    for (const target of order) {
      for (const to of order) {
        const actor = organizationActor();
        // A second owner, so that the last-owner rule is not met here.
        await actor.found({ admin: 'admin', member: 'member', viewer: 'viewer', target: 'viewer' });
        if (target !== 'viewer') await actor.ask('update_member', { user_id: 'usr_target', role: target, by: person('owner') });
        const before = actor.events().length;
        const outcome = await actor.ask('update_member', { user_id: 'usr_target', role: to, by: person(by) }).then(({ role }) => role, (error: { code: string }) => error.code);
        assert.equal(outcome, expected(by, target, to), `${by} makes ${target} ${to}`);
        const { members } = await actor.ask('members', { by: person('owner') });
        const role = members.find(({ userId }) => userId === 'usr_target')?.role;
        assert.equal(role, outcome === 'forbidden' ? target : to);
        if (outcome === 'forbidden' || target === to) assert.equal(actor.events().length, before);
      }
    }
  }
});

test('roles - every removal by every role ends as the rules say [ORG-050] [ORG-051]', async () => {
  for (const by of order) {
    for (const target of order) {
      const actor = organizationActor();
      await actor.found({ admin: 'admin', member: 'member', viewer: 'viewer', target: 'viewer' });
      if (target !== 'viewer') await actor.ask('update_member', { user_id: 'usr_target', role: target, by: person('owner') });
      const outcome = await actor.ask('remove_member', { user_id: 'usr_target', by: person(by) }).then(() => 'removed', (error: { code: string }) => error.code);
      const allowed = by === 'owner' || (by === 'admin' && rankOf(target) < rankOf('admin'));
      assert.equal(outcome, allowed ? 'removed' : 'forbidden', `${by} removes ${target}`);
      assert.equal(await actor.ask('read', { by: person('target') }).then(() => 'member', (error: { code: string }) => error.code), allowed ? 'not_found' : 'member');
    }
  }
});

test('roles - the last owner can be neither removed nor demoted, nor leave; of two who remove each other one stays [ORG-054] [ORG-055]', async () => {
  const actor = await founded();
  const owner = { user_id: 'usr_owner', by: person('owner') };
  assert.equal(await actor.refused('remove_member', owner), 'validation_error');
  for (const role of ['admin', 'member', 'viewer'] as const) assert.equal(await actor.refused('update_member', { ...owner, role }), 'validation_error');
  assert.equal(await actor.refused('leave', { by: person('owner') }), 'validation_error');
  assert.equal(await actor.refused('remove_member', { ...owner, by: person('admin') }), 'forbidden');
  await actor.ask('update_member', { user_id: 'usr_admin', role: 'owner', by: person('owner') });
  const both = await Promise.allSettled([
    actor.ask('remove_member', { user_id: 'usr_admin', by: person('owner') }), actor.ask('remove_member', { user_id: 'usr_owner', by: person('admin') }),
  ]);
  assert.deepEqual(both.map(({ status }) => status), ['fulfilled', 'rejected']);
  const { members } = await actor.ask('members', { by: person('owner') });
  assert.deepEqual(members.filter(({ role }) => role === 'owner').map(({ userId }) => userId), ['usr_owner']);
});

test('roles - a transfer makes the member owner and the owner admin, and is the owner\'s alone [ORG-058] [ORG-059]', async () => {
  const actor = await founded();
  for (const who of ['admin', 'member', 'viewer']) assert.equal(await actor.refused('transfer', { user_id: 'usr_member', by: person(who) }), 'forbidden');
  assert.equal(await actor.refused('transfer', { user_id: 'usr_nobody', by: person('owner') }), 'not_found');
  assert.equal(await actor.refused('transfer', { user_id: 'usr_owner', by: person('owner') }), 'validation_error');
  assert.equal((await actor.ask('transfer', { user_id: 'usr_viewer', by: person('owner') })).role, 'owner');
  const { members } = await actor.ask('members', { by: person('viewer') });
  assert.deepEqual(Object.fromEntries(members.map(({ userId, role }) => [userId, role])), { usr_owner: 'admin', usr_admin: 'admin', usr_member: 'member', usr_viewer: 'owner' });
  assert.equal(await actor.refused('transfer', { user_id: 'usr_owner', by: person('owner') }), 'forbidden');
});
