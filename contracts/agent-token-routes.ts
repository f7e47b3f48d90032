/** The route by which a deployment gets a token of its agent (interface 5.3: the planned migration to per-agent Ed25519 JWTs). */
import { z } from 'zod';
import { deploymentRoute } from './deployment.ts';
import { limits } from './limits.ts';

export const agentTokenRoutes = {
  agentToken: deploymentRoute({
    id: 'agent_token', wire: 345, surface: 'deployment', method: 'POST', path: '/v1/agent/token', auth: { kind: 'deployment' },
    summary: 'An EdDSA JWT of the deployment\'s agent, good on every route for at most 15 minutes. For the deployment key only.',
    body: z.strictObject({ ttl_sec: z.int().min(1).max(limits.agentTokenTtlSec).optional() }), bodyMaxBytes: limits.bodyMaxBytes,
    answers: {
      200: z.strictObject({
        access_token: z.string(), token_type: z.literal('Bearer'), expires_in: z.int(), agent_id: z.string(), did: z.string(),
      }),
    },
    errors: ['unauthorized', 'forbidden', 'invalid_argument'], serve: { by: 'daemon' },
  }),
} as const;
