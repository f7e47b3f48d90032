/** The page: header with the connection, the conversation, the composer; and the page without a token. */
import type { VNode } from 'preact';
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import type { Edge } from '../client/edge.ts';
import type { StreamState } from '../client/state.ts';
import { Composer } from './composer.tsx';
import { approvalsOf } from './conversation.ts';
import { EntryView, Waiting } from './entry.tsx';
import { Sessions } from './sessions.tsx';
import type { Problem, Session, SessionState } from './session.ts';

/** Pixels from the end within which the page keeps following what is said. */
const nearEnd = 80;

const connectionText = (connection: StreamState | undefined): { text: string; tone: 'good' | 'busy' | 'bad' | 'none' } => {
  if (connection === undefined) return { text: 'no session yet', tone: 'none' };
  switch (connection.kind) {
    case 'open': return { text: 'connected', tone: 'good' };
    case 'connecting': return { text: connection.attempt > 1 ? 'reconnecting …' : 'connecting …', tone: 'busy' };
    case 'waiting': return { text: 'reconnecting …', tone: 'busy' };
    case 'closed': return { text: 'disconnected', tone: 'bad' };
    case 'broken': return { text: 'stream broken', tone: 'bad' };
  }
};

const signInCodes: ReadonlySet<string> = new Set(['unauthorized', 'bad_bearer', 'user_id_mismatch']);

const ProblemView = ({ problem, ended, signIn, onRetry, onNew, onSignOut }: {
  problem: Problem; ended: boolean; signIn: string | undefined; onRetry: () => void; onNew: () => void; onSignOut: () => void;
}): VNode => (
  <div class="problem" role="alert">
    <p><strong>{problem.code}</strong> {problem.message}</p>
    {signInCodes.has(problem.code) && (signIn === undefined
      ? <p>Run <code>npm start</code> and open the sign-in link it prints; your session is still there.</p>
      : <p><a href={signIn}>Sign in again</a>; your session is still there.</p>)}
    {problem.code === 'legal_acceptance_required' && <p><a href="/legal?return_to=/">Read and accept the current terms</a>.</p>}
    <p class="actions">
      {ended && <button type="button" onClick={onRetry}>Connect again</button>}
      {ended && <button type="button" class="quiet" onClick={onNew}>New session</button>}
      {signInCodes.has(problem.code) && signIn === undefined && <button type="button" class="quiet" onClick={onSignOut}>Sign out</button>}
    </p>
  </div>
);

export interface AppProps {
  readonly session: Session;
  readonly state: SessionState;
  readonly userId: string;
  readonly edge: Edge;
  /** Address of a session. */
  readonly linkOf: (sid: string) => string;
  /** Where to sign in again; undefined for somebody with a sign-in link. */
  readonly signIn?: string | undefined;
  readonly onSignOut: () => void;
}

export const App = ({ session, state, userId, edge, linkOf, signIn, onSignOut }: AppProps): VNode => {
  const [model, setModel] = useState('');
  const [following, setFollowing] = useState(true);
  const scroller = useRef<HTMLElement>(null);
  const { conversation, connection, problem, sid } = state;
  const ended = connection?.kind === 'closed' || connection?.kind === 'broken';
  const status = connectionText(connection);
  const approvals = approvalsOf(conversation);
  const firstApproval = approvals[0]?.dispatchId;

  useLayoutEffect(() => {
    if (following && scroller.current !== null) scroller.current.scrollTop = scroller.current.scrollHeight;
  });
  // Somebody must decide: the question takes the focus, unless a message is being written.
  useEffect(() => {
    if (firstApproval === undefined) return;
    const field = document.querySelector('textarea');
    if (field === null || field.value === '') document.getElementById(`approve-${firstApproval}`)?.focus();
  }, [firstApproval]);
  useEffect(() => {
    const escape = (event: KeyboardEvent): void => {
      if (event.key !== 'Escape' || event.isComposing) return;
      session.cancel();
      document.querySelector('textarea')?.focus();
    };
    addEventListener('keydown', escape);
    return () => { removeEventListener('keydown', escape); };
  }, [session]);

  const fresh = (): void => {
    session.leave();
    document.querySelector('textarea')?.focus();
  };
  return (
    <div class="page">
      <header>
        <h1><img src="/icon.svg" alt="" width="24" height="24" />Troupe</h1>
        <p class={`connection ${status.tone}`}><span class="dot" aria-hidden="true" />{status.text}</p>
        {sid !== undefined && (
          <dl class="facts">
            <div class="sid"><dt>Session</dt><dd title={sid}>{sid}</dd></div>
            <div><dt>Model</dt><dd>{state.model === '' ? 'default' : state.model}</dd></div>
          </dl>
        )}
        {(sid !== undefined || signIn !== undefined) && (
          <p class="actions">
            {signIn !== undefined && <a class="button quiet" href="/console">Console</a>}
            {sid !== undefined && <button type="button" class="quiet" onClick={fresh}>New session</button>}
          </p>
        )}
      </header>
      <main
        ref={scroller}
        // Reachable by keyboard, so that it can be scrolled without a pointer.
        // oxlint-disable-next-line jsx-a11y/no-noninteractive-tabindex
        tabIndex={0}
        aria-label="Conversation"
        onScroll={({ currentTarget: m }) => { setFollowing(m.scrollHeight - m.scrollTop - m.clientHeight < nearEnd); }}
      >
        {sid === undefined && !state.creating && (
          <div class="welcome">
            <h2>Talk to an agent</h2>
            <p>Signed in as <strong>{userId}</strong>. Your first message makes a session. It survives restarts of this page, the gateway and the daemon, and what is said stays numbered from 1, so nothing can be lost unseen.</p>
            <label>Model <input value={model} placeholder="default" autocomplete="off" spellcheck={false} maxLength={128} onInput={(e) => { setModel(e.currentTarget.value.trim()); }} /></label>
            <Sessions edge={edge} linkOf={linkOf} />
          </div>
        )}
        <div class="entries" role="log" aria-live="off">
          {conversation.dropped > 0 && <p class="note">{conversation.dropped} older entries are not shown. <code>troupe replay {sid}</code> prints them.</p>}
          {conversation.entries.map((entry) => (
            <EntryView key={entry.key} entry={entry} live={!ended} onApprove={(id) => { session.approve(id); }} onDeny={(id) => { session.deny(id); }} />
          ))}
          {conversation.waiting.map((message) => <Waiting key={message.messageId} message={message} />)}
          {state.busy && !ended && approvals.length === 0 && <p class="working" aria-hidden="true"><span /><span /><span /></p>}
        </div>
        {problem !== undefined && (
          <ProblemView problem={problem} ended={ended} signIn={signIn} onRetry={() => { session.retry(); }} onNew={fresh} onSignOut={onSignOut} />
        )}
      </main>
      <footer>
        {!following && <button type="button" class="latest" onClick={() => { setFollowing(true); }}>Latest ↓</button>}
        <p class="notice" role="status" aria-live="polite">{ended ? '' : approvals.length > 0 ? 'approval needed' : state.notice}</p>
        <Composer busy={state.busy && !ended} disabled={ended || state.creating} onSend={(text, file) => session.send(text, file, model)} onCancel={() => { session.cancel(); }} />
      </footer>
    </div>
  );
};

/** What a visitor without a token sees. `signIn`: where accounts are, undefined where there are none. */
export const SignIn = ({ invalid, signIn }: { invalid: boolean; signIn?: string | undefined }): VNode => (
  <main class="sign-in">
    <h1><img src="/icon.svg" alt="" width="32" height="32" />Troupe</h1>
    {invalid && <p role="alert"><strong>The token in this link cannot be read.</strong></p>}
    {signIn === undefined ? <p>You are not signed in. This page takes its token from a sign-in link.</p> : (
      <>
        <p>You are not signed in.</p>
        <p class="actions"><a class="button" href={signIn}>Sign in or create an account</a></p>
        <p>On your own machine a sign-in link does it, too:</p>
      </>
    )}
    <ol>
      <li>Run <code>npm start</code> in the Troupe folder.</li>
      <li>Open the chat link it prints. It ends in <code>#token=…</code> and signs in this tab only.</li>
    </ol>
    <p>In a terminal, <code>npx troupe chat</code> does the same without a browser.</p>
  </main>
);
