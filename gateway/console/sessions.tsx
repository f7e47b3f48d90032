/** "Your sessions" on the empty page: the newest of the signed-in user, each a link that goes on with it. */
import type { VNode } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { shown } from '../../contracts/errors.ts';
import type { SessionSummary } from '../../contracts/session.ts';
import type { Edge } from '../client/edge.ts';

/** Sessions fetched at once. */
const pageSize = 20;

interface Listed {
  readonly sessions: readonly SessionSummary[];
  /** null = there are no more; undefined = nothing was fetched yet. */
  readonly next: string | null | undefined;
  readonly problem: string | undefined;
}

const stateText: Readonly<Record<SessionSummary['state'], string>> = { idle: '', running: 'running', waiting_approval: 'approval needed' };
const when = (iso: string): string => new Date(iso).toLocaleString(undefined, { dateStyle: 'medium', timeStyle: 'short' });

export const Sessions = ({ edge, linkOf }: { edge: Edge; linkOf: (sid: string) => string }): VNode | null => {
  const [listed, setListed] = useState<Listed>({ sessions: [], next: undefined, problem: undefined });
  const more = async (cursor: string | undefined, gone: () => boolean): Promise<void> => {
    try {
      const page = await edge.listSessions({ limit: pageSize, ...(cursor === undefined ? {} : { cursor }) });
      if (!gone()) setListed((before) => ({ sessions: cursor === undefined ? page.sessions : [...before.sessions, ...page.sessions], next: page.next_cursor, problem: undefined }));
    } catch (error) {
      if (!gone()) setListed((before) => ({ ...before, problem: shown(error).message }));
    }
  };
  useEffect(() => {
    let left = false;
    void more(undefined, () => left);
    return () => { left = true; };
  }, [edge]);

  const { sessions, next, problem } = listed;
  if (sessions.length === 0 && problem === undefined) return null;
  return (
    <section class="sessions" aria-labelledby="your-sessions">
      <h3 id="your-sessions">Your sessions</h3>
      {problem !== undefined && <p role="status">{problem}</p>}
      <ul>
        {sessions.map((session) => (
          <li key={session.sid}>
            <a href={linkOf(session.sid)}>{session.label ?? when(session.created_at)}</a>
            <span>{session.label === null ? '' : `${when(session.created_at)} · `}{session.turns} turns · {session.model}</span>
            {session.state !== 'idle' && <strong>{stateText[session.state]}</strong>}
          </li>
        ))}
      </ul>
      {typeof next === 'string' && <p class="actions"><button type="button" class="quiet" onClick={() => { void more(next, () => false); }}>More</button></p>}
    </section>
  );
};
