/** A conversation's running completions and how each event changes them: the pure fold (design G6). What has ended is in the journal only. */
import type { z } from 'zod';
import type { completionEvents, CompletionEventKind, CompletionPrompt } from '../../contracts/completion.ts';
import type { usage } from '../../contracts/stream.ts';

export type Usage = z.infer<typeof usage>;
type Payload<K extends CompletionEventKind> = z.output<(typeof completionEvents)[K]>;

export interface Running {
  readonly model: string;
  readonly by: string;
  readonly prompt: CompletionPrompt | null;
  /** Names the prompt where it is not here. */
  readonly blob: string | null;
  readonly promptChars: number;
  /** The model effect. */
  readonly effect: string;
  readonly text: string;
  readonly calls: number;
  /** Of the calls' names and arguments. */
  readonly callChars: number;
}

export interface CompletionState {
  readonly running: Readonly<Record<string, Running>>;
  /** Ended ones. */
  readonly completions: number;
  readonly usage: Usage;
}

export const initialCompletions = (): CompletionState => ({ running: {}, completions: 0, usage: { input_tokens: 0, output_tokens: 0, cost_cents: 0 } });

/** The completion if it runs. */
export const runningOf = (state: CompletionState, id: string): Running | undefined => (Object.hasOwn(state.running, id) ? state.running[id] : undefined);

/** Changes a completion that runs; otherwise the state stays (the fold is total). */
const inRunning = (state: CompletionState, id: string, change: (running: Running) => Running): CompletionState => {
  const running = runningOf(state, id);
  return running === undefined ? state : { ...state, running: { ...state.running, [id]: change(running) } };
};

const without = (state: CompletionState, id: string): CompletionState => {
  const { [id]: _gone, ...running } = state.running;
  return { ...state, running };
};

type Fold = { readonly [K in CompletionEventKind]: (state: CompletionState, payload: Payload<K>) => CompletionState };

export const fold: Fold = {
  CompletionStarted: (state, e) => ({
    ...state,
    running: {
      ...state.running,
      [e.id]: { model: e.model, by: e.by, prompt: e.prompt ?? null, blob: e.blob ?? null, promptChars: e.prompt_chars, effect: e.effect_id, text: '', calls: 0, callChars: 0 },
    },
  }),
  CompletionDelta: (state, e) => inRunning(state, e.id, (running) => ({ ...running, text: running.text + e.text })),
  CompletionToolCall: (state, e) => inRunning(state, e.id, (running) => ({ ...running, calls: e.index + 1, callChars: running.callChars + e.name.length + e.arguments.length })),
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
