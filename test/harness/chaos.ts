/**
 * A stack, its talkers, and a seeded schedule of kills among them: `kill -9` of clients and their sockets, gateways, daemons and
 * nats-server at drawn moments, each started again at once or a drawn moment later, possibly killed again while it starts.
 *
 * A supervisor, as systemd or `npm start` would, starts a daemon again that found no NATS to connect to; any other end
 * of a process that nobody killed is a failure, also of a daemon that loses NATS while it starts.
 * Guarantee: when `kill()` resolves, every process runs again and as many kills as asked were made (or the time was up).
 * Nothing here judges; proof.ts does.
 */
import { setTimeout as pause } from 'node:timers/promises';
import type { Draw } from './seed.ts';
import type { DaemonProcess, GatewayProcess, TestStack } from './stack.ts';
import { Talker, type TalkerOptions } from './talker.ts';

export type Kind = 'socket' | 'client' | 'gateway' | 'daemon' | 'nats';

export interface ChaosOptions {
  readonly stack: TestStack;
  readonly random: Draw;
  readonly talkers: readonly Talker[];
  /** How often each kind is drawn, as weights. */
  readonly weights?: Readonly<Partial<Record<Kind, number>>>;
  /** Milliseconds between two kills: at most twice this, this on average. */
  readonly everyMs: number;
}

export interface Chaos {
  /** Makes so many kills, or as many as fit into the time. */
  kill(kills: number, withinMs: number): Promise<void>;
  readonly kills: Readonly<Record<Kind, number>>;
  readonly total: number;
  /** What was done when, for a failure's report. */
  readonly log: readonly string[];
}

const usual: Readonly<Record<Kind, number>> = { socket: 4, client: 3, gateway: 3, daemon: 4, nats: 2 };

/** The processes' part of a TestStack: what configuration a fault run needs. Leases are short, so that take-overs happen; no rate limits, no console. */
export const faultConfig = {
  daemon: { lease_ttl_ms: 2_000, partitions: 16 },
  gateway: { console: false, limits: { per_user_capacity: 1e6, per_user_refill_per_sec: 1e6, per_ip_capacity: 1e6, per_ip_refill_per_sec: 1e6 } },
} as const;

/** Talkers named `<name>-1` …, each with its session made and connected. */
export const startTalkers = async (count: number, options: Omit<TalkerOptions, 'sub' | 'random'> & { readonly random: Draw; readonly name?: string }): Promise<Talker[]> => {
  const talkers = Array.from({ length: count }, (_, i) => {
    const sub = `${options.name ?? 'talker'}-${i + 1}`;
    return new Talker({ ...options, sub, random: options.random.fork(sub) });
  });
  await Promise.all(talkers.map((talker) => talker.begin()));
  return talkers;
};

/** Resolves with `work`, or rejects with a report of what did not happen. The deadline allows for a slow machine; nothing is measured by it. */
export const within = async <T>(ms: number, what: string, work: Promise<T>, report: () => string): Promise<T> => {
  const late = Promise.withResolvers<never>();
  const timer = setTimeout(() => { late.reject(new Error(`${what}: not within ${ms} ms\n${report()}`)); }, ms);
  try {
    return await Promise.race([work, late.promise]);
  } finally {
    clearTimeout(timer);
  }
};

/** What each talker still waits for. */
export const talkersReport = (talkers: readonly Talker[]): string => talkers
  .filter((t) => t.ends < t.said.length || t.failure !== undefined)
  .map((t) => `${t.sub} ${t.sid}: ${t.ends} of ${t.said.length} turns ended, ${t.state}, ${t.failure ?? 'no complaint'}; last ${JSON.stringify(t.events.at(-1)?.record)}; turn\n${t.said[t.ends]?.script}`)
  .join('\n');

export const startChaos = (options: ChaosOptions): Chaos => {
  const { stack, random, talkers } = options;
  const weights = options.weights ?? usual;
  const bag = (Object.keys(usual) as Kind[]).flatMap((kind) => Array.from({ length: weights[kind] ?? 0 }, () => kind));
  const kills: Record<Kind, number> = { socket: 0, client: 0, gateway: 0, daemon: 0, nats: 0 };
  const log: string[] = [];
  const begun = performance.now();
  /** What starts again, by process name. */
  const returns = new Map<string, Promise<void>>();

  let crashed: string | undefined;

  const note = (what: string): void => { log.push(`${((performance.now() - begun) / 1_000).toFixed(2)} s ${what}`); };
  const processKill = async (victim: DaemonProcess | GatewayProcess, downMs: number): Promise<void> => {
    // Down is not killed again; starting may be.
    await returns.get(victim.name);
    if (victim.running) await victim.kill('SIGKILL');
    else note(`${victim.name} had ended by itself`);
    returns.set(victim.name, pause(downMs).then(async () => { await victim.launch(); }));
  };
  /** Starts again what could not start without NATS. */
  const supervise = (): void => {
    for (const one of [...stack.daemons, ...stack.gateways]) {
      if (one.crashed === undefined) continue;
      const last = one.lines().at(-1) ?? '';
      if (!/cannot start: upstream_unavailable: NATS cannot be reached/.test(last)) {
        crashed ??= `${one.name} ${one.crashed}: ${last}`;
        continue;
      }
      note(`${one.name} could not start without NATS, again`);
      returns.set(one.name, (returns.get(one.name) ?? Promise.resolve()).then(async () => { if (!one.running) await one.launch(); }));
    }
  };
  const natsKill = async (downMs: number): Promise<void> => {
    await returns.get('nats');
    await stack.nats.kill('SIGKILL');
    returns.set('nats', pause(downMs).then(() => stack.nats.restart()));
  };

  const strike = async (kind: Kind): Promise<void> => {
    // Drawn first, so that the sequence of draws does not depend on what a strike finds.
    const downMs = random.next() < 0.5 ? 0 : random.int(0, 1_000);
    const talker = random.pick(talkers);
    const which = random.next();
    switch (kind) {
      case 'socket':
        note(`socket of ${talker.sub}`);
        talker.cut();
        break;
      case 'client':
        note(`client ${talker.sub}`);
        talker.die();
        break;
      case 'gateway':
      case 'daemon': {
        const all = kind === 'gateway' ? stack.gateways : stack.daemons;
        const victim = all[Math.floor(which * all.length)];
        if (victim === undefined) return;
        note(`${victim.name}, back after ${downMs} ms`);
        await processKill(victim, downMs);
        break;
      }
      case 'nats':
        note(`nats-server, back after ${downMs} ms`);
        await natsKill(downMs);
        break;
    }
    kills[kind] += 1;
  };

  return {
    kills, log,
    get total() { return Object.values(kills).reduce((sum, n) => sum + n, 0); },
    kill: async (count, withinMs) => {
      const until = performance.now() + withinMs;
      let left: Kind[] = [];
      for (let made = 0; made < count && performance.now() < until; made++) {
        await pause(random.int(0, options.everyMs * 2));
        // From a bag that is emptied before it is filled again: every kind happens in every run.
        if (left.length === 0) left = [...bag];
        const [kind] = left.splice(random.int(0, left.length - 1), 1);
        if (kind !== undefined) await strike(kind);
        supervise();
        if (crashed !== undefined) throw new Error(crashed);
        const complaint = talkers.find((t) => t.failure !== undefined);
        if (complaint !== undefined) throw new Error(`${complaint.sub}: ${complaint.failure}`);
      }
      await returns.get('nats');
      for (const one of [...stack.daemons, ...stack.gateways]) {
        for (let starts = 0; ; starts++) {
          supervise();
          await returns.get(one.name);
          if (crashed !== undefined) throw new Error(crashed);
          // NATS runs by now: one more start is enough for whoever missed it.
          if (await one.ready().then(() => true, (error: unknown) => { if (starts === 2) throw error; return false; })) break;
        }
      }
    },
  };
};
