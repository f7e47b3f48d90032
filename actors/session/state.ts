/**
 * A session's state and how each event changes it: the pure fold (design G6).
 *
 * Lean on purpose: a delta touches one string (the running step's text), a message appends to one array, and what a model
 * will never see again is dropped here by rule, so that the same events give the same state on any host. The whole past is
 * in the journal only. Bounds: `sessionHistoryMaxChars` of history (whole oldest turns go first, then the oldest tool results of
 * the running turn), `dedupMax` message ids for `dedupTtlMs`, `sessionQueueMax` waiting messages, `sessionTurnsKept` beginnings of turns; memories are
 * bounded where they are stored.
 */
import { hash } from 'node:crypto';
import type { z } from 'zod';
import { limits } from '../../contracts/limits.ts';
import type { ChatSession, SessionDeployment, sessionEvents, SessionEventKind, SessionMemory } from '../../contracts/session.ts';
import type { usage } from '../../contracts/stream.ts';
import type { EventMeta } from '../runtime/define.ts';
import { endedCall } from '../tools/call.ts';

export type Usage = z.infer<typeof usage>;
export type SessionEvents = typeof sessionEvents;
type Payload<K extends SessionEventKind> = z.output<SessionEvents[K]>;

export interface QueuedMessage {
  readonly text: string;
  readonly blob?: string;
  /** Who says it. */
  readonly by: string;
  readonly run_id?: string;
  readonly model?: string;
  readonly system?: string;
}

/** Where a turn of a deployment's client begins in the journal. */
export interface TurnBeginning {
  readonly run_id: string;
  /** Id of the first event that its message caused. */
  readonly from: string;
  /** SHA-256 of its message. */
  readonly digest: string;
  readonly message_id?: string;
}

/** History as the model will see it; tool results as JSON text. */
export type HistoryMessage =
  | { readonly role: 'user'; readonly text: string; readonly blob?: string }
  | { readonly role: 'assistant'; readonly text: string; readonly calls: readonly HistoryCall[] }
  | { readonly role: 'tool'; readonly call_id: string; readonly name: string; readonly text: string; readonly is_error: boolean };
export interface HistoryCall {
  readonly call_id: string;
  readonly name: string;
  readonly arguments: unknown;
}

/** `final`: journaled, the step goes on. `waiting`: for a person. `granted`, `denied`: decided. `running`. `ended`: has its result. */
export type CallStatus = 'final' | 'waiting' | 'granted' | 'denied' | 'running' | 'ended';
export interface Call extends HistoryCall {
  readonly status: CallStatus;
  readonly needs_approval: boolean;
  readonly dispatch_id?: string;
  readonly effect_id?: string;
  /** When it began to run, Unix milliseconds. */
  readonly started_at?: number;
}

export interface Run {
  readonly run_id: string;
  readonly step: number;
  /** `model`: a model call streams. `tools`: its calls run or wait. */
  readonly phase: 'model' | 'tools';
  /** Effect of the model call of this step. */
  readonly effect_id: string;
  /** Text of this step so far. */
  readonly text: string;
  /** Calls of this step. */
  readonly calls: readonly Call[];
  /** Of the ended steps. */
  readonly usage: Usage;
  readonly model: string;
  /** Who asked: the turn is metered as theirs. */
  readonly by: string;
  /** Unix milliseconds. */
  readonly started_at: number;
  /** Tokens that the last ended step's model call read. */
  readonly input_tokens: number;
}

export interface SessionState {
  /** Key of the actor. */
  readonly key: string;
  /** null before SessionCreated. */
  readonly session: ChatSession | null;
  /** null for a person's own chat. */
  readonly deployment: SessionDeployment | null;
  readonly label: string | null;
  readonly model: string;
  /** Instructions that the client gave last; null = the installation's. */
  readonly system: string | null;
  readonly history: readonly HistoryMessage[];
  readonly historyChars: number;
  readonly queue: readonly QueuedMessage[];
  /** Message ids taken, oldest first, with the time of each. */
  readonly seen: readonly { readonly id: string; readonly at: number }[];
  readonly run: Run | null;
  readonly usage: Usage;
  readonly turns: number;
  /** Something happened since the last SessionHibernated. */
  readonly awake: boolean;
  /** Oldest first. */
  readonly memories: readonly SessionMemory[];
  readonly memoryChars: number;
  /** Turns of a deployment's clients, oldest first. */
  readonly beginnings: readonly TurnBeginning[];
  /** Id of the first event that came before the next message and because of it; '' = none. */
  readonly opening: string;
  /** False: a branch that may not act outside of its session. */
  readonly armed: boolean;
}

const noUsage: Usage = { input_tokens: 0, output_tokens: 0, cost_cents: 0 };
export const addUsage = (a: Usage, b: Usage): Usage => ({
  input_tokens: a.input_tokens + b.input_tokens, output_tokens: a.output_tokens + b.output_tokens, cost_cents: a.cost_cents + b.cost_cents,
});

export const initialSession = (key = ''): SessionState => ({
  key, session: null, deployment: null, label: null, model: '', system: null, history: [], historyChars: 0, queue: [], seen: [], run: null, usage: noUsage, turns: 0,
  awake: false, memories: [], memoryChars: 0, beginnings: [], opening: '', armed: true,
});

/** What tells two messages apart. */
export const digestOf = (content: string): string => hash('sha256', content, 'hex');

/** Characters a message counts against the history's bound. */
export const messageChars = (message: HistoryMessage): number =>
  message.text.length + 16 + (message.role === 'assistant' ? message.calls.reduce((sum, c) => sum + c.name.length + JSON.stringify(c.arguments ?? null).length, 0) : 0);

const forgotten = '"[an earlier result, no longer kept]"';

/** Appends, then drops by rule what exceeds the bound. */
const remember = (state: Pick<SessionState, 'history' | 'historyChars'>, message: HistoryMessage): Pick<SessionState, 'history' | 'historyChars'> => {
  let history = [...state.history, message];
  let chars = state.historyChars + messageChars(message);
  const max = limits.sessionHistoryMaxChars;
  while (chars > max) {
    // Up to the second user message: the oldest whole turn. The running turn itself stays.
    const next = history.findIndex((m, i) => i > 0 && m.role === 'user');
    if (next < 0) break;
    chars -= history.slice(0, next).reduce((sum, m) => sum + messageChars(m), 0);
    history = history.slice(next);
  }
  for (let i = 0; chars > max && i < history.length - 1; i++) {
    const old = history[i];
    if (old?.role !== 'tool' || old.text.length <= forgotten.length) continue;
    chars -= old.text.length - forgotten.length;
    history[i] = { ...old, text: forgotten };
  }
  return { history, historyChars: chars };
};

/** Ids that still count at a time. */
export const seenIds = (seen: SessionState['seen'], now: number): SessionState['seen'] => {
  const from = seen.findIndex((s) => s.at > now - limits.dedupTtlMs);
  return from < 0 ? [] : from === 0 ? seen : seen.slice(from);
};

const withCall = (run: Run, callId: string, change: Partial<Call>): Run => ({
  ...run, calls: run.calls.map((c) => (c.call_id === callId ? { ...c, ...change } : c)),
});

/** Changes the run if it is the one the event speaks of; otherwise the state stays (the fold is total). */
const inRun = (state: SessionState, runId: string, change: (run: Run) => Run): SessionState =>
  (state.run?.run_id === runId ? { ...state, run: change(state.run), awake: true, opening: '' } : state);

const ended = (state: SessionState, runId: string, usageOfRun: Usage): SessionState =>
  (state.run?.run_id === runId ? { ...state, run: null, usage: addUsage(state.usage, usageOfRun), awake: true } : state);

const historyCall = ({ call_id, name, arguments: args }: Call): HistoryCall => ({ call_id, name, arguments: args });

/** What a branch keeps of a turn that ran where it begins: what was said, and for every open call that it has no result. */
const cutShort = (state: SessionState): Pick<SessionState, 'history' | 'historyChars'> => {
  const { run, history, historyChars } = state;
  if (run === null) return { history, historyChars };
  const said: HistoryMessage[] = run.phase === 'model' && (run.text !== '' || run.calls.length > 0) ? [{ role: 'assistant', text: run.text, calls: run.calls.map(historyCall) }] : [];
  const results = run.calls.filter(({ status }) => status !== 'ended').map((call): HistoryMessage => ({
    role: 'tool', call_id: call.call_id, name: call.name, is_error: true,
    text: JSON.stringify({ error: endedCall('The session was branched before this call ended.', call.status === 'running') }),
  }));
  return [...said, ...results].reduce<Pick<SessionState, 'history' | 'historyChars'>>((kept, message) => remember(kept, message), { history, historyChars });
};

type Fold = { readonly [K in SessionEventKind]: (state: SessionState, payload: Payload<K>, meta: EventMeta) => SessionState };

/** The turn's beginning, where a deployment's client began it. */
const begun = (state: SessionState, e: Payload<'UserMessage'>, meta: EventMeta): Pick<SessionState, 'beginnings' | 'opening'> => {
  if (e.run_id === undefined) return { beginnings: state.beginnings, opening: '' };
  const beginning = { run_id: e.run_id, from: state.opening === '' ? meta.id : state.opening, digest: digestOf(e.content), ...(e.message_id === undefined ? {} : { message_id: e.message_id }) };
  return { beginnings: [...state.beginnings, beginning].slice(-limits.sessionTurnsKept), opening: '' };
};

const queuedOf = (e: Payload<'UserMessage'>): QueuedMessage => ({
  text: e.content, by: e.user_id, ...(e.attachment_blob_ref === undefined ? {} : { blob: e.attachment_blob_ref }), ...(e.run_id === undefined ? {} : { run_id: e.run_id }),
  ...(e.model === undefined ? {} : { model: e.model }), ...(e.system === undefined ? {} : { system: e.system }),
});

export const fold: Fold = {
  SessionCreated: (state, e, meta) => ({
    ...state, label: e.label, model: e.model, awake: true, deployment: e.deployment ?? null, opening: meta.id,
    session: {
      sid: e.deployment === undefined ? e.agent_id.slice('agent-'.length) : state.key,
      agent_id: e.agent_id, user_id: e.user_id, project_id: e.project_id, created_at_unix: e.created_at_unix,
    },
  }),
  // On the state of its origin. History, memories, model and instructions are the branch's too; a turn, what waits, and every count are not.
  BranchCreated: (state, e, meta) => ({
    ...initialSession(e.sid), ...cutShort(state), session: state.session === null ? null : { ...state.session, sid: e.sid, created_at_unix: Math.floor(meta.at / 1_000) },
    deployment: e.deployment, label: state.label, model: state.model, system: state.system, memories: state.memories, memoryChars: state.memoryChars,
    awake: true, armed: e.effects === 'armed',
  }),
  HistoryImported: (state, e) => ({
    ...state, awake: true, ...e.messages.reduce<Pick<SessionState, 'history' | 'historyChars'>>((kept, message) => remember(kept, message), state),
  }),
  UserMessage: (state, e, meta) => {
    const seen = e.message_id === undefined ? state.seen : [...seenIds(state.seen, meta.at), { id: e.message_id, at: meta.at }].slice(-limits.dedupMax);
    return { ...state, queue: [...state.queue, queuedOf(e)], seen, awake: true, ...begun(state, e, meta) };
  },
  MessageRefused: (state) => ({ ...state, awake: true }),
  RunStarted: (state, e, meta) => {
    const [head, ...queue] = state.queue;
    if (head === undefined) return state;
    const { text, blob, by, model = state.model, system = state.system } = head;
    return {
      ...state, queue, system, turns: state.turns + 1, awake: true, ...remember(state, { role: 'user', text, ...(blob === undefined ? {} : { blob }) }),
      run: {
        run_id: e.run_id, step: 0, phase: 'model', effect_id: '', text: '', calls: [], usage: noUsage, model, by, started_at: meta.at, input_tokens: 0,
      },
    };
  },
  StepStarted: (state, e) => inRun(state, e.run_id, (run) => ({ ...run, step: e.step, phase: 'model', effect_id: e.effect_id, text: '', calls: [] })),
  TextDelta: (state, e) => inRun(state, e.run_id, (run) => ({ ...run, text: run.text + e.text })),
  ToolCall: (state, e) => inRun(state, e.run_id, (run) => ({
    ...run, calls: [...run.calls, { call_id: e.call_id, name: e.tool_name, arguments: e.arguments, status: 'final', needs_approval: e.needs_approval }],
  })),
  ApprovalRequested: (state, e) => inRun(state, e.run_id, (run) => withCall(run, e.call_id, { status: 'waiting', dispatch_id: e.dispatch_id })),
  ApprovalGranted: (state, e) => inRun(state, e.run_id, (run) => withCall(run, e.call_id, { status: 'granted' })),
  ApprovalDenied: (state, e) => inRun(state, e.run_id, (run) => withCall(run, e.call_id, { status: 'denied' })),
  ToolStarted: (state, e, meta) => inRun(state, e.run_id, (run) => withCall(run, e.call_id, { status: 'running', effect_id: e.effect_id, started_at: meta.at })),
  ToolResult: (state, e) => {
    if (state.run?.run_id !== e.run_id) return state;
    const text = JSON.stringify(e.result ?? null);
    return {
      ...state, awake: true, run: withCall(state.run, e.call_id, { status: 'ended' }),
      ...remember(state, { role: 'tool', call_id: e.call_id, name: e.tool_name, text, is_error: e.is_error }),
    };
  },
  AssistantMessage: (state, e) => {
    if (state.run?.run_id !== e.run_id) return state;
    const { run } = state;
    const calls = run.calls.map(historyCall);
    const kept = e.content === '' && calls.length === 0 ? {} : remember(state, { role: 'assistant', text: e.content, calls });
    return { ...state, ...kept, awake: true, run: { ...run, phase: 'tools', text: '', usage: addUsage(run.usage, e.usage), input_tokens: e.usage.input_tokens } };
  },
  RunFinished: (state, e) => ended(state, e.run_id, e.usage),
  RunErrored: (state, e) => ended(state, e.run_id, e.usage),
  UsageMetered: (state) => state,
  SessionHibernated: (state) => ({ ...state, awake: false }),
  SessionResumed: (state, _e, meta) => ({ ...state, awake: true, opening: meta.id }),
  MemoryStored: (state, e, meta) => ({
    ...state, awake: true, opening: '', memoryChars: state.memoryChars + e.fact.length,
    memories: [...state.memories, { id: e.id, fact: e.fact, source: e.source, relevance: e.relevance, at: meta.at }],
  }),
};
