/** A process as a daemon is for knowledge: the actor on a host, the reader with its index thread, the shelf in NATS. */
import { setTimeout as wait } from 'node:timers/promises';
import MiniSearch from 'minisearch';
import { askBy } from '../../actors/daemon/platform/ask.ts';
import { createIndexing } from '../../actors/daemon/deployment/knowledge.ts';
import { createIndexer } from '../../actors/knowledge/indexer.ts';
import { excerptOf } from '../../actors/knowledge/excerpt.ts';
import { knowledge } from '../../actors/knowledge/knowledge.ts';
import { readMarkdown } from '../../actors/knowledge/markdown.ts';
import { createKnowledgeReader, type KnowledgeReader } from '../../actors/knowledge/reader.ts';
import { natsShelves } from '../../actors/knowledge/shelf-nats.ts';
import type { Shelves } from '../../actors/knowledge/shelf.ts';
import { startHost, type Host } from '../../actors/runtime/cluster/host.ts';
import { connectNats } from '../../actors/runtime/nats/connect.ts';
import { createNatsStores, type NatsStores } from '../../actors/runtime/nats/stores.ts';
import { ensureStreams } from '../../actors/runtime/nats/streams.ts';
import { Ulids } from '../../actors/runtime/ulid.ts';
import { knowledgeAddress } from '../../contracts/deployment.ts';
import { knowledgeCommands } from '../../contracts/knowledge.ts';
import { limits } from '../../contracts/limits.ts';
import { journalSubject, partitionOf } from '../../contracts/subjects.ts';
import { silent } from '../harness/log.ts';
import { draw } from '../harness/seed.ts';
import { queryOf, vaultOf, type Vault } from '../harness/vault.ts';
import { serve } from './part.ts';

const org = 'org_01jd0000000000000000000000';
const dep = 'dep_01jd0000000000000000000000';
const address = knowledgeAddress(org, dep);
const plan = { partitions: limits.partitions, journalStreams: 1, replicas: 1 };
const ulids = new Ulids(Date.now);

interface Started {
  readonly host: Host;
  readonly stores: NatsStores;
  readonly shelves: Shelves;
  reader: KnowledgeReader;
}
let running: Started | undefined;
let vault: Vault | undefined;
const here = (): Started => running ?? (() => { throw new Error('not started'); })();
const notes = (): Vault => vault ?? (() => { throw new Error('no vault'); })();

const readerOf = (stores: NatsStores, shelves: Shelves): KnowledgeReader =>
  createKnowledgeReader({ journal: stores.journal, partitions: plan.partitions, shelves, indexer: createIndexer({ log: silent }), log: silent, waitMs: 120_000 });

const quantiles = (times: readonly number[]): { readonly p50: number; readonly p99: number } => {
  const sorted = times.toSorted((a, b) => a - b);
  return { p50: sorted[Math.floor(sorted.length / 2)] ?? Number.NaN, p99: sorted[Math.floor(sorted.length * 0.99)] ?? Number.NaN };
};

const timed = async (count: number, work: () => Promise<unknown>): Promise<ReturnType<typeof quantiles>> => {
  const times: number[] = [];
  for (let i = 0; i < count; i++) {
    const from = performance.now();
    await work();
    times.push(performance.now() - from);
  }
  return quantiles(times);
};

interface Library {
  readonly search: MiniSearch<{ readonly id: number; readonly title: string; readonly tags: string; readonly text: string }>;
  readonly texts: readonly string[];
}
let library: Library | undefined;
const libraryOf = ({ notes: all }: Vault): Library => {
  const read = all.map(({ path, content }) => readMarkdown(path, content));
  const search: Library['search'] = new MiniSearch({ fields: ['title', 'tags', 'text'], searchOptions: { boost: { title: 5, tags: 4 } } });
  search.addAll(read.map(({ title, tags, text }, id) => ({ id, title, tags: tags.join(' '), text })));
  return { search, texts: read.map(({ text }) => text) };
};

const jobs = {
  start: async ({ url }: { readonly url: string }) => {
    const nc = await connectNats({ url, name: 'knowledge' });
    await ensureStreams(nc, plan);
    const stores = createNatsStores(nc, plan);
    const host = await startHost({ config: { host: 'knowledge', partitions: plan.partitions, leaseTtlMs: limits.leaseTtlMs }, nc, stores, definitions: [knowledge()], log: silent });
    await host.ready;
    const shelves = natsShelves(stores.lean, () => ulids.next());
    running = { host, stores, shelves, reader: readerOf(stores, shelves) };
    return {};
  },
  vault: async ({ count, seed }: { readonly count: number; readonly seed: number }) => {
    vault = vaultOf(count, seed);
    const { files, own } = vault;
    return { files, own, bytes: vault.notes.reduce((sum, { content }) => sum + Buffer.byteLength(content), 0) };
  },
  /** Imports the vault as the command does, four requests at once; milliseconds until all of it can be found. */
  fill: async () => {
    const { host, shelves, reader } = here();
    const index = createIndexing({ actors: host.actors, log: silent, newUlid: () => ulids.next(), reader, shelves });
    const all = notes().notes;
    const from = performance.now();
    let at = 0;
    await Promise.all(Array.from({ length: limits.knowledgeImportRequestsMax }, async () => {
      while (at < all.length) {
        const some = all.slice(at, at + limits.knowledgeBatchMax);
        at += some.length;
        await index({ organizationId: org, deploymentId: dep }, some);
      }
    }));
    await reader.search(org, dep, 'note', 1);
    const ms = performance.now() - from;
    await reader.flush();
    const { documents } = await askBy(host.actors, knowledgeCommands)(address, 'measure', {});
    return { ms, documents };
  },
  /** Milliseconds of searches one after another, and of the journal's look that each begins with. */
  search: async ({ count, seed }: { readonly count: number; readonly seed: number }) => {
    const { reader } = here();
    const random = draw(seed);
    return timed(count, () => reader.search(org, dep, queryOf(notes().notes, random), limits.knowledgeResultsUsual));
  },
  look: async ({ count }: { readonly count: number }) => {
    const { stores } = here();
    const subject = journalSubject(partitionOf(address, plan.partitions), address);
    return timed(count, () => stores.journal.last(subject));
  },
  /** The same queries to MiniSearch in this thread, texts read and excerpts made as ours are. */
  library: async ({ count, seed }: { readonly count: number; readonly seed: number }) => {
    const index = library ??= libraryOf(notes());
    const random = draw(seed);
    return timed(count, async () => {
      const found = index.search.search(queryOf(notes().notes, random)).slice(0, limits.knowledgeResultsUsual);
      return found.map((result) => excerptOf(index.texts[Number(result.id)] ?? '', result.terms.map((word) => ({ word, weight: 1 }))));
    });
  },
  /** A restart: milliseconds until the first search is answered from the snapshot. */
  restart: async () => {
    const at = here();
    await at.reader.close();
    at.reader = readerOf(at.stores, at.shelves);
    const from = performance.now();
    await at.reader.search(org, dep, 'note', 1);
    return { ms: performance.now() - from };
  },
  /** Lets go of the vault and of garbage. */
  settle: async () => {
    vault = undefined;
    library = undefined;
    globalThis.gc?.();
    await wait(100);
    globalThis.gc?.();
    return {};
  },
  drop: async () => {
    const at = here();
    await at.reader.close();
    at.reader = readerOf(at.stores, at.shelves);
    return {};
  },
};
export type KnowledgeJobs = typeof jobs;
serve(jobs);
