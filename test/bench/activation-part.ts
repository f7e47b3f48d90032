/**
 * Cold activations over a real journal: the engine itself, made anew for each round so that nothing is in memory, and for
 * the floor the same reads and the same fenced append without an engine.
 */
import type { NatsConnection } from 'nats';
import { encodeCommit, hashOf } from '../../actors/runtime/commit.ts';
import { createEngine } from '../../actors/runtime/engine.ts';
import { connectNats } from '../../actors/runtime/nats/connect.ts';
import type { Lean } from '../../actors/runtime/nats/lean.ts';
import { createNatsStores, type NatsStores } from '../../actors/runtime/nats/stores.ts';
import { ensureStreams } from '../../actors/runtime/nats/streams.ts';
import { defineActor } from '../../actors/runtime/define.ts';
import { systemClock } from '../../actors/runtime/store.ts';
import { coded } from '../../contracts/errors.ts';
import type { StoredEvent } from '../../contracts/event.ts';
import { limits } from '../../contracts/limits.ts';
import { journalSubject, partitionOf, snapshotSubject, type ActorAddress } from '../../contracts/subjects.ts';
import { z } from 'zod';
import { silent } from '../harness/log.ts';
import { median } from './figure.ts';
import { serve } from './part.ts';

const { partitions } = limits;

/** A counter that snapshots when told: `every` events. */
const counting = (type: string, every: number) => defineActor({
  type,
  events: { added: z.strictObject({ by: z.int() }) },
  initial: () => ({ count: 0 }),
  apply: { added: (state, e) => ({ count: state.count + e.by }) },
  snapshotEvery: every,
  commands: (command) => ({
    read: command({ input: z.strictObject({}), output: z.strictObject({ count: z.int() }), handle: (turn) => ({ count: turn.state.count }) }),
    add: command({
      input: z.strictObject({ times: z.int() }), output: z.strictObject({}),
      handle: (turn, { times }) => {
        for (let i = 0; i < times; i++) turn.emit('added', { by: 1 });
        return {};
      },
    }),
  }),
});
const never = 1_000_000_000;
const definitions = [counting('plain', never), counting('snapshotted', 1)];

let nc: NatsConnection | undefined;
let stores: NatsStores | undefined;
let epoch = 0;
/** Where the floor appends. */
const floorSubject = 'journal.0.bench.floor.append';
let floorSeq = 0;

const readAll = async (lean: Lean, subject: string, timeoutMs: number): Promise<void> => {
  let messages = 0;
  await lean.requestMany('$JS.API.DIRECT.GET.JOURNAL_0', JSON.stringify({ seq: 1, next_by_subj: subject, batch: 10_000 }), {
    timeoutMs,
    onMessage: (message) => {
      messages += 1;
      return message.data.length === 0;
    },
  });
  if (messages < 10) throw new Error(`the floor read ${messages} messages`);
};

const at = (type: string, n: number): ActorAddress => ({ org: 'bench', type, key: `a${n}` });
const journalOf = (address: ActorAddress): string => journalSubject(partitionOf(address, partitions), address);
const opened = (): NatsStores => {
  if (stores === undefined) throw new Error('not connected');
  return stores;
};

/** An engine that holds every partition under the next epoch. It is closed, never drained: a drain would write snapshots. */
const engineOf = () => {
  epoch += 1;
  const engine = createEngine({
    definitions, partitions, stores: opened(), clock: systemClock, log: silent, host: 'bench',
    sender: { ask: (message) => engine.deliver(message), tell: () => Promise.reject(coded('no_owner')) },
  });
  for (let n = 0; n < partitions; n++) engine.hold(n, epoch);
  return engine;
};

interface Crowd {
  readonly events: number;
  readonly actors: number;
  /** First actor's number: journals of other sizes begin elsewhere. */
  readonly first: number;
}

const jobs = {
  start: async ({ url }: { readonly url: string }) => {
    nc = await connectNats({ url, name: 'bench' });
    await ensureStreams(nc, { partitions, journalStreams: 1, replicas: 1 });
    stores = createNatsStores(nc, { partitions, journalStreams: 1, replicas: 1 });
  },
  /** Journals of so many events, one a commit, of both types; the one of them with a snapshot of its head. */
  prepare: async ({ events, actors, first }: Crowd) => {
    const { journal } = opened();
    await Promise.all(Array.from({ length: actors }, async (_, i) => {
      for (const { type } of definitions) {
        const subject = journalOf(at(type, first + i));
        let seq = 0;
        let hash = '';
        for (let n = 1; n <= events; n++) {
          const event: StoredEvent = n === 1 ? { id: '0', k: '$epoch', d: { host: 'bench' } } : { id: String(n).padStart(26, '0'), k: 'added', d: { by: 1 } };
          const data = encodeCommit({ v: 1, e: 0, n, f: 1, c: 0, m: 0, p: seq, h: hash, t: 1_800_000_000_000 + n, ev: [event] });
          seq = await journal.append(subject, data, seq);
          hash = hashOf(data);
        }
      }
    }));
    const engine = engineOf();
    await Promise.all(Array.from({ length: actors }, (_, i) => engine.deliver({ address: at('snapshotted', first + i), command: 'add', input: { times: 1 }, principal: { kind: 'system' } })));
    // The snapshot is written after the answer; it is there when it can be read.
    for (let i = 0; i < actors; i++) {
      const address = at('snapshotted', first + i);
      while (await opened().snapshots.get(snapshotSubject(partitionOf(address, partitions), address)) === undefined);
    }
    engine.close();
  },
  /** Milliseconds from an ask to its answer, one actor after the other, each activated by it. The median. */
  activate: async ({ type, actors, first, expect }: Crowd & { readonly type: 'plain' | 'snapshotted'; readonly expect: number }) => {
    const engine = engineOf();
    const times: number[] = [];
    for (let i = 0; i < actors; i++) {
      const startedMs = performance.now();
      const answer = await engine.deliver({ address: at(type, first + i), command: 'read', input: {}, principal: { kind: 'system' } });
      times.push(performance.now() - startedMs);
      const { count } = answer as { readonly count: number };
      if (count !== expect) throw new Error(`an actor counted ${count}, not ${expect}`);
    }
    engine.close();
    return median(times);
  },
  /** The same round trips without engine, decoding or checks: last message and snapshot, then a fenced append and the journal in one batch. */
  floor: async ({ type, actors, first }: Crowd & { readonly type: 'plain' | 'snapshotted' }) => {
    const { journal, lean } = opened();
    const times: number[] = [];
    const timeoutMs = 5_000;
    for (let i = 0; i < actors; i++) {
      const address = at(type, first + i);
      const subject = journalOf(address);
      const snapshot = snapshotSubject(partitionOf(address, partitions), address);
      const startedMs = performance.now();
      const [last] = await Promise.all([
        lean.request('$JS.API.STREAM.MSG.GET.JOURNAL_0', JSON.stringify({ last_by_subj: subject }), { timeoutMs }),
        lean.request('$JS.API.DIRECT.GET.SNAPSHOT', JSON.stringify({ last_by_subj: snapshot }), { timeoutMs }),
      ]);
      const [seq] = await Promise.all([
        journal.append(floorSubject, last.data, floorSeq),
        // Ends with an empty message; a batch holds at most 1,000, as the server bounds it.
        type === 'plain' ? readAll(lean, subject, timeoutMs) : undefined,
      ]);
      floorSeq = seq;
      times.push(performance.now() - startedMs);
    }
    return median(times);
  },
};
export type ActivationJobs = typeof jobs;
serve(jobs);
