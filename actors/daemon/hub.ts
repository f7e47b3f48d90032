/**
 * The hub: every session that is watched through this daemon (design, Session stream). Serves a stream from JetStream alone; it
 * never activates an actor, so any daemon can serve any session's watchers.
 *
 * Guarantees: only the owner sees a session, to anybody else it does not exist (4010); a position beyond the head or no longer in the
 * journal is refused (4005), never answered with something else; sessions, watchers and replays are bounded.
 * What a watcher then gets is watched.ts' promise (G3).
 */
import { CodedError } from '../../contracts/errors.ts';
import { closeCodes, type CloseName } from '../../contracts/close.ts';
import { limits } from '../../contracts/limits.ts';
import { sidPattern } from '../../contracts/routes.ts';
import { addressTokens, eventsSubject, journalSubject, partitionOf, type ActorAddress } from '../../contracts/subjects.ts';
import type { Feed, Journal } from '../runtime/store.ts';
import type { Upcast } from './frames.ts';
import type { Log } from './log.ts';
import { createOwners } from './owner.ts';
import type { Budget } from './ring.ts';
import { Slots } from './slots.ts';
import { WatchedSession } from './watched.ts';
import type { Outlet, Sink, Watcher } from './watcher.ts';

export interface HubOptions {
  readonly journal: Journal;
  readonly feed: Feed;
  readonly partitions: number;
  readonly log: Log;
  /** Default: payloads as they are. */
  readonly upcast?: Upcast;
  /** Whose a session is whose beginning was trimmed from the journal. Absent = nobody's. */
  readonly askActor?: (address: ActorAddress, sub: string) => Promise<boolean>;
  /** Default `limits.hubLingerMs`. */
  readonly lingerMs?: number;
  /** Default `limits.hubCheckMs`. */
  readonly checkMs?: number;
}

export interface Attach {
  readonly org: string;
  readonly sid: string;
  readonly sub: string;
  /** Absent = what the running turn has shown so far, then live. */
  readonly lastSeqNo?: number | undefined;
}

export interface Watch {
  /** True once the caller is known to own the session and watches it; false if it was refused or left before. */
  readonly attached: Promise<boolean>;
  /** The sink has more room than before. */
  onRoom(): void;
  /** The sink is gone. */
  detach(): void;
}

export interface Hub {
  /** Starts watching; a refusal closes the sink. Gives the handle at once. */
  attach(request: Attach, sink: Sink): Watch;
  /** A connection takes bytes again after it was full. */
  onDrain(outlet: Outlet): void;
  stats(): { readonly sessions: number; readonly watchers: number };
  /** Closes every watcher with 1001 and stops. */
  close(): void;
}

interface Entry {
  readonly key: string;
  readonly session: WatchedSession;
  /** Attachments under way: they keep it open. */
  attaching: number;
  linger: NodeJS.Timeout | undefined;
  /** A periodic look is under way. */
  checking: boolean;
}

export const createHub = (options: HubOptions): Hub => {
  const { journal, feed, partitions, log } = options;
  const lingerMs = options.lingerMs ?? limits.hubLingerMs;
  const upcast: Upcast = options.upcast ?? ((event) => event.d);
  const owners = createOwners({ journal, ...(options.askActor === undefined ? {} : { askActor: options.askActor }) });
  const entries = new Map<string, Entry>();
  const budget: Budget = { bytes: 0 };
  const replays = new Slots(limits.hubReplaysMax);
  const checks = new Slots(limits.hubReplaysMax);
  let closed = false;

  const remove = (entry: Entry, name: CloseName): void => {
    clearTimeout(entry.linger);
    if (entries.get(entry.key) === entry) entries.delete(entry.key);
    entry.session.end(name);
  };

  const settle = (entry: Entry): void => {
    if (entry.session.isEnded) {
      remove(entry, 'internal_error');
      return;
    }
    if (entry.attaching > 0 || entry.session.watchers > 0) return;
    clearTimeout(entry.linger);
    entry.linger = setTimeout(() => {
      if (entry.attaching === 0 && entry.session.watchers === 0) remove(entry, 'going_away');
    }, lingerMs);
  };

  const entryOf = (address: ActorAddress): Entry | undefined => {
    const key = addressTokens(address);
    const known = entries.get(key);
    if (known !== undefined && !known.session.isEnded) return known;
    if (entries.size >= limits.hubSessionsMax) return undefined;
    const session = new WatchedSession({
      sid: address.key, journal, feed, upcast, budget, replays, log,
      // One that ended by itself must not stay in the map: nobody may come back for it.
      onEnd: () => {
        if (entries.get(key)?.session === session) entries.delete(key);
      },
      journalSubject: journalSubject(partitionOf(address, partitions), address),
      eventsSubject: eventsSubject(address),
    });
    const entry: Entry = { key, session, attaching: 0, linger: undefined, checking: false };
    entries.set(key, entry);
    return entry;
  };

  /** The session's watcher for the sink, or why not. */
  const place = async (session: WatchedSession, sink: Sink, lastSeqNo: number | undefined, isGone: () => boolean): Promise<Watcher | CloseName | undefined> => {
    await session.opened;
    // Another daemon may have shown the client an event that has not reached this one yet.
    if (lastSeqNo !== undefined && lastSeqNo > session.head) await session.refresh();
    if (isGone()) return undefined;
    if (session.isEnded) return 'upstream_unavailable';
    if (lastSeqNo !== undefined && lastSeqNo > session.head) return 'sequence_retired';
    if (session.watchers >= limits.watchersMax) return 'upstream_unavailable';
    return session.add(sink, lastSeqNo ?? session.mark);
  };

  const check = (entry: Entry): void => {
    // One at a time each, so that an outage of the journal does not pile them up.
    entry.checking = true;
    checks.run(() => entry.session.refresh())
      .catch((error: unknown) => log.debug({ code: codeOf(error) }, 'a watched session could not be checked'))
      .finally(() => {
        entry.checking = false;
      });
  };

  const sweep = setInterval(() => {
    for (const entry of entries.values()) {
      if (entry.session.watchers > 0 && !entry.checking) check(entry);
    }
  }, options.checkMs ?? limits.hubCheckMs);

  return {
    attach: (request, sink) => {
      let watcher: Watcher | undefined;
      let entry: Entry | undefined;
      let gone = false;

      const refuse = (name: CloseName): void => {
        if (gone) return;
        gone = true;
        sink.close(closeCodes[name].code, closeCodes[name].reason);
      };

      const run = async (): Promise<void> => {
        if (closed) return refuse('going_away');
        if (!sidPattern.test(request.sid)) return refuse('session_not_found');
        const address: ActorAddress = { org: request.org, type: 'session', key: request.sid };
        const subject = journalSubject(partitionOf(address, partitions), address);
        if (!(await owners.owns(address, subject, request.sub))) return refuse('session_not_found');
        if (gone) return;
        const found = entryOf(address);
        if (found === undefined) return refuse('upstream_unavailable');
        entry = found;
        found.attaching += 1;
        clearTimeout(found.linger);
        try {
          const placed = await place(found.session, sink, request.lastSeqNo, () => gone);
          if (typeof placed === 'string') refuse(placed);
          else watcher = placed;
        } catch (error) {
          // It could not be opened; the next to come tries afresh.
          if (!found.session.isEnded && found.session.watchers === 0) remove(found, 'upstream_unavailable');
          throw error;
        } finally {
          found.attaching -= 1;
          settle(found);
        }
      };

      const attached = run().then(
        () => watcher !== undefined,
        (error: unknown) => {
          const name = closeNameOf(error);
          if (name === 'internal_error') log.error({ err: error }, 'a stream could not be attached');
          else log.debug({ code: codeOf(error) }, 'a stream could not be attached');
          refuse(name);
          return false;
        },
      );

      return {
        attached,
        onRoom: () => {
          if (watcher !== undefined && watcher.runnable) entry?.session.resume();
        },
        detach: () => {
          gone = true;
          if (entry === undefined || watcher === undefined) return;
          entry.session.remove(watcher);
          watcher = undefined;
          settle(entry);
        },
      };
    },
    onDrain: () => {
      for (const entry of entries.values()) entry.session.resume();
    },
    stats: () => {
      let watchers = 0;
      for (const entry of entries.values()) watchers += entry.session.watchers;
      return { sessions: entries.size, watchers };
    },
    close: () => {
      closed = true;
      clearInterval(sweep);
      for (const entry of entries.values()) remove(entry, 'going_away');
    },
  };
};

const codeOf = (error: unknown): string => (error instanceof CodedError ? error.code : 'internal_error');

/** The close code a failed stream ends with: what the world did is 4004 (come back), what we did is 1011. */
export const closeNameOf = (error: unknown): CloseName => {
  if (!(error instanceof CodedError)) return 'internal_error';
  switch (error.code) {
    case 'session_not_found':
      return 'session_not_found';
    case 'sequence_retired':
      return 'sequence_retired';
    default:
      return error.entry.kind === 'bug' || error.entry.kind === 'refusal' ? 'internal_error' : 'upstream_unavailable';
  }
};
