/**
 * The index thread of a daemon: holds the indexes, reads documents, answers searches, so that none of it takes time from the actors.
 *
 * It knows no store and no journal: what comes is applied in the order it comes. One ask at a time, but for the compression of snapshots, which is
 * done elsewhere. A failure is told by its words, for the log; the daemon shows none of them.
 */
import { parentPort } from 'node:worker_threads';
import { limits } from '../../contracts/limits.ts';
import { readArchive, writeArchive } from './archive.ts';
import { excerptOf } from './excerpt.ts';
import { packText, unpackText } from './index-document.ts';
import { Inverted } from './inverted.ts';
import { graphOf, Names } from './links.ts';
import { readMarkdown } from './markdown.ts';
import type { Change, ThreadAnswer, ThreadAsk, ThreadAsks, ThreadOp } from './thread-wire.ts';
import { wordsOf } from './words.ts';

interface Held {
  readonly inverted: Inverted;
  readonly names: Names;
}

const held = new Map<string, Held>();
const heldAs = (index: string): Held => {
  const found = held.get(index);
  if (found !== undefined) return found;
  const made = { inverted: new Inverted(), names: new Names() };
  held.set(index, made);
  return made;
};

const remove = ({ inverted, names }: Held, id: string): string | undefined => {
  const document = inverted.find(id);
  if (document === undefined) return undefined;
  inverted.remove(id);
  names.remove(document);
  return document.ref;
};

const add = ({ inverted, names }: Held, { event, content }: Change): void => {
  const { tags, aliases, links, text, headings, facts } = readMarkdown(event.path, content ?? '');
  inverted.add({ ...event, tags, aliases, links, packed: packText(text) }, { text, headings, facts });
  const document = inverted.find(event.id);
  if (document !== undefined) names.add(document);
};

/** Four figures: a score is for comparing. */
const rounded = (score: number): number => Math.round(score * 10_000) / 10_000;

const does: { readonly [Op in ThreadOp]: (input: ThreadAsks[Op]['input']) => ThreadAsks[Op]['output'] | Promise<ThreadAsks[Op]['output']> } = {
  load: async ({ index, bytes }) => {
    const read = await readArchive(bytes);
    if (read === undefined) return undefined;
    const names = new Names();
    for (const document of read.index.documents) if (document !== undefined) names.add(document);
    held.set(index, { inverted: read.index, names });
    return { ...read.place, bytes: read.index.bytes, documents: read.index.size };
  },
  apply: ({ index, removed, changes }) => {
    const at = heldAs(index);
    const freed = removed.map((id) => remove(at, id)).filter((ref) => ref !== undefined);
    const replaced: { ref: string; by: string }[] = [];
    for (const change of changes) {
      const { id, ref } = change.event;
      const before = remove(at, id);
      // A change that is applied once more replaces itself.
      if (before !== undefined && before !== ref) replaced.push({ ref: before, by: ref });
      add(at, change);
    }
    if (at.inverted.untidy) at.inverted.sweep();
    return { freed, replaced, bytes: at.inverted.bytes, documents: at.inverted.size };
  },
  search: ({ index, query, limit }) => {
    const { hits, stats } = heldAs(index).inverted.search(wordsOf(query, limits.knowledgeQueryWordsMax), limit);
    return hits.map(({ document, score }) => ({ id: document.id, title: document.title, score: rounded(score), excerpt: excerptOf(unpackText(document.packed), stats) }));
  },
  graph: ({ index, node, depth, edges }) => {
    const { inverted, names } = heldAs(index);
    return graphOf({ names, find: (id) => inverted.find(id) }, node, depth, edges);
  },
  find: ({ index, id }) => {
    const found = heldAs(index).inverted.find(id);
    return found === undefined ? undefined : { id: found.id, path: found.path, title: found.title, hash: found.hash, size: found.size, ref: found.ref };
  },
  save: ({ index, place }) => writeArchive(heldAs(index).inverted, place),
  drop: ({ index }) => {
    held.delete(index);
    return null;
  },
  titles: ({ documents }) => documents.map(({ path, content }) => readMarkdown(path, content).title),
  read: ({ path, content }) => {
    const { title, tags, aliases, facts } = readMarkdown(path, content);
    return { title, tags, aliases, facts };
  },
};

const run = async (ask: ThreadAsk): Promise<unknown> => {
  // The table has for each op the type of its input; TypeScript does not follow that through the union.
  const work = does[ask.op] as (input: unknown) => unknown;
  return work(ask.input);
};

/**
 * Asks that wait, at most `limits.knowledgeAsksMax`. Each has a turn of the event loop of its own: a port hands over up to 1,000 messages in one
 * turn as long as others come, and a snapshot whose compression had ended long ago was not answered meanwhile.
 */
const lanes = new Map<string, ThreadAsk[]>();
const laneOf = ({ input }: ThreadAsk): string => ('index' in input ? input.index : '');
/** The first ask of the lane whose turn it is. Each index has a lane: its asks keep their order, and one that is asked much holds up another by one ask. */
const taken = (): ThreadAsk | undefined => {
  for (const [lane, asks] of lanes) {
    const ask = asks.shift();
    lanes.delete(lane);
    if (asks.length > 0) lanes.set(lane, asks);
    return ask;
  }
  return undefined;
};
const next = (): void => {
  const ask = taken();
  if (ask === undefined) return;
  const tell = (answer: ThreadAnswer): void => parentPort?.postMessage(answer);
  run(ask).then(
    (output) => tell({ id: ask.id, output }),
    (error: unknown) => tell({ id: ask.id, failure: error instanceof Error ? error.stack ?? error.message : String(error) }),
  );
  if (lanes.size > 0) setImmediate(next);
};
parentPort?.on('message', (ask: ThreadAsk) => {
  if (lanes.size === 0) setImmediate(next);
  const lane = laneOf(ask);
  const asks = lanes.get(lane);
  if (asks === undefined) lanes.set(lane, [ask]);
  else asks.push(ask);
});
