/**
 * The chat loop's turns: how a run begins, goes from model step to tools and on, and ends. Each function runs inside one actor
 * turn; its events are one commit.
 *
 * Guarantees
 * L1  One run at a time; it ends in exactly one RunFinished or RunErrored, after which no event of it follows.
 * L2  Every ToolCall gets exactly one ToolResult, before the run's end, however it ends.
 * L3  A call that needs approval is not started before ApprovalGranted.
 * L4  A run's cost is rounded up once, over all of its tokens.
 * L5  While a model call or a tool runs a reminder is set, so that a turn goes on after a lost host without anybody asking.
 */
import { limits } from '../../contracts/limits.ts';
import { errorEntry, errors } from '../../contracts/errors.ts';
import type { Outcome } from '../runtime/define.ts';
import { costCents, estimateUsage } from '../providers/price.ts';
import type { TokenCount } from '../providers/provider.ts';
import type { Registry } from '../providers/registry.ts';
import { callProblem, deniedCall, endedCall, toolFailure } from '../tools/call.ts';
import { boundResult } from '../tools/tool.ts';
import type { StepInput, StepOutput } from './model.ts';
import { isRefusal, observeTool, observeTurn } from './regulate.ts';
import { addUsage, type Call, type Run, type SessionEvents, type SessionState, type Usage } from './state.ts';
import { toolsOf, type SessionTools } from './tools.ts';
import type { SessionEventKind } from '../../contracts/session.ts';
import type { PayloadOf, Turn } from '../runtime/define.ts';
import { walletAddress } from '../wallet/address.ts';
import { charge } from '../wallet/meter.ts';

/** The part of a turn that the loop needs; commands' and effects' turns both have it. */
export interface LoopTurn extends Pick<Turn<SessionState, SessionEvents, Record<never, never>>, 'state' | 'self' | 'now' | 'newId' | 'abort' | 'tell' | 'remind' | 'forget'> {
  emit<K extends SessionEventKind>(kind: K, payload: PayloadOf<SessionEvents[K]>): void;
  effect(name: 'model', input: StepInput): string;
  effect(name: 'tool' | 'tool_once', input: { run_id: string; call_id: string }): string;
}

export interface LoopDeps extends SessionTools {
  readonly registry: Registry;
  /** Whether turns are paid for with credits: where there are accounts. */
  readonly metered?: boolean;
}

type Finish = PayloadOf<SessionEvents['RunFinished']>['finish_reason'];

/** Name of the reminder of L5. */
export const resume = 'resume';

const isOpen = (call: Call): boolean => call.status !== 'ended';

/** Begins the next queued message, if any. Call it only when no run is there. */
export const startNext = (turn: LoopTurn): void => {
  if (turn.state.run !== null || turn.state.queue.length === 0) return;
  const run_id = turn.state.queue[0]?.run_id ?? turn.newId();
  turn.emit('RunStarted', { run_id });
  startStep(turn, { run_id, step: 0 });
};

const startStep = (turn: LoopTurn, step: StepInput): void => {
  const effect_id = turn.effect('model', step);
  turn.emit('StepStarted', { ...step, effect_id });
  turn.remind(resume, { inMs: limits.turnWakeMs });
};

/** Usage of one more step, its cents being what the whole run's cost grows by. */
const usageOf = (deps: LoopDeps, run: Run, tokens: TokenCount): Usage => {
  const price = deps.registry.get(run.model)?.price;
  if (price === undefined) return { ...tokens, cost_cents: 0 };
  const whole = {
    input_tokens: run.usage.input_tokens + tokens.input_tokens,
    output_tokens: run.usage.output_tokens + tokens.output_tokens,
  };
  return { ...tokens, cost_cents: costCents(price, whole) - run.usage.cost_cents };
};

const result = (turn: LoopTurn, run: Run, call: Call, value: unknown, isError: boolean): void => {
  turn.emit('ToolResult', {
    call_id: call.call_id, tool_name: call.name, result: boundResult(value), is_error: isError, run_id: run.run_id,
  });
};

const runTool = (turn: LoopTurn, deps: LoopDeps, run: Run, call: Call): void => {
  const name = toolsOf(deps, turn.state).get(call.name)?.idempotent === true ? 'tool' : 'tool_once';
  const effect_id = turn.effect(name, { run_id: run.run_id, call_id: call.call_id });
  turn.emit('ToolStarted', { call_id: call.call_id, run_id: run.run_id, effect_id });
  turn.remind(resume, { inMs: limits.turnWakeMs });
};

/** The step's calls begin: refused, waiting for a person, or running. */
const openCalls = (turn: LoopTurn, deps: LoopDeps, run: Run): void => {
  const tools = toolsOf(deps, turn.state);
  for (const call of run.calls) {
    const refused = callProblem(tools, call.name, call.arguments);
    const tool = tools.get(call.name);
    if (refused !== undefined || tool === undefined) {
      result(turn, run, call, { error: refused }, true);
    } else if (tool.needsApproval) {
      turn.emit('ApprovalRequested', {
        dispatch_id: turn.newId(), call_id: call.call_id, preview: tool.preview(call.arguments), run_id: run.run_id,
      });
    } else {
      runTool(turn, deps, run, call);
    }
  }
  goOn(turn, deps);
};

/** The next step, when every call of this one has its result. */
const goOn = (turn: LoopTurn, deps: LoopDeps): void => {
  const { run } = turn.state;
  if (run === null || run.phase !== 'tools' || run.calls.some(isOpen)) return;
  if (run.step + 1 >= limits.turnStepsMax) fail(turn, deps, 'too_many_steps', errors.too_many_steps.message);
  else startStep(turn, { run_id: run.run_id, step: run.step + 1 });
};

/** Leaves nothing open: the partial text becomes a message, every call gets a result, effects are aborted (L2). `tokens`: of the open model call, where they are known. */
const closeStep = (turn: LoopTurn, deps: LoopDeps, why: string, tokens?: TokenCount): Usage | undefined => {
  const { run } = turn.state;
  if (run === null) return undefined;
  if (run.phase === 'model') {
    turn.abort(run.effect_id);
    const usage = usageOf(deps, run, tokens ?? estimateUsage(turn.state.historyChars, run.text.length));
    turn.emit('AssistantMessage', { run_id: run.run_id, step: run.step, content: run.text, usage });
  }
  for (const call of run.calls) {
    if (!isOpen(call)) continue;
    if (call.effect_id !== undefined) turn.abort(call.effect_id);
    if (call.status === 'waiting' && call.dispatch_id !== undefined) {
      turn.emit('ApprovalDenied', { dispatch_id: call.dispatch_id, call_id: call.call_id, run_id: run.run_id });
    }
    result(turn, run, call, { error: endedCall(why, call.status === 'running') }, true);
  }
  return turn.state.run?.usage;
};

const finish = (turn: LoopTurn, deps: LoopDeps, reason: Finish): void => {
  const { run } = turn.state;
  if (run === null) return;
  turn.emit('RunFinished', { finish_reason: reason, usage: run.usage, run_id: run.run_id });
  over(turn, deps, run, run.usage, { ok: true, counts: reason !== 'cancelled' });
};

const fail = (turn: LoopTurn, deps: LoopDeps, code: string, message: string, tokens?: TokenCount): void => {
  const { run } = turn.state;
  if (run === null) return;
  const usage = closeStep(turn, deps, 'The turn failed.', tokens) ?? run.usage;
  turn.emit('RunErrored', { code, message, run_id: run.run_id, usage });
  over(turn, deps, run, usage, { ok: false, counts: !isRefusal(code) });
};

/** What follows the end of a run: it is metered and charged, regulation learns of it, and the next begins. */
const over = (turn: LoopTurn, deps: LoopDeps, run: Run, usage: Usage, end: { readonly ok: boolean; readonly counts: boolean }): void => {
  // A charge that is under way needs it: one of an earlier turn may be.
  if (deps.metered !== true || turn.state.usage.cost_cents === 0) turn.forget(resume);
  if (deps.metered === true && walletAddress(turn.self.org) !== undefined) {
    const ended = { id: run.run_id, by: run.by, model: run.model, usage };
    turn.emit('UsageMetered', ended);
    charge(turn, ended, resume);
    observeTurn(turn, run, { ...end, cents: usage.cost_cents, contextTokens: deps.registry.get(run.model)?.contextTokens }, resume);
  }
  startNext(turn);
};

/** The reminder fired, and by that the actor is active: its effects go on. A turn that only waits for a person lets it sleep. */
export const resumed = (turn: LoopTurn): void => {
  const { run } = turn.state;
  if (run !== null && (run.phase === 'model' || run.calls.some((c) => c.status === 'running'))) turn.remind(resume, { inMs: limits.turnWakeMs });
};

/** A model step ended. An outcome of a step that is over (cancelled) changes nothing. */
export const stepDone = (turn: LoopTurn, deps: LoopDeps, outcome: Outcome<StepOutput>, input: StepInput): void => {
  const { run } = turn.state;
  if (run === null || run.run_id !== input.run_id || run.step !== input.step || run.phase !== 'model') return;
  if (!outcome.ok) {
    // Nothing came and nothing is known of what it cost: the provider refused it, or was never asked.
    const used = run.text === '' && run.calls.length === 0 ? { input_tokens: 0, output_tokens: 0 } : undefined;
    // Nobody cancelled: an abort here is the step's deadline.
    const late = outcome.code === 'aborted' || outcome.code === 'deadline_exceeded';
    if (late) fail(turn, deps, 'provider_timeout', errors.provider_timeout.message, used);
    else fail(turn, deps, outcome.code, errorEntry(outcome.code).kind === 'bug' ? errors.internal_error.message : outcome.message, used);
    return;
  }
  const { finish_reason: reason, usage, failed } = outcome.output;
  if (failed !== undefined) {
    fail(turn, deps, failed.code, failed.message);
    return;
  }
  turn.emit('AssistantMessage', { run_id: run.run_id, step: run.step, content: run.text, usage: usageOf(deps, run, usage) });
  if (run.calls.length > 0) openCalls(turn, deps, run);
  else finish(turn, deps, reason === 'tool_calls' ? 'other' : reason);
};

/** A tool call became final in the stream. Its id is made unique in the session: some servers number from 0 each time. */
export const takeCall = (turn: LoopTurn, deps: LoopDeps, step: StepInput, call: { call_id: string; tool_name: string; arguments: unknown }): void => {
  const { run, history } = turn.state;
  const taken = call.call_id === '' || call.call_id.length > limits.idMaxChars
    || run?.calls.some((c) => c.call_id === call.call_id) === true
    || history.some((m) => m.role === 'assistant' && m.calls.some((c) => c.call_id === call.call_id));
  const text = JSON.stringify(call.arguments ?? null);
  turn.emit('ToolCall', {
    ...step, call_id: taken ? `call_${turn.newId()}` : call.call_id,
    tool_name: call.tool_name.slice(0, limits.idMaxChars),
    // Too large to journal: a text of the same length class, which openCalls refuses by its bound.
    arguments: text.length > limits.toolArgumentsMaxChars ? text.slice(0, limits.toolArgumentsMaxChars) : call.arguments,
    needs_approval: toolsOf(deps, turn.state).get(call.tool_name)?.needsApproval ?? false,
  });
};

/** A tool ended, failed, or was interrupted by a lost host. */
export const toolDone = (turn: LoopTurn, deps: LoopDeps, outcome: Outcome<{ result: unknown }>, input: { run_id: string; call_id: string }): void => {
  const { run } = turn.state;
  const call = run?.run_id === input.run_id ? run.calls.find((c) => c.call_id === input.call_id) : undefined;
  if (run === null || call === undefined || call.status !== 'running') return;
  if (outcome.ok) {
    result(turn, run, call, outcome.output.result, false);
  } else {
    result(turn, run, call, { error: toolFailure(outcome) }, true);
  }
  if (deps.metered === true && (outcome.ok || !isRefusal(outcome.code))) observeTool(turn, call, outcome.ok, resume);
  goOn(turn, deps);
};

const waitingCall = (state: SessionState, dispatchId: string): { run: Run; call: Call } | undefined => {
  const { run } = state;
  const call = run?.calls.find((c) => c.status === 'waiting' && c.dispatch_id === dispatchId);
  return run === null || call === undefined ? undefined : { run, call };
};

/** Lets a waiting call run; false if none waits under the id. */
export const approve = (turn: LoopTurn, deps: LoopDeps, dispatchId: string): boolean => {
  const found = waitingCall(turn.state, dispatchId);
  if (found === undefined) return false;
  const { run, call } = found;
  turn.emit('ApprovalGranted', { dispatch_id: dispatchId, call_id: call.call_id, run_id: run.run_id });
  runTool(turn, deps, run, call);
  return true;
};

/** Denies a waiting call; the turn goes on and the model is told. False if none waits under the id. */
export const deny = (turn: LoopTurn, deps: LoopDeps, dispatchId: string): boolean => {
  const found = waitingCall(turn.state, dispatchId);
  if (found === undefined) return false;
  const { run, call } = found;
  turn.emit('ApprovalDenied', { dispatch_id: dispatchId, call_id: call.call_id, run_id: run.run_id });
  result(turn, run, call, { error: deniedCall() }, true);
  goOn(turn, deps);
  return true;
};

/** Ends the running turn with finish reason `cancelled`; false if none runs. */
export const cancelRun = (turn: LoopTurn, deps: LoopDeps): boolean => {
  if (turn.state.run === null) return false;
  closeStep(turn, deps, 'The turn was cancelled.');
  finish(turn, deps, 'cancelled');
  return true;
};

/** What a session is doing, for `describe`. */
export const activity = (state: SessionState): 'idle' | 'running' | 'waiting_approval' => {
  if (state.run === null) return 'idle';
  return state.run.calls.some((c) => c.status === 'waiting') ? 'waiting_approval' : 'running';
};

/** Usage over the session, the running turn's ended steps included. */
export const totalUsage = (state: SessionState): Usage => (state.run === null ? state.usage : addUsage(state.usage, state.run.usage));
