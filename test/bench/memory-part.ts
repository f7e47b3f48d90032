/** Actors in memory: an engine over a real journal, in a process whose garbage can be collected on demand. */
import { connectNats } from '../../actors/runtime/nats/connect.ts';
import { createEngine } from '../../actors/runtime/engine.ts';
import type { Engine } from '../../actors/runtime/message.ts';
import { createNatsStores } from '../../actors/runtime/nats/stores.ts';
import { ensureStreams } from '../../actors/runtime/nats/streams.ts';
import { systemClock } from '../../actors/runtime/store.ts';
import { coded } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { counter } from '../actors/counter/counter.ts';
import { silent } from '../harness/log.ts';
import { serve } from './part.ts';

const { partitions } = limits;
let engine: Engine | undefined;

const running = (): Engine => {
  if (engine === undefined) throw new Error('not started');
  return engine;
};

const heapBytes = (): number => {
  for (let i = 0; i < 3; i++) globalThis.gc?.();
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
};

/** Every key at most so often at once, so that the engine's own bounds are kept. */
const addTo = async (prefix: string, count: number): Promise<void> => {
  let next = 0;
  await Promise.all(Array.from({ length: 256 }, async () => {
    for (let n = next++; n < count; n = next++) {
      await running().deliver({ address: { org: 'bench', type: 'counter', key: `${prefix}${n}` }, command: 'add', input: { by: 1 }, principal: { kind: 'system' } });
    }
  }));
};

const jobs = {
  start: async ({ url, idleMs }: { readonly url: string; readonly idleMs: number }) => {
    const nc = await connectNats({ url, name: 'bench' });
    const plan = { partitions, journalStreams: 1, replicas: 1 };
    await ensureStreams(nc, plan);
    const made: Engine = createEngine({
      definitions: [{ ...counter, spec: { ...counter.spec, idleMs } }], partitions, stores: createNatsStores(nc, plan), clock: systemClock, log: silent, host: 'bench',
      sender: { ask: (message) => made.deliver(message), tell: () => Promise.reject(coded('no_owner')) },
    });
    engine = made;
    for (let n = 0; n < partitions; n++) made.hold(n, 1);
  },
  /** Heap and external bytes before, with `count` idle actors that have each committed an event, and after they passivated. */
  actors: async ({ run, count }: { readonly run: number; readonly count: number }) => {
    const before = heapBytes();
    await addTo(`r${run}-`, count);
    const { activations } = running().stats();
    if (activations < count) throw new Error(`only ${activations} of ${count} actors are active`);
    const idle = heapBytes();
    while (running().stats().activations > 0) await new Promise<void>((resolve) => { setTimeout(resolve, 50); });
    return { idle: (idle - before) / count, passivated: (heapBytes() - before) / count };
  },
};
export type MemoryJobs = typeof jobs;
serve(jobs);
