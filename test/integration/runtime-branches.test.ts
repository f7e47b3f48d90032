/** Branches of a session over real HTTP: forked anywhere, watched over SSE and WebSocket, gone on with after a killed daemon; a session's state at any event. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import postgres from 'postgres';
import { z } from 'zod';
import { sessionBranch, sessionBranches, sessionStateAt, type SessionStateShown } from '../../contracts/branch-routes.ts';
import type { EventEnvelope } from '../../contracts/event.ts';
import { limits } from '../../contracts/limits.ts';
import { feedKind } from '../../contracts/session.ts';
import { runtimeSession } from '../../contracts/runtime-routes.ts';
import { sessionAddress } from '../../actors/daemon/deployment/branch.ts';
import { startDeployment, type ServiceCall, type TestDeployment } from '../harness/deployment.ts';
import { answered, type ApiReply } from '../harness/platform.ts';
import { chatBody, envelopesOf, kindsOf, readUntil, runtimeClient, textOf, type RuntimeClient } from '../harness/runtime.ts';

const codeOf = (reply: ApiReply): readonly [number, string] => [reply.status, z.object({ error: z.object({ code: z.string() }) }).parse(reply.json).error.code];
const nobodyUlid = '01ARZ3NDEKTSV4RRFFQ69G5FAV';
const on = (branch: string): { more: object } => ({ more: { branch } });
const idsOf = (events: readonly EventEnvelope[]): string[] => events.map(({ id }) => id);
const texts = (state: SessionStateShown): string[] => state.history.filter(({ role }) => role !== 'tool').map(({ role, text }) => `${role}: ${text}`);

describe('branches', () => {
  let world: TestDeployment;
  let client: RuntimeClient;
  before(async () => {
    world = await startDeployment(undefined, { daemons: 2 });
    client = runtimeClient(world);
  });
  after(async () => { await world.stop(); });

  const post = (session: string, json: object, call: ServiceCall = {}) => world.service('POST', `/v1/sessions/${session}/branches`, { json, ...call });
  const fork = async (session: string, json: object) => answered(await post(session, json), 201, sessionBranch);
  const list = async (session: string) => answered(await world.service('GET', `/v1/sessions/${session}/branches`), 200, sessionBranches).branches;
  const sessions = async (session: string) =>
    answered(await world.service('GET', '/v1/sessions'), 200, z.strictObject({ sessions: z.array(runtimeSession), next_cursor: z.string().optional() })).sessions.filter(({ id }) => id === session);
  const state = async (session: string, query = '') => answered(await world.service('GET', `/v1/sessions/${session}/state${query}`), 200, sessionStateAt);
  const events = (session: string, branch: string, query = '') => client.events(session, `?branch=${branch}${query}`);
  const sidOf = (session: string, branch?: string): string => sessionAddress({ organizationId: world.org.id, deploymentId: world.id }, session, branch).key;

  test('branches - one forked at any event has the events up to it and what follows of its own; what the other does later does not show [RUN-025] [RUN-026]', async () => {
    await client.turn('any', 'one');
    await client.turn('any', '/tool clock {}\n/then\n/say two');
    const all = await client.events('any');
    for (const [i, { id, kind }] of all.entries()) {
      const branch = await fork('any', { name: `at-${i}`, at: id });
      assert.deepEqual([branch.id, branch.branch, branch.event_count, branch.from, branch.at, branch.effects], ['any', `at-${i}`, i + 2, 'main', id, 'disarmed'], kind);
      const own = await events('any', `at-${i}`);
      assert.deepEqual(own.slice(0, -1), all.slice(0, i + 1), kind);
      assert.deepEqual([own.at(-1)?.kind, own.at(-1)?.metadata['branch'], own.at(-1)?.metadata['sid']], ['BranchCreated', `at-${i}`, sidOf('any', `at-${i}`)]);
      assert.ok((own.at(-1)?.id ?? '') > id);
    }
    assert.deepEqual(await client.events('any'), all);
    const middle = all.findIndex(({ kind }) => kind === 'RunFinished');
    const turn = await client.turn('any', 'three', on(`at-${middle}`));
    const next = await client.turn('any', 'four');
    assert.deepEqual(await client.events('any'), [...all, ...next]);
    const branch = await events('any', `at-${middle}`);
    assert.deepEqual(kindsOf(branch.slice(middle + 1)), ['BranchCreated', ...kindsOf(turn)]);
    assert.deepEqual(branch.slice(middle + 2), turn);
    assert.deepEqual(texts((await state('any', `?branch=at-${middle}`)).state), ['user: one', 'assistant: You said: one', 'user: three', 'assistant: You said: three']);
  });

  test('branches - without `at` the head is forked; lists of branches and sessions are exact at once [RUN-020] [RUN-024] [RUN-025]', async () => {
    await client.turn('head', 'hello');
    const all = await client.events('head');
    const branch = await fork('head', { name: 'b' });
    assert.equal(branch.at, all.at(-1)?.id);
    await client.turn('head', 'on the branch', on('b'));
    const own = await events('head', 'b');
    const [main, b, ...rest] = await list('head');
    assert.deepEqual(rest, []);
    const time = (event: EventEnvelope | undefined): string => new Date(event?.timestamp ?? 0).toISOString();
    assert.deepEqual(main, sessionBranch.parse({
      id: 'head', branch: 'main', event_count: all.length, created_at: time(all[0]), last_event_at: time(all.at(-1)), from: null, at: null, effects: 'armed',
    }));
    assert.deepEqual(b, { ...branch, event_count: own.length, last_event_at: time(own.at(-1)) });
    assert.equal(branch.created_at, time(own[all.length]));
    assert.deepEqual((await sessions('head')).map(({ branch: name, event_count: count }) => [name, count]), [['b', own.length], ['main', all.length]]);
  });

  test('branches - in mid-turn a branch keeps what was said and open calls have an error; the turn itself goes on where it was [RUN-026]', async () => {
    const answer = await client.open('mid', '/tool clock {}\n/approve the report\n/then\n/say done');
    const frames = await readUntil(answer, ({ data }) => data.includes('"ApprovalRequested"'));
    const asked = frames.map(({ data }) => z.object({ kind: z.string(), payload: z.looseObject({ dispatch_id: z.string().optional(), call_id: z.string().optional() }) }).parse(JSON.parse(data))).find(({ kind }) => kind === 'ApprovalRequested');
    await fork('mid', { name: 'waiting' });
    const { state: waiting } = await state('mid', '?branch=waiting');
    assert.equal(waiting.run, null);
    const open = waiting.history.find((message) => message.role === 'tool' && message.call_id === asked?.payload.call_id);
    assert.ok(open?.role === 'tool' && open.is_error && open.text.includes('branched before this call ended. It was not run.'), JSON.stringify(waiting.history));
    const gone = await world.service('POST', '/v1/sessions/mid/approvals', { json: { dispatch_id: asked?.payload.dispatch_id, approved: true, branch: 'waiting' } });
    assert.deepEqual(codeOf(gone), [400, 'approval_unknown']);
    assert.equal(textOf(await client.turn('mid', '/say on', on('waiting'))), 'on');
    assert.equal((await world.service('POST', '/v1/sessions/mid/approvals', { json: { dispatch_id: asked?.payload.dispatch_id, approved: true } })).status, 200);

    const streaming = await client.open('mid', '/hang 7');
    const words = await readUntil(streaming, ({ data }) => data.includes('w7'));
    assert.ok(words.length > 0);
    await fork('mid', { name: 'partial' });
    const { state: partial } = await state('mid', '?branch=partial');
    assert.deepEqual(texts(partial).slice(-2), ['user: /hang 7', 'assistant: w1 w2 w3 w4 w5 w6 w7']);
    const running = (await state('mid')).state.run;
    assert.deepEqual([running?.phase, running?.text], ['model', 'w1 w2 w3 w4 w5 w6 w7']);
    await world.service('POST', '/v1/sessions/mid/cancel', { json: {} });
    assert.equal(textOf(await client.turn('mid', '/say and on', on('partial'))), 'and on');
    assert.ok(!texts((await state('mid')).state).includes('user: /say and on'));
  });

  test('branches - a branch of a branch, and one forked in another\'s past, hold together [RUN-025] [RUN-026]', async () => {
    await client.turn('deep', 'one');
    const main = await client.events('deep');
    await fork('deep', { name: 'a' });
    await client.turn('deep', 'two', on('a'));
    const a = await events('deep', 'a');
    const b = await fork('deep', { name: 'b', from: 'a' });
    await client.turn('deep', 'three', on('b'));
    assert.deepEqual([b.from, b.at, b.event_count], ['a', a.at(-1)?.id, a.length + 1]);
    assert.deepEqual((await events('deep', 'b')).slice(0, a.length), a);
    assert.deepEqual(texts((await state('deep', '?branch=b')).state), ['user: one', 'assistant: You said: one', 'user: two', 'assistant: You said: two', 'user: three', 'assistant: You said: three']);
    // In a's own part, over b; and in main's part, over b: the branch is of whose journal holds the event.
    const inA = a.find(({ kind }, i) => kind === 'UserMessage' && i > main.length);
    const overA = await fork('deep', { name: 'c', from: 'b', at: inA?.id });
    assert.deepEqual([overA.from, overA.event_count], ['a', a.findIndex(({ id }) => id === inA?.id) + 2]);
    const overMain = await fork('deep', { name: 'd', from: 'b', at: main[1]?.id });
    assert.deepEqual([overMain.from, overMain.event_count], ['main', 3]);
    assert.deepEqual((await events('deep', 'd')).slice(0, 2), main.slice(0, 2));
    // Pages from any event on, over the seams.
    const whole = await events('deep', 'b');
    for (const [i, { id }] of whole.entries()) {
      assert.deepEqual(idsOf(await events('deep', 'b', `&after=${id}&limit=5`)), idsOf(whole.slice(i + 1, i + 6)));
    }
  });

  test('branches - what is not there is not found, what is taken is refused [RUN-023] [RUN-027]', async () => {
    await client.turn('not', 'one');
    await client.turn('other', 'one');
    const [foreign] = await client.events('other');
    for (const at of [nobodyUlid, 'x', '', foreign?.id, '7ZZZZZZZZZZZZZZZZZZZZZZZZZ']) {
      assert.deepEqual(codeOf(await post('not', { name: 'b', at })), [404, 'event_not_found'], at);
      assert.deepEqual(codeOf(await world.service('GET', `/v1/sessions/not/state?at=${at}`)), [404, 'event_not_found'], at);
    }
    await fork('not', { name: 'b' });
    await client.turn('not', 'later');
    const later = (await client.events('not')).at(-1)?.id;
    assert.deepEqual(codeOf(await post('not', { name: 'c', from: 'b', at: later })), [404, 'event_not_found']);
    assert.deepEqual(codeOf(await post('not', { name: 'c', from: 'none' })), [404, 'branch_not_found']);
    assert.deepEqual(codeOf(await post('none', { name: 'c' })), [404, 'session_not_found']);
    assert.deepEqual(codeOf(await post('a b'.replace(' ', '%20'), { name: 'c' })), [404, 'session_not_found']);
    for (const [method, path] of [['GET', 'events'], ['GET', 'state']] as const) {
      assert.deepEqual(codeOf(await world.service(method, `/v1/sessions/not/${path}?branch=none`)), [404, 'branch_not_found']);
      assert.deepEqual(codeOf(await world.service(method, `/v1/sessions/none/${path}?branch=none`)), [404, 'session_not_found']);
    }
    assert.deepEqual(codeOf(await world.service('GET', '/v1/sessions/none/branches')), [404, 'session_not_found']);
    assert.deepEqual(codeOf(await world.service('POST', '/v1/chat', { json: chatBody('not', 'x', { branch: 'none' }) })), [404, 'branch_not_found']);
    for (const json of [{ name: 'main' }, { name: 'b' }, { name: 'b', from: 'b' }]) assert.deepEqual(codeOf(await post('not', json)), [409, 'conflict'], JSON.stringify(json));
    for (const json of [{}, { name: '' }, { name: 'a b' }, { name: 'c', more: 1 }, { name: 'c', at: 5 }, { name: 'c', allow_effects: 'yes' }, { name: 'c'.repeat(65) }]) {
      assert.deepEqual(codeOf(await post('not', json)), [400, 'invalid_argument'], JSON.stringify(json));
    }
    assert.deepEqual((await list('not')).map(({ branch }) => branch), ['main', 'b']);
    const { key: otherKey } = await world.provision();
    assert.deepEqual(codeOf(await post('not', { name: 'd' }, { token: otherKey })), [404, 'session_not_found']);
    assert.equal((await post('not', { name: 'd' }, { token: null })).status, 401);
  });

  test('branches - effects are disarmed unless allowed: a tool that acts outside is not there', async () => {
    await client.turn('calm', 'hello');
    await fork('calm', { name: 'calm' });
    await fork('calm', { name: 'bold', allow_effects: true });
    assert.deepEqual((await list('calm')).map(({ branch, effects }) => [branch, effects]), [['main', 'armed'], ['calm', 'disarmed'], ['bold', 'armed']]);
    const results = async (branch: string) => (await client.turn('calm', '/memory save x\n/tool clock {}\n/then\n/say done', on(branch)))
      .filter(({ kind }) => kind === 'ToolResult').map(({ payload }) => [payload['tool_name'], payload['is_error']]).toSorted();
    assert.deepEqual(await results('calm'), [['clock', false], ['memory_write', true]]);
    assert.deepEqual(await results('bold'), [['clock', false], ['memory_write', false]]);
  });

  test('branches - memories are a branch\'s own from its fork on', async () => {
    const remember = async (fact: string, branch: string) =>
      assert.equal((await world.service('POST', '/v1/memory', { json: { session_id: 'facts', fact, source: 'test', relevance: 1, branch } })).status, 201);
    const facts = async (branch: string) => z.object({ memories: z.array(z.object({ fact: z.string() })) }).parse((await world.service('GET', `/v1/memory?session_id=facts&branch=${branch}`)).json).memories.map(({ fact }) => fact);
    await remember('one', 'main');
    await fork('facts', { name: 'b' });
    await remember('two', 'b');
    await remember('three', 'main');
    assert.deepEqual([await facts('main'), await facts('b')], [['one', 'three'], ['one', 'two']]);
    const [first] = await events('facts', 'main');
    assert.deepEqual((await state('facts', `?at=${first?.id}&branch=b`)).state.memories, []);
  });

  test('branches - a client that has a part of the past takes the stream up from there [RUN-017]', async () => {
    await client.turn('past', 'one');
    await fork('past', { name: 'b' });
    const [, second] = await client.events('past');
    const said = envelopesOf((await world.service('POST', '/v1/chat', { json: chatBody('past', 'two', { branch: 'b' }), headers: { 'last-event-id': second?.id ?? '' } })).body);
    const whole = await events('past', 'b');
    assert.deepEqual(said, whole.slice(2));
    const none = await world.service('POST', '/v1/chat', { json: chatBody('past', 'three', { branch: 'b' }), headers: { 'last-event-id': nobodyUlid } });
    assert.deepEqual(codeOf(none), [404, 'event_not_found']);
  });

  test('branches - its WebSocket counts from 1 at the fork and says what its SSE says [RUN-026]', async () => {
    await client.turn('watched', '/long 40');
    await fork('watched', { name: 'b' });
    const watcher = await client.watch(sidOf('watched', 'b'), world.owner);
    const turn = await client.turn('watched', '/tool clock {}\n/then\n/long 60', on('b'));
    await watcher.turns(1);
    const seen = watcher.events;
    assert.deepEqual(seen.map(({ seq_no: n }) => n), seen.map((_, i) => i + 1));
    assert.deepEqual(seen.map(({ record: { kind } }) => kind), turn.filter(({ kind }) => feedKind(kind) !== undefined).map(({ kind }) => kind));
    assert.equal(watcher.text, textOf(turn));
    await watcher.leave();
  });

  test('branches - the state at an event is that of the fork made there, and of every moment after [RUN-025]', async () => {
    await client.turn('slider', '/tool clock {}\n/then\n/long 20');
    await client.turn('slider', 'two');
    const all = await client.events('slider');
    const then = await Promise.all(all.map(({ id }) => state('slider', `?at=${id}`)));
    await client.turn('slider', 'three');
    for (const [i, { id, kind, metadata }] of all.entries()) {
      const now = await state('slider', `?at=${id}`);
      assert.deepEqual(now, then[i], kind);
      assert.deepEqual([now.at, now.number, now.branch, now.cut], [id, metadata['number'], 'main', false]);
    }
    const [first] = then;
    assert.deepEqual([first?.state.history, first?.state.turns, first?.state.run], [[], 0, null]);
    const middle = then.find(({ state: { run } }) => run?.phase === 'tools');
    assert.deepEqual(middle?.state.run?.calls.map(({ name }) => name), ['clock']);
    const { state: head } = await state('slider');
    assert.deepEqual([head.turns, head.run], [3, null]);
  });

  test('branches - members make and see them in the console', async () => {
    await client.turn('console', 'hi');
    const path = `/api/deployments/${world.id}/v1/sessions/console`;
    const made = await world.api('POST', `${path}/branches`, { token: world.owner.accessToken, json: { name: 'mine' } });
    assert.deepEqual(sessionBranch.parse(made.json).branch, 'mine');
    const seen = await world.api('GET', `${path}/branches`, { token: world.owner.accessToken });
    assert.deepEqual(sessionBranches.parse(seen.json).branches.map(({ branch }) => branch), ['main', 'mine']);
    sessionStateAt.parse((await world.api('GET', `${path}/state?branch=mine`, { token: world.owner.accessToken })).json);
    const maker = (await events('console', 'mine')).at(-1);
    assert.equal(maker?.payload['user_id'], world.owner.userId);
  });

  test('branches - a lost daemon takes nothing of them along: both sides of a fork go on [RUN-026]', async () => {
    await client.turn('killed', 'one');
    await fork('killed', { name: 'b' });
    const main = await client.events('killed');
    const b = await events('killed', 'b');
    for (const daemon of world.daemons) {
      await daemon.kill();
      await daemon.start();
    }
    /** Until somebody owns the session again. */
    const insist = async (ask: () => Promise<ApiReply>): Promise<ApiReply> => {
      for (const deadline = performance.now() + 90_000; performance.now() < deadline;) {
        const reply = await ask();
        if (reply.status < 500) return reply;
      }
      return assert.fail('nobody answered');
    };
    const chat = (branch: string) => insist(() => world.service('POST', '/v1/chat', { json: chatBody('killed', `/say ${branch} goes on`, { branch, message_id: `killed-${branch}` }) }));
    for (const branch of ['b', 'main']) assert.equal(textOf(envelopesOf((await chat(branch)).body)), `${branch} goes on`);
    assert.deepEqual((await client.events('killed')).slice(0, main.length), main);
    assert.deepEqual((await events('killed', 'b')).slice(0, b.length), b);
    assert.deepEqual(texts((await state('killed', '?branch=b')).state).slice(-2), ['user: /say b goes on', 'assistant: b goes on']);
    assert.deepEqual(texts((await state('killed')).state).slice(-2), ['user: /say main goes on', 'assistant: main goes on']);
  });

  test('branches - forks of forks have an end, and so have a session\'s branches', async () => {
    await client.turn('end', 'one');
    let from = 'main';
    for (let depth = 1; depth <= limits.forkDepthMax; depth++) {
      await fork('end', { name: `d${depth}`, from });
      from = `d${depth}`;
    }
    assert.deepEqual(codeOf(await post('end', { name: 'more', from })), [400, 'fork_too_deep']);
    assert.equal(texts((await state('end', `?branch=${from}`)).state).at(-1), 'assistant: You said: one');
    assert.equal(textOf(await client.turn('end', '/say deep', on(from))), 'deep');

    await client.turn('many', 'one');
    await fork('many', { name: 'b' });
    // A list is as new as what its reader has seen: its row is there then.
    assert.equal((await list('many')).length, 2);
    const sql = postgres(world.postgres.url, { max: 1 });
    try {
      // The rows of all but the last of the others, as if they had been made.
      await sql`
        insert into troupe.sessions (org, sid, user_id, project_id, model, agent_id, deployment_id, session_id, branch, event_count, created_at, last_event_at, state, turns, from_branch)
        select org, 'x' || n, user_id, project_id, model, agent_id, deployment_id, session_id, 'x' || n, 1, created_at, last_event_at, state, 0, 'main'
        from troupe.sessions, generate_series(1, ${limits.sessionBranchesMax - 2}::int) n where session_id = 'many' and branch = 'b'`;
    } finally {
      await sql.end();
    }
    await fork('many', { name: 'last' });
    assert.deepEqual(codeOf(await post('many', { name: 'more' })), [400, 'too_many_branches']);
    assert.equal((await list('many')).length, limits.sessionBranchesMax + 1);
    assert.equal((await events('many', 'last')).at(-1)?.kind, 'BranchCreated');
  });
});
