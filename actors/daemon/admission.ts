/**
 * Who may use the edge now: the capability is good (capability.ts), and what stands behind it still does. A login of the platform must not
 * have ended, nor the access token that led here have been revoked; whoever acts for an organization of ours must be a member of it, and may start chats only from member up.
 *
 * Guarantees
 * A1  Both are asked of their actors with every request and at the opening of every stream: nothing is remembered.
 * A2  A stream is told of their end when it is journaled: first it watches the feeds, then it asks, so nothing falls between. The feeds may
 *     drop a commit (at most once): a hole shows by its numbers, a lost connection by its return, and all is asked again every
 *     `limits.accessCheckMs` in any case.
 * A3  What the actors could not be asked about is refused at the opening; an open stream stays until they answer.
 * Identities of other providers, and their organizations, are not looked after: nobody tells us of their end.
 */
import { coded, CodedError } from '../../contracts/errors.ts';
import { isOrganizationId } from '../../contracts/ids.ts';
import { limits } from '../../contracts/limits.ts';
import { organizationCommands } from '../../contracts/organization.ts';
import { organizationEvents } from '../../contracts/organization-events.ts';
import { allows, type Permission } from '../../contracts/permissions.ts';
import type { Route, UserPrincipal } from '../../contracts/routes.ts';
import { eventsSubject, type ActorAddress } from '../../contracts/subjects.ts';
import { userCommands, userEvents } from '../../contracts/user.ts';
import { decodeCommit } from '../runtime/commit.ts';
import type { Sender } from '../runtime/message.ts';
import type { Feed } from '../runtime/store.ts';
import { userAddress } from '../user/address.ts';
import type { Capabilities } from './capability.ts';
import type { Log } from './log.ts';
import { askBy } from './platform/ask.ts';

/** A stream's admission while it lasts. */
export interface Held {
  readonly principal: UserPrincipal;
  /** False for a member who may only read. */
  readonly mayWrite: () => boolean;
  /** Nobody needs it any more. */
  readonly release: () => void;
}

export interface Admission extends Pick<Capabilities, 'authorise'> {
  /** As `authorise`, for as long as a stream is open: `onLost` is called once when the admission ends. Throws `access_ended` besides. */
  hold(route: Route, token: string, onLost: () => void): Promise<Held | undefined>;
  close(): void;
}

export interface AdmissionOptions {
  readonly capabilities: Pick<Capabilities, 'identify'>;
  readonly actors: Pick<Sender, 'ask'>;
  readonly feed: Feed;
  readonly log: Log;
}

interface Who {
  readonly sub: string;
  readonly org: string;
  readonly grant: string | undefined;
  /** `jti` of the access token behind it. */
  readonly parent: string | undefined;
}

interface Holder {
  readonly who: Who;
  mayWrite: boolean;
  /** Ends it; a second call does nothing. */
  readonly lose: () => void;
}

/** One actor's feed and who depends on it. */
interface Watched {
  readonly holders: Set<Holder>;
  readonly feed: Promise<{ stop(): void }>;
  /** Stream sequence of the last commit seen; 0 = none yet. */
  lastSeq: number;
}

/** Routes that begin or feed a chat; all others only look. */
const writes: ReadonlySet<string> = new Set(['create_session', 'put_blob']);
const isGuarded = ({ org, grant }: Who): boolean => grant !== undefined || isOrganizationId(org);
const organizationOf = ({ org }: Who): ActorAddress | undefined => (isOrganizationId(org) ? { org, type: 'organization', key: org } : undefined);

export const createAdmission = ({ capabilities, actors, feed, log }: AdmissionOptions): Admission => {
  const askUser = askBy(actors, userCommands);
  const askOrganization = askBy(actors, organizationCommands);
  const watched = new Map<string, Watched>();
  const holders = new Set<Holder>();

  /** Throws `access_ended`, `forbidden`, faults. Gives whether chats may be written. */
  const check = async (who: Who, permission: Permission): Promise<boolean> => {
    const organization = organizationOf(who);
    try {
      const [, standing] = await Promise.all([
        who.grant === undefined ? undefined : askUser(userAddress(who.sub), 'check', { grant_id: who.grant, jti: who.parent ?? '' }),
        organization === undefined ? undefined : askOrganization(organization, 'authorise', { permission, by: { actor: who.sub, ip: '', user_agent: '' } }),
      ]);
      return standing === undefined || (standing.role !== null && allows(standing.role, 'chat.create'));
    } catch (error) {
      if (error instanceof CodedError && error.entry.kind === 'refusal' && error.code !== 'forbidden' && error.entry.retry === 'never') throw coded('access_ended', undefined, { cause: error });
      throw error;
    }
  };

  const recheck = async (holder: Holder): Promise<void> => {
    if (!holders.has(holder)) return;
    try {
      holder.mayWrite = await check(holder.who, 'chat.read');
    } catch (error) {
      if (!(error instanceof CodedError) || error.entry.kind === 'bug') throw error;
      if (error.code === 'access_ended' || error.code === 'forbidden') holder.lose();
      else log.debug({ code: error.code }, 'whether a stream may stay open could not be asked; it is asked again');
    }
  };

  /** So many at a time, one group after the other. Never rejects. */
  const recheckAll = async (of: readonly Holder[]): Promise<void> => {
    for (let i = 0; i < of.length; i += limits.accessChecksMax) {
      const outcomes = await Promise.allSettled(of.slice(i, i + limits.accessChecksMax).map(recheck));
      for (const outcome of outcomes) if (outcome.status === 'rejected') log.error({ err: outcome.reason as unknown }, 'a stream\'s admission could not be checked');
    }
  };

  /** What one event of the user or the organization means for a holder. Throws for an event that is not its contract's. */
  const take = (holder: Holder, kind: string, payload: unknown): void => {
    const { sub, grant } = holder.who;
    switch (kind) {
      case 'GrantsEnded':
        if (grant !== undefined && userEvents.GrantsEnded.parse(payload).ids.includes(grant)) holder.lose();
        return;
      case 'TokenRevoked': {
        const { parent } = holder.who;
        if (parent !== undefined && userEvents.TokenRevoked.parse(payload).jti === parent) holder.lose();
        return;
      }
      case 'OrganizationDeleted':
        holder.lose();
        return;
      case 'MemberRemoved':
        if (organizationEvents.MemberRemoved.parse(payload).user_id === sub) holder.lose();
        return;
      case 'MemberRoleChanged': {
        const changed = organizationEvents.MemberRoleChanged.parse(payload);
        if (changed.user_id === sub) holder.mayWrite = allows(changed.to, 'chat.create');
        return;
      }
      case 'OwnershipTransferred':
        if (organizationEvents.OwnershipTransferred.parse(payload).to === sub) holder.mayWrite = true;
        return;
      default:
    }
  };

  const onCommit = (entry: Watched, data: Uint8Array, seq: number, previousSeq: number): void => {
    const hole = entry.lastSeq !== 0 && previousSeq !== entry.lastSeq;
    entry.lastSeq = seq;
    try {
      const { ev } = decodeCommit(data);
      for (const { k, d } of ev) for (const holder of entry.holders) take(holder, k, d);
      if (!hole) return;
    } catch (error) {
      log.warn({ err: error }, 'a commit of a feed could not be read; who depends on it is checked');
    }
    void recheckAll([...entry.holders]);
  };

  const stop = (entry: Watched): void => {
    // A subscription that never came about needs no end.
    entry.feed.then((subscription) => subscription.stop(), () => undefined);
  };

  /** Resolves when the server has the subscription. */
  const watch = async (address: ActorAddress, holder: Holder): Promise<() => void> => {
    const subject = eventsSubject(address);
    const there = watched.get(subject);
    const entry: Watched = there ?? {
      holders: new Set(), lastSeq: 0,
      feed: feed.watch(subject, (data, seq, previousSeq) => onCommit(entry, data, seq, previousSeq), () => void recheckAll([...entry.holders])),
    };
    if (there === undefined) watched.set(subject, entry);
    entry.holders.add(holder);
    const release = (): void => {
      entry.holders.delete(holder);
      if (entry.holders.size > 0 || watched.get(subject) !== entry) return;
      watched.delete(subject);
      stop(entry);
    };
    try {
      await entry.feed;
    } catch (error) {
      release();
      throw error;
    }
    return release;
  };

  let sweeping = false;
  const sweep = setInterval(() => {
    if (sweeping || holders.size === 0) return;
    sweeping = true;
    void recheckAll([...holders]).finally(() => { sweeping = false; });
  }, limits.accessCheckMs);
  sweep.unref();

  return {
    authorise: async (route, token) => {
      const identified = await capabilities.identify(route, token);
      if (identified === undefined) return undefined;
      const { principal, grant, parent } = identified;
      const who = { sub: principal.sub, org: principal.org, grant, parent };
      if (isGuarded(who)) await check(who, writes.has(route.id) ? 'chat.create' : 'chat.read');
      return principal;
    },
    hold: async (route, token, onLost) => {
      const identified = await capabilities.identify(route, token);
      if (identified === undefined) return undefined;
      const { principal, grant, parent } = identified;
      const who: Who = { sub: principal.sub, org: principal.org, grant, parent };
      if (!isGuarded(who)) return { principal, mayWrite: () => true, release: () => undefined };
      const releases: (() => void)[] = [];
      const release = (): void => {
        holders.delete(holder);
        for (const step of releases.splice(0)) step();
      };
      const holder: Holder = {
        who, mayWrite: false,
        lose: () => {
          if (!holders.has(holder)) return;
          release();
          onLost();
        },
      };
      holders.add(holder);
      try {
        const organization = organizationOf(who);
        for (const address of [...(grant === undefined ? [] : [userAddress(who.sub)]), ...(organization === undefined ? [] : [organization])]) releases.push(await watch(address, holder));
        holder.mayWrite = await check(who, 'chat.read');
      } catch (error) {
        release();
        throw error;
      }
      if (!holders.has(holder)) throw coded('access_ended');
      return { principal, mayWrite: () => holder.mayWrite, release };
    },
    close: () => {
      clearInterval(sweep);
      holders.clear();
      for (const entry of watched.values()) stop(entry);
      watched.clear();
    },
  };
};
