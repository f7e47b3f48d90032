/**
 * Hosts of a cluster for tests, in this process or forked, over one real nats-server, and a plain NATS client to call them.
 *
 * Waiting is by what happens (a callback, an IPC message, an answer), never by a fixed sleep.
 */
import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { headers, type NatsConnection } from 'nats';
import { startHost, type AnyDefinition, type Host, type HostConfig } from '../../actors/runtime/cluster/host.ts';
import { errorHeaders, requestHeaders } from '../../actors/runtime/cluster/wire.ts';
import type { Log } from '../../actors/runtime/log.ts';
import { connectNats } from '../../actors/runtime/nats/connect.ts';
import { createNatsStores, type NatsStores } from '../../actors/runtime/nats/stores.ts';
import { systemClock, type Clock } from '../../actors/runtime/store.ts';
import { CodedError } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { commandSubject, type ActorAddress } from '../../contracts/subjects.ts';
import { silent } from './log.ts';

export interface HostHere {
  readonly host: Host;
  readonly nc: NatsConnection;
  /** Resolves when the condition on what it owns holds. */
  owns(condition: (owned: readonly number[]) => boolean): Promise<void>;
  /** Drains and disconnects. */
  stop(): Promise<void>;
}

export interface HereOptions {
  readonly url: string;
  readonly config: HostConfig;
  readonly definitions: readonly AnyDefinition[];
  readonly log?: Log;
  readonly clock?: Clock;
  /** Puts something of the test's between the engine and its stores. */
  readonly stores?: (stores: NatsStores) => NatsStores;
}

/** A host in this process, with a connection of its own. */
export const hostHere = async ({ url, config, definitions, log = silent, clock = systemClock, stores = (own) => own }: HereOptions): Promise<HostHere> => {
  const nc = await connectNats({ url, name: config.host });
  const plan = { partitions: config.partitions ?? limits.partitions, journalStreams: config.journalStreams ?? 1, replicas: config.replicas ?? 1 };
  const host = await startHost({ config, nc, definitions, log, clock, stores: stores(createNatsStores(nc, plan)) });
  return {
    host, nc,
    owns: (condition) => new Promise((resolve) => {
      const check = (owned: readonly number[]): void => {
        if (!condition(owned)) return;
        end();
        resolve();
      };
      const end = host.onOwned(check);
      check(host.owned());
    }),
    stop: async () => {
      await host.drain();
      await nc.close();
    },
  };
};

/** What a forked host is told (first argument, JSON). */
export interface ChildOptions {
  readonly url: string;
  readonly config: HostConfig;
  readonly tracePath: string;
  /** The host's monotonic clock stands still from the start, so it believes in its lease for ever. */
  readonly stuckClock?: boolean;
}
/** What a forked host says. */
export type ChildSays =
  | { readonly kind: 'ready'; readonly instance: string }
  | { readonly kind: 'owned'; readonly owned: readonly number[]; readonly instance: string }
  | { readonly kind: 'log'; readonly level: string; readonly text: string; readonly fields: unknown }
  | { readonly kind: 'ended'; readonly end: string };

export interface HostChild {
  readonly name: string;
  readonly pid: number;
  readonly said: readonly ChildSays[];
  /** The next, or an earlier, thing said that matches. */
  when(condition: (says: ChildSays) => boolean): Promise<ChildSays>;
  kill(signal: NodeJS.Signals): Promise<void>;
  pause(): void;
  resume(): void;
  /** Asks for a drain and waits for the exit. */
  stop(): Promise<void>;
}

/** A host in a process of its own, hosting the tally actor. Resolves when it is ready. */
export const hostChild = async (options: ChildOptions): Promise<HostChild> => {
  const child: ChildProcess = fork(new URL('./host-process.ts', import.meta.url), [JSON.stringify(options)], { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] });
  const said: ChildSays[] = [];
  const waiting = new Set<{ condition: (says: ChildSays) => boolean; resolve: (says: ChildSays) => void; reject: (error: Error) => void }>();
  child.on('message', (says: ChildSays) => {
    said.push(says);
    for (const wait of waiting) {
      if (!wait.condition(says)) continue;
      waiting.delete(wait);
      wait.resolve(says);
    }
  });
  child.once('exit', (code, signal) => {
    for (const { reject } of waiting) reject(new Error(`${options.config.host} exited with ${code ?? signal}`));
    waiting.clear();
  });
  const exited = once(child, 'exit');
  const { pid } = child;
  if (pid === undefined) throw new Error('the host process has no pid');
  const self: HostChild = {
    name: options.config.host, pid, said,
    when: (condition) => {
      const earlier = said.find(condition);
      if (earlier !== undefined) return Promise.resolve(earlier);
      return new Promise((resolve, reject) => { waiting.add({ condition, resolve, reject }); });
    },
    kill: async (signal) => {
      child.kill(signal);
      await exited;
    },
    pause: () => { child.kill('SIGSTOP'); },
    resume: () => { child.kill('SIGCONT'); },
    stop: async () => {
      if (child.exitCode !== null || child.signalCode !== null) return;
      child.kill('SIGCONT');
      child.kill('SIGTERM');
      const timer = setTimeout(() => child.kill('SIGKILL'), 10_000);
      await exited;
      clearTimeout(timer);
    },
  };
  await self.when((says) => says.kind === 'ready');
  return self;
};

export interface CallOptions {
  readonly id?: string;
  readonly deadlineMs?: number;
}

/** Calls a command as any NATS client would. Throws the coded error of the answer, or the client's own. */
export const call = async (nc: NatsConnection, address: ActorAddress, command: string, input: unknown, { id, deadlineMs = 10_000 }: CallOptions = {}): Promise<unknown> => {
  const head = headers();
  if (id !== undefined) head.set(requestHeaders.id, id);
  head.set(requestHeaders.deadlineMs, String(deadlineMs));
  const reply = await nc.request(commandSubject(address, command), JSON.stringify(input), { timeout: deadlineMs + 500, headers: head });
  const code = reply.headers?.get(errorHeaders.code) ?? '';
  if (code !== '') throw new CodedError(code, reply.headers?.get(errorHeaders.message));
  return reply.data.length === 0 ? undefined : reply.json();
};

/** The same, repeated under one id until it is answered: what a careful client does over crashes. */
export const callUntil = async (nc: NatsConnection, address: ActorAddress, command: string, input: unknown, id: string): Promise<unknown> => {
  let last: unknown;
  for (let tries = 0; tries < 60; tries++) {
    try {
      return await call(nc, address, command, input, { id, deadlineMs: 1_000 });
    } catch (error) {
      if (error instanceof CodedError && error.entry.retry === 'never') throw error;
      last = error;
      // Answered at once with a refusal to wait (nobody serves yet): the next try must not spin.
      await new Promise((resolve) => { setTimeout(resolve, 20); });
    }
  }
  throw last;
};
