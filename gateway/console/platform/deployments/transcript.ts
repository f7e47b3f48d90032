/**
 * A session as a conversation: a pure fold of its events, as far as one looks. What a tool call is waiting for, what it gave and what stopped it
 * stands with the call; what is neither said nor called is a note.
 */
import type { Envelope } from './services.ts';

export type CallStatus = 'called' | 'waiting' | 'granted' | 'denied' | 'done' | 'failed' | 'blocked';

export interface CallItem {
  readonly kind: 'call';
  readonly id: string;
  readonly name: string;
  readonly input: unknown;
  readonly status: CallStatus;
  /** Names the decision that is waited for. */
  readonly dispatch: string | undefined;
  readonly preview: string | undefined;
  readonly result: unknown;
}
export type Item =
  | { readonly kind: 'user'; readonly id: string; readonly text: string }
  | { readonly kind: 'agent'; readonly id: string; readonly text: string; readonly ended: boolean }
  | { readonly kind: 'note'; readonly id: string; readonly tone: 'plain' | 'bad'; readonly text: string }
  | CallItem;

const word = (payload: Envelope['payload'], name: string): string => {
  const value = payload[name];
  return typeof value === 'string' ? value : typeof value === 'number' ? String(value) : '';
};
const part = (value: unknown, name: string): unknown => (typeof value === 'object' && value !== null ? Reflect.get(value, name) : undefined);

/** A tool that a gate stopped has the gate's refusal as its result. */
const endOf = (payload: Envelope['payload']): CallStatus =>
  (payload['is_error'] !== true ? 'done' : part(part(payload['result'], 'error'), 'code') === 'policy_denied' ? 'blocked' : 'failed');

const notes: Readonly<Record<string, (payload: Envelope['payload']) => { readonly tone: 'plain' | 'bad'; readonly text: string }>> = {
  SessionCreated: (payload) => ({ tone: 'plain', text: `The session began, with the model ${word(payload, 'model')}.` }),
  BranchCreated: (payload) => ({ tone: 'plain', text: `Forked from ${word(payload, 'from_branch')}${payload['effects'] === 'armed' ? '' : ', without tools that act outside'}.` }),
  HistoryImported: () => ({ tone: 'plain', text: 'Its client brought earlier messages.' }),
  MemoryStored: (payload) => ({ tone: 'plain', text: `Remembered: ${word(payload, 'fact')}` }),
  MessageRefused: (payload) => ({ tone: 'bad', text: `A message was refused: ${word(payload, 'message')}` }),
  RunErrored: (payload) => ({ tone: 'bad', text: `${payload['code'] === 'policy_denied' ? 'Blocked by regulation' : 'The turn failed'}: ${word(payload, 'message')}` }),
  SessionHibernated: () => ({ tone: 'plain', text: 'The session hibernated.' }),
  SessionResumed: () => ({ tone: 'plain', text: 'The session woke up.' }),
};

export const transcriptOf = (events: readonly Envelope[]): readonly Item[] => {
  const items: Item[] = [];
  /** Where a step's text and a call stand. */
  const places = new Map<string, number>();
  const put = (key: string, item: Item): void => {
    places.set(key, items.length);
    items.push(item);
  };
  const change = (key: string, to: (item: Item) => Item): boolean => {
    const at = places.get(key);
    const item = at === undefined ? undefined : items[at];
    if (at === undefined || item === undefined) return false;
    items[at] = to(item);
    return true;
  };
  const call = (payload: Envelope['payload'], with_: Partial<CallItem>): void => {
    change(`call ${word(payload, 'run_id')} ${word(payload, 'call_id')}`, (item) => (item.kind === 'call' ? { ...item, ...with_ } : item));
  };
  for (const { id, kind, payload } of events) {
    const step = `step ${word(payload, 'run_id')} ${word(payload, 'step')}`;
    switch (kind) {
      case 'UserMessage':
        items.push({ kind: 'user', id, text: word(payload, 'content') });
        break;
      case 'TextDelta':
        if (!change(step, (item) => (item.kind === 'agent' ? { ...item, text: item.text + word(payload, 'text') } : item))) put(step, { kind: 'agent', id, text: word(payload, 'text'), ended: false });
        break;
      case 'AssistantMessage':
        if (!change(step, (item) => (item.kind === 'agent' ? { ...item, text: word(payload, 'content'), ended: true } : item)) && word(payload, 'content') !== '') put(step, { kind: 'agent', id, text: word(payload, 'content'), ended: true });
        break;
      case 'ToolCall':
        put(`call ${word(payload, 'run_id')} ${word(payload, 'call_id')}`, {
          kind: 'call', id, name: word(payload, 'tool_name'), input: payload['arguments'], status: 'called', dispatch: undefined, preview: undefined, result: undefined,
        });
        break;
      case 'ApprovalRequested':
        call(payload, { status: 'waiting', dispatch: word(payload, 'dispatch_id'), preview: word(payload, 'preview') });
        break;
      case 'ApprovalGranted':
        call(payload, { status: 'granted' });
        break;
      case 'ApprovalDenied':
        call(payload, { status: 'denied' });
        break;
      case 'ToolResult': {
        const at = places.get(`call ${word(payload, 'run_id')} ${word(payload, 'call_id')}`);
        const before = at === undefined ? undefined : items[at];
        const denied = before?.kind === 'call' && before.status === 'denied';
        call(payload, { status: denied ? 'denied' : endOf(payload), result: payload['result'] });
        break;
      }
      default: {
        const note = notes[kind]?.(payload);
        if (note !== undefined) items.push({ kind: 'note', id, ...note });
      }
    }
  }
  return items;
};

/** True while a turn runs. */
export const isRunning = (events: readonly Envelope[]): boolean => {
  const last = events.findLast(({ kind }) => kind === 'RunStarted' || kind === 'RunFinished' || kind === 'RunErrored' || kind === 'BranchCreated');
  return last?.kind === 'RunStarted';
};

/** An event in a few words. */
export const summaryOf = ({ kind, payload }: Envelope): string => {
  switch (kind) {
    case 'UserMessage': case 'AssistantMessage': return word(payload, 'content');
    case 'TextDelta': return word(payload, 'text');
    case 'ToolCall': case 'ToolResult': return word(payload, 'tool_name');
    case 'ApprovalRequested': return word(payload, 'preview');
    case 'RunFinished': return word(payload, 'finish_reason');
    case 'MemoryStored': return word(payload, 'fact');
    case 'RunErrored': case 'MessageRefused': return word(payload, 'message');
    default: return '';
  }
};
