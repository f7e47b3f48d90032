/**
 * Session events on their way: from emit to the TLS WebSocket of a client (200 sessions), one session to 2,000 watchers, and a
 * replay of 10,000 events to a client that comes back.
 *
 * Floor of each: uWebSockets.js alone sends the same frames, in the same groups, to the same load client. The floor's two
 * processes have the machine for themselves; the figure's four (nats-server, daemon, gateway, client) share it.
 * That the load client is not what bounds: its share of a processor is printed, and the same is measured with two of them.
 */
import { durabilityOf, measure, median, shortNumber, type Benchmark, type Settings } from './figure.ts';
import { loadOf, sharesText, type Share } from './machine.ts';
import type { ClientJobs } from './client-part.ts';
import type { Part } from './part.ts';
import { sidOf } from './sessions.ts';
import { startBenchStack, type BenchStack } from './stack.ts';

const waitMs = 60_000;

/** What one measurement delivers, and to whom. */
interface Crowd {
  readonly sids: readonly string[];
  /** WebSockets per session. */
  readonly watchers: number;
  /** Events per session and sample. */
  readonly events: number;
  readonly perCommit: number;
}

/** A crowd's sockets, spread over its clients, at the product and at the floor. */
class Audience {
  readonly #stack: BenchStack;
  readonly #crowd: Crowd;
  readonly #clients: readonly Part<ClientJobs>[];
  readonly #floorClients: readonly Part<ClientJobs>[];
  #seqNo = 0;
  #floorSeqNo = 0;
  shares: readonly Share[] = [];
  floorShares: readonly Share[] = [];

  constructor(stack: BenchStack, crowd: Crowd, clients: readonly Part<ClientJobs>[], floorClients: readonly Part<ClientJobs>[]) {
    this.#stack = stack;
    this.#crowd = crowd;
    this.#clients = clients;
    this.#floorClients = floorClients;
  }

  static async open(stack: BenchStack, crowd: Crowd, clientCount: number): Promise<Audience> {
    await stack.daemon.run('create', { sids: crowd.sids });
    const clients = await Promise.all(Array.from({ length: clientCount }, (_, i) => stack.client(`client-${i}`)));
    const floorClients = await Promise.all(Array.from({ length: clientCount }, (_, i) => stack.client(`floor-client-${i}`)));
    const paths = crowd.sids.flatMap((sid) => Array.from({ length: crowd.watchers }, () => `/v1/agent/stream?sid=${sid}&last_seq_no=0`));
    const mine = (i: number): string[] => paths.filter((_, n) => n % clientCount === i);
    for (const [i, client] of clients.entries()) await client.run('open', { ...stack.target, paths: mine(i), lastSeqNo: 0 });
    for (const [i, client] of floorClients.entries()) await client.run('open', { ...stack.floorTarget, paths: mine(i), lastSeqNo: 0 });
    return new Audience(stack, crowd, clients, floorClients);
  }

  get #deliveries(): number {
    return this.#crowd.sids.length * this.#crowd.watchers * this.#crowd.events;
  }

  /** Deliveries per second from the first emit to the last event at the last client. */
  async sample(): Promise<number> {
    const { sids, events, perCommit } = this.#crowd;
    this.#seqNo += events;
    for (const client of this.#clients) await client.run('arm', { seqNo: this.#seqNo });
    const { nats, daemon, gateway } = this.#stack;
    const load = loadOf([{ name: 'nats-server', pid: nats.pid }, { name: 'daemon', pid: daemon.pid }, { name: 'gateway', pid: gateway.pid }, ...this.#clients]);
    const arrived = Promise.all(this.#clients.map((client) => client.run('arrived', { withinMs: waitMs })));
    const [{ startedAt }, ends] = await Promise.all([daemon.run('emit', { sids, total: events, perCommit }), arrived]);
    this.shares = load.stop();
    return this.#deliveries / ((Math.max(...ends.map(({ at }) => at)) - startedAt) / 1_000);
  }

  /** `perGroup`: frames written together; default as many as the figure's commits hold. */
  async sampleFloor(perGroup: number = this.#crowd.perCommit): Promise<number> {
    const { sids, events } = this.#crowd;
    await this.#stack.uws.run('prepare', { sid: sids[0] ?? '', from: this.#floorSeqNo, total: events });
    this.#floorSeqNo += events;
    for (const client of this.#floorClients) await client.run('arm', { seqNo: this.#floorSeqNo });
    const load = loadOf([{ name: 'uWebSockets.js', pid: this.#stack.uws.pid }, ...this.#floorClients]);
    const arrived = Promise.all(this.#floorClients.map((client) => client.run('arrived', { withinMs: waitMs })));
    const [{ startedAt }, ends] = await Promise.all([this.#stack.uws.run('send', { perGroup }), arrived]);
    this.floorShares = load.stop();
    return this.#deliveries / ((Math.max(...ends.map(({ at }) => at)) - startedAt) / 1_000);
  }

  /** Ends the load clients, and with them their sockets. */
  async close(): Promise<void> {
    for (const client of [...this.#clients, ...this.#floorClients]) await client.stop();
  }
}

const crowdOf = (first: number, sessions: number, watchers: number, events: number, perCommit: number): Crowd => ({
  sids: Array.from({ length: sessions }, (_, i) => sidOf(first + i)), watchers, events, perCommit,
});

/** The same crowd split over two load clients: were one the bound, two would give more. */
const twice = async (settings: Settings, stack: BenchStack, crowd: Crowd): Promise<string> => {
  const audience = await Audience.open(stack, crowd, 2);
  try {
    const figures: number[] = [];
    const floors: number[] = [];
    for (let run = 0; run < Math.min(3, settings.runs) + 1; run++) {
      floors.push(await audience.sampleFloor());
      figures.push(await audience.sample());
    }
    return `with two load clients: ${shortNumber(median(figures.slice(1)))}, floor ${shortNumber(median(floors.slice(1)))} (${sharesText(audience.floorShares)})`;
  } finally {
    await audience.close();
  }
};

const unit = 'events/s';
const floorIs = 'uWebSockets.js alone in a process, same frames in the same groups, same load client';
const notesOf = (audience: Audience): string[] => [`figure: ${sharesText(audience.shares)}`, `floor: ${sharesText(audience.floorShares)}`];

export const events: Benchmark = async (settings, add) => {
  const stack = await startBenchStack(settings);
  try {
    let first = 1;
    for (const [perCommit, total] of [[1, 100], [16, 480], [64, 960]] as const) {
      const crowd = crowdOf(first, 200, 1, total, perCommit);
      const audience = await Audience.open(stack, crowd, 1);
      first += 1_000;
      const singles: number[] = [];
      const row = await measure(settings, {
        figure: `emit to TLS client, 200 sessions, ${perCommit} a commit`, unit, kind: 'rate', durability: durabilityOf(settings), floorIs,
        ...(perCommit === 64 ? { aim: { of: 'ratio', bound: 0.6 } as const } : {}),
        sample: async () => {
          const rate = await audience.sample();
          if (perCommit > 1) singles.push(await audience.sampleFloor(1));
          return rate;
        },
        sampleFloor: () => audience.sampleFloor(),
        notes: () => [...notesOf(audience), ...(perCommit === 1 ? [] : [`uWebSockets.js alone, each frame written by itself: ${shortNumber(median(singles))}`])],
      }).finally(() => audience.close());
      const doubled = perCommit === 64 ? [await twice(settings, stack, crowdOf(first, 200, 1, total, perCommit))] : [];
      add({ ...row, notes: [...row.notes, ...doubled] });
      first += 1_000;
    }
  } finally {
    await stack.stop();
  }
};

export const fanout: Benchmark = async (settings, add) => {
  const stack = await startBenchStack(settings);
  try {
    const audience = await Audience.open(stack, crowdOf(1, 1, 2_000, 64, 1), 1);
    const row = await measure(settings, {
      figure: 'one session to 2,000 watchers', unit: 'deliveries/s', kind: 'rate', durability: durabilityOf(settings), floorIs,
      sample: () => audience.sample(), sampleFloor: () => audience.sampleFloor(), notes: () => notesOf(audience),
    }).finally(() => audience.close());
    add({ ...row, notes: [...row.notes, await twice(settings, stack, crowdOf(2, 1, 2_000, 64, 1))] });
  } finally {
    await stack.stop();
  }
};

/** Events replayed; one a commit, the most there can be to read. */
const replayed = 10_000;

export const replay: Benchmark = async (settings, add) => {
  const stack = await startBenchStack(settings);
  try {
    const sid = sidOf(1);
    await stack.daemon.run('create', { sids: [sid] });
    await stack.daemon.run('emit', { sids: [sid], total: replayed, perCommit: 1 });
    await stack.uws.run('replay', { sid, total: replayed, perGroup: 64 });
    const client = await stack.client('client');
    let shares: readonly Share[] = [];
    const path = `/v1/agent/stream?sid=${sid}&last_seq_no=0`;
    add(await measure(settings, {
      figure: 'replay of 10,000 events (10,000 commits)', unit: 'ms', kind: 'cost', durability: '-',
      floorIs: 'uWebSockets.js alone sends the same frames, in groups of 64, when the socket opens',
      sample: async () => {
        const { nats, daemon, gateway } = stack;
        const load = loadOf([{ name: 'nats-server', pid: nats.pid }, { name: 'daemon', pid: daemon.pid }, { name: 'gateway', pid: gateway.pid }, client]);
        const { ms } = await client.run('replay', { ...stack.target, path, lastSeqNo: 0, seqNo: replayed });
        shares = load.stop();
        return ms;
      },
      sampleFloor: async () => (await client.run('replay', { ...stack.floorTarget, path, lastSeqNo: 0, seqNo: replayed })).ms,
      notes: () => ['from the TLS connect of a fresh client to the last event', sharesText(shares)],
    }));
  } finally {
    await stack.stop();
  }
};
