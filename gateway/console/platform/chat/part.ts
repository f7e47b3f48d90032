/** Reads the events of `/api/chat` and a kept conversation: strict, tied to the contract's types (read.ts says why not by schema). */
import { coded } from '../../../../contracts/errors.ts';
import type { UiPart } from '../../../../contracts/ui-chat.ts';
import { anyFields, fields, list, number, oneOf, text, type Read } from '../../read.ts';
import type { End, Piece, Talk, Turn } from './talk.ts';

const anything: Read<unknown> = (value) => value;
const usage = fields({ inputTokens: number, outputTokens: number });
const shapes: { readonly [K in UiPart['type']]: Read<Omit<Extract<UiPart, { type: K }>, 'type'>> } = {
  'text-delta': fields({ id: text, text }),
  'tool-call': fields({ toolCallId: text, toolName: text, args: anything }),
  'tool-result': fields({ toolCallId: text, toolName: text, result: anything }),
  finish: fields({ finishReason: oneOf(['stop', 'length', 'content-filter', 'tool-calls', 'other']), usage }),
  error: fields({ error: fields({ code: text, message: text }) }),
};
const types = Object.keys(shapes) as UiPart['type'][];

/** One event; throws `upstream_error` for what is none. */
export const readPart: Read<UiPart> = (value, at) => {
  const { type } = fields({ type: oneOf(types) })(value, at);
  return { type, ...shapes[type](value, at) } as UiPart;
};

const readPiece: Read<Piece> = (value, at) => {
  const { kind } = fields({ kind: oneOf(['text', 'tool']) })(value, at);
  if (kind === 'text') return { kind, ...fields({ text })(value, at) };
  const tool = fields({ id: text, name: text, args: anything, result: anything, state: oneOf(['running', 'asked', 'allowed', 'denied', 'done', 'failed']) })(value, at);
  return { kind, ...tool };
};

const readEnd: Read<End> = (value, at) => {
  const { kind } = fields({ kind: oneOf(['running', 'complete', 'waiting', 'stopped', 'length', 'filtered', 'interrupted', 'failed']) })(value, at);
  return kind === 'failed' ? { kind, ...fields({ failure: fields({ code: text, message: text, details: anyFields }) })(value, at) } : { kind };
};

const readTurn: Read<Turn> = (value, at) => {
  const turn = fields({ question: text, model: text, pieces: list(readPiece), end: readEnd, usage: anything })(value, at);
  const { usage: used, ...rest } = turn;
  return used === undefined ? rest : { ...rest, usage: usage(used, `${at}.usage`) };
};

/** What was kept of a conversation; an empty one for what cannot be read. */
export const readTalk = (kept: string | undefined): Talk => {
  if (kept === undefined) return [];
  try {
    return list(readTurn)(JSON.parse(kept), 'talk');
  } catch (error) {
    reportError(coded('journal_unreadable', 'A kept conversation cannot be read.', { cause: error }));
    return [];
  }
};
