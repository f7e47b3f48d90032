/**
 * A conversation of the chat page as a value: questions, answers with their tool calls, and what became of each.
 *
 * Guarantee: pure. What the server said is only ever added to; the request that a conversation makes keeps the rules of the contract
 * (contracts/ui-chat.ts): every call has its result, decisions stand at the end, empty answers are left out.
 */
import type { UiPart } from '../../../../contracts/ui-chat.ts';

export interface ToolUse {
  readonly kind: 'tool';
  readonly id: string;
  readonly name: string;
  readonly args: unknown;
  /** `asked`: waits for the person. `allowed`, `denied`: the person's word is on its way. */
  readonly state: 'running' | 'asked' | 'allowed' | 'denied' | 'done' | 'failed';
  readonly result?: unknown;
}
export interface Said {
  readonly kind: 'text';
  readonly text: string;
}
export type Piece = Said | ToolUse;

export interface Failure {
  readonly code: string;
  readonly message: string;
  readonly details: Readonly<Record<string, unknown>>;
}
export type End =
  | { readonly kind: 'running' | 'complete' | 'waiting' | 'stopped' | 'length' | 'filtered' | 'interrupted' }
  | { readonly kind: 'failed'; readonly failure: Failure };

export interface Turn {
  readonly question: string;
  readonly model: string;
  readonly pieces: readonly Piece[];
  readonly end: End;
  /** Tokens, once the answer has ended. */
  readonly usage?: { readonly inputTokens: number; readonly outputTokens: number };
}
export type Talk = readonly Turn[];

export const isTool = (piece: Piece): piece is ToolUse => piece.kind === 'tool';

const isFailure = (result: unknown): boolean => typeof result === 'object' && result !== null && !Array.isArray(result) && 'error' in result;

/** Two texts in a row are one. */
const withText = (pieces: readonly Piece[], text: string): readonly Piece[] => {
  const last = pieces.at(-1);
  return last?.kind === 'text' ? [...pieces.slice(0, -1), { kind: 'text', text: last.text + text }] : [...pieces, { kind: 'text', text }];
};

const withTool = (turn: Turn, id: string, change: (tool: ToolUse) => ToolUse): Turn =>
  ({ ...turn, pieces: turn.pieces.map((piece) => (isTool(piece) && piece.id === id ? change(piece) : piece)) });

const ended = (turn: Turn, part: Extract<UiPart, { type: 'finish' }>): Turn => {
  const { usage } = part;
  const open = (piece: Piece): boolean => isTool(piece) && (piece.state === 'running' || piece.state === 'asked');
  // The page offers no tools of its own: a call that has no result waits for the person.
  if (part.finishReason === 'tool-calls' && turn.pieces.some(open)) {
    return { ...turn, usage, end: { kind: 'waiting' }, pieces: turn.pieces.map((piece) => (isTool(piece) && piece.state === 'running' ? { ...piece, state: 'asked' } : piece)) };
  }
  switch (part.finishReason) {
    case 'length': return { ...turn, usage, end: { kind: 'length' } };
    case 'content-filter': return { ...turn, usage, end: { kind: 'filtered' } };
    case 'stop':
    case 'tool-calls':
    case 'other': return { ...turn, usage, end: { kind: 'complete' } };
  }
};

/** The answer with one more event of its stream. */
export const heard = (turn: Turn, part: UiPart): Turn => {
  switch (part.type) {
    case 'text-delta': return { ...turn, pieces: withText(turn.pieces, part.text) };
    case 'tool-call': return { ...turn, pieces: [...turn.pieces, { kind: 'tool', id: part.toolCallId, name: part.toolName, args: part.args, state: 'running' }] };
    case 'tool-result':
      return withTool(turn, part.toolCallId, (tool) => ({ ...tool, result: part.result, state: tool.state === 'denied' ? 'denied' : isFailure(part.result) ? 'failed' : 'done' }));
    case 'finish': return ended(turn, part);
    case 'error': return failed(turn, { ...part.error, details: {} });
  }
};

export const failed = (turn: Turn, failure: Failure): Turn => ({ ...turn, end: { kind: 'failed', failure } });
export const stopped = (turn: Turn): Turn => ({ ...turn, end: { kind: 'stopped' } });

/** What was under way when the page went is over: nobody listened any more. */
export const afterReload = (talk: Talk): Talk => talk.map((turn) => (turn.end.kind === 'running' ? { ...turn, end: { kind: 'interrupted' } } : turn));

export const asked = (talk: Talk, question: string, model: string): Talk => [...talk, { question, model, pieces: [], end: { kind: 'running' } }];

const last = (talk: Talk, change: (turn: Turn) => Turn): Talk => talk.map((turn, at) => (at === talk.length - 1 ? change(turn) : turn));
export const changeLast = last;

/** The person's word on a call. */
export const decided = (talk: Talk, id: string, allowed: boolean): Talk =>
  last(talk, (turn) => withTool(turn, id, (tool) => ({ ...tool, state: allowed ? 'allowed' : 'denied' })));

/** Whether nothing is left to decide, so that the answer can go on. */
export const isDecided = (turn: Turn): boolean => turn.end.kind === 'waiting' && !turn.pieces.some((piece) => isTool(piece) && piece.state === 'asked');

export const goesOn = (talk: Talk): Talk => last(talk, (turn) => ({ ...turn, end: { kind: 'running' } }));

/** The last question again, without what was answered. */
export const again = (talk: Talk, model: string): Talk => last(talk, ({ question }) => ({ question, model, pieces: [], end: { kind: 'running' } }));

const asText = (value: unknown): string => (typeof value === 'string' ? value : JSON.stringify(value ?? null));

/** Whether the server is still to hear of the person's word. */
const isOpen = (tool: ToolUse): boolean => (tool.state === 'allowed' || tool.state === 'denied') && tool.result === undefined;

/** Steps of an answer: what was said, the calls after it. */
const stepsOf = (pieces: readonly Piece[]): { text: string; tools: ToolUse[] }[] => {
  const steps: { text: string; tools: ToolUse[] }[] = [];
  for (const piece of pieces) {
    const step = steps.at(-1);
    if (!isTool(piece)) steps.push({ text: piece.text, tools: [] });
    else if (step === undefined) steps.push({ text: '', tools: [piece] });
    else step.tools.push(piece);
  }
  return steps;
};

const messagesOfTurn = ({ question, pieces }: Turn, isLast: boolean): object[] => [
  { role: 'user', content: question },
  ...stepsOf(pieces).flatMap(({ text, tools }) => {
    const known = tools.filter((tool) => tool.result !== undefined || (isLast && isOpen(tool)));
    if (text === '' && known.length === 0) return [];
    return [
      { role: 'assistant', content: text, ...(known.length === 0 ? {} : { tool_calls: known.map(({ id, name, args }) => ({ id, type: 'function', function: { name, arguments: asText(args ?? {}) } })) }) },
      ...known.filter((tool) => !isOpen(tool)).map(({ id, result }) => ({ role: 'tool', tool_call_id: id, content: asText(result) })),
      ...known.filter(isOpen).map(({ id, state }) => ({ role: 'tool', tool_call_id: id, content: [{ type: 'tool-approval-response', approved: state === 'allowed' }] })),
    ];
  }),
];

/** Body of `POST /api/chat` for the conversation as it is: its last question, or the person's word on the calls of its last answer. */
export const requestOf = (talk: Talk): { readonly model: string; readonly stream: true; readonly messages: readonly object[] } =>
  ({ model: talk.at(-1)?.model ?? '', stream: true, messages: talk.flatMap((turn, at) => messagesOfTurn(turn, at === talk.length - 1)) });
