/**
 * Reads a server frame without a schema library, so that the browser bundle stays small.
 *
 * Guarantee: accepts what `wireInbound` of contracts/stream.ts accepts and refuses what it refuses, apart from unknown
 * extra fields, which are ignored (test/unit/client-frame keeps the two together).
 */
import type { AgentEvent, AgentKind, WireInbound, agentPayloads } from '../../contracts/stream.ts';
import type { z } from 'zod';

/** Payload of an event by its agent_kind. */
export type Payload<K extends AgentKind> = z.output<(typeof agentPayloads)[K]>;

/** An agent event whose payload has been checked: `event.agent_kind` tells the type of `event.payload`. */
export type StreamEvent = {
  readonly [K in AgentKind]: {
    readonly agent_kind: K;
    readonly seq_no: number;
    readonly payload: Payload<K>;
    readonly record: AgentEvent['record'];
  };
}[AgentKind];

export type ServerFrame =
  | { readonly kind: 'agent_event'; readonly event: StreamEvent }
  | Exclude<WireInbound, { kind: 'agent_event' }>;

type Fields = Readonly<Record<string, unknown>>;
const isFields = (value: unknown): value is Fields => typeof value === 'object' && value !== null && !Array.isArray(value);
const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && Number(value) >= 0;
const isText = (value: unknown): value is string => typeof value === 'string';

const finishReasons: ReadonlySet<unknown> = new Set(['stop', 'length', 'content_filter', 'cancelled', 'other']);

const payloadChecks: Readonly<Record<AgentKind, (p: Fields) => boolean>> = {
  TOKEN: (p) => isText(p['text']),
  FINISH: (p) => finishReasons.has(p['finish_reason']) && isFields(p['usage'])
    && isCount(p['usage']['input_tokens']) && isCount(p['usage']['output_tokens']) && isCount(p['usage']['cost_cents']),
  ERROR: (p) => isText(p['code']) && isText(p['message']),
  TOOL_CALL_PENDING: (p) => isText(p['call_id']) && isText(p['tool_name']),
  TOOL_RESULT: (p) => isText(p['call_id']) && isText(p['tool_name']) && typeof p['is_error'] === 'boolean',
  APPROVAL_REQUIRED: (p) => isText(p['dispatch_id']) && isText(p['call_id']) && isText(p['preview']),
  HIBERNATE: () => true,
};

const isAgentKind = (value: unknown): value is AgentKind => isText(value) && Object.hasOwn(payloadChecks, value);

const readEvent = (frame: Fields): StreamEvent | undefined => {
  const { seq_no, record, agent_kind } = frame;
  if (!isAgentKind(agent_kind) || !isCount(seq_no) || seq_no === 0 || !isFields(record)) return undefined;
  if (!isText(record['session_id']) || record['sequence'] !== seq_no || !isText(record['kind'])) return undefined;
  if (!isText(record['at']) || Number.isNaN(Date.parse(record['at'])) || !isFields(record['payload'])) return undefined;
  if (!payloadChecks[agent_kind](record['payload'])) return undefined;
  // The checks above are the proof that the compiler cannot follow: the payload has the fields of its kind.
  return { agent_kind, seq_no, record, payload: record['payload'] } as unknown as StreamEvent;
};

/** The frame in a WebSocket text message, or undefined if it is none. Never throws. */
export const decodeFrame = (text: string): ServerFrame | undefined => {
  let frame: unknown;
  try {
    frame = JSON.parse(text);
  } catch {
    return undefined;
  }
  if (!isFields(frame)) return undefined;
  switch (frame['kind']) {
    case 'agent_event': {
      const event = readEvent(frame);
      return event && { kind: 'agent_event', event };
    }
    case 'pong':
      return isCount(frame['seq_no']) ? { kind: 'pong', seq_no: frame['seq_no'] } : undefined;
    case 'closing':
      return isText(frame['reason']) ? { kind: 'closing', reason: frame['reason'] } : undefined;
    default:
      return undefined;
  }
};
