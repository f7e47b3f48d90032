/**
 * The platform's routes of deployments themselves (decisions, Small print): made, listed, restarted and given new keys, ended. Bearer required;
 * membership, role and plan are the organization actor's business. The key and the shared secret stand in the one answer that made them.
 */
import { z } from 'zod';
import { deployment, deploymentName, deploymentPurpose } from './deployment.ts';
import { limits } from './limits.ts';
import { platformRoute } from './platform.ts';

const common = { surface: 'platform', auth: { kind: 'access' }, serve: { by: 'daemon' } } as const;
const usual = ['unauthorized', 'forbidden', 'not_found', 'validation_error'] as const;
/** One that cannot be an id is `not_found`, as an unknown one. */
const anyId = z.string().min(1).max(limits.idMaxChars);
const bodyMaxBytes = limits.bodyMaxBytes;

export const deploymentsRoutes = {
  createDeployment: platformRoute({
    ...common, id: 'create_deployment', wire: 350, method: 'POST', path: '/api/deployments',
    summary: 'Makes a deployment with its agent (instance.provision; plans team and enterprise). `key` and `secret` are in this answer only.',
    body: z.strictObject({ orgId: anyId, name: deploymentName, purpose: deploymentPurpose.optional() }), bodyMaxBytes,
    answers: { 201: deployment.extend({ key: z.string(), secret: z.string() }) }, errors: [...usual, 'plan_limit'],
  }),
  deployments: platformRoute({
    ...common, id: 'deployments', wire: 351, method: 'GET', path: '/api/deployments', summary: 'The organization\'s deployments, the oldest first; with `id`, that one.',
    query: z.strictObject({ orgId: anyId, id: anyId.optional() }), bodyMaxBytes: 0,
    answers: { 200: z.union([z.strictObject({ deployments: z.array(deployment) }), deployment]) }, errors: usual,
  }),
  changeDeployment: platformRoute({
    ...common, id: 'change_deployment', wire: 352, method: 'PATCH', path: '/api/deployments',
    summary: '`restart`: what runs of it is put down and taken up again from its journal. `rotate_key`: a new `key`, in this answer only; the old one ends at once (instance.restart).',
    body: z.strictObject({ orgId: anyId, id: anyId, action: z.enum(['restart', 'rotate_key']) }), bodyMaxBytes,
    answers: { 200: deployment.extend({ key: z.string().optional() }) }, errors: [...usual, 'conflict'],
  }),
  deleteDeployment: platformRoute({
    ...common, id: 'delete_deployment', wire: 353, method: 'DELETE', path: '/api/deployments',
    summary: 'Ends a deployment: its credentials are refused at once, its data is erased (instance.deprovision).',
    body: z.strictObject({ orgId: anyId, id: anyId }), bodyMaxBytes, answers: { 200: deployment }, errors: usual,
  }),
} as const;
