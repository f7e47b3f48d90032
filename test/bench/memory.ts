/**
 * Memory per idle WebSocket in the gateway (and what it costs the daemon), per idle actor, and what a passivated actor leaves.
 *
 * A WebSocket's is the growth of the process's own memory (PSS, garbage collected) between a small and a large crowd, so the
 * process itself does not count; its floor is the same at uWebSockets.js alone. An actor's is heap and external memory.
 */
import { fileURLToPath } from 'node:url';
import { median, shortNumber, type Benchmark } from './figure.ts';
import { memoryOf } from './machine.ts';
import type { MemoryJobs } from './memory-part.ts';
import { startBenchNats } from './nats.ts';
import { startPart } from './part.ts';
import { sidOf } from './sessions.ts';
import { startBenchStack } from './stack.ts';

const actorsCount = 20_000;
/** Bytes an actor by which two collections of the same heap differ. */
const collectorBytes = 16;
/** Longer than it takes to activate them all. */
const idleMs = 10_000;

/** Sockets that warm the process up, and those that are counted. */
const warm = 500;
const counted = 4_000;

export const actorMemory: Benchmark = async (settings, add) => {
  const nats = await startBenchNats({ sync: false });
  const part = await startPart<MemoryJobs>('./memory-part.ts', { name: 'memory', profiles: settings.profiles, nodeArgs: ['--expose-gc'] });
  try {
    await part.run('start', { url: nats.url, idleMs });
    const idle: number[] = [];
    const passivated: number[] = [];
    // The first run warms up code and tables that stay.
    for (let run = 0; run <= Math.min(settings.runs, 3); run++) {
      const bytes = await part.run('actors', { run, count: actorsCount });
      if (run === 0) continue;
      idle.push(bytes.idle);
      passivated.push(bytes.passivated);
    }
    const common = { unit: 'bytes', kind: 'cost', durability: '-' } as const;
    const notes = [`heap and external memory, ${actorsCount.toLocaleString('en-US')} counters that have each committed one event; there is no floor: an actor without state is nothing`];
    add({ ...common, figure: 'memory per idle actor', value: median(idle), samples: idle, aim: { of: 'value', bound: 2_048 }, notes });
    add({ ...common, figure: 'memory per passivated actor', value: median(passivated), samples: passivated, aim: { of: 'value', bound: collectorBytes }, notes: [`what is left once they have passivated; the aim is 0, and up to ${collectorBytes} bytes either way are the collector's`] });
    settings.say(`memory per idle actor: ${shortNumber(median(idle))} bytes; passivated: ${shortNumber(median(passivated))} bytes`);
  } finally {
    await part.stop();
    await nats.stop();
  }
};

export const socketMemory: Benchmark = async (settings, add) => {
  const stack = await startBenchStack(settings, ['--expose-gc', '--import', fileURLToPath(new URL('./gc-signal.ts', import.meta.url))]);
  try {
    const client = await stack.client('client');
    const floorClient = await stack.client('floor-client');
    const sids = Array.from({ length: warm + counted }, (_, i) => sidOf(i + 1));
    await stack.daemon.run('create', { sids });
    const paths = sids.map((sid) => `/v1/agent/stream?sid=${sid}&last_seq_no=0`);
    let collections = 0;
    const look = async (): Promise<{ gateway: number; daemon: number; uws: number }> => {
      process.kill(stack.gateway.pid, 'SIGUSR2');
      await stack.gateway.line(new RegExp(`^collected ${++collections}$`));
      await stack.daemon.run('collect', undefined);
      await stack.uws.run('collect', undefined);
      return { gateway: memoryOf(stack.gateway.pid), daemon: memoryOf(stack.daemon.pid), uws: memoryOf(stack.uws.pid) };
    };
    const openAll = async (some: readonly string[]): Promise<void> => {
      await client.run('open', { ...stack.target, paths: some, lastSeqNo: 0 });
      await floorClient.run('open', { ...stack.floorTarget, paths: some, lastSeqNo: 0 });
    };
    await openAll(paths.slice(0, warm));
    const before = await look();
    await openAll(paths.slice(warm));
    const after = await look();
    const each = (name: 'gateway' | 'daemon' | 'uws'): number => (after[name] - before[name]) / counted;
    const common = { unit: 'bytes', kind: 'cost', durability: '-' } as const;
    const notes = [`growth of the process's own memory (PSS) over ${counted.toLocaleString('en-US')} sockets, each on a session of its own, after ${warm}; one measurement`];
    const floor = { floor: each('uws'), floorIs: 'uWebSockets.js alone, idle sockets of the same certificate and settings' };
    add({ ...common, ...floor, figure: 'memory per idle WebSocket, gateway', value: each('gateway'), samples: [each('gateway')], ratio: each('gateway') / each('uws'), aim: { of: 'value', bound: 20_480 }, notes });
    add({ ...common, figure: 'memory per idle watched session, daemon', value: each('daemon'), samples: [each('daemon')], notes: ['the same sockets seen from the daemon: one watched session and its activation each'] });
    settings.say(`memory per idle WebSocket: gateway ${shortNumber(each('gateway'))} bytes, daemon ${shortNumber(each('daemon'))}, floor ${shortNumber(each('uws'))}`);
  } finally {
    await stack.stop();
  }
};
