/** What differs between two states: the places that were added, removed or changed, in the order of the later state. Pure. */
export interface Difference {
  /** As `history.3.text`. */
  readonly path: string;
  readonly kind: 'added' | 'removed' | 'changed';
  readonly before: string;
  readonly after: string;
}

type Tree = Readonly<Record<string, unknown>>;
const isTree = (value: unknown): value is Tree => typeof value === 'object' && value !== null;
const written = (value: unknown): string => (typeof value === 'string' ? value : JSON.stringify(value) ?? '');

const compare = (path: string, before: unknown, after: unknown, into: Difference[]): void => {
  if (Object.is(before, after)) return;
  if (!isTree(before) || !isTree(after) || Array.isArray(before) !== Array.isArray(after)) {
    into.push({ path, kind: 'changed', before: written(before), after: written(after) });
    return;
  }
  const at = (name: string): string => (path === '' ? name : `${path}.${name}`);
  for (const name of Object.keys(before)) {
    if (!Object.hasOwn(after, name)) into.push({ path: at(name), kind: 'removed', before: written(before[name]), after: '' });
  }
  for (const name of Object.keys(after)) {
    if (!Object.hasOwn(before, name)) into.push({ path: at(name), kind: 'added', before: '', after: written(after[name]) });
    else compare(at(name), before[name], after[name], into);
  }
};

export const differences = (before: Tree, after: Tree): readonly Difference[] => {
  const found: Difference[] = [];
  compare('', before, after, found);
  return found;
};
