/**
 * Usage under drawn schedules over a real cluster and a real Postgres: whatever hosts are lost while turns run, metering events, charges,
 * balances and rows are the same to the cent, also when the rows are made again. `TROUPE_SEED` repeats what was drawn.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { natsJournalSource } from '../../actors/projections/journal.ts';
import { startProjections } from '../../actors/projections/projections.ts';
import { deleteUsage, readUsage, usageProjection } from '../../actors/projections/usage.ts';
import { upcastBy } from '../../actors/daemon/upcast.ts';
import { connectNats } from '../../actors/runtime/nats/connect.ts';
import { createNatsStores } from '../../actors/runtime/nats/stores.ts';
import { ensureStreams } from '../../actors/runtime/nats/streams.ts';
import { balance } from '../../contracts/wallet.ts';
import { within } from '../harness/chaos.ts';
import { hostHere, type HostHere } from '../harness/cluster.ts';
import { silent } from '../harness/log.ts';
import { startNats } from '../harness/nats.ts';
import { chargedTurns, completionOf, meteredTurns, paidDefinitions, paidOf, paidUser, sumOf } from '../harness/paid.ts';
import { startPostgres } from '../harness/postgres.ts';
import { openJournals } from '../harness/proof.ts';
import { draw, runSeed } from '../harness/seed.ts';
import { count } from '../harness/session.ts';

const config = { partitions: 4, journalStreams: 1, replicas: 1, leaseTtlMs: 1_000 } as const;
const orgs = ['org_01jd0000000000000000000003', `u-${paidUser}`] as const;
const hosts = 4;
const turnsPerHost = 24;

test('usage - metering events, charges, balances and rows agree to the cent whatever hosts are lost, also rebuilt [BIL-002] [BIL-022]', { timeout: 180_000 }, async (t) => {
  const random = draw(runSeed());
  t.diagnostic(`TROUPE_SEED=${random.seed}`);
  const [nats, postgres] = await Promise.all([startNats(), startPostgres()]);
  const reading = await connectNats({ url: nats.url, name: 'reading' });
  await ensureStreams(reading, config);
  const stores = createNatsStores(reading, config);
  const journals = await openJournals(nats.url, config.partitions);
  const definitions = paidDefinitions();
  const specOf = (type: string) => definitions.find((definition) => definition.type === type)?.spec ?? assert.fail(type);
  const onBroken = (_at: unknown, error: unknown): void => { throw error; };
  const projections = startProjections({
    postgresUrl: postgres.url, host: 'p', log: silent, source: natsJournalSource(stores.lean, config.journalStreams),
    projections: [usageProjection('session', { upcast: upcastBy(specOf('session')), onBroken }), usageProjection('completion', { upcast: upcastBy(specOf('completion')), onBroken })],
  });
  let here: HostHere | undefined;
  t.after(async () => {
    await projections.close();
    await here?.stop();
    await journals.close();
    stores.lean.close();
    await reading.close();
    await Promise.all([nats.stop(), postgres.stop()]);
  });

  const sources = orgs.flatMap((org) => [{ org, type: 'session', key: 'abcdefghijklmnopqrstuvwxyz' }, { org, type: 'completion', key: 'a' }, { org, type: 'completion', key: 'b' }]);
  const lines = ['/say hi', '/long 30', '/fail-after 5', '/slow 2 8', '/slow 5 20'] as const;
  for (let n = 0; n < hosts; n++) {
    here = await hostHere({ url: nats.url, config: { host: `h${n}`, ...config }, definitions });
    await here.host.ready;
    const { actors } = here.host;
    const ask = (address: typeof sources[number], command: string, input: unknown, id: string): Promise<unknown> => actors.ask({ address, command, input, principal: { kind: 'system' }, id });
    if (n === 0) {
      for (const org of orgs) {
        await ask({ org, type: 'wallet', key: org }, 'grant', { monthly: 1_000_000, revision: '1' }, `grant ${org}`);
        await ask({ org, type: 'session', key: 'abcdefghijklmnopqrstuvwxyz' }, 'create', { user_id: paidUser, project_id: 'p' }, `create ${org}`);
      }
    }
    for (let turn = 0; turn < turnsPerHost; turn++) {
      const address = random.pick(sources);
      const id = `t${n}-${turn}`;
      const line = random.pick(lines);
      if (address.type === 'session') await ask(address, 'send', { user_id: paidUser, content: line, message_id: id }, id);
      else await ask(address, 'start', completionOf(id, line, random.pick(['dear', 'dear', 'free'])), id);
      if (random.next() < 0.1) await ask(address, 'cancel', address.type === 'session' ? { user_id: paidUser, dispatch_id: '' } : { id }, `cancel ${id}`);
    }
    // The last one stays; the others are lost with what runs.
    if (n < hosts - 1) {
      here.host.close();
      await here.nc.close();
    }
  }
  const begun = { session: 'UserMessage', completion: 'CompletionStarted' } as Readonly<Record<string, string>>;
  for (const address of sources) {
    await within(60_000, `the turns of ${address.org} ${address.key}`, journals.until(address, (all) => count(all, 'UsageMetered') === count(all, begun[address.type] ?? '')), () => '');
  }
  const eventsOf = async (org: string) => (await Promise.all(sources.filter((address) => address.org === org).map((address) => journals.events(address)))).flat();
  let total = 0;
  for (const org of orgs) {
    const wallet = { org, type: 'wallet', key: org };
    const metered = meteredTurns(await eventsOf(org));
    const charges = await within(60_000, `the charges of ${org}`, journals.until(wallet, (all) => count(all, 'Charged') >= paidOf(metered).size), () => '');
    assert.deepEqual(paidOf(chargedTurns(charges)), paidOf(metered));
    const { used } = balance.parse(await here?.host.actors.ask({ address: wallet, command: 'balance', input: {}, principal: { kind: 'system' } }));
    assert.equal(used, sumOf(metered));
    total += sumOf(metered);
  }
  assert.ok(total > 0);
  const from = new Date(0);
  const rows = async (): Promise<readonly number[]> => Promise.all([{ userId: paidUser }, ...orgs.map((org) => ({ org }))].map(async (of) =>
    (await projections.read((sql) => readUsage(sql, of, from))).reduce((sum, { costCents }) => sum + costCents, 0)));
  const names = ['usage_sessions', 'usage_completions'] as const;
  for (const name of names) await projections.caughtUp(name, undefined, 60_000);
  const sums = await Promise.all(orgs.map(async (org) => sumOf(meteredTurns(await eventsOf(org)))));
  assert.deepEqual(await rows(), [total, ...sums]);

  await projections.read((sql) => sql`update troupe.usage set cost_cents = cost_cents + 7`);
  for (const name of names) await projections.rebuild(name, 60_000);
  assert.deepEqual(await rows(), [total, ...sums]);
  // An organization that is deleted takes its rows along, and only them.
  await projections.read((sql) => deleteUsage(sql, orgs[0]));
  assert.deepEqual(await rows(), [sums[1], 0, sums[1]]);
});
