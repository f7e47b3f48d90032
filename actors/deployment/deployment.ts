/**
 * The deployment actor: one managed deployment with its credentials and its agent. Contract: contracts/deployment-actor.ts.
 *
 * Guarantees
 * P1  A credential holds from the turn that made it to the turn that ended it, on every process, because every use is asked of this actor:
 *     of the key it keeps the SHA-256, of the shared secret and the agent's private keys what the vault has sealed.
 * P2  The agent's soul and keys are made once and never change.
 * P3  What follows a command (settling, restarting, erasing) goes on over any lost host (work.ts).
 * It does not know who may do what: the organization decided that before it was asked.
 */
import { timingSafeEqual } from 'node:crypto';
import { deploymentCommands, deploymentEvents, type DeploymentRecord } from '../../contracts/deployment-actor.ts';
import { coded } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { upgradeUrl } from '../../contracts/plans.ts';
import type { ActorAddress } from '../../contracts/subjects.ts';
import { defineActor } from '../runtime/define.ts';
import { fold, initialDeployment, statusOf, type DeploymentState, type Ended, type Live } from './state.ts';
import { requireRest, runWork, worked, workInput, workOn, workOutput, type DeploymentDeps } from './work.ts';

const shown = (self: ActorAddress, state: DeploymentState): DeploymentRecord => {
  const of = shownState(state);
  return {
    id: self.key, organizationId: self.org, name: of.name, status: statusOf(of), agent: of.agent,
    createdAt: new Date(of.created_at).toISOString(), updatedAt: new Date(of.updated_at).toISOString(),
  };
};

const shownState = (state: DeploymentState): Live | Ended => {
  if (state.phase === 'none' || (state.phase === 'ended' && (state.erased || state.with_organization))) throw coded('not_found', 'There is no such deployment.');
  return state;
};

const liveOf = (state: DeploymentState): Live => {
  if (state.phase !== 'live') throw coded('not_found', 'There is no such deployment.');
  return state;
};

/** The one whose credentials are good. Throws `unauthorized`. */
const trusted = (state: DeploymentState): Live => {
  if (state.phase !== 'live' || state.failed) throw coded('unauthorized');
  return state;
};

/** After the credential, so that nobody else learns of it. Throws `plan_limit`. */
const requireServed = (of: Live): void => {
  if (!of.plan.managed) throw coded('plan_limit', 'The deployment is stopped: the plan has no managed deployments.', { details: { limit: 0, upgradeUrl } });
};

const sameHash = (a: string, b: string): boolean => a.length === b.length && timingSafeEqual(Buffer.from(a), Buffer.from(b));

/** The deployment actor's definition. */
export const deployment = (deps: DeploymentDeps) => defineActor({
  type: 'deployment',
  events: deploymentEvents,
  initial: initialDeployment,
  apply: fold,
  effects: (effect) => ({
    work: effect({ input: workInput, output: workOutput, once: 'at-least', deadlineMs: limits.effectDeadlineMs, run: runWork(deps), done: worked(deps) }),
  }),
  commands: (command) => ({
    provision: command({
      ...deploymentCommands.provision, access: 'system',
      handle: (turn, made) => {
        if (turn.state.phase !== 'none') throw coded('conflict');
        turn.emit('DeploymentProvisioned', made);
        workOn(turn);
        return shown(turn.self, turn.state);
      },
    }),
    read: command({ ...deploymentCommands.read, access: 'system', handle: (turn) => shown(turn.self, turn.state) }),
    verify_key: command({
      ...deploymentCommands.verify_key, access: 'system',
      handle: (turn, { key_sha256: hash }) => {
        const of = trusted(turn.state);
        if (!sameHash(of.key_sha256, hash)) throw coded('unauthorized');
        requireServed(of);
        return { agent_id: of.agent.id };
      },
    }),
    credentials: command({
      ...deploymentCommands.credentials, access: 'system',
      handle: (turn) => {
        const of = trusted(turn.state);
        return { agent: of.identity, secret: of.secret, served: of.plan.managed };
      },
    }),
    restart: command({
      ...deploymentCommands.restart, access: 'system',
      handle: (turn, { by }) => {
        liveOf(turn.state);
        requireRest(turn.state);
        turn.emit('RestartRequested', { by });
        workOn(turn);
        return shown(turn.self, turn.state);
      },
    }),
    rotate_key: command({
      ...deploymentCommands.rotate_key, access: 'system',
      handle: (turn, rotated) => {
        liveOf(turn.state);
        turn.emit('DeploymentKeyRotated', rotated);
        return shown(turn.self, turn.state);
      },
    }),
    deprovision: command({
      ...deploymentCommands.deprovision, access: 'system',
      handle: (turn, { by }) => {
        shownState(turn.state);
        if (turn.state.phase === 'live') {
          turn.emit('DeprovisionRequested', { by });
          workOn(turn);
        }
        return shown(turn.self, turn.state);
      },
    }),
    plan: command({
      ...deploymentCommands.plan, access: 'system',
      handle: (turn, plan) => {
        if (turn.state.phase === 'live' && plan.revision > turn.state.plan.revision) turn.emit('DeploymentPlan', plan);
        return {};
      },
    }),
    end: command({
      ...deploymentCommands.end, access: 'system',
      handle: (turn) => {
        if (turn.state.phase === 'live') {
          turn.emit('DeprovisionRequested', {});
          workOn(turn);
        }
        return {};
      },
    }),
  }),
  reminders: { work: workOn },
});

export type DeploymentActorCommands = NonNullable<ReturnType<typeof deployment>['types']>['commands'];
