/**
 * A completion's turns: from model step to tools and on, to its end. Each function runs inside one actor turn; its events are one commit.
 *
 * Guarantees
 * C2  Every completion that began ends in exactly one CompletionFinished or CompletionFailed, with one UsageMetered in the same commit.
 * C4  Every call that runs here or was decided on gets one CompletionToolResult before the end, but for one that waits: that outlives it.
 * C5  A call that needs approval is not started before CompletionApprovalGranted, and once it was decided on it is never started again:
 *     who decides again gets the result that was.
 * C6  The cost is rounded up once, over the tokens of all steps.
 */
import { coded, errorEntry, errors } from '../../contracts/errors.ts';
import type { Approval, CompletionEventKind, completionEvents, CompletionStart } from '../../contracts/completion.ts';
import { limits } from '../../contracts/limits.ts';
import { costCents, estimateUsage } from '../providers/price.ts';
import type { TokenCount } from '../providers/provider.ts';
import type { Registry } from '../providers/registry.ts';
import type { StepResult } from '../providers/step.ts';
import type { Outcome, PayloadOf, Turn } from '../runtime/define.ts';
import { callProblem, deniedCall, endedCall, toolFailure } from '../tools/call.ts';
import { boundResult, type Tools } from '../tools/tool.ts';
import { charge } from '../wallet/meter.ts';
import { addTokens, argumentsOf, runningOf, waitingOf, type Call, type CompletionState, type Running, type Usage } from './state.ts';

type Events = typeof completionEvents;
export interface StepInput { readonly id: string; readonly step: number }
export interface CallInput { readonly id: string; readonly call_id: string }

/** The part of a turn that the loop needs; commands' and effects' turns both have it. */
export interface LoopTurn extends Pick<Turn<CompletionState, Events, Record<never, never>>, 'state' | 'self' | 'now' | 'newId' | 'abort' | 'tell' | 'remind' | 'forget'> {
  emit<K extends CompletionEventKind>(kind: K, payload: PayloadOf<Events[K]>): void;
  effect(name: 'model', input: StepInput): string;
  effect(name: 'tool' | 'tool_once', input: CallInput): string;
}

export interface LoopDeps {
  readonly registry: Registry;
  /** That may run here. */
  readonly tools: Tools;
}

/** Name of the reminder that wakes the actor while something runs, so that a completion goes on after a lost host without anybody asking. */
export const resume = 'resume';

const nothing: TokenCount = { input_tokens: 0, output_tokens: 0 };
/** Tokens of an open step whose provider has not said. */
const estimated = (of: Running): TokenCount => estimateUsage(of.promptChars + of.saidChars, of.text.length + of.callChars);

/** Tokens of a model call. `counted` false: they are estimated. */
type Used = TokenCount & { readonly counted?: false };

/** Ends it: what is open gets a result, what was used is metered and charged. `tokens`: of the open model call; undefined = nobody counted. */
const end = (turn: LoopTurn, deps: LoopDeps, id: string, why: string, tokens: Used | undefined, say: (usage: Usage) => void): void => {
  closeCalls(turn, id, why);
  const of = runningOf(turn.state, id);
  if (of === undefined) return;
  const open = of.phase === 'model';
  const used = addTokens(of.spent, open ? tokens ?? estimated(of) : nothing);
  const price = deps.registry.get(of.model)?.price;
  const usage = { ...used, cost_cents: price === undefined ? 0 : costCents(price, used) };
  say(usage);
  turn.emit('UsageMetered', { id, by: of.by, model: of.model, usage, counted: of.counted && (!open || (tokens !== undefined && tokens.counted !== false)) });
  charge(turn, { id, by: of.by, model: of.model, usage }, resume);
  // A charge that is under way needs it: one of an earlier completion may be.
  if (turn.state.usage.cost_cents === 0 && Object.keys(turn.state.running).length === 0) turn.forget(resume);
};

type Finish = PayloadOf<Events['CompletionFinished']>['finish_reason'];
const finish = (turn: LoopTurn, deps: LoopDeps, id: string, finish_reason: Finish, tokens?: TokenCount): void =>
  end(turn, deps, id, 'The answer ended.', tokens, (usage) => turn.emit('CompletionFinished', { id, finish_reason, usage }));

const fail = (turn: LoopTurn, deps: LoopDeps, id: string, code: string, message: string, tokens?: Used): void =>
  end(turn, deps, id, 'The answer failed.', tokens, (usage) => turn.emit('CompletionFailed', { id, code, message, usage }));

const result = (turn: LoopTurn, id: string, call: Pick<Call, 'call_id' | 'name'>, value: unknown, isError: boolean): void =>
  turn.emit('CompletionToolResult', { id, call_id: call.call_id, name: call.name, result: boundResult(value), is_error: isError });

const closeCalls = (turn: LoopTurn, id: string, why: string): void => {
  for (const call of runningOf(turn.state, id)?.calls ?? []) {
    if (call.effect !== undefined) turn.abort(call.effect);
    if (call.here && (call.status === 'final' || call.status === 'running')) result(turn, id, call, { error: endedCall(why, call.status === 'running') }, true);
  }
};

const startStep = (turn: LoopTurn, id: string, step: number): void => turn.emit('CompletionStepStarted', { id, step, effect_id: turn.effect('model', { id, step }) });

/** Starts a call, or tells the model why it cannot run. */
const runTool = (turn: LoopTurn, deps: LoopDeps, id: string, call: Call): void => {
  const problem = callProblem(deps.tools, call.name, argumentsOf(call.arguments));
  if (problem !== undefined) {
    result(turn, id, call, { error: problem }, true);
    return;
  }
  const name = deps.tools.get(call.name)?.idempotent === true ? 'tool' : 'tool_once';
  turn.emit('CompletionToolStarted', { id, call_id: call.call_id, effect_id: turn.effect(name, { id, call_id: call.call_id }) });
};

/** The calls of an ended step begin: refused, waiting for a person, running; the client's are left to it. */
const openCalls = (turn: LoopTurn, deps: LoopDeps, id: string, calls: readonly Call[]): void => {
  for (const call of calls.filter(({ here }) => here)) {
    const tool = deps.tools.get(call.name);
    const args = argumentsOf(call.arguments);
    if (tool?.needsApproval === true && callProblem(deps.tools, call.name, args) === undefined) turn.emit('CompletionApprovalRequested', { id, call_id: call.call_id, preview: tool.preview(args) });
    else runTool(turn, deps, id, call);
  }
  goOn(turn, deps, id);
};

/** The next step when nothing of this one runs any more; the end, if somebody else has to answer first. */
const goOn = (turn: LoopTurn, deps: LoopDeps, id: string): void => {
  const of = runningOf(turn.state, id);
  if (of === undefined || of.phase !== 'tools' || of.calls.some(({ status, here }) => here && (status === 'running' || status === 'final'))) return;
  const next = of.said.length === 0 ? 0 : of.step + 1;
  if (of.calls.some(({ status, here }) => !here || status === 'waiting')) finish(turn, deps, id, 'tool_calls');
  else if (next >= limits.turnStepsMax) fail(turn, deps, id, 'too_many_steps', errors.too_many_steps.message);
  else if (of.saidChars > limits.completionTranscriptMaxChars) finish(turn, deps, id, 'length');
  else startStep(turn, id, next);
};

/** Throws `approval_unknown` for a word on a call that does not wait here and never did, as far as is known. */
export const requireWaiting = (state: CompletionState, approvals: readonly Approval[] = []): void => {
  const unknown = approvals.find(({ call_id: callId }) => waitingOf(state, callId) === undefined);
  if (unknown !== undefined) throw coded('approval_unknown', undefined, { details: { call_id: unknown.call_id } });
};

/** A person's word: the call runs, or the model is told that it may not. One that has a result gives it again. */
const decide = (turn: LoopTurn, deps: LoopDeps, id: string, { call_id: callId, approved, reason }: Approval): void => {
  const found = waitingOf(turn.state, callId);
  if (found === undefined) throw new TypeError('a call is decided on that does not wait');
  switch (found.status) {
    case 'taken':
      throw coded('session_busy', 'The tool call is running.', { details: { retry_after: 1 } });
    case 'ended':
      result(turn, id, found, found.result, found.is_error === true);
      return;
    case 'waiting': {
      if (approved) turn.emit('CompletionApprovalGranted', { id, call_id: callId });
      else turn.emit('CompletionApprovalDenied', { id, call_id: callId, ...(reason === undefined ? {} : { reason }) });
      const call = runningOf(turn.state, id)?.calls.find(({ call_id: one }) => one === callId);
      if (call === undefined) throw new TypeError('a decided call did not join its completion');
      if (approved) runTool(turn, deps, id, call);
      else result(turn, id, call, { error: deniedCall(reason) }, true);
    }
  }
};

/** Begins a completion: with the calls that it decides on, or with the model. */
export const begin = (turn: LoopTurn, deps: LoopDeps, start: CompletionStart): void => {
  const { id, approvals = [] } = start;
  if (approvals.length === 0) {
    turn.emit('CompletionStarted', { ...start, effect_id: turn.effect('model', { id, step: 0 }) });
  } else {
    turn.emit('CompletionStarted', start);
    for (const approval of approvals) decide(turn, deps, id, approval);
    goOn(turn, deps, id);
  }
  turn.remind(resume, { inMs: limits.turnWakeMs });
};

/** A model step ended. An outcome of a step that is over (cancelled) changes nothing. */
export const stepDone = (turn: LoopTurn, deps: LoopDeps, outcome: Outcome<StepResult>, { id, step }: StepInput): void => {
  const of = runningOf(turn.state, id);
  if (of === undefined || of.step !== step || of.phase !== 'model') return;
  if (!outcome.ok) {
    // Nobody cancelled: an abort here is the effect's deadline.
    const late = outcome.code === 'aborted' || outcome.code === 'deadline_exceeded';
    const bug = errorEntry(outcome.code).kind === 'bug';
    const code = late ? 'provider_timeout' : bug ? 'internal_error' : outcome.code;
    const message = late ? errors.provider_timeout.message : bug ? errors.internal_error.message : outcome.message;
    // Nothing came and nothing is known of what it cost: the provider refused it.
    fail(turn, deps, id, code, message, of.text === '' && of.calls.length === 0 ? nothing : undefined);
    return;
  }
  const { finish_reason: reason, usage: tokens, counted, failed } = outcome.output;
  if (failed !== undefined) {
    // Of what is known here, its calls included.
    fail(turn, deps, id, failed.code, failed.message);
    return;
  }
  if (of.calls.some(({ here }) => here)) {
    turn.emit('CompletionStepEnded', { id, step, tokens: counted ? tokens : estimated(of), counted });
    openCalls(turn, deps, id, of.calls);
  } else {
    finish(turn, deps, id, of.calls.length > 0 && reason === 'other' ? 'tool_calls' : reason, counted ? tokens : undefined);
  }
};

/** A tool ended, failed, or was interrupted by a lost host. */
export const toolDone = (turn: LoopTurn, deps: LoopDeps, outcome: Outcome<{ result: unknown }>, { id, call_id: callId }: CallInput): void => {
  const call = runningOf(turn.state, id)?.calls.find(({ call_id: one }) => one === callId);
  if (call === undefined || call.status !== 'running') return;
  if (outcome.ok) result(turn, id, call, outcome.output.result, false);
  else result(turn, id, call, { error: toolFailure(outcome) }, true);
  goOn(turn, deps, id);
};

/** Ends a running completion for nobody waits for it; false if none runs. */
export const cancel = (turn: LoopTurn, deps: LoopDeps, id: string): boolean => {
  const of = runningOf(turn.state, id);
  if (of === undefined) return false;
  if (of.phase === 'model') turn.abort(of.effect);
  finish(turn, deps, id, 'cancelled');
  return true;
};

/** A tool call of the running step became final in the stream. One that is too large fails the completion: what the model made is paid for all the same. */
export const takeCall = (turn: LoopTurn, deps: LoopDeps, id: string, of: Running, call: { readonly call_id: string; readonly name: string; readonly arguments: unknown }): void => {
  const text = typeof call.arguments === 'string' ? call.arguments : JSON.stringify(call.arguments ?? {});
  if (text.length > limits.toolArgumentsMaxChars) {
    // A client could not run half a call: better none, and a reason.
    if (of.phase === 'model') turn.abort(of.effect);
    const made = estimateUsage(of.promptChars + of.saidChars, of.text.length + of.callChars + text.length);
    fail(turn, deps, id, 'provider_error', 'The model made a tool call that is too large.', { ...made, counted: false });
    return;
  }
  const name = call.name.slice(0, limits.idMaxChars);
  const here = of.tools.includes(name);
  const usable = call.call_id !== '' && call.call_id.length <= limits.idMaxChars;
  // One that runs here is known by its completion and place: whoever decides on it finds it. Vendors take at most 40 characters.
  const call_id = here ? callIdOf(id, of.made) : usable ? call.call_id : `call_${turn.newId()}`;
  turn.emit('CompletionToolCall', { id, index: of.made, call_id, name, arguments: text, ...(here ? { here } : {}) });
};

const idPrefix = 'chatcmpl-';
const callIdOf = (completionId: string, index: number): string => `call_${completionId.replace(idPrefix, '')}_${index}`;
/** The completion that made a call of ours; undefined for another's. */
export const completionOfCall = (callId: string): string | undefined => {
  const [, ulid] = /^call_([0-9A-Z]{26})_\d{1,4}$/.exec(callId) ?? [];
  return ulid === undefined ? undefined : idPrefix + ulid;
};
