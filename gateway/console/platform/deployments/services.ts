/**
 * A deployment's services as the console calls and reads them: the mirrors of their routes (contracts/console-routes.ts), one reader for each
 * answer, tied to the contract's type.
 */
import type { z } from 'zod';
import type { SessionBranchShown, SessionStateShown } from '../../../../contracts/branch-routes.ts';
import type { Deployment } from '../../../../contracts/deployment.ts';
import type { EventEnvelope } from '../../../../contracts/event.ts';
import type { GraphAnswer, KnowledgeResult, knowledgeDocument } from '../../../../contracts/knowledge.ts';
import type { Gating, Homeostasis, regulationHistory } from '../../../../contracts/regulation.ts';
import type { RuntimeSession } from '../../../../contracts/runtime-routes.ts';
import { anyFields, fields, flag, list, number, oneOf, orNull, text, type Read } from '../../read.ts';

/** Path of a service of a deployment. Each part is escaped. */
export const servicePath = (deployment: string, ...parts: readonly string[]): string =>
  ['/api/deployments', deployment, 'v1', ...parts].map((part, at) => (at === 0 ? part : encodeURIComponent(part))).join('/');

/** The part of a query that names a branch. */
export const branchQuery = (branch: string): { readonly branch?: string } => (branch === mainBranch ? {} : { branch });
/** As the contract calls it. */
export const mainBranch = 'main';

const maybe = <T>(read: Read<T>): Read<T | undefined> => (value, at) => (value === undefined ? undefined : read(value, at));

export const readDeployment: Read<Deployment> = fields<Deployment>({
  id: text, organizationId: text, name: text, status: oneOf(['provisioning', 'running', 'stopped', 'degraded', 'failed', 'deprovisioning']), url: text,
  createdAt: text, updatedAt: text, agent: fields({ id: text, did: text }),
});
export interface Credentials {
  readonly name: string;
  readonly key: string | undefined;
  readonly secret: string | undefined;
}
/** What is shown once, of an answer that made a key. */
export const readCredentials: Read<Credentials> = fields<Credentials>({ name: text, key: maybe(text), secret: maybe(text) });

const sessionFields = { id: text, branch: text, event_count: number, created_at: text, last_event_at: text } as const;
export const readSession: Read<RuntimeSession> = fields<RuntimeSession>(sessionFields);
export const readSessions = fields({ sessions: list(readSession), next_cursor: maybe(text) });
export const readBranch: Read<SessionBranchShown> = fields<SessionBranchShown>({ ...sessionFields, from: orNull(text), at: orNull(text), effects: oneOf(['armed', 'disarmed']) });

export type Envelope = Pick<EventEnvelope, 'id' | 'kind' | 'timestamp' | 'payload'>;
export const readEvents = fields({ events: list(fields<Envelope>({ id: text, kind: text, timestamp: number, payload: anyFields })) });

const usage = fields({ input_tokens: number, output_tokens: number, cost_cents: number });
/** The state as it is shown: what has a place of its own is read, the rest is kept for the text of the whole and for differences. */
export type ShownState = Pick<SessionStateShown, 'model' | 'effects' | 'turns' | 'usage' | 'memories'> & { readonly messages: number; readonly queued: number; readonly phase: string | null };
export interface StateAt {
  readonly number: number;
  readonly cut: boolean;
  readonly shown: ShownState;
  readonly whole: Readonly<Record<string, unknown>>;
}
const anything: Read<unknown> = (value) => value;
const stateFields = fields({
  model: text, effects: oneOf(['armed', 'disarmed']), turns: number, usage, history: list(anything), queue: list(anything), run: orNull(fields({ phase: text })),
  memories: list(fields({ id: text, fact: text, source: text, relevance: number, timestamp: number })),
});
const stateAnswer = fields({ number, cut: flag, state: anyFields });
export const readState: Read<StateAt> = (value, at) => {
  const { number: index, cut, state } = stateAnswer(value, at);
  const { history, queue, run, ...shown } = stateFields(state, `${at}.state`);
  return { number: index, cut, whole: state, shown: { ...shown, messages: history.length, queued: queue.length, phase: run?.phase ?? null } };
};

export const readResults = fields({ results: list(fields<KnowledgeResult>({ id: text, title: text, score: number, excerpt: text })) });
export type GraphNode = GraphAnswer['nodes'][number];
export type GraphEdge = NonNullable<GraphAnswer['edges']>[number];
const edge = oneOf(['references', 'related_to']);
const node: Read<GraphNode> = (value, at) => {
  const { edge: by, ...rest } = fields({ id: text, title: text, depth: number, edge: maybe(edge) })(value, at);
  return by === undefined ? rest : { ...rest, edge: by };
};
export const readGraph = fields({ root: text, nodes: list(node), edges: list(fields<GraphEdge>({ from: text, to: text, edge })) });
export type Document = z.output<typeof knowledgeDocument>;
export const readDocument: Read<Document> = fields<Document>({
  id: text, path: text, title: text, tags: list(text), aliases: list(text), facts: list(text), hash: text, size: number, content: text,
});

const decision = oneOf(['allow', 'warn', 'block']);
const mode = oneOf(['Sovereign', 'Conserving', 'Hustle', 'Hibernate']);
export const readHomeostasis: Read<Homeostasis> = fields<Homeostasis>({
  operational: fields({ health: number, uptime_seconds: number, error_rate: number, latency_p95_ms: number }),
  cognitive: fields({ context_utilization: number, memory_pressure: oneOf(['normal', 'elevated', 'critical']), task_completion_rate: number }),
  economic: fields({ mode, budget_remaining: number, burn_rate_per_hour: number, runway_hours: number }),
});
const operations = { expensive_model: decision, cheap_model: decision, tool_execution: decision, web_search: decision, file_write: decision, speculative_research: decision, long_context: decision } as const;
export const readGating: Read<Gating> = fields<Gating>({ profile: oneOf(['sovereign', 'conserving', 'hustle', 'hibernate']), gates: fields(operations) });
export type History = z.output<typeof regulationHistory>;
const operation = oneOf(['expensive_model', 'cheap_model', 'tool_execution', 'web_search', 'file_write', 'speculative_research', 'long_context']);
export const readHistory: Read<History> = fields<History>({
  modes: list(fields({ from: mode, to: mode, ratio: orNull(number), at: number })),
  gates: list(fields({ operation, decision: oneOf(['warn', 'block']), mode, about: text, explanation: text, at: number })),
});
