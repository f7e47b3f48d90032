/**
 * The completion actor's contract: the conversations of public chat (decisions, Chat: sticky session). Org token = who pays; key = a hash of
 * the caller and the conversation, so that two callers never meet in one actor. Every request brings its whole history, so several may run
 * at once in one actor; each has an id of its own. Every command is the daemon's (access `system`) or the actor's own.
 *
 * Tools are of two kinds: the client's, whose calls are given out, and those named in `tools` of a request, which run here, step after step.
 * A call that needs a person's word ends the request that made it and waits in the actor; a later request brings the word in `approvals`.
 */
import { z } from 'zod';
import { limits } from './limits.ts';
import { usage } from './stream.ts';

const promptCall = z.strictObject({ call_id: z.string(), name: z.string(), arguments: z.unknown() });

/** What the model is asked, as the actor keeps it. */
export const completionPrompt = z.strictObject({
  messages: z.array(z.discriminatedUnion('role', [
    z.strictObject({ role: z.literal('system'), text: z.string() }),
    z.strictObject({ role: z.literal('user'), text: z.string(), name: z.string().optional() }),
    z.strictObject({ role: z.literal('assistant'), text: z.string(), calls: z.array(promptCall) }),
    z.strictObject({ role: z.literal('tool'), call_id: z.string(), name: z.string(), text: z.string(), is_error: z.boolean() }),
  ])),
  tools: z.array(z.strictObject({ name: z.string(), description: z.string(), parameters: z.record(z.string(), z.unknown()), strict: z.boolean().optional() })),
  options: z.strictObject({
    temperature: z.number().optional(), topP: z.number().optional(), stop: z.array(z.string()).optional(), user: z.string().optional(),
    toolChoice: z.union([z.enum(['auto', 'none', 'required']), z.strictObject({ name: z.string() })]).optional(),
  }),
  /** The client's bound; the model's own counts besides. */
  maxOutputTokens: z.int().positive().optional(),
});
export type CompletionPrompt = z.output<typeof completionPrompt>;

const id = z.string().min(1).max(limits.idMaxChars);

/** A person's word on a call that waits here. In the prompt of its request the call has an empty result, which is filled in when it is known. */
export const approval = z.strictObject({ call_id: id, approved: z.boolean(), reason: z.string().max(limits.chatNoteMaxChars).optional() });
export type Approval = z.output<typeof approval>;

/** A request as it is journaled. */
export const completionStart = z.strictObject({
  id,
  model: z.string(),
  /** Who asked: `usr_…` or `key_…`. */
  by: z.string(),
  /** Small enough to be journaled; else `blob` names the JSON of it. */
  prompt: completionPrompt.optional(),
  blob: z.string().optional(),
  /** Of all that the model reads. */
  prompt_chars: z.int().nonnegative(),
  /** The client's own notes. */
  metadata: z.record(z.string(), z.string()).optional(),
  /** Names of the prompt's tools that run here; all others are the client's. */
  tools: z.array(z.string()).optional(),
  approvals: z.array(approval).max(limits.completionApprovalsMax).optional(),
});
export type CompletionStart = z.output<typeof completionStart>;

const nothing = z.strictObject({});

export const completionCommands = {
  /**
   * Begins a completion. `session_busy` when `limits.completionsPerActorMax` run here, or a call that it decides on is running; `approval_unknown`
   * when it decides on one that never waited here. A repeat of an id that runs changes nothing; of a decision, gives the call's result again.
   */
  start: { input: completionStart, output: nothing },
  /** Stops it: the model call is aborted, what was used is metered. `known` false: it is over, or never was. */
  cancel: { input: z.strictObject({ id }), output: z.strictObject({ known: z.boolean() }) },
  /** The client takes what was said too slowly (`held`), or takes again: the model is not read meanwhile, at most `limits.completionHoldMs`. */
  pace: { input: z.strictObject({ id, held: z.boolean() }), output: z.strictObject({ known: z.boolean() }) },
  /** What this conversation has used, ended completions only. */
  describe: { input: nothing, output: z.strictObject({ running: z.int(), completions: z.int(), usage }) },
} as const;

const step = z.int().nonnegative();
const tokens = z.strictObject({ input_tokens: z.int().nonnegative(), output_tokens: z.int().nonnegative() });
export const completionEvents = {
  /** `effect_id`: of its first model call; absent = decided calls run first, a step follows. */
  CompletionStarted: z.strictObject({ ...completionStart.shape, effect_id: z.string().optional() }),
  /** A further model call begins, with the results of the calls before it. */
  CompletionStepStarted: z.strictObject({ id, step, effect_id: z.string() }),
  CompletionDelta: z.strictObject({ id, text: z.string() }),
  /** A tool call is final. `arguments` is JSON text, as the client gets it. `here`: it runs here. `index`: counted over the completion. */
  CompletionToolCall: z.strictObject({ id, index: z.int().nonnegative(), call_id: z.string(), name: z.string(), arguments: z.string(), here: z.literal(true).optional() }),
  /** A model call with calls that run here is over; what it used is metered at the completion's end. */
  CompletionStepEnded: z.strictObject({ id, step, tokens, counted: z.boolean() }),
  /** The call waits for a person, beyond the end of its completion. `preview`: what they are asked, in plain text. */
  CompletionApprovalRequested: z.strictObject({ id, call_id: z.string(), preview: z.string() }),
  CompletionApprovalGranted: z.strictObject({ id, call_id: z.string() }),
  CompletionApprovalDenied: z.strictObject({ id, call_id: z.string(), reason: z.string().optional() }),
  /** The tool begins to run, approved where it has to be. */
  CompletionToolStarted: z.strictObject({ id, call_id: z.string(), effect_id: z.string() }),
  /** What the model is told of a call that ran, failed, was denied or was cut off: one for each call that is started or decided on. */
  CompletionToolResult: z.strictObject({ id, call_id: z.string(), name: z.string(), result: z.unknown(), is_error: z.boolean() }),
  /** See `pace`. */
  CompletionPaced: z.strictObject({ id, held: z.boolean() }),
  CompletionFinished: z.strictObject({ id, finish_reason: z.enum(['stop', 'length', 'content_filter', 'tool_calls', 'other', 'cancelled']), usage }),
  CompletionFailed: z.strictObject({ id, code: z.string(), message: z.string(), usage }),
  /** The metering event: exactly one for each completion, in the commit that ends it. `counted`: by the provider, every step; else estimated. */
  UsageMetered: z.strictObject({ id, by: z.string(), model: z.string(), usage, counted: z.boolean() }),
} as const;
export type CompletionEventKind = keyof typeof completionEvents;
