/** `troupe replay <sid>`: prints a session's stream from event 1, each event as one line, and proves that it was whole. */
import { limits } from '../../contracts/limits.ts';
import { createEdge } from '../client/edge.ts';
import { realClock } from '../client/clock.ts';
import { openSession } from '../client/session-stream.ts';
import { endError } from './ending.ts';
import { exitCodes, type ExitCode } from './exit.ts';
import { plain, type Out } from './printer.ts';
import { createQuiet } from './quiet.ts';
import type { Target } from './target.ts';
import type { Transport } from './transport.ts';

export interface ReplayOptions {
  readonly sid: string;
  readonly projectId: string;
  readonly json: boolean;
  /** Go on with live events until interrupted. */
  readonly follow: boolean;
  /** Milliseconds of silence after which the replay counts as complete. */
  readonly idleMs: number;
}

export const runReplay = async (
  target: Target, transport: Transport, options: ReplayOptions, out: Out, err: Out, onInterrupt: (listener: () => void) => () => void,
): Promise<ExitCode> => {
  const edge = createEdge({ url: target.gatewayUrl, token: target.token, fetch: transport.fetch });
  const who = { userId: target.userId, projectId: options.projectId, sid: options.sid };
  await edge.resumeSession(who);
  const quiet = createQuiet(realClock, options.idleMs, 0);
  const stream = openSession({
    url: target.gatewayUrl, sid: options.sid, token: target.token, WebSocket: transport.WebSocket, lastSeqNo: 0,
    diagnose: () => edge.resumeSession(who),
    onState: (state) => {
      if (state.kind === 'open') quiet.touch();
      else quiet.pause();
    },
    onEvent: ({ seq_no, agent_kind, record }) => {
      quiet.touch();
      out.write(options.json
        ? `${JSON.stringify({ kind: 'agent_event', seq_no, agent_kind, record })}\n`
        : `${String(seq_no).padStart(6)}  ${record.at}  ${agent_kind.padEnd(17)} ${plain(JSON.stringify(record.payload))}\n`);
    },
  });
  let interrupted = false;
  const off = onInterrupt(() => {
    interrupted = true;
    stream.close();
  });
  if (!options.follow) void quiet.reached.then(() => { stream.close(); });
  const end = await stream.closed;
  off();
  quiet.stop();
  const error = endError(end);
  if (error !== undefined) throw error;
  const { delivered, lost, repeated } = stream.counts;
  err.write(options.json
    ? `${JSON.stringify({ kind: 'counts', delivered, lost, repeated })}\n`
    : `${delivered} events, ${lost} lost, ${repeated} repeated\n`);
  return interrupted && !options.follow ? exitCodes.interrupted : exitCodes.ok;
};

/** Default of `idleMs`: generous, so that a slow server is not taken for the end. */
export const replayIdleMs = 5 * limits.clientReplayQuietMs;
