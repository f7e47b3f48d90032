/**
 * `troupe chat`: one session as a conversation, in a terminal (`chat-terminal.ts`) or over a pipe (`chat-pipe.ts`).
 *
 * What both share is here: the session is made or resumed, its stream is printed for a person or as JSON lines, approvals
 * are asked for once they are really waiting, and the end of the stream becomes an exit code.
 */
import { limits } from '../../contracts/limits.ts';
import { realClock } from '../client/clock.ts';
import { createEdge, type Edge } from '../client/edge.ts';
import type { StreamEvent } from '../client/frame.ts';
import { openSession, type Reconnected, type SessionStream } from '../client/session-stream.ts';
import type { StreamState } from '../client/state.ts';
import { endError } from './ending.ts';
import type { Out, Printer } from './printer.ts';
import { createQuiet } from './quiet.ts';
import type { Target } from './target.ts';
import type { Transport } from './transport.ts';

export interface ChatOptions {
  readonly sid: string | undefined;
  readonly projectId: string;
  readonly model: string | undefined;
  readonly label: string | undefined;
  readonly json: boolean;
  /** What to do with approvals: ask the person, or the same answer for all. */
  readonly approve: 'ask' | 'yes' | 'no';
  /** One message, after which the command ends. */
  readonly message: string | undefined;
  readonly cwd: string;
}

export interface ChatWorld {
  readonly target: Target;
  readonly transport: Transport;
  readonly out: Out;
  readonly err: Out;
  /** Calls the listener on every Ctrl-C until the result is called. */
  readonly onInterrupt: (listener: () => void) => () => void;
}

export interface Approval {
  readonly dispatchId: string;
  readonly preview: string;
}

export interface Chat {
  readonly sid: string;
  readonly edge: Edge;
  readonly stream: SessionStream;
  /** Resolves when what the session said before has been shown (or passed over). */
  readonly caughtUp: Promise<void>;
  /** Whether a turn runs or waits. */
  readonly busy: boolean;
  /** Shows what was passed over from here on. */
  show(): void;
}

export interface ChatListeners {
  /** An approval waits; called once for each, never for one that the replay shows as settled. */
  readonly onApproval: (approval: Approval) => void;
  /** It no longer waits (answered here or elsewhere, or its turn ended). */
  readonly onSettled: (dispatchId: string) => void;
  readonly onTurnEnd: (event: StreamEvent) => void;
}

/** One JSON line for `--json`. */
export const writeJson = (out: Out, value: unknown): void => { out.write(`${JSON.stringify(value)}\n`); };

/**
 * Makes or resumes the session and opens its stream from event 1 (a new session has none). `history` false = what is
 * replayed is not shown. Refusals of the edge are thrown.
 */
export const openChat = async (world: ChatWorld, options: ChatOptions, printer: Printer, listeners: ChatListeners, history: boolean): Promise<Chat> => {
  const { target, transport, out } = world;
  const edge = createEdge({ url: target.gatewayUrl, token: target.token, fetch: transport.fetch });
  const who = { userId: target.userId, projectId: options.projectId };
  const { sid } = options.sid === undefined
    ? await edge.createSession({ ...who, ...(options.model === undefined ? {} : { model: options.model }), ...(options.label === undefined ? {} : { label: options.label }) })
    : await edge.resumeSession({ ...who, sid: options.sid });
  if (options.json) writeJson(out, { kind: 'session', sid });

  const quiet = createQuiet(realClock, limits.clientReplayQuietMs, 5 * limits.clientReplayMaxMs);
  let shown = options.sid === undefined || history;
  let running = false;
  const waiting = new Map<string, { callId: string; disarm: () => void }>();
  const settle = (dispatchId: string): void => {
    waiting.get(dispatchId)?.disarm();
    if (waiting.delete(dispatchId)) listeners.onSettled(dispatchId);
  };

  const onEvent = (event: StreamEvent): void => {
    quiet.touch();
    if (shown) {
      if (options.json) writeJson(out, { kind: 'agent_event', seq_no: event.seq_no, agent_kind: event.agent_kind, record: event.record });
      else printer.event(event);
    }
    switch (event.agent_kind) {
      case 'APPROVAL_REQUIRED': {
        running = true;
        const { dispatch_id: dispatchId, call_id: callId, preview } = event.payload;
        // A replay may settle it with its next events; only one that stays is put to the person.
        const disarm = realClock.after(limits.clientReplayQuietMs, () => { listeners.onApproval({ dispatchId, preview }); });
        waiting.set(dispatchId, { callId, disarm });
        return;
      }
      case 'TOOL_RESULT':
        for (const [dispatchId, { callId }] of waiting) if (callId === event.payload.call_id) settle(dispatchId);
        return;
      case 'FINISH':
      case 'ERROR':
        if (event.record.kind !== 'MessageRefused') {
          running = false;
          for (const dispatchId of waiting.keys()) settle(dispatchId);
        }
        listeners.onTurnEnd(event);
        return;
      case 'TOKEN':
      case 'TOOL_CALL_PENDING':
        running = true;
        return;
      case 'HIBERNATE':
        return;
    }
  };
  const onState = (state: StreamState): void => {
    if (state.kind === 'open') quiet.touch();
    else quiet.pause();
    if (!options.json) printer.state(state);
    else if (state.kind === 'waiting') writeJson(out, { kind: 'connection_lost', code: state.code, reason: state.reason, attempt: state.attempt });
  };
  const onReconnected = (reconnected: Reconnected): void => {
    if (options.json) writeJson(out, { kind: 'reconnected', ms: Math.round(reconnected.downMs), attempts: reconnected.attempts, lost: reconnected.lost, repeated: reconnected.repeated });
    else printer.reconnected(reconnected);
  };

  const stream = openSession({
    url: target.gatewayUrl, sid, token: target.token, WebSocket: transport.WebSocket, lastSeqNo: 0,
    diagnose: () => edge.resumeSession({ ...who, sid }), onEvent, onState, onReconnected,
  });
  void stream.closed.then(() => {
    quiet.stop();
    for (const { disarm } of waiting.values()) disarm();
  });
  return {
    sid, edge, stream,
    caughtUp: options.sid === undefined ? Promise.resolve() : quiet.reached,
    get busy() { return running || stream.pending.length > 0; },
    show: () => { shown = true; },
  };
};

/** Waits for the stream's end and throws what ended it, unless it was this client. */
export const streamEnd = async (stream: SessionStream): Promise<void> => {
  const error = endError(await stream.closed);
  if (error !== undefined) throw error;
};
