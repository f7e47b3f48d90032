/** The console's entry: ties views, API and the browser together. The only file of it that touches `location`, `history` and storage. */
import { render } from 'preact';
import { Api } from '../api.ts';
import { App, type AppWorld } from './app.tsx';
import { keepIn } from './keep.ts';
import { hrefOf, placeOf } from './place.ts';

const root = document.getElementById('console');
if (root === null) throw new TypeError('the page has no #console');

const world: AppWorld = {
  api: new Api((url, init) => fetch(url, init)),
  keep: keepIn(sessionStorage),
  location: () => placeOf(location.pathname, location.search),
  push: (place) => { history.pushState(null, '', hrefOf(place)); },
  onMoved: (call) => {
    addEventListener('popstate', call);
    return () => { removeEventListener('popstate', call); };
  },
  leave: (path) => { location.assign(path); },
};
render(<App world={world} />, root);
