/** Who may chat, for whom, under which terms, and on which actor, through a whole stack. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { jetstreamManager } from '@nats-io/jetstream';
import { connect } from 'nats';
import { limits } from '../../contracts/limits.ts';
import { parseStateSubject, streams, wildcards } from '../../contracts/subjects.ts';
import { chatWorld, say, type ChatWorld } from '../harness/chat.ts';
import { startPlatform, type ApiReply, type Person, type TestPlatform } from '../harness/platform.ts';

const body = { model: 'mock', messages: say('/say x') };
const manifestOf = (version: string): string => JSON.stringify({
  version, documents: [{ id: 'terms', title: 'Terms', url: 'https://example.com/terms', sha256: createHash('sha256').update(version).digest('hex') }],
});
const refused = (reply: ApiReply, status: number, type: string, code: string): void => {
  assert.equal(reply.status, status, reply.body);
  const { error } = reply.json as { error: Record<string, unknown> };
  assert.deepEqual([error['type'], error['code'], Object.keys(error).sort()], [type, code, ['code', 'message', 'param', 'type']]);
};

describe('chat access', () => {
  let platform: TestPlatform;
  let world: ChatWorld;
  let folder: string;
  let manifestPath: string;
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'troupe-legal-'));
    manifestPath = join(folder, 'manifest.json');
    await writeFile(manifestPath, manifestOf('1'));
    platform = await startPlatform(undefined, { gateways: 2, daemon: { platform: { legal_manifest_path: manifestPath } } });
    world = await chatWorld(platform);
  });
  after(async () => {
    await world.stop();
    await platform.stop();
    await rm(folder, { recursive: true, force: true });
  });

  /** Keys of the completion actors of an organization. */
  const conversations = async (org: string): Promise<string[]> => {
    const nc = await connect({ servers: platform.nats.url });
    try {
      const manager = await jetstreamManager(nc);
      const { state } = await manager.streams.info(streams.journal(0, 1), { subjects_filter: wildcards.journals('completion', org) });
      return Object.keys(state.subjects ?? {}).map((subject) => parseStateSubject(subject).key).sort();
    } finally {
      await nc.close();
    }
  };

  test('chat access - a viewer may not start a chat in the organization; a member may; a stranger finds no organization [RBAC-007] [CHAT-021] [CHAT-022]', async () => {
    const [owner, member, viewer, stranger] = await Promise.all(['owner', 'member', 'viewer', 'stranger'].map((name) => world.person(`${name}@example.com`))) as [Person, Person, Person, Person];
    const { id } = await world.organizations.create(owner);
    await world.organizations.join(id, owner, member, 'member');
    await world.organizations.join(id, owner, viewer, 'viewer');
    const headers = { 'troupe-organization': id };
    assert.equal(await world.status(member.accessToken, { headers }), 200);
    refused(await world.post(viewer.accessToken, body, { headers }), 403, 'permission_error', 'forbidden');
    refused(await world.post(viewer.accessToken, body), 403, 'permission_error', 'forbidden');
    // Their own workspace is theirs.
    assert.equal(await world.status(viewer.accessToken, { headers: { 'troupe-organization': 'personal' } }), 200);
    for (const asked of [id, 'org_00000000000000000000000000', 'acme']) {
      refused(await world.post(stranger.accessToken, body, { headers: { 'troupe-organization': asked } }), 404, 'not_found_error', 'not_found');
    }
    const gone = await world.organizations.call('DELETE', '/members', owner, { orgId: id, userId: member.userId });
    assert.equal(gone.status, 200, gone.body);
    refused(await world.post(member.accessToken, body, { headers }), 404, 'not_found_error', 'not_found');
    assert.equal(await world.status(member.accessToken), 200);
  });

  test('chat access - an API key chats for its organization if it has the scope, with its maker\'s acceptance [KEY-012]', async () => {
    const owner = await platform.signUp('keys@example.com');
    const { id } = await world.organizations.create(owner);
    await world.setPlan(id, { plan: 'team' });
    const [all, chat, read] = await Promise.all([['*'], ['chat.create'], ['org.read']].map((scopes) => world.organizations.key(id, owner, scopes))) as [{ id: string; key: string }, { id: string; key: string }, { key: string }];
    refused(await world.post(chat.key, body), 403, 'permission_error', 'legal_acceptance_required');
    await world.accept(owner);
    assert.equal(await world.status(all.key), 200);
    assert.equal(await world.status(chat.key, { headers: { 'troupe-organization': id } }), 200);
    assert.equal((await world.client(chat.key).chat.completions.create({ model: 'mock', messages: say('/say by key') })).choices[0]?.message.content, 'by key');
    refused(await world.post(read.key, body), 403, 'permission_error', 'forbidden');
    refused(await world.post(all.key, body, { headers: { 'troupe-organization': 'personal' } }), 403, 'permission_error', 'forbidden');
    refused(await world.post(all.key, body, { headers: { 'troupe-organization': 'org_00000000000000000000000000' } }), 404, 'not_found_error', 'not_found');
    assert.equal((await world.organizations.call('DELETE', '/api-keys', owner, { orgId: id, id: chat.id })).status, 200);
    for (const gateway of [0, 1]) refused(await world.post(chat.key, body, { gateway }), 401, 'authentication_error', 'unauthorized');
  });

  test('chat access - without a header the oldest membership pays', async () => {
    const owner = await world.person('two@example.com');
    const first = await world.organizations.create(owner);
    const second = await world.organizations.create(owner);
    // The list of memberships is written a moment after them.
    for (;;) if ((await platform.api('GET', '/api/organization', { token: owner.accessToken })).body.includes(second.id)) break;
    assert.equal(await world.status(owner.accessToken), 200);
    assert.deepEqual([(await conversations(first.id)).length, (await conversations(second.id)).length, (await conversations(`u-${owner.userId}`)).length], [1, 0, 0]);
  });

  test('chat access - a session named by the caller, or the conversation\'s beginning, is one actor; two callers never share one [CHAT-030] [CHAT-031] [CHAT-032]', async () => {
    const [one, other] = await Promise.all([world.person('one@example.com'), world.person('other@example.com')]);
    const { id } = await world.organizations.create(one);
    await world.setPlan(id, { plan: 'team' });
    await world.organizations.join(id, one, other, 'member');
    const ask = async (who: Person, messages: object[], session?: string): Promise<string[]> => {
      const before = await conversations(id);
      const reply = await world.post(who.accessToken, { model: 'mock', messages }, { headers: { 'troupe-organization': id, ...(session === undefined ? {} : { 'x-session-id': session }) } });
      assert.equal(reply.status, 200, reply.body);
      return (await conversations(id)).filter((key) => !before.includes(key));
    };
    const first = say('/say one');
    assert.equal((await ask(one, first, 's')).length, 1);
    assert.equal((await ask(one, say('/say two'), 's')).length, 0);
    assert.equal((await ask(other, first, 's')).length, 1);
    assert.equal((await ask(one, first)).length, 1);
    assert.equal((await ask(one, [...first, { role: 'assistant', content: 'one' }, ...say('/say three')])).length, 0);
    assert.equal((await ask(one, say('/say another'))).length, 1);
    assert.equal((await ask(other, first)).length, 1);
    refused(await world.post(one.accessToken, body, { headers: { 'x-session-id': 's'.repeat(limits.chatNoteMaxChars + 1) } }), 400, 'invalid_request_error', 'validation_error');
  });

  test('chat access - of one conversation only so many run at once; more are refused, and there is room when one has ended', async () => {
    const owner = await world.person('busy@example.com');
    const { id } = await world.organizations.create(owner);
    await world.setPlan(id, { plan: 'team' });
    const client = world.client(owner.accessToken, { headers: { 'troupe-organization': id, 'x-session-id': 'busy' } });
    const leave = new AbortController();
    const running = await Promise.all(Array.from({ length: limits.completionsPerActorMax }, async () => {
      const stream = await client.chat.completions.create({ model: 'mock', messages: say('/hang 3'), stream: true }, { signal: leave.signal });
      // By hand: a loop that is left ends the stream.
      const chunks = stream[Symbol.asyncIterator]();
      for (;;) {
        const { value, done } = await chunks.next();
        assert.equal(done, false);
        if (value?.choices[0]?.delta.content?.startsWith('w1 ') === true) return stream;
      }
    }));
    const reply = await world.post(owner.accessToken, body, { headers: { 'troupe-organization': id, 'x-session-id': 'busy' } });
    refused(reply, 429, 'rate_limit_error', 'session_busy');
    // Conversations that merely begin alike go on beside it.
    assert.equal(await world.status(owner.accessToken, { headers: { 'troupe-organization': id } }), 200);
    leave.abort();
    for (const stream of running) stream.controller.abort();
    for (;;) if (await world.status(owner.accessToken, { headers: { 'troupe-organization': id, 'x-session-id': 'busy' } }) === 200) break;
  });

  // Last: it leaves everybody with old terms.
  test('chat access - no acceptance is 403, one of other terms 401, until they are accepted and a token is made after it [TOK-059] [TOK-060] [TOK-061] [TOK-062] [ERR-018]', async () => {
    const person = await platform.signUp('terms@example.com');
    refused(await world.post(person.accessToken, body), 403, 'permission_error', 'legal_acceptance_required');
    const accepted = await world.accept(person);
    // Made before it was accepted: stale, not nothing.
    refused(await world.post(person.accessToken, body), 401, 'authentication_error', 'stale_policy');
    assert.equal(await world.status(accepted), 200);
    const { id } = await world.organizations.create(person);
    const { key } = await world.organizations.key(id, person);
    assert.equal(await world.status(key), 200);

    await writeFile(manifestPath, manifestOf('2'));
    await Promise.all(platform.daemons.map((daemon) => daemon.restart()));
    for (const gateway of [0, 1]) for (;;) if ((await platform.api('GET', '/api/v1/models', { token: accepted, gateway })).status === 200) break;
    for (const token of [accepted, key]) for (const gateway of [0, 1]) refused(await world.post(token, body, { gateway }), 401, 'authentication_error', 'stale_policy');
    assert.equal((await platform.api('GET', '/api/auth/me', { token: accepted })).status, 200);
    const renewed = await world.accept({ ...person, accessToken: accepted });
    refused(await world.post(accepted, body), 401, 'authentication_error', 'stale_policy');
    for (const token of [renewed, key]) assert.equal(await world.status(token), 200);
  });
});
