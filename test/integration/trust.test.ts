/**
 * Trust over HTTP: scores, verifications by mail, sign-in provider and DNS, certifications (interface 2.8-2.10, 4.4). One platform for all
 * tests here, with a real name server and Google as `emulate` plays it.
 */
import assert from 'node:assert/strict';
import { writeFile, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, suite, test } from 'node:test';
import { WebSocket } from 'ws';
import { z } from 'zod';
import { authRoutes, tokenAnswer } from '../../contracts/auth-routes.ts';
import { limits } from '../../contracts/limits.ts';
import { cookieNames } from '../../contracts/platform.ts';
import { chatSession } from '../../contracts/session.ts';
import { agentScore, certificationAnswer, certificationShown, userScore, verifyAnswer } from '../../contracts/trust.ts';
import { freePort } from '../harness/port.ts';
import { startTxtServer, type TxtServer } from '../harness/dns.ts';
import { consent, googleClient, startGoogle } from '../harness/oauth.ts';
import { organizationClient, refusal, type OrganizationClient } from '../harness/organization.ts';
import { answered, cookieOf, startPlatform, type ApiReply, type Person, type TestPlatform } from '../harness/platform.ts';

type UserScore = z.output<typeof userScore>;
const newUserId = 'usr_01jd0000000000000000000000';

suite('trust', { timeout: 240_000 }, () => {
  let platform: TestPlatform;
  let organizations: OrganizationClient;
  let dns: TxtServer;
  let ann: Person;
  let staff: Person;
  const ends: (() => Promise<void>)[] = [];

  before(async () => {
    const port = await freePort();
    const folder = await mkdtemp(join(tmpdir(), 'troupe-trust-'));
    ends.push(() => rm(folder, { recursive: true, force: true }));
    const secretPath = join(folder, 'google.secret');
    await writeFile(secretPath, googleClient.secret, { mode: 0o600 });
    const google = await startGoogle({ after: (end) => void ends.push(end) }, `https://localhost:${port}`, [{ email: 'gail@example.com', name: 'Gail' }]);
    dns = await startTxtServer();
    ends.push(() => dns.stop());
    platform = await startPlatform(undefined, {
      port, gateway: { auth: { platform: true } },
      daemon: {
        trust: { name_servers: [dns.address] },
        models: { default: 'mock', registry: [{ id: 'mock', provider: 'mock', output_usd_per_mtok: 10_000 }] },
        platform: { staff: ['staff@example.com'], google: { issuer: google.url, client_id: googleClient.id, client_secret_path: secretPath, allow_insecure: true } },
      },
    });
    ends.push(() => platform.stop());
    organizations = organizationClient(platform);
    [ann, staff] = await Promise.all([platform.signUp('ann@example.com'), platform.signUp('staff@example.com')]);
  });
  after(async () => {
    for (const end of ends.toReversed()) await end();
  });

  const get = (who: Pick<Person, 'accessToken'> | string, query: Readonly<Record<string, string>> = {}): Promise<ApiReply> => {
    const text = new URLSearchParams(query).toString();
    return platform.api('GET', `/api/trust/score${text === '' ? '' : `?${text}`}`, { token: typeof who === 'string' ? who : who.accessToken });
  };
  const scoreOf = async (who: Person, userId?: string): Promise<UserScore> => answered(await get(who, userId === undefined ? {} : { userId }), 200, userScore);
  const post = (who: Pick<Person, 'accessToken'> | string, path: string, json: unknown): Promise<ApiReply> =>
    platform.api('POST', `/api/trust/${path}`, { token: typeof who === 'string' ? who : who.accessToken, json });
  const verify = async (who: Pick<Person, 'accessToken'>, json: unknown): Promise<z.output<typeof verifyAnswer>> => answered(await post(who, 'verify', json), 200, verifyAnswer);
  const certify = async (who: Person, entityType: string, entityId: string): Promise<z.output<typeof certificationAnswer>> =>
    answered(await post(who, 'certify', { entityType, entityId, certType: 'platform-partner', evidence: { website: 'https://acme.example', description: 'us' } }), 200, certificationAnswer);

  /** An organization with its owner, an admin, a member, a viewer. */
  const founded = async (name: string): Promise<{ readonly orgId: string; readonly people: Readonly<Record<'owner' | 'admin' | 'member' | 'viewer', Person>> }> => {
    const [owner, admin, member, viewer] = await Promise.all([`owner-${name}`, `admin-${name}`, `member-${name}`, `viewer-${name}`].map((who) => platform.signUp(`${who}@example.com`))) as [Person, Person, Person, Person];
    const { id: orgId } = await organizations.create(owner);
    await organizations.join(orgId, owner, admin, 'admin');
    await organizations.join(orgId, owner, member, 'member');
    await organizations.join(orgId, owner, viewer, 'viewer');
    return { orgId, people: { owner, admin, member, viewer } };
  };

  /** A person who signs in with Google. */
  const gail = async (): Promise<Person> => {
    const begun = await platform.api('GET', authRoutes.googleStart.path);
    const back = await consent(begun.headers.location ?? '', 'gail@example.com');
    const reply = await platform.api('GET', `${back.pathname}${back.search}`, { headers: { cookie: `${cookieNames.signin}=${cookieOf(begun, cookieNames.signin) ?? ''}` } });
    const cookie = cookieOf(reply, cookieNames.session) ?? '';
    const { user, csrf } = answered(await platform.api('GET', authRoutes.session.path, { cookie }), 200, z.object({ user: z.object({ id: z.string() }), csrf: z.string() }));
    const { access_token: accessToken } = answered(await platform.api('POST', authRoutes.sessionToken.path, { cookie, csrf, json: {} }), 200, tokenAnswer);
    return { email: 'gail@example.com', userId: user.id, cookie, csrf, accessToken };
  };

  /** An agent that has had these turns in a person's chat, for an organization or for themselves; gives its id. */
  const agent = async (who: Person, orgId: string | undefined, turns: readonly string[]): Promise<string> => {
    const token = answered(await platform.api('POST', '/api/auth/gateway-token', { token: who.accessToken, json: orgId === undefined ? {} : { orgId } }), 200, tokenAnswer).access_token;
    const made = answered(await platform.api('POST', '/v1/agent/create_session', { token, json: { user_id: who.userId, project_id: 'p' } }), 201, chatSession);
    const socket = new WebSocket(`${platform.wsUrl}/v1/agent/stream?sid=${made.sid}&last_seq_no=0`, ['troupe.v1', `bearer.${token}`], { ca: platform.ca });
    const frame = z.object({ agent_kind: z.string().optional() });
    try {
      await new Promise((resolve, reject) => {
        socket.on('open', resolve);
        socket.on('error', reject);
      });
      for (const content of turns) {
        const ended = new Promise<void>((resolve, reject) => {
          socket.on('message', (data: Buffer) => {
            if (['FINISH', 'ERROR'].includes(frame.parse(JSON.parse(data.toString('utf8'))).agent_kind ?? '')) resolve();
          });
          socket.on('close', () => reject(new Error('the stream closed')));
        });
        socket.send(JSON.stringify({ kind: 'send_message', content }));
        await ended;
        socket.removeAllListeners('message');
        socket.removeAllListeners('close');
      }
    } finally {
      socket.terminate();
    }
    return made.agent_id;
  };

  test('trust - a person\'s own score: id, factors and score from 0 to 1, level, ISO time; the score is a quarter of the sum [TRU-001] [TRU-002] [TRU-005] [TRU-006]', async () => {
    const before = Date.now();
    const own = await scoreOf(ann);
    assert.equal(own.userId, ann.userId);
    assert.deepEqual(own.factors, { identity: 0.5, history: 0.1264, reputation: 0.5, economic: 0 });
    assert.ok(Math.abs(own.score - 0.25 * (0.5 + 0.1264 + 0.5)) < 1e-9);
    assert.equal(own.level, 'unverified');
    assert.ok(Date.parse(own.updatedAt) >= before && Date.parse(own.updatedAt) <= Date.now());
  });

  test('trust - every endpoint wants a valid bearer [TRU-033]', async () => {
    for (const token of [{}, { token: 'nonsense' }, { token: `${ann.accessToken.slice(0, -4)}AAAA` }]) {
      const calls = [
        platform.api('GET', '/api/trust/score', token), platform.api('POST', '/api/trust/verify', { ...token, json: { type: 'oauth' } }),
        platform.api('POST', '/api/trust/certify', { ...token, json: { entityType: 'organization', entityId: 'org_x', certType: 'platform-partner', evidence: {} } }),
        platform.api('GET', '/api/trust/certify/crt_x', token), platform.api('POST', '/api/trust/certify/crt_x/decision', { ...token, json: { decision: 'approved' } }),
      ];
      for (const reply of await Promise.all(calls)) assert.equal(refusal(reply), '401 unauthorized');
    }
  });

  test('trust - another\'s score is for admins and owners of an organization with that person, at that moment; ids of nobody are not found [TRU-015] [TRU-016] [TRU-017]', async () => {
    const { orgId, people } = await founded('access');
    const { owner, admin, member, viewer } = people;
    for (const who of [owner, admin]) for (const whose of [member, viewer, owner]) assert.equal((await scoreOf(who, whose.userId)).userId, whose.userId);
    for (const who of [member, viewer, ann]) assert.equal(refusal(await get(who, { userId: owner.userId })), '403 forbidden');
    assert.equal(refusal(await get(owner, { userId: ann.userId })), '403 forbidden', 'not in the organization');
    assert.equal((await scoreOf(member, member.userId)).userId, member.userId, 'one\'s own by its id');
    for (const userId of [newUserId, 'usr_x', 'x', '../x']) for (const who of [owner, member]) assert.equal(refusal(await get(who, { userId })), '404 not_found');
    for (const agentId of ['agent-x', 'x', newUserId]) assert.equal(refusal(await get(owner, { agentId })), '404 not_found');
    // The token is the same: what counts is the role of now.
    await organizations.call('PATCH', '/members', owner, { orgId, userId: admin.userId, role: 'member' });
    assert.equal(refusal(await get(admin, { userId: member.userId })), '403 forbidden');
    await organizations.call('DELETE', '/members', owner, { orgId, userId: member.userId });
    assert.equal(refusal(await get(owner, { userId: member.userId })), '403 forbidden');
    await organizations.call('DELETE', '', owner, { orgId });
    assert.equal(refusal(await get(owner, { userId: viewer.userId })), '403 forbidden');
  });

  test('trust - an API key has no score and verifies nothing', async () => {
    const { id: orgId } = await organizations.create(ann);
    const { key } = await organizations.key(orgId, ann);
    assert.equal(refusal(await get(key)), '403 forbidden');
    assert.equal(refusal(await get(key, { userId: ann.userId })), '403 forbidden');
    assert.equal(refusal(await post(key, 'verify', { type: 'oauth' })), '403 forbidden');
  });

  test('trust - a malformed question is 422 validation_error [TRU-032] [TRU-035] [TRU-036] [TRU-038]', async () => {
    const good = { entityType: 'organization', entityId: 'org_x', certType: 'platform-partner', evidence: {} };
    const { evidence: _evidence, ...without } = good;
    for (const [path, body] of [
      ['verify', {}], ['verify', { type: 'phone' }], ['verify', { type: 'email' }], ['verify', { type: 'domain' }], ['verify', { type: 'domain_confirm' }], ['verify', { type: 'domain', domain: '192.0.2.1' }],
      ['certify', {}], ['certify', without], ['certify', { ...good, entityType: 'user' }], ['certify', { ...good, certType: 'best' }], ['certify', { ...good, evidence: 'text' }], ['certify', { ...good, evidence: [] }],
      ['certify', { ...good, evidence: { description: 'x'.repeat(limits.certificationEvidenceMaxBytes) } }], ['certify', { ...good, entityId: 7 }],
    ] as const) assert.equal(refusal(await post(ann, path, body)), '422 validation_error', `${path} ${JSON.stringify(body).slice(0, 80)}`);
    assert.equal(refusal(await get(ann, { userId: ann.userId, agentId: 'agent-x' })), '422 validation_error');
    assert.equal(refusal(await get(ann, { who: 'me' })), '422 validation_error');
  });

  test('trust - signing up by e-mail verifies the address; with Google the mailed code does, once, and a wrong one does not [TRU-007] [TRU-025] [TRU-026] [TRU-027] [TRU-010] [TRU-024]', async () => {
    assert.deepEqual(await verify(ann, { type: 'oauth' }), { verified: false, type: 'oauth', newScore: (await scoreOf(ann)).score });
    const person = await gail();
    assert.equal((await scoreOf(person)).factors.identity, 0.7);
    const oauth = await verify(person, { type: 'oauth' });
    assert.deepEqual([oauth.verified, oauth.newScore], [true, (await scoreOf(person)).score]);
    const { subject, text } = await platform.outbox.next(person.email);
    assert.match(subject, /Verify your address/);
    const code = /(?<!\d)\d{8}(?!\d)/.exec(text)?.[0] ?? '';
    const wrong = code === '00000000' ? '00000001' : '00000000';
    for (const token of [wrong, 'no code', code.slice(1)]) assert.equal((await verify(person, { type: 'email', token })).verified, false);
    assert.equal((await verify(ann, { type: 'email', token: code })).verified, false, 'another person\'s');
    assert.equal((await scoreOf(person)).factors.identity, 0.7);
    const right = await verify(person, { type: 'email', token: ` ${code}\n` });
    const now = await scoreOf(person);
    assert.deepEqual(right, { verified: true, type: 'email', newScore: now.score });
    assert.equal(now.factors.identity, 1);
    assert.deepEqual(await verify(person, { type: 'email', token: code }), { verified: false, type: 'email', newScore: now.score }, 'it is used up');
    // Again, with a new code of the sign-in page: verified, and worth nothing more.
    const again = await platform.signInCode(ann.email);
    const { score } = await scoreOf(ann);
    assert.deepEqual(await verify(ann, { type: 'email', token: again }), { verified: true, type: 'email', newScore: score });
  });

  test('trust - a domain is verified by its record at the configured name server, by the value of this account and domain alone [TRU-008] [TRU-028] [TRU-029] [TRU-030] [TRU-031] [TRU-024] [TRU-010]', async () => {
    const owner = await platform.signUp('owner@acme.example');
    const { score } = await scoreOf(owner);
    const asked = await verify(owner, { type: 'domain', domain: 'Acme.Example' });
    const { txtRecord } = asked;
    assert.ok(txtRecord !== undefined);
    assert.deepEqual(asked, { verified: false, type: 'domain', txtRecord, newScore: score });
    assert.equal(txtRecord.name, '_troupe.acme.example');
    assert.match(txtRecord.value, /^troupe-domain=[\w-]{43}$/);
    assert.deepEqual((await verify(owner, { type: 'domain', domain: 'acme.example' })).txtRecord, txtRecord, 'asked again, the same');
    const others = await verify(ann, { type: 'domain', domain: 'acme.example' });
    const elsewhere = await verify(owner, { type: 'domain', domain: 'other.example' });
    assert.equal(new Set([txtRecord.value, others.txtRecord?.value, elsewhere.txtRecord?.value]).size, 3);

    const confirm = (domain: string): Promise<z.output<typeof verifyAnswer>> => verify(owner, { type: 'domain_confirm', domain });
    const refused = { verified: false, type: 'domain_confirm', newScore: score };
    assert.deepEqual(await confirm('acme.example'), refused, 'no record');
    dns.zone = () => [[others.txtRecord?.value ?? ''], [elsewhere.txtRecord?.value ?? ''], ['v=spf1 -all']];
    assert.deepEqual(await confirm('acme.example'), refused, 'other values');
    dns.zone = () => 'servfail';
    assert.deepEqual(await confirm('acme.example'), refused, 'no answer');
    const before = dns.asked.length;
    assert.deepEqual(await confirm('never-wanted.example'), refused);
    assert.equal(dns.asked.length, before, 'nothing is asked about a domain nobody wanted');
    assert.equal((await scoreOf(owner)).factors.identity, 0.5);

    dns.zone = (name) => (name === txtRecord.name ? [['v=spf1 -all'], [txtRecord.value]] : 'nxdomain');
    const confirmed = await confirm('acme.example');
    const now = await scoreOf(owner);
    assert.deepEqual(confirmed, { verified: true, type: 'domain_confirm', newScore: now.score });
    assert.equal(now.factors.identity, 1);
    assert.ok(now.score > score);
    assert.equal(dns.asked.at(-1), '_troupe.acme.example TXT');
    assert.deepEqual(await confirm('acme.example'), confirmed, 'again: no second boost');
    assert.equal((await scoreOf(ann)).factors.identity, 0.5);
    dns.zone = () => 'nxdomain';
  });

  test('trust - economic grows with credits used and with a wallet in custody [TRU-014]', async () => {
    const person = await platform.signUp('spender@example.com');
    assert.equal((await scoreOf(person)).factors.economic, 0);
    await agent(person, undefined, ['/long 20']);
    // The usage that was metered is in the rows when this has answered.
    assert.equal((await platform.api('GET', '/api/usage', { token: person.accessToken })).status, 200);
    const reached = await scoreOf(person);
    assert.ok(reached.factors.economic > 0);
    const token = answered(await platform.api('POST', '/api/auth/gateway-token', { token: person.accessToken, json: {} }), 200, tokenAnswer).access_token;
    const bootstrap = answered(await platform.api('POST', '/troupe/v1/auth/bootstrap', { token, json: { user_id: person.userId } }), 200, z.looseObject({ access_token: z.string() }));
    const pubkey = await platform.api('POST', '/custody/get_wallet_pubkey', { token: bootstrap.access_token, json: { user_id: person.userId } });
    assert.equal(pubkey.status, 200, pubkey.body);
    assert.ok(Math.abs((await scoreOf(person)).factors.economic - reached.factors.economic - 0.2) < 1e-9);
  });

  test('trust - an agent\'s score shows its organization and follows its turns and its owner\'s level; anybody may see it [TRU-018] [TRU-019] [TRU-020] [TRU-021] [TRU-022]', async () => {
    const { orgId, people } = await founded('agents');
    const read = async (who: Person | string, agentId: string): Promise<z.output<typeof agentScore>> => answered(await get(who, { agentId }), 200, agentScore);
    const idle = await agent(people.member, orgId, []);
    const steady = await agent(people.member, orgId, ['hello', 'hello again', '/say once more']);
    const failing = await agent(people.member, orgId, ['hello', '/fail', '/fail']);
    const [none, good, bad] = await Promise.all([idle, steady, failing].map((id) => read(ann, id))) as [z.output<typeof agentScore>, z.output<typeof agentScore>, z.output<typeof agentScore>];
    assert.deepEqual([none.agentId, none.deployedBy], [idle, orgId]);
    assert.ok(Math.abs(good.score - (0.2 * good.factors.identity + 0.3 * good.factors.history + 0.3 * good.factors.reputation + 0.2 * good.factors.economic)) < 1e-6);
    assert.deepEqual([none.factors.reputation, good.factors.reputation, bad.factors.reputation], [0.5, 0.7143, 0.4286], 'completed: none of 0, 3 of 3, 1 of 3');
    assert.ok(good.factors.history > none.factors.history && bad.factors.history > 0);
    assert.ok(Math.abs(bad.factors.history - good.factors.history / 3) < 0.0001, 'two of three turns failed');
    assert.equal(good.factors.identity, 0.2, 'the owner is unverified');
    const { key } = await organizations.key(orgId, people.owner);
    assert.equal((await read(key, steady)).deployedBy, orgId);

    // The owner proves a domain: 0.25 * (1 + 0.1264 + 0.5) is basic.
    const { txtRecord } = await verify(people.owner, { type: 'domain', domain: 'agents.example' });
    dns.zone = () => [[txtRecord?.value ?? '']];
    await verify(people.owner, { type: 'domain_confirm', domain: 'agents.example' });
    dns.zone = () => 'nxdomain';
    assert.equal((await scoreOf(people.owner)).level, 'basic');
    assert.equal((await read(ann, steady)).factors.identity, 0.5);
  });

  test('trust - an agent of a personal workspace is its owner\'s alone, and cannot be certified [TRU-017]', async () => {
    const mine = await agent(ann, undefined, ['hello']);
    assert.equal(answered(await get(ann, { agentId: mine }), 200, agentScore).deployedBy, `u-${ann.userId}`);
    assert.equal(refusal(await get(staff, { agentId: mine })), '404 not_found');
    assert.equal(refusal(await post(ann, 'certify', { entityType: 'agent', entityId: mine, certType: 'agent-operator', evidence: {} })), '404 not_found');
  });

  test('certify - for admins and owners of the organization or of the agent\'s; pending, reviewed in 7 days, evidence kept [TRU-034] [TRU-035] [TRU-036] [TRU-037] [TRU-038] [TRU-039] [TRU-042] [TRU-043]', async () => {
    const { orgId, people } = await founded('certify');
    const deployed = await agent(people.member, orgId, ['hello']);
    for (const [entityType, entityId] of [['organization', orgId], ['agent', deployed]] as const) {
      for (const [who, certType] of [[people.owner, 'platform-partner'], [people.admin, 'security-reviewed'], [people.admin, 'agent-operator']] as const) {
        const before = Date.now();
        const evidence = { website: 'https://acme.example', description: 'ours', more: { list: [1] } };
        const made = answered(await post(who, 'certify', { entityType, entityId, certType, evidence }), 200, certificationAnswer);
        assert.equal(made.status, 'pending');
        const submittedAt = Date.parse(made.estimatedReview) - 7 * 86_400_000;
        assert.ok(submittedAt >= before && submittedAt <= Date.now());
        const read = await platform.api('GET', `/api/trust/certify/${made.certificationId}`, { token: who.accessToken });
        assert.deepEqual(answered(read, 200, certificationShown), { ...made, entityType, entityId, certType, evidence });
      }
      const body = { entityType, entityId, certType: 'platform-partner', evidence: {} };
      for (const who of [people.member, people.viewer]) assert.equal(refusal(await post(who, 'certify', body)), '403 forbidden');
      for (const who of [ann, staff]) assert.equal(refusal(await post(who, 'certify', body)), '404 not_found');
    }
    for (const [entityType, entityId] of [['organization', 'org_01jd0000000000000000000000'], ['organization', 'x'], ['agent', 'agent-x'], ['organization', deployed], ['agent', orgId]] as const) {
      assert.equal(refusal(await post(people.owner, 'certify', { entityType, entityId, certType: 'platform-partner', evidence: {} })), '404 not_found');
    }
    const { certificationId } = await certify(people.owner, 'organization', orgId);
    const at = `/api/trust/certify/${certificationId}`;
    assert.equal(refusal(await platform.api('GET', at, { token: people.member.accessToken })), '403 forbidden');
    assert.equal(refusal(await platform.api('GET', at, { token: ann.accessToken })), '404 not_found');
    assert.equal((await platform.api('GET', at, { token: staff.accessToken })).status, 200);
  });

  test('certify - staff alone decides, and only along the moves there are; each is in the audit log [TRU-040] [TRU-041] [TRU-034]', async () => {
    const { orgId, people } = await founded('decide');
    const { key } = await organizations.key(orgId, people.owner);
    const decide = (who: Person | string, id: string, decision: string): Promise<ApiReply> => post(who, `certify/${id}/decision`, { decision });
    const first = await certify(people.owner, 'organization', orgId);
    for (const who of [people.owner, people.admin, ann, key]) assert.equal(refusal(await decide(who, first.certificationId, 'approved')), '403 forbidden');
    assert.equal(refusal(await decide(staff, first.certificationId, 'revoked')), '409 conflict');
    for (const decision of ['pending', 'maybe']) assert.equal(refusal(await decide(staff, first.certificationId, decision)), '422 validation_error');
    for (const id of ['crt_01jd0000000000000000000000', 'x', '%2e%2e']) assert.equal(refusal(await decide(staff, id, 'approved')), '404 not_found');
    assert.deepEqual(answered(await decide(staff, first.certificationId, 'approved'), 200, certificationAnswer), { ...first, status: 'approved' });
    assert.equal(refusal(await decide(staff, first.certificationId, 'approved')), '409 conflict');
    assert.equal(refusal(await decide(staff, first.certificationId, 'rejected')), '409 conflict');
    assert.equal(answered(await decide(staff, first.certificationId, 'revoked'), 200, certificationAnswer).status, 'revoked');
    assert.equal(refusal(await decide(staff, first.certificationId, 'approved')), '409 conflict');
    const second = await certify(people.owner, 'organization', orgId);
    assert.equal(answered(await decide(staff, second.certificationId, 'rejected'), 200, certificationAnswer).status, 'rejected');
    assert.equal(refusal(await decide(staff, second.certificationId, 'revoked')), '409 conflict');

    // Told durably, so a moment later; each once.
    const page = z.object({ entries: z.array(z.object({ actorId: z.string(), action: z.string(), resourceId: z.string(), metadata: z.record(z.string(), z.unknown()), userAgent: z.string() })) });
    const entries = async () => answered(await organizations.call('GET', '/audit', people.owner, { orgId }), 200, page).entries.filter(({ resourceId }) => [first, second].some(({ certificationId }) => certificationId === resourceId));
    const deadlineAt = performance.now() + 30_000;
    while ((await entries()).length < 5) assert.ok(performance.now() < deadlineAt, 'the audit log has no entries');
    assert.deepEqual((await entries()).map(({ actorId, action }) => `${action} ${actorId}`).toSorted(), [
      'certification.approved platform-staff', 'certification.rejected platform-staff', 'certification.revoked platform-staff',
      `certification.submitted ${people.owner.userId}`, `certification.submitted ${people.owner.userId}`,
    ]);
    assert.ok((await entries()).every(({ metadata }) => metadata['entityId'] === orgId));
  });
});
