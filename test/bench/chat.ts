/**
 * Streamed completions of public chat through a whole Troupe (TLS, token, payer, limits, credits, journal, metering), against the same
 * upstream called directly by the same client. Client, upstream, gateway, daemon, nats-server and Postgres are processes of their own.
 *
 * `burst`: the upstream says all at once, lanes without a pause: what the machine can do, and how long requests queue for it.
 * `paced`: it speaks as a fast model does: what one who reads a model's words notices of what is in between. The aim is of this one.
 */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { loadavg, tmpdir } from 'node:os';
import { join } from 'node:path';
import { chatWorld, completionsPath } from '../harness/chat.ts';
import { startPlatform, type PlatformOptions, type TestPlatform } from '../harness/platform.ts';
import type { CompletionsAt, CompletionsJobs, CompletionsSample } from './completions-part.ts';
import { answerChunks, pacedChunkMs, pacedFirstMs, pacedMs } from './completions.ts';
import { durabilityOf, median, shortNumber, type Aim, type Benchmark, type Row, type Settings } from './figure.ts';
import { loadOf, sharesText, type Share } from './machine.ts';
import { startPart, type Part } from './part.ts';
import type { UpstreamJobs } from './upstream-part.ts';

/** No limit of the edge or of a plan is what is measured here; they are counted all the same. */
const plenty = 1_000_000_000;
const warmups = 2;

const loads: readonly Load[] = [
  { model: 'burst', lanes: 1, ms: 1, aim: undefined },
  { model: 'burst', lanes: 50, ms: 2, aim: undefined },
  { model: 'paced', lanes: 1, ms: 3, aim: undefined },
  { model: 'paced', lanes: 50, ms: 3, aim: { of: 'value', bound: 2 } },
];

/** A Troupe whose models are the upstream's. */
export const troupeOptions = async (settings: Settings, folder: string, upstreamPort: number): Promise<PlatformOptions> => {
  const profile = (name: string): Readonly<Record<string, string>> => (settings.profiles === undefined ? {} : { NODE_OPTIONS: `--cpu-prof --cpu-prof-dir=${settings.profiles} --cpu-prof-name=${name}-${Date.now()}.cpuprofile` });
  await writeFile(join(folder, 'key'), 'vendor-key', { mode: 0o600 });
  return {
    ...(settings.sync ? { sync: 'always' as const } : {}),
    daemon: {
      log_level: 'warn',
      models: { default: 'burst', registry: ['burst', 'paced'].map((id) => ({ id, provider: 'openai', upstream_model: id, max_output_tokens: 500, input_usd_per_mtok: 3, output_usd_per_mtok: 15 })) },
      providers: { openai: { base_url: `http://127.0.0.1:${upstreamPort}/v1`, api_key_path: join(folder, 'key') } },
    },
    gateway: { log_level: 'warn', console: false, limits: { per_user_capacity: plenty, per_user_refill_per_sec: plenty, per_ip_capacity: plenty, per_ip_refill_per_sec: plenty } },
    daemonEnvironment: profile('daemon'), gatewayEnvironment: profile('gateway'),
  };
};

/** A person who may chat and whose organization pays: its limits are counted, its credits charged. */
const payingToken = async (platform: TestPlatform): Promise<string> => {
  const world = await chatWorld(platform);
  try {
    const person = await world.person('bench@example.com');
    const { id } = await world.organizations.create(person, 'bench');
    await world.setPlan(id, { plan: 'enterprise', limits: { perMinute: plenty, perDay: plenty, maxApiKeys: -1, maxMembers: -1, credits: plenty } });
    return person.accessToken;
  } finally {
    await world.stop();
  }
};

export interface Load {
  readonly model: 'burst' | 'paced';
  readonly lanes: number;
  /** Of a sample, in samples of the settings. */
  readonly ms: number;
  readonly aim: Aim | undefined;
}

const rowsOf = (settings: Settings, name: string, { model, lanes, aim }: Load, through: readonly CompletionsSample[], direct: readonly CompletionsSample[], notes: readonly string[]): Row[] => {
  const named = `${model}, ${lanes} stream${lanes === 1 ? '' : 's'}`;
  const durability = durabilityOf(settings);
  const floorIs = 'the same client calls the same upstream itself';
  const added = (what: string, of: (sample: CompletionsSample) => number, aimOf: Load['aim']): Row => {
    const floorSamples = direct.map(of);
    const samples = through.map((sample, i) => of(sample) - (floorSamples[i] ?? Number.NaN));
    return {
      figure: `${name}, ${what} added, ${named}`, unit: 'ms', kind: 'cost', durability, floorIs, floorSamples, samples, value: median(samples), floor: median(floorSamples),
      ratio: median(through.map((sample, i) => of(sample) / (floorSamples[i] ?? Number.NaN))), notes: [], ...(aimOf === undefined ? {} : { aim: aimOf }),
    };
  };
  const rates = through.map(({ rate }) => rate);
  const floorRates = direct.map(({ rate }) => rate);
  return [
    added('first byte p50', ({ first }) => first.p50, aim),
    added('first byte p99', ({ first }) => first.p99, undefined),
    added('end p50', ({ end }) => end.p50, aim),
    added('end p99', ({ end }) => end.p99, undefined),
    {
      figure: `${name}, requests, ${named}`, unit: 'requests/s', kind: 'rate', durability, floorIs, samples: rates, floorSamples: floorRates, value: median(rates), floor: median(floorRates),
      ratio: median(rates.map((rate, i) => rate / (floorRates[i] ?? Number.NaN))), notes,
    },
  ];
};

export interface LoadRun {
  readonly settings: Settings;
  readonly add: (row: Row) => void;
  /** Of the figure. */
  readonly name: string;
  readonly load: Load;
  readonly client: Part<CompletionsJobs>;
  readonly there: CompletionsAt;
  readonly direct: CompletionsAt;
  readonly processes: readonly { readonly name: string; readonly pid: number }[];
}

/** Samples one load through Troupe and past it, in turns. */
export const measureLoad = async ({ settings, add, name, load, client, there, direct, processes }: LoadRun): Promise<void> => {
  const { model, lanes } = load;
  const asked = { model, lanes, ms: settings.sampleMs * load.ms, apartMs: model === 'paced' ? pacedMs / lanes : 0 };
  const throughSamples: CompletionsSample[] = [];
  const directSamples: CompletionsSample[] = [];
  let shares: readonly Share[] = [];
  for (let run = -warmups; run < settings.runs; run++) {
    const straight = await client.run('stream', { at: direct, ...asked });
    const used = loadOf(processes);
    const passed = await client.run('stream', { at: there, ...asked });
    shares = used.stop();
    if (run < 0) continue;
    directSamples.push(straight);
    throughSamples.push(passed);
  }
  const how = model === 'burst' ? `${answerChunks.length} chunks at once` : `first chunk after ${pacedFirstMs} ms, then one each ${pacedChunkMs} ms, ${answerChunks.length} in all; the lanes begin evenly spread over one answer`;
  const rows = rowsOf(settings, name, load, throughSamples, directSamples, [how, sharesText(shares), `load average ${loadavg()[0]?.toFixed(1)}`]);
  for (const row of rows) {
    add(row);
    settings.say(`${row.figure}: ${shortNumber(row.value)} ${row.unit}, floor ${shortNumber(row.floor ?? Number.NaN)}, ratio ${(row.ratio ?? Number.NaN).toFixed(2)}`);
  }
  settings.say(`  ${sharesText(shares)}`);
};

export const chat: Benchmark = async (settings, add) => {
  const folder = await mkdtemp(join(tmpdir(), 'troupe-bench-chat-'));
  const started: { stop(): Promise<void> }[] = [{ stop: () => rm(folder, { recursive: true, force: true }) }];
  const keep = <T extends { stop(): Promise<void> }>(each: T): T => {
    started.push(each);
    return each;
  };
  try {
    const upstream = keep(await startPart<UpstreamJobs>('./upstream-part.ts', { name: 'upstream', profiles: settings.profiles }));
    const client = keep(await startPart<CompletionsJobs>('./completions-part.ts', { name: 'client', profiles: settings.profiles }));
    const { port } = await upstream.run('start', undefined as never);
    const platform = keep(await startPlatform(undefined, await troupeOptions(settings, folder, port)));
    const token = await payingToken(platform);
    const [gateway] = platform.gateways;
    const [daemon] = platform.daemons;
    if (gateway === undefined || daemon === undefined) throw new Error('no gateway or no daemon');
    const there: CompletionsAt = { port: gateway.port, path: completionsPath, token, ca: platform.ca.toString('utf8') };
    const direct: CompletionsAt = { port, path: '/v1/chat/completions', token: 'vendor-key' };
    const processes = [{ name: 'daemon', pid: daemon.pid }, { name: 'gateway', pid: gateway.pid }, { name: 'nats-server', pid: platform.nats.pid }, { name: 'upstream', pid: upstream.pid }, { name: 'client', pid: client.pid }];

    for (const load of loads) await measureLoad({ settings, add, name: 'chat', load, client, there, direct, processes });
  } finally {
    for (const each of started.toReversed()) await each.stop();
  }
};
