/**
 * A session's state and how each event changes it: the pure fold (design G6).
 *
 * Lean on purpose: a delta touches one string (the running step's text), a message appends to one array, and what a model
 * will never see again is dropped here by rule, so that the same events give the same state on any host. The whole past is
 * in the journal only. Bounds: `sessionHistoryMaxChars` of history (whole oldest turns go first, then the oldest tool results of
 * the running turn), `dedupMax` message ids for `dedupTtlMs`, `sessionQueueMax` waiting messages.
 */
import type { z } from 'zod';
import { limits } from '../../contracts/limits.ts';
import type { ChatSession, sessionEvents, SessionEventKind } from '../../contracts/session.ts';
import type { usage } from '../../contracts/stream.ts';
import type { EventMeta } from '../runtime/define.ts';

export type Usage = z.infer<typeof usage>;
export type SessionEvents = typeof sessionEvents;
type Payload<K extends SessionEventKind> = z.output<SessionEvents[K]>;

export interface QueuedMessage {
  readonly text: string;
  readonly blob?: string;
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
}

export interface SessionState {
  /** null before SessionCreated. */
  readonly session: ChatSession | null;
  readonly label: string | null;
  readonly model: string;
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
}

const noUsage: Usage = { input_tokens: 0, output_tokens: 0, cost_cents: 0 };
export const addUsage = (a: Usage, b: Usage): Usage => ({
  input_tokens: a.input_tokens + b.input_tokens, output_tokens: a.output_tokens + b.output_tokens, cost_cents: a.cost_cents + b.cost_cents,
});

export const initialSession = (): SessionState => ({
  session: null, label: null, model: '', history: [], historyChars: 0, queue: [], seen: [], run: null, usage: noUsage, turns: 0, awake: false,
});

/** Characters a message counts against the history's bound. */
export const messageChars = (message: HistoryMessage): number =>
  message.text.length + 16 + (message.role === 'assistant' ? message.calls.reduce((sum, c) => sum + c.name.length + JSON.stringify(c.arguments ?? null).length, 0) : 0);

const forgotten = '"[an earlier result, no longer kept]"';

/** Appends, then drops by rule what exceeds the bound. */
const remember = (state: SessionState, message: HistoryMessage): Pick<SessionState, 'history' | 'historyChars'> => {
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
  (state.run?.run_id === runId ? { ...state, run: change(state.run), awake: true } : state);

const ended = (state: SessionState, runId: string, usageOfRun: Usage): SessionState =>
  (state.run?.run_id === runId ? { ...state, run: null, usage: addUsage(state.usage, usageOfRun), awake: true } : state);

type Fold = { readonly [K in SessionEventKind]: (state: SessionState, payload: Payload<K>, meta: EventMeta) => SessionState };

export const fold: Fold = {
  SessionCreated: (state, e) => ({
    ...state, label: e.label, model: e.model, awake: true,
    session: { sid: e.agent_id.slice('agent-'.length), agent_id: e.agent_id, user_id: e.user_id, project_id: e.project_id, created_at_unix: e.created_at_unix },
  }),
  UserMessage: (state, e, meta) => {
    const message: QueuedMessage = e.attachment_blob_ref === undefined ? { text: e.content } : { text: e.content, blob: e.attachment_blob_ref };
    const seen = e.message_id === undefined ? state.seen : [...seenIds(state.seen, meta.at), { id: e.message_id, at: meta.at }].slice(-limits.dedupMax);
    return { ...state, queue: [...state.queue, message], seen, awake: true };
  },
  MessageRefused: (state) => ({ ...state, awake: true }),
  RunStarted: (state, e) => {
    const [head, ...queue] = state.queue;
    if (head === undefined) return state;
    return {
      ...state, queue, turns: state.turns + 1, awake: true, ...remember(state, { role: 'user', ...head }),
      run: { run_id: e.run_id, step: 0, phase: 'model', effect_id: '', text: '', calls: [], usage: noUsage },
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
  ToolStarted: (state, e) => inRun(state, e.run_id, (run) => withCall(run, e.call_id, { status: 'running', effect_id: e.effect_id })),
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
    const calls = run.calls.map((c): HistoryCall => ({ call_id: c.call_id, name: c.name, arguments: c.arguments }));
    const kept = e.content === '' && calls.length === 0 ? {} : remember(state, { role: 'assistant', text: e.content, calls });
    return { ...state, ...kept, awake: true, run: { ...run, phase: 'tools', text: '', usage: addUsage(run.usage, e.usage) } };
  },
  RunFinished: (state, e) => ended(state, e.run_id, e.usage),
  RunErrored: (state, e) => ended(state, e.run_id, e.usage),
  UsageMetered: (state) => state,
  SessionHibernated: (state) => ({ ...state, awake: false }),
};
