/** The audit log over HTTP: what was done is there at once, with who and from where, and cannot be changed (AUD-001 to AUD-006, AUD-021, AUD-022). */
import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import { z } from 'zod';
import { auditEntry, type AuditEntry } from '../../contracts/organization.ts';
import { organizationClient, refusal, type OrganizationClient } from '../harness/organization.ts';
import { answered, startPlatform, type Method, type Person, type TestPlatform } from '../harness/platform.ts';

const page = z.strictObject({ entries: z.array(auditEntry), nextCursor: z.string().nullable() });

/** RFC 4180, strictly. */
const parseCsv = (text: string): string[][] => {
  assert.ok(text.endsWith('\r\n'));
  const rows: string[][] = [];
  let row: string[] = [];
  for (let at = 0; at < text.length;) {
    const [cell = ''] = /^(?:"(?:[^"]|"")*"|[^",\r\n]*)/.exec(text.slice(at)) ?? [];
    row.push(cell.startsWith('"') ? cell.slice(1, -1).replaceAll('""', '"') : cell);
    at += cell.length;
    if (text[at] === ',') at += 1;
    else {
      assert.equal(text.slice(at, at + 2), '\r\n', `at ${at}`);
      at += 2;
      rows.push(row);
      row = [];
    }
  }
  return rows;
};

suite('audit', { timeout: 240_000 }, () => {
  let platform: TestPlatform;
  let client: OrganizationClient;
  let owner: Person;
  let viewer: Person;
  before(async () => {
    platform = await startPlatform(undefined, { gateways: 1, daemons: 1 });
    client = organizationClient(platform);
    [owner, viewer] = await Promise.all([platform.signUp('owner@example.com'), platform.signUp('viewer@example.com')]);
  });
  after(async () => platform.stop());

  const log = async (orgId: string, who: Person = owner): Promise<AuditEntry[]> => answered(await client.call('GET', '/audit', who, { orgId }), 200, page).entries;
  const short = ({ actorId, action, resourceType, resourceId }: AuditEntry): string[] => [actorId, action, resourceType, resourceId];

  test('audit - every change is an entry, newest first, there at the next request, with address and user agent [AUD-001] [AUD-005] [AUD-021] [AUD-004]', async () => {
    const { id: orgId } = await client.create(owner);
    await client.join(orgId, owner, viewer, 'viewer');
    const agent = { 'user-agent': 'Test/1 (<b>"x"</b>)' };
    const at = { token: owner.accessToken, headers: agent, localAddress: '127.0.0.9' };
    assert.equal((await platform.api('PATCH', '/api/organization/members', { ...at, json: { orgId, userId: viewer.userId, role: 'member' } })).status, 200);
    await client.call('PATCH', '', owner, { orgId, settings: { sharedMemory: true } });
    const { id: keyId, key } = await client.key(orgId, owner);
    const { id: invitationId } = await client.invite(orgId, owner, 'x@example.com');
    await client.call('DELETE', '/invitations', owner, { orgId, invitationId });
    await platform.api('DELETE', '/api/organization/api-keys', { token: key, json: { orgId, id: keyId } });
    await client.call('DELETE', '/members', owner, { orgId, userId: viewer.userId });
    const entries = await log(orgId);
    const invited = entries.find(({ action, resourceId }) => action === 'member.invited' && resourceId !== invitationId)?.resourceId ?? '';
    assert.deepEqual(entries.map(short), [
      [owner.userId, 'member.removed', 'member', viewer.userId],
      [keyId, 'api_key.revoked', 'api_key', keyId],
      [owner.userId, 'invitation.revoked', 'invitation', invitationId],
      [owner.userId, 'member.invited', 'invitation', invitationId],
      [owner.userId, 'api_key.created', 'api_key', keyId],
      [owner.userId, 'organization.updated', 'organization', orgId],
      [owner.userId, 'member.role_changed', 'member', viewer.userId],
      [viewer.userId, 'member.joined', 'member', viewer.userId],
      [owner.userId, 'member.invited', 'invitation', invited],
      [owner.userId, 'organization.created', 'organization', orgId],
    ]);
    const changed = entries.find(({ action }) => action === 'member.role_changed');
    assert.deepEqual({ ...changed, id: '', createdAt: '' }, {
      id: '', organizationId: orgId, actorId: owner.userId, action: 'member.role_changed', resourceType: 'member', resourceId: viewer.userId, metadata: { from: 'viewer', to: 'member' },
      ipAddress: '127.0.0.9', userAgent: agent['user-agent'], createdAt: '',
    });
    assert.equal(new Set(entries.map(({ id }) => id)).size, entries.length);
    assert.ok(!JSON.stringify(entries).includes(key.slice(-20)), 'no secret');
    for (const method of ['POST', 'PATCH', 'DELETE'] satisfies Method[]) assert.equal((await client.call(method, '/audit', owner, { orgId, id: entries[0]?.id })).status, 404);
    assert.deepEqual(await log(orgId), entries, 'and it stays so');
  });

  test('audit - refused tries and reading leave no entry', async () => {
    const { id: orgId } = await client.create(owner);
    await client.call('PATCH', '/members', owner, { orgId, userId: owner.userId, role: 'viewer' });
    await client.call('GET', '/members', owner, { orgId });
    await client.call('PATCH', '', viewer, { orgId, name: 'x' });
    assert.equal((await log(orgId)).length, 1);
  });

  test('audit - pages follow each other without gap or repeat, also while it grows [AUD-001]', async () => {
    const { id: orgId } = await client.create(owner);
    for (let i = 0; i < 7; i++) await client.call('PATCH', '', owner, { orgId, name: `Name ${i}` });
    const all = await log(orgId);
    assert.equal(all.length, 8);
    const read: AuditEntry[] = [];
    for (let cursor: string | null | undefined; cursor !== null;) {
      const got: z.output<typeof page> = answered(await client.call('GET', '/audit', owner, { orgId, limit: 3, ...(cursor === undefined ? {} : { cursor }) }), 200, page);
      read.push(...got.entries);
      cursor = got.nextCursor;
      await client.call('PATCH', '', owner, { orgId, name: `Later ${read.length}` });
    }
    assert.deepEqual(read, all);
    for (const bad of [{ limit: 0 }, { limit: -1 }, { limit: 1_001 }, { limit: '1e2' }, { limit: ' 3' }, { cursor: 'x' }, { cursor: '' }, { page: 2 }]) {
      assert.equal(refusal(await client.call('GET', '/audit', owner, { orgId, ...bad })), '400 validation_error', JSON.stringify(bad));
    }
  });

  test('audit - an organization\'s log holds its own entries only [AUD-006]', async () => {
    const [a, b] = await Promise.all([client.create(owner), client.create(owner)]);
    await client.call('PATCH', '', owner, { orgId: b.id, name: 'B' });
    assert.ok((await log(a.id)).every(({ organizationId }) => organizationId === a.id));
    assert.equal((await log(b.id)).length, 2);
    // An id of the other's log as cursor gives nothing of the other.
    const cursor = (await log(b.id))[0]?.id;
    const { entries } = answered(await client.call('GET', '/audit', owner, { orgId: a.id, cursor }), 200, page);
    assert.ok(entries.every(({ organizationId }) => organizationId === a.id));
    assert.equal(refusal(await client.call('GET', '/audit', viewer, { orgId: a.id })), '404 not_found');
  });

  test('audit - exports hold all of it, themselves included, as CSV and JSON Lines, for admins [AUD-002] [AUD-003] [AUD-022]', async () => {
    const { id: orgId } = await client.create(owner);
    await client.join(orgId, owner, viewer, 'viewer');
    for (const name of ['=HYPERLINK("http://x")', '+1', '-1', '@SUM(A1)', 'a,b "c"', "plain's"]) await client.call('PATCH', '', owner, { orgId, name });
    const formula = { token: owner.accessToken, headers: { 'user-agent': '=cmd|\' /C calc\'!A0' } };
    await platform.api('PATCH', '/api/organization', { ...formula, json: { orgId, name: 'Zeile' } });
    for (const agent of ['+1+1', '-1-1', '@SUM(A1)']) await platform.api('PATCH', '/api/organization', { token: owner.accessToken, headers: { 'user-agent': agent }, json: { orgId, name: agent } });
    const csv = await client.call('GET', '/audit', owner, { orgId, format: 'csv' });
    assert.equal(csv.status, 200, csv.body);
    assert.match(csv.headers['content-type'] ?? '', /^text\/csv; charset=utf-8/);
    assert.equal(csv.headers['content-disposition'], `attachment; filename="audit-${orgId}.csv"`);
    const [head, ...rows] = parseCsv(csv.body);
    assert.deepEqual(head, ['id', 'organizationId', 'actorId', 'action', 'resourceType', 'resourceId', 'metadata', 'ipAddress', 'userAgent', 'createdAt']);
    const entries = await log(orgId);
    const [exported] = entries;
    assert.deepEqual([exported?.action, exported?.metadata], ['audit.exported', { format: 'csv' }]);
    assert.deepEqual(rows.map(([id]) => id), entries.map(({ id }) => id));
    assert.ok(rows.flat().every((cell) => !/^[=+\-@\t\r\n]/.test(cell)), 'no cell begins a formula');
    assert.ok(rows.some((cells) => cells[8] === '\'=cmd|\' /C calc\'!A0'));
    assert.deepEqual(rows.map((cells) => JSON.parse(cells[6] ?? '')), entries.map(({ metadata }) => metadata));
    const jsonl = await client.call('GET', '/audit', owner, { orgId, format: 'jsonl' });
    assert.match(jsonl.headers['content-type'] ?? '', /^application\/jsonl/);
    const lines = jsonl.body.trimEnd().split('\n').map((line) => auditEntry.parse(JSON.parse(line)));
    assert.deepEqual(lines, await log(orgId));
    for (const format of ['csv', 'jsonl']) assert.equal(refusal(await client.call('GET', '/audit', viewer, { orgId, format })), '403 forbidden');
    for (const format of ['xml', 'CSV', '', 'json']) assert.equal(refusal(await client.call('GET', '/audit', owner, { orgId, format })), '400 validation_error', format);
  });
});
