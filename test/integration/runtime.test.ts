/** A deployment's runtime over real HTTP: turns, sessions, events, resume, formats, memory; the vendors' own clients read its streams. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { z } from 'zod';
import { canonicalJson } from '../../contracts/canonical.ts';
import { sessionAddress } from '../../actors/daemon/deployment/branch.ts';
import { runtimeSession } from '../../contracts/runtime-routes.ts';
import { startDeployment, type TestDeployment } from '../harness/deployment.ts';
import { numbered, Watcher } from '../harness/e2e.ts';
import { openSocket } from '../harness/gateway.ts';
import { modelServer, openaiChunk, openaiDone, openaiUsage, sse, type Answer, type ModelServer } from '../harness/model-server.ts';
import { answered } from '../harness/platform.ts';
import { chatBody, envelopesOf, kindsOf, readUntil, runtimeClient, textOf, type RuntimeClient } from '../harness/runtime.ts';

const usualTurn = ['UserMessage', 'RunStarted', 'TextDelta', 'AssistantMessage', 'RunFinished'];
const codeOf = (reply: { readonly json: unknown }): string => z.object({ error: z.object({ code: z.string() }) }).parse(reply.json).error.code;

/** How the gateway ends a watcher that it does not let in. */
const closingOf = async (world: TestDeployment, sid: string, token: string): Promise<{ readonly code: number }> => {
  const watcher = new Watcher(openSocket(world.gateways[0]?.port ?? 0, world.ca.toString('utf8'), sid, { token, query: `sid=${sid}&last_seq_no=0` }), sid, 0);
  return watcher.closed();
};

/** The vendor says what it was asked last. */
const echo: Answer = (_request, response) => {
  sse(response);
  response.end(openaiChunk({ role: 'assistant', content: 'from the vendor' }) + openaiChunk({}, 'stop') + openaiUsage(5, 3) + openaiDone);
};
const asked = z.object({ messages: z.array(z.object({ role: z.string(), content: z.unknown() })) });

describe('runtime', () => {
  let folder: string;
  let vendor: ModelServer;
  let world: TestDeployment;
  let client: RuntimeClient;
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'troupe-runtime-'));
    await writeFile(join(folder, 'key'), 'sk-test', { mode: 0o600 });
    vendor = await modelServer(...Array.from({ length: 100 }, () => echo));
    world = await startDeployment(undefined, {
      daemon: {
        models: {
          default: 'mock',
          registry: [{ id: 'mock', provider: 'mock' }, { id: 'cheap', provider: 'mock' }, { id: 'vendor-model', provider: 'openai' }],
        },
        providers: { openai: { base_url: `${vendor.url}/v1`, api_key_path: join(folder, 'key') } },
      },
    });
    client = runtimeClient(world);
  });
  after(async () => {
    await world.stop();
    await vendor.stop();
    await rm(folder, { recursive: true, force: true });
  });
  const post = (json: unknown, path = '/v1/chat', headers: Record<string, string> = {}) => world.service('POST', path, { json, headers });

  test('runtime - a new session is made, a known one goes on with its earlier messages, and every event is in its journal [RUN-001] [RUN-002] [RUN-007] [RUN-011] [RUN-012] [RUN-021] [RUN-032] [RUN-033] [RUN-037]', async () => {
    const reply = await post(chatBody('first', 'hello'));
    assert.equal(reply.status, 200, reply.body);
    assert.match(String(reply.headers['content-type']), /^text\/event-stream/);
    const first = envelopesOf(reply.body);
    assert.deepEqual(kindsOf(first), ['SessionCreated', ...usualTurn]);
    assert.equal(textOf(first), 'You said: hello');
    assert.equal(first.find(({ kind }) => kind === 'UserMessage')?.payload['content'], 'hello');
    assert.equal(first.find(({ kind }) => kind === 'AssistantMessage')?.payload['content'], 'You said: hello');
    const second = await client.turn('first', '/say and on');
    assert.deepEqual(kindsOf(second), usualTurn);
    const all = await client.events('first');
    assert.deepEqual(all, [...first, ...second]);
    const ids = all.map(({ id }) => id);
    assert.deepEqual(ids, ids.toSorted());
    assert.equal(new Set(ids).size, ids.length);
    for (const { payload, checksum, stream_id, metadata } of all) {
      assert.equal(checksum, createHash('sha256').update(canonicalJson(payload)).digest('hex'));
      assert.equal(stream_id, 'first');
      assert.equal(metadata['branch'], 'main');
      assert.equal(metadata['sid'], sessionAddress({ organizationId: world.org.id, deploymentId: world.id }, 'first').key);
    }
  });

  test('runtime - a body that is not the contract\'s is refused and makes nothing [RUN-003] [RUN-004] [RUN-005] [RUN-009]', async () => {
    const user = [{ role: 'user', content: 'x' }];
    const bad: readonly (readonly [unknown, string?])[] = [
      [{ messages: user }], [{ session_id: 's' }], [{ session_id: 's', messages: [] }], [{ session_id: '', messages: user }], [{ session_id: 'a b', messages: user }],
      [{ session_id: 'a/b', messages: user }], [{ session_id: 'ü', messages: user }], [{ session_id: 'x'.repeat(129), messages: user }], [{ session_id: 5, messages: user }],
      [{ session_id: 'bad', messages: [{ role: 'assistant', content: 'x' }] }], [{ session_id: 'bad', messages: [{ role: 'user', content: 5 }] }],
      [{ session_id: 'bad', messages: [{ role: 'king', content: 'x' }] }], [{ session_id: 'bad', messages: [...user, { role: 'system', content: 'x' }] }],
      [{ session_id: 'bad', messages: user, provider: 'other' }], [{ session_id: 'bad', messages: user, model: 'none' }],
      [{ session_id: 'bad', messages: user, provider: 'anthropic' }], [{ session_id: 'bad', messages: user, provider: 'openai', model: 'mock' }],
      [{ session_id: 'bad', messages: user, branch: 'a b' }], [chatBody('bad', 'x'), '/v1/chat?format=xml'], [chatBody('bad', 'x'), '/v1/chat?other=1'],
    ];
    for (const [body, path] of bad) {
      const reply = await post(body, path);
      assert.deepEqual([reply.status, codeOf(reply)], [400, 'invalid_argument'], JSON.stringify(body).slice(0, 200));
    }
    const accept = await post(chatBody('bad', 'x'), '/v1/chat', { accept: 'application/vnd.troupe.xml+event-stream' });
    assert.deepEqual([accept.status, codeOf(accept)], [400, 'invalid_argument']);
    assert.equal((await world.service('GET', '/v1/sessions/bad/events')).status, 404);
    for (const id of ['x', 'x'.repeat(128), 'A-z_0.9']) assert.equal((await post(chatBody(id, 'hi'))).status, 200, id);
  });

  test('runtime - provider and model are those asked for, else the configured ones [RUN-005] [RUN-006] [RUN-007] [RUN-008]', async () => {
    const before = vendor.requests.length;
    const byProvider = await client.turn('models', 'one', { more: { provider: 'openai' } });
    assert.equal(textOf(byProvider), 'from the vendor');
    assert.equal(vendor.requests.at(-1)?.path, '/v1/chat/completions');
    await client.turn('models', 'two', { more: { model: 'vendor-model' } });
    assert.equal(vendor.requests.length, before + 2);
    assert.equal(textOf(await client.turn('models', 'three')), 'You said: three');
    assert.equal(textOf(await client.turn('models', 'four', { more: { provider: 'mock', model: 'cheap' } })), 'You said: four');
    assert.equal(vendor.requests.length, before + 2);
    const models = (await client.events('models')).filter(({ kind }) => kind === 'UserMessage').map(({ payload }) => payload['model'] ?? 'the session\'s');
    assert.deepEqual(models, ['the session\'s', 'the session\'s', 'mock', 'cheap']);
  });

  test('runtime - a new session takes what was said before as its history, a known one only what is new; instructions stay [RUN-002]', async () => {
    const history = [
      { role: 'system', content: 'Be brief.' }, { role: 'user', content: 'My name is Ann.' }, { role: 'assistant', content: 'Hello Ann.' }, { role: 'user', content: 'Who am I?' },
    ];
    const chat = async (messages: unknown) => envelopesOf((await post({ session_id: 'history', messages, model: 'vendor-model' })).body);
    const first = await chat(history);
    assert.deepEqual(kindsOf(first), ['SessionCreated', 'HistoryImported', ...usualTurn]);
    const told = () => asked.parse(vendor.requests.at(-1)?.body).messages;
    assert.deepEqual(told(), history);
    const second = await chat([...history, { role: 'assistant', content: 'what the client believes' }, { role: 'user', content: 'One' }, { role: 'user', content: 'Two' }]);
    assert.deepEqual(kindsOf(second), usualTurn);
    assert.deepEqual(told(), [...history, { role: 'assistant', content: 'from the vendor' }, { role: 'user', content: 'One\n\nTwo' }]);
    await chat([{ role: 'user', content: 'Three' }]);
    assert.deepEqual(told()[0], { role: 'system', content: 'Be brief.' });
    await chat([{ role: 'system', content: 'Be long.' }, { role: 'user', content: 'Four' }]);
    assert.deepEqual(told()[0], { role: 'system', content: 'Be long.' });
  });

  test('runtime - a body of a mebibyte is taken, of more is refused', async () => {
    const long = (chars: number) => ({ session_id: 'long', messages: [...Array.from({ length: 9 }, (_, i) => ({ role: i % 2 === 0 ? 'user' : 'assistant', content: 'ü'.repeat(chars) })), { role: 'assistant', content: 'x' }, { role: 'user', content: 'hi' }] });
    const taken = await post(long(55_000));
    assert.equal(taken.status, 200, taken.body.slice(0, 500));
    assert.equal(textOf(envelopesOf(taken.body)), 'You said: hi');
    assert.equal((await client.events('long'))[1]?.kind, 'HistoryImported');
    const refused = await post(long(60_000));
    assert.deepEqual([refused.status, codeOf(refused)], [413, 'payload_too_large']);
  });

  test('runtime - the list of sessions is exact at once: counts, times, branch, pages; of this deployment alone [RUN-019] [RUN-020] [RUN-024] [RUN-031]', async () => {
    const other = await world.provision(undefined, undefined, 'Other');
    const list = async (query = '', token = other.key) =>
      answered(await world.service('GET', `/v1/sessions${query}`, { token }), 200, z.strictObject({ sessions: z.array(runtimeSession), next_cursor: z.string().optional() }));
    assert.deepEqual(await list(), { sessions: [] });
    for (const [i, content] of ['/say a', '/tool clock {}', '/long 50'].entries()) {
      await client.turn(`listed-${i}`, content, { token: other.key });
      const { sessions: [newest] } = await list();
      const events = z.object({ events: z.array(z.object({ timestamp: z.int() })) }).parse((await world.service('GET', `/v1/sessions/listed-${i}/events`, { token: other.key })).json).events;
      assert.deepEqual(newest, {
        id: `listed-${i}`, branch: 'main', event_count: events.length,
        created_at: new Date(events[0]?.timestamp ?? 0).toISOString(), last_event_at: new Date(events.at(-1)?.timestamp ?? 0).toISOString(),
      });
    }
    const first = await list('?limit=2');
    assert.deepEqual(first.sessions.map(({ id }) => id), ['listed-2', 'listed-1']);
    const rest = await list(`?limit=2&cursor=${first.next_cursor ?? ''}`);
    assert.deepEqual([rest.sessions.map(({ id }) => id), rest.next_cursor], [['listed-0'], undefined]);
    assert.equal((await list('', world.key)).sessions.some(({ id }) => id.startsWith('listed')), false);
    assert.equal((await world.service('GET', '/v1/sessions/listed-0/events')).status, 404);
    const bad = await world.service('GET', '/v1/sessions?cursor=x');
    assert.deepEqual([bad.status, codeOf(bad)], [400, 'invalid_argument']);
  });

  test('runtime - events come after a cursor, as many as asked for; what is not there is 404 [RUN-021] [RUN-022] [RUN-023] [RUN-027]', async () => {
    await client.turn('paged', '/long 40');
    await client.turn('paged', '/tool clock {}');
    const all = await client.events('paged');
    for (const size of [1, 3, all.length]) {
      const read: typeof all = [];
      for (;;) {
        const events = await client.events('paged', `?limit=${size}${read.length === 0 ? '' : `&after=${read.at(-1)?.id ?? ''}`}`);
        assert.ok(events.length <= size);
        if (events.length === 0) break;
        read.push(...events);
      }
      assert.deepEqual(read, all, `pages of ${size}`);
    }
    assert.deepEqual(await client.events('paged', '?branch=main'), all);
    for (const [path, code] of [
      ['/v1/sessions/none/events', 'session_not_found'], ['/v1/sessions/none/events?branch=b', 'session_not_found'], ['/v1/sessions/paged/events?branch=b', 'branch_not_found'],
    ] as const) {
      const reply = await world.service('GET', path);
      assert.deepEqual([reply.status, codeOf(reply)], [404, code], path);
    }
    const branch = await post(chatBody('paged', 'x', { branch: 'b' }));
    assert.deepEqual([branch.status, codeOf(branch)], [404, 'branch_not_found']);
    for (const query of ['limit=0', 'limit=-1', 'limit=x', 'after=x', 'after=']) {
      const reply = await world.service('GET', `/v1/sessions/paged/events?${query}`);
      assert.deepEqual([reply.status, codeOf(reply)], [400, 'invalid_argument'], query);
    }
  });

  test('runtime - a tool call is journaled with its result, one that waits with the word it got over the deployment\'s own route [RUN-034]', async () => {
    const called = await client.turn('tools', '/tool calculator {"expression":"6*7"}');
    assert.deepEqual(kindsOf(called).slice(1), ['UserMessage', 'RunStarted', 'TextDelta', 'ToolCall', 'AssistantMessage', 'ToolResult', 'TextDelta', 'AssistantMessage', 'RunFinished']);
    for (const approved of [true, false]) {
      const answer = await client.open('tools', `/approve ${approved}`);
      const frames = await readUntil(answer, ({ data }) => data.includes('"ApprovalRequested"'));
      const last = frames.at(-1)?.id ?? '';
      const { payload } = z.object({ payload: z.object({ dispatch_id: z.string() }) }).parse(JSON.parse(frames.at(-1)?.data ?? ''));
      const decide = (id: string) => world.service('POST', '/v1/sessions/tools/approvals', { json: { dispatch_id: id, approved } });
      assert.deepEqual([(await decide('none')).status], [400]);
      assert.equal((await decide(payload.dispatch_id)).status, 200);
      const rest = envelopesOf((await post(chatBody('tools', `/approve ${approved}`), '/v1/chat', { 'last-event-id': last })).body);
      assert.deepEqual(kindsOf(rest), [approved ? 'ApprovalGranted' : 'ApprovalDenied', 'ToolResult', 'TextDelta', 'AssistantMessage', 'RunFinished']);
    }
  });

  test('runtime - a client that comes back with the last event it has gets the rest, once, while the turn runs and after it; no second turn runs [RUN-017]', async () => {
    const content = '/slow 5 60';
    let frames = await readUntil(await client.open('resumed', content), ({ data }) => data.includes('"TextDelta"'));
    const got = frames.map(({ data }) => z.object({ id: z.string() }).parse(JSON.parse(data)).id);
    // Every few words the connection is cut again.
    for (let cuts = 0; cuts < 4; cuts++) {
      let left = 4;
      frames = await readUntil(await client.open('resumed', content, { headers: { 'last-event-id': got.at(-1) ?? '' } }), () => --left === 0);
      got.push(...frames.map(({ id }) => id ?? ''));
    }
    const rest = envelopesOf((await post(chatBody('resumed', content), '/v1/chat', { 'last-event-id': got.at(-1) ?? '' })).body);
    got.push(...rest.map(({ id }) => id));
    const all = await client.events('resumed');
    assert.deepEqual(got, all.map(({ id }) => id));
    assert.equal(textOf(all), numbered(60));
    assert.equal(all.filter(({ kind }) => kind === 'RunStarted').length, 1);
    for (const from of [0, 1, Math.floor(all.length / 2), all.length - 1]) {
      const again = envelopesOf((await post(chatBody('resumed', content), '/v1/chat', { 'last-event-id': all[from]?.id ?? '' })).body);
      assert.deepEqual(again, all.slice(from + 1));
    }
    assert.equal((await client.events('resumed')).length, all.length);
    const unknown = await post(chatBody('resumed', content), '/v1/chat', { 'last-event-id': '01ARZ3NDEKTSV4RRFFQ69G5FAV' });
    assert.deepEqual([unknown.status, codeOf(unknown)], [404, 'event_not_found']);
    const malformed = await post(chatBody('resumed', content), '/v1/chat', { 'last-event-id': 'x' });
    assert.deepEqual([malformed.status, codeOf(malformed)], [400, 'invalid_argument']);
    // Something else is said: a new turn, whatever the header names.
    const next = envelopesOf((await post(chatBody('resumed', 'next'), '/v1/chat', { 'last-event-id': all.at(-1)?.id ?? '' })).body);
    assert.deepEqual(kindsOf(next), usualTurn);
  });

  test('runtime - a message id said again begins no second turn and answers the first one from its beginning', async () => {
    const first = await client.turn('said-once', 'hi', { more: { message_id: 'm1' } });
    assert.deepEqual(await client.turn('said-once', 'hi', { more: { message_id: 'm1' } }), first);
    assert.deepEqual(kindsOf(await client.turn('said-once', 'hi', { more: { message_id: 'm2' } })), usualTurn);
  });

  test('runtime - a turn goes on when its client leaves, and can be cancelled', async () => {
    await readUntil(await client.open('left', '/slow 20 20'), ({ data }) => data.includes('"TextDelta"'));
    const watcher = await client.watch(sessionAddress({ organizationId: world.org.id, deploymentId: world.id }, 'left').key, world.owner);
    await watcher.turns(1);
    assert.equal(watcher.text, numbered(20));
    await readUntil(await client.open('left', '/hang 3'), ({ data }) => data.includes('"TextDelta"'));
    const cancel = () => world.service('POST', '/v1/sessions/left/cancel', { json: {} });
    assert.deepEqual((await cancel()).json, { cancelled: true });
    await watcher.turns(2);
    assert.equal(watcher.events.at(-1)?.record.payload['finish_reason'], 'cancelled');
    assert.deepEqual((await cancel()).json, { cancelled: false });
    await watcher.leave();
  });

  test('runtime - a session is watched over WebSocket and SSE at once by members, and both say the same; others do not see it [RUN-031]', async () => {
    const sid = sessionAddress({ organizationId: world.org.id, deploymentId: world.id }, 'both').key;
    await client.turn('both', '/say begin');
    const watcher = await client.watch(sid, world.owner);
    const answer = await client.open('both', '/slow 2 80');
    const frames = await readUntil(answer, ({ event }) => event === 'done');
    await watcher.turns(2);
    const deltas = frames.slice(0, -1).map(({ data }) => z.object({ kind: z.string(), payload: z.record(z.string(), z.unknown()) }).parse(JSON.parse(data))).filter(({ kind }) => kind === 'TextDelta');
    const tokens = watcher.events.filter(({ agent_kind }) => agent_kind === 'TOKEN').map(({ record }) => record.payload['text']);
    const begun = (await client.events('both')).filter(({ kind }) => kind === 'TextDelta').length - deltas.length;
    assert.deepEqual(tokens.slice(begun), deltas.map(({ payload }) => payload['text']));
    // A member speaks over the gateway; the deployment's journal has it.
    await watcher.turn('from the console');
    const spoken = (await client.events('both')).filter(({ kind }) => kind === 'UserMessage').at(-1)?.payload;
    assert.deepEqual([spoken?.['content'], spoken?.['user_id']], ['from the console', world.owner.userId]);
    await watcher.leave();
    const { owner: stranger, id } = await world.organization();
    const token = z.object({ access_token: z.string() }).parse((await world.api('POST', '/api/auth/gateway-token', { token: stranger.accessToken, json: { orgId: id } })).json).access_token;
    assert.equal((await closingOf(world, sid, token)).code, 4010);
  });

  test('runtime - memories are stored, listed and told to the model where they fit; unknown sessions have none [MEM-001] [MEM-002] [MEM-003] [MEM-004] [MEM-005] [MEM-006]', async () => {
    const memory = { session_id: 'remembering', fact: 'Ann likes green tea', source: 'interview', relevance: 0.9 };
    const stored = answered(await post(memory, '/v1/memory'), 201, z.strictObject({ id: z.string(), session_id: z.string(), fact: z.string(), source: z.string(), relevance: z.number() }));
    assert.deepEqual({ ...stored, id: '' }, { ...memory, id: '' });
    assert.equal((await post({ ...memory, session_id: 'another', fact: 'Bob likes coffee' }, '/v1/memory')).status, 201);
    await client.turn('remembering', '/tool remember {"fact":"The meeting is on Monday"}');
    const listed = z.object({ session_id: z.string(), count: z.int(), memories: z.array(z.object({ id: z.string(), fact: z.string(), source: z.string(), relevance: z.number(), timestamp: z.int() })) })
      .parse((await world.service('GET', '/v1/memory?session_id=remembering')).json);
    assert.deepEqual([listed.session_id, listed.count, listed.memories.map(({ fact }) => fact)], ['remembering', 2, ['Ann likes green tea', 'The meeting is on Monday']]);
    const journaled = (await client.events('remembering')).filter(({ kind }) => kind === 'MemoryStored');
    assert.deepEqual(journaled.map(({ payload: { id, fact, source, relevance }, timestamp }) => ({ id, fact, source, relevance, timestamp })), listed.memories);
    await client.turn('remembering', 'Which tea?', { more: { model: 'vendor-model' } });
    const [system] = asked.parse(vendor.requests.at(-1)?.body).messages;
    assert.match(String(system?.content), /- Ann likes green tea \(interview\)/);
    for (const bad of [{ fact: 5 }, { fact: '' }, { source: undefined }, { relevance: '1' }, { relevance: undefined }, { session_id: 'a b' }, { session_id: undefined }, { further: 1 }]) {
      const reply = await post({ ...memory, ...bad }, '/v1/memory');
      assert.deepEqual([reply.status, codeOf(reply)], [400, 'invalid_argument'], JSON.stringify(bad));
    }
    const none = await world.service('GET', '/v1/memory?session_id=none');
    assert.deepEqual([none.status, codeOf(none)], [404, 'session_not_found']);
  });

  test('runtime - a stream that is otherwise silent says that it is there [RUN-018]', async () => {
    const answer = await client.open('silent', '/hang 1');
    answer.setEncoding('utf8');
    let text = '';
    for await (const piece of answer) {
      text += String(piece);
      if (/\n\n: [^\n]*\n\n$/.test(text)) break;
    }
    assert.match(text, /"TextDelta"/);
    await world.service('POST', '/v1/sessions/silent/cancel', { json: {} });
  });
});
