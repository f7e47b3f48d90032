/**
 * A session's state after any event, folded from its journals with today's definition, as its actor would: for the inspector.
 *
 * Guarantees: no actor is woken. The answer is bounded: texts beyond `limits.sessionStateTextMaxChars` are cut, and shorter where the whole would be
 * more than `limits.sessionStateMaxBytes`.
 */
import type { SessionStateShown } from '../../../contracts/branch-routes.ts';
import { limits } from '../../../contracts/limits.ts';
import { compile, type Compiled } from '../../runtime/compile.ts';
import { coreAt } from '../../runtime/fork.ts';
import { session, type SessionDeps } from '../../session/session.ts';
import type { Call, HistoryCall, HistoryMessage, SessionState } from '../../session/state.ts';
import type { JournalSource } from './after.ts';
import type { Place } from './place.ts';

/** Folds sessions; runs nothing of them. */
export const sessionFold = (deps: Pick<SessionDeps, 'registry' | 'blobs'>): Compiled => compile(session({ ...deps, tools: new Map() }));

/** Throws `journal_unavailable`, `journal_unreadable`. */
export const stateAt = async (source: JournalSource, fold: Compiled, { address, upTo }: Place): Promise<SessionState> =>
  // The definition's own state: what its fold gives.
  (await coreAt(source, fold, address, upTo)).state as SessionState;

/** Cuts texts at `max` characters and remembers whether it did. */
const cutter = (max: number) => {
  let cuts = 0;
  const cut = (text: string): string => {
    if (text.length <= max) return text;
    cuts += 1;
    return `${text.slice(0, max).toWellFormed()}…`;
  };
  return {
    text: cut,
    json: (value: unknown): unknown => {
      const json = JSON.stringify(value) ?? 'null';
      return json.length <= max ? value ?? null : cut(json);
    },
    cuts: () => cuts,
  };
};
type Cutter = ReturnType<typeof cutter>;

const shownCall = ({ call_id, name, arguments: args }: HistoryCall, cut: Cutter) => ({ call_id, name, arguments: cut.json(args) });
const shownRunCall = (call: Call, cut: Cutter) => ({ ...shownCall(call, cut), status: call.status, needs_approval: call.needs_approval });

const shownMessage = (message: HistoryMessage, cut: Cutter): SessionStateShown['history'][number] => {
  switch (message.role) {
    case 'user':
      return { role: 'user', text: cut.text(message.text), ...(message.blob === undefined ? {} : { attachment_blob_ref: message.blob }) };
    case 'assistant':
      return { role: 'assistant', text: cut.text(message.text), calls: message.calls.map((call) => shownCall(call, cut)) };
    case 'tool':
      return { ...message, text: cut.text(message.text) };
  }
};

const shown = ({ model, system, armed, history, memories, run, queue, usage, turns }: SessionState, cut: Cutter): SessionStateShown => ({
  model, system: system === null ? null : cut.text(system), effects: armed ? 'armed' : 'disarmed',
  history: history.map((message) => shownMessage(message, cut)),
  memories: memories.map(({ at, ...memory }) => ({ ...memory, timestamp: at })),
  run: run === null ? null : {
    run_id: run.run_id, model: run.model, step: run.step, phase: run.phase, text: cut.text(run.text), started_at: run.started_at, usage: run.usage,
    calls: run.calls.map((call) => shownRunCall(call, cut)),
  },
  queue: queue.map(({ text }) => ({ text: cut.text(text) })),
  usage, turns,
});

/** As clients see it, and whether any text was cut. */
export const showState = (state: SessionState): { readonly state: SessionStateShown; readonly cut: boolean } => {
  for (let max = limits.sessionStateTextMaxChars; ; max = Math.floor(max / 2)) {
    const cut = cutter(max);
    const seen = shown(state, cut);
    if (max <= 1 || Buffer.byteLength(JSON.stringify(seen)) <= limits.sessionStateMaxBytes) return { state: seen, cut: cut.cuts() > 0 };
  }
};
