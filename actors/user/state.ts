/**
 * The user actor's state: a pure fold of contracts/user.ts' events. What has ended is dropped when the next login is opened or refreshed,
 * by the times in the events.
 */
import { limits } from '../../contracts/limits.ts';
import type { IdentityProvider, NewGrant, userEvents } from '../../contracts/user.ts';
import type { PayloadOf } from '../runtime/define.ts';

export type UserEvents = typeof userEvents;

/** A login: a browser session, a device, a token. Times: Unix milliseconds. */
export interface Grant extends NewGrant {
  readonly created_at: number;
  readonly used_at: number | null;
}

/** A refresh token that was replaced. */
interface Former {
  /** Beginning of its SHA-256: enough to know it again. */
  readonly print: string;
  readonly grant_id: string;
  readonly expires_at: number;
}

interface Revoked {
  readonly jti: string;
  readonly grant_id: string;
  readonly expires_at: number;
}

export interface UserState {
  /** Null until the first sign-in. */
  readonly profile: {
    readonly email: string;
    readonly name: string;
    readonly created_at: number;
    readonly identities: readonly { readonly provider: IdentityProvider; readonly provider_id: string }[];
    /** Hash of the manifest accepted last; empty = none. */
    readonly policy: string;
  } | null;
  /** Oldest first. */
  readonly grants: readonly Grant[];
  readonly former: readonly Former[];
  readonly revoked: readonly Revoked[];
  /** UTC days on which the account was used, as far as uses are noted, and the last of them (days since 1970; -1 = none). */
  readonly active: { readonly days: number; readonly last: number };
  /** Oldest first. `verified_at`: null = still to be proved. */
  readonly domains: readonly { readonly domain: string; readonly id: string; readonly verified_at: number | null }[];
  /** When all logins were ended together last; 0 = never. What was agreed to before opens none any more. */
  readonly all_ended_at: number;
}

export const initialUser = (): UserState => ({ profile: null, grants: [], former: [], revoked: [], active: { days: 0, last: -1 }, domains: [], all_ended_at: 0 });

/** What a refresh token is known again by. */
export const printOf = (sha256: string): string => sha256.slice(0, 16);

/** Unix milliseconds at which nothing of a grant works any more. */
export const endOf = (grant: Pick<Grant, 'expires_at' | 'access_expires_at'>): number => Math.max(grant.expires_at, grant.access_expires_at);

/** Local part of the address: the name of somebody who has told none. */
export const nameOfEmail = (email: string): string => email.slice(0, email.indexOf('@'));

const withProfile = (state: UserState, change: (profile: NonNullable<UserState['profile']>) => NonNullable<UserState['profile']>): UserState =>
  (state.profile === null ? state : { ...state, profile: change(state.profile) });

const sweep = (state: UserState, at: number): UserState => ({
  ...state,
  grants: state.grants.filter((g) => endOf(g) > at),
  former: state.former.filter((f) => f.expires_at > at),
  revoked: state.revoked.filter((r) => r.expires_at > at),
});

const dayMs = 86_400_000;

/** Counts the day of a use, once. A clock that went back counts none. */
const used = (state: UserState, at: number): UserState => {
  const day = Math.floor(at / dayMs);
  return day > state.active.last ? { ...state, active: { days: state.active.days + 1, last: day } } : state;
};

/** Without the oldest unproved one where there are too many. */
const bounded = (domains: UserState['domains']): UserState['domains'] =>
  (domains.length <= limits.trustDomainsMax ? domains : domains.toSpliced(Math.max(0, domains.findIndex(({ verified_at }) => verified_at === null)), 1));

const changed = (state: UserState, id: string, change: (grant: Grant) => Grant): UserState =>
  ({ ...state, grants: state.grants.map((g) => (g.id === id ? change(g) : g)) });

export const fold: { readonly [K in keyof UserEvents]: (state: UserState, event: PayloadOf<UserEvents[K]>) => UserState } = {
  AccountCreated: (state, e) => ({ ...state, profile: { email: e.email, name: e.name, created_at: e.at, identities: [], policy: '' } }),
  NameLearnt: (state, e) => withProfile(state, (p) => ({ ...p, name: e.name })),
  IdentityAdded: (state, e) => withProfile(state, (p) => ({ ...p, identities: [...p.identities, { provider: e.provider, provider_id: e.provider_id }].slice(-limits.identitiesMax) })),
  GrantOpened: (state, e) => {
    const swept = used(sweep(state, e.at), e.at);
    return { ...swept, grants: [...swept.grants, { ...e.grant, created_at: e.at, used_at: null }] };
  },
  GrantUsed: (state, e) => changed(used(state, e.at), e.id, (g) => ({ ...g, used_at: e.at, expires_at: e.expires_at })),
  GrantRefreshed: (state, e) => {
    const old = state.grants.find((g) => g.id === e.id);
    if (old === undefined) return state;
    const former = { print: printOf(old.secret_sha256), grant_id: e.id, expires_at: old.expires_at };
    const next = changed({ ...state, former: [...state.former, former].slice(-limits.formerRefreshMax) }, e.id, (g) => ({
      ...g, secret_sha256: e.next_sha256, expires_at: e.expires_at, access_expires_at: Math.max(g.access_expires_at, e.access_expires_at), used_at: e.at,
    }));
    return sweep(used(next, e.at), e.at);
  },
  GrantsEnded: (state, e) => ({
    ...state,
    grants: state.grants.filter((g) => !e.ids.includes(g.id)),
    former: state.former.filter((f) => !e.ids.includes(f.grant_id)),
    revoked: state.revoked.filter((r) => !e.ids.includes(r.grant_id)),
    all_ended_at: e.why === 'revoked_all' ? e.at : state.all_ended_at,
  }),
  TokenRevoked: (state, e) => {
    const swept = sweep(state, e.at);
    return { ...swept, revoked: [...swept.revoked, { jti: e.jti, grant_id: e.grant_id, expires_at: e.expires_at }] };
  },
  DomainChallenged: (state, e) => ({ ...state, domains: bounded([...state.domains, { domain: e.domain, id: e.id, verified_at: null }]) }),
  DomainVerified: (state, e) => ({ ...state, domains: state.domains.map((d) => (d.domain === e.domain && d.id === e.id ? { ...d, verified_at: e.at } : d)) }),
  PolicyAccepted: (state, e) => withProfile(state, (p) => ({ ...p, policy: e.hash })),
};
