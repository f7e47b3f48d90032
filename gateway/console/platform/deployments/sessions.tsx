/** The sessions of a deployment and their branches, the newest first, a page at a time. */
import type { VNode } from 'preact';
import { useState } from 'preact/hooks';
import type { Deployment } from '../../../../contracts/deployment.ts';
import { useAction, useDesk, useLoaded } from '../desk.ts';
import { Button, Failed, ProblemText, Waiting } from '../form.tsx';
import { when, type Listed } from '../resources.ts';
import { branchQuery, mainBranch, readSessions, servicePath } from './services.ts';
import { To } from './to.tsx';

export const Sessions = ({ organization, deployment }: { organization: Listed; deployment: Deployment }): VNode => {
  const desk = useDesk();
  const more = useAction();
  const [announced, setAnnounced] = useState('');
  const path = servicePath(deployment.id, 'sessions');
  const { loaded, reload, change } = useLoaded(deployment.id, () => desk.api.get(path, {}, readSessions));
  const next = (cursor: string): void => {
    void more.run(async () => {
      const page = await desk.api.get(path, { cursor }, readSessions);
      change((before) => ({ ...page, sessions: [...before.sessions, ...page.sessions] }));
      setAnnounced(`${page.sessions.length} more`);
    });
  };
  return (
    <section class="card" aria-labelledby="sessions">
      <div class="head"><h2 id="sessions">Sessions</h2><Button onClick={() => { void reload(); }}>Refresh</Button></div>
      {loaded.state === 'loading' && <Waiting what="sessions" />}
      {loaded.state === 'failed' && <Failed problem={loaded.problem} onRetry={() => { void reload(); }} />}
      {loaded.state === 'ready' && loaded.value.sessions.length === 0 && <p class="hint">There is no session yet. A client of the deployment makes one by its first message: <code>POST {deployment.url}/v1/chat</code>.</p>}
      {loaded.state === 'ready' && (
        <ul class="rows">
          {loaded.value.sessions.map(({ id, branch, event_count: events, created_at: made, last_event_at: last }) => (
            <li key={`${id} ${branch}`}>
              <div class="what">
                <strong><To org={organization.id} within={{ deployment: deployment.id, part: 'sessions', session: id, ...branchQuery(branch) }}>{id}{branch !== mainBranch && ` › ${branch}`}</To></strong>
                <span class="hint">{events} events · begun {when(made)} · last {when(last)}</span>
              </div>
              {branch !== mainBranch && <span class="tag">branch {branch}</span>}
            </li>
          ))}
        </ul>
      )}
      <ProblemText problem={more.problem} />
      {loaded.state === 'ready' && loaded.value.next_cursor !== undefined && (
        <p class="actions"><Button busy={more.busy} onClick={() => { next(loaded.value.next_cursor ?? ''); }}>Show more</Button></p>
      )}
      <p class="hidden" role="status">{announced}</p>
    </section>
  );
};
