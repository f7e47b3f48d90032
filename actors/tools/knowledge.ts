/** The knowledge tools: what a deployment's documents say. Only its own sessions have them; they change nothing. */
import { z } from 'zod';
import { coded } from '../../contracts/errors.ts';
import { nodeId } from '../../contracts/knowledge.ts';
import { limits } from '../../contracts/limits.ts';
import type { KnowledgeReader } from '../knowledge/reader.ts';
import { cutBytes, defineTool, type Tool, type ToolContext, type ToolDeployment } from './tool.ts';

const resultsMax = 20;

const deploymentOf = ({ deployment }: ToolContext): ToolDeployment => {
  if (deployment === undefined) throw coded('tool_not_found', 'There is no knowledge here: this session belongs to no deployment.');
  return deployment;
};

export const knowledgeTools = (reader: Pick<KnowledgeReader, 'search' | 'document'>): readonly Tool[] => [
  defineTool({
    name: 'knowledge_search',
    description: 'Searches the documents of this deployment; gives the best ones with an excerpt. Read one whole with knowledge_read.',
    parameters: z.strictObject({
      query: z.string().min(1).max(limits.knowledgeQueryMaxChars).describe('words to look for; rare ones count more'),
      limit: z.int().min(1).max(resultsMax).optional(),
    }),
    needsApproval: false,
    idempotent: true,
    outward: false,
    preview: ({ query }) => `Search the documents for: ${query}`,
    run: async ({ query, limit }, context) => {
      const { org, id } = deploymentOf(context);
      return { results: await reader.search(org, id, query, limit ?? limits.knowledgeResultsUsual) };
    },
  }),
  defineTool({
    name: 'knowledge_read',
    description: 'Reads one document that knowledge_search found, by its id.',
    parameters: z.strictObject({ id: nodeId }),
    needsApproval: false,
    idempotent: true,
    outward: false,
    preview: ({ id }) => `Read the document ${id}`,
    run: async ({ id: node }, context) => {
      const { org, id } = deploymentOf(context);
      const { title, path, content, size } = await reader.document(org, id, node);
      const text = cutBytes(content, limits.knowledgeReadMaxBytes);
      return { id: node, title, path, content: text, ...(text === content ? {} : { cut: true, of_bytes: size }) };
    },
  }),
];
