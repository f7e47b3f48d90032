/**
 * The end of one actor's journal as it grows, for one reader: every commit after the moment it was opened.
 *
 * Guarantees: commits come in the order of the journal, none left out, none twice; nothing that was not acknowledged (G2). Subscribed
 * first, read then: what falls between is read from the journal, as is what was dropped on the way or did not fit while the reader took
 * its time (at most `limits.tailQueueMaxBytes` wait). It never wakes the actor. While the journal does not answer, it waits.
 */
import { setTimeout as pause } from 'node:timers/promises';
import { CodedError, coded } from '../../contracts/errors.ts';
import type { Commit } from '../../contracts/event.ts';
import { limits } from '../../contracts/limits.ts';
import { eventsSubject, journalSubject, partitionOf, type ActorAddress } from '../../contracts/subjects.ts';
import { decodeCommit } from '../runtime/commit.ts';
import type { Feed, Journal } from '../runtime/store.ts';

export interface TailSource {
  readonly journal: Journal;
  readonly feed: Feed;
  readonly partitions: number;
  /** Default `limits.tailCheckMs`. */
  readonly checkMs?: number;
  /** Default `limits.tailQueueMaxBytes`. */
  readonly queueMaxBytes?: number;
}

export interface Tail {
  /** The commits, one reader only; ends when the signal aborts. Throws `journal_unreadable`; `not_found` when the journal is no more, seen after `limits.tailCheckMs` at the latest. */
  commits(): AsyncGenerator<Commit, void, undefined>;
  stop(): void;
}

interface Arrived {
  readonly data: Uint8Array;
  readonly seq: number;
  readonly before: number;
}

/** Opens one; what is committed from now on will come. Throws the journal's faults. `signal` ends it. */
export const openTail = async (source: TailSource, address: ActorAddress, signal: AbortSignal): Promise<Tail> => {
  const { journal, feed } = source;
  const checkMs = source.checkMs ?? limits.tailCheckMs;
  const queueMax = source.queueMaxBytes ?? limits.tailQueueMaxBytes;
  const subject = journalSubject(partitionOf(address, source.partitions), address);
  let queue: Arrived[] = [];
  let bytes = 0;
  /** Stream sequence up to which commits are known to exist, and of the last one given. */
  let target = 0;
  let at = 0;
  let wake = (): void => undefined;

  const aim = (seq: number): void => {
    target = Math.max(target, seq);
    wake();
  };
  const arrive = (data: Uint8Array, seq: number, before: number): void => {
    bytes += data.byteLength;
    if (bytes > queueMax) {
      queue = [];
      bytes = 0;
    } else {
      queue.push({ data, seq, before });
    }
    aim(seq);
  };
  const look = async (): Promise<void> => {
    const last = await retried(() => journal.last(subject), signal);
    if (last !== undefined) aim(last.seq);
    else if (Math.max(at, target) > 0) throw erased();
  };
  /** Runs beside the reader: what it throws is the reader's. */
  let failure: { readonly error: unknown } | undefined;
  const lookSoon = (): void => {
    look().catch((error: unknown) => {
      if (!signal.aborted) failure = { error };
      wake();
    });
  };

  const [subscription, last] = await bothOf(feed.watch(eventsSubject(address), arrive, lookSoon), journal.last(subject));
  at = last?.seq ?? 0;
  const stop = (): void => {
    signal.removeEventListener('abort', stop);
    subscription.stop();
    wake();
  };
  signal.addEventListener('abort', stop, { once: true });
  if (signal.aborted) stop();

  const news = (): Promise<void> => new Promise((resolve) => {
    const timer = setTimeout(lookSoon, checkMs);
    wake = () => {
      clearTimeout(timer);
      wake = () => undefined;
      resolve();
    };
  });

  async function* missing(upTo: number): AsyncGenerator<Commit, void, undefined> {
    while (at < upTo && !signal.aborted) {
      const from = at;
      // A page each: a slow reader keeps no read open.
      const page = await retried(async () => {
        for await (const batch of journal.read(subject, from, upTo)) return batch;
        if (await journal.last(subject) === undefined) return undefined;
        throw coded('journal_unavailable', 'A commit that was announced cannot be read.');
      }, signal);
      if (page === undefined) throw erased();
      for (const { seq, data } of page) {
        at = seq;
        yield decodeCommit(data);
      }
    }
  }

  async function* commits(): AsyncGenerator<Commit, void, undefined> {
    while (!signal.aborted) {
      if (failure !== undefined) throw failure.error;
      const next = queue[0];
      if (next === undefined) {
        if (target > at) yield* missing(target);
        else await news();
      } else if (next.seq <= at || next.before === at) {
        queue.shift();
        bytes -= next.data.byteLength;
        if (next.seq <= at) continue;
        at = next.seq;
        yield decodeCommit(next.data);
      } else {
        yield* missing(next.before);
      }
    }
  }

  return { commits, stop };
};

/** Its actor was erased, as with its deployment: nothing will ever come. */
const erased = (): CodedError => coded('not_found', 'What was read here has been erased.');

/** Both, or neither: a subscription is not left behind when the read fails. */
const bothOf = async <A extends { stop(): void }, B>(first: Promise<A>, second: Promise<B>): Promise<[A, B]> => {
  const [a, b] = await Promise.allSettled([first, second]);
  if (a.status === 'rejected') throw a.reason;
  if (b.status === 'fulfilled') return [a.value, b.value];
  a.value.stop();
  throw b.reason;
};

/** Repeats while the journal does not answer and somebody reads: an outage of NATS is latency, not an end. */
const retried = async <T>(work: () => Promise<T>, signal: AbortSignal): Promise<T> => {
  for (;;) {
    try {
      return await work();
    } catch (error) {
      if (signal.aborted || !(error instanceof CodedError) || error.entry.kind !== 'fault') throw error;
      await pause(limits.tailRetryMs, undefined, { signal }).catch(() => { throw coded('aborted'); });
    }
  }
};
