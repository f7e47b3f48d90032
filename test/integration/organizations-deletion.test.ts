/**
 * Deleting an organization: access ends with the answer, everything it had is erased whatever is killed meanwhile, its members are told
 * (ORG-026 to ORG-030). Postgres is down and the daemons are killed while it is being erased.
 */
import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { connect } from 'nats';
import postgres from 'postgres';
import { z } from 'zod';
import { nameAddress } from '../../actors/name/address.ts';
import { chatSession } from '../../contracts/session.ts';
import { within } from '../harness/chaos.ts';
import { organizationClient, refusal } from '../harness/organization.ts';
import { answered, startPlatform, type Person, type TestPlatform } from '../harness/platform.ts';
import { openJournals } from '../harness/proof.ts';
import { linked } from '../harness/stack.ts';

const info = z.object({ state: z.object({ subjects: z.record(z.string(), z.number()).optional() }) });
const names = z.object({ streams: z.array(z.string()) });

/** Every subject of every stream; names of blobs in the clear. */
const stored = async (natsUrl: string): Promise<string[]> => {
  const nc = await connect({ servers: natsUrl });
  try {
    const ask = async (subject: string, body: unknown): Promise<unknown> => JSON.parse((await nc.request(subject, JSON.stringify(body))).string());
    const { streams } = names.parse(await ask('$JS.API.STREAM.NAMES', {}));
    const all = await Promise.all(streams.map(async (stream) => Object.keys(info.parse(await ask(`$JS.API.STREAM.INFO.${stream}`, { subjects_filter: '>' })).state.subjects ?? {})));
    return all.flat().map((subject) => subject.replace(/^(\$O\.blobs\.M\.)(\S+)$/, (_all, head: string, name: string) => `${head}${Buffer.from(name, 'base64url').toString('utf8')}`));
  } finally {
    await nc.close();
  }
};

/** A conversation and an attachment of a person in an organization; gives the conversation's sid. */
const converse = async (platform: TestPlatform, who: Person, orgId: string): Promise<string> => {
  const { access_token: token } = answered(await platform.api('POST', '/api/auth/gateway-token', { token: who.accessToken, json: { orgId } }), 200, z.object({ access_token: z.string() }));
  const { sid } = answered(await platform.api('POST', '/v1/agent/create_session', { token, json: { user_id: who.userId, project_id: 'p' } }), 201, chatSession);
  const blob = await platform.api('POST', '/v1/agent/blobs', { token, json: { of: orgId, text: 'x'.repeat(1_000) } });
  assert.equal(blob.status, 201, blob.body);
  const { sessions } = answered(await platform.api('GET', '/v1/agent/sessions', { token }), 200, z.object({ sessions: z.array(z.object({ sid: z.string() })) }));
  assert.deepEqual(sessions.map((session) => session.sid), [sid], 'its row is there');
  return sid;
};

const sessionsOf = async (t: TestContext, url: string, org: string): Promise<number> => {
  const sql = postgres(url, { max: 1 });
  t.after(() => sql.end());
  const [row] = await sql<{ n: string }[]>`select count(*) as n from troupe.sessions where org = ${org}`;
  return Number(row?.n);
};

test('deletion - access ends at once, everything is erased over killed daemons and a lost database, others keep theirs [ORG-026] [ORG-027] [ORG-028] [ORG-029] [ORG-030]', { timeout: 240_000 }, async (t) => {
  const platform = await startPlatform(t, { daemons: 2, gateways: 2, daemon: { lease_ttl_ms: 2_000 }, gateway: { auth: { platform: true } } });
  const client = organizationClient(platform);
  const journals = await openJournals(platform.nats.url);
  t.after(() => journals.close());
  const [owner, member] = await Promise.all([platform.signUp('owner@example.com'), platform.signUp('member@example.com')]);
  const { id: orgId } = await client.create(owner, 'doomed');
  const { id: otherId } = await client.create(owner, 'other');
  await client.join(orgId, owner, member, 'member');
  const { key } = await client.key(orgId, owner);
  const { token: invitation } = await client.invite(orgId, owner, 'invited@example.com');
  const sid = await converse(platform, member, orgId);
  const otherSid = await converse(platform, owner, otherId);
  const before = await stored(platform.nats.url);
  for (const part of [`journal.`, `.${orgId}.session.${sid}`, `$O.blobs.M.${orgId}.sha256-`, `.${otherId}.session.${otherSid}`, `$O.blobs.M.${otherId}.`]) assert.ok(before.some((subject) => subject.includes(part)), part);

  await platform.postgres.kill('SIGKILL');
  const address = { org: orgId, type: 'organization', key: orgId };
  const failed = journals.until(address, (events) => events.some(({ k }) => k === 'EraseFailed'));
  assert.equal((await client.call('DELETE', '', owner, { orgId })).status, 200);
  for (const gateway of [0, 1]) {
    for (const who of [owner, member]) assert.equal(refusal(await client.call('GET', '', who, { orgId }, gateway)), '404 not_found');
    assert.equal(refusal(await client.call('GET', '', key, { orgId }, gateway)), '401 unauthorized');
    assert.equal(refusal(await client.call('GET', '/audit', owner, { orgId }, gateway)), '404 not_found');
    assert.equal(refusal(await client.call('DELETE', '', owner, { orgId }, gateway)), '404 not_found');
  }
  assert.equal(refusal(await platform.api('POST', '/api/organization/invitations/show', { json: { token: invitation } })), '404 not_found');

  await within(60_000, 'a first try of the erasure ends without the database', failed, () => platform.report());
  await Promise.all(platform.daemons.map((daemon) => daemon.kill('SIGKILL')));
  await platform.postgres.start();
  await Promise.all(platform.daemons.map((daemon) => daemon.start()));
  await Promise.all(platform.gateways.map((gateway) => linked(gateway, platform.daemons.length)));
  await within(120_000, 'it is erased', journals.until(address, (events) => events.some(({ k }) => k === 'Erased')), () => platform.report());

  const left = (await stored(platform.nats.url)).filter((subject) => subject.includes(orgId));
  assert.deepEqual(left.filter((subject) => !/^(journal|snapshot|reminder)\.\d+\.(\w+)\.(organization|webhook)\.\2$/.test(subject)), []);
  const kept = await stored(platform.nats.url);
  assert.ok(kept.some((subject) => subject.includes(`.${otherId}.session.${otherSid}`)) && kept.some((subject) => subject.includes(`$O.blobs.M.${otherId}.`)));
  assert.equal(kept.filter((subject) => subject.startsWith('$O.blobs.C.')).length, 1, 'the other\'s chunks alone');
  assert.equal(await sessionsOf(t, platform.postgres.url, orgId), 0);

  const mails = (await platform.outbox.all()).filter(({ subject }) => subject.includes('was deleted'));
  assert.deepEqual(mails.map(({ to }) => to).toSorted(), ['member@example.com', 'owner@example.com']);
  const mine = answered(await client.call('GET', '', owner), 200, z.object({ organizations: z.array(z.object({ id: z.string() })) }));
  assert.deepEqual(mine.organizations.map(({ id }) => id), [otherId]);
  await within(30_000, 'the slug is free', journals.until(nameAddress('slug', 'doomed'), (events) => events.some(({ k }) => k === 'NameReleased')), () => platform.report());
  assert.equal((await client.create(member, 'doomed')).slug, 'doomed');
});
