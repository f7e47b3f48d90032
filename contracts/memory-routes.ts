/** Routes of a deployment's services: memory, what a session remembers (interface 2.16, 4.7; decisions, Deployment services; MEM). */
import { z } from 'zod';
import { branchName, clientSessionId, deploymentRoute } from './deployment.ts';
import { limits } from './limits.ts';

const text = (max: number) => z.string().max(max).refine((value) => value.isWellFormed(), { error: 'must be well-formed Unicode' });

/** A memory event. `relevance`: any number; the model is told of the most relevant first, what lies outside 0 to 1 counting as the nearer of the two. */
export const memoryBody = z.strictObject({
  session_id: clientSessionId, fact: text(limits.memoryFactMaxChars).min(1), source: text(limits.memorySourceMaxChars), relevance: z.number(), branch: branchName.optional(),
});

const base = { surface: 'deployment', auth: { kind: 'deployment' }, serve: { by: 'daemon' }, invalidStatus: 400 } as const;
const usual = ['unauthorized', 'invalid_argument', 'rate_limited', 'overloaded', 'upstream_unavailable', 'journal_unavailable', 'branch_not_found'] as const;

export const memoryRoutes = {
  memory_store: deploymentRoute({
    ...base, id: 'memory_store', wire: 335, console: 435, writes: true, method: 'POST', path: '/v1/memory', summary: 'Stores a memory of a session, which is made if it is new.',
    body: memoryBody, bodyMaxBytes: limits.bodyMaxBytes,
    answers: { 201: z.strictObject({ id: z.string(), session_id: z.string(), fact: z.string(), source: z.string(), relevance: z.number() }) }, errors: [...usual, 'memory_full'],
  }),
  memory_list: deploymentRoute({
    ...base, id: 'memory_list', wire: 336, console: 436, method: 'GET', path: '/v1/memory', summary: 'The memories of a session, the oldest first. `timestamp`: Unix milliseconds.',
    query: z.strictObject({ session_id: clientSessionId, branch: branchName.optional() }), bodyMaxBytes: 0,
    answers: {
      200: z.strictObject({
        session_id: z.string(), count: z.int(),
        memories: z.array(z.strictObject({ id: z.string(), fact: z.string(), source: z.string(), relevance: z.number(), timestamp: z.int() })),
      }),
    },
    errors: [...usual, 'session_not_found'],
  }),
} as const;
