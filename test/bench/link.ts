/**
 * Calls over the link, the gateway's end in one process and the daemon's in another, with a handler that answers at once.
 *
 * Floor: the same request frames echoed by a process that only cuts them by length, with writes gathered as the link gathers
 * them. It has no deadlines, no cancellation, no bounds, no promise a call, no response format.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { measure, type Benchmark } from './figure.ts';
import type { LinkJobs } from './link-part.ts';
import { loadOf, sharesText, type Share } from './machine.ts';
import { startPart } from './part.ts';

export const link: Benchmark = async (settings, add) => {
  const folder = await mkdtemp(join(tmpdir(), 'troupe-bench-'));
  const [daemon, echo, gateway] = await Promise.all(['link-daemon', 'echo', 'link-gateway'].map((name) => startPart<LinkJobs>('./link-part.ts', { name, profiles: settings.profiles })));
  try {
    if (daemon === undefined || echo === undefined || gateway === undefined) throw new Error('a part is missing');
    const path = join(folder, 'd0.sock');
    const echoPath = join(folder, 'echo.sock');
    await daemon.run('listen', { path });
    await echo.run('listenEcho', { path: echoPath });
    await gateway.run('connect', { path, echoPath });
    const ms = settings.sampleMs;
    for (const lanes of [1, 64, 256]) {
      let shares: readonly Share[] = [];
      add(await measure(settings, {
        figure: `link calls, ${lanes} in flight`, unit: 'calls/s', kind: 'rate', durability: '-',
        ...(lanes === 256 ? { aim: { of: 'ratio', bound: 0.6 } as const } : {}),
        floorIs: 'raw Unix-socket echo of the same request frames, cut by length',
        sample: async () => {
          const load = loadOf([{ name: 'gateway end', pid: gateway.pid }, { name: 'daemon end', pid: daemon.pid }]);
          const rate = await gateway.run('calls', { lanes, ms });
          shares = load.stop();
          return rate;
        },
        sampleFloor: () => gateway.run('echoes', { lanes, ms }),
        notes: () => [sharesText(shares)],
      }));
    }
  } finally {
    await Promise.all([daemon?.stop(), echo?.stop(), gateway?.stop()]);
    await rm(folder, { recursive: true, force: true });
  }
};
