/**
 * The chat page's entry: finds out who chats, ties session and views together. The only file here that touches `location`, `history`
 * and the storage.
 */
import { render } from 'preact';
import { createEdge } from '../client/edge.ts';
import { Api } from './api.ts';
import { App, SignIn } from './app.tsx';
import { linkIdentity, platformIdentity, type Identity } from './identity.ts';
import { forgetToken, keepToken, keptToken } from './keep.ts';
import { Session } from './session.ts';

const root = document.getElementById('console');
if (root === null) throw new TypeError('the page has no #console');

/** The token of `#token=…`, once: it is taken out of the address so that it is neither bookmarked nor shown. */
const takeToken = (): void => {
  const token = new URLSearchParams(location.hash.slice(1)).get('token');
  if (token === null || token === '') return;
  keepToken(sessionStorage, token);
  history.replaceState(null, '', location.pathname + location.search);
};

const signOut = (): void => {
  forgetToken(sessionStorage);
  location.reload();
};

const fieldOf = (name: string): string | undefined => new URLSearchParams(location.search).get(name) ?? undefined;
const here = (fields: Readonly<Record<string, string | undefined>>): string => {
  const query = new URLSearchParams(Object.entries(fields).flatMap(([name, value]) => (value === undefined ? [] : [[name, value]]))).toString();
  return query === '' ? location.pathname : `?${query}`;
};

const chat = ({ userId, token, renew }: Identity): void => {
  // Of the organization one chats in; stays in the address from session to session.
  const org = fieldOf('org');
  let drawn = 0;
  const draw = (): void => {
    drawn = 0;
    const signIn = renew !== undefined ? `/signin?${new URLSearchParams({ return_to: location.pathname + location.search }).toString()}` : undefined;
    render(<App session={session} state={session.state} userId={userId} edge={edge} linkOf={(sid) => here({ org, sid })} signIn={signIn} onSignOut={signOut} />, root);
  };
  const edge = createEdge({ url: location.origin, token, fetch: (url, init) => fetch(url, init) });
  const session = new Session({
    url: location.origin, userId, token, renew, WebSocket, storage: sessionStorage,
    edge,
    onSid: (sid) => {
      const url = here({ org, sid });
      // Also told while going back and forth, where the address is right already.
      if (url !== (location.search === '' ? location.pathname : location.search)) history.pushState(null, '', url);
    },
    // A fast model sends more events than a screen shows: one drawing a frame takes them all.
    onChange: () => { drawn ||= requestAnimationFrame(draw); },
  });
  const follow = (): void => {
    const sid = fieldOf('sid');
    if (sid === session.state.sid) return;
    if (sid === undefined) session.leave();
    else session.open(sid);
  };
  addEventListener('popstate', follow);
  addEventListener('online', () => { session.wake(); });
  document.addEventListener('visibilitychange', () => {
    if (document.visibilityState === 'visible') {
      session.wake();
      draw();
    }
  });
  follow();
  draw();
};

const start = async (): Promise<void> => {
  takeToken();
  const kept = keptToken(sessionStorage);
  const link = kept === undefined ? undefined : linkIdentity(kept);
  if (link !== undefined) {
    chat(link);
    return;
  }
  const found = await platformIdentity(new Api((url, init) => fetch(url, init)), fieldOf('org'), () => performance.now());
  if (found.kind === 'somebody') chat(found.identity);
  else {
    const signIn = found.accounts ? `/signin?${new URLSearchParams({ return_to: location.pathname + location.search }).toString()}` : undefined;
    render(<SignIn invalid={kept !== undefined} signIn={signIn} />, root);
  }
};

// A new sign-in link opened in this tab changes only the fragment.
addEventListener('hashchange', () => {
  if (location.hash.startsWith('#token=')) {
    takeToken();
    location.reload();
  }
});
void start();
