/**
 * The edge for people of the platform: what a gateway token opens, and that it shuts with the login or the membership behind it, streams
 * included, through every gateway and daemon. One platform for all tests here.
 */
import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import { WebSocket } from 'ws';
import { z } from 'zod';
import { tokenAnswer } from '../../contracts/auth-routes.ts';
import { chatSession } from '../../contracts/session.ts';
import { organizationClient, type OrganizationClient } from '../harness/organization.ts';
import { answered, startPlatform, type ApiReply, type Person, type TestPlatform } from '../harness/platform.ts';

const edgeError = z.object({ error: z.string() });

interface Line {
  readonly closed: Promise<{ readonly code: number; readonly reason: string }>;
  /** Resolves with the first frame of that kind that comes after this call. */
  next(kind: string): Promise<void>;
  say(value: unknown): void;
}

suite('accounts on the edge', { timeout: 240_000 }, () => {
  let platform: TestPlatform;
  let organizations: OrganizationClient;
  let owner: Person;
  const sockets: WebSocket[] = [];
  before(async () => {
    platform = await startPlatform(undefined, { gateways: 2, daemons: 2, gateway: { auth: { platform: true } } });
    organizations = organizationClient(platform);
    owner = await platform.signUp('owner@example.com');
  });
  after(async () => {
    for (const socket of sockets) socket.terminate();
    await platform.stop();
  });

  const gatewayToken = async (token: string, orgId?: string): Promise<string> =>
    answered(await platform.api('POST', '/api/auth/gateway-token', { token, json: orgId === undefined ? {} : { orgId } }), 200, tokenAnswer).access_token;
  const createSession = (token: string, userId: string, gateway = 0): Promise<ApiReply> =>
    platform.api('POST', '/v1/agent/create_session', { token, json: { user_id: userId, project_id: 'p' }, gateway });
  const refused = (reply: ApiReply): string => `${reply.status} ${edgeError.parse(reply.json).error}`;
  const sidOf = async (token: string, userId: string): Promise<string> => answered(await createSession(token, userId), 201, chatSession).sid;

  /** An open stream: it has answered a ping. */
  const open = async (token: string, sid: string, gateway = 0): Promise<Line> => {
    const socket = new WebSocket(`${platform.gateways[gateway]?.wsUrl}/v1/agent/stream?sid=${sid}&last_seq_no=0`, ['troupe.v1', `bearer.${token}`], { ca: platform.ca });
    sockets.push(socket);
    const waiting: { readonly kind: string; readonly done: () => void }[] = [];
    socket.on('message', (data: Buffer) => {
      const frame = z.object({ kind: z.string(), agent_kind: z.string().optional() }).parse(JSON.parse(data.toString('utf8')));
      for (const wait of waiting) if (wait.kind === (frame.agent_kind ?? frame.kind)) wait.done();
    });
    const closed = new Promise<{ code: number; reason: string }>((resolve, reject) => {
      socket.on('close', (code, reason) => resolve({ code, reason: reason.toString('utf8') }));
      socket.on('error', reject);
    });
    const line: Line = {
      closed,
      next: (kind) => Promise.race([new Promise<void>((done) => { waiting.push({ kind, done }); }), closed.then((end) => { throw new Error(`closed with ${end.code} ${end.reason}`); })]),
      say: (value) => socket.send(JSON.stringify(value)),
    };
    await new Promise((resolve) => { socket.on('open', resolve); });
    return line;
  };
  /** A turn on it: the daemon has it attached. */
  const chat = async (line: Line, content: string): Promise<void> => {
    const finished = line.next('FINISH');
    line.say({ kind: 'send_message', content });
    await finished;
  };

  test('accounts on the edge - a gateway token opens sessions and streams of the person\'s own workspace; an access token does not [TOK-046]', async () => {
    const token = await gatewayToken(owner.accessToken);
    const sid = await sidOf(token, owner.userId);
    for (const gateway of [0, 1]) await chat(await open(token, sid, gateway), 'hello');
    assert.equal(refused(await createSession(owner.accessToken, owner.userId)), '403 wrong_audience');
    assert.equal(refused(await createSession(token, 'usr_01jd0000000000000000000000')), '403 user_id_mismatch');
  });

  test('accounts on the edge - a removed member loses requests and open streams at once, on every gateway; their own workspace stays [ORG-052]', async () => {
    const { id: orgId } = await organizations.create(owner);
    const member = await platform.signUp('member@example.com');
    await organizations.join(orgId, owner, member, 'member');
    const token = await gatewayToken(member.accessToken, orgId);
    const own = await gatewayToken(member.accessToken);
    const sid = await sidOf(token, member.userId);
    const ownSid = await sidOf(own, member.userId);
    const lines = await Promise.all([open(token, sid, 0), open(token, sid, 1)]);
    const ownLine = await open(own, ownSid, 1);
    for (const line of [...lines, ownLine]) await chat(line, 'hello');
    const removed = await organizations.call('DELETE', '/members', owner, { orgId, userId: member.userId });
    assert.equal(removed.status, 200, removed.body);
    for (const line of lines) assert.deepEqual(await line.closed, { code: 1008, reason: 'policy_violation:token_expired' });
    for (const gateway of [0, 1]) assert.equal(refused(await createSession(token, member.userId, gateway)), '401 unauthorized');
    assert.deepEqual(await (await open(token, sid)).closed, { code: 1008, reason: 'policy_violation:token_expired' });
    await chat(ownLine, 'still here');
    assert.equal((await platform.api('POST', '/api/auth/gateway-token', { token: member.accessToken, json: { orgId } })).status, 404);
  });

  test('accounts on the edge - when a login ends, its requests and streams end with it; those of another login stay [TOK-031] [TOK-033]', async () => {
    const first = await platform.signUp('two-logins@example.com');
    const second = await platform.signUp('two-logins@example.com');
    assert.equal(first.userId, second.userId);
    const [one, two] = [await gatewayToken(first.accessToken), await gatewayToken(second.accessToken)];
    const sid = await sidOf(one, first.userId);
    const lineOne = await open(one, sid, 0);
    const lineTwo = await open(two, sid, 1);
    for (const line of [lineOne, lineTwo]) await chat(line, 'hello');
    assert.equal((await platform.api('POST', '/api/auth/signout', { cookie: first.cookie, csrf: first.csrf, json: {} })).status, 200);
    assert.equal((await lineOne.closed).code, 1008);
    assert.equal(refused(await createSession(one, first.userId, 1)), '401 unauthorized');
    await chat(lineTwo, 'still here');
    assert.equal((await platform.api('POST', '/api/auth/revoke', { token: second.accessToken, json: { all: true } })).status, 200);
    assert.equal((await lineTwo.closed).code, 1008);
  });

  test('accounts on the edge - a revoked access token ends what was made with it: gateway tokens, capabilities, open streams; those of other tokens stay [TOK-031]', async () => {
    const person = await platform.signUp('one-token@example.com');
    const pair = z.object({ token: z.string(), refresh_token: z.string() });
    const made = async (): Promise<string> => answered(await platform.api('POST', '/api/auth/api-token', { cookie: person.cookie, csrf: person.csrf, json: {} }), 200, pair).token;
    const [stolen, kept] = [await made(), await made()];
    const [one, two] = [await gatewayToken(stolen), await gatewayToken(kept)];
    const sid = await sidOf(one, person.userId);
    const capability = answered(await platform.api('POST', '/troupe/v1/auth/bootstrap', { token: one, json: { user_id: person.userId } }), 200, tokenAnswer.partial().loose()).access_token ?? '';
    const custody = (gateway: number): Promise<ApiReply> => platform.api('POST', '/custody/get_auth_pubkey', { token: capability, json: { user_id: person.userId }, gateway });
    assert.equal((await custody(0)).status, 200);
    const lineOne = await open(one, sid, 0);
    const lineTwo = await open(two, sid, 1);
    for (const line of [lineOne, lineTwo]) await chat(line, 'hello');
    assert.equal((await platform.api('POST', '/api/auth/revoke', { token: kept, json: { token: stolen } })).status, 200);
    assert.deepEqual(await lineOne.closed, { code: 1008, reason: 'policy_violation:token_expired' });
    for (const gateway of [0, 1]) {
      assert.equal(refused(await createSession(one, person.userId, gateway)), '401 unauthorized');
      assert.equal(refused(await custody(gateway)), '401 unauthorized');
    }
    assert.deepEqual(await (await open(one, sid, 1)).closed, { code: 1008, reason: 'policy_violation:token_expired' });
    await chat(lineTwo, 'still here');
  });

  test('accounts on the edge - a viewer starts no chat in the organization; one who becomes a viewer may go on reading only [RBAC-007] [RBAC-019]', async () => {
    const { id: orgId } = await organizations.create(owner);
    const viewer = await platform.signUp('viewer@example.com');
    await organizations.join(orgId, owner, viewer, 'viewer');
    const token = await gatewayToken(viewer.accessToken, orgId);
    assert.equal(refused(await createSession(token, viewer.userId)), '403 forbidden');
    const set = async (role: string): Promise<void> => {
      const reply = await organizations.call('PATCH', '/members', owner, { orgId, userId: viewer.userId, role });
      assert.equal(reply.status, 200, reply.body);
    };
    await set('member');
    const sid = await sidOf(token, viewer.userId);
    const line = await open(token, sid);
    await chat(line, 'hello');
    await set('viewer');
    line.say({ kind: 'send_message', content: 'no more' });
    assert.equal((await line.closed).code, 1008);
    const reading = await open(token, sid, 1);
    await reading.next('FINISH');
  });

  test('accounts on the edge - a deleted organization ends every stream of its members', async () => {
    const { id: orgId } = await organizations.create(owner);
    const token = await gatewayToken(owner.accessToken, orgId);
    const line = await open(token, await sidOf(token, owner.userId), 1);
    await chat(line, 'hello');
    const deleted = await organizations.call('DELETE', '', owner, { orgId });
    assert.ok(deleted.status < 300, deleted.body);
    assert.equal((await line.closed).code, 1008);
    assert.equal(refused(await createSession(token, owner.userId)), '401 unauthorized');
  });
});
