/**
 * A deployment's knowledge in the test's process: the real actor, handlers, reader and index thread over memory stores. A second daemon is a
 * second reader; a restart is a new reader and a new thread over the same stores.
 */
import { knowledge } from '../../actors/knowledge/knowledge.ts';
import { createIndexer, type Indexer } from '../../actors/knowledge/indexer.ts';
import { createKnowledgeReader, type KnowledgeReader, type ReaderOptions } from '../../actors/knowledge/reader.ts';
import { memoryShelves, type Shelf, type Shelves } from '../../actors/knowledge/shelf.ts';
import type { DeploymentHandlers } from '../../actors/daemon/deployment/deps.ts';
import { createIndexing, createMarkdownIndexing, knowledgeHandlers, type KnowledgeHandlersDeps } from '../../actors/daemon/deployment/knowledge.ts';
import { knowledgeAddress, type DeploymentCaller } from '../../contracts/deployment.ts';
import type { StoredEvent } from '../../contracts/event.ts';
import { deploymentRouteList } from '../../contracts/deployment-routes.ts';
import { journalSubject, partitionOf } from '../../contracts/subjects.ts';
import { decodeCommit } from '../../actors/runtime/commit.ts';
import { Ulids } from '../../actors/runtime/ulid.ts';
import { createCluster, createHost, partitions, system } from './memory-host.ts';
import { recorder } from './log.ts';

export const organizationId = 'org_01jd0000000000000000000000';
export const deploymentId = 'dep_01jd0000000000000000000000';

/** What was read and written of the shelves. */
interface Counts {
  reads: number;
  saves: number;
  loads: number;
  drops: string[];
}
const counted = (shelf: Shelf, counts: Counts, onSave: () => void): Shelf => ({
  put: (ref, bytes) => shelf.put(ref, bytes),
  get: async (ref) => {
    counts.reads += 1;
    return shelf.get(ref);
  },
  drop: async (ref) => {
    await shelf.drop(ref);
    counts.drops.push(ref);
  },
  save: async (bytes) => {
    await shelf.save(bytes);
    counts.saves += 1;
    onSave();
  },
  load: () => {
    counts.loads += 1;
    return shelf.load();
  },
});

export interface Asked {
  readonly status: number;
  readonly body: unknown;
}

export interface TestKnowledge {
  readonly reader: KnowledgeReader;
  readonly indexer: Indexer;
  readonly counts: Counts;
  readonly log: ReturnType<typeof recorder>;
  /** Resolves when it has written a snapshot. */
  readonly saved: Promise<void>;
  /** Calls a route as its deployment, body and query through the route's schemas. */
  readonly call: (id: string, input?: { readonly query?: unknown; readonly body?: unknown; readonly params?: readonly string[]; readonly caller?: Partial<DeploymentCaller> }) => Promise<Asked>;
  readonly markdown: ReturnType<typeof createMarkdownIndexing>;
  close(): Promise<void>;
}

export interface KnowledgeWorld {
  readonly shelves: Shelves;
  events(dep?: string): Promise<StoredEvent[]>;
  /** Another daemon over the same stores. */
  start(options?: Partial<ReaderOptions> & { readonly askMs?: number }): TestKnowledge;
}

export const knowledgeWorld = (): KnowledgeWorld => {
  const cluster = createCluster();
  const host = createHost(cluster, { definitions: [knowledge()] });
  const shelves = memoryShelves();
  const ulids = new Ulids(Date.now);
  const { journal } = cluster.stores;

  return {
    shelves,
    events: async (dep = deploymentId) => {
      const address = knowledgeAddress(organizationId, dep);
      const subject = journalSubject(partitionOf(address, partitions), address);
      const last = await journal.last(subject);
      const events: StoredEvent[] = [];
      for await (const batch of journal.read(subject, 0, last?.seq ?? 0)) for (const { data } of batch) events.push(...decodeCommit(data).ev);
      return events;
    },
    start: ({ askMs, ...options } = {}) => {
      const log = recorder();
      const saved = Promise.withResolvers<void>();
      const counts: Counts = { reads: 0, saves: 0, loads: 0, drops: [] };
      const indexer = createIndexer({ log, ...(askMs === undefined ? {} : { askMs }) });
      const own: Shelves = (org, dep) => counted(shelves(org, dep), counts, () => saved.resolve());
      const reader = createKnowledgeReader({ journal, partitions, shelves: own, indexer, log, ...options });
      const deps: KnowledgeHandlersDeps = {
        actors: { ask: (message) => host.engine.deliver({ ...message, principal: system }) }, log, newUlid: () => ulids.next(), reader, shelves: own,
      };
      const handlers: DeploymentHandlers = knowledgeHandlers(deps);
      return {
        reader, indexer, counts, log, saved: saved.promise, markdown: createMarkdownIndexing(createIndexing(deps)),
        call: async (id, { query, body, params, caller } = {}) => {
          const route = deploymentRouteList.find((one) => one.id === id);
          const handler = handlers.plain?.[id];
          if (route === undefined || handler === undefined) throw new TypeError(`no route ${id}`);
          const result = await handler({
            caller: { organizationId, deploymentId, agentId: 'agt_01jd0000000000000000000000', by: 'key', subject: deploymentId, writes: true, ...caller },
            context: { ip: '192.0.2.1', user_agent: 'test', ...(params === undefined ? {} : { params: [...params] }) },
            query: route.query?.parse(query ?? {}), body: route.body?.parse(body), signal: new AbortController().signal,
          });
          const schema = route.answers[result.status];
          if (schema === undefined) throw new TypeError(`${id} has no answer ${result.status}`);
          return { status: result.status, body: typeof schema === 'string' ? undefined : schema.parse(result.body) };
        },
        close: () => reader.close(),
      };
    },
  };
};
