/**
 * The journal and its feed in process, for tests and for hosts that need no durability. Kept equal to the NATS one by
 * test/conformance.
 *
 * Guarantees S1-S3 of store.ts. `faults` makes it misbehave as a journal may: refuse or lose an append, store one and lose
 * its acknowledgement for good, hold acknowledgements back until told.
 */
import { coded, type ErrorCode } from '../../../contracts/errors.ts';
import { limits } from '../../../contracts/limits.ts';
import type { Feed, Journal, StoredMessage } from '../store.ts';

export interface JournalFaults {
  /** The next append stores nothing and throws the code. */
  failNext(code: ErrorCode): void;
  /** The next append is stored, and throws `journal_unavailable` as if that could not be found out. */
  loseNextAck(): void;
  /** Acknowledgements from now on wait for `release`. Appends are stored (or refused) at once all the same. */
  hold(): void;
  release(): void;
  /** Every operation throws `journal_unavailable` until called with false. */
  down(down: boolean): void;
  /** Resolves when the next append has arrived (and, if held, waits). */
  appended(): Promise<void>;
}

export interface MemoryJournal extends Journal {
  readonly faults: JournalFaults;
  /** Appends that were stored, and every call made: for tests that count round trips. */
  readonly counts: { appends: number; reads: number; lasts: number };
  /** Every message of a subject. */
  messages(subject: string): readonly StoredMessage[];
  /** Replaces a stored message's bytes: a disk that lies. */
  corrupt(subject: string, index: number, data: Uint8Array): void;
}

type Watcher = (data: Uint8Array, seq: number, previousSeq: number) => void;

/** `journal.<n>.<org>.<type>.<key>` → `events.<org>.<type>.<key>` (contracts/subjects.ts `republish`). */
const feedSubject = (subject: string): string => `events.${subject.split('.').slice(2).join('.')}`;

export const createMemoryJournal = (now: () => number): { journal: MemoryJournal; feed: Feed } => {
  const subjects = new Map<string, StoredMessage[]>();
  const watchers = new Map<string, Set<Watcher>>();
  const counts = { appends: 0, reads: 0, lasts: 0 };
  let seq = 0;
  let failure: ErrorCode | undefined;
  let ackLost = false;
  let isDown = false;
  let gate: { readonly opened: Promise<void>; readonly open: () => void } | undefined;
  let arrivals: (() => void)[] = [];

  const reachable = (): void => {
    if (isDown) throw coded('journal_unavailable');
  };

  const store = (subject: string, data: Uint8Array, expectedSeq: number): number => {
    reachable();
    if (failure !== undefined) {
      const code = failure;
      failure = undefined;
      throw coded(code);
    }
    const messages = subjects.get(subject);
    const previous = messages?.at(-1)?.seq ?? 0;
    if (previous !== expectedSeq) throw coded('fenced');
    seq += 1;
    counts.appends += 1;
    const message: StoredMessage = { subject, seq, time: now(), data };
    if (messages === undefined) subjects.set(subject, [message]);
    else messages.push(message);
    const stored = seq;
    for (const watcher of watchers.get(feedSubject(subject)) ?? []) queueMicrotask(() => { watcher(data, stored, previous); });
    if (ackLost) {
      ackLost = false;
      throw coded('journal_unavailable');
    }
    return stored;
  };

  const journal: MemoryJournal = {
    counts,
    async append(subject, data, expectedSeq) {
      let outcome: { readonly stored: number } | { readonly error: unknown };
      try {
        outcome = { stored: store(subject, data, expectedSeq) };
      } catch (error) {
        outcome = { error };
      }
      const arrived = arrivals;
      arrivals = [];
      for (const resolve of arrived) resolve();
      if (gate !== undefined) await gate.opened;
      if ('error' in outcome) throw outcome.error;
      return outcome.stored;
    },
    async erase(subject, upTo) {
      reachable();
      const left = (subjects.get(subject) ?? []).filter((message) => message.seq > upTo);
      if (left.length === 0) subjects.delete(subject);
      else subjects.set(subject, left);
    },
    async last(subject) {
      counts.lasts += 1;
      reachable();
      return subjects.get(subject)?.at(-1);
    },
    async firstFrom(subject, fromSeq) {
      reachable();
      return subjects.get(subject)?.find((message) => message.seq >= fromSeq);
    },
    async *read(subject, after, upTo, batchBytes = limits.replayBatchMaxBytes) {
      counts.reads += 1;
      reachable();
      let batch: StoredMessage[] = [];
      let bytes = 0;
      for (const message of (subjects.get(subject) ?? []).filter(({ seq }) => seq > after && seq <= upTo)) {
        batch.push(message);
        bytes += message.data.length;
        if (batch.length < limits.replayBatchCommits && bytes < batchBytes) continue;
        yield batch;
        batch = [];
        bytes = 0;
      }
      if (batch.length > 0) yield batch;
    },
    messages: (subject) => subjects.get(subject) ?? [],
    corrupt(subject, index, data) {
      const messages = subjects.get(subject);
      const message = messages?.[index];
      if (messages === undefined || message === undefined) throw new RangeError(`${subject} has no message ${index}`);
      messages[index] = { ...message, data };
    },
    faults: {
      failNext(code) { failure = code; },
      loseNextAck() { ackLost = true; },
      hold() {
        if (gate !== undefined) return;
        let open = (): void => undefined;
        const opened = new Promise<void>((resolve) => { open = resolve; });
        gate = { opened, open };
      },
      release() {
        gate?.open();
        gate = undefined;
      },
      down(down) { isDown = down; },
      appended: () => new Promise((resolve) => { arrivals.push(resolve); }),
    },
  };

  const feed: Feed = {
    async watch(subject, onCommit) {
      reachable();
      const set = watchers.get(subject) ?? new Set<Watcher>();
      watchers.set(subject, set);
      const watcher: Watcher = (data, at, previous) => { if (set.has(watcher)) onCommit(data, at, previous); };
      set.add(watcher);
      return {
        stop() {
          set.delete(watcher);
          if (set.size === 0) watchers.delete(subject);
        },
      };
    },
  };
  return { journal, feed };
};
