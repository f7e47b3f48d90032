/**
 * A conversation's running completions and how each event changes them: the pure fold (design G6). What has ended is in the journal only,
 * but for the calls that wait for a person, which outlive their completion: at most `limits.completionApprovalsMax` of them.
 */
import type { z } from 'zod';
import type { completionEvents, CompletionEventKind, CompletionPrompt } from '../../contracts/completion.ts';
import { limits } from '../../contracts/limits.ts';
import { isShallow } from '../../contracts/nesting.ts';
import type { usage } from '../../contracts/stream.ts';
import { parseArguments, type TokenCount } from '../providers/provider.ts';

export type Usage = z.infer<typeof usage>;
type Payload<K extends CompletionEventKind> = z.output<(typeof completionEvents)[K]>;
type Message = CompletionPrompt['messages'][number];

/** `final`: journaled, its step goes on. `waiting`: for a person, or the client's. `running`. `ended`: has its result. */
export type CallStatus = 'final' | 'waiting' | 'running' | 'ended';
export interface Call {
  readonly call_id: string;
  readonly name: string;
  /** JSON text. */
  readonly arguments: string;
  /** It runs here, not at the client. */
  readonly here: boolean;
  /** A former completion made it, and a person decided on it. */
  readonly decided: boolean;
  readonly status: CallStatus;
  readonly effect?: string;
}

/** What a tool answered, as the model reads it. */
export interface Answered {
  readonly text: string;
  readonly is_error: boolean;
}

export interface Running {
  readonly model: string;
  readonly by: string;
  readonly prompt: CompletionPrompt | null;
  /** Names the prompt where it is not here. */
  readonly blob: string | null;
  readonly promptChars: number;
  /** Tools that run here. */
  readonly tools: readonly string[];
  readonly step: number;
  /** `model`: a model call streams. `tools`: calls run. */
  readonly phase: 'model' | 'tools';
  /** The model effect of the step. */
  readonly effect: string;
  /** Of the step. */
  readonly text: string;
  readonly calls: readonly Call[];
  /** Of the step's calls' names and arguments. */
  readonly callChars: number;
  /** Calls of all steps. */
  readonly made: number;
  /** Ended steps, as the model reads them after the prompt, and their characters. */
  readonly said: readonly Message[];
  readonly saidChars: number;
  /** Results of decided calls, which the prompt leaves empty. */
  readonly answers: Readonly<Record<string, Answered>>;
  /** Of the ended steps, and whether the provider counted all of them. */
  readonly spent: TokenCount;
  readonly counted: boolean;
  /** The client is slow: the model is not read. */
  readonly held: boolean;
}

/** A call that waits for a person, or was decided on. */
export interface Waiting {
  readonly call_id: string;
  readonly name: string;
  readonly arguments: string;
  /** `taken`: decided on by a completion that runs. `ended`: its result is kept for who asks again. */
  readonly status: 'waiting' | 'taken' | 'ended';
  readonly result?: unknown;
  readonly is_error?: boolean;
}

export interface CompletionState {
  readonly running: Readonly<Record<string, Running>>;
  /** Oldest first. */
  readonly waiting: readonly Waiting[];
  /** Ended ones. */
  readonly completions: number;
  readonly usage: Usage;
}

export const initialCompletions = (): CompletionState => ({ running: {}, waiting: [], completions: 0, usage: { input_tokens: 0, output_tokens: 0, cost_cents: 0 } });

/** The completion if it runs. */
export const runningOf = (state: CompletionState, id: string): Running | undefined => (Object.hasOwn(state.running, id) ? state.running[id] : undefined);
export const waitingOf = (state: CompletionState, callId: string): Waiting | undefined => state.waiting.find(({ call_id: one }) => one === callId);
export const addTokens = (a: TokenCount, b: TokenCount): TokenCount => ({ input_tokens: a.input_tokens + b.input_tokens, output_tokens: a.output_tokens + b.output_tokens });

/** Arguments of a call as a value, for vendors and tools that want one; too deep ones stay text, as do those that are no JSON. */
export const argumentsOf = (text: string): unknown => {
  const value = parseArguments(text);
  return isShallow(value) ? value : text;
};

/** Changes a completion that runs; otherwise the state stays (the fold is total). */
const inRunning = (state: CompletionState, id: string, change: (running: Running) => Running): CompletionState => {
  const running = runningOf(state, id);
  return running === undefined ? state : { ...state, running: { ...state.running, [id]: change(running) } };
};

const without = (state: CompletionState, id: string): CompletionState => {
  const { [id]: _gone, ...running } = state.running;
  return { ...state, running };
};

const withCall = (running: Running, callId: string, change: Partial<Call>): Running =>
  ({ ...running, calls: running.calls.map((call) => (call.call_id === callId ? { ...call, ...change } : call)) });

const withWaiting = (state: CompletionState, callId: string, change: Partial<Waiting>): CompletionState =>
  (waitingOf(state, callId) === undefined ? state : { ...state, waiting: state.waiting.map((one) => (one.call_id === callId ? { ...one, ...change } : one)) });

/** One more; over the bound one that has its result is forgotten first, then the oldest. */
const wait = (state: CompletionState, one: Waiting): CompletionState => {
  const all = [...state.waiting, one];
  if (all.length <= limits.completionApprovalsMax) return { ...state, waiting: all };
  const ended = all.findIndex(({ status }) => status === 'ended');
  return { ...state, waiting: all.toSpliced(Math.max(0, ended), 1) };
};

/** A decided call joins the completion that brings the decision. */
const take = (state: CompletionState, id: string, callId: string): CompletionState => {
  const found = waitingOf(state, callId);
  if (found === undefined) return state;
  const call: Call = { call_id: found.call_id, name: found.name, arguments: found.arguments, here: true, decided: true, status: 'final' };
  return withWaiting(inRunning(state, id, (running) => ({ ...running, calls: [...running.calls, call] })), callId, { status: 'taken' });
};

const say = (running: Running, message: Message, chars: number): Running => ({ ...running, said: [...running.said, message], saidChars: running.saidChars + chars });

type Fold = { readonly [K in CompletionEventKind]: (state: CompletionState, payload: Payload<K>) => CompletionState };

export const fold: Fold = {
  CompletionStarted: (state, e) => ({
    ...state,
    running: {
      ...state.running,
      [e.id]: {
        model: e.model, by: e.by, prompt: e.prompt ?? null, blob: e.blob ?? null, promptChars: e.prompt_chars, tools: e.tools ?? [],
        step: 0, phase: e.effect_id === undefined ? 'tools' : 'model', effect: e.effect_id ?? '', text: '', calls: [], callChars: 0, made: 0,
        said: [], saidChars: 0, answers: {}, spent: { input_tokens: 0, output_tokens: 0 }, counted: true, held: false,
      },
    },
  }),
  CompletionStepStarted: (state, e) => inRunning(state, e.id, (running) => ({ ...running, step: e.step, phase: 'model', effect: e.effect_id, text: '', calls: [], callChars: 0 })),
  CompletionDelta: (state, e) => inRunning(state, e.id, (running) => ({ ...running, text: running.text + e.text })),
  CompletionToolCall: (state, e) => inRunning(state, e.id, (running) => ({
    ...running, made: e.index + 1, callChars: running.callChars + e.name.length + e.arguments.length,
    calls: [...running.calls, { call_id: e.call_id, name: e.name, arguments: e.arguments, here: e.here === true, decided: false, status: 'final' }],
  })),
  CompletionStepEnded: (state, e) => inRunning(state, e.id, (running) => ({
    ...say(running, {
      role: 'assistant', text: running.text, calls: running.calls.map(({ call_id, name, arguments: text }) => ({ call_id, name, arguments: argumentsOf(text) })),
    }, running.text.length + running.callChars),
    phase: 'tools', spent: addTokens(running.spent, e.tokens), counted: running.counted && e.counted,
  })),
  CompletionApprovalRequested: (state, e) => {
    const call = runningOf(state, e.id)?.calls.find(({ call_id: one }) => one === e.call_id);
    if (call === undefined) return state;
    const waiting = inRunning(state, e.id, (running) => withCall(running, e.call_id, { status: 'waiting' }));
    return wait(waiting, { call_id: call.call_id, name: call.name, arguments: call.arguments, status: 'waiting' });
  },
  CompletionApprovalGranted: (state, e) => take(state, e.id, e.call_id),
  CompletionApprovalDenied: (state, e) => take(state, e.id, e.call_id),
  CompletionToolStarted: (state, e) => inRunning(state, e.id, (running) => withCall(running, e.call_id, { status: 'running', effect: e.effect_id })),
  CompletionToolResult: (state, e) => {
    const told: Answered = { text: JSON.stringify(e.result ?? null), is_error: e.is_error };
    const kept = withWaiting(state, e.call_id, { status: 'ended', result: e.result ?? null, is_error: e.is_error });
    return inRunning(kept, e.id, (running) => {
      const ended = withCall(running, e.call_id, { status: 'ended' });
      const call = running.calls.find(({ call_id: one }) => one === e.call_id);
      if (call?.decided !== false) return { ...ended, answers: { ...ended.answers, [e.call_id]: told }, promptChars: ended.promptChars + told.text.length };
      return say(ended, { role: 'tool', call_id: e.call_id, name: e.name, ...told }, told.text.length);
    });
  },
  CompletionPaced: (state, e) => inRunning(state, e.id, (running) => ({ ...running, held: e.held })),
  CompletionFinished: (state, e) => without(state, e.id),
  CompletionFailed: (state, e) => without(state, e.id),
  UsageMetered: (state, { usage }) => ({
    ...state, completions: state.completions + 1,
    usage: {
      input_tokens: state.usage.input_tokens + usage.input_tokens, output_tokens: state.usage.output_tokens + usage.output_tokens,
      cost_cents: state.usage.cost_cents + usage.cost_cents,
    },
  }),
};
