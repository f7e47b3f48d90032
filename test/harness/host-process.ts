/** A host in a process of its own (forked by cluster.ts): tells its parent what happens, drains on SIGTERM. */
import { connectNats } from '../../actors/runtime/nats/connect.ts';
import { startHost } from '../../actors/runtime/cluster/host.ts';
import { systemClock, type Clock } from '../../actors/runtime/store.ts';
import type { ChildOptions, ChildSays } from './cluster.ts';
import { recorder } from './log.ts';
import { tallyActor } from './tally.ts';

const options = JSON.parse(process.argv[2] ?? '') as ChildOptions;
const say = (says: ChildSays): void => { process.send?.(says); };
const log = recorder(({ level, text, fields }) => say({ kind: 'log', level, text, fields: JSON.parse(JSON.stringify(fields, (_key, value: unknown) => value instanceof Error ? value.message : value)) as unknown }));
const frozenMs = performance.now();
const clock: Clock = options.stuckClock === true ? { now: () => systemClock.now(), monotonic: () => frozenMs } : systemClock;
const nc = await connectNats({ url: options.url, name: options.config.host });
const host = await startHost({ config: options.config, nc, definitions: [tallyActor({ host: options.config.host, tracePath: options.tracePath })], log, clock });
host.onOwned((owned) => say({ kind: 'owned', owned, instance: host.instance }));
process.on('SIGTERM', () => { void host.drain(); });
process.on('disconnect', () => process.exit(1));
void host.closed.then(async (end) => {
  say({ kind: 'ended', end });
  await nc.close();
  process.disconnect();
});
await host.ready;
say({ kind: 'ready', instance: host.instance });
