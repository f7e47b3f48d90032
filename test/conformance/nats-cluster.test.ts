/** The store's suite over three servers with three copies of everything, and the loss of the server that leads. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { connectNats } from '../../actors/runtime/nats/connect.ts';
import { createNatsStores } from '../../actors/runtime/nats/stores.ts';
import { ensureStreams } from '../../actors/runtime/nats/streams.ts';
import { journalSubject } from '../../contracts/subjects.ts';
import { startNatsCluster } from '../harness/nats.ts';
import { bytes, storeConformance, text } from './store.ts';

const plan = { partitions: 64, journalStreams: 2, replicas: 3 };

storeConformance('NATS with three copies', async () => {
  const cluster = await startNatsCluster(3);
  const nc = await connectNats({ url: cluster.url, name: 'conformance' });
  await ensureStreams(nc, plan);
  const stores = createNatsStores(nc, plan);
  return { stores, stop: async () => { stores.lean.close(); await nc.close(); await cluster.stop(); } };
}, { listLags: true });

describe('journal over NATS with three copies', { timeout: 120_000 }, () => {
  test('the server that leads the journal is killed under appends: nothing acknowledged is lost, nothing is stored twice', async (t) => {
    const cluster = await startNatsCluster(3);
    t.after(() => cluster.stop());
    const nc = await connectNats({ url: cluster.url, name: 'leader-loss' });
    t.after(() => nc.close());
    await ensureStreams(nc, plan);
    const { journal, lean } = createNatsStores(nc, plan);
    t.after(() => lean.close());
    let stop = false;
    let total = 0;
    let wakeAt = Infinity;
    let wake: (() => void) | undefined;
    const more = (count: number): Promise<void> => new Promise((resolve) => { wake = resolve; wakeAt = total + count; });
    const runs = Array.from({ length: 24 }, async (_, k) => {
      const subject = journalSubject(k, { org: 'acme', type: 'counter', key: `r${k}` });
      const acknowledged: [number, string][] = [];
      for (let i = 0; !stop; i++) {
        const seq = await journal.append(subject, bytes(`e${i}`), acknowledged.at(-1)?.[0] ?? 0);
        acknowledged.push([seq, `e${i}`]);
        if (++total >= wakeAt) { wakeAt = Infinity; wake?.(); }
      }
      return { subject, acknowledged };
    });
    await more(500);
    const info = (await nc.request('$JS.API.STREAM.INFO.JOURNAL_0')).json<{ cluster: { leader: string } }>();
    const leader = cluster.servers[Number(info.cluster.leader.slice(1))] ?? assert.fail('no leader');
    await leader.kill('SIGKILL');
    await more(500);
    await leader.restart();
    await more(500);
    stop = true;
    for (const { subject, acknowledged } of await Promise.all(runs)) {
      const found: [number, string][] = [];
      for await (const batch of journal.read(subject, 0, acknowledged.at(-1)?.[0] ?? 0)) found.push(...batch.map((m): [number, string] => [m.seq, text(m.data)]));
      assert.deepEqual(found, acknowledged);
      assert.equal((await journal.last(subject))?.seq, acknowledged.at(-1)?.[0]);
    }
    t.diagnostic(`${total} appends acknowledged over the loss of a leader, lost 0, repeated 0`);
  });
});
