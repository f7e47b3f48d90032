/**
 * The console's frame: who is signed in, which organization, which view. Nothing that depends on a role is drawn before the role is known.
 */
import type { VNode } from 'preact';
import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import { CodedError } from '../../../contracts/errors.ts';
import { allows, type Permission } from '../../../contracts/roles.ts';
import type { Api, BrowserSession } from '../api.ts';
import { fields, list } from '../read.ts';
import { Account } from './account.tsx';
import { Audit } from './audit.tsx';
import { Chat } from './chat/chat.tsx';
import { Deployments } from './deployments/deployments.tsx';
import { DeskProvider, problemOf, type Desk, type Problem } from './desk.ts';
import { Button, Failed, Waiting } from './form.tsx';
import { Invitations } from './invitations.tsx';
import type { Keep } from './keep.ts';
import { Keys } from './keys.tsx';
import { Members } from './members.tsx';
import { Organizations } from './organizations.tsx';
import { follow, hrefOf, type Place, type ViewName } from './place.ts';
import { PlanView } from './plan.tsx';
import { readListed, type Listed } from './resources.ts';
import { OrganizationSettings } from './settings.tsx';
import { Trust } from './trust.tsx';
import { UsageView } from './usage.tsx';

/** The views of an organization and what one needs for each. */
const tabs: readonly { readonly view: ViewName; readonly title: string; readonly permission: Permission }[] = [
  { view: 'members', title: 'Members', permission: 'member.list' },
  { view: 'invitations', title: 'Invitations', permission: 'member.invite' },
  { view: 'keys', title: 'API keys', permission: 'api_key.create' },
  { view: 'audit', title: 'Audit log', permission: 'audit.read' },
  { view: 'plan', title: 'Plan', permission: 'org.read' },
  { view: 'deployments', title: 'Deployments', permission: 'chat.read' },
  { view: 'settings', title: 'Settings', permission: 'org.update' },
];

/** Milliseconds that a result stays at the foot. */
const saidMs = 8_000;

type Phase =
  | { readonly kind: 'loading' }
  | { readonly kind: 'failed'; readonly problem: Problem }
  | { readonly kind: 'signed-out' }
  | { readonly kind: 'ready'; readonly session: BrowserSession & { readonly user: NonNullable<BrowserSession['user']> }; readonly organizations: readonly Listed[] };

const organizationList = fields({ organizations: list(readListed) });

const View = ({ place, organizations }: { place: Place; organizations: readonly Listed[] }): VNode => {
  const organization = organizations.find(({ id }) => id === place.org);
  if (place.view === 'organizations') return <Organizations organizations={organizations} />;
  if (place.view === 'account') return <Account />;
  if (place.view === 'chat') return <Chat organizations={organizations} org={place.org} />;
  if (place.view === 'usage') return <UsageView organizations={organizations} />;
  if (place.view === 'trust') return <Trust organizations={organizations} />;
  const tab = tabs.find(({ view }) => view === place.view);
  if (organization === undefined || tab === undefined) return <p class="alert" role="alert">There is no such organization, or you are not in it. <a href="/console">Your organizations</a></p>;
  if (!allows(organization.role, tab.permission)) return <p class="alert" role="alert">This needs a higher role than yours ({organization.role}).</p>;
  switch (place.view) {
    case 'members': return <Members key={organization.role} organization={organization} />;
    case 'invitations': return <Invitations organization={organization} />;
    case 'keys': return <Keys organization={organization} />;
    case 'audit': return <Audit organization={organization} />;
    case 'plan': return <PlanView key={organization.role} organization={organization} />;
    case 'deployments': return <Deployments organization={organization} within={place.within ?? {}} />;
    case 'settings': return <OrganizationSettings key={organization.role} organization={organization} />;
  }
};

const Link = ({ to, at, desk, children }: { to: Place; at: Place; desk: Desk; children: string }): VNode => (
  <a href={hrefOf(to)} aria-current={to.view === at.view && to.org === at.org ? 'page' : undefined} onClick={(event) => { follow(event, () => { desk.go(to); }); }}>{children}</a>
);

/** The views of the person, not of an organization. */
const titles: Partial<Readonly<Record<ViewName, string>>> = { organizations: 'Organizations', chat: 'Chat', usage: 'Usage and credits', trust: 'Trust', account: 'Your account' };
const titleOf = (place: Place, organization: Listed | undefined): string => titles[place.view] ?? organization?.name ?? 'Organization';

export interface AppWorld {
  readonly api: Api;
  readonly keep: Keep;
  readonly location: () => Place;
  /** Puts a place into the address. */
  readonly push: (place: Place) => void;
  /** Tells when the browser went back or forth. */
  readonly onMoved: (call: () => void) => () => void;
  /** Leaves the page. */
  readonly leave: (path: string) => void;
}

export const App = ({ world }: { world: AppWorld }): VNode => {
  const { api, keep } = world;
  const [phase, setPhase] = useState<Phase>({ kind: 'loading' });
  const [place, setPlace] = useState<Place>(world.location);
  const [said, setSaid] = useState('');
  const heading = useRef<HTMLHeadingElement>(null);
  const moved = useRef(false);

  const load = useCallback(async (): Promise<void> => {
    try {
      const session = await api.session();
      const { user } = session;
      if (user === null) {
        setPhase({ kind: 'signed-out' });
        return;
      }
      const { organizations } = await api.get('/api/organization', {}, organizationList);
      setPhase({ kind: 'ready', session: { ...session, user }, organizations });
    } catch (error) {
      setPhase(error instanceof CodedError && error.entry.http === 401 ? { kind: 'signed-out' } : { kind: 'failed', problem: problemOf(error) });
    }
  }, [api]);
  useEffect(() => { void load(); }, [load]);
  useEffect(() => world.onMoved(() => {
    moved.current = true;
    setPlace(world.location());
  }), [world]);

  useEffect(() => {
    if (said === '') return;
    const timer = setTimeout(() => { setSaid(''); }, saidMs);
    return () => { clearTimeout(timer); };
  }, [said]);

  const user = phase.kind === 'ready' ? phase.session.user : undefined;
  const legalAccepted = phase.kind === 'ready' && phase.session.legalAccepted;
  const desk = useMemo((): Desk | undefined => (user === undefined ? undefined : {
    api, keep, person: user, legalAccepted,
    go: (to) => {
      moved.current = true;
      world.push(to);
      setPlace(to);
    },
    say: setSaid,
    leave: world.leave,
    signedOut: () => { setPhase({ kind: 'signed-out' }); },
    refresh: async () => {
      // What the caller may do has changed: so has what belongs into the token.
      api.forgetToken();
      const { organizations } = await api.get('/api/organization', {}, organizationList);
      setPhase((before) => (before.kind === 'ready' ? { ...before, organizations } : before));
    },
  }), [api, keep, world, user, legalAccepted]);

  const organization = phase.kind === 'ready' ? phase.organizations.find(({ id }) => id === place.org) : undefined;
  const title = titleOf(place, organization);
  const tab = tabs.find(({ view }) => view === place.view);
  // Before the screen is drawn: no key typed in between goes where the focus was.
  useLayoutEffect(() => {
    document.title = `${tab === undefined ? title : `${tab.title} · ${title}`} · Troupe`;
    // After a step in the page the new view is announced, as a loaded page would be.
    if (moved.current) heading.current?.focus();
    moved.current = false;
  }, [place, title, tab]);

  if (phase.kind === 'loading') return <main class="console"><Waiting what="the console" /></main>;
  if (phase.kind === 'failed') {
    return (
      <main class="console">
        <h1>{phase.problem.code === 'not_found' ? 'No accounts here' : 'The console is not available'}</h1>
        {phase.problem.code === 'not_found' ? <p>This gateway serves no accounts and organizations. The <a href="/">chat</a> works with a sign-in link.</p>
          : <Failed problem={phase.problem} onRetry={() => { void load(); }} />}
      </main>
    );
  }
  if (phase.kind === 'signed-out' || desk === undefined) {
    return (
      <main class="console">
        <h1>You are not signed in</h1>
        <p class="actions"><a class="button" href={`/signin?${new URLSearchParams({ return_to: hrefOf(place) }).toString()}`}>Sign in</a></p>
      </main>
    );
  }
  const signOut = (): void => {
    // Emptied first: a browser may show this page again as it was left (Back), without asking anybody.
    api.signOut().then(() => {
      keep.clear();
      setPhase({ kind: 'signed-out' });
      world.leave('/signin');
    }, (error: unknown) => { setPhase({ kind: 'failed', problem: problemOf(error) }); });
  };
  return (
    <DeskProvider value={desk}>
      <a class="skip" href="#view" onClick={(event) => { event.preventDefault(); heading.current?.focus(); }}>To the content</a>
      <header>
        <a class="brand" href="/console" onClick={(event) => { follow(event, () => { desk.go({ view: 'organizations', org: undefined }); }); }}><img src="/icon.svg" alt="" width="24" height="24" />Troupe</a>
        <nav aria-label="Console">
          <Link to={{ view: 'chat', org: place.org }} at={place} desk={desk}>Chat</Link>
          <a href={place.org === undefined ? '/' : `/?${new URLSearchParams({ org: place.org }).toString()}`}>Sessions</a>
          <Link to={{ view: 'organizations', org: undefined }} at={place} desk={desk}>Organizations</Link>
          <Link to={{ view: 'usage', org: undefined }} at={place} desk={desk}>Usage</Link>
          <Link to={{ view: 'trust', org: undefined }} at={place} desk={desk}>Trust</Link>
          <Link to={{ view: 'account', org: undefined }} at={place} desk={desk}>Account</Link>
        </nav>
        <div class="who"><span title={phase.session.user.id}>{phase.session.user.email}</span><Button onClick={signOut}>Sign out</Button></div>
      </header>
      <main class="console">
        {!phase.session.legalAccepted && (
          <p class="alert asked" role="status">The current terms must be accepted before you can chat. <a href={`/legal?${new URLSearchParams({ return_to: hrefOf(place) }).toString()}`}>Read and accept them</a></p>
        )}
        <h1 id="view" ref={heading} tabIndex={-1}>{title}</h1>
        {organization !== undefined && tab !== undefined && (
          <nav class="tabs" aria-label={`Views of ${organization.name}`}>
            {tabs.filter(({ permission }) => allows(organization.role, permission)).map(({ view, title: name }) => (
              <Link key={view} to={{ view, org: organization.id }} at={place} desk={desk}>{name}</Link>
            ))}
          </nav>
        )}
        <div class="view" key={`${place.view} ${place.org ?? ''}`}><View place={place} organizations={phase.organizations} /></div>
      </main>
      <p class="said" role="status" aria-live="polite">{said}</p>
    </DeskProvider>
  );
};

