/**
 * What limits cost: requests that pass the daemon's allowances of one organization, whose actor is on another host.
 *
 * Floor: one ask of the actor for each request, from the same process. Batches alone, and with grants taken ahead.
 */
import { durabilityOf, measure, median, type Benchmark } from './figure.ts';
import type { AllowanceJobs } from './allowance-part.ts';
import { limits } from '../../contracts/limits.ts';
import { loadOf, sharesText, type Share } from './machine.ts';
import { startBenchNats } from './nats.ts';
import { startPart } from './part.ts';

export const allowanceAsks: Benchmark = async (settings, add) => {
  const nats = await startBenchNats(settings);
  const start = (name: string) => startPart<AllowanceJobs>('./allowance-part.ts', { name, profiles: settings.profiles });
  const [asking, owning] = await Promise.all([start('asking'), start('owning')]);
  try {
    const host = { url: nats.url, partitions: limits.partitions, leaseTtlMs: limits.leaseTtlMs };
    await asking.run('start', { ...host, name: 'bench-0' });
    await owning.run('start', { ...host, name: 'bench-1' });
    const ms = settings.sampleMs;
    for (const lanes of [1, 100]) {
      for (const ahead of [false, true]) {
        const key = await asking.run('remoteKey', { prefix: `${lanes}-${ahead}-` });
        const floorKey = await asking.run('remoteKey', { prefix: `${lanes}-${ahead}-direct-` });
        const perThousand: number[] = [];
        let shares: readonly Share[] = [];
        add(await measure(settings, {
          figure: `requests under a limit, ${lanes} caller${lanes === 1 ? '' : 's'}${ahead ? ', grants ahead' : ''}`, unit: 'requests/s', kind: 'rate',
          durability: durabilityOf(settings),
          floorIs: 'one ask of the actor for each request',
          sample: async () => {
            const load = loadOf([{ name: 'asking host', pid: asking.pid }, { name: 'owning host', pid: owning.pid }, { name: 'nats-server', pid: nats.pid }]);
            const { rate, asksPer1000 } = await asking.run('through', { key, lanes, ms, ahead });
            shares = load.stop();
            perThousand.push(asksPer1000);
            return rate;
          },
          sampleFloor: () => asking.run('direct', { key: floorKey, lanes, ms }),
          notes: () => [`${median(perThousand).toPrecision(3)} asks per 1,000 requests, the floor 1,000`, sharesText(shares)],
        }));
      }
    }
  } finally {
    await Promise.all([asking.stop(), owning.stop()]);
    await nats.stop();
  }
};
