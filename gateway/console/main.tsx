/**
 * The page's entry: takes the sign-in token out of the address, ties session and views together. The only file here that
 * touches `location`, `history` and the storage.
 */
import { render } from 'preact';
import { createEdge } from '../client/edge.ts';
import { subjectOf } from '../client/token.ts';
import { App, SignIn } from './app.tsx';
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

const start = (): void => {
  takeToken();
  const token = keptToken(sessionStorage);
  const userId = token === undefined ? undefined : subjectOf(token);
  if (token === undefined || userId === undefined) {
    render(<SignIn invalid={token !== undefined} />, root);
    return;
  }
  let drawn = 0;
  const draw = (): void => {
    drawn = 0;
    render(<App session={session} state={session.state} userId={userId} edge={edge} onSignOut={signOut} />, root);
  };
  const edge = createEdge({ url: location.origin, token: () => token, fetch: (url, init) => fetch(url, init) });
  const session = new Session({
    url: location.origin, userId, token: () => token, WebSocket, storage: sessionStorage,
    edge,
    onSid: (sid) => {
      const url = sid === undefined ? location.pathname : `${location.pathname}?sid=${encodeURIComponent(sid)}`;
      // Also told while going back and forth, where the address is right already.
      if (url !== location.pathname + location.search) history.pushState(null, '', url);
    },
    // A fast model sends more events than a screen shows: one drawing a frame takes them all.
    onChange: () => { drawn ||= requestAnimationFrame(draw); },
  });
  const follow = (): void => {
    const sid = new URLSearchParams(location.search).get('sid') ?? undefined;
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

// A new sign-in link opened in this tab changes only the fragment.
addEventListener('hashchange', () => {
  if (location.hash.startsWith('#token=')) {
    takeToken();
    location.reload();
  }
});
start();
