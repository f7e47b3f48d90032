/** The memory tools: what the agent actor remembers beyond this conversation. A repeated write of the same call stores once. */
import { z } from 'zod';
import { agentCommands } from '../../contracts/agent.ts';
import { defineTool } from './tool.ts';

export const memoryWrite = defineTool({
  name: 'memory_write',
  description: 'Remembers a fact about the user or the work for later conversations.',
  parameters: z.strictObject({
    fact: agentCommands.remember.input.shape.fact,
    relevance: z.number().min(0).max(1).optional().describe('0 = trivia, 1 = must never be forgotten'),
  }),
  needsApproval: false,
  idempotent: true,
  operations: ['file_write'],
  preview: ({ fact }) => `Remember: ${fact}`,
  run: async ({ fact, relevance }, context) => {
    const stored = agentCommands.remember.output.parse(await context.agent('remember', {
      fact, source: 'conversation', ...(relevance === undefined ? {} : { relevance }),
    }));
    return { stored: true, id: stored.id, fact: stored.fact };
  },
});

export const memorySearch = defineTool({
  name: 'memory_search',
  description: 'Finds remembered facts that share words with a query, best first. An empty query gives the latest.',
  parameters: z.strictObject({
    query: agentCommands.recall.input.shape.query,
    limit: z.int().min(1).max(20).optional(),
  }),
  needsApproval: false,
  idempotent: true,
  outward: false,
  preview: ({ query }) => `Search the memory for: ${query}`,
  run: async (args, context) => {
    const { facts } = agentCommands.recall.output.parse(await context.agent('recall', args));
    return { facts: facts.map((f) => ({ fact: f.fact, source: f.source, relevance: f.relevance, at: new Date(f.at).toISOString() })) };
  },
});
