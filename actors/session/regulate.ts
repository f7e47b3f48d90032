/**
 * A deployment's session under regulation (contracts/regulation.ts): the gate before a model call and before a tool, and what regulation is told
 * at the end of each.
 *
 * Guarantees: in a session of a deployment no model is called and no tool runs that its gate blocks, at this attempt of it; a gate that does not answer
 * lets nothing through. A turn, and a tool that ran, is told once (by its id), in the commit that ends it. What a gate or the
 * credits refused is neither done nor failed: it does not count. Sessions of people, and installations without accounts, have no gates.
 *
 * A model is expensive when its price per output token is above the median of the registry's.
 */
import { coded } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { regulationAddress } from '../../contracts/deployment.ts';
import { regulationCommands, type Observation, type Operation } from '../../contracts/regulation.ts';
import { walletCommands } from '../../contracts/wallet.ts';
import type { RegisteredModel, Registry } from '../providers/registry.ts';
import type { EffectContext, Turn } from '../runtime/define.ts';
import { walletAddress } from '../wallet/address.ts';
import type { Call, Run, SessionEvents, SessionState } from './state.ts';

/** True above the median output price of all models. */
export const isExpensive = (registry: Registry, model: Pick<RegisteredModel, 'price'>): boolean => {
  const prices = registry.ids.map((id) => registry.get(id)?.price.outputMicroUsdPerMtok ?? 0n).toSorted((a, b) => (a < b ? -1 : a > b ? 1 : 0));
  const upper = prices[prices.length >> 1] ?? 0n;
  const lower = prices[(prices.length - 1) >> 1] ?? 0n;
  return model.price.outputMicroUsdPerMtok * 2n > lower + upper;
};

/** From this share of the model's context on, a prompt is a long one (exclusive). */
const longContext = 0.5;

/** What a model call is for its gate. `context`: share of the model's context that its prompt takes. */
export const modelOperations = (registry: Registry, model: RegisteredModel, context: number): readonly Operation[] =>
  [isExpensive(registry, model) ? 'expensive_model' : 'cheap_model', ...(context > longContext ? ['long_context' as const] : [])];

interface Asked {
  readonly operations: readonly Operation[];
  /** What asks, as it is journaled with a warning or a block. */
  readonly about: string;
  readonly context?: number;
}

/** Asks the deployment's gate; gives the credits left, Infinity where nobody pays. Throws `policy_denied` with its explanation; what the wallet and the regulation actor throw. */
export const requireGate = async (context: EffectContext<SessionState>, { operations, about, context: share }: Asked): Promise<number> => {
  const { deployment } = context.state();
  const wallet = walletAddress(context.self.org);
  if (deployment === null || wallet === undefined) return Infinity;
  const step = (name: string): string => `${name}-${context.attempt}`;
  const { remaining } = walletCommands.balance.output.parse(await context.ask(wallet, 'balance', {}, step('gate-balance')));
  const answer = regulationCommands.gate.output.parse(await context.ask(regulationAddress(context.self.org, deployment.id), 'gate', {
    operations, about: `session ${deployment.session_id}: ${about}`.slice(0, 512), balance_cents: remaining, ...(share === undefined ? {} : { context: Math.min(1, share) }),
  }, step('gate')));
  if (answer.decision === 'block') throw coded('policy_denied', answer.explanation ?? undefined, { details: { operation: answer.operation, mode: answer.mode } });
  return remaining;
};

/** True for an end that says nothing of how well the deployment works. */
export const isRefusal = (code: string): boolean => code === 'policy_denied' || code === 'credits_exhausted';

type TellingTurn = Pick<Turn<SessionState, SessionEvents, Record<never, never>>, 'state' | 'self' | 'now' | 'tell' | 'remind'>;

const observe = (turn: TellingTurn, seen: Observation, wake: string): void => {
  const { deployment } = turn.state;
  if (deployment === null) return;
  turn.tell(regulationAddress(turn.self.org, deployment.id), 'observe', { observations: [seen] });
  // If its host is lost before it is sent, the activation that this makes sends it.
  turn.remind(wake, { inMs: limits.turnWakeMs });
};

/** A turn ended. `contextTokens`: what its model reads at most; undefined = that model is gone. */
export const observeTurn = (turn: TellingTurn, run: Run, end: { readonly ok: boolean; readonly counts: boolean; readonly cents: number; readonly contextTokens: number | undefined }, wake: string): void =>
  observe(turn, {
    kind: 'turn', id: run.run_id, at: turn.now, ok: end.ok, latency_ms: Math.max(0, turn.now - run.started_at), cost_cents: end.cents, counts: end.counts,
    context: end.contextTokens === undefined ? 0 : Math.min(1, run.input_tokens / end.contextTokens),
  }, wake);

/** A tool ended that had begun to run. */
export const observeTool = (turn: TellingTurn, call: Call, ok: boolean, wake: string): void => {
  if (call.effect_id === undefined) return;
  observe(turn, { kind: 'tool', id: call.effect_id, at: turn.now, ok, latency_ms: Math.max(0, turn.now - (call.started_at ?? turn.now)) }, wake);
};

