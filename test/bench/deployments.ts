/**
 * A deployment's services through a whole Troupe (TLS, key, link, daemon, NATS): appends to client streams, blobs up and down, and chat
 * against the same upstream called directly. Client, upstream, gateway, daemon, nats-server and Postgres are processes of their own.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { loadavg, tmpdir } from 'node:os';
import { join } from 'node:path';
import { startDeployment } from '../harness/deployment.ts';
import { measureLoad, troupeOptions } from './chat.ts';
import type { CompletionsJobs } from './completions-part.ts';
import type { DeploymentJobs } from './deployments-part.ts';
import { durabilityOf, median, shortNumber, type Benchmark, type Kind } from './figure.ts';
import { loadOf, sharesText, type Share } from './machine.ts';
import { startPart } from './part.ts';
import type { UpstreamJobs } from './upstream-part.ts';

const plenty = 1_000_000_000;
const blobBytes = 32 * 1024 * 1024;
const warmups = 2;

export const deploymentServices: Benchmark = async (settings, add) => {
  const folder = await mkdtemp(join(tmpdir(), 'troupe-bench-deployment-'));
  const started: { stop(): Promise<void> }[] = [{ stop: () => rm(folder, { recursive: true, force: true }) }];
  const keep = <T extends { stop(): Promise<void> }>(each: T): T => {
    started.push(each);
    return each;
  };
  try {
    const upstream = keep(await startPart<UpstreamJobs>('./upstream-part.ts', { name: 'upstream', profiles: settings.profiles }));
    const chatting = keep(await startPart<CompletionsJobs>('./completions-part.ts', { name: 'client', profiles: settings.profiles }));
    const client = keep(await startPart<DeploymentJobs>('./deployments-part.ts', { name: 'client', profiles: settings.profiles }));
    const { port: upstreamPort } = await upstream.run('start', undefined as never);
    const world = keep(await startDeployment(undefined, await troupeOptions(settings, folder, upstreamPort)));
    const { id } = world.org;
    await world.system.ask({ org: id, type: 'organization', key: id }, 'set_plan', { plan: 'enterprise', limits: { perMinute: plenty, perDay: plenty, maxApiKeys: -1, maxMembers: -1, credits: plenty }, reason: 'bench' });
    const [gateway] = world.gateways;
    const [daemon] = world.daemons;
    const [port] = world.deploymentPorts;
    if (gateway === undefined || daemon === undefined || port === undefined) throw new Error('no gateway or no daemon');
    const ca = world.ca.toString('utf8');
    const shared = [{ name: 'daemon', pid: daemon.pid }, { name: 'gateway', pid: gateway.pid }, { name: 'nats-server', pid: world.nats.pid }];
    await client.run('connect', { port, ca, key: world.key });
    const durability = durabilityOf(settings);
    const put = (figure: string, unit: string, kind: Kind, samples: readonly number[], notes: readonly string[]): void => {
      add({ figure, unit, kind, durability, value: median(samples), samples, notes: [...notes, `load average ${loadavg()[0]?.toFixed(1)}`] });
      settings.say(`${figure}: ${shortNumber(median(samples))} ${unit}`);
    };

    for (const { lanes, events } of [{ lanes: 1, events: 1 }, { lanes: 4, events: 1 }, { lanes: 4, events: 1_000 }]) {
      const rates: number[] = [];
      const p50: number[] = [];
      const p99: number[] = [];
      let shares: readonly Share[] = [];
      for (let run = -warmups; run < settings.runs; run++) {
        const used = loadOf([...shared, { name: 'client', pid: client.pid }]);
        const sample = await client.run('append', { lanes, events, ms: settings.sampleMs });
        shares = used.stop();
        if (run < 0) continue;
        rates.push(sample.rate * events);
        p50.push(sample.p50);
        p99.push(sample.p99);
      }
      const named = `${lanes} client${lanes === 1 ? '' : 's'}, ${events.toLocaleString('en-US')} event${events === 1 ? '' : 's'} a request`;
      put(`journal append, ${named}`, 'events/s', 'rate', rates, [`a request p50 ${shortNumber(median(p50))} ms, p99 ${shortNumber(median(p99))} ms`, sharesText(shares)]);
    }

    for (const content of ['noise', 'text'] as const) {
      const ups: number[] = [];
      const downs: number[] = [];
      for (let run = -1; run < settings.runs; run++) {
        const { up, down } = await client.run('blob', { bytes: blobBytes, content });
        if (run < 0) continue;
        ups.push(up);
        downs.push(down);
      }
      put(`blob of 32 MiB up, ${content}`, 'MB/s', 'rate', ups, []);
      put(`blob of 32 MiB down, ${content}`, 'MB/s', 'rate', downs, []);
    }

    const there = { port, path: '/v1/chat?format=openai', token: world.key, ca, sessions: true };
    const direct = { port: upstreamPort, path: '/v1/chat/completions', token: 'vendor-key' };
    const processes = [...shared, { name: 'upstream', pid: upstream.pid }, { name: 'client', pid: chatting.pid }];
    for (const [model, lanes, ms] of [['burst', 1, 1], ['burst', 50, 2], ['paced', 50, 3]] as const) {
      await measureLoad({ settings, add, name: 'deployment chat', load: { model, lanes, ms, aim: undefined }, client: chatting, there, direct, processes });
    }
  } finally {
    for (const each of started.toReversed()) await each.stop();
  }
};
