/**
 * The completion actor: the requests of one conversation of public chat (contract: contracts/completion.ts).
 *
 * Guarantees
 * C1  A request, its text, its tool calls, its end and what it cost are journaled before anything of them reaches a wire (G2).
 * C2  Every completion that began ends in exactly one CompletionFinished or CompletionFailed, with one UsageMetered in the same commit,
 *     after which no event of it follows: also when it is cancelled, when its host is lost, and when the model does not answer.
 * C3  The model step keeps M1-M3 of providers/step.ts: what was said before a lost host is not said again.
 * Tools are the client's: a call is given out, never run here. The text of one request never enters another's prompt.
 */
import { z } from 'zod';
import { completionCommands, completionEvents, completionPrompt, type CompletionPrompt } from '../../contracts/completion.ts';
import { coded, errorEntry, errors } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import type { Blobs } from '../blobs/blobs.ts';
import { costCents, estimateUsage } from '../providers/price.ts';
import type { TokenCount } from '../providers/provider.ts';
import type { Registry } from '../providers/registry.ts';
import { runStep } from '../providers/step.ts';
import { defineActor, type EffectContext, type Outcome } from '../runtime/define.ts';
import { charge, type MeteredTurn } from '../wallet/meter.ts';
import { fold, initialCompletions, runningOf, type CompletionState, type Running, type Usage } from './state.ts';

export interface CompletionDeps {
  readonly registry: Registry;
  readonly blobs: Pick<Blobs, 'get'>;
}

const nothing = z.strictObject({});
const stepInput = z.strictObject({ id: z.string() });
const stepOutput = z.strictObject({
  finish_reason: z.enum(['stop', 'length', 'content_filter', 'tool_calls', 'other']),
  usage: z.strictObject({ input_tokens: z.int().nonnegative(), output_tokens: z.int().nonnegative() }),
  counted: z.boolean(),
});
type StepOutput = z.output<typeof stepOutput>;

/** The completion if it runs; `aborted` if it is over. */
const running = (state: CompletionState, id: string): Running => {
  const found = runningOf(state, id);
  if (found === undefined) throw coded('aborted', 'The completion is over.');
  return found;
};

const promptOf = async (context: EffectContext<CompletionState>, completion: Running, blobs: Pick<Blobs, 'get'>): Promise<CompletionPrompt> => {
  if (completion.prompt !== null) return completion.prompt;
  if (completion.blob === null) throw new TypeError('a completion was journaled without its prompt');
  const bytes = await blobs.get(context.self.org, completion.blob);
  return completionPrompt.parse(JSON.parse(new TextDecoder().decode(bytes)));
};

const runModel = (deps: CompletionDeps) => async (context: EffectContext<CompletionState>, { id }: z.infer<typeof stepInput>): Promise<StepOutput> => {
  const completion = running(context.state(), id);
  const model = deps.registry.get(completion.model);
  if (model === undefined) throw coded('model_not_supported');
  const { messages, tools, options, maxOutputTokens } = await promptOf(context, completion, deps.blobs);
  return runStep({
    signal: context.signal,
    progress: () => running(context.state(), id),
    prompt: async () => ({ model, messages, tools, options, maxOutputTokens: Math.min(maxOutputTokens ?? model.maxOutputTokens, model.maxOutputTokens) }),
    write: (at, text) => context.call('delta', { id, at, text }),
    call: (call) => context.call('tool_call', { id, ...call }),
  });
};

/** Name of the reminder that wakes the actor while something runs, so that a completion goes on after a lost host without anybody asking. */
const resume = 'resume';

/** The part of a turn that an end needs. */
interface EndTurn {
  readonly state: CompletionState;
  emit(kind: 'CompletionFinished', payload: z.output<typeof completionEvents.CompletionFinished>): void;
  emit(kind: 'CompletionFailed', payload: z.output<typeof completionEvents.CompletionFailed>): void;
  emit(kind: 'UsageMetered', payload: z.output<typeof completionEvents.UsageMetered>): void;
  forget(name: string): void;
  readonly self: MeteredTurn['self'];
  readonly now: number;
  readonly tell: MeteredTurn['tell'];
  readonly remind: MeteredTurn['remind'];
}

/** Tokens of one whose provider has not said. */
const estimated = (completion: Running): TokenCount => estimateUsage(completion.promptChars, completion.text.length + completion.callChars);

export const completion = (deps: CompletionDeps) => {
  const usageOf = (model: string, tokens: TokenCount): Usage => {
    const price = deps.registry.get(model)?.price;
    return { ...tokens, cost_cents: price === undefined ? 0 : costCents(price, tokens) };
  };

  const end = (turn: EndTurn, id: string, of: Running, tokens: TokenCount | undefined, say: (usage: Usage) => void): void => {
    const usage = usageOf(of.model, tokens ?? estimated(of));
    say(usage);
    turn.emit('UsageMetered', { id, by: of.by, model: of.model, usage, counted: tokens !== undefined });
    charge(turn, { id, by: of.by, model: of.model, usage }, resume);
    // A charge that is under way needs it: one of an earlier completion may be.
    if (turn.state.usage.cost_cents === 0 && Object.keys(turn.state.running).length === 0) turn.forget(resume);
  };

  const done = (turn: EndTurn, outcome: Outcome<StepOutput>, { id }: z.infer<typeof stepInput>): void => {
    const of = runningOf(turn.state, id);
    // Cancelled meanwhile: it has its end.
    if (of === undefined) return;
    if (outcome.ok) {
      const { finish_reason, usage: tokens, counted } = outcome.output;
      const reason = of.calls > 0 && finish_reason === 'other' ? 'tool_calls' : finish_reason;
      end(turn, id, of, counted ? tokens : undefined, (usage) => turn.emit('CompletionFinished', { id, finish_reason: reason, usage }));
      return;
    }
    // Nobody cancelled: an abort here is the effect's deadline.
    const late = outcome.code === 'aborted' || outcome.code === 'deadline_exceeded';
    const bug = errorEntry(outcome.code).kind === 'bug';
    const code = late ? 'provider_timeout' : bug ? 'internal_error' : outcome.code;
    const message = late ? errors.provider_timeout.message : bug ? errors.internal_error.message : outcome.message;
    // Nothing came and nothing is known of what it cost: the provider refused it.
    const unused = of.text === '' && of.calls === 0 ? { input_tokens: 0, output_tokens: 0 } : undefined;
    end(turn, id, of, unused, (usage) => turn.emit('CompletionFailed', { id, code, message, usage }));
  };

  return defineActor({
    type: 'completion',
    events: completionEvents,
    initial: initialCompletions,
    apply: fold,
    stateVersion: 1,
    effects: (effect) => ({
      model: effect({ input: stepInput, output: stepOutput, once: 'at-least', deadlineMs: limits.modelDeadlineMs, run: runModel(deps), done }),
    }),
    commands: (command) => ({
      start: command({
        ...completionCommands.start, access: 'system',
        handle: (turn, input) => {
          const { state } = turn;
          if (runningOf(state, input.id) !== undefined) return {};
          if (Object.keys(state.running).length >= limits.completionsPerActorMax) {
            throw coded('session_busy', 'Too many requests of this conversation are under way.', { details: { retry_after: 1 } });
          }
          if (deps.registry.get(input.model) === undefined) throw coded('model_not_supported');
          const effect_id = turn.effect('model', { id: input.id });
          turn.emit('CompletionStarted', { ...input, effect_id });
          turn.remind(resume, { inMs: limits.turnWakeMs });
          return {};
        },
      }),
      cancel: command({
        ...completionCommands.cancel, access: 'system',
        handle: (turn, { id }) => {
          const of = runningOf(turn.state, id);
          if (of === undefined) return { known: false };
          turn.abort(of.effect);
          end(turn, id, of, undefined, (usage) => turn.emit('CompletionFinished', { id, finish_reason: 'cancelled', usage }));
          return { known: true };
        },
      }),
      describe: command({
        ...completionCommands.describe, access: 'system',
        handle: ({ state }) => ({ running: Object.keys(state.running).length, completions: state.completions, usage: state.usage }),
      }),
      /** Text of a running completion, at its place. `aborted` if it is over, `conflict` if another writer was here. */
      delta: command({
        input: z.strictObject({ id: z.string(), at: z.int().nonnegative(), text: z.string() }), output: nothing, access: 'self',
        handle: (turn, { id, at, text }) => {
          if (running(turn.state, id).text.length !== at) throw coded('conflict', 'The text was written already.');
          turn.emit('CompletionDelta', { id, text });
          return {};
        },
      }),
      /** A tool call of a running completion that is final. */
      tool_call: command({
        input: z.strictObject({ id: z.string(), call_id: z.string(), name: z.string(), arguments: z.unknown() }), output: nothing, access: 'self',
        handle: (turn, { id, call_id, name, arguments: value }) => {
          const { calls } = running(turn.state, id);
          const text = typeof value === 'string' ? value : JSON.stringify(value ?? {});
          // A client could not run half a call: better none, and a reason.
          if (text.length > limits.toolArgumentsMaxChars) throw coded('provider_error', 'The model made a tool call that is too large.');
          const usable = call_id !== '' && call_id.length <= limits.idMaxChars;
          turn.emit('CompletionToolCall', { id, index: calls, call_id: usable ? call_id : `call_${turn.newId()}`, name: name.slice(0, limits.idMaxChars), arguments: text });
          return {};
        },
      }),
    }),
    reminders: {
      resume: (turn) => {
        if (Object.keys(turn.state.running).length > 0) turn.remind(resume, { inMs: limits.turnWakeMs });
      },
    },
  });
};
