/**
 * Which document a wikilink's name means, and the graph that follows from it (KNO-010 … KNO-018).
 *
 * A name means, in this order: the document of that path (without `.md`); the one of that file name, its folders ending as the name's do; the one of that
 * title; the one of that alias. Case does not count. Of several, the one with the shortest path, then the first by path. A name that means nothing
 * is no edge until such a document comes: edges are looked up when they are asked for, so they need no upkeep.
 */
import { limits } from '../../contracts/limits.ts';
import type { GraphAnswer, Relation } from '../../contracts/knowledge.ts';
import type { IndexDocument } from './index-document.ts';

type Kind = 'path' | 'file' | 'title' | 'alias';

const keyOf = (name: string): string => name.normalize('NFC').toLowerCase().replace(/\.(?:md|markdown)$/, '').replace(/\s+/g, ' ').trim();
const fileOf = (path: string): string => path.slice(path.lastIndexOf('/') + 1);

/** A name that begins with `./` or `../` is meant from its document's folder. */
const resolved = (name: string, from: string): string => {
  if (!/^\.{1,2}\//.test(name)) return name.replace(/^\/+/, '');
  const parts = from.split('/').slice(0, -1);
  for (const part of name.split('/')) {
    if (part === '..') parts.pop();
    else if (part !== '.' && part !== '') parts.push(part);
  }
  return parts.join('/');
};

export class Names {
  readonly #ids = new Map<string, Set<string>>();

  #each(document: IndexDocument, take: (key: string) => void): void {
    const path = keyOf(document.path);
    const key = (kind: Kind, name: string): void => take(`${kind}:${name}`);
    key('path', path);
    key('file', fileOf(path));
    key('title', keyOf(document.title));
    for (const alias of document.aliases) key('alias', keyOf(alias));
  }

  add(document: IndexDocument): void {
    this.#each(document, (key) => {
      const ids = this.#ids.get(key);
      if (ids === undefined) this.#ids.set(key, new Set([document.id]));
      else ids.add(document.id);
    });
  }

  remove(document: IndexDocument): void {
    this.#each(document, (key) => {
      const ids = this.#ids.get(key);
      ids?.delete(document.id);
      if (ids?.size === 0) this.#ids.delete(key);
    });
  }

  /** The document that a name means, folders of its own put together. */
  resolve(name: string, find: (id: string) => IndexDocument | undefined): IndexDocument | undefined {
    const key = keyOf(name);
    const best = (kind: Kind, named: string, fits: (path: string) => boolean): IndexDocument | undefined => {
      let found: IndexDocument | undefined;
      for (const id of this.#ids.get(`${kind}:${named}`) ?? []) {
        const document = find(id);
        if (document === undefined || !fits(keyOf(document.path))) continue;
        if (found === undefined || document.path.length < found.path.length || (document.path.length === found.path.length && document.path < found.path)) found = document;
      }
      return found;
    };
    return best('path', key, () => true)
      ?? (key.includes('/') ? best('file', fileOf(key), (path) => path.endsWith(`/${key}`)) : best('file', key, () => true))
      ?? best('title', key, () => true) ?? best('alias', key, () => true);
  }
}

interface Edge {
  readonly to: IndexDocument;
  readonly relation: Relation;
}

export interface Documents {
  readonly names: Names;
  find(id: string): IndexDocument | undefined;
}

/** Names that were looked up in one answer: many documents may link to one that many documents could be. */
type Known = Map<string, IndexDocument | undefined>;

const edgesOf = (documents: Documents, document: IndexDocument, known: Known): Edge[] => {
  const edges = new Map<string, Edge>();
  for (const { name, relation } of document.links) {
    const meant = resolved(name, document.path);
    if (!known.has(meant)) known.set(meant, documents.names.resolve(meant, (id) => documents.find(id)));
    const to = known.get(meant);
    if (to !== undefined && to.id !== document.id && !edges.has(to.id)) edges.set(to.id, { to, relation });
  }
  return [...edges.values()];
};

/** Breadth first, so that a node has its smallest depth and the nearest come when there are too many. `node`: an id, or a path. Undefined = there is none. */
export const graphOf = (documents: Documents, node: string, depth: number, withEdges: boolean): GraphAnswer | undefined => {
  const known: Known = new Map();
  const root = documents.find(node) ?? documents.names.resolve(node, (id) => documents.find(id));
  if (root === undefined || (root.id !== node && keyOf(root.path) !== keyOf(node))) return undefined;
  const nodes = new Map<string, GraphAnswer['nodes'][number]>([[root.id, { id: root.id, title: root.title, depth: 0 }]]);
  let ring: IndexDocument[] = [root];
  for (let at = 1; at <= depth && ring.length > 0; at++) {
    const next: IndexDocument[] = [];
    for (const document of ring) {
      for (const { to, relation } of edgesOf(documents, document, known)) {
        if (nodes.has(to.id) || nodes.size >= limits.knowledgeNodesMax) continue;
        nodes.set(to.id, { id: to.id, title: to.title, depth: at, edge: relation });
        next.push(to);
      }
    }
    ring = next;
  }
  const edges = !withEdges ? {} : {
    edges: [...nodes.keys()].flatMap((from) => {
      const document = documents.find(from);
      return document === undefined ? [] : edgesOf(documents, document, known).filter(({ to }) => nodes.has(to.id)).map(({ to, relation }) => ({ from, to: to.id, edge: relation }));
    }),
  };
  return { root: root.id, depth, nodes: [...nodes.values()], ...edges };
};
