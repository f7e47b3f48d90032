/** Routes of a deployment's services: regulation (interface 4.7; REG-001 … 033). State and gating are advisory to the caller; gates are kept in the chat loop itself. */
import { z } from 'zod';
import { deploymentRoute } from './deployment.ts';
import { limits } from './limits.ts';
import { gating, homeostasis, regulationHistory, regulationTrust } from './regulation.ts';

/** `ok`; `degraded`: tools are blocked for their errors, or the mode is Hustle; `critical`: Hibernate. */
export const regulationHealth = z.strictObject({ status: z.enum(['ok', 'degraded', 'critical']), uptime_seconds: z.int() });

const read = { surface: 'deployment', method: 'GET', bodyMaxBytes: 0, auth: { kind: 'deployment' }, serve: { by: 'daemon' }, errors: ['unauthorized'] } as const;

export const regulationRoutes = {
  regulation_state: deploymentRoute({
    ...read, id: 'regulation_state', wire: 340, console: 440, path: '/v1/regulation/state', summary: 'The homeostatic state: a fold of the deployment\'s events.',
    answers: { 200: homeostasis },
  }),
  regulation_gating: deploymentRoute({
    ...read, id: 'regulation_gating', wire: 341, console: 441, path: '/v1/regulation/gating', summary: 'The gating profile: what is allowed, warned of or blocked now.',
    answers: { 200: gating },
  }),
  regulation_health: deploymentRoute({
    ...read, id: 'regulation_health', wire: 342, console: 442, path: '/v1/regulation/health', summary: 'Whether the deployment can work, and how long it has been observed.',
    answers: { 200: regulationHealth },
  }),
  regulation_history: deploymentRoute({
    ...read, id: 'regulation_history', wire: 343, console: 443, path: '/v1/regulation/history',
    summary: `The last ${limits.regulationHistoryMax} changes of mode and gates that warned or blocked.`, answers: { 200: regulationHistory },
  }),
  regulation_trust: deploymentRoute({
    ...read, id: 'regulation_trust', wire: 344, path: '/v1/regulation/trust-score/:agent', auth: { kind: 'none' }, errors: [],
    summary: 'The public trust score of an agent; an unknown one has the default score.', answers: { 200: regulationTrust },
  }),
} as const;
