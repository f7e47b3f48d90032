/**
 * A host of actors in the test's process: the real engine over memory stores, with a clock the test moves and a crash the test
 * aims. `crashAt(n)` ends the engine at its n-th append from now, before or after the store has it; the next engine takes over
 * with a higher epoch. Asks are repeated by the host until an engine answers, as a cluster's callers do.
 */
import assert from 'node:assert/strict';
import type { Principal } from '../../contracts/capability.ts';
import { CodedError, coded } from '../../contracts/errors.ts';
import type { StoredEvent } from '../../contracts/event.ts';
import { journalSubject, partitionOf, type ActorAddress } from '../../contracts/subjects.ts';
import { decodeCommit } from '../../actors/runtime/commit.ts';
import type { ActorDefinition } from '../../actors/runtime/define.ts';
import { createEngine } from '../../actors/runtime/engine.ts';
import type { ForkSource } from '../../actors/runtime/fork.ts';
import { createMemoryStores } from '../../actors/runtime/memory/stores.ts';
import type { Engine, Message, Sender } from '../../actors/runtime/message.ts';
import type { Clock, Journal } from '../../actors/runtime/store.ts';
import type { Arm } from '../../actors/runtime/alarm.ts';
import { silent } from './log.ts';
import type { Log } from '../../actors/runtime/log.ts';

const partitions = 4;

export interface ActorHost {
  /** Asks until an engine answers; refusals are thrown. With an id a repeat takes effect once. */
  ask(address: ActorAddress, command: string, input: unknown, principal?: Principal, id?: string): Promise<unknown>;
  /** Everything in an actor's journal, in order. */
  events(address: ActorAddress): Promise<StoredEvent[]>;
  /** What there is to fold (actors/runtime/fork.ts). */
  readonly source: ForkSource;
  /** Resolves with the journal when the test holds for it; looked at after every commit of that actor. */
  until(address: ActorAddress, test: (events: readonly StoredEvent[]) => boolean): Promise<StoredEvent[]>;
  /** Ends the engine at the n-th append from now (1 = the next); `stored`: the append is in the journal all the same. */
  crashAt(n: number, stored: boolean): void;
  /** Ends the engine now and starts the next. */
  crash(): void;
  readonly crashes: number;
  /** Moves time on; what is due runs. */
  advance(ms: number): void;
  now(): number;
  stop(): void;
}

export interface ActorHostOptions {
  readonly log?: Log;
  /** Called when an engine was ended by `crash` or `crashAt` and the next has begun. */
  readonly onCrash?: (host: ActorHost) => void;
}

export const actorHost = (definitions: readonly ActorDefinition[], options: ActorHostOptions = {}): ActorHost => {
  const log = options.log ?? silent;
  const stores = createMemoryStores();
  let engine: Engine;
  let epoch = 0;
  let crashes = 0;
  let aimed: { left: number; readonly stored: boolean } | undefined;
  let stopped = false;

  let offset = 0;
  const armed = new Set<{ readonly at: number; readonly run: () => void; readonly timer: NodeJS.Timeout }>();
  const clock: Clock = { now: () => Date.now() + offset, monotonic: () => performance.now() + offset };
  const arm: Arm = (delayMs, run) => {
    const entry = {
      at: clock.monotonic() + delayMs, run,
      timer: setTimeout(() => {
        armed.delete(entry);
        run();
      }, delayMs),
    };
    armed.add(entry);
    return () => {
      clearTimeout(entry.timer);
      armed.delete(entry);
    };
  };

  const watchers = new Map<string, Set<() => void>>();
  const journal: Journal = {
    append: async (subject, data, expectedSeq) => {
      const aim = aimed;
      if (aim !== undefined && --aim.left === 0) {
        aimed = undefined;
        // A store answers later, never inside the call.
        await Promise.resolve();
        if (aim.stored) await stores.journal.append(subject, data, expectedSeq);
        next();
        throw coded('journal_unavailable');
      }
      const seq = await stores.journal.append(subject, data, expectedSeq);
      queueMicrotask(() => { for (const look of watchers.get(subject) ?? []) look(); });
      return seq;
    },
    erase: async (subject, upTo) => stores.journal.erase(subject, upTo),
    last: async (subject) => stores.journal.last(subject),
    firstFrom: async (subject, from) => stores.journal.firstFrom(subject, from),
    read: (subject, after, upTo) => stores.journal.read(subject, after, upTo),
  };

  /** Asks that were in flight when an engine ended would wait for ever. */
  let ended = Promise.withResolvers<never>();
  ended.promise.catch(() => undefined);
  const deliver = async (message: Message): Promise<unknown> => {
    for (let tries = 0; ; tries++) {
      try {
        return await Promise.race([engine.deliver(message), ended.promise]);
      } catch (error) {
        const again = error instanceof CodedError && ['interrupted', 'not_owner', 'fenced', 'journal_unavailable', 'draining'].includes(error.code);
        if (!again || stopped || tries > 50) throw error;
        await new Promise((resolve) => { setImmediate(resolve); });
      }
    }
  };
  const sender: Sender = {
    ask: deliver,
    tell: async (address, command, input, id) => {
      await deliver({ address, command, input, id, principal: { kind: 'system' } });
    },
  };
  const start = (): void => {
    epoch += 1;
    engine = createEngine({ definitions, partitions, stores: { journal, snapshots: stores.snapshots, reminders: stores.reminders }, sender, clock, log, host: `host-${epoch}`, arm });
    for (let n = 0; n < partitions; n++) engine.hold(n, epoch);
  };
  const next = (): void => {
    crashes += 1;
    engine.close();
    const { reject } = ended;
    ended = Promise.withResolvers<never>();
    ended.promise.catch(() => undefined);
    start();
    reject(coded('interrupted'));
    options.onCrash?.(host);
  };
  start();

  const subjectOf = (address: ActorAddress): string => journalSubject(partitionOf(address, partitions), address);
  const events = async (address: ActorAddress): Promise<StoredEvent[]> => {
    const subject = subjectOf(address);
    const last = await stores.journal.last(subject);
    if (last === undefined) return [];
    const found: StoredEvent[] = [];
    for await (const batch of stores.journal.read(subject, 0, last.seq)) for (const m of batch) found.push(...decodeCommit(m.data).ev);
    return found;
  };
  const host: ActorHost = {
    get crashes() { return crashes; },
    ask: async (address, command, input, principal = { kind: 'system' }, id) => deliver({ address, command, input, principal, ...(id === undefined ? {} : { id }) }),
    events,
    source: { journal: stores.journal, partitions },
    until: async (address, test) => {
      const subject = subjectOf(address);
      const looks = watchers.get(subject) ?? new Set();
      watchers.set(subject, looks);
      return new Promise((resolve, reject) => {
        const look = (): void => {
          events(address).then((found) => {
            if (!test(found)) return;
            looks.delete(look);
            resolve(found);
          }, reject);
        };
        looks.add(look);
        look();
      });
    },
    crashAt: (n, stored) => {
      assert.ok(n >= 1);
      aimed = { left: n, stored };
    },
    crash: next,
    advance: (ms) => {
      offset += ms;
      for (const entry of [...armed].sort((a, b) => a.at - b.at)) {
        if (entry.at > clock.monotonic() || !armed.delete(entry)) continue;
        clearTimeout(entry.timer);
        entry.run();
      }
    },
    now: () => clock.now(),
    stop: () => {
      stopped = true;
      engine.close();
      for (const entry of armed) clearTimeout(entry.timer);
    },
  };
  return host;
};
