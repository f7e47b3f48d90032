/**
 * A tool: something the model may call. The chat loop validates the arguments against `parameters`, waits for a person where
 * `needsApproval` says so, runs it outside the turn with a deadline, cuts the result at its bound and journals it.
 *
 * `idempotent` decides what a lost host means: an idempotent tool is run again with the same `id`; any other is never run
 * twice, and the model is told that it may have run.
 *
 * `outward`: whether it may change anything, or be seen, outside of its session. A branch of a session that was not allowed effects is not offered
 * such tools; who does not say is taken as one.
 */
import { z } from 'zod';
import { limits } from '../../contracts/limits.ts';
import type { ActorAddress } from '../../contracts/subjects.ts';
import type { Operation } from '../../contracts/regulation.ts';

/** The session of a deployment that a tool is called in. */
export interface ToolDeployment {
  /** Organization, and id of the deployment. */
  readonly org: string;
  readonly id: string;
  /** As its client names it. */
  readonly session_id: string;
  /** Stores a memory of the session, once over every attempt of this call; its id. */
  remember(memory: { readonly fact: string; readonly source: string; readonly relevance: number }): Promise<string>;
  /** Asks another actor of the deployment; a repeat of the same command within this call takes effect once. */
  ask(target: ActorAddress, command: string, input: unknown): Promise<unknown>;
}

export interface ToolContext {
  /** Aborted at the deadline, on a cancel and when the host stops. */
  readonly signal: AbortSignal;
  /** The same over every attempt of this call. */
  readonly id: string;
  /** Unix milliseconds. */
  now(): number;
  /** Asks the session's agent actor; a repeat of the same command within this call takes effect once. */
  agent(command: string, input: unknown): Promise<unknown>;
  /** Absent: the call is not made in a deployment's session. */
  readonly deployment?: ToolDeployment | undefined;
}

export interface ToolSpec<P extends z.ZodType> {
  /** `a-z0-9_`, the name the model uses. */
  readonly name: string;
  readonly description: string;
  readonly parameters: P;
  readonly needsApproval: boolean;
  readonly idempotent: boolean;
  /** Default true. False: it only reads what is here, or changes nothing but its session. */
  readonly outward?: boolean;
  /** What a deployment's gates are asked about besides `tool_execution`. Default none. */
  readonly operations?: readonly Operation[];
  /** What a person is asked to approve, one or two sentences of plain text. */
  readonly preview: (args: z.output<P>) => string;
  /** A JSON value. Throws a coded error for what the model should know; anything else is a bug and shown as `tool_failed`. */
  readonly run: (args: z.output<P>, context: ToolContext) => Promise<unknown>;
}

/** A tool as the loop sees it: unknown arguments in, checked inside. */
export interface Tool {
  readonly name: string;
  readonly description: string;
  readonly schema: Readonly<Record<string, unknown>>;
  readonly needsApproval: boolean;
  readonly idempotent: boolean;
  readonly outward: boolean;
  readonly operations: readonly Operation[];
  /** What is wrong with the arguments, for the model; undefined = nothing. */
  problem(args: unknown): string | undefined;
  preview(args: unknown): string;
  run(args: unknown, context: ToolContext): Promise<unknown>;
}

export type Tools = ReadonlyMap<string, Tool>;

/** The arguments come from a model: what is said of them must not fill a commit. */
const note = (text: string): string => (text.length <= limits.toolNoteMaxChars ? text : `${text.slice(0, limits.toolNoteMaxChars - 1)}…`);

/** Makes a tool of its parts; the types of its arguments follow from `parameters`. */
export const defineTool = <P extends z.ZodType>(spec: ToolSpec<P>): Tool => ({
  name: spec.name,
  description: spec.description,
  schema: z.toJSONSchema(spec.parameters, { io: 'input' }),
  needsApproval: spec.needsApproval,
  idempotent: spec.idempotent,
  outward: spec.outward ?? true,
  operations: spec.operations ?? [],
  problem: (args) => {
    const parsed = spec.parameters.safeParse(args);
    if (parsed.success) return undefined;
    return note(parsed.error.issues.slice(0, 8)
      .map((issue) => (issue.path.length === 0 ? issue.message : `${issue.path.map(String).join('.')}: ${issue.message}`)).join('; '));
  },
  preview: (args) => note(spec.preview(spec.parameters.parse(args))),
  run: async (args, context) => spec.run(spec.parameters.parse(args), context),
});

/** Tools by name. Throws (a bug) for a name used twice. */
export const toolSet = (tools: readonly Tool[]): Tools => {
  const set = new Map<string, Tool>();
  for (const tool of tools) {
    if (set.has(tool.name)) throw new TypeError(`tool ${tool.name} is defined twice`);
    set.set(tool.name, tool);
  }
  return set;
};

/** The first `max` bytes of a text, cut between characters. */
export const cutBytes = (text: string, max: number): string => {
  const bytes = Buffer.from(text, 'utf8');
  if (bytes.length <= max) return text;
  let end = max;
  while (end > 0 && ((bytes[end] ?? 0) & 0xc0) === 0x80) end--;
  return bytes.subarray(0, end).toString('utf8');
};

/**
 * A result no larger than `max` bytes of JSON. A larger one becomes `{cut: true, kept_bytes, of_bytes, text}` with the first
 * part of its JSON (of the text itself, if it is one), so that the model sees that something is missing.
 */
export const boundResult = (result: unknown, max: number = limits.toolResultMaxBytes): unknown => {
  const json = JSON.stringify(result) ?? 'null';
  const size = Buffer.byteLength(json);
  if (size <= max) return result === undefined ? null : result;
  const source = typeof result === 'string' ? result : json;
  // Quotes and control characters grow when they are encoded again: halve until it fits.
  for (let keep = max - 128; keep > 0; keep = Math.floor(keep / 2)) {
    const text = cutBytes(source, keep);
    const cut = { cut: true, kept_bytes: Buffer.byteLength(text), of_bytes: Buffer.byteLength(source), text };
    if (Buffer.byteLength(JSON.stringify(cut)) <= max) return cut;
  }
  return { cut: true, kept_bytes: 0, of_bytes: size, text: '' };
};
