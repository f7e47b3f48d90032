/**
 * The agent actor: who an agent is and what it remembers, beyond any one session. Key = agent id; contract: contracts/agent.ts.
 *
 * Guarantees: a repeated provision by the same owner changes nothing, by another is refused with `conflict`. Memory is bounded
 * (`memoryFactsMax`, `memoryMaxChars`): the least relevant fact is forgotten first, of equals the oldest; the journal keeps all.
 * A fact that is known word for word is not stored twice. `recall` depends on the state and the query only.
 */
import { coded } from '../../contracts/errors.ts';
import { agentCommands, agentEvents, type MemoryFact, type Report } from '../../contracts/agent.ts';
import { limits } from '../../contracts/limits.ts';
import { defineActor } from '../runtime/define.ts';
import { rank } from './recall.ts';

export interface AgentState {
  readonly owner: { readonly user_id: string; readonly project_id: string; readonly name: string } | null;
  /** Oldest first. */
  readonly facts: readonly MemoryFact[];
  readonly factChars: number;
  /** Newest first. */
  readonly reports: readonly Report[];
}

/** Relevance of a fact whose giver did not say. */
const plainRelevance = 0.5;
/** Facts that `recall` gives by default. */
const recallCount = 5;

const store = (state: AgentState, fact: MemoryFact): AgentState => {
  const facts = [...state.facts, fact];
  let factChars = state.factChars + fact.fact.length;
  while (facts.length > 1 && (facts.length > limits.memoryFactsMax || factChars > limits.memoryMaxChars)) {
    // The newest is never the victim: it would make a full memory deaf.
    let least = 0;
    for (let i = 1; i < facts.length - 1; i++) {
      if ((facts[i]?.relevance ?? 0) < (facts[least]?.relevance ?? 0)) least = i;
    }
    factChars -= facts[least]?.fact.length ?? 0;
    facts.splice(least, 1);
  }
  return { ...state, facts, factChars };
};

/** The agent actor's definition. It needs nothing from outside. */
export const agent = () => defineActor({
  type: 'agent',
  events: agentEvents,
  initial: (): AgentState => ({ owner: null, facts: [], factChars: 0, reports: [] }),
  apply: {
    AgentProvisioned: (state, e) => ({ ...state, owner: { user_id: e.user_id, project_id: e.project_id, name: e.name } }),
    MemoryStored: store,
    ReportFiled: (state, e) => ({ ...state, reports: [e, ...state.reports].slice(0, limits.reportsMax) }),
  },
  commands: (command) => ({
    provision: command({
      ...agentCommands.provision, access: 'system',
      handle: (turn, input) => {
        const { owner } = turn.state;
        if (owner !== null && owner.user_id !== input.user_id) throw coded('conflict');
        if (owner === null) turn.emit('AgentProvisioned', input);
        return { agent_id: turn.self.key };
      },
    }),
    remember: command({
      ...agentCommands.remember, access: 'system',
      handle: (turn, input) => {
        const known = turn.state.facts.find((f) => f.fact === input.fact);
        if (known !== undefined) return known;
        const fact = { id: turn.newId(), fact: input.fact, source: input.source, relevance: input.relevance ?? plainRelevance, at: turn.now };
        turn.emit('MemoryStored', fact);
        return fact;
      },
    }),
    recall: command({
      ...agentCommands.recall, access: 'system',
      handle: (turn, input) => ({ facts: rank(turn.state.facts, input.query).slice(0, input.limit ?? recallCount) }),
    }),
    report: command({
      ...agentCommands.report, access: 'system',
      handle: (turn, input) => {
        const id = turn.newId();
        turn.emit('ReportFiled', { id, title: input.title, body: input.body, at: turn.now });
        return { report_id: id };
      },
    }),
    reports: command({
      ...agentCommands.reports, access: 'system',
      handle: (turn) => ({ reports: [...turn.state.reports] }),
    }),
  }),
});

export type AgentCommands = NonNullable<ReturnType<typeof agent>['types']>['commands'];
