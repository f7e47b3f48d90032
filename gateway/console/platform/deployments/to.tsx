/** A link to a place of the deployments' view. */
import type { ComponentChildren, VNode } from 'preact';
import { useDesk } from '../desk.ts';
import { follow, hrefOf, type Within } from '../place.ts';

export const To = ({ org, within, current = false, class: kind, children }: {
  org: string; within: Within; current?: boolean; class?: string; children: ComponentChildren;
}): VNode => {
  const desk = useDesk();
  const place = { view: 'deployments', org, within } as const;
  return (
    <a href={hrefOf(place)} class={kind} aria-current={current ? 'page' : undefined} onClick={(event) => { follow(event, () => { desk.go(place); }); }}>
      {children}
    </a>
  );
};
