/**
 * Where one is in the console. Client-side routes are a fixed set of paths, each served with the same page; the organization is in the
 * query (`?org=`). So an address can be kept, opened in another tab and reloaded, and an unknown path is not found as anywhere else.
 */
export const views = ['organizations', 'account', 'members', 'invitations', 'keys', 'audit', 'settings'] as const;
export type ViewName = (typeof views)[number];

export interface Place {
  readonly view: ViewName;
  /** Id of the organization. */
  readonly org: string | undefined;
}

const pathOf = (view: ViewName): string => (view === 'organizations' ? '/console' : `/console/${view}`);

/** Every path the page is served under. */
export const consolePaths: readonly string[] = views.map(pathOf);

export const hrefOf = ({ view, org }: Place): string => (org === undefined ? pathOf(view) : `${pathOf(view)}?${new URLSearchParams({ org }).toString()}`);

export const placeOf = (pathname: string, search: string): Place => ({
  view: views.find((view) => pathOf(view) === pathname) ?? 'organizations', org: new URLSearchParams(search).get('org') ?? undefined,
});

/** A plain click stays in the page; with a modifier or another button the browser does what it always does. */
export const follow = (event: MouseEvent, go: () => void): void => {
  if (event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  go();
};
