/**
 * What the page shows of a session, as a pure fold of its events and of the messages written here.
 *
 * The stream carries what the agent says, not what people said to it, so the page keeps its own messages and puts each in
 * front of the turn it started. Entries are never changed, only replaced, so that a view can tell by identity what is new.
 * At most `limits.clientEntriesMax` entries are kept; the oldest go first and `dropped` counts them.
 */
import { limits } from '../../contracts/limits.ts';
import type { StreamEvent } from '../client/frame.ts';

/** A message written on this page. `after` = the last event seen when it was written. */
export interface Mine {
  readonly messageId: string;
  readonly content: string;
  readonly after: number;
  readonly attachment?: string;
}

export type Entry =
  | { readonly kind: 'mine'; readonly key: string; readonly message: Mine }
  | { readonly kind: 'text'; readonly key: string; readonly text: string }
  | {
    readonly kind: 'tool'; readonly key: string; readonly callId: string; readonly name: string; readonly arguments: unknown;
    readonly result?: unknown; readonly state: 'running' | 'done' | 'failed' | 'stopped';
    /** Set while the call waits for a person. */
    readonly approval?: { readonly dispatchId: string; readonly preview: string };
  }
  | { readonly kind: 'note'; readonly key: string; readonly tone: 'plain' | 'error'; readonly text: string };

export interface Conversation {
  readonly entries: readonly Entry[];
  readonly dropped: number;
  /** Messages whose turn has not begun, oldest first. */
  readonly waiting: readonly Mine[];
  readonly running: boolean;
  readonly costCents: number;
}

export const emptyConversation = (mine: readonly Mine[] = []): Conversation =>
  ({ entries: [], dropped: 0, waiting: mine, running: false, costCents: 0 });

export const wrote = (c: Conversation, message: Mine): Conversation => ({ ...c, waiting: [...c.waiting, message] });

const push = (c: Conversation, entry: Entry): Conversation => {
  const entries = [...c.entries, entry];
  const over = Math.max(0, entries.length - limits.clientEntriesMax);
  return { ...c, entries: over === 0 ? entries : entries.slice(over), dropped: c.dropped + over };
};
const replace = (c: Conversation, index: number, entry: Entry): Conversation => ({ ...c, entries: c.entries.with(index, entry) });

/** The first event of a turn puts the message that started it in its place. */
const begin = (c: Conversation, seqNo: number): Conversation => {
  if (c.running) return c;
  const [message, ...rest] = c.waiting;
  if (message === undefined || message.after >= seqNo) return { ...c, running: true };
  return { ...push(c, { kind: 'mine', key: `m${message.messageId}`, message }), waiting: rest, running: true };
};

/** Tool calls that still waited when their turn ended will not run any more. */
const end = (c: Conversation): Conversation => ({
  ...c, running: false,
  entries: c.entries.map((e) => {
    if (e.kind !== 'tool' || e.state !== 'running') return e;
    const { approval: _settled, ...call } = e;
    return { ...call, state: 'stopped' };
  }),
});

const finishNotes: Readonly<Record<string, string>> = {
  cancelled: 'Cancelled.', length: 'The answer was cut off at its longest length.', content_filter: 'The provider\'s content filter ended the answer.', other: 'The provider ended the answer.',
};

/** The conversation after an event. Pure. */
export const shows = (before: Conversation, event: StreamEvent): Conversation => {
  const key = `e${event.seq_no}`;
  if (event.agent_kind === 'HIBERNATE') return before;
  if (event.agent_kind === 'ERROR' && event.record.kind === 'MessageRefused') {
    const refused = before.waiting.at(-1);
    const c = refused === undefined ? before : push({ ...before, waiting: before.waiting.slice(0, -1) }, { kind: 'mine', key: `m${refused.messageId}`, message: refused });
    return push(c, { kind: 'note', key, tone: 'error', text: `${event.payload.code}: ${event.payload.message}` });
  }
  const c = begin(before, event.seq_no);
  switch (event.agent_kind) {
    case 'TOKEN': {
      const last = c.entries.at(-1);
      if (last?.kind === 'text') return replace(c, c.entries.length - 1, { ...last, text: last.text + event.payload.text });
      return event.payload.text === '' ? c : push(c, { kind: 'text', key, text: event.payload.text });
    }
    case 'TOOL_CALL_PENDING': {
      const { call_id, tool_name, arguments: given } = event.payload;
      return push(c, { kind: 'tool', key, callId: call_id, name: tool_name, arguments: given, state: 'running' });
    }
    case 'APPROVAL_REQUIRED': {
      const { dispatch_id: dispatchId, call_id, preview } = event.payload;
      const index = c.entries.findLastIndex((e) => e.kind === 'tool' && e.callId === call_id);
      const call = c.entries[index];
      if (call?.kind === 'tool') return replace(c, index, { ...call, approval: { dispatchId, preview } });
      return push(c, { kind: 'tool', key, callId: call_id, name: 'tool', arguments: undefined, state: 'running', approval: { dispatchId, preview } });
    }
    case 'TOOL_RESULT': {
      const { call_id, tool_name, result, is_error } = event.payload;
      const state = is_error ? 'failed' : 'done';
      const index = c.entries.findLastIndex((e) => e.kind === 'tool' && e.callId === call_id);
      const call = c.entries[index];
      if (call?.kind !== 'tool') return push(c, { kind: 'tool', key, callId: call_id, name: tool_name, arguments: undefined, result, state });
      const { approval: _answered, ...rest } = call;
      return replace(c, index, { ...rest, result, state });
    }
    case 'FINISH': {
      const { finish_reason, usage } = event.payload;
      const done = { ...end(c), costCents: c.costCents + usage.cost_cents };
      const text = finish_reason === 'stop' ? undefined : finishNotes[finish_reason];
      return text === undefined ? done : push(done, { kind: 'note', key, tone: 'plain', text });
    }
    case 'ERROR':
      return push(end(c), { kind: 'note', key, tone: 'error', text: `${event.payload.code}: ${event.payload.message}` });
  }
};

/** Calls that wait for a person, oldest first. */
export const approvalsOf = (c: Conversation): { readonly dispatchId: string; readonly preview: string }[] =>
  c.entries.flatMap((e) => (e.kind === 'tool' && e.approval !== undefined ? [e.approval] : []));
