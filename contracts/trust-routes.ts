/** The platform's routes of trust (interface 4.4; decisions, Trust). Bearer required; who may see and ask what is the daemon's business. */
import { z } from 'zod';
import { limits } from './limits.ts';
import { platformRoute } from './platform.ts';
import { agentScore, certificationAnswer, certificationShown, trustBodies as bodies, trustQueries as queries, userScore, verifyAnswer } from './trust.ts';

const base = { surface: 'platform', auth: { kind: 'access' }, bodyMaxBytes: limits.bodyMaxBytes, serve: { by: 'daemon' } } as const;
const usual = ['unauthorized', 'forbidden', 'not_found', 'validation_error'] as const;

export const trustRoutes = {
  trustScore: platformRoute({
    ...base, id: 'trust_score', wire: 220, method: 'GET', path: '/api/trust/score',
    summary: 'Trust score: the caller\'s own; with userId, of a member of an organization that the caller is admin of; with agentId, of an agent. '
      + 'A user\'s score is a quarter of each factor: identity (0.2, e-mail +0.3, OAuth +0.5, domain +0.7), history (days on which the account was used), reputation (endorsements, publications), economic (payments, credit use, wallet). '
      + 'An agent\'s is 0.2 identity (of who deployed it), 0.3 history (days of service, sessions, error rate), 0.3 reputation (completed turns, evaluations), 0.2 economic.',
    query: queries.score, answers: { 200: z.union([userScore, agentScore]) }, errors: [...usual],
  }),
  verify: platformRoute({
    ...base, id: 'trust_verify', wire: 221, method: 'POST', path: '/api/trust/verify',
    summary: 'Verifies the caller: `email` with a mailed code, `oauth` by what the account is linked to, `domain` names a TXT record, `domain_confirm` looks for it.',
    body: bodies.verify, answers: { 200: verifyAnswer }, errors: ['unauthorized', 'forbidden', 'validation_error'],
  }),
  certify: platformRoute({
    ...base, id: 'trust_certify', wire: 222, method: 'POST', path: '/api/trust/certify',
    summary: 'Applies for a certification of an organization, or of an agent that it deployed; for its admins.',
    body: bodies.certify, answers: { 200: certificationAnswer }, errors: [...usual],
  }),
  certification: platformRoute({
    ...base, id: 'trust_certification', wire: 224, method: 'GET', path: '/api/trust/certify/:id',
    summary: 'A certification with its evidence; for the admins of its organization and for platform staff.',
    answers: { 200: certificationShown }, errors: ['unauthorized', 'forbidden', 'not_found'],
  }),
  decide: platformRoute({
    ...base, id: 'trust_decide', wire: 223, method: 'POST', path: '/api/trust/certify/:id/decision',
    summary: 'Approves, rejects or revokes a certification; for platform staff.',
    body: bodies.decide, answers: { 200: certificationAnswer }, errors: [...usual, 'conflict'],
  }),
} as const;
