/**
 * A turn's journaled events for the formats that know texts, tool calls and an end, but no journal: read with today's schemas, handed on by what
 * they mean. Each frame group carries the id of its event (on its last frame), so that a client may come back with it.
 */
import type { z } from 'zod';
import { sessionEvents } from '../../../contracts/session.ts';
import type { ChatWriter } from '../platform/chat.ts';
import type { Upcast } from '../frames.ts';
import type { SessionEvent } from './envelope.ts';
import type { TurnWriter } from './chat-formats-native.ts';

type Payload<K extends keyof typeof sessionEvents> = z.output<(typeof sessionEvents)[K]>;

/** What a format makes of a turn. */
export interface TurnTeller {
  text(event: Payload<'TextDelta'>): string;
  toolCall(event: Payload<'ToolCall'>): string;
  toolResult(event: Payload<'ToolResult'>): string;
  approval(event: Payload<'ApprovalRequested'>): string;
  finished(event: Payload<'RunFinished'>): string;
  failed(event: Payload<'RunErrored'>): string;
}

/** Puts the id on the last frame of a text of frames. */
export const withId = (frames: string, id: string): string => {
  if (frames === '') return '';
  const last = frames.lastIndexOf('\n\n', frames.length - 3);
  const at = last < 0 ? 0 : last + 2;
  return `${frames.slice(0, at)}id: ${id}\n${frames.slice(at)}`;
};

export const turnWriter = (teller: TurnTeller, upcast: Upcast, how: Pick<TurnWriter, 'headers' | 'saysFailure'>): TurnWriter => {
  const told = ({ event }: SessionEvent): string => {
    switch (event.k) {
      case 'TextDelta': return teller.text(sessionEvents.TextDelta.parse(upcast(event)));
      case 'ToolCall': return teller.toolCall(sessionEvents.ToolCall.parse(upcast(event)));
      case 'ToolResult': return teller.toolResult(sessionEvents.ToolResult.parse(upcast(event)));
      case 'ApprovalRequested': return teller.approval(sessionEvents.ApprovalRequested.parse(upcast(event)));
      case 'RunFinished': return teller.finished(sessionEvents.RunFinished.parse(upcast(event)));
      case 'RunErrored': return teller.failed(sessionEvents.RunErrored.parse(upcast(event)));
      default: return '';
    }
  };
  return { ...how, all: false, end: '', event: (seen) => withId(told(seen), seen.event.id) };
};

/** Steps of a run, as their events name them: true when a new one begins that is not the first. */
const stepCounter = (): ((step: number) => boolean) => {
  let at: number | undefined;
  return (step) => {
    const next = at !== undefined && step !== at;
    at = step;
    return next;
  };
};

/** The writers of `/api/chat` for a session's turn. */
export const uiTeller = (writer: ChatWriter, id: string): TurnTeller => {
  const isNext = stepCounter();
  let index = 0;
  const stepped = (step: number): string => (isNext(step) ? writer.step?.() ?? '' : '');
  return {
    text: ({ text, step }) => stepped(step) + writer.text(text),
    toolCall: ({ step, call_id, tool_name: name, arguments: args }) =>
      stepped(step) + writer.toolCall({ id, index: index++, call_id, name, arguments: typeof args === 'string' ? args : JSON.stringify(args ?? {}) }),
    toolResult: ({ call_id, tool_name: name, result, is_error }) => writer.toolResult?.({ id, call_id, name, result, is_error }) ?? '',
    approval: ({ call_id, preview }) => writer.approval?.({ id, call_id, preview }) ?? '',
    finished: ({ finish_reason, usage }) => writer.finished({ id, finish_reason, usage }),
    failed: ({ code, message }) => writer.failed({ code, message }, true) ?? '',
  };
};
