/**
 * Where one is in the console. Client-side routes are a fixed set of paths, each served with the same page; the organization is in the
 * query (`?org=`). So an address can be kept, opened in another tab and reloaded, and an unknown path is not found as anywhere else.
 */
export const views = ['organizations', 'chat', 'usage', 'trust', 'account', 'members', 'invitations', 'keys', 'audit', 'plan', 'deployments', 'settings'] as const;
export type ViewName = (typeof views)[number];

export interface Place {
  readonly view: ViewName;
  /** Id of the organization. */
  readonly org: string | undefined;
  /** What of the view is shown: further fields of the query, in the order of `withins`. */
  readonly within?: Within;
}

/** What the deployments' view shows: one of them, a part of it, a session with its branch, a document of its knowledge. */
const withins = ['deployment', 'part', 'session', 'branch', 'node'] as const;
export type Within = Readonly<Partial<Record<(typeof withins)[number], string>>>;

const pathOf = (view: ViewName): string => (view === 'organizations' ? '/console' : `/console/${view}`);

/** Every path the page is served under. */
export const consolePaths: readonly string[] = views.map(pathOf);

export const hrefOf = ({ view, org, within = {} }: Place): string => {
  const query = new URLSearchParams(org === undefined ? {} : { org });
  for (const name of withins) if (within[name] !== undefined) query.set(name, within[name]);
  return query.size === 0 ? pathOf(view) : `${pathOf(view)}?${query.toString()}`;
};

export const placeOf = (pathname: string, search: string): Place => {
  const query = new URLSearchParams(search);
  const within = Object.fromEntries(withins.flatMap((name) => (query.has(name) ? [[name, query.get(name) ?? '']] : [])));
  return {
    view: views.find((view) => pathOf(view) === pathname) ?? 'organizations', org: query.get('org') ?? undefined,
    ...(Object.keys(within).length === 0 ? {} : { within }),
  };
};

/** A plain click stays in the page; with a modifier or another button the browser does what it always does. */
export const follow = (event: MouseEvent, go: () => void): void => {
  if (event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  go();
};
