/** What a mode, errors and context allow: the gates (REG-013 … REG-022), and a sentence for whoever is stopped by one. Pure. */
import { limits } from '../../contracts/limits.ts';
import { operations, type Decision, type GateAnswer, type Gates, type Gating, type Mode, type Operation } from '../../contracts/regulation.ts';
import { errorRate } from './readings.ts';
import type { RegulationState } from './state.ts';

const all = (decision: Decision): Gates => Object.fromEntries(operations.map((name) => [name, decision])) as Gates;

const byMode: Readonly<Record<Mode, Gates>> = {
  Sovereign: all('allow'),
  Conserving: { ...all('allow'), expensive_model: 'warn', long_context: 'warn', speculative_research: 'block' },
  Hustle: { ...all('allow'), expensive_model: 'block', speculative_research: 'block', long_context: 'block', tool_execution: 'warn', web_search: 'warn' },
  Hibernate: all('block'),
};

const profiles = { Sovereign: 'sovereign', Conserving: 'conserving', Hustle: 'hustle', Hibernate: 'hibernate' } as const;
const rank: Readonly<Record<Decision, number>> = { allow: 0, warn: 1, block: 2 };
const stricter = (a: Decision, b: Decision): Decision => (rank[b] > rank[a] ? b : a);

/** More than this share of failures blocks tools; this share of context, or more, blocks long context (decisions, Gates). */
const errorRateMax = 0.3;
const contextMax = 0.95;

const tooManyErrors = (state: RegulationState): boolean => state.outcomes.length >= limits.regulationErrorEvents && errorRate(state) > errorRateMax;

/** The gates by now; `context`: what an operation would use, besides what the latest turn used. */
export const gatesOf = (state: RegulationState, context = 0): Gates => {
  const gates = byMode[state.mode];
  return {
    ...gates,
    tool_execution: stricter(gates.tool_execution, tooManyErrors(state) ? 'block' : 'allow'),
    long_context: stricter(gates.long_context, Math.max(state.context, context) >= contextMax ? 'block' : 'allow'),
  };
};

export const gatingOf = (state: RegulationState): Gating => ({ profile: profiles[state.mode], gates: gatesOf(state) });

const names: Readonly<Record<Operation, string>> = {
  expensive_model: 'An expensive model', cheap_model: 'A model call', tool_execution: 'Running tools', web_search: 'Searching the web', file_write: 'Writing files',
  speculative_research: 'Speculative research', long_context: 'A long context',
};
const reasons: Readonly<Record<Mode, string>> = {
  Sovereign: '',
  Conserving: 'the credits left are less than twice what the last 30 days used',
  Hustle: 'the credits left are less than what the last 30 days used',
  Hibernate: 'the credits are used up',
};
const verbs: Readonly<Record<Exclude<Decision, 'allow'>, string>> = { warn: 'may be wasteful now', block: 'is not allowed now' };

const explain = (state: RegulationState, operation: Operation, decision: Exclude<Decision, 'allow'>): string => {
  const own = byMode[state.mode][operation];
  const reason = rank[own] >= rank[decision] ? `mode ${state.mode}: ${reasons[state.mode]}`
    : operation === 'tool_execution' ? 'more than 30 % of what was tried in the last hour failed' : 'the context is at least 95 % full';
  return `${names[operation]} ${verbs[decision]} (${reason}).`;
};

/** The most restrictive decision of these operations, with the one that decided. */
export const judge = (state: RegulationState, asked: readonly Operation[], context: number | undefined): GateAnswer => {
  const gates = gatesOf(state, context);
  const operation = asked.reduce((worst, next) => (rank[gates[next]] > rank[gates[worst]] ? next : worst));
  const decision = gates[operation];
  if (decision === 'allow') return { decision, mode: state.mode, operation: null, explanation: null };
  return { decision, mode: state.mode, operation, explanation: explain(state, operation, decision) };
};
