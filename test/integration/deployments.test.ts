/**
 * Deployments over real HTTP, two daemons and two gateways: the surface of their services, its credentials and errors, what is changed for one
 * process and holds on all, the console's way in, and what is left when one ends.
 */
import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import { connect, type NatsConnection } from 'nats';
import { z } from 'zod';
import { createNatsStores } from '../../actors/runtime/nats/stores.ts';
import { subjectsOf } from '../../actors/runtime/nats/subjects.ts';
import { deploymentRouteList } from '../../contracts/deployment-routes.ts';
import { deployment, type DeploymentRoute } from '../../contracts/deployment.ts';
import { deploymentsRoutes } from '../../contracts/deployments-routes.ts';
import { encodeToken, streams, type ActorAddress } from '../../contracts/subjects.ts';
import { connectAdmin } from '../harness/admin-client.ts';
import { serviceJwt, startDeployment, type Held, type TestDeployment } from '../harness/deployment.ts';
import { refusal } from '../harness/organization.ts';
import { answered, type ApiReply, type Method, type Person } from '../harness/platform.ts';
import { openJournals, type Journals } from '../harness/proof.ts';

const path = deploymentsRoutes.deployments.path;
const rotated = deployment.extend({ key: z.string() });
const envelope = z.strictObject({ error: z.strictObject({ code: z.string(), message: z.string().min(1), details: z.record(z.string(), z.unknown()).optional() }) });
const tokenAnswer = z.object({ access_token: z.string() });

/** Requests that pass their route's schema: the gateway looks at these before it asks the daemon who calls. */
const examples: Readonly<Record<string, { readonly json?: object; readonly query?: string }>> = {
  agent_token: { json: {} }, runtime_chat: { json: { session_id: 's', messages: [{ role: 'user', content: '/say x' }] } },
  runtime_decide: { json: { dispatch_id: 'd', approved: true } }, runtime_cancel: { json: {} },
  journal_append: { json: { stream_id: 's', events: [{ kind: 'K', payload: {} }] } }, journal_events: { query: '?stream_id=s' }, journal_export: { query: '?stream_id=s' },
  knowledge_search: { query: '?q=x' }, knowledge_graph: { query: '?node=x' },
  memory_store: { json: { session_id: 's', fact: 'f', source: 's', relevance: 1 } }, memory_list: { query: '?session_id=s' },
};
/** A path of a route with something in place of its parameters. */
const filled = ({ id, path: route }: DeploymentRoute): string => `${route.replaceAll(/:\w+/g, 'x')}${examples[id]?.query ?? ''}`;

suite('deployments over http', () => {
  let world: TestDeployment;
  let nc: NatsConnection;
  let journals: Journals;
  let admin: Person;
  let member: Person;
  let viewer: Person;
  let stranger: Person;

  before(async () => {
    world = await startDeployment(undefined, {
      daemons: 2, gateways: 2,
      // A credential's bucket of the second gateway is narrow, so that it can be met; tests that are not about it ask little there.
      gateway: (index) => (index === 0 ? {} : { limits: { per_user_capacity: 5, per_user_refill_per_sec: 0.01, per_ip_capacity: 10_000, per_ip_refill_per_sec: 1_000 } }),
    });
    nc = await connect({ servers: world.nats.url });
    journals = await openJournals(world.nats.url);
    [admin, member, viewer, stranger] = [
      await world.signUp('admin@example.com'), await world.signUp('member@example.com'), await world.signUp('viewer@example.com'), await world.signUp('stranger@example.com'),
    ];
    for (const [person, role] of [[admin, 'admin'], [member, 'member'], [viewer, 'viewer']] as const) await world.organizations.join(world.org.id, world.owner, person, role);
  });
  after(async () => {
    await journals.close();
    await nc.close();
    await world.stop();
  });

  const change = (who: Person, action: string, held: Held = world): Promise<ApiReply> =>
    world.api('PATCH', path, { token: who.accessToken, json: { orgId: world.org.id, id: held.id, action } });

  test('deployments - every route of the services takes the key, a service JWT and an agent JWT, and nobody without [RUN-028] [RUN-029] [RUN-030] [ERR-013] [ERR-015]', async () => {
    const service = await world.serviceToken();
    const { access_token: agent } = answered(await world.service('POST', '/v1/agent/token', { json: {} }), 200, tokenAnswer);
    const wrong = {
      'nothing': null, 'another key': `${world.key.slice(0, -6)}aaaaaa`, 'no token': 'x', 'an API key': `trp_sk_${'a'.repeat(26)}_${'b'.repeat(43)}`,
      'an access token': world.owner.accessToken, 'a wrong secret': await serviceJwt('trp_ds_wrong', { aud: world.id }),
      'an end that is over': await world.serviceToken({ exp: Math.floor(Date.now() / 1_000) - 10 }), 'alg none': `${Buffer.from('{"alg":"none"}').toString('base64url')}.${service.split('.')[1] ?? ''}.`,
    };
    let tried = 0;
    for (const route of deploymentRouteList) {
      const method = route.method as Method;
      const { json } = examples[route.id] ?? {};
const query = Object.fromEntries(new URLSearchParams(examples[route.id]?.query ?? ''));
      const passes = (route.body === undefined || route.body.safeParse(json).success) && (route.query === undefined || route.query.safeParse(query).success);
      tried += passes ? 1 : 0;
      if (route.auth.kind === 'none') {
        assert.notEqual((await world.service(method, filled(route), { token: null })).status, 401, route.id);
        continue;
      }
      for (const token of [world.key, service, agent]) {
        const { status, body } = await world.service(method, filled(route), { token, json });
        // No token makes another.
        const refused = route.id === 'agent_token' && token !== world.key ? 403 : 401;
        assert.ok(status !== 401 && (refused === 403 ? status === 403 : status !== 403) && status < 500, `${route.id} ${status} ${body}`);
      }
      for (const [what, token] of Object.entries(wrong)) {
        const reply = await world.service(method, filled(route), { token, json });
        const { code } = envelope.parse(reply.json).error;
        if (!passes && code === 'invalid_argument') continue;
        assert.deepEqual([reply.status, code, reply.headers['www-authenticate']], [401, 'unauthorized', 'Bearer'], `${route.id}: ${what}`);
      }
    }
    assert.ok(tried >= Object.keys(examples).length, `only ${tried} of the requests passed their route's schema`);
  });

  test('deployments - malformed bodies and queries are invalid_argument, unknown paths not_found, too much is payload_too_large: all in the envelope [ERR-013] [ERR-015]', async () => {
    const token = '/v1/agent/token';
    const bad: readonly (readonly [string, Parameters<TestDeployment['service']>[2]])[] = [
      ['no JSON', { body: '{' }], ['an unknown field', { json: { no: 1 } }], ['a wrong type', { json: { ttl_sec: 'long' } }], ['too long', { json: { ttl_sec: 901 } }], ['none', { json: { ttl_sec: 0 } }],
      ['an array', { json: [] }], ['a field twice', { body: '{"ttl_sec":1,"ttl_sec":2}' }], ['another type', { body: 'ttl_sec=5', headers: { 'content-type': 'text/plain' } }], ['no UTF-8', { body: Buffer.from([0x7b, 0xff, 0x7d]) }],
    ];
    for (const [what, call] of bad) {
      const reply = await world.service('POST', token, call);
      assert.deepEqual([reply.status, envelope.parse(reply.json).error.code], [400, 'invalid_argument'], what);
    }
    for (const [method, unknown] of [['GET', '/v1/nothing'], ['POST', '/v1/regulation/state'], ['GET', '/v1/'], ['GET', '/v1/agent/other'], ['DELETE', token]] as const) {
      const reply = await world.service(method, unknown);
      assert.deepEqual([reply.status, envelope.parse(reply.json).error.code], [404, 'not_found'], unknown);
    }
    const large = await world.service('POST', token, { body: `{"ttl_sec":1${' '.repeat(70_000)}}` });
    assert.deepEqual([large.status, envelope.parse(large.json).error.code], [413, 'payload_too_large']);
    // On a listener that serves all surfaces, each path has the errors of its own.
    const shared = await world.api('POST', token, { token: world.key, json: { no: 1 } });
    assert.deepEqual([shared.status, envelope.parse(shared.json).error.code], [400, 'invalid_argument']);
    assert.ok(typeof Object(await world.api('GET', '/v1/agent/other')).json.error === 'string', 'the edge\'s');
  });

  test('deployments - what is not there has a code of its own, with 404, in the envelope [ERR-014] [ERR-013]', async () => {
    assert.equal((await world.service('POST', '/v1/memory', { json: { session_id: 'there', fact: 'f', source: 'test', relevance: 1 } })).status, 201);
    const none = `sha256:${'0'.repeat(64)}`;
    const missing: readonly (readonly [code: string, method: Method, path: string, json?: object])[] = [
      ['session_not_found', 'GET', '/v1/sessions/none/events'], ['session_not_found', 'GET', '/v1/memory?session_id=none'], ['session_not_found', 'POST', '/v1/sessions/none/cancel', {}],
      ['branch_not_found', 'GET', '/v1/sessions/there/events?branch=none'], ['event_not_found', 'POST', '/v1/sessions/there/branches', { name: 'b', at: '01JD0000000000000000000000' }],
      ['blob_not_found', 'GET', `/v1/blobs/${none}`], ['node_not_found', 'GET', '/v1/knowledge/graph?node=none'],
    ];
    for (const [code, method, at, json] of missing) {
      const reply = await world.service(method, at, { json });
      assert.deepEqual([reply.status, envelope.parse(reply.json).error.code], [404, code], at);
    }
  });

  test('deployments - their listener serves nothing but them', async () => {
    for (const elsewhere of ['/api/auth/session', '/healthz', '/', '/v1/agent/sessions', '/custody/challenge']) {
      assert.equal((await world.service('GET', elsewhere, { token: world.owner.accessToken })).status, 404, elsewhere);
    }
  });

  test('deployments - a key\'s bucket refuses it with Retry-After, and guesses use up the address [ERR-015]', async (t) => {
    const narrow = { gateway: 1, json: {} };
    const statuses: number[] = [];
    for (let i = 0; i < 7; i++) statuses.push((await world.service('POST', '/v1/agent/token', narrow)).status);
    assert.deepEqual(statuses, [200, 200, 200, 200, 200, 429, 429]);
    const limited = await world.service('POST', '/v1/agent/token', narrow);
    assert.equal(envelope.parse(limited.json).error.code, 'rate_limited');
    assert.ok(Number(limited.headers['retry-after']) >= 1);
    // JWTs that are made anew for each request share the bucket of the deployment they name at that address.
    const services: number[] = [];
    for (let i = 0; i < 6; i++) services.push((await world.service('GET', '/v1/regulation/state', { gateway: 1, token: await world.serviceToken({ jti: String(i) }), localAddress: '127.0.0.5' })).status);
    assert.deepEqual(services, [200, 200, 200, 200, 200, 429]);
    // Who starts it looks at its health from the usual address: only this one is narrow.
    const operator = await connectAdmin(world.gateways[1]?.adminSocket ?? '');
    t.after(() => operator.close());
    assert.equal(Object(await operator.ask({ op: 'rate_limit_override', kind: 'ip', key: '127.0.0.6', capacity: 8, refill_per_sec: 0.01 })).ok, true);
    const guesses: number[] = [];
    for (let i = 0; i < 9; i++) guesses.push((await world.service('POST', '/v1/agent/token', { ...narrow, token: `${world.key.slice(0, -2)}${String(10 + i)}`, localAddress: '127.0.0.6' })).status);
    assert.deepEqual(guesses, [401, 401, 401, 401, 401, 401, 401, 401, 429]);
    assert.equal((await world.service('POST', '/v1/agent/token', { ...narrow, localAddress: '127.0.0.6' })).status, 429, 'also for who has the key, at that address');
  });

  test('deployments - one deployment\'s credentials reach only its own data [RUN-031]', async () => {
    const two = await world.provision(world.owner, world.org.id, 'Two');
    const { owner, id } = await world.organization();
    const foreign = await world.provision(owner, id);
    const append = (held: Pick<Held, 'key'>, n: number): Promise<ApiReply> => world.service('POST', '/v1/journal/append', { token: held.key, json: { stream_id: 'shared', events: [{ kind: 'Noted', payload: { n } }] } });
    const held: readonly (readonly [Held, number])[] = [[world, 1], [two, 2], [foreign, 3]];
    for (const [one, n] of held) assert.equal((await append(one, n)).status, 201);
    for (const [one, n] of held) {
      for (const token of [one.key, await world.serviceToken({}, one), answered(await world.service('POST', '/v1/agent/token', { token: one.key, json: {} }), 200, tokenAnswer).access_token]) {
        const { events } = z.object({ events: z.array(z.object({ payload: z.object({ n: z.number() }) })) }).parse((await world.service('GET', '/v1/journal/events?stream_id=shared', { token })).json);
        assert.deepEqual(events.map(({ payload }) => payload.n), [n]);
      }
    }
    const mixed = await serviceJwt(two.secret, { aud: world.id });
    assert.equal((await world.service('GET', '/v1/regulation/state', { token: mixed })).status, 401);
  });

  test('deployments - who may not gets 403, who is no member 404; another action 422, and nothing is changed [RUN-038] [RUN-041] [RUN-042] [RUN-044] [RUN-045]', async () => {
    const as = (who: Person, method: Method, json: object): Promise<string> => world.api(method, path, { token: who.accessToken, json: { orgId: world.org.id, ...json } }).then(refusal);
    for (const who of [admin, member, viewer]) assert.equal(await as(who, 'POST', { name: 'New' }), '403 forbidden');
    for (const who of [member, viewer]) assert.equal(await as(who, 'PATCH', { id: world.id, action: 'restart' }), '403 forbidden');
    for (const who of [admin, member, viewer]) assert.equal(await as(who, 'DELETE', { id: world.id }), '403 forbidden');
    for (const [method, json] of [['POST', { name: 'New' }], ['PATCH', { id: world.id, action: 'restart' }], ['DELETE', { id: world.id }]] as const) assert.equal(await as(stranger, method, json), '404 not_found');
    assert.equal(refusal(await world.api('GET', `${path}?orgId=${world.org.id}`, { token: stranger.accessToken })), '404 not_found');
    assert.equal((await world.api('GET', `${path}?orgId=${world.org.id}`)).status, 401);
    for (const action of ['stop', 'RESTART', '', 7, null]) assert.equal(await as(world.owner, 'PATCH', { id: world.id, action }), '422 validation_error');
    assert.equal(await as(world.owner, 'PATCH', { id: world.id }), '422 validation_error');
    assert.equal(await as(world.owner, 'POST', { name: '' }), '422 validation_error');
    const shown = answered(await world.api('GET', `${path}?orgId=${world.org.id}&id=${world.id}`, { token: viewer.accessToken }), 200, deployment);
    assert.equal(shown.updatedAt, world.shown.updatedAt);
    assert.equal((await world.service('GET', '/v1/regulation/state')).status, 200);
  });

  test('deployments - on plan free an owner gets 403 plan_limit with where to change it [BIL-018]', async () => {
    const { owner, id } = await world.organization('free');
    const reply = await world.api('POST', path, { token: owner.accessToken, json: { orgId: id, name: 'New' } });
    assert.equal(refusal(reply), '403 plan_limit');
    assert.deepEqual(Object(reply.json).error.details, { limit: 0, upgradeUrl: '/pricing' });
  });

  test('deployments - a rotated key is over on every process with its answer, and the new one is good on each [RUN-043] [RUN-040]', async () => {
    const held = await world.provision(world.owner, world.org.id, 'Rotated');
    const state = (key: string, gateway: number): Promise<number> => world.service('GET', '/v1/regulation/state', { token: key, gateway, localAddress: '127.0.0.7' }).then(({ status }) => status);
    assert.deepEqual([await state(held.key, 0), await state(held.key, 1)], [200, 200]);
    const { key } = answered(await change(admin, 'rotate_key', held), 200, rotated);
    assert.deepEqual([await state(held.key, 0), await state(held.key, 1)], [401, 401]);
    assert.deepEqual([await state(key, 0), await state(key, 1)], [200, 200]);
    const list = await world.api('GET', `${path}?orgId=${world.org.id}`, { token: world.owner.accessToken });
    assert.ok(!list.body.includes('trp_d'));
    const audit = await world.api('GET', `/api/organization/audit?orgId=${world.org.id}`, { token: world.owner.accessToken });
    for (const action of ['deployment.created', 'deployment.key_rotated']) assert.ok(audit.body.includes(`"${action}"`), action);
  });

  test('deployments - restarted, one begins anew from its journals: nothing is lost, its key is the same [RUN-042]', async () => {
    const held = await world.provision(world.owner, world.org.id, 'Restarted');
    const append = (): Promise<number> => world.service('POST', '/v1/journal/append', { token: held.key, json: { stream_id: 's', events: [{ kind: 'Noted', payload: {} }] } }).then(({ status }) => status);
    assert.equal(await append(), 201);
    const address = { org: world.org.id, type: 'deployment', key: held.id };
    assert.equal((await change(admin, 'restart', held)).status, 200);
    const restarted = await nextEvent(address, 'DeploymentRestarted');
    // Its regulation and its stream were active.
    assert.ok(Number(restarted['activations']) >= 1, JSON.stringify(restarted));
    assert.equal(await append(), 201);
    const { events } = z.object({ events: z.array(z.unknown()) }).parse((await world.service('GET', '/v1/journal/events?stream_id=s', { token: held.key })).json);
    assert.equal(events.length, 2);
  });

  test('deployments - a member sees and writes in the console, a viewer sees, others find nothing; by cookie too, with its proof [RUN-041]', async () => {
    const own = `/api/deployments/${world.id}/v1`;
    const get = (who: Person, at = `${own}/regulation/state`): Promise<ApiReply> => world.api('GET', at, { token: who.accessToken });
    for (const who of [world.owner, member, viewer]) assert.equal((await get(who)).status, 200);
    assert.equal(refusal(await get(stranger)), '404 not_found');
    for (const id of ['dep_01jd0000000000000000000000', 'dep_x', '..', '%00']) assert.equal((await get(world.owner, `/api/deployments/${id}/v1/regulation/state`)).status, 404, id);
    assert.equal((await world.api('GET', `${own}/regulation/state`)).status, 401);
    assert.equal((await world.api('GET', `${own}/regulation/state`, { token: world.key })).status, 401, 'the key is for the services');
    const { key: apiKey } = await world.organizations.key(world.org.id, world.owner);
    assert.equal(refusal(await world.api('GET', `${own}/regulation/state`, { token: apiKey })), '403 forbidden');

    const note = { session_id: 'by-console', fact: 'The sea is salt.', source: 'test', relevance: 0.5 };
    const write = (who: Person | undefined, more: object = {}): Promise<ApiReply> => world.api('POST', `${own}/memory`, { ...(who === undefined ? {} : { token: who.accessToken }), json: note, ...more });
    assert.equal(refusal(await write(viewer)), '403 forbidden');
    assert.equal((await write(member)).status, 201);
    assert.equal(refusal(await write(undefined, { cookie: member.cookie })), '403 forbidden', 'no proof');
    assert.equal((await write(undefined, { cookie: member.cookie, csrf: member.csrf })).status, 201);
    assert.equal(refusal(await write(undefined, { cookie: member.cookie, csrf: member.csrf, headers: { origin: 'https://elsewhere.example' } })), '403 forbidden', 'another site');
    assert.equal((await world.api('GET', `${own}/memory?session_id=by-console`, { cookie: viewer.cookie })).status, 200);
    const malformed = await world.api('POST', `${own}/memory`, { token: member.accessToken, json: {} });
    assert.equal(refusal(malformed), '400 validation_error');
  });

  test('deployments - ended, its credentials are refused on every process with that answer, and nothing of it is left in any stream; others keep theirs [RUN-045]', async () => {
    const held = await world.provision(world.owner, world.org.id, 'Ended');
    const kept = await world.provision(world.owner, world.org.id, 'Kept');
    let base: readonly string[] = [];
    for (const { key } of [kept, held]) {
      base = (await left()).filter((subject) => !subject.includes(held.id));
      assert.equal((await world.service('POST', '/v1/journal/append', { token: key, json: { stream_id: 's', events: [{ kind: 'Noted', payload: {} }] } })).status, 201);
      assert.equal((await world.service('POST', '/v1/memory', { token: key, json: { session_id: 's', fact: 'f', source: 'test', relevance: 1 } })).status, 201);
      assert.equal((await world.service('POST', '/v1/chat', { token: key, json: { session_id: 'talk', messages: [{ role: 'user', content: '/say hi' }] } })).status, 200);
      assert.equal((await world.service('POST', '/v1/sessions/talk/branches', { token: key, json: { name: 'b' } })).status, 201);
      assert.equal((await world.service('POST', '/v1/blobs', { token: key, body: `of ${key.slice(-4)}`, headers: { 'content-type': 'text/plain' } })).status, 201);
    }
    assert.ok((await left()).length >= base.length + 6, 'two sessions and a branch, a stream, a blob, and more');
    const service = await world.serviceToken({}, held);
    assert.equal((await world.api('DELETE', path, { token: world.owner.accessToken, json: { orgId: world.org.id, id: held.id } })).status, 200);
    for (const gateway of [0, 1]) {
      for (const token of [held.key, service]) assert.equal((await world.service('GET', '/v1/regulation/state', { token, gateway, localAddress: '127.0.0.8' })).status, 401);
    }
    await nextEvent({ org: world.org.id, type: 'deployment', key: held.id }, 'DeploymentErased');
    // A snapshot of the one that is kept may be written at any time.
    const lasting = (subjects: readonly string[]): string[] => subjects.filter((subject) => !subject.startsWith('snapshot.')).toSorted();
    const now = await left();
    assert.deepEqual(lasting(now), lasting(base));
    assert.ok(!now.some((subject) => subject.includes(held.id)), now.join(' '));
    assert.equal((await world.service('GET', '/v1/journal/events?stream_id=s', { token: kept.key })).body.includes('Noted'), true);
    const { sessions } = z.object({ sessions: z.array(z.object({ id: z.string(), branch: z.string() })) }).parse((await world.service('GET', '/v1/sessions', { token: kept.key })).json);
    assert.deepEqual(sessions.map(({ id, branch }) => `${id} ${branch}`).toSorted(), ['s main', 'talk b', 'talk main']);
  });

  test('deployments - a deleted organization\'s end with it: credentials at once, data with the rest [RUN-045]', async () => {
    const { owner, id } = await world.organization();
    const held = await world.provision(owner, id);
    assert.equal((await world.service('POST', '/v1/journal/append', { token: held.key, json: { stream_id: 's', events: [{ kind: 'Noted', payload: {} }] } })).status, 201);
    assert.equal((await left(id)).length > 0, true);
    const removed = await world.organizations.call('DELETE', '', owner, { orgId: id });
    assert.equal(removed.status, 200, removed.body);
    await nextEvent({ org: id, type: 'deployment', key: held.id }, 'DeprovisionRequested');
    for (const gateway of [0, 1]) assert.equal((await world.service('GET', '/v1/regulation/state', { token: held.key, gateway, localAddress: '127.0.0.10' })).status, 401);
    await nextEvent({ org: id, type: 'organization', key: id }, 'Erased');
    assert.deepEqual(await left(id), []);
  });

  /** Subjects of the organization that any stream still holds, as far as they are a deployment's business. */
  const left = async (of = world.org.id): Promise<string[]> => {
    const { lean } = createNatsStores(nc, { partitions: 64, journalStreams: 1, replicas: 1 });
    const found: string[] = [];
    const org = encodeToken(of);
    for (const type of ['session', 'agent', 'stream', 'knowledge', 'regulation']) {
      for await (const subject of subjectsOf(lean, streams.journal(0, 1), `journal.*.${org}.${type}.*`)) found.push(subject);
      for await (const subject of subjectsOf(lean, streams.snapshot, `snapshot.*.${org}.${type}.*`)) found.push(subject);
    }
    for await (const subject of subjectsOf(lean, 'OBJ_blobs', `$O.blobs.C.${org}.>`)) found.push(subject);
    return found;
  };

  /** The payload of the actor's latest event of a kind, as soon as there is one. */
  const nextEvent = async (address: ActorAddress, kind: string): Promise<Readonly<Record<string, unknown>>> =>
    (await journals.until(address, (events) => events.some(({ k }) => k === kind))).findLast(({ k }) => k === kind)?.d ?? {};
});
