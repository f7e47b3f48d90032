/** The organization's actor: invitations and their mails, keys, plans, webhook, deletion and erasure, over memory stores and a moved clock. */
import assert from 'node:assert/strict';
import test from 'node:test';
import { z } from 'zod';
import { nameAddress } from '../../actors/name/address.ts';
import { webhookAddress } from '../../actors/organization/notify.ts';
import { limits } from '../../contracts/limits.ts';
import { nameCommands } from '../../contracts/name.ts';
import { asKey, orgId, organizationActor, person, type OrganizationActor } from '../harness/organization-actor.ts';
import { codeOf, domainOf } from '../harness/memory-host.ts';

const by = person('owner');
const invite = (actor: OrganizationActor, id: string, email: string, role: 'admin' | 'member' | 'viewer' = 'member') => actor.ask('invite', { id, email, role, by });
const statuses = async (actor: OrganizationActor): Promise<Record<string, string>> =>
  Object.fromEntries((await actor.ask('invitations', { by })).invitations.map(({ id, status }) => [id, status]));

test('organization - an invitation is mailed once, with its link, and lives 14 days [ORG-036] [ORG-037] [ORG-038]', async () => {
  const actor = organizationActor();
  await actor.found();
  const { invitation } = await invite(actor, 'inv_a', 'a@example.com', 'viewer');
  assert.deepEqual(invitation, { id: 'inv_a', email: 'a@example.com', role: 'viewer', status: 'pending', expiresAt: new Date(actor.cluster.clock.now() + 14 * 86_400_000).toISOString() });
  await actor.quiet();
  assert.deepEqual(actor.mails.map(({ id, to }) => ({ id, to })), [{ id: `${orgId}-inv_a`, to: 'a@example.com' }]);
  assert.match(actor.mails[0]?.text ?? '', /https:\/\/troupe\.example\/invite\?token=org_01jd0000000000000000000000\.inv_a\.secret/);
  assert.ok(!actor.events().join('\n').includes('.secret'), 'the journal holds no token');
  await actor.cluster.clock.advance(60_000);
  assert.equal(actor.mails.length, 1);
});

test('organization - a mail that fails is tried again under the same id until it is sent; a refused one is given up [ORG-038]', async () => {
  const actor = organizationActor();
  await actor.found();
  actor.mailFails = 'mail_unavailable';
  await invite(actor, 'inv_a', 'a@example.com');
  await actor.cluster.clock.advance(60_000);
  assert.equal(actor.mails.length, 0);
  actor.mailFails = undefined;
  await actor.cluster.clock.advance(600_000);
  assert.deepEqual(actor.mails.map(({ id }) => id), [`${orgId}-inv_a`]);
  actor.mailFails = 'mail_refused';
  await invite(actor, 'inv_b', 'b@example.com');
  await actor.quiet();
  assert.equal(actor.events().filter((event) => event === 'MailGivenUp {"mail":"inv_b","code":"mail_refused"}').length, 1);
  actor.mailFails = 'mail_unavailable';
  await invite(actor, 'inv_c', 'c@example.com');
  await actor.cluster.clock.advance(limits.organizationMailForMs + limits.organizationMailRetryMaxMs);
  assert.equal(actor.events().filter((event) => event === 'MailGivenUp {"mail":"inv_c","code":"mail_unavailable"}').length, 1, 'after a day');
  assert.equal((await actor.cluster.stores.reminders.list('reminder.>')).length, 1, 'what stays is the end of the invitations');
});

test('organization - an invitation ends when whoever made it may not make it any more, and its mail is not sent [ORG-043] [ORG-044]', async () => {
  const actor = organizationActor();
  await actor.found({ removed: 'admin', demoted: 'admin', gone: 'admin', stays: 'admin' });
  await actor.ask('set_plan', { plan: 'team', reason: 'test' });
  await actor.ask('create_key', { id: 'key_a', name: 'k', scopes: ['*'], key_prefix: 'p', key_sha256: 'h', by });
  await actor.quiet();
  const mailed = actor.mails.length;
  actor.mailFails = 'mail_unavailable';
  for (const who of ['removed', 'demoted', 'gone', 'stays']) await actor.ask('invite', { id: `inv_of_${who}`, email: `of-${who}@example.com`, role: 'admin', by: person(who) });
  await actor.ask('invite', { id: 'inv_of_key', email: 'of-key@example.com', role: 'viewer', by: asKey('key_a', ['*']) });
  await actor.quiet();

  const loses: readonly (readonly [who: string, how: () => Promise<unknown>])[] = [
    ['removed', () => actor.ask('remove_member', { user_id: person('removed').actor, by })],
    ['demoted', () => actor.ask('update_member', { user_id: person('demoted').actor, role: 'member', by })],
    ['gone', () => actor.ask('leave', { by: person('gone') })],
    ['key', () => actor.ask('revoke_key', { key_id: 'key_a', by })],
  ];
  for (const [who, how] of loses) {
    assert.equal((await statuses(actor))[`inv_of_${who}`], 'pending', who);
    await how();
    assert.equal((await statuses(actor))[`inv_of_${who}`], 'revoked', who);
  }
  assert.equal((await statuses(actor))['inv_of_stays'], 'pending');
  for (const who of ['removed', 'demoted', 'gone', 'key']) {
    assert.equal(await actor.refused('accept', { invitation_id: `inv_of_${who}`, by: person(`of-${who}`) }), 'conflict', who);
  }
  const revoked = actor.events().filter((event) => event.startsWith('InvitationRevoked'));
  assert.ok(revoked.length === 4 && revoked.every((event) => event.includes('"orphaned":true')), revoked.join('\n'));
  actor.mailFails = undefined;
  await actor.cluster.clock.advance(600_000);
  assert.deepEqual(actor.mails.slice(mailed).map(({ to }) => to), ['of-stays@example.com']);
  await actor.ask('accept', { invitation_id: 'inv_of_stays', by: person('of-stays') });
});

test('organization - a mail under way when its host dies is sent by the next one [ORG-038]', async () => {
  const first = organizationActor();
  await first.found();
  first.mailFails = 'mail_unavailable';
  await invite(first, 'inv_a', 'a@example.com');
  await first.quiet();
  const second = first.restart();
  await second.cluster.clock.advance(limits.organizationWakeMs * 2);
  assert.deepEqual(second.mails.map(({ to }) => to), ['a@example.com']);
});

test('organization - after 14 days it is expired, to the millisecond, and is accepted no more [ORG-043] [ORG-044]', async () => {
  const actor = organizationActor();
  await actor.found();
  await invite(actor, 'inv_a', 'a@example.com');
  await invite(actor, 'inv_b', 'b@example.com');
  actor.cluster.clock.jump(limits.invitationTtlMs - 1);
  await actor.ask('accept', { invitation_id: 'inv_a', by: person('a') });
  actor.cluster.clock.jump(1);
  assert.deepEqual(await statuses(actor), { inv_a: 'accepted', inv_b: 'expired' }, 'also before the reminder');
  assert.equal(await actor.refused('accept', { invitation_id: 'inv_b', by: person('b') }), 'conflict');
  await actor.cluster.clock.advance(1_000);
  assert.ok(actor.events().includes('InvitationExpired {"id":"inv_b"}'));
  assert.equal((await actor.ask('members', { by })).members.length, 2);
});

test('organization - an invitation is for one address, once; another person, a key, a second time and an unknown one are refused [ORG-041] [ORG-042] [ORG-044]', async () => {
  const actor = organizationActor();
  await actor.found();
  await invite(actor, 'inv_a', 'a@example.com', 'viewer');
  assert.equal(await actor.refused('accept', { invitation_id: 'inv_a', by: person('b') }), 'forbidden');
  assert.equal(await actor.refused('accept', { invitation_id: 'inv_a', by: asKey('key_x', ['*']) }), 'forbidden');
  assert.equal(await actor.refused('accept', { invitation_id: 'inv_no', by: person('a') }), 'not_found');
  assert.equal(await actor.refused('accept', { invitation_id: 'inv_a', by }), 'conflict', 'a member already');
  const both = await Promise.allSettled([actor.ask('accept', { invitation_id: 'inv_a', by: person('a') }), actor.ask('accept', { invitation_id: 'inv_a', by: person('a') })]);
  assert.deepEqual(both.map(({ status }) => status), ['fulfilled', 'rejected']);
  assert.deepEqual((await actor.ask('members', { by })).members.map(({ userId, role }) => [userId, role]), [['usr_owner', 'owner'], ['usr_a', 'viewer']]);
  await actor.ask('remove_member', { user_id: 'usr_a', by });
  assert.equal(await actor.refused('accept', { invitation_id: 'inv_a', by: person('a') }), 'conflict', 'used');
});

test('organization - one address has one pending invitation; a revoked one stops working and is not mailed [ORG-060] [ORG-061]', async () => {
  const actor = organizationActor();
  await actor.found({ viewer: 'viewer' });
  actor.mailFails = 'mail_unavailable';
  await invite(actor, 'inv_a', 'a@example.com');
  await invite(actor, 'inv_b', 'a@example.com');
  assert.deepEqual(await statuses(actor), { inv_viewer: 'accepted', inv_a: 'revoked', inv_b: 'pending' });
  assert.equal(await actor.refused('revoke_invitation', { invitation_id: 'inv_b', by: person('viewer') }), 'forbidden');
  assert.equal(await actor.refused('revoke_invitation', { invitation_id: 'inv_none', by }), 'not_found');
  assert.equal(await actor.refused('revoke_invitation', { invitation_id: 'inv_viewer', by }), 'conflict');
  assert.equal((await actor.ask('revoke_invitation', { invitation_id: 'inv_b', by })).invitation.status, 'revoked');
  assert.equal((await actor.ask('revoke_invitation', { invitation_id: 'inv_b', by })).invitation.status, 'revoked', 'again');
  for (const id of ['inv_a', 'inv_b']) assert.equal(await actor.refused('accept', { invitation_id: id, by: person('a') }), 'conflict');
  actor.mailFails = undefined;
  await actor.cluster.clock.advance(limits.organizationMailRetryMaxMs);
  assert.deepEqual(actor.mails.filter(({ to }) => to === 'a@example.com'), []);
});

test('organization - members are counted at inviting and at accepting, as the plan says [ORG-056]', async () => {
  const actor = organizationActor();
  await actor.found({ a: 'viewer', b: 'viewer', c: 'viewer' });
  await invite(actor, 'inv_d', 'd@example.com');
  await invite(actor, 'inv_e', 'e@example.com');
  await actor.ask('accept', { invitation_id: 'inv_d', by: person('d') });
  const full = await actor.ask('accept', { invitation_id: 'inv_e', by: person('e') }).then(() => undefined, (error: unknown) => error);
  assert.deepEqual(z.object({ code: z.string(), details: z.unknown() }).parse(full), { code: 'plan_limit', details: { limit: 5, upgradeUrl: '/pricing' } });
  assert.equal(await actor.refused('invite', { id: 'inv_f', email: 'f@example.com', role: 'viewer', by }), 'plan_limit');
  await actor.ask('set_plan', { plan: 'pro', reason: 'test' });
  await actor.ask('accept', { invitation_id: 'inv_e', by: person('e') });
  assert.equal((await actor.ask('read', { by })).memberCount, 6);
  await actor.ask('set_plan', { plan: 'enterprise', limits: { perMinute: 1, perDay: 1, maxApiKeys: 1, maxMembers: 6, credits: 0 }, reason: 'contract' });
  assert.equal(await actor.refused('invite', { id: 'inv_f', email: 'f@example.com', role: 'viewer', by }), 'plan_limit');
  assert.equal(await actor.refused('set_plan', { plan: 'pro', limits: { perMinute: 1, perDay: 1, maxApiKeys: 1, maxMembers: -1, credits: 0 }, reason: 'x' }), 'validation_error');
});

test('organization - what is invited in a day is bounded, and anew on the next [ORG-040]', async () => {
  const actor = organizationActor();
  await actor.found();
  // The same address again and again: one pending invitation, many mails.
  for (let i = 0; i < limits.organizationInvitesPerDayMax; i++) await invite(actor, `inv_${i}`, 'a@example.com');
  assert.equal(await actor.refused('invite', { id: 'inv_x', email: 'a@example.com', role: 'viewer', by }), 'rate_limited');
  actor.cluster.clock.jump(86_400_000);
  await invite(actor, 'inv_x', 'a@example.com');
  assert.equal(Object.keys(await statuses(actor)).length, limits.organizationEndedMax + 1, 'of the ended ones the oldest are forgotten');
});

test('organization - a key works until it is revoked; its use is noted at most once a minute [KEY-004] [KEY-009] [KEY-014] [KEY-016] [KEY-018]', async () => {
  const actor = organizationActor();
  await actor.found({ viewer: 'viewer' });
  const make = (id: string) => actor.ask('create_key', { id, name: id, scopes: ['*'], key_prefix: `trp_${id}`, key_sha256: `hash-${id}`, by });
  assert.deepEqual(await make('key_a'), {
    id: 'key_a', name: 'key_a', keyPrefix: 'trp_key_a', scopes: ['*'], createdBy: 'usr_owner', lastUsedAt: null, revokedAt: null, createdAt: new Date(actor.cluster.clock.now()).toISOString(),
  });
  const verify = () => actor.ask('verify_key', { key_sha256: 'hash-key_a' });
  for (let i = 0; i < 5; i++) assert.deepEqual(await verify(), { key_id: 'key_a', scopes: ['*'], created_by: 'usr_owner' });
  actor.cluster.clock.jump(60_000);
  await verify();
  assert.equal(actor.events().filter((event) => event.startsWith('KeyUsed')).length, 2);
  await make('key_b');
  assert.equal(await codeOf(make('key_c')), 'plan_limit');
  actor.cluster.clock.jump(400 * 86_400_000);
  await verify();
  assert.notEqual((await actor.ask('revoke_key', { key_id: 'key_a', by })).revokedAt, null);
  assert.equal(await codeOf(verify()), 'unauthorized');
  assert.equal(await actor.refused('verify_key', { key_sha256: '' }), 'unauthorized');
  assert.equal(await actor.refused('revoke_key', { key_id: 'key_none', by }), 'not_found');
  const { id } = await make('key_c');
  assert.deepEqual((await actor.ask('keys', { by })).keys.map((key) => key.id), ['key_a', 'key_b', id], 'a revoked one makes room and stays in the list');
});

test('organization - the webhook is told of members and of the plan, only while it has a URL [AUD-008] [AUD-010] [AUD-011]', async () => {
  const actor = organizationActor();
  await actor.found({ a: 'member' });
  await actor.quiet();
  assert.deepEqual(domainOf(actor.cluster, webhookAddress(orgId)), [], 'no URL: nothing is told');
  const url = 'https://hooks.example.com/';
  await actor.ask('update', { settings: { webhookUrl: url }, by });
  await actor.quiet();
  await invite(actor, 'inv_b', 'b@example.com', 'viewer');
  await actor.ask('accept', { invitation_id: 'inv_b', by: person('b') });
  await actor.ask('update_member', { user_id: 'usr_b', role: 'member', by });
  await actor.ask('transfer', { user_id: 'usr_a', by });
  await actor.ask('remove_member', { user_id: 'usr_b', by: person('a') });
  await actor.ask('set_plan', { plan: 'pro', reason: 'test' });
  await actor.ask('set_plan', { plan: 'pro', reason: 'again' });
  await actor.quiet();
  const queued = domainOf(actor.cluster, webhookAddress(orgId)).filter((event) => event.startsWith('DeliveryQueued'))
    .map((event) => z.object({ body: z.string() }).parse(JSON.parse(event.slice('DeliveryQueued '.length))).body)
    .map((body) => z.object({ type: z.string(), organizationId: z.literal(orgId), data: z.unknown() }).parse(JSON.parse(body)));
  assert.deepEqual(queued.map(({ type, data }) => [type, data]), [
    ['member.joined', { userId: 'usr_b', email: 'b@example.com', role: 'viewer' }],
    ['member.role_changed', { userId: 'usr_b', from: 'viewer', to: 'member' }],
    ['member.role_changed', { userId: 'usr_a', from: 'member', to: 'owner' }],
    ['member.role_changed', { userId: 'usr_owner', from: 'owner', to: 'admin' }],
    ['member.removed', { userId: 'usr_b', role: 'member' }],
    ['plan.changed', { from: 'free', to: 'pro' }],
  ]);
});

test('organization - retentionDays is the owner\'s; an admin who sends it changes nothing at all [ORG-062] [ORG-024]', async () => {
  const actor = organizationActor();
  await actor.found({ admin: 'admin', member: 'member' });
  assert.equal(await actor.refused('update', { name: 'New', settings: { retentionDays: 3 }, by: person('admin') }), 'forbidden');
  assert.equal(await actor.refused('update', { settings: { retentionDays: null }, by: person('admin') }), 'forbidden');
  assert.equal(await actor.refused('update', { name: 'New', by: person('member') }), 'forbidden');
  assert.equal((await actor.ask('read', { by })).name, 'Acme');
  assert.equal((await actor.ask('update', { settings: { retentionDays: 3 }, by })).settings.retentionDays, 3);
  assert.equal((await actor.ask('update', { name: 'New', by: person('admin') })).settings.retentionDays, 3);
});

test('organization - a deletion ends everything in its turn: members, keys, invitations; the slug is free again [ORG-026] [ORG-029]', async () => {
  const actor = organizationActor();
  const slug = nameAddress('slug', 'acme');
  await actor.host.ask(slug, 'claim', { holder: orgId, forMs: limits.slugClaimMs });
  await actor.found({ admin: 'admin', member: 'member' });
  await actor.quiet();
  actor.cluster.clock.jump(limits.slugClaimMs);
  const holder = async (): Promise<string | null> => nameCommands.holder.output.parse(await actor.host.ask(slug, 'holder', {})).holder;
  assert.equal(await holder(), orgId, 'the organization confirmed it');
  await actor.ask('create_key', { id: 'key_a', name: 'a', scopes: ['*'], key_prefix: 'p', key_sha256: 'hash', by });
  await invite(actor, 'inv_x', 'x@example.com');
  for (const who of ['admin', 'member']) assert.equal(await actor.refused('remove', { by: person(who) }), 'forbidden');
  assert.equal(await actor.refused('remove', { by: asKey('key_a', ['*']) }), 'forbidden');
  await actor.ask('remove', { by });
  for (const who of ['owner', 'admin', 'member']) assert.equal(await actor.refused('read', { by: person(who) }), 'not_found');
  assert.equal(await actor.refused('remove', { by }), 'not_found');
  assert.equal(await actor.refused('verify_key', { key_sha256: 'hash' }), 'unauthorized');
  assert.equal(await actor.refused('accept', { invitation_id: 'inv_x', by: person('x') }), 'not_found');
  assert.equal(await actor.refused('show_invitation', { invitation_id: 'inv_x' }), 'not_found');
  assert.equal(await actor.refused('create', { name: 'Again', slug: 'again', default_model: 'mock', by }), 'conflict', 'an id is never given twice');
  await actor.quiet();
  assert.equal(await holder(), null);
});

/** A new organization whose slug was claimed for a while, as the daemon does. */
const claimed = async (): Promise<OrganizationActor> => {
  const actor = organizationActor();
  await actor.host.ask(nameAddress('slug', 'acme'), 'claim', { holder: orgId, forMs: limits.slugClaimMs });
  return actor;
};
const slugHolder = async (actor: OrganizationActor): Promise<string | null> =>
  nameCommands.holder.output.parse(await actor.host.ask(nameAddress('slug', 'acme'), 'holder', {})).holder;

test('organization - its slug is its own for good, also when the host dies before it could say so, or the name does not answer [ORG-018] [ORG-019]', async () => {
  const first = await claimed();
  first.nameFails = 'journal_unavailable';
  await first.found();
  await first.quiet();
  const second = first.restart();
  second.nameFails = 'no_owner';
  await second.cluster.clock.advance(limits.organizationWakeMs);
  assert.ok(second.events().some((event) => event.startsWith('SlugFailed')));
  second.nameFails = undefined;
  // Doubling waits: within as long again as it has failed.
  await second.cluster.clock.advance(limits.organizationWakeMs * 2);
  assert.ok(second.events().includes('SlugKept {}'));
  second.cluster.clock.jump(limits.slugClaimMs * 2);
  assert.equal(await slugHolder(second), orgId);
  assert.deepEqual(await second.cluster.stores.reminders.list('reminder.>'), [], 'nothing will wake it');
});

test('organization - a slug that somebody else got meanwhile is noted and the organization lives on [ORG-018]', async () => {
  const actor = organizationActor();
  await actor.host.ask(nameAddress('slug', 'acme'), 'claim', { holder: 'org_other' });
  await actor.found();
  await actor.quiet();
  assert.ok(actor.events().includes('SlugLost {}'));
  await actor.ask('remove', { by });
  await actor.quiet();
  assert.equal(await slugHolder(actor), 'org_other', 'not given back by who never had it');
});

test('organization - one that is deleted while it takes its slug leaves it free [ORG-029]', async () => {
  const actor = await claimed();
  const gate = Promise.withResolvers<void>();
  actor.nameGate = gate.promise;
  await actor.found();
  await actor.ask('remove', { by });
  await actor.quiet();
  // Released by the deletion; the try that is still under way takes it again.
  gate.resolve();
  await actor.quiet();
  assert.equal(await slugHolder(actor), null);
});

test('organization - what its webhook is to be told is told, also when the host dies before [AUD-010] [AUD-017]', async () => {
  const first = organizationActor();
  await first.found({ a: 'viewer' });
  await first.ask('update', { settings: { webhookUrl: 'https://hooks.example.com/' }, by });
  await first.quiet();
  await first.cluster.clock.advance(limits.organizationWakeMs);
  first.tellsLost = true;
  await first.ask('update_member', { user_id: 'usr_a', role: 'member', by });
  // Dies with its tell unsent, and nobody asks for it again.
  const second = first.restart();
  await second.cluster.clock.advance(limits.organizationWakeMs);
  await second.quiet();
  assert.equal(domainOf(second.cluster, webhookAddress(orgId)).filter((event) => event.startsWith('DeliveryQueued')).length, 1);
});

test('organization - members are told of its deletion, each once, also when mail fails and the host dies [ORG-028]', async () => {
  const first = organizationActor();
  await first.found({ a: 'admin', b: 'member', c: 'viewer' });
  await first.quiet();
  first.mails.length = 0;
  first.mailFails = 'mail_unavailable';
  await first.ask('remove', { by });
  await first.quiet();
  assert.equal(first.mails.length, 0);
  const second = first.restart();
  await second.cluster.clock.advance(limits.organizationWakeMs * 2);
  assert.deepEqual(second.mails.map(({ to }) => to).toSorted(), ['a@example.com', 'b@example.com', 'c@example.com', 'owner@example.com']);
  assert.equal(new Set(second.mails.map(({ id }) => id)).size, 4);
  assert.match(second.mails[0]?.text ?? '', /owner has deleted the organization "Acme"/);
});

test('organization - its data is erased until that is done, twice, over failures and a dead host [ORG-027] [ORG-030]', async () => {
  const first = organizationActor();
  await first.found();
  await first.ask('remove', { by });
  await first.quiet();
  assert.deepEqual(first.erasures.map((erasure) => erasure.orgId), [orgId], 'at once');
  const second = first.restart();
  await second.cluster.clock.advance(limits.organizationWakeMs);
  assert.equal(second.erasures.length, 2, 'begun again by the next host');
  second.erasures[1]?.end(new Error('the store does not answer'));
  await second.quiet();
  await second.cluster.clock.advance(limits.organizationRetryMs);
  assert.equal(second.erasures.length, 3, 'tried again');
  second.erasures[2]?.end();
  await second.quiet();
  await second.cluster.clock.advance(limits.eraseAgainMs - 1_000);
  assert.equal(second.erasures.length, 3);
  await second.cluster.clock.advance(1_000);
  assert.equal(second.erasures.length, 4, 'once more for what was under way');
  second.erasures[3]?.end();
  await second.quiet();
  assert.deepEqual(second.events().filter((event) => event.startsWith('Erased')).map((event) => event.slice(0, 17)), ['Erased {"pass":1,', 'Erased {"pass":2,']);
  assert.deepEqual(await second.cluster.stores.reminders.list('reminder.>'), [], 'nothing will wake it');
});
