/**
 * Asking actors: on the same host, on another host, and with a journaled command, over 1, 64 and 256 actors.
 *
 * Floors: for a local ask a Map look-up and an asynchronous call; for a remote one request and answer of the same size between
 * the same two processes over one inbox with a callback; for a command fenced appends of the same size to the same stream.
 */
import { durabilityOf, measure, type Benchmark, type Settings } from './figure.ts';
import type { HostJobs } from './host-part.ts';
import { loadOf, sharesText, type Share } from './machine.ts';
import { startBenchNats } from './nats.ts';
import { startPart, type Part } from './part.ts';

const counts = [1, 64, 256];
/** Bytes of an ask's request and answer on the wire: `{"input":{},"principal":{"kind":"system"},"deadlineMs":9999.99}` and `{"count":0}`. */
const requestBytes = 70;
const answerBytes = 11;

const startHostPart = (settings: Settings, name: string): Promise<Part<HostJobs>> => startPart<HostJobs>('./host-part.ts', { name, profiles: settings.profiles });

/** One host, one nats-server: local asks and journaled commands. */
export const local: Benchmark = async (settings, add) => {
  const nats = await startBenchNats(settings);
  const host = await startHostPart(settings, 'host');
  try {
    await host.run('start', { url: nats.url, name: 'bench-0' });
    const ms = settings.sampleMs;
    add(await measure(settings, {
      figure: 'local ask, 64 actors', unit: 'asks/s', kind: 'rate', aim: { of: 'value', bound: 300_000 }, durability: '-',
      floorIs: 'Map look-up and asynchronous call',
      sample: () => host.run('localAsk', { lanes: 64, ms }),
      sampleFloor: () => host.run('localFloor', { lanes: 64, ms }),
    }));
  } finally {
    await host.stop();
    await nats.stop();
  }
};

/** Journaled commands of one host. */
export const command: Benchmark = async (settings, add) => {
  const nats = await startBenchNats(settings);
  const host = await startHostPart(settings, 'host');
  try {
    await host.run('start', { url: nats.url, name: 'bench-0' });
    const ms = settings.sampleMs;
    const bytes = await host.run('commitBytes', undefined);
    let floors = 0;
    const floor = (lanes: number): Promise<number> => host.run('appendFloor', { lanes, ms, bytes, run: ++floors });
    for (const lanes of counts) {
      let shares: readonly Share[] = [];
      add(await measure(settings, {
        figure: `journaled command, ${lanes} actor${lanes === 1 ? '' : 's'}`, unit: 'commands/s', kind: 'rate', durability: durabilityOf(settings),
        floorIs: 'raw fenced appends, same bytes, same stream, one in flight each',
        ...(lanes === 256 ? { aim: { of: 'ratio', bound: 0.5 } as const } : {}),
        sample: async () => {
          const load = loadOf([{ name: 'host', pid: host.pid }, { name: 'nats-server', pid: nats.pid }]);
          const rate = await host.run('command', { lanes, ms });
          shares = load.stop();
          return rate;
        },
        sampleFloor: () => floor(lanes),
        notes: () => [sharesText(shares)],
      }));
    }
    add(await measure(settings, {
      figure: 'journaled command, 256 actors, 8 callers each', unit: 'commands/s', kind: 'rate', durability: durabilityOf(settings),
      floorIs: 'raw fenced appends of 256 subjects, one in flight each',
      sample: () => host.run('commandShared', { lanes: 256, callers: 8, ms }),
      sampleFloor: () => floor(256),
      notes: () => ['group commit: the turns that arrive while an append is under way form the next'],
    }));
  } finally {
    await host.stop();
    await nats.stop();
  }
};

/** Two hosts, one nats-server: asks of actors of the other host. */
export const remote: Benchmark = async (settings, add) => {
  const nats = await startBenchNats({ sync: false });
  const [asking, owning] = await Promise.all([startHostPart(settings, 'asking'), startHostPart(settings, 'owning')]);
  try {
    await asking.run('start', { url: nats.url, name: 'bench-0' });
    await owning.run('start', { url: nats.url, name: 'bench-1' });
    await owning.run('answerFloor', { bytes: answerBytes });
    const ms = settings.sampleMs;
    for (const lanes of counts) {
      let shares: readonly Share[] = [];
      add(await measure(settings, {
        figure: `remote ask, ${lanes} actor${lanes === 1 ? '' : 's'}`, unit: 'asks/s', kind: 'rate', durability: '-',
        ...(lanes === 256 ? { aim: { of: 'ratio', bound: 0.5 } as const } : {}),
        floorIs: 'raw request and answer, same bytes, same two processes',
        sample: async () => {
          const load = loadOf([{ name: 'asking host', pid: asking.pid }, { name: 'owning host', pid: owning.pid }, { name: 'nats-server', pid: nats.pid }]);
          const rate = await asking.run('remoteAsk', { lanes, ms });
          shares = load.stop();
          return rate;
        },
        sampleFloor: () => asking.run('requestFloor', { lanes, ms, bytes: requestBytes }),
        notes: () => [sharesText(shares)],
      }));
    }
  } finally {
    await Promise.all([asking.stop(), owning.stop()]);
    await nats.stop();
  }
};
