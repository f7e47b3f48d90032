/**
 * Searches a deployment's knowledge: keeps an index of it in step with the knowledge actor's journal.
 *
 * Guarantees
 * R1  Read your writes, on any daemon: every request first reads the journal's last message from its leader and applies what is new.
 * R2  A restart reads no document that the snapshot holds: an index is its snapshot and the tail of the journal, of which only the last event of each
 *     document counts.
 * R3  Bounded: indexes are dropped, least recently used first, above `limits.knowledgeIndexesMaxBytes` or `knowledgeIndexesMax`; a request waits at most
 *     `limits.knowledgeWaitMs` for one that is being made (then `overloaded`, and the work goes on).
 * R4  A text that is lost is not hidden: it is logged, and its document is found by what the journal says of it.
 * It decides nothing and writes no journal; the actor is never woken.
 */
import { setTimeout as after } from 'node:timers/promises';
import { coded, CodedError } from '../../contracts/errors.ts';
import { knowledgeAddress } from '../../contracts/deployment.ts';
import { knowledgeEvents, type GraphAnswer, type KnowledgeIndexed, type KnowledgeResult } from '../../contracts/knowledge.ts';
import { limits } from '../../contracts/limits.ts';
import { journalSubject, partitionOf } from '../../contracts/subjects.ts';
import { decodeCommit } from '../runtime/commit.ts';
import type { Log } from '../runtime/log.ts';
import type { Journal } from '../runtime/store.ts';
import type { Indexer } from './indexer.ts';
import { decodeText, type Shelf, type Shelves } from './shelf.ts';
import type { Change, DocumentFacts } from './thread-wire.ts';

export interface KnowledgeReader {
  search(org: string, deployment: string, query: string, limit: number): Promise<readonly KnowledgeResult[]>;
  /** `node`: an id or a path. Throws `node_not_found`. */
  graph(org: string, deployment: string, node: string, depth: number, edges: boolean): Promise<GraphAnswer>;
  /** A document as it was posted. Throws `node_not_found`; `journal_unavailable` when its text is lost. */
  document(org: string, deployment: string, id: string): Promise<KnowledgeIndexed & DocumentFacts & { readonly content: string }>;
  /** Titles of documents that are being posted, in their order. */
  titles(documents: readonly { readonly path: string; readonly content: string }[]): Promise<readonly string[]>;
  /** What was just stored, so that it need not be read again, and that there is something to apply. Returns at once. */
  changed(org: string, deployment: string, texts: ReadonlyMap<string, string>): void;
  /** Writes the snapshots of what has changed. */
  flush(): Promise<void>;
  close(): Promise<void>;
}

export interface ReaderOptions {
  readonly journal: Journal;
  readonly partitions: number;
  readonly shelves: Shelves;
  readonly indexer: Indexer;
  readonly log: Log;
  /** Defaults `limits.knowledgeSnapshotIdleMs`, `limits.knowledgeSnapshotEvery`, `limits.knowledgeIndexesMaxBytes`, `limits.knowledgeWaitMs`. */
  readonly snapshotIdleMs?: number;
  readonly snapshotEvery?: number;
  readonly indexesMaxBytes?: number;
  readonly waitMs?: number;
}

interface Held {
  readonly key: string;
  readonly org: string;
  readonly deployment: string;
  readonly subject: string;
  readonly shelf: Shelf;
  /** Of the thread that holds it; another = it is gone. */
  generation: number;
  loaded: boolean;
  /** Stream sequence and number of the journal's last event in it. */
  seq: number;
  number: number;
  documents: number;
  bytes: number;
  /** Changes since its snapshot. */
  unsaved: number;
  /** Requests that use it. */
  users: number;
  running: Promise<void> | undefined;
  next: Promise<void> | undefined;
  saving: Promise<void> | undefined;
  idle: NodeJS.Timeout | undefined;
}

/** What a stretch of the journal comes to. */
interface Tail {
  readonly last: Map<string, KnowledgeIndexed | undefined>;
  /** Refs that were replaced within it, by what. */
  readonly passed: { readonly ref: string; readonly by: string | undefined }[];
  seq: number;
  number: number;
}

export const createKnowledgeReader = (options: ReaderOptions): KnowledgeReader => {
  const { journal, partitions, shelves, indexer, log } = options;
  const snapshotEvery = options.snapshotEvery ?? limits.knowledgeSnapshotEvery;
  const indexesMaxBytes = options.indexesMaxBytes ?? limits.knowledgeIndexesMaxBytes;
  const waitMs = options.waitMs ?? limits.knowledgeWaitMs;
  /** The least recently used first. */
  const indexes = new Map<string, Held>();
  /** Texts that were posted here and are not in the index yet, by ref. */
  const fresh = new Map<string, string>();
  let freshBytes = 0;
  let closed = false;

  const forget = (ref: string): void => {
    freshBytes -= fresh.get(ref)?.length ?? 0;
    fresh.delete(ref);
  };

  const heldOf = (org: string, deployment: string): Held => {
    const address = knowledgeAddress(org, deployment);
    const key = JSON.stringify([org, deployment]);
    const found = indexes.get(key);
    const held: Held = found ?? {
      key, org, deployment, subject: journalSubject(partitionOf(address, partitions), address), shelf: shelves(org, deployment), generation: indexer.generation, loaded: false, seq: 0, number: 0,
      documents: 0, bytes: 0, unsaved: 0, users: 0, running: undefined, next: undefined, saving: undefined, idle: undefined,
    };
    indexes.delete(key);
    indexes.set(key, held);
    return held;
  };

  const empty = (held: Held): void => {
    Object.assign(held, { seq: 0, number: 0, documents: 0, bytes: 0, unsaved: 0 });
  };

  const load = async (held: Held): Promise<void> => {
    held.generation = indexer.generation;
    empty(held);
    const bytes = await held.shelf.load();
    const place = bytes === undefined ? undefined : await indexer.ask('load', { index: held.key, bytes });
    if (bytes !== undefined && place === undefined) log.warn({ org: held.org, deployment: held.deployment }, 'a snapshot of an index cannot be read; it is made anew');
    if (place === undefined) await indexer.ask('drop', { index: held.key });
    else Object.assign(held, { seq: place.seq, number: place.number, bytes: place.bytes, documents: place.documents });
    held.loaded = true;
  };

  const restart = async (held: Held): Promise<void> => {
    await indexer.ask('drop', { index: held.key });
    empty(held);
  };

  /** Undefined = what was read before is not where this goes on. */
  const tailOf = async (held: Held, upTo: number): Promise<Tail | undefined> => {
    const tail: Tail = { last: new Map(), passed: [], seq: held.seq, number: held.number };
    const put = (id: string, event: KnowledgeIndexed | undefined): void => {
      const before = tail.last.get(id);
      if (before !== undefined) tail.passed.push({ ref: before.ref, by: event?.ref });
      tail.last.set(id, event);
    };
    for await (const batch of journal.read(held.subject, held.seq, upTo)) {
      for (const message of batch) {
        const commit = decodeCommit(message.data);
        if (commit.n !== tail.number + 1) return undefined;
        for (const event of commit.ev) {
          if (event.k === 'KnowledgeIndexed') {
            const indexed = knowledgeEvents.KnowledgeIndexed.parse(event.d);
            put(indexed.id, indexed);
          } else if (event.k === 'KnowledgeRemoved') {
            put(knowledgeEvents.KnowledgeRemoved.parse(event.d).id, undefined);
          }
        }
        tail.number += commit.ev.length;
        tail.seq = message.seq;
      }
    }
    return tail;
  };

  const contentOf = async (held: Held, event: KnowledgeIndexed): Promise<string | undefined> => {
    const posted = fresh.get(event.ref);
    if (posted !== undefined) return posted;
    const bytes = await held.shelf.get(event.ref);
    return bytes === undefined ? undefined : decodeText(bytes, event.hash);
  };

  /** Texts that nothing names any more. Who loses a race with another daemon, or ends here, leaves them to the erasure of the deployment. */
  const drop = (held: Held, refs: readonly string[]): void => {
    for (const ref of refs) held.shelf.drop(ref).catch((error: unknown) => log.warn({ err: error, ref }, 'a text that nothing names was not deleted'));
  };

  const apply = async (held: Held, tail: Tail): Promise<void> => {
    const removed = [...tail.last].filter(([, event]) => event === undefined).map(([id]) => id);
    const events = [...tail.last.values()].filter((event) => event !== undefined);
    const mine = new Set(events.filter(({ ref }) => fresh.has(ref)).map(({ ref }) => ref));
    for (let at = 0; at < events.length || at === 0; at += limits.knowledgeChunkMax) {
      const chunk = events.slice(at, at + limits.knowledgeChunkMax);
      const changes: Change[] = [];
      for (let from = 0; from < chunk.length; from += limits.knowledgeReadsMax) {
        changes.push(...await Promise.all(chunk.slice(from, from + limits.knowledgeReadsMax).map(async (event) => ({ event, content: await contentOf(held, event) }))));
      }
      for (const { event, content } of changes) if (content === undefined) log.error({ org: held.org, deployment: held.deployment, id: event.id, ref: event.ref }, 'the text of a document is lost');
      const done = await indexer.ask('apply', { index: held.key, removed: at === 0 ? removed : [], changes });
      held.bytes = done.bytes;
      held.documents = done.documents;
      for (const { event } of changes) forget(event.ref);
      // Every daemon sees a removal; a text that was replaced is deleted by the one that took its successor.
      drop(held, [...done.freed, ...done.replaced.filter(({ by }) => mine.has(by)).map(({ ref }) => ref)]);
    }
    drop(held, tail.passed.filter(({ by }) => by === undefined || mine.has(by)).map(({ ref }) => ref));
  };

  const catchUp = async (held: Held): Promise<void> => {
    if (held.generation !== indexer.generation || !held.loaded) await load(held);
    const last = await journal.last(held.subject);
    // Erased, or another journal than it was.
    if (held.seq > (last?.seq ?? 0)) await restart(held);
    if (last === undefined || last.seq === held.seq) return;
    let tail = await tailOf(held, last.seq);
    if (tail === undefined) {
      await restart(held);
      tail = await tailOf(held, last.seq);
    }
    if (tail === undefined) throw coded('journal_unreadable', 'The journal of a deployment\'s knowledge does not begin at its beginning.');
    if (tail.last.size > 0) await apply(held, tail);
    if (held.generation !== indexer.generation) throw coded('overloaded', 'The knowledge index is being read again.');
    held.seq = tail.seq;
    held.number = tail.number;
    held.unsaved += tail.last.size;
  };

  const save = (held: Held): Promise<void> => held.saving ??= (async () => {
    clearTimeout(held.idle);
    held.idle = undefined;
    const { seq, number, unsaved, generation } = held;
    try {
      const bytes = await indexer.ask('save', { index: held.key, place: { seq, number } });
      // The thread began anew meanwhile: what it gave is an empty index.
      if (generation !== indexer.generation) return;
      if (bytes.byteLength > limits.knowledgeSnapshotMaxBytes) log.warn({ org: held.org, deployment: held.deployment, bytes: bytes.byteLength }, 'snapshot of an index too large, not written');
      else await held.shelf.save(bytes);
      held.unsaved -= unsaved;
    } catch (error) {
      log.warn({ err: error, org: held.org, deployment: held.deployment }, 'snapshot of an index not written');
    } finally {
      held.saving = undefined;
    }
  })();

  /** Saves it in the chain of its runs, so that place and index are of one moment. */
  const saveSoon = (held: Held): void => {
    clearTimeout(held.idle);
    held.idle = undefined;
    if (closed || held.unsaved === 0) return;
    if (held.unsaved >= Math.max(snapshotEvery, held.documents / limits.knowledgeSnapshotShare)) {
      void save(held);
    } else if (held.unsaved >= limits.knowledgeSnapshotIdleChanges) {
      held.idle = setTimeout(() => { if (held.running === undefined) void save(held); }, options.snapshotIdleMs ?? limits.knowledgeSnapshotIdleMs);
      held.idle.unref();
    }
  };

  const evict = (): void => {
    let bytes = 0;
    for (const held of indexes.values()) bytes += held.bytes;
    for (const held of indexes.values()) {
      if (bytes <= indexesMaxBytes && indexes.size <= limits.knowledgeIndexesMax) return;
      if (held.users > 0 || held.running !== undefined || held.next !== undefined || held.saving !== undefined) continue;
      clearTimeout(held.idle);
      bytes -= held.bytes;
      indexes.delete(held.key);
      const gone = held.unsaved >= limits.knowledgeSnapshotIdleChanges ? save(held) : Promise.resolve();
      gone.then(() => (indexes.has(held.key) ? undefined : indexer.ask('drop', { index: held.key }))).catch((error: unknown) => log.warn({ err: error }, 'an index was not dropped'));
    }
  };

  /** A run that began after this call has ended: what was committed before is in the index. */
  const current = (held: Held): Promise<void> => {
    if (held.next !== undefined) return held.next;
    const begin = async (): Promise<void> => {
      await held.running?.catch(() => undefined);
      held.running = held.next;
      held.next = undefined;
      try {
        await catchUp(held);
      } finally {
        held.running = undefined;
        saveSoon(held);
        evict();
      }
    };
    held.next = begin();
    return held.next;
  };

  const within = async <T>(work: Promise<T>): Promise<T> => {
    const end = new AbortController();
    const late = after(waitMs, undefined, { signal: end.signal }).then(() => { throw coded('overloaded', 'The knowledge index is being made. Try again in a moment.'); });
    late.catch(() => undefined);
    try {
      return await Promise.race([work, late]);
    } finally {
      end.abort();
    }
  };

  /** Asks the index when it is current. One that was lost meanwhile is read again, once. */
  const using = async <T>(org: string, deployment: string, work: (held: Held) => Promise<T>): Promise<T> => {
    for (let attempt = 0; ; attempt++) {
      const held = heldOf(org, deployment);
      held.users += 1;
      try {
        const running = current(held);
        running.catch(() => undefined);
        await within(running);
        const answer = await work(held);
        if (held.generation === indexer.generation) return answer;
      } catch (error) {
        if (held.generation === indexer.generation || !(error instanceof CodedError)) throw error;
        if (attempt >= 1) throw error;
      } finally {
        held.users -= 1;
      }
      if (attempt >= 1) throw coded('overloaded', 'The knowledge index is being read again.');
    }
  };

  return {
    search: (org, deployment, query, limit) => using(org, deployment, ({ key }) => indexer.ask('search', { index: key, query, limit })),
    graph: async (org, deployment, node, depth, edges) => {
      const found = await using(org, deployment, ({ key }) => indexer.ask('graph', { index: key, node, depth, edges }));
      if (found === undefined) throw coded('node_not_found');
      return found;
    },
    document: async (org, deployment, id) => {
      const event = await using(org, deployment, ({ key }) => indexer.ask('find', { index: key, id }));
      if (event === undefined) throw coded('node_not_found');
      const bytes = await shelves(org, deployment).get(event.ref);
      const content = bytes === undefined ? undefined : await decodeText(bytes, event.hash);
      if (content === undefined) throw coded('journal_unavailable', 'The text of this document cannot be read.');
      return { ...event, ...await indexer.ask('read', { path: event.path, content }), content };
    },
    titles: (documents) => indexer.ask('titles', { documents }),
    changed: (org, deployment, texts) => {
      for (const [ref, content] of texts) {
        fresh.set(ref, content);
        freshBytes += content.length;
      }
      for (const ref of fresh.keys()) {
        if (freshBytes <= limits.knowledgeFreshMaxBytes) break;
        forget(ref);
      }
      if (closed) return;
      current(heldOf(org, deployment)).catch((error: unknown) => log.warn({ err: error, org, deployment }, 'an index could not be brought up to date; the next request tries again'));
    },
    flush: async () => {
      for (const held of indexes.values()) {
        await held.next?.catch(() => undefined);
        await held.running?.catch(() => undefined);
        await held.saving;
        if (held.unsaved > 0) await save(held);
      }
    },
    close: async () => {
      closed = true;
      for (const held of indexes.values()) clearTimeout(held.idle);
      await indexer.close();
    },
  };
};
