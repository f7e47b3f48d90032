/** Routes of a deployment's services: knowledge (interface 4.7; decisions, Deployment services). */
import { deploymentRoute } from './deployment.ts';
import { documentsAnswer, documentsBody, graphAnswer, graphQuery, knowledgeDocument, searchAnswer, searchQuery } from './knowledge.ts';
import { limits } from './limits.ts';

const common = { surface: 'deployment', auth: { kind: 'deployment' }, serve: { by: 'daemon' }, invalidStatus: 400 } as const;
const usual = ['invalid_argument', 'unauthorized', 'rate_limited', 'overloaded', 'upstream_unavailable', 'journal_unavailable'] as const;

export const knowledgeRoutes = {
  knowledgeIndex: deploymentRoute({
    ...common, id: 'knowledge_index', wire: 330, console: 430, writes: true, method: 'POST', path: '/v1/knowledge/documents',
    summary: 'Indexes a markdown document, or up to 64 in `documents`: frontmatter (title, tags, aliases), wikilinks, facts. A known path is replaced. 201: something was indexed; 200: exactly this was there. '
      + 'In a list, a document with its `hash` in place of `content` is looked up only: `missing` = its content has to be sent.',
    body: documentsBody, bodyMaxBytes: limits.knowledgeBodyMaxBytes, answers: { 200: documentsAnswer, 201: documentsAnswer }, errors: [...usual, 'payload_too_large'],
  }),
  knowledgeRead: deploymentRoute({
    ...common, id: 'knowledge_read', wire: 331, console: 431, method: 'GET', path: '/v1/knowledge/documents/:id',
    summary: 'A document as it was posted, with its title, tags, aliases and facts.',
    bodyMaxBytes: 0, answers: { 200: knowledgeDocument }, errors: [...usual, 'node_not_found'],
  }),
  knowledgeRemove: deploymentRoute({
    ...common, id: 'knowledge_remove', wire: 332, console: 432, writes: true, method: 'DELETE', path: '/v1/knowledge/documents/:id',
    summary: 'Takes a document out of the index and deletes its text.',
    bodyMaxBytes: 0, answers: { 204: 'empty' }, errors: [...usual, 'node_not_found'],
  }),
  knowledgeSearch: deploymentRoute({
    ...common, id: 'knowledge_search', wire: 333, console: 433, method: 'GET', path: '/v1/knowledge/search',
    summary: `The documents that fit a query, best first: BM25 over text and facts; a match in title, tags or aliases ranks above the same match in the text. \`limit\` ${limits.knowledgeResultsUsual} by default, at most ${limits.knowledgeResultsMax}.`,
    query: searchQuery, bodyMaxBytes: 0, answers: { 200: searchAnswer }, errors: usual,
  }),
  knowledgeGraph: deploymentRoute({
    ...common, id: 'knowledge_graph', wire: 334, console: 434, method: 'GET', path: '/v1/knowledge/graph',
    summary: `The documents that \`node\` (an id, or a document's path) links to, over at most \`depth\` links (1 by default, at most ${limits.knowledgeDepthMax}), each once at its smallest depth, the nearest ${limits.knowledgeNodesMax}. \`edges=true\` adds the links between them.`,
    query: graphQuery, bodyMaxBytes: 0, answers: { 200: graphAnswer }, errors: [...usual, 'node_not_found'],
  }),
} as const;
