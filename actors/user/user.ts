/**
 * The user actor: one person's account, logins (grants) and acceptance of the terms. Key: address.ts; contract: contracts/user.ts.
 *
 * Guarantees
 * U1  Every token of the person is asked about here, so what a turn revoked is over for the next request, on whatever process.
 * U2  Of several refreshes with one token exactly one rotates; a replaced one that comes again ends its grant in the same turn.
 * U3  Secrets are here as SHA-256 only. What is kept is bounded: grants, replaced tokens, revoked tokens (contracts/limits.ts).
 * What only reads journals nothing; a use is noted at most once in `limits.grantTouchMs`.
 * It verifies no signature and knows no organization; memberships are the organizations'.
 */
import { coded } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { userCommands, userEvents, type Account, type GrantEnd, type NewGrant } from '../../contracts/user.ts';
import { defineActor, type PayloadOf, type Turn } from '../runtime/define.ts';
import { signinAddress } from '../signin/address.ts';
import { endOf, fold, initialUser, nameOfEmail, printOf, type Grant, type UserEvents, type UserState } from './state.ts';

interface UserTurn extends Pick<Turn<UserState, UserEvents, Record<never, never>>, 'state' | 'now' | 'self' | 'tell'> {
  emit<K extends keyof UserEvents>(kind: K, payload: PayloadOf<UserEvents[K]>): void;
}

const iso = (ms: number): string => new Date(ms).toISOString();

/** Throws `unauthorized` for no such user. */
const profileOf = ({ state }: UserTurn): NonNullable<UserState['profile']> => {
  if (state.profile === null) throw coded('unauthorized');
  return state.profile;
};

const accountOf = (turn: UserTurn): Account => {
  const { email, name, policy } = profileOf(turn);
  return { user_id: turn.self.key, email, name, policy };
};

const live = ({ state, now }: UserTurn): readonly Grant[] => state.grants.filter((g) => endOf(g) > now);

/** Ends them; gives how many there were. */
const end = (turn: UserTurn, grants: readonly Grant[], why: GrantEnd): { revoked: number } => {
  if (grants.length > 0) turn.emit('GrantsEnded', { ids: grants.map(({ id }) => id), why, at: turn.now });
  return { revoked: grants.length };
};

/** A grant more; one beyond `limits.grantsMax` takes the place of the one that was not used for longest. */
const open = (turn: UserTurn, grant: NewGrant): void => {
  const there = live(turn);
  if (there.length >= limits.grantsMax) {
    const ofKind = there.filter(({ kind }) => kind === grant.kind);
    const [idlest] = (ofKind.length > 0 ? ofKind : there).toSorted((a, b) => (a.used_at ?? a.created_at) - (b.used_at ?? b.created_at));
    if (idlest !== undefined) end(turn, [idlest], 'replaced');
  }
  turn.emit('GrantOpened', { grant, at: turn.now });
};

/** Notes a use if the last is long enough ago; a browser session begins its time anew. Gives the grant's secret's end. */
const touch = (turn: UserTurn, grant: Grant): number => {
  if (turn.now - (grant.used_at ?? grant.created_at) < limits.grantTouchMs) return grant.expires_at;
  const expires_at = grant.kind === 'browser' ? turn.now + limits.browserSessionTtlMs : grant.expires_at;
  turn.emit('GrantUsed', { id: grant.id, at: turn.now, expires_at });
  return expires_at;
};

/** The user actor's definition. It needs nothing from outside. */
export const user = () => defineActor({
  type: 'user',
  events: userEvents,
  initial: initialUser,
  apply: fold,
  stateVersion: 2,
  commands: (command) => ({
    sign_in: command({
      ...userCommands.sign_in, access: 'system',
      handle: (turn, { email, name, provider, provider_id, grant }) => {
        const { profile } = turn.state;
        const created = profile === null;
        if (!created && profile.email !== email) throw coded('conflict', 'The account has another e-mail address.');
        if (created) turn.emit('AccountCreated', { email, name: name === '' ? nameOfEmail(email) : name, at: turn.now });
        else if (name !== '' && profile.name !== name && profile.name === nameOfEmail(email)) turn.emit('NameLearnt', { name });
        const known = turn.state.profile?.identities.some((i) => i.provider === provider && i.provider_id === provider_id) === true;
        if (!known) turn.emit('IdentityAdded', { provider, provider_id, at: turn.now });
        // Who signs up by e-mail has proved the address already. A host that is lost before this leaves it to the next activation.
        if (created && provider !== 'email') turn.tell(signinAddress(email), 'start', { email, purpose: 'verify' });
        open(turn, grant);
        return { account: accountOf(turn), created };
      },
    }),
    open_grant: command({
      ...userCommands.open_grant, access: 'system',
      handle: (turn, { grant, agreed_at }) => {
        profileOf(turn);
        if (agreed_at !== undefined && agreed_at <= turn.state.all_ended_at) throw coded('unauthorized');
        open(turn, grant);
        return accountOf(turn);
      },
    }),
    refresh: command({
      ...userCommands.refresh, access: 'system',
      handle: (turn, { secret_sha256, next_sha256, expires_at, access_expires_at }) => {
        const { state, now } = turn;
        const grant = state.grants.find((g) => g.kind !== 'browser' && g.secret_sha256 === secret_sha256);
        if (grant !== undefined) {
          if (grant.expires_at <= now) return { state: 'expired' as const };
          turn.emit('GrantRefreshed', { id: grant.id, next_sha256, expires_at, access_expires_at, at: now });
          return { state: 'rotated' as const, grant_id: grant.id, kind: grant.kind, account: accountOf(turn) };
        }
        const former = state.former.find((f) => f.print === printOf(secret_sha256));
        if (former === undefined) return { state: 'unknown' as const };
        // RFC 9700 section 4.14.2: who of the two is the thief cannot be known.
        end(turn, state.grants.filter(({ id }) => id === former.grant_id), 'reused');
        return { state: 'reused' as const };
      },
    }),
    check: command({
      ...userCommands.check, access: 'system',
      handle: (turn, { grant_id, jti }) => {
        const grant = live(turn).find(({ id }) => id === grant_id);
        if (grant === undefined || turn.state.revoked.some((r) => r.jti === jti)) throw coded('unauthorized');
        // A console token's use is not the browser's own, which the cookie shows.
        if (grant.kind !== 'browser') touch(turn, grant);
        return accountOf(turn);
      },
    }),
    check_cookie: command({
      ...userCommands.check_cookie, access: 'system',
      handle: (turn, { secret_sha256 }) => {
        const grant = turn.state.grants.find((g) => g.kind === 'browser' && g.secret_sha256 === secret_sha256);
        if (grant === undefined || grant.expires_at <= turn.now) throw coded('unauthorized');
        return { grant_id: grant.id, expires_at: touch(turn, grant), account: accountOf(turn) };
      },
    }),
    revoke_token: command({
      ...userCommands.revoke_token, access: 'system',
      handle: (turn, { grant_id, jti, expires_at }) => {
        const { state, now } = turn;
        const grant = live(turn).find(({ id }) => id === grant_id);
        if (grant === undefined || expires_at <= now || state.revoked.some((r) => r.jti === jti)) return { revoked: 0 };
        // What cannot be remembered singly must not come back to life.
        if (state.revoked.filter((r) => r.expires_at > now).length >= limits.revokedTokensMax) return end(turn, [grant], 'revoked');
        turn.emit('TokenRevoked', { grant_id, jti, expires_at, at: now });
        return { revoked: 1 };
      },
    }),
    revoke_refresh: command({
      ...userCommands.revoke_refresh, access: 'system',
      handle: (turn, { secret_sha256 }) => {
        // A replaced one stands for its family too.
        const former = turn.state.former.find((f) => f.print === printOf(secret_sha256));
        return end(turn, live(turn).filter((g) => g.kind !== 'browser' && (g.secret_sha256 === secret_sha256 || g.id === former?.grant_id)), 'revoked');
      },
    }),
    revoke_grant: command({
      ...userCommands.revoke_grant, access: 'system',
      handle: (turn, { grant_id, why }) => end(turn, live(turn).filter(({ id }) => id === grant_id), why),
    }),
    revoke_all: command({
      ...userCommands.revoke_all, access: 'system',
      handle: (turn) => end(turn, live(turn), 'revoked_all'),
    }),
    grants: command({
      ...userCommands.grants, access: 'system',
      handle: (turn) => ({
        grants: live(turn).map((g) => ({
          id: g.id, kind: g.kind, clientId: g.client_id, createdAt: iso(g.created_at), lastUsedAt: g.used_at === null ? null : iso(g.used_at),
          expiresAt: iso(endOf(g)), ipAddress: g.ip, userAgent: g.user_agent,
        })),
      }),
    }),
    accept_policy: command({
      ...userCommands.accept_policy, access: 'system',
      handle: (turn, { hash, version, ip, user_agent }) => {
        if (profileOf(turn).policy !== hash) turn.emit('PolicyAccepted', { hash, version, ip, user_agent, at: turn.now });
        return accountOf(turn);
      },
    }),
    profile: command({
      ...userCommands.profile, access: 'system',
      handle: (turn) => {
        const { created_at, identities } = profileOf(turn);
        return { account: accountOf(turn), created_at, identities: [...new Set(identities.map(({ provider }) => provider))] };
      },
    }),
    trust_facts: command({
      ...userCommands.trust_facts, access: 'system',
      handle: (turn) => {
        const { created_at, identities } = profileOf(turn);
        const { active, domains } = turn.state;
        return {
          created_at, active_days: active.days, identities: [...new Set(identities.map(({ provider }) => provider))],
          domains_verified: domains.filter(({ verified_at: at }) => at !== null).length,
        };
      },
    }),
    verify_email: command({
      ...userCommands.verify_email, access: 'system',
      handle: (turn) => {
        const { email, identities } = profileOf(turn);
        if (!identities.some(({ provider }) => provider === 'email')) turn.emit('IdentityAdded', { provider: 'email', provider_id: email, at: turn.now });
        return {};
      },
    }),
    challenge_domain: command({
      ...userCommands.challenge_domain, access: 'system',
      handle: (turn, { domain, id }) => {
        profileOf(turn);
        const { domains } = turn.state;
        const known = domains.find((d) => d.domain === domain);
        if (known !== undefined) return { id: known.id };
        if (domains.filter(({ verified_at: at }) => at !== null).length >= limits.trustDomainsMax) {
          throw coded('validation_error', 'The account has verified enough domains.', { details: { field: 'domain', constraint: `at most ${limits.trustDomainsMax}` } });
        }
        turn.emit('DomainChallenged', { domain, id, at: turn.now });
        return { id };
      },
    }),
    domain_challenge: command({
      ...userCommands.domain_challenge, access: 'system',
      handle: (turn, { domain }) => ({ id: turn.state.domains.find((d) => d.domain === domain)?.id ?? null }),
    }),
    confirm_domain: command({
      ...userCommands.confirm_domain, access: 'system',
      handle: (turn, { domain, id }) => {
        const challenge = turn.state.domains.find((d) => d.domain === domain && d.id === id);
        if (challenge !== undefined && challenge.verified_at === null) turn.emit('DomainVerified', { domain, id, at: turn.now });
        return { known: challenge !== undefined };
      },
    }),
    policy: command({
      ...userCommands.policy, access: 'system',
      handle: (turn) => ({ policy: profileOf(turn).policy }),
    }),
  }),
});

export type UserCommands = NonNullable<ReturnType<typeof user>['types']>['commands'];
