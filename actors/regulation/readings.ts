/**
 * What is shown of regulation's state (interface 2.16, REG-001 … 003, 012, 029 … 033): pure functions of the fold, so the same events give the
 * same numbers whatever the time of asking; uptime and `assessed_at` are event time.
 */
import { limits } from '../../contracts/limits.ts';
import type { Homeostasis, RegulationTrust } from '../../contracts/regulation.ts';
import { burned, ratioOf, type Outcome, type RegulationState } from './state.ts';

const hourMs = 3_600_000;

const shareOf = (outcomes: readonly Outcome[], ok: boolean): number => outcomes.filter((outcome) => outcome.ok === ok).length / outcomes.length;

/** Share of failed turns and tool calls in the window; 0 without any. */
export const errorRate = ({ outcomes }: Pick<RegulationState, 'outcomes'>): number => (outcomes.length === 0 ? 0 : shareOf(outcomes, false));

/** Share of turns in the window that were completed; 1 without any. */
const completion = ({ outcomes }: RegulationState): number => {
  const turns = outcomes.filter(({ turn }) => turn);
  return turns.length === 0 ? 1 : shareOf(turns, true);
};

/** 95th percentile (nearest rank) of the window's latencies, milliseconds; 0 without any. */
const latencyP95 = ({ outcomes }: RegulationState): number => {
  const sorted = outcomes.map(({ latency }) => latency).toSorted((a, b) => a - b);
  return sorted[Math.ceil(sorted.length * 0.95) - 1] ?? 0;
};

/** 1 up to this p95, 0 from ten times as much on: how fast counts a fifth of health. */
const goodLatencyMs = 10_000;
const speed = (state: RegulationState): number => Math.max(0, Math.min(1, 1 - (latencyP95(state) - goodLatencyMs) / (9 * goodLatencyMs)));
const health = (state: RegulationState): number => 0.8 * (1 - errorRate(state)) + 0.2 * speed(state);

/** Hours of event time over which burn was gathered: at least 1, at most 30 days' worth. */
const burnHours = ({ now, begunAt }: RegulationState): number => Math.max(1, Math.min(limits.regulationBurnMs, now - (begunAt ?? now)) / hourMs);

/** Whole seconds of event time since regulation began. */
export const uptime = ({ now, begunAt }: RegulationState): number => (begunAt === null ? 0 : Math.floor((now - begunAt) / 1_000));

export const homeostasisOf = (state: RegulationState): Homeostasis => {
  const perHour = burned(state) / burnHours(state);
  const budget = state.balance ?? 0;
  const { context } = state;
  return {
    operational: { health: health(state), uptime_seconds: uptime(state), error_rate: errorRate(state), latency_p95_ms: latencyP95(state) },
    cognitive: {
      context_utilization: context, memory_pressure: context < 0.6 ? 'normal' : context < 0.85 ? 'elevated' : 'critical', task_completion_rate: completion(state),
    },
    economic: {
      mode: state.mode, budget_remaining: budget, burn_rate_per_hour: perHour,
      runway_hours: perHour === 0 ? limits.runwayHoursMax : Math.min(limits.runwayHoursMax, Math.max(0, budget) / perHour),
    },
  };
};

/** Doubt about what little is known: so many outcomes' worth of a half. An agent of which nothing is known has 0.5 in everything (REG-032). */
const doubt = 4;
const doubted = (value: number, known: number): number => (value * known + 0.5 * doubt) / (known + doubt);
const rounded = (value: number): number => Math.round(value * 1e6) / 1e6;

/** How much less than full the economy is: 1 from a ratio of 2 on. */
const economy = (state: RegulationState): number => Math.min(1, ratioOf(state) / 2);
const freedom = ({ context }: RegulationState): number => Math.min(1, Math.max(0, (1 - context) / 0.4));

/** Smallest difference between the older and the newer half of the window that is called a trend. */
const trend = 0.1;
const trajectoryOf = ({ outcomes }: RegulationState): RegulationTrust['trajectory'] => {
  const half = Math.floor(outcomes.length / 2);
  if (half < 2) return 'stable';
  const gain = shareOf(outcomes.slice(half), true) - shareOf(outcomes.slice(0, half), true);
  return gain >= trend ? 'improving' : gain <= -trend ? 'declining' : 'stable';
};

const tierOf = (score: number): RegulationTrust['tier'] => (score >= 0.9 ? 'certified' : score >= 0.75 ? 'trusted' : score >= 0.5 ? 'provisional' : 'unverified');

/** The public score (REG-029 … 031). `agentId`: as it was asked for. */
export const trustOf = (state: RegulationState, agentId: string): RegulationTrust => {
  const known = state.outcomes.length;
  const components = {
    operational: rounded(doubted(health(state), known)),
    cognitive: rounded(doubted(0.7 * completion(state) + 0.3 * freedom(state), known)),
    economic: rounded(doubted(economy(state), known)),
  };
  const score = rounded(0.35 * components.operational + 0.3 * components.cognitive + 0.35 * components.economic);
  return { agent_id: agentId, score, tier: tierOf(score), components, trajectory: trajectoryOf(state), assessed_at: new Date(state.now).toISOString() };
};
