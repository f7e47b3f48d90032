/** Retention against a real server and database: what is old goes for good, what is younger stays whole, whoever speaks meanwhile. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { connect, type NatsConnection } from 'nats';
import { z } from 'zod';
import { createRetain } from '../../actors/daemon/retain.ts';
import { sessionAddress } from '../../actors/daemon/deployment/branch.ts';
import { openReaders } from '../../actors/projections/readers.ts';
import { createNatsStores } from '../../actors/runtime/nats/stores.ts';
import { subjectsOf } from '../../actors/runtime/nats/subjects.ts';
import { encodeToken, streams } from '../../contracts/subjects.ts';
import { startDeployment, type TestDeployment } from '../harness/deployment.ts';
import { silent } from '../harness/log.ts';
import { kindsOf, runtimeClient, textOf, type RuntimeClient } from '../harness/runtime.ts';

const dayMs = 86_400_000;
const plan = { partitions: 64, journalStreams: 1, replicas: 1 };

describe('retention', () => {
  let world: TestDeployment;
  let client: RuntimeClient;
  let nc: NatsConnection;
  before(async () => {
    world = await startDeployment(undefined);
    client = runtimeClient(world);
    nc = await connect({ servers: world.nats.url });
  });
  after(async () => {
    await nc.close();
    await world.stop();
  });

  const days = 30;
  /** A pass so late that what last happened before that time is old. `meanwhile`: after the rows were read. */
  const pass = async (before: number, meanwhile: () => Promise<void> = async () => undefined): Promise<{ readonly more: boolean }> => {
    const { lean, journal } = createNatsStores(nc, plan);
    const readers = openReaders({ postgresUrl: world.postgres.url, name: 'retention test', log: silent });
    try {
      const retain = createRetain({
        lean, journal, ...plan, now: () => before + days * dayMs,
        // The daemon's list has just been read up to now.
        projections: () => ({
          caughtUp: async () => { await listed(); },
          read: async (work) => {
            const rows = await readers.run(work);
            if (Array.isArray(rows)) await meanwhile();
            return rows;
          },
        }),
      });
      return await retain(world.org.id, days, new AbortController().signal);
    } finally {
      await readers.close();
    }
  };
  const listed = async () => z.object({ sessions: z.array(z.object({ id: z.string(), branch: z.string() })) }).parse((await world.service('GET', '/v1/sessions')).json).sessions.map(({ id, branch }) => `${id} ${branch}`).toSorted();
  const left = async (session: string, branch = 'main'): Promise<string[]> => {
    const { lean } = createNatsStores(nc, plan);
    const { key } = sessionAddress({ organizationId: world.org.id, deploymentId: world.id }, session, branch);
    const found: string[] = [];
    for await (const subject of subjectsOf(lean, streams.journal(0, 1), `journal.*.${encodeToken(world.org.id)}.session.${encodeToken(key)}`)) found.push(subject);
    return found;
  };

  test('retention - a session goes with its memories and branches when all of it is old, and begins anew when somebody speaks', async () => {
    await client.turn('old', 'hello');
    await world.service('POST', '/v1/memory', { json: { session_id: 'old', fact: 'a fact', source: 'test', relevance: 1 } });
    assert.equal((await world.service('POST', '/v1/sessions/old/branches', { json: { name: 'b' } })).status, 201);
    assert.deepEqual(await pass(Date.now() - dayMs), { more: false });
    assert.deepEqual(await listed(), ['old b', 'old main']);
    assert.deepEqual(kindsOf(await client.events('old', '?branch=b')).slice(-2), ['MemoryStored', 'BranchCreated']);
    assert.deepEqual(await pass(Date.now() + dayMs), { more: false });
    assert.deepEqual([await left('old'), await left('old', 'b'), await listed()], [[], [], []]);
    for (const path of ['/v1/sessions/old/events', '/v1/memory?session_id=old', '/v1/sessions/old/branches']) assert.equal((await world.service('GET', path)).status, 404, path);
    // Its actor may still be active: it is fenced.
    assert.deepEqual(kindsOf(await client.turn('old', '/say again'))[0], 'SessionCreated');
    assert.deepEqual(z.object({ count: z.int() }).parse((await world.service('GET', '/v1/memory?session_id=old')).json).count, 0);
    assert.deepEqual(await listed(), ['old main']);
    await pass(Date.now() + dayMs);
    assert.deepEqual(await listed(), []);
  });

  test('retention - who watches a session that goes is cut off, and who comes later sees the new one from 1', async () => {
    await client.turn('watched', '/long 30');
    const { key } = sessionAddress({ organizationId: world.org.id, deploymentId: world.id }, 'watched');
    const watcher = await client.watch(key, world.owner);
    await watcher.turns(1);
    await pass(Date.now() + dayMs);
    const events = await client.turn('watched', '/say new');
    const next = await client.watch(key, world.owner);
    await next.turns(1);
    assert.deepEqual(next.events.map(({ seq_no: n }) => n), next.events.map((_, i) => i + 1));
    assert.equal(next.text, textOf(events));
    const { code } = await watcher.closed();
    assert.ok([1011, 4005].includes(code), `${code}`);
    await next.leave();
  });

  test('retention - what a young branch begins in stays, and what somebody speaks to in that moment stays whole', async () => {
    await client.turn('spoken', 'one');
    await client.turn('quiet', 'one');
    await client.turn('family', 'one');
    const whole = await client.events('family');
    const old = Math.max(...(await Promise.all(['spoken', 'quiet', 'family'].map((session) => client.events(session)))).flat().map(({ timestamp }) => timestamp)) + 1;
    assert.equal((await world.service('POST', '/v1/sessions/family/branches', { json: { name: 'young' } })).status, 201);
    // In the moment between the list and the deletion somebody speaks.
    const said: string[] = [];
    await pass(old, async () => {
      if (said.length > 0) return;
      said.push(...kindsOf(await client.turn('spoken', '/say two')));
    });
    assert.equal(said.at(-1), 'RunFinished');
    assert.deepEqual(await left('quiet'), []);
    const texts = (await client.events('spoken')).filter(({ kind }) => kind === 'UserMessage').map(({ payload }) => payload['content']);
    assert.deepEqual(texts, ['one', '/say two']);
    assert.deepEqual(await listed(), ['family main', 'family young', 'spoken main']);
    assert.deepEqual((await client.events('family', '?branch=young')).slice(0, -1), whole);
    assert.equal((await client.turn('family', '/say on', { more: { branch: 'young' } })).at(-1)?.kind, 'RunFinished');
  });
});
