/**
 * A process with a host and the daemon's allowances: for the bench, and for the test that kills such processes. Its wall clock and
 * the allowances' clock can be moved on (`skip`), so that minutes and days end when the caller says.
 */
import type { NatsConnection } from 'nats';
import { allowance } from '../../actors/allowance/allowance.ts';
import { askAllowance, createAllowances, type Allowances } from '../../actors/daemon/allowances.ts';
import { startHost, type Host } from '../../actors/runtime/cluster/host.ts';
import { connectNats } from '../../actors/runtime/nats/connect.ts';
import { ensureStreams } from '../../actors/runtime/nats/streams.ts';
import type { Clock } from '../../actors/runtime/store.ts';
import { CodedError } from '../../contracts/errors.ts';
import { silent } from '../harness/log.ts';
import { callLanes, perSec } from './lanes.ts';
import { serve } from './part.ts';

/** What no load of a bench uses up in a minute. */
const plenty = 1_000_000_000;
const org = 'bench';

let offsetMs = 0;
let host: Host | undefined;
let nc: NatsConnection | undefined;
let allowances: Allowances | undefined;
/** Of the bench, one that takes ahead and one that does not; kept, as a daemon keeps its own. */
const measured = new Map<boolean, Allowances>();

const started = <T>(part: T | undefined): T => {
  if (part === undefined) throw new Error('the host is not started');
  return part;
};

interface Sample {
  readonly key: string;
  readonly lanes: number;
  readonly ms: number;
}

const jobs = {
  start: async ({ url, name, partitions, leaseTtlMs }: { readonly url: string; readonly name: string; readonly partitions: number; readonly leaseTtlMs: number }) => {
    nc = await connectNats({ url, name });
    await ensureStreams(nc, { partitions, journalStreams: 1, replicas: 1 });
    // Leases of the host go by the monotonic clock, which nobody moves.
    const wall: Clock = { now: () => Date.now() + offsetMs, monotonic: () => performance.now() };
    host = await startHost({ config: { host: name, partitions, leaseTtlMs }, nc, definitions: [allowance()], log: silent, clock: wall });
    await host.ready;
    const moved: Clock = { now: () => wall.now(), monotonic: () => performance.now() + offsetMs };
    allowances = createAllowances({ ask: askAllowance(host.actors), clock: moved });
    return {};
  },
  /** Resolves when it holds so many partitions. */
  owns: async ({ count }: { readonly count: number }) => {
    const own = started(host);
    await new Promise<void>((resolve) => {
      const look = (owned: readonly number[]): void => {
        if (owned.length !== count) return;
        end();
        resolve();
      };
      const end = own.onOwned(look);
      look(own.owned());
    });
  },
  holds: async ({ key }: { readonly key: string }) => started(host).actors.isLocal({ org, type: 'allowance', key }),
  /** A key whose actor another host has. */
  remoteKey: async ({ prefix }: { readonly prefix: string }) => {
    const { actors } = started(host);
    for (let i = 0; i < 100_000; i++) if (!actors.isLocal({ org, type: 'allowance', key: `${prefix}${i}` })) return `${prefix}${i}`;
    throw new Error('no such partition');
  },
  skip: async ({ ms }: { readonly ms: number }) => { offsetMs += ms; },
  now: async () => Date.now() + offsetMs,

  /** So many requests, in lanes: what became of them. `hit`: the limits that refusals named. */
  load: async ({ key, perMinute, perDay, requests, lanes }: { readonly key: string; readonly perMinute: number; readonly perDay: number; readonly requests: number; readonly lanes: number }) => {
    const own = started(allowances);
    const seen = { passed: 0, refused: 0, hit: [] as unknown[], failed: [] as string[] };
    let left = requests;
    const lane = async (): Promise<void> => {
      while (left-- > 0) {
        try {
          await own.take({ org, key, perMinute, perDay });
          seen.passed += 1;
        } catch (error) {
          if (!(error instanceof CodedError)) throw error;
          if (error.code !== 'rate_limited') {
            seen.failed.push(error.code);
            continue;
          }
          seen.refused += 1;
          const limit = error.details?.['limit'];
          if (!seen.hit.includes(limit)) seen.hit.push(limit);
        }
      }
    };
    await Promise.all(Array.from({ length: lanes }, lane));
    return seen;
  },

  /** Requests per second through allowances, and asks per 1,000 of them. */
  through: async ({ key, lanes, ms, ahead }: Sample & { readonly ahead: boolean }) => {
    const own = measured.get(ahead) ?? createAllowances({ ask: askAllowance(started(host).actors), ...(ahead ? {} : { aheadMax: 0 }) });
    measured.set(ahead, own);
    const asksBefore = own.stats().asks;
    const rate = await callLanes(lanes, ms, () => own.take({ org, key, perMinute: plenty, perDay: -1 }));
    return { rate: perSec(rate), asksPer1000: (own.stats().asks - asksBefore) / rate.calls * 1_000 };
  },
  /** One ask of the actor for each request. */
  direct: async ({ key, lanes, ms }: Sample) => {
    const ask = askAllowance(started(host).actors);
    const by = `direct-${process.pid}`;
    let asks = Math.floor(performance.timeOrigin + performance.now());
    return perSec(await callLanes(lanes, ms, () => ask({ org, type: 'allowance', key }, { count: 1, perMinute: plenty, perDay: -1, by, ask: ++asks }, 10_000)));
  },
};
export type AllowanceJobs = typeof jobs;
serve(jobs);
