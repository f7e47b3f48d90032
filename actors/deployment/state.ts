/**
 * What a deployment remembers, and how its events change it. Pure and total.
 *
 *   none ─Provisioned─▶ live ─DeprovisionRequested─▶ ended (a tombstone, for good)
 *
 * Status of a live one: `failed` once the organization had no place for it; `stopped` while its plan has no deployments; `degraded` while work
 * has failed `limits.deploymentTriesMax` times in a row; `provisioning` until it is settled and while it restarts; else `running`.
 */
import type { DeploymentAgent, DeploymentEvents, DeploymentWork } from '../../contracts/deployment-actor.ts';
import type { DeploymentStatus } from '../../contracts/deployment.ts';
import { limits } from '../../contracts/limits.ts';
import type { EventMeta, PayloadOf } from '../runtime/define.ts';

/** Work that is not done yet. Times in Unix milliseconds. */
export interface PendingWork {
  readonly kind: DeploymentWork;
  /** Of an erasure, from 1. */
  readonly pass: number;
  readonly attempts: number;
  readonly due: number;
  readonly running: boolean;
}

interface Common {
  readonly name: string;
  readonly agent: { readonly id: string; readonly did: string };
  readonly created_at: number;
  readonly updated_at: number;
  readonly work: PendingWork | null;
}

export interface Live extends Common {
  readonly phase: 'live';
  readonly identity: DeploymentAgent;
  readonly secret: string;
  readonly key_sha256: string;
  readonly settled: boolean;
  readonly failed: boolean;
  readonly plan: { readonly managed: boolean; readonly revision: string };
}

export interface Ended extends Common {
  readonly phase: 'ended';
  /** By its organization's deletion, which erases everything. */
  readonly with_organization: boolean;
  /** Its data is gone; it is shown no more. */
  readonly erased: boolean;
}

export type DeploymentState = { readonly phase: 'none' } | Live | Ended;

type Payload<K extends keyof DeploymentEvents> = PayloadOf<DeploymentEvents[K]>;

const work = (kind: DeploymentWork, due: number, pass = 1): PendingWork => ({ kind, pass, attempts: 0, due, running: false });

const live = (state: DeploymentState, change: (of: Live) => Live): DeploymentState => (state.phase === 'live' ? change(state) : state);

const pending = (state: DeploymentState, change: (of: PendingWork) => PendingWork): DeploymentState =>
  (state.phase === 'none' || state.work === null ? state : { ...state, work: change(state.work) });

export const statusOf = (of: Live | Ended): DeploymentStatus => {
  if (of.phase === 'ended') return 'deprovisioning';
  if (of.failed) return 'failed';
  if (!of.plan.managed) return 'stopped';
  if ((of.work?.attempts ?? 0) >= limits.deploymentTriesMax) return 'degraded';
  return of.work === null ? 'running' : 'provisioning';
};

export const fold = {
  DeploymentProvisioned: (_state: DeploymentState, e: Payload<'DeploymentProvisioned'>, { at }: EventMeta): DeploymentState => ({
    phase: 'live', name: e.name, agent: { id: e.agent.id, did: e.agent.did }, created_at: at, updated_at: at, work: work('settle', at),
    identity: e.agent, secret: e.secret, key_sha256: e.key_sha256, settled: false, failed: false, plan: { managed: true, revision: '' },
  }),
  DeploymentSettled: (state: DeploymentState, { managed }: Payload<'DeploymentSettled'>, { at }: EventMeta): DeploymentState =>
    // A plan that was told meanwhile is newer than the one it was settled with.
    live(state, (of) => ({ ...of, settled: true, work: null, updated_at: at, plan: of.plan.revision === '' ? { ...of.plan, managed } : of.plan })),
  DeploymentFailed: (state: DeploymentState, _e: Payload<'DeploymentFailed'>, { at }: EventMeta): DeploymentState =>
    live(state, (of) => ({ ...of, failed: true, work: null, updated_at: at })),
  RestartRequested: (state: DeploymentState, _e: Payload<'RestartRequested'>, { at }: EventMeta): DeploymentState =>
    live(state, (of) => ({ ...of, work: work('restart', at), updated_at: at })),
  DeploymentRestarted: (state: DeploymentState, _e: Payload<'DeploymentRestarted'>, { at }: EventMeta): DeploymentState =>
    live(state, (of) => ({ ...of, work: null, updated_at: at })),
  DeploymentKeyRotated: (state: DeploymentState, e: Payload<'DeploymentKeyRotated'>, { at }: EventMeta): DeploymentState =>
    live(state, (of) => ({ ...of, key_sha256: e.key_sha256, updated_at: at })),
  DeploymentPlan: (state: DeploymentState, plan: Payload<'DeploymentPlan'>, { at }: EventMeta): DeploymentState =>
    live(state, (of) => ({ ...of, plan, updated_at: of.plan.managed === plan.managed ? of.updated_at : at })),
  DeprovisionRequested: (state: DeploymentState, { by }: Payload<'DeprovisionRequested'>, { at }: EventMeta): DeploymentState =>
    (state.phase !== 'live' ? state : {
      phase: 'ended', name: state.name, agent: state.agent, created_at: state.created_at, updated_at: at,
      with_organization: by === undefined, erased: false, work: by === undefined ? null : work('erase', at),
    }),
  DeploymentErased: (state: DeploymentState, { pass, due }: Payload<'DeploymentErased'>, { at }: EventMeta): DeploymentState =>
    (state.phase !== 'ended' ? state : { ...state, erased: true, updated_at: at, work: due === null ? null : work('erase', due, pass + 1) }),
  WorkStarted: (state: DeploymentState): DeploymentState => pending(state, (of) => ({ ...of, running: true })),
  WorkFailed: (state: DeploymentState, { due }: Payload<'WorkFailed'>): DeploymentState =>
    pending(state, (of) => ({ ...of, running: false, attempts: of.attempts + 1, due })),
} as const;

export const initialDeployment = (): DeploymentState => ({ phase: 'none' });
