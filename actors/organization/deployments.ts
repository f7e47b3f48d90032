/**
 * An organization's places for deployments (rules RUN-038, BIL-018): kept when one is about to be made, confirmed by the deployment itself, free
 * again when its data is erased. What a deployment is, only its own actor knows.
 *
 * Guarantees: of many made at once no more get a place than there are; one whose making was cut off loses its place by itself. Deployments
 * are told, durably, when the plan no longer has them, and when the organization ends.
 */
import type { z } from 'zod';
import { deploymentAddress } from '../../contracts/deployment.ts';
import { coded } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import type { organizationCommands } from '../../contracts/organization.ts';
import { plans, upgradeUrl } from '../../contracts/plans.ts';
import { allowed, liveOf } from './standing.ts';
import { isKept, type Live } from './state.ts';
import type { OrganizationTurn } from './turn.ts';

type Input<K extends keyof typeof organizationCommands> = z.output<(typeof organizationCommands)[K]['input']>;
type Output<K extends keyof typeof organizationCommands> = z.output<(typeof organizationCommands)[K]['output']>;

const isManaged = ({ plan }: Live): boolean => plans[plan].features.some((feature) => feature === 'managed_deployments');

export const reserveDeployment = (turn: OrganizationTurn, { by, id, name }: Input<'reserve_deployment'>): Record<string, never> => {
  const { of } = allowed(turn.state, by, 'instance.provision');
  if (!isManaged(of)) throw coded('plan_limit', 'The plan has no managed deployments.', { details: { limit: 0, upgradeUrl } });
  const kept = of.deployments.filter((one) => isKept(one, turn.now));
  if (kept.some((one) => one.id === id)) throw coded('conflict');
  if (kept.length >= limits.deploymentsMax) throw coded('plan_limit', undefined, { details: { limit: limits.deploymentsMax, upgradeUrl } });
  turn.emit('DeploymentReserved', { id, name, by });
  return {};
};

export const confirmDeployment = (turn: OrganizationTurn, { id }: Input<'confirm_deployment'>): Output<'confirm_deployment'> => {
  const of = liveOf(turn.state);
  const place = of.deployments.find((one) => one.id === id);
  if (place === undefined) throw coded('not_found', 'No place is kept for this deployment.');
  if (!place.confirmed) turn.emit('DeploymentConfirmed', { id });
  return { managed: isManaged(of) };
};

export const removeDeployment = (turn: OrganizationTurn, { id }: Input<'remove_deployment'>): Record<string, never> => {
  if (turn.state.phase === 'live' && turn.state.deployments.some((one) => one.id === id)) turn.emit('DeploymentRemoved', { id });
  return {};
};

export const listDeployments = (turn: OrganizationTurn, { by }: Input<'deployments'>): Output<'deployments'> =>
  ({ ids: allowed(turn.state, by, 'org.read').of.deployments.filter((one) => isKept(one, turn.now)).map(({ id }) => id) });

/** Tells each whether the plan, as it is now, has deployments. */
export const tellPlan = (turn: OrganizationTurn): void => {
  const of = liveOf(turn.state);
  for (const { id } of of.deployments) turn.tell(deploymentAddress(turn.self.key, id), 'plan', { managed: isManaged(of), revision: turn.newId() });
  if (of.deployments.length > 0) turn.remind('tells', { inMs: limits.organizationWakeMs });
};

/** Their credentials end at once; their data goes with the organization's. */
export const endDeployments = (turn: OrganizationTurn, { deployments }: Live): void => {
  for (const { id } of deployments) turn.tell(deploymentAddress(turn.self.key, id), 'end', {});
};
