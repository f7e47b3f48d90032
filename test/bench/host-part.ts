/**
 * A host of actors in a process of its own, and the floors beside it: the same work over the same connection's kind without
 * an engine. Jobs measure from inside, because an ask is a function call of its caller.
 */
import { createInbox, type NatsConnection } from 'nats';
import { startHost, type Host } from '../../actors/runtime/cluster/host.ts';
import { connectNats } from '../../actors/runtime/nats/connect.ts';
import { HeaderLine } from '../../actors/runtime/nats/header.ts';
import { ensureStreams } from '../../actors/runtime/nats/streams.ts';
import { limits } from '../../contracts/limits.ts';
import { addressTokens, journalSubject, partitionOfTokens } from '../../contracts/subjects.ts';
import { counter } from '../actors/counter/counter.ts';
import { silent } from '../harness/log.ts';
import { callbackLanes, callLanes, perSec } from './lanes.ts';
import { serve } from './part.ts';

const partitions = limits.partitions;
const org = 'bench';
let host: Host | undefined;
let nc: NatsConnection | undefined;
/** A second connection for floors, so that neither waits behind the other's bytes. */
let raw: NatsConnection | undefined;

const running = (): { host: Host; nc: NatsConnection; raw: NatsConnection } => {
  if (host === undefined || nc === undefined || raw === undefined) throw new Error('the host is not started');
  return { host, nc, raw };
};

/** Keys of counters that this host serves, or that another does. */
const keysOf = (count: number, local: boolean): string[] => {
  const { actors } = running().host;
  const keys: string[] = [];
  for (let i = 0; keys.length < count; i++) {
    if (i > 100_000) throw new Error('no such partitions');
    if (actors.isLocal({ org, type: 'counter', key: `c${i}` }) === local) keys.push(`c${i}`);
  }
  return keys;
};

const asksOf = (count: number, local: boolean) => keysOf(count, local).map((key) => running().host.actors.ref(counter, org, key).ask);

type Sample = { readonly lanes: number; readonly ms: number };

const jobs = {
  start: async ({ url, name }: { readonly url: string; readonly name: string }) => {
    nc = await connectNats({ url, name });
    raw = await connectNats({ url, name: `${name}-floor` });
    await ensureStreams(nc, { partitions, journalStreams: 1, replicas: 1 });
    host = await startHost({ config: { host: name, partitions }, nc, definitions: [counter], log: silent });
    await host.ready;
    return { owned: host.owned().length };
  },
  /** Resolves when it holds exactly that many partitions. */
  owns: async ({ count }: { readonly count: number }) => {
    const { host: own } = running();
    await new Promise<void>((resolve) => {
      const look = (owned: readonly number[]): void => {
        if (owned.length !== count) return;
        end();
        resolve();
      };
      const end = own.onOwned(look);
      look(own.owned());
    });
  },

  localAsk: async ({ lanes, ms }: Sample) => {
    const asks = asksOf(lanes, true);
    return perSec(await callLanes(lanes, ms, (lane) => asks[lane]?.read({}) ?? Promise.reject(new Error('no lane'))));
  },
  /** A look-up by key and an asynchronous call of the same handler's work: what any local dispatch costs at least. */
  localFloor: async ({ lanes, ms }: Sample) => {
    const states = new Map(keysOf(lanes, true).map((key) => [key, { count: 0 }]));
    const keys = [...states.keys()];
    const read = async (key: string): Promise<{ count: number }> => ({ count: states.get(key)?.count ?? 0 });
    return perSec(await callLanes(lanes, ms, (lane) => read(keys[lane] ?? '')));
  },

  command: async ({ lanes, ms }: Sample) => {
    const asks = asksOf(lanes, true);
    return perSec(await callLanes(lanes, ms, (lane) => asks[lane]?.add({ by: 1 }) ?? Promise.reject(new Error('no lane'))));
  },
  /** Several callers of each actor: their turns share commits. */
  commandShared: async ({ lanes, callers, ms }: Sample & { readonly callers: number }) => {
    const asks = asksOf(lanes, true);
    return perSec(await callLanes(lanes * callers, ms, (lane) => asks[lane % lanes]?.add({ by: 1 }) ?? Promise.reject(new Error('no lane'))));
  },
  /** Bytes of a counter's commit, for the floor. */
  commitBytes: async () => {
    const { host: own } = running();
    const [key = ''] = keysOf(1, true);
    const address = { org, type: 'counter', key };
    await own.actors.ref(counter, org, key).ask.add({ by: 1 });
    return (await own.stores.journal.last(journalSubject(partitionOfTokens(addressTokens(address), partitions), address)))?.data.length ?? 0;
  },
  /** Fenced appends of as many bytes to the same stream, one in flight per subject: the lean loop of the notes. */
  appendFloor: async ({ lanes, ms, bytes, run }: Sample & { readonly bytes: number; readonly run: number }) => {
    const { raw: own } = running();
    const inbox = createInbox();
    const data = Buffer.alloc(bytes, 'x');
    const seqs = new Float64Array(lanes);
    const nexts: (() => void)[] = [];
    const header = 'Nats-Expected-Last-Subject-Sequence';
    let failure: string | undefined;
    const subscription = own.subscribe(`${inbox}.*`, {
      callback: (_error, message) => {
        const lane = Number.parseInt(message.subject.slice(inbox.length + 1), 10);
        const answer = Buffer.from(message.data.buffer, message.data.byteOffset, message.data.byteLength).toString('latin1');
        const at = answer.lastIndexOf('"seq":');
        if (at < 0) failure = answer;
        seqs[lane] = Number.parseInt(answer.slice(at + 6), 10);
        nexts[lane]?.();
      },
    });
    const rate = await callbackLanes(lanes, ms, (lane, next) => {
      nexts[lane] = next;
      own.publish(`journal.${lane % partitions}.${org}.floor.f${run}-${lane}`, data, { reply: `${inbox}.${lane}`, headers: new HeaderLine(header, seqs[lane] ?? 0) });
    });
    subscription.unsubscribe();
    if (failure !== undefined) throw new Error(`an append of the floor was refused: ${failure}`);
    return perSec(rate);
  },

  remoteAsk: async ({ lanes, ms }: Sample) => {
    const asks = asksOf(lanes, false);
    return perSec(await callLanes(lanes, ms, (lane) => asks[lane]?.read({}) ?? Promise.reject(new Error('no lane'))));
  },
  /** Answers the floor's requests with an answer of the figure's size. */
  answerFloor: async ({ bytes }: { readonly bytes: number }) => {
    const { raw: own } = running();
    const answer = Buffer.alloc(bytes, 'x');
    own.subscribe('floor.*.bench.counter.*.read', { callback: (_error, message) => { message.respond(answer); } });
    await own.flush();
  },
  requestFloor: async ({ lanes, ms, bytes }: Sample & { readonly bytes: number }) => {
    const { raw: own } = running();
    const inbox = createInbox();
    const data = Buffer.alloc(bytes, 'x');
    const nexts: (() => void)[] = [];
    const subscription = own.subscribe(`${inbox}.*`, {
      callback: (_error, message) => { nexts[Number.parseInt(message.subject.slice(inbox.length + 1), 10)]?.(); },
    });
    const rate = await callbackLanes(lanes, ms, (lane, next) => {
      nexts[lane] = next;
      own.publish(`floor.${lane % partitions}.bench.counter.c${lane}.read`, data, { reply: `${inbox}.${lane}` });
    });
    subscription.unsubscribe();
    return perSec(rate);
  },
};
export type HostJobs = typeof jobs;
serve(jobs);
