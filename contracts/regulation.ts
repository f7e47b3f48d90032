/**
 * The regulation actor's contract: a deployment's homeostatic state, its economic mode and its gates (interface 2.16, 4.7; decisions, Deployment
 * services; REG). Org = the organization, key = the deployment's id. For the daemon and other actors only (access `system`).
 *
 * Guarantee: state is a fold of this actor's journal and of nothing else: what happens in the deployment is told to it as events with their time,
 * and a mode changes by the time of events, never by a clock (REG-004, REG-008).
 */
import { z } from 'zod';
import { limits } from './limits.ts';

export const modes = ['Sovereign', 'Conserving', 'Hustle', 'Hibernate'] as const;
export const mode = z.enum(modes);
export type Mode = z.infer<typeof mode>;

export const operations = ['expensive_model', 'cheap_model', 'tool_execution', 'web_search', 'file_write', 'speculative_research', 'long_context'] as const;
export const operation = z.enum(operations);
export type Operation = z.infer<typeof operation>;
export const decision = z.enum(['allow', 'warn', 'block']);
export type Decision = z.infer<typeof decision>;

export const gates = z.strictObject(Object.fromEntries(operations.map((name) => [name, decision])) as Record<Operation, typeof decision>);
export type Gates = z.infer<typeof gates>;

export const gating = z.strictObject({ profile: z.enum(['sovereign', 'conserving', 'hustle', 'hibernate']), gates });
export type Gating = z.infer<typeof gating>;

export const homeostasis = z.strictObject({
  operational: z.strictObject({ health: z.number(), uptime_seconds: z.int(), error_rate: z.number(), latency_p95_ms: z.int() }),
  cognitive: z.strictObject({ context_utilization: z.number(), memory_pressure: z.enum(['normal', 'elevated', 'critical']), task_completion_rate: z.number() }),
  economic: z.strictObject({ mode, budget_remaining: z.number(), burn_rate_per_hour: z.number(), runway_hours: z.number() }),
});
export type Homeostasis = z.infer<typeof homeostasis>;

export const trustTier = z.enum(['certified', 'trusted', 'provisional', 'unverified']);
export const regulationTrust = z.strictObject({
  agent_id: z.string(), score: z.number(), tier: trustTier,
  components: z.strictObject({ operational: z.number(), cognitive: z.number(), economic: z.number() }),
  trajectory: z.enum(['improving', 'stable', 'declining']), assessed_at: z.iso.datetime(),
});
export type RegulationTrust = z.infer<typeof regulationTrust>;

const id = z.string().min(1).max(limits.idMaxChars);
const cents = z.int();
const at = z.int().nonnegative();

/** Something that happened in the deployment; `id` makes it count once. Times are Unix milliseconds of the event itself. */
export const observation = z.discriminatedUnion('kind', [
  /** A turn ended. `context`: share of the model's context that its last step used, 0-1. */
  z.strictObject({
    kind: z.literal('turn'), id, at, ok: z.boolean(), latency_ms: z.int().nonnegative(), cost_cents: cents.nonnegative(), context: z.number().min(0).max(1),
    /** False: a person cancelled; counts neither as done nor as failed. */
    counts: z.boolean(),
  }),
  z.strictObject({ kind: z.literal('tool'), id, at, ok: z.boolean(), latency_ms: z.int().nonnegative() }),
  /** Money other than a turn's that was spent (finance). */
  z.strictObject({ kind: z.literal('spent'), id, at, cost_cents: cents.nonnegative() }),
  /** The credits left, in cents. */
  z.strictObject({ kind: z.literal('balance'), id, at, cents }),
]);
export type Observation = z.infer<typeof observation>;

/** Answer of a gate: the most restrictive decision of the operations asked for. */
export const gateAnswer = z.strictObject({
  decision, mode,
  /** The operation that decided, and why, for people and agents; null when everything is allowed. */
  operation: operation.nullable(), explanation: z.string().nullable(),
});
export type GateAnswer = z.infer<typeof gateAnswer>;

export const modeChange = z.strictObject({ from: mode, to: mode, /** balance / 30-day burn; null = infinite. */ ratio: z.number().nullable(), at });
export type ModeChange = z.infer<typeof modeChange>;
export const gateTriggered = z.strictObject({ operation, decision: z.enum(['warn', 'block']), mode, about: z.string(), explanation: z.string(), at });
export type GateTriggered = z.infer<typeof gateTriggered>;
export const regulationHistory = z.strictObject({ modes: z.array(modeChange), gates: z.array(gateTriggered) });

export const regulationCommands = {
  /** Begins regulation of a deployment: uptime counts from here. Repeating it changes nothing. `hold_ms`: how long a ratio must stay past a threshold, journaled with it. */
  begin: { input: z.strictObject({ agent_id: id, hold_ms: z.int().nonnegative().max(limits.regulationHoldMs).default(limits.regulationHoldMs) }), output: z.strictObject({}) },
  observe: { input: z.strictObject({ observations: z.array(observation).min(1).max(64) }), output: z.strictObject({}) },
  /**
   * May this be done now? Journals the balance if it is another one than before, and GateTriggered for a warning or a block (REG-026).
   * `about`: what asks (session id, tool name), journaled with it. `context`: share of the model's context that the operation would use.
   */
  gate: {
    input: z.strictObject({ operations: z.array(operation).min(1).max(operations.length), about: z.string().max(512), balance_cents: cents, context: z.number().min(0).max(1).optional() }),
    output: gateAnswer,
  },
  /** Journals nothing. */
  state: { input: z.strictObject({}), output: z.strictObject({ state: homeostasis, gating, trust: regulationTrust, begun: z.boolean() }) },
  /** The last `limits.regulationHistoryMax` changes of mode and gates that warned or blocked, oldest first. Journals nothing. */
  history: { input: z.strictObject({}), output: regulationHistory },
} as const;

export const regulationEvents = {
  RegulationBegun: z.strictObject({ agent_id: id, hold_ms: z.int().nonnegative(), at }),
  Observed: observation,
  ModeChanged: modeChange,
  GateTriggered: gateTriggered,
  /** Time passed without anything else: lets a mode that is due take effect. */
  Ticked: z.strictObject({ at }),
} as const;
export type RegulationEventKind = keyof typeof regulationEvents;
