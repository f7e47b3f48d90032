/** The session list as a daemon serves it: real daemons with Postgres, killed and without it. */
import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { connect } from 'nats';
import { routes } from '../../contracts/routes.ts';
import { chatSession, sessionList, type SessionList } from '../../contracts/session.ts';
import type { Link } from '../../gateway/link.ts';
import { startDaemons, type TestDaemons } from '../harness/daemon.ts';
import { startPostgres, type PostgresServer } from '../harness/postgres.ts';

interface Lists extends TestDaemons {
  readonly postgres: PostgresServer;
  readonly links: Link;
  create(sub: string, org?: string, label?: string): Promise<string>;
  list(sub: string, query?: Readonly<Record<string, string>>, org?: string): Promise<SessionList>;
}

const started = async (t: TestContext, count: number): Promise<Lists> => {
  const postgres = await startPostgres();
  const folder = await mkdtemp(join(tmpdir(), 'troupe-lists-'));
  await writeFile(join(folder, 'postgres-url'), `${postgres.url}\n`, { mode: 0o600 });
  t.after(async () => {
    await postgres.stop();
    await rm(folder, { recursive: true });
  });
  const d = await startDaemons(t, { count, config: { postgres: { url_path: join(folder, 'postgres-url') }, lease_ttl_ms: 1_500 } });
  const links = await d.link();
  return {
    ...d, postgres, links,
    create: async (sub, org, label) => {
      const { status, json } = await d.ask(links, 'createSession', await d.token(sub, org), { user_id: sub, project_id: 'p', ...(label === undefined ? {} : { label }) });
      assert.equal(status, 201, JSON.stringify(json));
      return chatSession.parse(json).sid;
    },
    list: async (sub, query = {}, org) => {
      const { status, json } = await d.ask(links, 'listSessions', await d.token(sub, org), query);
      assert.equal(status, 200, JSON.stringify(json));
      return sessionList.parse(json);
    },
  };
};

test('lists - what was just made is in the list of its owner, and in nobody else\'s', { timeout: 90_000 }, async (t) => {
  const d = await started(t, 2);
  // Until the schema is made, a list may not be there; what it says of itself is true then too.
  for (let i = 0; i < 12; i++) {
    const sid = await d.create('ada', undefined, `chat ${i}`);
    const { sessions, current } = await d.list('ada');
    assert.deepEqual([current, sessions[0]?.sid, sessions.length, sessions[0]?.label], [true, sid, i + 1, `chat ${i}`]);
  }
  assert.deepEqual((await d.list('eve')).sessions, []);
  // The same user acting for another organization, and another user in the organization of the first.
  assert.deepEqual((await d.list('ada', {}, 'acme')).sessions, []);
  assert.deepEqual((await d.list('eve', {}, 'u-ada')).sessions, []);

  const first = await d.list('ada', { limit: '5' });
  const second = await d.list('ada', { limit: '100', cursor: first.next_cursor ?? '' });
  assert.deepEqual([first.sessions.length, second.sessions.length, second.next_cursor], [5, 7, null]);
  assert.equal(new Set([...first.sessions, ...second.sessions].map(({ sid }) => sid)).size, 12);
  for (const query of [{ limit: '0' }, { limit: '101' }, { limit: 5 }, { user_id: 'eve' }, { cursor: 'x' }, { cursor: '' }]) {
    const { status } = await d.ask(d.links, 'listSessions', await d.token('ada'), query);
    assert.ok(status === 400 || status === 422, `${JSON.stringify(query)} ${status}`);
  }
  assert.equal((await d.ask(d.links, 'listSessions', 'junk', {})).status, 401);
});

test('lists - a daemon killed while its rows are written costs nothing and counts nothing twice', { timeout: 120_000 }, async (t) => {
  const d = await started(t, 2);
  const sids: string[] = [];
  for (let i = 0; i < 4; i++) sids.push(await d.create('ada'));
  const token = await d.token('ada');
  const clients = sids.map((sid) => d.client(d.links, { token, sid, org: 'u-ada' }));
  for (let round = 1; round <= 3; round++) {
    for (const client of clients) client.say('/long 120');
    // In the middle of the stream: rows, projections and sessions all have something under way.
    await clients[0]?.until(() => (clients[0]?.ended ?? 0) === round - 1 && (clients[0]?.text.length ?? 0) > round * 200);
    await d.daemons[round % 2]?.restart();
    await Promise.all(clients.map((client) => client.turns(round)));
  }
  const { sessions, current } = await d.list('ada');
  assert.equal(current, true);
  // What the sessions themselves say of their usage on the stream.
  const said = new Map(clients.map((client, i) => [sids[i], client.events.filter((e) => e.agent_kind === 'FINISH').map((e) => e.record.payload['usage'] as { input_tokens: number; output_tokens: number })]));
  for (const { sid, turns, state, usage } of sessions) {
    const finished = said.get(sid) ?? [];
    assert.deepEqual(
      [turns, state, usage.input_tokens, usage.output_tokens],
      [3, 'idle', finished.reduce((n, u) => n + u.input_tokens, 0), finished.reduce((n, u) => n + u.output_tokens, 0)], sid,
    );
  }
  assert.equal(sessions.length, 4);
});

test('lists - without Postgres sessions go on, the list is refused, and NATS\' service tools show why', { timeout: 120_000 }, async (t) => {
  const d = await started(t, 1);
  const before = await d.create('ada');
  assert.equal((await d.list('ada')).sessions.length, 1);
  const [daemon] = d.daemons;
  assert.ok(daemon);
  const down = daemon.line(/a projection does not run/);
  await d.postgres.kill('SIGKILL');
  await down;
  const sid = await d.create('ada');
  const client = d.client(d.links, { token: await d.token('ada'), sid, org: 'u-ada' });
  client.say('hello');
  await client.turns(1);
  const refused = await d.links.request(routes.listSessions, { token: await d.token('ada'), body: '{}' });
  assert.equal(refused.status, 503);
  assert.equal(JSON.parse(refused.body.toString()).code, 'upstream_unavailable');
  const nc = await connect({ servers: d.nats.url });
  t.after(() => nc.close());
  const info = await nc.request('$SRV.INFO.troupe', '', { timeout: 5_000 });
  assert.deepEqual(info.json<{ metadata: object }>().metadata, { host: 'test-0', 'projection.sessions': 'upstream_unavailable' });
  // A daemon that starts without it becomes ready all the same.
  await daemon.restart();
  const link = await d.link();
  const third = await d.ask(link, 'createSession', await d.token('ada'), { user_id: 'ada', project_id: 'p' });
  assert.equal(third.status, 201);
  const running = daemon.lines().length;
  await d.postgres.start();
  const sids = new Set([before, sid, chatSession.parse(third.json).sid]);
  for (;;) {
    const { status, json } = await d.ask(link, 'listSessions', await d.token('ada'), {});
    const page = status === 200 ? sessionList.parse(json) : undefined;
    if (page?.current !== true) continue;
    assert.deepEqual(new Set(page.sessions.map((session) => session.sid)), sids);
    break;
  }
  assert.ok(!daemon.lines().slice(running).join('\n').includes(new URL(d.postgres.url).password));
});

test('lists - a daemon without Postgres in its configuration says so', { timeout: 60_000 }, async (t) => {
  const d = await startDaemons(t);
  const { status, json } = await d.ask(await d.link(), 'listSessions', await d.token('ada'), {});
  assert.deepEqual([status, json], [503, { code: 'upstream_unavailable', message: 'There is no list of sessions here: no database is configured.' }]);
});
