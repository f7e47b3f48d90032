/** `troupe sessions`: the caller's own sessions, newest first, one a line. Pages are fetched until there are as many as were asked for. */
import { refuse } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import type { SessionSummary } from '../../contracts/session.ts';
import { createEdge } from '../client/edge.ts';
import { exitCodes, type ExitCode } from './exit.ts';
import { plain, type Out } from './printer.ts';
import type { Target } from './target.ts';
import type { Transport } from './transport.ts';

export interface SessionsOptions {
  readonly json: boolean;
  /** Sessions to list, from 1. */
  readonly limit: number;
}

const line = (session: SessionSummary): string => {
  const { input_tokens: read, output_tokens: said } = session.usage;
  const label = session.label === null ? '' : `  ${plain(session.label).replace(/\s+/g, ' ')}`;
  return `${session.sid}  ${session.created_at.slice(0, 16).replace('T', ' ')}  ${session.state.padEnd(16)}  ${session.turns} turns, ${read + said} tokens  ${plain(session.model)}${label}\n`;
};

/** With `json` one object a session and line, as the contract's `sessionSummary`. Throws `bad_usage` for a limit that is none. */
export const runSessions = async (target: Target, transport: Transport, options: SessionsOptions, out: Out, err: Out): Promise<ExitCode> => {
  if (!Number.isSafeInteger(options.limit) || options.limit < 1) throw refuse('bad_usage', '--limit is a whole number from 1.');
  const edge = createEdge({ url: target.gatewayUrl, token: target.token, fetch: transport.fetch });
  let left = options.limit;
  let cursor: string | undefined;
  let current = true;
  do {
    const page = await edge.listSessions({ limit: Math.min(left, limits.sessionListMax), ...(cursor === undefined ? {} : { cursor }) });
    for (const session of page.sessions) out.write(options.json ? `${JSON.stringify(session)}\n` : line(session));
    left -= page.sessions.length;
    current &&= page.current;
    cursor = page.next_cursor ?? undefined;
  } while (cursor !== undefined && left > 0);
  if (left === options.limit && !options.json) err.write('There is no session yet. `troupe chat` makes one.\n');
  if (!current) err.write('The list may lack what happened last; ask again in a moment.\n');
  return exitCodes.ok;
};
