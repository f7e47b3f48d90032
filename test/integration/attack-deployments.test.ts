/**
 * Attacks on deployments' services over the real surface, two daemons and two gateways: forged credentials, names made to cross, streams that are
 * asked for wrongly or by very many at once, appends that race, documents and blobs made to hurt.
 */
import assert from 'node:assert/strict';
import { createHmac, randomBytes } from 'node:crypto';
import { after, before, suite, test } from 'node:test';
import { z } from 'zod';
import { appendAnswer } from '../../contracts/journal-routes.ts';
import { eventEnvelope, type EventEnvelope } from '../../contracts/event.ts';
import { searchAnswer } from '../../contracts/knowledge.ts';
import { deploymentsRoutes } from '../../contracts/deployments-routes.ts';
import { serviceJwt, startDeployment, type Held, type ServiceCall, type TestDeployment } from '../harness/deployment.ts';
import { answered, type ApiReply, type Person } from '../harness/platform.ts';
import { chatBody, envelopesOf, framesOf, kindsOf, readUntil, runtimeClient, textOf, type RuntimeClient } from '../harness/runtime.ts';

const envelope = z.strictObject({ error: z.strictObject({ code: z.string(), message: z.string().min(1), details: z.record(z.string(), z.unknown()).optional() }) });
const outcome = ({ status, json }: ApiReply): string => `${status} ${status < 400 ? '' : envelope.parse(json).error.code}`.trim();
const eventsPage = z.strictObject({ events: z.array(eventEnvelope) });
const b64 = (value: unknown): string => Buffer.from(typeof value === 'string' ? value : JSON.stringify(value)).toString('base64url');

suite('attack deployments', { timeout: 400_000 }, () => {
  let world: TestDeployment;
  let client: RuntimeClient;
  let two: Held;
  let foreign: Held;
  let foreignOwner: Person;
  before(async () => {
    world = await startDeployment(undefined, { daemons: 2, gateways: 2 });
    client = runtimeClient(world);
    two = await world.provision(world.owner, world.org.id, 'Two');
    const { owner, id } = await world.organization();
    foreignOwner = owner;
    foreign = await world.provision(owner, id, 'Foreign');
  });
  after(() => world.stop());

  const append = (stream: string, events: readonly object[], call: ServiceCall & { readonly expected?: string } = {}): Promise<ApiReply> =>
    world.service('POST', '/v1/journal/append', { json: { stream_id: stream, events, ...(call.expected === undefined ? {} : { expected_last_id: call.expected }) }, ...call });
  const stream = async (id: string, call: ServiceCall = {}): Promise<EventEnvelope[]> =>
    eventsPage.parse((await world.service('GET', `/v1/journal/events?limit=10000&stream_id=${encodeURIComponent(id)}`, call)).json).events;

  test('attack deployments - forged tokens are unauthorized, whatever they name and however they are made, and never a fault [RUN-030]', async () => {
    const now = Math.floor(Date.now() / 1_000);
    const { access_token: agent } = answered(await world.service('POST', '/v1/agent/token', { json: {} }), 200, z.object({ access_token: z.string() }));
    const [agentHead = '', agentClaims = '', agentSignature = ''] = agent.split('.');
    const claims = { aud: world.id, exp: now + 300 };
    const hs = (head: object, body: unknown, secret: string | Buffer): string => {
      const signed = `${b64({ alg: 'HS256', ...head })}.${b64(body)}`;
      return `${signed}.${createHmac('sha256', secret).update(signed).digest('base64url')}`;
    };
    const did = world.shown.agent.did;
    const raw = `{"aud":"${world.id}","exp":1e999}`;
    const forged: Readonly<Record<string, string>> = {
      'HS256 with the did as secret': hs({}, claims, did), 'HS256 with the did\'s key': hs({ kid: did }, claims, did.replace('did:key:', '')), 'HS256 with an empty secret': hs({}, claims, ''),
      'HS256 with the key': hs({}, claims, world.key), 'HS512': hs({ alg: 'HS512' }, claims, world.secret), 'none': `${b64({ alg: 'none' })}.${b64(claims)}.AA`, 'nOnE': `${b64({ alg: 'nOnE' })}.${b64(claims)}.AA`,
      'alg in a list': hs({ alg: ['HS256'] }, claims, world.secret), 'crit': hs({ crit: ['exp'] }, claims, world.secret), 'exp endless': hs({}, raw, world.secret), 'exp as text': hs({}, { ...claims, exp: String(now + 300) }, world.secret),
      'no exp': hs({}, { aud: world.id }, world.secret), 'exp now': hs({}, { ...claims, exp: now }, world.secret), 'nbf in an hour': hs({}, { ...claims, nbf: now + 3_600 }, world.secret),
      'kid of another': hs({ kid: two.id }, claims, world.secret), 'kid of none': hs({ kid: 'dep_00000000000000000000000000' }, claims, world.secret), 'iss of another': hs({}, { iss: two.id, sub: world.id, exp: now + 300 }, world.secret),
      'aud list, another first': hs({}, { aud: [foreign.id, world.id], exp: now + 300 }, world.secret), 'names nobody': hs({}, { exp: now + 300 }, world.secret), 'a prototype': hs({}, `{"__proto__":{"aud":"${world.id}"},"exp":${now + 300}}`, world.secret),
      'nested': hs({ cty: 'JWT' }, await world.serviceToken(), world.secret), 'claims twice': `${b64({ alg: 'HS256' })}.${b64(claims)}.${b64('x')}.${b64('y')}`, 'signature cut': (await world.serviceToken()).slice(0, -4),
      'agent\'s for another': `${agentHead}.${b64({ ...JSON.parse(Buffer.from(agentClaims, 'base64url').toString('utf8')) as object, aud: two.id })}.${agentSignature}`,
      'agent\'s as HS256': `${b64({ alg: 'HS256', kid: world.id })}.${agentClaims}.${agentSignature}`, 'agent\'s without a name': `${b64({ alg: 'EdDSA' })}.${b64(claims)}.${agentSignature}`,
      'deep': hs({}, `{"aud":"${world.id}","exp":${now + 300},"x":${'['.repeat(2_000)}${']'.repeat(2_000)}}`, 'wrong'), 'another\'s secret': await serviceJwt(foreign.secret, claims),
      'a key of no deployment': world.key.replace(world.id.slice(4), '0'.repeat(26)), 'a key under a foreign organization': world.key.replace(world.org.id.slice(4), (await foreignOrg()).slice(4)), 'key in capitals': world.key.toUpperCase(),
    };
    for (const [what, token] of Object.entries(forged)) {
      for (const gateway of [0, 1]) assert.equal(outcome(await world.service('GET', '/v1/regulation/state', { token, gateway })), '401 unauthorized', what);
    }
    const huge = await world.service('GET', '/v1/regulation/state', { token: hs({}, { ...claims, x: 'x'.repeat(6_000) }, 'wrong') });
    assert.ok(huge.status === 401 || huge.status === 431, String(huge.status));
    // What is ours stays good.
    for (const token of [await world.serviceToken({ exp: now + 10 * 365 * 86_400 }), hs({ kid: world.id }, { aud: two.id, exp: now + 300 }, world.secret), await world.serviceToken({ aud: ['x', world.id] })]) {
      assert.equal((await world.service('GET', '/v1/regulation/state', { token })).status, 200);
    }
  });
  const foreignOrg = (): Promise<string> => Promise.resolve(foreign.shown.organizationId);

  test('attack deployments - names of one deployment are nobody else\'s: sessions, streams, blobs, documents, memories, events [RUN-031]', async () => {
    const all: readonly (readonly [Held, string])[] = [[world, 'one'], [two, 'two'], [foreign, 'three']];
    const bytes = Buffer.from('the same content in all of them');
    const heads = new Map<string, string>();
    for (const [{ key: token }, word] of all) {
      const said = await client.turn('same', `/say ${word}`, { token });
      assert.equal(textOf(said), word);
      heads.set(word, said.at(-1)?.id ?? '');
      assert.equal((await append('same', [{ kind: 'K', payload: { word }, idempotency_key: 'k' }], { token, expected: '' })).status, 201);
      assert.equal((await world.service('POST', '/v1/knowledge/documents', { token, json: { path: 'same.md', content: `shared ${word}` } })).status, 201);
      assert.equal((await world.service('POST', '/v1/memory', { token, json: { session_id: 'same', fact: word, source: 's', relevance: 1 } })).status, 201);
    }
    const blob = await world.service('POST', '/v1/blobs', { body: bytes, headers: { 'content-type': 'text/html' } });
    assert.equal(blob.status, 201);
    const { hash } = z.object({ hash: z.string() }).parse(blob.json);
    for (const { key: token } of [two, foreign]) assert.equal(outcome(await world.service('GET', `/v1/blobs/${hash}`, { token })), '404 blob_not_found');
    const page = await world.service('GET', `/v1/blobs/${hash}`);
    assert.deepEqual([page.headers['x-content-type-options'], String(page.headers['content-disposition']).startsWith('attachment')], ['nosniff', true]);
    for (const [{ key: token }, word] of all) {
      assert.deepEqual((await stream('same', { token })).map(({ payload }) => payload['word']), [word]);
      const { results } = searchAnswer.parse((await world.service('GET', '/v1/knowledge/search?q=shared', { token })).json);
      assert.deepEqual(results.map(({ excerpt }) => excerpt), [`shared ${word}`]);
      assert.deepEqual(Object(await world.service('GET', '/v1/memory?session_id=same', { token })).json.memories.map(({ fact }: { fact: string }) => fact), [word]);
      const read = eventsPage.parse((await world.service('GET', '/v1/sessions/same/events', { token })).json).events;
      assert.equal(textOf(read), word);
      assert.equal(Object(await world.service('GET', '/v1/sessions', { token })).json.sessions.length, 1);
      // The events of another are none of this session's.
      for (const [, other] of all.filter(([, name]) => name !== word)) {
        const reply = await world.service('POST', '/v1/chat', { token, json: chatBody('same', `/say ${word}`), headers: { 'last-event-id': heads.get(other) ?? '' } });
        assert.equal(outcome(reply), '404 event_not_found');
      }
    }
  });

  test('attack deployments - any name is only a name: stream ids, sessions, branches, paths and queries that mean something elsewhere', async () => {
    const ids = ['*', '>', 'a.b.>', '..', '../../etc/passwd', '%2e%2e', '\'; DROP TABLE sessions; --', '__proto__', 'constructor', '\u0000', '\n', 'e\u0301', '\u00e9', '\u202e', '🐟', ' ', ' a', 'a', '$JS.API.>', 'x'.repeat(256)];
    for (const [n, id] of ids.entries()) assert.equal(outcome(await append(id, [{ kind: id.slice(0, 128), payload: { n } }])), '201', JSON.stringify(id));
    for (const [n, id] of ids.entries()) assert.deepEqual((await stream(id)).map(({ payload, stream_id }) => [payload['n'], stream_id]), [[n, id]], JSON.stringify(id));
    for (const id of ['.', '..', '...', '__proto__', 'constructor', 'main', '-', '_']) {
      assert.equal(textOf(await client.turn(id, `/say ${id}`)), id);
      assert.equal(outcome(await world.service('POST', '/v1/chat', { json: chatBody(id, '/say x', { branch: '..' }) })), '404 branch_not_found');
    }
    for (const id of ['', 'a/b', 'a b', 'a\n', 'é', '*', '>', 'x'.repeat(129)]) assert.equal(outcome(await world.service('POST', '/v1/chat', { json: chatBody(id, '/say x') })), '400 invalid_argument', id);
    for (const at of ['/v1/sessions/%2e%2e%2fx/events', '/v1/sessions/*/events', '/v1/sessions/a%00b/events', '/v1/sessions/%ff/events', '/v1/sessions//events', '/v1/sessions/%/events']) {
      const reply = await world.service('GET', at);
      assert.ok([400, 404].includes(reply.status), `${at} ${outcome(reply)}`);
    }
    for (const path of ['../x.md', 'a/../../b.md', 'a//b.md', '', '/', '.', 'a/./b.md', '\u0000.md', '\ud800.md', 'x'.repeat(513)]) {
      assert.equal(outcome(await world.service('POST', '/v1/knowledge/documents', { json: { path, content: 'x' } })), '400 invalid_argument', JSON.stringify(path));
    }
    for (const q of ['(a+)+$', '.*', '[[[[', '\\', '__proto__ constructor', '\'; --', '*', '\u0301'.repeat(900), '🐟']) {
      assert.equal(outcome(await world.service('GET', `/v1/knowledge/search?q=${encodeURIComponent(q)}&limit=100`)), '200', q);
    }
    assert.equal(outcome(await world.service('GET', `/v1/knowledge/search?q=${'x'.repeat(1_001)}`)), '400 invalid_argument');
    for (const cursor of ['x', '0'.repeat(25), '8'.repeat(26), '__proto__', '%27', 'ZZZZZZZZZZZZZZZZZZZZZZZZZZ']) {
      for (const at of [`/v1/journal/events?stream_id=a&after=${cursor}`, `/v1/sessions/main/events?after=${cursor}`]) assert.equal(outcome(await world.service('GET', at)), '400 invalid_argument', at);
      assert.ok([200, 400].includes((await world.service('GET', `/v1/sessions?cursor=${cursor}`)).status), `cursor ${cursor}`);
    }
    const future = '7ZZZZZZZZZZZZZZZZZZZZZZZZZ';
    assert.deepEqual(await stream(`a&after=${future}`), []);
    assert.deepEqual(await client.events('main', `?after=${future}`), []);
  });

  test('attack deployments - Last-Event-ID of the future, of nothing, or of another session is event_not_found and begins no turn; a good one may come a hundred times at once [RUN-017]', async () => {
    const other = await client.turn('last-other', '/say other');
    const first = await client.turn('last', '/say one two three four five');
    for (const id of ['7ZZZZZZZZZZZZZZZZZZZZZZZZZ', '00000000000000000000000000', other.at(-1)?.id ?? '']) {
      assert.equal(outcome(await world.service('POST', '/v1/chat', { json: chatBody('last', '/say one two three four five'), headers: { 'last-event-id': id } })), '404 event_not_found');
    }
    for (const id of ['1', '__proto__', '../x', 'é'.normalize('NFD').replace(/[^ -~]/g, '?')]) {
      assert.equal(outcome(await world.service('POST', '/v1/chat', { json: chatBody('last', '/say x'), headers: { 'last-event-id': id } })), '400 invalid_argument');
    }
    const at = 3;
    const again = await Promise.all(Array.from({ length: 100 }, (_, n) => world.service('POST', '/v1/chat', {
      json: chatBody('last', '/say one two three four five'), headers: { 'last-event-id': first[at]?.id ?? '' }, gateway: n % 2,
    })));
    for (const reply of again) {
      assert.equal(reply.status, 200, reply.body);
      assert.deepEqual(envelopesOf(reply.body), first.slice(at + 1));
    }
    assert.deepEqual(await client.events('last'), first);
  });

  test('attack deployments - fifty turns at once in one session: each answered whole, in its own words, once [RUN-032]', async () => {
    const words = Array.from({ length: 50 }, (_, n) => `word${n}`);
    const replies = await Promise.all(words.map((word, n) => world.service('POST', '/v1/chat', { json: chatBody('fifty', `/say ${word}`, { message_id: word }), gateway: n % 2 })));
    for (const [n, reply] of replies.entries()) {
      assert.equal(reply.status, 200, reply.body.slice(0, 300));
      const run = envelopesOf(reply.body).find(({ kind, payload }) => kind === 'UserMessage' && payload['message_id'] === words[n])?.payload['run_id'];
      assert.ok(run !== undefined || envelopesOf(reply.body).length > 0);
      assert.ok(textOf(envelopesOf(reply.body)).includes(words[n] ?? '?'), `${words[n]}: ${textOf(envelopesOf(reply.body))}`);
    }
    const all = await client.events('fifty');
    const count = (kind: string): number => all.filter((event) => event.kind === kind).length;
    assert.deepEqual([count('UserMessage'), count('RunStarted'), count('RunFinished'), count('RunErrored')], [50, 50, 50, 0]);
    assert.equal(new Set(all.map(({ id }) => id)).size, all.length);
  });

  test('attack deployments - a client that reads nothing holds up nobody, and the turn ends without it', async () => {
    const stalled = await client.open('stalled', '/slow 1 400');
    stalled.pause();
    assert.equal(textOf(await client.turn('not-stalled', '/say here')), 'here');
    const events = await readUntil(await client.open('stalled', '/say next', { more: { message_id: 'next' } }), ({ event }) => event === 'done');
    assert.ok(events.length > 0);
    assert.deepEqual(kindsOf(await client.events('stalled', '?limit=1000')).filter((kind) => kind.startsWith('Run')), ['RunStarted', 'RunFinished', 'RunStarted', 'RunFinished']);
    const rest: string[] = [];
    for await (const { event } of framesOf(stalled)) rest.push(event ?? '');
    assert.equal(rest.at(-1), 'done');
  });

  test('attack deployments - eight writers with expectations: every acknowledged append is there once, in order; keys repeated in a batch name one event [JRN-011] [JRN-012]', async () => {
    const acknowledged: string[] = [];
    await Promise.all(Array.from({ length: 8 }, async (_, writer) => {
      for (let n = 0; n < 10;) {
        const last = (await stream('race')).at(-1)?.id ?? '';
        const reply = await append('race', [{ kind: 'K', payload: { writer, n } }, { kind: 'K', payload: { writer, n, second: true } }], { expected: last, gateway: writer % 2 });
        if (reply.status === 409) continue;
        acknowledged.push(...answered(reply, 201, appendAnswer).events.map(({ id }) => id));
        n += 1;
      }
    }));
    const all = await stream('race');
    assert.deepEqual(all.map(({ id }) => id), acknowledged.toSorted());
    assert.equal(all.length, 160);
    const twice = answered(await append('keys', [1, 2, 3, 4].map((n) => ({ kind: 'K', payload: { n }, idempotency_key: n % 2 === 0 ? 'even' : 'odd' }))), 201, appendAnswer);
    assert.deepEqual(twice.events.map(({ id }) => twice.events.findIndex((one) => one.id === id)), [0, 1, 0, 1]);
    assert.deepEqual((await stream('keys')).map(({ payload }) => payload['n']), [1, 2]);
    const exported = world.service('GET', '/v1/journal/export?stream_id=race');
    await Promise.all(Array.from({ length: 10 }, (_, n) => append('race', [{ kind: 'K', payload: { late: n } }])));
    const lines = (await exported).body.trimEnd().split('\n').map((line) => eventEnvelope.parse(JSON.parse(line)));
    const after160 = await stream('race');
    assert.deepEqual(lines, after160.slice(0, lines.length));
    assert.ok(lines.length >= 160);
    assert.equal(outcome(await append('race', [JSON.parse('{"kind":"K","payload":{"__proto__":{"x":1}}}')])), '400 invalid_argument');
  });

  test('attack deployments - a document made to stop the index does not: marks out of order, YAML that grows, links in a ring; another deployment searches on', async () => {
    const bombs: Readonly<Record<string, string>> = {
      'marks.md': `bomb a${'\u0301\u0316'.repeat(250_000)}`, 'yaml.md': `---\n${Array.from({ length: 200 }, (_, i) => `a${i}: &a${i} [${Array.from({ length: 9 }, () => `*a${i - 1}`).join(',')}]`).join('\n')}\n---\nbomb`,
      'deep.md': `---\na: ${'['.repeat(8_000)}\n---\nbomb`, 'ring.md': 'bomb [[ring]] [[marks]] [[yaml]]', 'large.md': `---\n${'x: y\n'.repeat(150_000)}---\nbomb`, 'links.md': `bomb ${'[[ring]]'.repeat(100_000)}`,
    };
    for (const [path, content] of Object.entries(bombs)) assert.equal(outcome(await world.service('POST', '/v1/knowledge/documents', { json: { path, content } })), '201', path);
    const found = await world.service('GET', '/v1/knowledge/search?q=bomb&limit=100');
    assert.equal(found.status, 200, found.body);
    assert.equal(searchAnswer.parse(found.json).results.length, Object.keys(bombs).length);
    assert.equal((await world.service('GET', '/v1/knowledge/search?q=shared', { token: two.key })).status, 200);
    assert.equal((await world.service('GET', '/v1/knowledge/graph?node=ring&depth=5&edges=true')).status, 200);
  });

  test('attack deployments - a member who is removed, a viewer and a stranger over the console\'s mirrors', async () => {
    const [member, viewer] = [await world.signUp('x2-member@example.com'), await world.signUp('x2-viewer@example.com')];
    for (const [person, role] of [[member, 'member'], [viewer, 'viewer']] as const) await world.organizations.join(world.org.id, world.owner, person, role);
    const at = (id: string, path: string): string => `/api/deployments/${id}${path}`;
    const as = (person: Person, method: 'GET' | 'POST' | 'DELETE', path: string, json?: object): Promise<string> => world.api(method, path, { token: person.accessToken, ...(json === undefined ? {} : { json }) }).then(({ status }) => String(status));
    const writes: readonly (readonly ['POST' | 'DELETE', string, object?])[] = [
      ['POST', '/v1/memory', { session_id: 'console', fact: 'f', source: 's', relevance: 1 }], ['POST', '/v1/knowledge/documents', { path: 'console.md', content: 'x' }], ['DELETE', '/v1/knowledge/documents/same'],
      ['POST', '/v1/sessions/same/cancel', {}], ['POST', '/v1/sessions/same/branches', { name: 'console' }], ['POST', '/v1/chat', chatBody('console', '/say x')],
    ];
    for (const [method, path, json] of writes) {
      assert.equal(await as(viewer, method, at(world.id, path), json), '403', `viewer ${path}`);
      assert.equal(await as(foreignOwner, method, at(world.id, path), json), '404', `stranger ${path}`);
    }
    assert.equal(await as(member, 'POST', at(world.id, '/v1/memory'), { session_id: 'console', fact: 'f', source: 's', relevance: 1 }), '201');
    for (const id of [foreign.id, 'dep_00000000000000000000000000', '..', '__proto__']) assert.equal(await as(member, 'GET', at(id, '/v1/sessions')), '404', id);
    assert.equal(await as(viewer, 'GET', at(world.id, '/v1/sessions')), '200');
    const removed = await world.api('DELETE', '/api/organization/members', { token: world.owner.accessToken, json: { orgId: world.org.id, userId: member.userId } });
    assert.ok(removed.status < 300, removed.body);
    for (const path of ['/v1/sessions', '/v1/regulation/state', '/v1/journal/events?stream_id=same']) assert.equal(await as(member, 'GET', at(world.id, path)), '404', path);
  });

  test('attack deployments - a key ends with its rotation and its deployment on both gateways, and no data can be written under it any more [RUN-043] [RUN-045]', async () => {
    const doomed = await world.provision(world.owner, world.org.id, 'Doomed');
    const path = deploymentsRoutes.deployments.path;
    const token = await world.serviceToken({}, doomed);
    const { key } = answered(await world.api('PATCH', path, { token: world.owner.accessToken, json: { orgId: world.org.id, id: doomed.id, action: 'rotate_key' } }), 200, z.looseObject({ key: z.string() }));
    for (const gateway of [0, 1]) {
      assert.equal(outcome(await world.service('GET', '/v1/sessions', { token: doomed.key, gateway })), '401 unauthorized');
      assert.equal(outcome(await world.service('GET', '/v1/sessions', { token: key, gateway })), '200');
    }
    const running = await world.open('POST', '/v1/chat', { token: key, json: chatBody('s', '/slow 50 100') });
    assert.equal(running.statusCode, 200);
    const flood = Array.from({ length: 20 }, (_, n) => append(`s${n % 3}`, [{ kind: 'K', payload: { n, x: randomBytes(100).toString('hex') } }], { token: key }));
    await world.api('DELETE', path, { token: world.owner.accessToken, json: { orgId: world.org.id, id: doomed.id } });
    for (const credential of [key, token]) for (const gateway of [0, 1]) assert.equal(outcome(await world.service('GET', '/v1/sessions', { token: credential, gateway })), '401 unauthorized');
    for (const { status } of await Promise.all(flood)) assert.ok([201, 401, 429, 503].includes(status), String(status));
    // Its stream ends, whole or cut.
    await readUntil(running, ({ event }) => event === 'done').catch(() => undefined);
  });
});
