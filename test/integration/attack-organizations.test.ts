/**
 * Organizations under attack, over real HTTP with two gateways and two daemons: everything at once, everywhere, with what a member, a
 * former member, a narrow API key or a stranger can send.
 */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { after, before, describe, test } from 'node:test';
import { connect, type NatsConnection } from 'nats';
import postgres from 'postgres';
import { ulid } from 'ulid';
import { z } from 'zod';
import { createErase } from '../../actors/daemon/erase.ts';
import { createLean } from '../../actors/runtime/nats/lean.ts';
import { CodedError } from '../../contracts/errors.ts';
import { organizationRoutes } from '../../contracts/organization-routes.ts';
import { chatSession } from '../../contracts/session.ts';
import { exportAudit } from '../../gateway/cli/audit.ts';
import { within } from '../harness/chaos.ts';
import { chatWorld, say, type ChatWorld } from '../harness/chat.ts';
import { refusal, type OrganizationClient } from '../harness/organization.ts';
import { answered, startPlatform, type ApiReply, type Person, type TestPlatform } from '../harness/platform.ts';
import { openJournals, type Journals } from '../harness/proof.ts';
import { draw, runSeed } from '../harness/seed.ts';
import { linked } from '../harness/stack.ts';

const unknownOrganization = (): string => `org_${ulid().toLowerCase()}`;
const statuses = (replies: readonly ApiReply[]): Record<string, number> => {
  const counts: Record<string, number> = {};
  for (const { status } of replies) counts[status] = (counts[status] ?? 0) + 1;
  return counts;
};
const info = z.object({ state: z.object({ messages: z.int(), subjects: z.record(z.string(), z.number()).optional() }) });
const names = z.object({ streams: z.array(z.string()) });

describe('organizations under attack', () => {
  let platform: TestPlatform;
  let world: ChatWorld;
  let client: OrganizationClient;
  let journals: Journals;
  let nats: NatsConnection;
  let owner: Person;
  let second: Person;
  let third: Person;
  let stranger: Person;
  before(async () => {
    platform = await startPlatform(undefined, { daemons: 2, gateways: 2, daemon: { lease_ttl_ms: 2_000 }, gateway: { auth: { platform: true } } });
    world = await chatWorld(platform);
    client = world.organizations;
    journals = await openJournals(platform.nats.url);
    nats = await connect({ servers: platform.nats.url });
    owner = await world.person('owner@example.com');
    [second, third, stranger] = await Promise.all([world.person('second@example.com'), world.person('third@example.com'), world.person('stranger@example.com')]);
  });
  after(async () => {
    await nats.close();
    await journals.close();
    await world.stop();
    await platform.stop();
  });

  const streamInfo = async (stream: string): Promise<z.output<typeof info>['state']> =>
    info.parse(JSON.parse((await nats.request(`$JS.API.STREAM.INFO.${stream}`, JSON.stringify({ subjects_filter: '>' }))).string())).state;
  const streams = async (): Promise<readonly string[]> => names.parse(JSON.parse((await nats.request('$JS.API.STREAM.NAMES', '{}')).string())).streams;
  const gatewayToken = async (who: Person, orgId: string): Promise<string> =>
    answered(await platform.api('POST', '/api/auth/gateway-token', { token: who.accessToken, json: { orgId } }), 200, z.object({ access_token: z.string() })).access_token;

  test('attack - for a stranger a chat or a gateway token of an organization is refused as for one that does not exist, headers and all [ORG-057] [RBAC-004]', async () => {
    const { id } = await client.create(owner);
    const asked = (orgId: string): readonly Promise<ApiReply>[] => [
      platform.api('POST', '/api/auth/gateway-token', { token: stranger.accessToken, json: { orgId } }),
      world.post(stranger.accessToken, { model: 'mock', messages: say('hi') }, { headers: { 'troupe-organization': orgId } }),
      client.call('GET', '/members', stranger, { orgId }), client.call('GET', '/audit', stranger, { orgId, format: 'csv' }),
    ];
    const shown = async (orgId: string): Promise<unknown> => (await Promise.all(asked(orgId))).map(({ status, body, headers }) => [status, body, { ...headers, date: '' }]);
    const known = await shown(id);
    assert.deepEqual(known, await shown(unknownOrganization()));
    assert.ok((await Promise.all(asked(id))).every(({ status }) => status === 404));
  });

  test('attack - guessed keys and organizations leave nothing in storage [KEY-015]', async () => {
    const { id } = await client.create(owner);
    const stored = async (): Promise<number> => (await Promise.all((await streams()).filter((name) => /^(?:JOURNAL|INBOX|REMINDER|SNAPSHOT|DEADLETTER)/.test(name)).map(streamInfo))).reduce((sum, { messages }) => sum + messages, 0);
    const key = (of: string): string => `trp_sk_${of}_${randomBytes(32).toString('base64url')}`;
    const all = (): readonly Promise<ApiReply>[] => Array.from({ length: 10 }, (_, i) => [
      platform.api('GET', '/api/organization', { token: key(ulid().toLowerCase()), gateway: i % 2 }),
      platform.api('GET', '/api/organization', { token: key(id.slice(4)), gateway: i % 2 }),
      client.call('POST', '/members', stranger, { orgId: unknownOrganization(), email: 'x@example.com' }, i % 2),
      client.call('POST', '/members', stranger, { orgId: id, email: 'x@example.com' }, i % 2),
    ]).flat();
    // What the stranger's own login notes is noted once.
    await Promise.all(all());
    const before = await stored();
    assert.deepEqual(statuses(await Promise.all(all())), { 401: 20, 404: 20 });
    assert.equal(await stored(), before);
  });

  test('attack - a key that may only invite or only change roles makes nobody admin [RBAC-018] [KEY-012]', async () => {
    const { id: orgId } = await client.create(owner);
    await client.join(orgId, owner, second, 'viewer');
    const { key: inviter } = await client.key(orgId, owner, ['member.invite']);
    const { key: changer } = await client.key(orgId, owner, ['member.update_role']);
    assert.equal(refusal(await client.call('POST', '/members', inviter, { orgId, email: stranger.email, role: 'admin' })), '403 forbidden');
    for (const role of ['admin', 'owner']) assert.equal(refusal(await client.call('PATCH', '/members', changer, { orgId, userId: second.userId, role })), '403 forbidden');
    assert.equal(await client.roleOf(orgId, owner, second.userId), 'viewer');
  });

  test('attack - members, keys and slugs are exact with everything at once over both gateways and daemons [ORG-018] [ORG-042] [ORG-056] [KEY-018]', async () => {
    const people = await Promise.all(Array.from({ length: 6 }, (_, i) => platform.signUp(`crowd-${i}@example.com`)));
    const { id: orgId } = await client.create(owner);
    const tokens = await Promise.all(people.map(async (person) => (await client.invite(orgId, owner, person.email, 'admin')).token));
    const accepted = await Promise.all(people.flatMap((person, i) => [0, 1].map((gateway) => client.call('POST', '/invitations/accept', person, { token: tokens[i] }, gateway))));
    assert.equal(statuses(accepted)[200], 4, 'each once, up to five members');
    assert.ok(accepted.every(({ status }) => [200, 403, 409].includes(status)));
    assert.equal((await client.read(orgId, owner)).memberCount, 5);
    const keys = await Promise.all(Array.from({ length: 10 }, (_, i) => client.call('POST', '/api-keys', owner, { orgId, name: 'k', scopes: ['*'] }, i % 2)));
    assert.deepEqual(statuses(keys), { 201: 2, 403: 8 });
    const made = await Promise.all(people.flatMap((person) => [0, 1].map((gateway) => client.call('POST', '', person, { name: 'n', slug: 'raced-for' }, gateway))));
    assert.deepEqual(statuses(made), { 201: 1, 409: 11 });
  });

  test('attack - three owners who throw each other out in every way at once, a daemon killed meanwhile: an owner remains, and the audit log is what was done [ORG-054] [ORG-055] [AUD-005]', { timeout: 120_000 }, async (t) => {
    const random = draw(runSeed());
    t.diagnostic(`TROUPE_SEED=${random.seed}`);
    for (const killed of [undefined, 0, 1]) {
      const { id: orgId } = await client.create(owner);
      const owners = [owner, second, third];
      for (const person of [second, third]) {
        await client.join(orgId, owner, person, 'admin');
        assert.equal((await client.call('PATCH', '/members', owner, { orgId, userId: person.userId, role: 'owner' })).status, 200);
      }
      const calls = owners.flatMap((who) => owners.flatMap(({ userId }, i) => ([
        ['PATCH', '/members', { userId, role: 'admin' }], ['DELETE', '/members', { userId }], ['POST', '/leave', {}], ['POST', '/transfer', { userId }],
      ] as const).map(([method, path, fields]) => ({ order: random.next(), run: () => client.call(method, path, who, { ...fields, orgId }, i % 2) }))));
      const running = calls.toSorted((a, b) => a.order - b.order).map(({ run }) => run());
      const daemon = killed === undefined ? undefined : platform.daemons[killed];
      await daemon?.kill('SIGKILL');
      await daemon?.start();
      const replies = await Promise.all(running);
      await Promise.all(platform.gateways.map((gateway) => linked(gateway, platform.daemons.length)));
      assert.ok(replies.every(({ status }) => [200, 400, 403, 404, 500, 502, 503, 504].includes(status)), JSON.stringify(statuses(replies)));
      const events = await journals.events({ org: orgId, type: 'organization', key: orgId });
      const roles = new Map<unknown, unknown>();
      for (const { k, d } of events) {
        if (k === 'OrganizationCreated') roles.set(owner.userId, 'owner');
        if (k === 'MemberJoined') roles.set(d['user_id'], d['role']);
        if (k === 'MemberRoleChanged') roles.set(d['user_id'], d['to']);
        if (k === 'MemberRemoved') roles.delete(d['user_id']);
        if (k === 'OwnershipTransferred') roles.set(d['from'], 'admin').set(d['to'], 'owner');
        if (k.startsWith('Member') || k === 'OwnershipTransferred') assert.ok([...roles.values()].includes('owner'), `after every change: ${JSON.stringify(events)}`);
      }
      const last = owners.find(({ userId }) => roles.get(userId) === 'owner');
      assert.ok(last !== undefined);
      const changes = events.filter(({ k }) => ['MemberRoleChanged', 'MemberRemoved', 'OwnershipTransferred'].includes(k)).length;
      const { entries } = answered(await client.call('GET', '/audit', last, { orgId, limit: 1_000 }), 200, z.object({ entries: z.array(z.object({ action: z.string() })), nextCursor: z.null() }));
      assert.equal(entries.filter(({ action }) => ['member.role_changed', 'member.removed', 'member.left', 'organization.transferred'].includes(action)).length, changes);
    }
  });

  test('attack - a gateway token outlives neither the right to chat nor the membership, on no gateway [RBAC-007] [RBAC-019] [ORG-052]', async () => {
    const { id: orgId } = await client.create(owner);
    await client.join(orgId, owner, second, 'member');
    const token = await gatewayToken(second, orgId);
    const create = (gateway: number): Promise<ApiReply> => platform.api('POST', '/v1/agent/create_session', { token, json: { user_id: second.userId, project_id: 'p' }, gateway });
    const everywhere = async (): Promise<readonly number[]> => (await Promise.all([0, 1].flatMap((gateway) => [
      create(gateway), platform.api('POST', '/v1/agent/blobs', { token, json: { a: 1 }, gateway }), platform.api('GET', '/v1/agent/sessions', { token, gateway }),
    ]))).map(({ status }) => status);
    answered(await create(0), 201, chatSession);
    await client.call('PATCH', '/members', owner, { orgId, userId: second.userId, role: 'viewer' });
    assert.deepEqual(await everywhere(), [403, 403, 200, 403, 403, 200]);
    await client.call('DELETE', '/members', owner, { orgId, userId: second.userId });
    assert.deepEqual(await everywhere(), [401, 401, 401, 401, 401, 401]);
  });

  test('attack - whatever is sent to an organization route is refused by its form, and nothing breaks [ORG-023] [ORG-039] [ORG-048] [ERR-011]', { timeout: 120_000 }, async () => {
    const { id: orgId } = await client.create(owner);
    const values: readonly unknown[] = [null, 0, -1, true, [], {}, '', ' ', '\u0000', 'x'.repeat(5_000), '\ud800', ['a'], [null], { $ne: 1 }, '\u200b', 'a\u2028b', 2 ** 53, 1.5];
    const fields: Readonly<Record<string, unknown>> = {
      orgId, userId: stranger.userId, role: 'viewer', email: 'z@example.com', name: 'n', slug: 'never-made', token: 't', invitationId: 'inv_x', id: 'key_x', scopes: ['org.read'], settings: { sharedMemory: true },
    };
    for (const route of Object.values(organizationRoutes).filter(({ method, id }) => method !== 'GET' && id !== 'join')) {
      assert.ok('body' in route && route.body instanceof z.ZodObject);
      const shape = Object.keys(route.body.shape);
      const valid = Object.fromEntries(shape.map((name) => [name, fields[name]]));
      for (const name of shape) {
        for (const value of values) {
          const fits = route.body.safeParse({ ...valid, [name]: value }).success;
          const reply = await platform.api(route.method, route.path, { token: stranger.accessToken, json: { ...valid, [name]: value } });
          assert.ok(fits ? [400, 404].includes(reply.status) : reply.status === 400, `${route.id} ${name} ${JSON.stringify(value).slice(0, 40)}: ${reply.status} ${reply.body}`);
          assert.doesNotMatch(reply.body, /node:|\.ts|at \w+ \(/);
        }
      }
    }
    assert.equal((await client.read(orgId, owner)).memberCount, 1);
  });

  test('attack - without Postgres a list is refused, not shown stale; what the actor knows is answered [AUD-001]', { timeout: 120_000 }, async () => {
    const { id: orgId } = await client.create(owner);
    // Never 504: who is refused is told before the request's time is up.
    const unanswered = /^503 upstream_unavailable$/;
    await platform.postgres.kill('SIGKILL');
    try {
      for (const [path, query] of [['', {}], ['/audit', { orgId }], ['/audit', { orgId, format: 'csv' }]] as const) {
        assert.match(refusal(await client.call('GET', path, owner, query)), unanswered, path);
      }
      assert.match(refusal(await client.call('POST', '', owner, { name: 'n', slug: 'without-postgres' })), unanswered);
      // A chat that does not say who pays asks for the oldest membership; one that says it needs no list.
      const chat = (headers: Readonly<Record<string, string>>): Promise<ApiReply> =>
        platform.api('POST', '/api/v1/chat/completions', { token: owner.accessToken, headers, json: { model: 'mock', messages: [{ role: 'user', content: 'hi' }] } });
      for (let i = 0; i < 4; i++) assert.match(refusal(await chat({})), unanswered);
      assert.doesNotMatch(refusal(await chat({ 'troupe-organization': unknownOrganization() })), /^50/);
      assert.equal((await client.read(orgId, owner)).id, orgId);
      assert.equal(refusal(await client.call('GET', '/members', stranger, { orgId })), '404 not_found');
    } finally {
      await platform.postgres.start();
    }
    // Each daemon's connections come back in their own time: served again is when each of several looks in a row is answered.
    for (let served = 0; served < 8;) served = (await client.call('GET', '', owner, {})).status === 200 ? served + 1 : 0;
  });

  test('attack - an audit log of entries as large as they get is read page by page, each within what an answer holds; all of it at once is refused [AUD-001] [AUD-002]', { timeout: 120_000 }, async (t) => {
    const { id: orgId } = await client.create(owner);
    // Each quote is two characters in JSON, and four in the JSON that holds it.
    const webhookUrl = `https://x/${'"'.repeat(2_030)}`;
    assert.equal((await client.call('PATCH', '', owner, { orgId, settings: { webhookUrl } })).status, 200);
    const sql = postgres(platform.postgres.url, { max: 1 });
    t.after(() => sql.end());
    const metadata = JSON.stringify({ settings: { webhookUrl } });
    await sql`insert into troupe.audit select ${orgId}, '00' || lpad(n::text, 24, '0'), 'usr_x', 'organization.updated', 'organization', ${orgId}, ${metadata}::text::json, '', '', now() from generate_series(1, 2000) n`;
    const page = z.object({ entries: z.array(z.object({ id: z.string() })), nextCursor: z.string().nullable() });
    const ids: string[] = [];
    for (let cursor: string | null = ''; cursor !== null;) {
      const reply = await client.call('GET', '/audit', owner, { orgId, limit: 1_000, ...(cursor === '' ? {} : { cursor }) });
      const got: z.output<typeof page> = answered(reply, 200, page);
      assert.ok(got.entries.length > 0 && got.entries.length < 1_000);
      ids.push(...got.entries.map(({ id }) => id));
      cursor = got.nextCursor;
    }
    assert.equal(ids.length, 2_002);
    assert.deepEqual(ids, [...new Set(ids)].toSorted().toReversed());
    for (const format of ['csv', 'jsonl']) assert.equal(refusal(await client.call('GET', '/audit', owner, { orgId, format })), '413 payload_too_large');
    assert.equal((await client.call('GET', '/audit', owner, { orgId, format: 'csv', limit: 100 })).body.split('\r\n').length, 102);
    // The command line takes it in parts: every entry once, and one header.
    const exported = async (format: 'csv' | 'jsonl'): Promise<string> => {
      const parts: string[] = [];
      const text = async ({ query = {} }: { readonly query?: Readonly<Record<string, string>> }): Promise<string> => {
        const reply = await client.call('GET', '/audit', owner, query);
        if (reply.status !== 200) throw new CodedError(refusal(reply).slice(4));
        return reply.body;
      };
      await exportAudit({ platform: { text }, token: owner.accessToken, orgId, format, write: (part) => { parts.push(part); } });
      assert.ok(parts.length > 2);
      return parts.join('');
    };
    const jsonl = (await exported('jsonl')).trimEnd().split('\n').map((line) => z.object({ id: z.string() }).parse(JSON.parse(line)).id);
    assert.deepEqual(jsonl.filter((id) => ids.includes(id)), ids);
    assert.equal(new Set(jsonl).size, jsonl.length);
    const csv = (await exported('csv')).trimEnd().split('\r\n').map((line) => line.split(',', 1)[0] ?? '');
    assert.equal(csv.filter((id) => id === 'id').length, 1);
    assert.deepEqual(csv.filter((id) => ids.includes(id)), ids);
  });

  test('attack - of a deleted organization that chatted, its counted requests are erased too, and in the end what its webhook was to deliver [ORG-027]', { timeout: 120_000 }, async () => {
    const { id: orgId } = await client.create(owner);
    const { key } = await client.key(orgId, owner);
    assert.equal(await world.status(key), 200);
    await client.call('PATCH', '', owner, { orgId, settings: { webhookUrl: 'https://127.0.0.1:1/hook?secret=sesame' } });
    await client.join(orgId, owner, second, 'viewer');
    const subjects = async (): Promise<readonly string[]> => (await Promise.all((await streams()).map(streamInfo))).flatMap((state) => Object.keys(state.subjects ?? {})).filter((subject) => subject.includes(orgId));
    for (const type of ['completion', 'allowance']) assert.ok((await subjects()).some((subject) => subject.includes(`.${orgId}.${type}.`)), type);
    assert.equal((await client.call('DELETE', '', owner, { orgId })).status, 200);
    assert.equal(await world.status(key), 401);
    await within(60_000, 'it is erased', journals.until({ org: orgId, type: 'organization', key: orgId }, (events) => events.some(({ k }) => k === 'Erased')), () => platform.report());
    // Its tombstone and audit log, the word to its webhook, and what was paid.
    assert.deepEqual((await subjects()).filter((subject) => !/^(?:journal|snapshot|reminder)\.\d+\.\w+\.(?:organization|webhook|wallet)\./.test(subject)), []);
    assert.ok((await subjects()).some((subject) => subject.includes('.webhook.')));
    const erase = createErase({ lean: createLean(nats), journalStreams: 1, projections: () => undefined });
    await erase(orgId, true, new AbortController().signal);
    assert.deepEqual((await subjects()).filter((subject) => subject.includes('.webhook.')), [], 'the last time, that too');
    assert.ok((await subjects()).some((subject) => subject.includes('.organization.')));
  });
});
