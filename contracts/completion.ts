/**
 * The completion actor's contract: the conversations of public chat (decisions, Chat: sticky session). Org token = who pays; key = a hash of
 * the caller and the conversation, so that two callers never meet in one actor. Every request brings its whole history, so several may run
 * at once in one actor; each has an id of its own. Every command is the daemon's (access `system`) or the actor's own.
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
});
export type CompletionStart = z.output<typeof completionStart>;

const nothing = z.strictObject({});

export const completionCommands = {
  /** Begins a completion. `session_busy` when `limits.completionsPerActorMax` run here. A repeat of an id that runs changes nothing. */
  start: { input: completionStart, output: nothing },
  /** Stops it: the model call is aborted, what was used is metered. `known` false: it is over, or never was. */
  cancel: { input: z.strictObject({ id }), output: z.strictObject({ known: z.boolean() }) },
  /** What this conversation has used, ended completions only. */
  describe: { input: nothing, output: z.strictObject({ running: z.int(), completions: z.int(), usage }) },
} as const;

export const completionEvents = {
  CompletionStarted: z.strictObject({ ...completionStart.shape, effect_id: z.string() }),
  CompletionDelta: z.strictObject({ id, text: z.string() }),
  /** A tool call is final. `arguments` is JSON text, as the client gets it. */
  CompletionToolCall: z.strictObject({ id, index: z.int().nonnegative(), call_id: z.string(), name: z.string(), arguments: z.string() }),
  CompletionFinished: z.strictObject({ id, finish_reason: z.enum(['stop', 'length', 'content_filter', 'tool_calls', 'other', 'cancelled']), usage }),
  CompletionFailed: z.strictObject({ id, code: z.string(), message: z.string(), usage }),
  /** The metering event: exactly one for each completion, in the commit that ends it. `counted`: by the provider; else estimated. */
  UsageMetered: z.strictObject({ id, by: z.string(), model: z.string(), usage, counted: z.boolean() }),
} as const;
export type CompletionEventKind = keyof typeof completionEvents;
