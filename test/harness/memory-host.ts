/**
 * Hosts of actors in the test's process, sharing memory stores: the real engine, a clock that the test moves, tells that
 * arrive when the test lets them. For tests of the engine itself.
 */
import type { Principal } from '../../contracts/capability.ts';
import { CodedError } from '../../contracts/errors.ts';
import type { Commit, StoredEvent } from '../../contracts/event.ts';
import { addressTokens, inboxSubject, journalSubject, parseInboxSubject, partitionOf, type ActorAddress } from '../../contracts/subjects.ts';
import { decodeCommit } from '../../actors/runtime/commit.ts';
import type { ActorDefinition } from '../../actors/runtime/define.ts';
import { createEngine } from '../../actors/runtime/engine.ts';
import { createManualClock, type ManualClock } from '../../actors/runtime/memory/clock.ts';
import { createMemoryStores, type MemoryStores } from '../../actors/runtime/memory/stores.ts';
import type { Engine, Message, Sender } from '../../actors/runtime/message.ts';
import { recorder } from './log.ts';

export const partitions = 8;

export interface Cluster {
  readonly clock: ManualClock;
  readonly stores: MemoryStores;
}

export const createCluster = (): Cluster => {
  const clock = createManualClock();
  return { clock, stores: createMemoryStores(() => clock.now()) };
};

export interface Host {
  readonly engine: Engine;
  readonly log: ReturnType<typeof recorder>;
  ask(address: ActorAddress, command: string, input?: unknown, more?: Partial<Message>): Promise<unknown>;
  /** Delivers what the inbox holds until it is empty; gives how many messages took effect or were refused. */
  deliverTells(): Promise<number>;
}

export interface HostOptions {
  readonly definitions: readonly ActorDefinition[];
  readonly epoch?: number;
  readonly sender?: Partial<Sender>;
  readonly activationsMax?: number;
  /** Partitions to take. Default all. */
  readonly hold?: readonly number[];
}

export const system: Principal = { kind: 'system' };

export const createHost = ({ clock, stores }: Cluster, options: HostOptions): Host => {
  const log = recorder();
  const { epoch = 1 } = options;
  const sender: Sender = {
    ask: options.sender?.ask ?? ((message) => engine.deliver(message)),
    tell: options.sender?.tell ?? (async (target, command, input, id) => {
      await stores.inbox.send(inboxSubject(partitionOf(target, partitions), target, command), id, Buffer.from(JSON.stringify(input)));
    }),
  };
  const engine: Engine = createEngine({
    definitions: options.definitions, partitions, stores, sender, clock, log, host: `host-${epoch}`, arm: clock.arm,
    ...(options.activationsMax === undefined ? {} : { activationsMax: options.activationsMax }),
  });
  for (const n of options.hold ?? Array.from({ length: partitions }, (_, i) => i)) engine.hold(n, epoch);
  return {
    engine,
    log,
    ask: (address, command, input = {}, more = {}) => engine.deliver({ address, command, input, principal: system, ...more }),
    deliverTells: async () => {
      let delivered = 0;
      for (let message = stores.inbox.messages[0]; message !== undefined; message = stores.inbox.messages[0]) {
        const { command, ...address } = parseInboxSubject(message.subject);
        try {
          await engine.deliver({ address, command, input: JSON.parse(Buffer.from(message.data).toString('utf8')), principal: system, id: message.id });
        } catch (error) {
          if (!(error instanceof CodedError) || error.entry.kind !== 'refusal') throw error;
        }
        stores.inbox.take(message);
        delivered += 1;
      }
      return delivered;
    },
  };
};

export const subjectOf = (address: ActorAddress): string => journalSubject(partitionOf(address, partitions), address);
export const reminderKey = (address: ActorAddress): string => `reminder.${partitionOf(address, partitions)}.${addressTokens(address)}`;
export const snapshotKey = (address: ActorAddress): string => `snapshot.${partitionOf(address, partitions)}.${addressTokens(address)}`;

export const commitsOf = ({ stores }: Cluster, address: ActorAddress): Commit[] => stores.journal.messages(subjectOf(address)).map((message) => decodeCommit(message.data));
export const eventsOf = (cluster: Cluster, address: ActorAddress): StoredEvent[] => commitsOf(cluster, address).flatMap((commit) => commit.ev);
/** The actor's own events, as `kind payload`. */
export const domainOf = (cluster: Cluster, address: ActorAddress): string[] =>
  eventsOf(cluster, address).filter((event) => !event.k.startsWith('$')).map((event) => `${event.k} ${JSON.stringify(event.d)}`);

/** The code a promise is rejected with; throws if it is not. */
export const codeOf = async (promise: Promise<unknown>): Promise<string> => {
  const outcome = await promise.then((value) => ({ value }), (error: unknown) => ({ error }));
  if ('value' in outcome) throw new TypeError(`expected a refusal, got ${JSON.stringify(outcome.value)}`);
  if (outcome.error instanceof CodedError) return outcome.error.code;
  throw outcome.error;
};
