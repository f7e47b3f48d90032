/**
 * One host of the cluster: the engine, its partitions, and its ways in and out over NATS, started and stopped in stages.
 *
 * Stages up: 1 stores, 2 engine and router, 3 lease (joins the cluster), 4 public addresses and service listing; partitions
 * follow as they are claimed (`ready`). Down, in `drain`: 4 public addresses close, 3 partitions are handed over one by
 * one, 2 the engine finishes, the heartbeat is removed, 1 the request path closes.
 *
 * Guarantees
 * H1  A host that cannot renew its lease stops serving before anybody may take over (membership.ts M2).
 * H2  An outage of NATS of any length is survived: the connection is the caller's and comes back; the lease is renewed and
 *     the inboxes are pulled again at once.
 * H3  `drain` loses nothing: what runs finishes, what arrives is sent on, and other hosts take over without waiting for a lease.
 * It does not connect to NATS, make streams or handle signals: the process does (connectNats, checkServer, ensureStreams).
 */
import type { NatsConnection } from 'nats';
import { buckets } from '../../../contracts/subjects.ts';
import { limits } from '../../../contracts/limits.ts';
import type { ActorDefinition } from '../define.ts';
import { createEngine } from '../engine.ts';
import type { Log } from '../log.ts';
import type { Engine } from '../message.ts';
import { createNatsStores, type NatsStores } from '../nats/stores.ts';
import { systemClock, type Clock } from '../store.ts';
import { createBucket } from './bucket.ts';
import { createDeadLetters, type DeadLetters } from './deadletter.ts';
import { createInboxReader } from './inbox.ts';
import { Leases } from './leases.ts';
import { trusted } from './membership.ts';
import { startForgetting } from './forget.ts';
import { createListener, type Listening } from './listen.ts';
import { createRouter, type Actors } from './router.ts';
import { createStatistics, startService } from './service.ts';

export interface HostConfig {
  /** Unique among the hosts of a cluster; a process that starts with the name of a dead one takes its partitions at once. */
  readonly host: string;
  /** Default `limits.partitions`; the same on every host. */
  readonly partitions?: number;
  /** Default `limits.leaseTtlMs`; the same on every host. */
  readonly leaseTtlMs?: number;
  /** Default `limits.drainMs`. */
  readonly drainMs?: number;
  /** JOURNAL streams; default 1. */
  readonly journalStreams?: number;
  /** Copies of streams and consumers; default 1. */
  readonly replicas?: number;
  /** Semantic version shown by NATS' service tools; default 0.0.0. */
  readonly version?: string;
}

/** A definition of any actor type. */
export type AnyDefinition = Pick<ActorDefinition, 'type' | 'spec'>;

export interface HostOptions {
  readonly config: HostConfig;
  /** Stays open; the caller closes it after `closed`. */
  readonly nc: NatsConnection;
  readonly definitions: readonly AnyDefinition[];
  readonly log: Log;
  readonly clock?: Clock;
  /** What NATS' service tools show of the process beside its host name; asked anew each time. */
  readonly status?: () => Readonly<Record<string, string>>;
  /** Default: made over `nc`. Given ones stay open. */
  readonly stores?: NatsStores;
  /** Milliseconds of patience with a NATS that is lost while this host joins. Default `limits.natsStartMs`. */
  readonly startMs?: number;
}

/** Why a host ended: its drain finished, `close` was called, or a process of the same host name took its place. */
export type HostEnd = 'drained' | 'closed' | 'replaced';

export interface Host {
  readonly name: string;
  /** This process's incarnation in the cluster. */
  readonly instance: string;
  readonly engine: Engine;
  readonly actors: Actors;
  readonly stores: NatsStores;
  readonly deadLetters: DeadLetters;
  /** Partitions this host serves, ascending. */
  owned(): number[];
  /** Partition → epoch of those it serves. */
  epochs(): ReadonlyMap<number, number>;
  /** Looks now for actors whose time is over, as it does every `limits.forgetLookMs` (forget.ts). Gives how many were forgotten. */
  forget(): Promise<number>;
  /** Calls back with `owned()` after each change. Gives the function that ends it. */
  onOwned(callback: (owned: readonly number[]) => void): () => void;
  /** Resolves when every partition that rendezvous places here is served; rejects if the host ends before. */
  readonly ready: Promise<void>;
  /** Hands everything over, finishes, leaves the cluster (at most `drainMs`). Resolves when done; a second call waits for the first. */
  drain(): Promise<void>;
  /** Stops at once: nothing more is committed or answered. */
  close(): void;
  readonly closed: Promise<HostEnd>;
}

/** Resolves with the promise, or when the time is over; false = late. */
const within = async (ms: number, promise: Promise<unknown>): Promise<boolean> => {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<false>((resolve) => { timer = setTimeout(() => resolve(false), Math.max(0, ms)); });
  try {
    return await Promise.race([promise.then(() => true as const), late]);
  } finally {
    clearTimeout(timer);
  }
};

/** Starts a host. A NATS that is lost meanwhile is waited for; throws `journal_unavailable` when it does not answer within `startMs`. */
export const startHost = async (options: HostOptions): Promise<Host> => {
  const { config, nc, definitions, log } = options;
  const clock = options.clock ?? systemClock;
  const name = config.host;
  const partitions = config.partitions ?? limits.partitions;
  const ttlMs = config.leaseTtlMs ?? limits.leaseTtlMs;
  const drainMs = config.drainMs ?? limits.drainMs;
  const replicas = config.replicas ?? 1;

  // 1 stores
  const stores = options.stores ?? createNatsStores(nc, { partitions, journalStreams: config.journalStreams ?? 1, replicas });
  const { lean } = stores;
  const closeStores = (): void => { if (options.stores === undefined) lean.close(); };

  // 2 engine and router: each needs the other, so the router gets at the engine by a function
  const actors = createRouter({ partitions, lean, inbox: stores.inbox, clock, engine: () => engine });
  const engine: Engine = createEngine({ definitions, partitions, stores, sender: actors, clock, log, host: name });
  const statistics = createStatistics(definitions);
  const listener = createListener({ nc, engine, sender: actors, clock, log, statistics });
  const inbox = createInboxReader({ nc, lean, engine, log, replicas });
  const forgetting = startForgetting({ engine, definitions, lean, journalStreams: config.journalStreams ?? 1, clock, log });

  const listening = new Map<number, Listening>();
  const watchers = new Set<(owned: readonly number[]) => void>();
  const ended = Promise.withResolvers<HostEnd>();
  let state: 'running' | 'draining' | 'closed' = 'running';
  let drained: Promise<void> | undefined;
  /** What stage 4 opened. */
  const open: { stop(): void | Promise<void> }[] = [];

  const stopAtOnce = (): void => {
    state = 'closed';
    void forgetting.stop();
    engine.close();
    for (const each of open.splice(0)) void each.stop();
    inbox.close();
    unwatch();
    for (const partition of listening.values()) void partition.stop();
    listening.clear();
  };

  // 3 lease
  const leases = new Leases({
    hosts: createBucket(nc, lean, buckets.hosts),
    partitions: createBucket(nc, lean, buckets.partitions),
    host: name, count: partitions, ttlMs, clock, log,
    onLease: (untilMs) => {
      engine.leaseUntil(untilMs);
      // Others take over a full TTL after the renewal was sent at the earliest; given up (0), they may have at once.
      listener.lease(untilMs === 0 ? 0 : untilMs + ttlMs * (1 - trusted));
    },
    take: (n, epoch) => {
      engine.hold(n, epoch);
      listening.set(n, listener.partition(n));
      inbox.start(n);
    },
    give: async (n) => {
      inbox.stop(n);
      await engine.release(n);
      await listening.get(n)?.stop();
      listening.delete(n);
    },
    onOwned: (owned) => { for (const watcher of watchers) watcher(owned); },
    onReplaced: () => {
      stopAtOnce();
      closeStores();
      ended.resolve('replaced');
    },
  });
  const unwatch = lean.onReconnect(() => {
    leases.wake();
    inbox.wake();
  });
  try {
    await leases.start(options.startMs);
  } catch (error) {
    stopAtOnce();
    leases.stop();
    closeStores();
    throw error;
  }

  // 4 public addresses
  open.push(listener.commands(), startService({ nc, id: leases.instance, host: name, version: config.version ?? '0.0.0', statistics, clock, status: options.status }));

  const leave = async (): Promise<void> => {
    try {
      await leases.leave();
    } catch (error) {
      log.warn({ err: error, host: name }, 'the heartbeat could not be removed; others take over when it has run out');
    }
  };

  const drain = async (): Promise<void> => {
    const endMs = clock.monotonic() + drainMs;
    const leftMs = (): number => endMs - clock.monotonic();
    state = 'draining';
    for (const each of open.splice(0)) await each.stop();
    await within(leftMs(), forgetting.stop());
    await leases.drain(leftMs());
    const finished = await within(leftMs(), Promise.all([engine.drain(), listener.idle()]));
    if (!finished) {
      log.warn({ host: name }, 'the drain ran out of time; what still runs is left to the next owner');
      engine.close();
    }
    inbox.close();
    unwatch();
    for (const partition of listening.values()) void partition.stop();
    listening.clear();
    // A lease may be long, and NATS gone: that must not hold up the end.
    if (!await within(Math.max(leftMs(), limits.leaveMs), leave())) log.warn({ host: name }, 'the heartbeat was not removed in time; others take over when it has run out');
    closeStores();
    state = 'closed';
    ended.resolve('drained');
  };

  return {
    name,
    get instance() { return leases.instance; },
    engine, actors, stores,
    deadLetters: createDeadLetters(lean, stores.inbox),
    owned: () => leases.owned(),
    epochs: () => engine.held,
    forget: () => forgetting.look(),
    onOwned: (callback) => {
      watchers.add(callback);
      return () => { watchers.delete(callback); };
    },
    ready: leases.ready,
    drain: () => {
      if (state === 'closed') return Promise.resolve();
      drained ??= drain();
      return drained;
    },
    close: () => {
      if (state === 'closed') return;
      stopAtOnce();
      leases.stop();
      void leave().finally(() => {
        closeStores();
        ended.resolve('closed');
      });
    },
    closed: ended.promise,
  };
};
