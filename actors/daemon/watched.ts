/**
 * One watched session: its live commits, its holes, and everybody who watches it (design, Session stream; G3).
 *
 * Guarantees:
 * W1  Every watcher gets at + 1, at + 2 … without gap, repeat or reorder: a frame is sent to a watcher only if it is the next.
 * W2  Subscribed first, read then: what was committed between the two is seen as a hole and filled from the journal.
 * W3  A hole (previous sequence is not ours, NATS was away, a periodic look finds a later commit) is filled before anything after
 *     it is sent.
 * W4  A watcher without credit, or whose connection is full, becomes a cursor; it reads on from the ring or the journal, one
 *     batch a turn, sharing the batch with all who stand in it. Nothing is kept for it.
 * It never writes, and never wakes the actor.
 */
import { setTimeout as wait } from 'node:timers/promises';
import { coded, CodedError } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { closeCodes, type CloseName } from '../../contracts/close.ts';
import { decodeCommit } from '../runtime/commit.ts';
import type { Feed, Journal, StoredMessage } from '../runtime/store.ts';
import { framesOf, groupsOf, lastOf, type CommitFrames, type Upcast } from './frames.ts';
import { locate } from './locate.ts';
import type { Log } from './log.ts';
import { Ring, type Budget } from './ring.ts';
import type { Slots } from './slots.ts';
import { Watcher, type Outlet, type Sink } from './watcher.ts';

export interface WatchedOptions {
  readonly sid: string;
  readonly journalSubject: string;
  readonly eventsSubject: string;
  readonly journal: Journal;
  readonly feed: Feed;
  readonly upcast: Upcast;
  readonly budget: Budget;
  /** Bounds the replay reads of all sessions of the hub. */
  readonly replays: Slots;
  readonly log: Log;
  /** It has ended, by itself or by `end`. */
  readonly onEnd: () => void;
}

export class WatchedSession {
  readonly #options: WatchedOptions;
  readonly #ring: Ring;
  /** Those who have everything up to the head, by connection. */
  readonly #live = new Map<Outlet, Set<Watcher>>();
  /** Those who are behind it, in the order of their turns. */
  readonly #behind = new Set<Watcher>();
  readonly #ended = new AbortController();
  /** Resolves when the head is known. Rejects with what opening threw. */
  readonly opened: Promise<void>;
  #isOpen = false;
  #subscription: { stop(): void } | undefined;
  /** Stream sequence of the last commit taken, and of the latest one known to exist. */
  #headSeq = 0;
  #target = 0;
  #head = 0;
  #mark = 0;
  #filling: Promise<void> | undefined;
  #replaying = false;

  constructor(options: WatchedOptions) {
    this.#options = options;
    this.#ring = new Ring(options.budget);
    this.opened = this.#open();
  }

  get watchers(): number {
    let count = this.#behind.size;
    for (const set of this.#live.values()) count += set.size;
    return count;
  }

  /** `seq_no` of the last event taken, and where a watcher without a position starts. */
  get head(): number {
    return this.#head;
  }
  get mark(): number {
    return this.#mark;
  }

  /** Adds a watcher that has everything up to `at`, which must not be beyond the head. */
  add(sink: Sink, at: number): Watcher {
    const watcher = new Watcher(sink, at);
    if (at === this.#head) this.#setLive(watcher);
    else {
      this.#behind.add(watcher);
      this.resume();
    }
    return watcher;
  }

  remove(watcher: Watcher): void {
    this.#behind.delete(watcher);
    this.#unsetLive(watcher);
  }

  /** Somebody who was behind may take more: replays go on. */
  resume(): void {
    if (this.#replaying || this.#ended.signal.aborted) return;
    if (this.#nextRunnable() === undefined) return;
    this.#replay().catch((error: unknown) => this.#fail(error));
  }

  /** Looks at the journal's last commit and fills what is missing here. Throws `journal_unavailable`. */
  async refresh(): Promise<void> {
    const last = await this.#options.journal.last(this.#options.journalSubject);
    if (last === undefined || this.#ended.signal.aborted) return;
    this.#aim(last.seq);
    while (this.#filling !== undefined && this.#headSeq < last.seq) await this.#filling;
  }

  /** Ends it: no more commits are taken, every watcher is closed. */
  end(name: CloseName): void {
    if (this.#ended.signal.aborted) return;
    this.#ended.abort();
    this.#subscription?.stop();
    this.#ring.clear();
    const { code, reason } = closeCodes[name];
    const all = [...this.#behind, ...[...this.#live.values()].flatMap((set) => [...set])];
    this.#behind.clear();
    this.#live.clear();
    for (const watcher of all) watcher.sink.close(code, reason);
    this.#options.onEnd();
  }

  async #open(): Promise<void> {
    const { feed, journal, eventsSubject, journalSubject } = this.#options;
    const subscription = await feed.watch(
      eventsSubject,
      (data, seq, previousSeq) => this.#onCommit(data, seq, previousSeq),
      () => this.#onGap(),
    );
    if (this.#ended.signal.aborted) {
      subscription.stop();
      return;
    }
    this.#subscription = subscription;
    const last = await journal.last(journalSubject);
    if (last === undefined) throw coded('session_not_found');
    const commit = decodeCommit(last.data);
    this.#headSeq = last.seq;
    this.#head = commit.f + commit.c - 1;
    this.#mark = commit.m;
    this.#isOpen = true;
    this.#aim(this.#target);
  }

  #onCommit(data: Uint8Array, seq: number, previousSeq: number): void {
    if (this.#ended.signal.aborted) return;
    if (!this.#isOpen || this.#filling !== undefined || previousSeq !== this.#headSeq) {
      this.#aim(seq);
      return;
    }
    if (seq <= this.#headSeq) return;
    this.#target = Math.max(this.#target, seq);
    try {
      this.#take(framesOf(this.#options.sid, seq, data, this.#options.upcast));
    } catch (error) {
      this.#fail(error);
    }
  }

  #onGap(): void {
    this.#retry(() => this.refresh()).catch((error: unknown) => this.#fail(error));
  }

  /** Commits up to `seq` exist: reads what is missing, unless that is under way already. */
  #aim(seq: number): void {
    this.#target = Math.max(this.#target, seq);
    if (!this.#isOpen || this.#filling !== undefined || this.#target <= this.#headSeq || this.#ended.signal.aborted) return;
    this.#filling = this.#retry(() => this.#fill())
      .catch((error: unknown) => this.#fail(error))
      .finally(() => {
        this.#filling = undefined;
        // What was announced while the last read ended.
        this.#aim(this.#target);
      });
  }

  async #fill(): Promise<void> {
    const { journal, journalSubject, sid, upcast } = this.#options;
    while (this.#headSeq < this.#target && !this.#ended.signal.aborted) {
      const upTo = this.#target;
      for await (const batch of journal.read(journalSubject, this.#headSeq, upTo)) {
        if (this.#ended.signal.aborted) return;
        for (const message of batch) this.#take(framesOf(sid, message.seq, message.data, upcast));
      }
      if (this.#headSeq < upTo) throw coded('journal_unavailable', 'A commit that was announced cannot be read.');
    }
  }

  /** The next commit of the session: everybody who is live gets it. */
  #take(commit: CommitFrames): void {
    if (commit.first !== this.#head + 1) {
      throw coded('journal_unreadable', `A commit begins with event ${commit.first} where ${this.#head + 1} is the next.`);
    }
    this.#headSeq = commit.seq;
    this.#mark = commit.mark;
    if (commit.texts.length === 0) return;
    this.#head = lastOf(commit);
    this.#ring.push(commit);
    const late: Watcher[] = [];
    for (const [outlet, set] of this.#live) {
      const takers: Sink[] = [];
      for (const watcher of set) {
        if (!watcher.takes(commit)) {
          late.push(watcher);
          continue;
        }
        watcher.took(commit);
        takers.push(watcher.sink);
      }
      if (takers.length > 0) outlet.send(takers, commit.texts, commit.bytes);
    }
    for (const watcher of late) {
      // What fits goes out now; what is left makes it a cursor.
      if (watcher.takePart(commit)) continue;
      this.#unsetLive(watcher);
      this.#behind.add(watcher);
    }
  }

  #nextRunnable(): Watcher | undefined {
    for (const watcher of this.#behind) if (watcher.runnable) return watcher;
    return undefined;
  }

  /** Serves those who are behind, in turns, one batch each, until nobody can take more. */
  async #replay(): Promise<void> {
    this.#replaying = true;
    try {
      for (let watcher = this.#nextRunnable(); watcher !== undefined && !this.#ended.signal.aborted; watcher = this.#nextRunnable()) {
        // To the end of the line.
        this.#behind.delete(watcher);
        this.#behind.add(watcher);
        const recent = this.#ring.from(watcher.at + 1);
        if (recent !== undefined) this.#deliver(recent);
        else if (watcher.at < this.#head) await this.#replayBatch(watcher);
        this.#promote();
      }
    } finally {
      // In the same breath as the last look for somebody runnable: a wake-up in between would be lost.
      this.#replaying = false;
    }
  }

  async #replayBatch(watcher: Watcher): Promise<void> {
    const { journal, journalSubject, sid, upcast, replays } = this.#options;
    let batch: readonly StoredMessage[] | undefined;
    try {
      batch = await this.#retry(() => replays.run(async () => {
        // Gone meanwhile, or served by another's batch: nothing to read.
        if (!this.#behind.has(watcher) || watcher.at >= this.#head) return undefined;
        watcher.after ??= await locate(journal, journalSubject, watcher.at + 1, this.#headSeq);
        // No more than it may be sent: what does not fit would be read again for the next piece of credit.
        const bytes = Math.max(watcher.sink.credit, limits.hubResumeBytes);
        for await (const first of journal.read(journalSubject, watcher.after, this.#headSeq, bytes)) return first;
        throw coded('journal_unavailable', 'The journal gives no commit where there are some.');
      }));
    } catch (error) {
      if (!(error instanceof CodedError) || error.code !== 'sequence_retired') throw error;
      this.#drop(watcher, 'sequence_retired');
      return;
    }
    if (batch === undefined || this.#ended.signal.aborted) return;
    const commits = batch.map((message) => framesOf(sid, message.seq, message.data, upcast));
    const begin = commits[0];
    const end = commits.at(-1);
    if (begin === undefined || end === undefined) return;
    if (begin.first > watcher.at + 1) {
      // What comes next for it was trimmed from the journal: it is told so, never skipped over.
      this.#drop(watcher, 'sequence_retired');
      return;
    }
    this.#deliver(commits);
    // A batch without anything to show still moves the cursor.
    if (watcher.at >= lastOf(end)) watcher.after = Math.max(watcher.after ?? 0, end.seq);
  }

  /** Sends a run of commits to all who are behind and stand in it, each what is next for it. */
  #deliver(commits: readonly CommitFrames[]): void {
    let next = commits[0]?.first ?? 0;
    for (const commit of commits) {
      if (commit.first !== next) throw coded('journal_unreadable', `A commit begins with event ${commit.first} where ${next} is the next.`);
      next = lastOf(commit) + 1;
    }
    for (const group of groupsOf(commits)) {
      const { together } = group;
      // Those who stand at its beginning and may take it all: one frame instead of one a commit.
      if (together !== undefined) this.#deliverTo(together, (watcher) => watcher.at === together.first - 1 && watcher.takes(together));
      for (const commit of group.commits) {
        if (commit.texts.length === 0) continue;
        this.#deliverTo(commit, (watcher) => {
          if (watcher.at < commit.first - 1 || watcher.at >= lastOf(commit)) return false;
          if (watcher.takes(commit)) return true;
          watcher.takePart(commit);
          return false;
        });
      }
    }
  }

  #deliverTo(commit: CommitFrames, takes: (watcher: Watcher) => boolean): void {
    const takers = new Map<Outlet, Sink[]>();
    for (const watcher of this.#behind) {
      if (!takes(watcher)) continue;
      watcher.took(commit);
      const same = takers.get(watcher.sink.peer);
      if (same === undefined) takers.set(watcher.sink.peer, [watcher.sink]);
      else same.push(watcher.sink);
    }
    for (const [outlet, sinks] of takers) outlet.send(sinks, commit.texts, commit.bytes);
  }

  /** Those who have reached the head are live from now on. */
  #promote(): void {
    for (const watcher of this.#behind) {
      if (watcher.at !== this.#head) continue;
      this.#behind.delete(watcher);
      this.#setLive(watcher);
    }
  }

  #setLive(watcher: Watcher): void {
    const { peer } = watcher.sink;
    const set = this.#live.get(peer);
    if (set === undefined) this.#live.set(peer, new Set([watcher]));
    else set.add(watcher);
  }

  #unsetLive(watcher: Watcher): void {
    const { peer } = watcher.sink;
    const set = this.#live.get(peer);
    if (set === undefined) return;
    set.delete(watcher);
    if (set.size === 0) this.#live.delete(peer);
  }

  #drop(watcher: Watcher, name: CloseName): void {
    this.remove(watcher);
    watcher.sink.close(closeCodes[name].code, closeCodes[name].reason);
  }

  /** Repeats while the journal does not answer and somebody watches: an outage of NATS is latency, not an end. */
  async #retry<T>(work: () => Promise<T>): Promise<T> {
    for (let tries = 0; ; tries++) {
      try {
        return await work();
      } catch (error) {
        const transient = error instanceof CodedError && error.entry.kind === 'fault';
        if (!transient || this.#ended.signal.aborted) throw error;
        if (tries === 0) this.#options.log.warn({ sid: this.#options.sid, code: error.code }, 'the journal does not answer; the stream waits');
        await wait(Math.min(limits.linkRedialMaxMs, limits.linkRedialMinMs * 2 ** Math.min(tries, 10)), undefined, { signal: this.#ended.signal }).catch(() => undefined);
      }
    }
  }

  /** What it holds cannot be trusted any more: everybody is sent away and comes back to a fresh look. */
  #fail(error: unknown): void {
    if (this.#ended.signal.aborted) return;
    this.#options.log.error({ sid: this.#options.sid, err: error }, 'a session stream failed');
    this.end('internal_error');
  }

  get isEnded(): boolean {
    return this.#ended.signal.aborted;
  }
}
