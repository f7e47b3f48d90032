/**
 * What a deployment does besides answering: it settles (its names, its place at the organization, its regulation), restarts, is erased.
 *
 * Guarantees: it goes on until it is done or refused for good, whatever is lost meanwhile: its state is journaled, the work is an at-least-once
 * effect that may repeat itself, and a reminder stands until the end. Erasing is done twice: at once, and again after `limits.eraseAgainMs`,
 * when nothing that was admitted before can still be writing.
 */
import { z } from 'zod';
import { deploymentWork } from '../../contracts/deployment-actor.ts';
import { regulationAddress } from '../../contracts/deployment.ts';
import { agentHolder } from '../../contracts/deployment-token.ts';
import { CodedError, coded } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { nameCommands } from '../../contracts/name.ts';
import { organizationCommands } from '../../contracts/organization.ts';
import type { DeploymentEvents } from '../../contracts/deployment-actor.ts';
import type { ActorAddress } from '../../contracts/subjects.ts';
import { nameAddress } from '../name/address.ts';
import type { EffectContext, Outcome, PayloadOf, Turn } from '../runtime/define.ts';
import type { DeploymentState } from './state.ts';

export interface DeploymentDeps {
  /** Puts down what is active of a deployment; each is taken up again, from its journal, by the next message to it. Gives how many. Safe to repeat. */
  readonly restart: (self: ActorAddress, agentId: string, signal: AbortSignal) => Promise<number>;
  /** Erases everything of a deployment but this actor's own journal. Safe to repeat. Throws coded errors: it is tried again. */
  readonly erase: (self: ActorAddress, agentId: string, signal: AbortSignal) => Promise<void>;
  /** How long a ratio must stay past a threshold before the economic mode changes (regulation's `begin`). Absent: as its contract says. */
  readonly modeHoldMs?: number;
}

/** `agent`: the deployment's, by its id. */
export const workInput = z.strictObject({ work: deploymentWork, pass: z.int(), agent: z.string() });
type WorkInput = z.output<typeof workInput>;
/** `done` false: refused for good, with a code. */
export const workOutput = z.strictObject({ refused: z.string().optional(), managed: z.boolean().optional(), activations: z.int().optional() });
type WorkOutput = z.output<typeof workOutput>;

export interface DeploymentTurn extends Pick<Turn<DeploymentState, DeploymentEvents, Record<never, never>>, 'state' | 'now' | 'self' | 'tell' | 'remind' | 'forget'> {
  emit<K extends keyof DeploymentEvents>(kind: K, payload: PayloadOf<DeploymentEvents[K]>): void;
  effect(name: 'work', input: WorkInput): string;
}

const organizationOf = (org: string): ActorAddress => ({ org, type: 'organization', key: org });
const erasePasses = 2;

/** Starts work that is due and sets the reminder for what comes after. */
export const workOn = (turn: DeploymentTurn): void => {
  const { state } = turn;
  if (state.phase === 'none' || state.work === null) {
    turn.forget('work');
    return;
  }
  const { kind, pass, running, due } = state.work;
  const starts = !running && due <= turn.now;
  if (starts) {
    turn.effect('work', { work: kind, pass, agent: state.agent.id });
    turn.emit('WorkStarted', { work: kind });
  }
  turn.remind('work', starts || running ? { inMs: limits.organizationWakeMs } : { atMs: due });
};

/** Its names are found by whoever knows only the deployment's or the agent's id. */
const settle = async (context: EffectContext<DeploymentState>, agent: string): Promise<WorkOutput> => {
  const { self } = context;
  const names = [['deployment', self.key, self.org], ['agent', agent, agentHolder(self.org, self.key)]] as const;
  for (const [kind, text, holder] of names) {
    const { mine } = nameCommands.claim.output.parse(await context.ask(nameAddress(kind, text), 'claim', { holder }, kind));
    if (!mine) return { refused: 'conflict' };
  }
  try {
    const { managed } = organizationCommands.confirm_deployment.output.parse(await context.ask(organizationOf(self.org), 'confirm_deployment', { id: self.key }, 'confirm'));
    return { managed };
  } catch (error) {
    if (error instanceof CodedError && error.code === 'not_found') return { refused: error.code };
    throw error;
  }
};

export const runWork = (deps: DeploymentDeps) => async (context: EffectContext<DeploymentState>, { work, agent }: WorkInput): Promise<WorkOutput> => {
  switch (work) {
    case 'settle':
      return settle(context, agent);
    case 'restart':
      return { activations: await deps.restart(context.self, agent, context.signal) };
    case 'erase':
      await deps.erase(context.self, agent, context.signal);
      return {};
  }
};

const failed = (turn: DeploymentTurn, work: WorkInput['work'], code: string, attempts: number): void => {
  const waitMs = Math.min(limits.organizationRetryMs * 2 ** Math.min(attempts, 20), limits.organizationRetryMaxMs);
  turn.emit('WorkFailed', { work, code, due: turn.now + waitMs });
};

const succeeded = (turn: DeploymentTurn, { modeHoldMs }: Pick<DeploymentDeps, 'modeHoldMs'>, { work, pass, agent }: WorkInput, output: WorkOutput): void => {
  switch (work) {
    case 'settle':
      if (output.refused !== undefined) {
        turn.emit('DeploymentFailed', { code: output.refused });
        return;
      }
      turn.emit('DeploymentSettled', { managed: output.managed ?? true });
      turn.tell(regulationAddress(turn.self.org, turn.self.key), 'begin', { agent_id: agent, ...(modeHoldMs === undefined ? {} : { hold_ms: modeHoldMs }) });
      return;
    case 'restart':
      turn.emit('DeploymentRestarted', { activations: output.activations ?? 0 });
      return;
    case 'erase': {
      const last = pass >= erasePasses;
      turn.emit('DeploymentErased', { pass, due: last ? null : turn.now + limits.eraseAgainMs });
      if (pass === 1) turn.tell(organizationOf(turn.self.org), 'remove_deployment', { id: turn.self.key });
      if (!last) return;
      turn.tell(nameAddress('deployment', turn.self.key), 'release', { holder: turn.self.org });
      turn.tell(nameAddress('agent', agent), 'release', { holder: agentHolder(turn.self.org, turn.self.key) });
    }
  }
};

export const worked = (deps: Pick<DeploymentDeps, 'modeHoldMs'>) => (turn: DeploymentTurn, outcome: Outcome<WorkOutput>, input: WorkInput): void => {
  const { state } = turn;
  // Another work has taken its place (an end while it settled): that one goes on by itself.
  if (state.phase === 'none' || state.work?.kind !== input.work) {
    workOn(turn);
    return;
  }
  if (outcome.ok) succeeded(turn, deps, input, outcome.output);
  else failed(turn, input.work, outcome.code, state.work.attempts);
  workOn(turn);
};

/** A restart is for one that is there and at rest. Throws `conflict`. */
export const requireRest = (state: DeploymentState): void => {
  if (state.phase === 'live' && (state.work !== null || state.failed)) throw coded('conflict', 'The deployment is being made or restarted at the moment, or has failed.');
};
