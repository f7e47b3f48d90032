/**
 * The tool that stores a memory of a deployment's session: it is journaled there, read by `GET /v1/memory` and told to the model in later turns
 * that it fits (actors/session/memories.ts). Only in sessions of a deployment.
 */
import { z } from 'zod';
import { coded } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { defineTool } from './tool.ts';

/** Of a fact whose giver did not say. */
const plainRelevance = 0.5;

export const remember = defineTool({
  name: 'remember',
  description: 'Remembers a fact for the later turns of this session.',
  parameters: z.strictObject({
    fact: z.string().min(1).max(limits.memoryFactMaxChars),
    relevance: z.number().min(0).max(1).optional().describe('0 = trivia, 1 = must never be forgotten'),
  }),
  needsApproval: false,
  idempotent: true,
  outward: false,
  operations: ['file_write'],
  preview: ({ fact }) => `Remember: ${fact}`,
  run: async ({ fact, relevance = plainRelevance }, { deployment }) => {
    if (deployment === undefined) throw coded('tool_not_found');
    return { stored: true, id: await deployment.remember({ fact, source: 'conversation', relevance }), fact };
  },
});
