/**
 * Handlers of the knowledge routes, and what indexes a markdown blob.
 *
 * A document is stored first, under a name of its own (`ref`), then journaled by the knowledge actor, which decides its id; the answer comes after both. So
 * an index that reads the journal always finds the text. A post that is repeated, by a client or after a crash, changes nothing that is there already;
 * what a crash leaves between the two is a text that nothing names, which goes with the deployment.
 */
import { coded, CodedError } from '../../../contracts/errors.ts';
import { knowledgeAddress, type DeploymentCaller } from '../../../contracts/deployment.ts';
import { documentPath, knowledgeCommands, nodeId } from '../../../contracts/knowledge.ts';
import { knowledgeRoutes as routes } from '../../../contracts/knowledge-routes.ts';
import { limits } from '../../../contracts/limits.ts';
import type { KnowledgeReader } from '../../knowledge/reader.ts';
import { encodeText, hashOfText, type Shelves } from '../../knowledge/shelf.ts';
import { askBy } from '../platform/ask.ts';
import { bodyOf, queryOf } from '../platform/typed.ts';
import type { DeploymentDeps, DeploymentHandlers, DeploymentRequest } from './deps.ts';

export interface KnowledgeHandlersDeps extends Pick<DeploymentDeps, 'actors' | 'log' | 'newUlid'> {
  readonly reader: KnowledgeReader;
  readonly shelves: Shelves;
}

/** A document with its content, or with its hash alone. */
type Posted = { readonly path: string; readonly content: string } | { readonly path: string; readonly hash: string };

interface Outcome {
  readonly id: string;
  readonly path: string;
  readonly hash: string;
  /** Of those that have a content. */
  readonly title: string;
  readonly size: number;
  readonly status: 'indexed' | 'known' | 'missing';
}

type Whose = Pick<DeploymentCaller, 'organizationId' | 'deploymentId'>;

/** Indexes documents; gives what became of each. Throws `payload_too_large`, the actor's and the store's faults. */
export const createIndexing = ({ actors, log, newUlid, reader, shelves }: KnowledgeHandlersDeps) => {
  const ask = askBy(actors, knowledgeCommands);

  return async ({ organizationId: org, deploymentId: dep }: Whose, posted: readonly Posted[]): Promise<readonly Outcome[]> => {
    const shelf = shelves(org, dep);
    const address = knowledgeAddress(org, dep);
    const whole = posted.map((document) => ('hash' in document
      ? { ...document, content: undefined, size: 0 }
      : { ...document, hash: hashOfText(document.content), size: Buffer.byteLength(document.content) }));
    const large = whole.find(({ size }) => size > limits.knowledgeDocumentMaxBytes);
    if (large !== undefined) throw coded('payload_too_large', `A document holds at most ${limits.knowledgeDocumentMaxBytes} bytes.`, { details: { field: 'content', path: large.path } });
    const [{ documents: looked }, titles] = await Promise.all([
      ask(address, 'look', { documents: whole.map(({ path, hash }) => ({ path, hash })) }),
      reader.titles(whole.map(({ path, content }) => ({ path, content: content ?? '' }))),
    ]);
    const outcomes = whole.map(({ path, hash, content, size }, i): Outcome & { content: string | undefined } => {
      const { id, known } = looked[i] ?? { id: '', known: false };
      return { id, path, hash, size, title: titles[i] ?? '', content, status: known ? 'known' : content === undefined ? 'missing' : 'indexed' };
    });
    const news = outcomes.filter((outcome) => outcome.status === 'indexed').map((outcome) => ({ outcome, content: outcome.content ?? '', ref: newUlid().toLowerCase() }));
    if (news.length === 0) return outcomes;

    await Promise.all(news.map(async ({ ref, content }) => shelf.put(ref, await encodeText(content))));
    const drop = (refs: readonly string[]): void => {
      for (const ref of refs) shelf.drop(ref).catch((error: unknown) => log.warn({ err: error, ref }, 'a text that nothing names was not deleted'));
    };
    const { documents: done } = await ask(address, 'index', {
      documents: news.map(({ outcome: { path, title, hash, size }, ref }) => ({ path, title, hash, size, ref })),
    }).catch((error: unknown) => {
      // After a fault they may be journaled all the same.
      if (error instanceof CodedError && error.entry.kind === 'refusal') drop(news.map(({ ref }) => ref));
      throw error;
    });
    // Somebody posted the same a moment ago.
    drop(news.filter((_, i) => done[i]?.indexed !== true).map(({ ref }) => ref));
    reader.changed(org, dep, new Map(news.filter((_, i) => done[i]?.indexed === true).map(({ ref, content }) => [ref, content])));
    const byPath = new Map(news.map(({ outcome }, i) => [outcome.path, done[i]]));
    return outcomes.map((outcome) => {
      const now = byPath.get(outcome.path);
      return now === undefined ? outcome : { ...outcome, id: now.id, status: now.indexed ? 'indexed' : 'known' };
    });
  };
};
export type Indexing = ReturnType<typeof createIndexing>;

const decoded = (header: string): string => {
  try {
    return decodeURIComponent(header);
  } catch {
    return header;
  }
};

/**
 * Indexes a blob of type `text/markdown` that was just stored (KNO-007). `named`: the header X-Document-Path, percent-encoded where it has to be; without it, or where
 * it is no path, the path is the hash. A blob that is too large or no UTF-8 is kept and not indexed; false then.
 */
export const createMarkdownIndexing = (index: Indexing) => async (whose: Whose, hash: string, text: string | undefined, named: string | undefined): Promise<boolean> => {
  if (text === undefined || !text.isWellFormed() || Buffer.byteLength(text) > limits.knowledgeDocumentMaxBytes) return false;
  const path = documentPath.safeParse(named === undefined ? '' : decoded(named));
  await index(whose, [{ path: path.success ? path.data : hash.replace(/^sha256:/, ''), content: text }]);
  return true;
};

export const knowledgeHandlers = (deps: KnowledgeHandlersDeps): DeploymentHandlers => {
  const { actors, reader } = deps;
  const ask = askBy(actors, knowledgeCommands);
  const index = createIndexing(deps);
  /** Anything else than an id names nothing. */
  const idOf = ({ context }: DeploymentRequest): string => {
    const id = nodeId.safeParse(context.params?.[0]);
    if (!id.success) throw coded('node_not_found');
    return id.data;
  };

  return {
    plain: {
      knowledge_index: async (request) => {
        const body = bodyOf(routes.knowledgeIndex, request);
        const outcomes = await index(request.caller, 'documents' in body ? body.documents : [body]);
        const status = outcomes.some((outcome) => outcome.status === 'indexed') ? 201 : 200;
        const [only] = outcomes;
        if ('documents' in body || only === undefined) return { status, body: { documents: outcomes.map(({ id, path, status: became }) => ({ id, path, status: became })) } };
        const { id, path, title, hash, size } = only;
        return { status, body: { id, path, title, hash, size, indexed: only.status === 'indexed' } };
      },
      knowledge_read: async (request) => {
        const { organizationId, deploymentId } = request.caller;
        const { id, path, title, tags, aliases, facts, hash, size, content } = await reader.document(organizationId, deploymentId, idOf(request));
        return { status: 200, body: { id, path, title, tags, aliases, facts, hash, size, content } };
      },
      knowledge_remove: async (request) => {
        const { organizationId, deploymentId } = request.caller;
        const { removed } = await ask(knowledgeAddress(organizationId, deploymentId), 'remove', { id: idOf(request) });
        if (!removed) throw coded('node_not_found');
        reader.changed(organizationId, deploymentId, new Map());
        return { status: 204 };
      },
      knowledge_search: async (request) => {
        const { q, limit = limits.knowledgeResultsUsual } = queryOf(routes.knowledgeSearch, request);
        const results = await reader.search(request.caller.organizationId, request.caller.deploymentId, q, limit);
        return { status: 200, body: { results } };
      },
      knowledge_graph: async (request) => {
        const { node, depth = 1, edges } = queryOf(routes.knowledgeGraph, request);
        return { status: 200, body: await reader.graph(request.caller.organizationId, request.caller.deploymentId, node, depth, edges === 'true') };
      },
    },
  };
};
