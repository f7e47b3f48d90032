/**
 * For tests of the hub: a session's journal written by hand, and watchers that check every frame as it comes.
 *
 * The writer keeps the commit format of contracts/event.ts (numbers, chain) without an engine. A viewer fails the test at
 * the first frame that is not the next, and when it is sent a byte beyond its credit.
 */
import assert from 'node:assert/strict';
import { agentEvent } from '../../contracts/stream.ts';
import type { StoredEvent } from '../../contracts/event.ts';
import { limits } from '../../contracts/limits.ts';
import { journalSubject, partitionOf, type ActorAddress } from '../../contracts/subjects.ts';
import { encodeCommit, hashOf } from '../../actors/runtime/commit.ts';
import type { Journal } from '../../actors/runtime/store.ts';
import type { Hub, Watch } from '../../actors/daemon/hub.ts';
import type { Outlet, Sink } from '../../actors/daemon/watcher.ts';

export interface Writer {
  readonly address: ActorAddress;
  readonly subject: string;
  /** `seq_no` of the last event written. */
  readonly head: number;
  /** Stream sequence of the last commit. */
  readonly seq: number;
  /** Journals the session's creation, after `epochs` commits that only record an activation. */
  create(epochs?: number): Promise<void>;
  /** One commit with that many TextDeltas (0 = a commit that shows nothing). `text` default: its number. `mark` default: the head. */
  write(texts: number | readonly string[], mark?: number): Promise<void>;
}

const letters = 'abcdefghijklmnopqrstuvwxyz234567';
/** A sid of the right form, from a number. */
export const sidOf = (n: number): string => Array.from({ length: 26 }, (_, i) => letters.charAt(Math.floor(n / 32 ** i) % 32)).join('');

export const sessionWriter = (journal: Journal, org: string, sid: string, owner: string, partitions: number): Writer => {
  const address: ActorAddress = { org, type: 'session', key: sid };
  const subject = journalSubject(partitionOf(address, partitions), address);
  let number = 1;
  let head = 0;
  let seq = 0;
  let hash = '';
  let ids = 0;

  const append = async (events: readonly StoredEvent[], shown: number, mark: number): Promise<void> => {
    const data = encodeCommit({ v: 1, e: 1, n: number, f: head + 1, c: shown, m: mark, p: seq, h: hash, t: Date.UTC(2030, 0, 1) + number, ev: events });
    seq = await journal.append(subject, data, seq);
    number += events.length;
    head += shown;
    hash = hashOf(data);
  };
  const event = (k: string, d: Record<string, unknown>): StoredEvent => ({ id: String(++ids), k, d });

  return {
    address, subject,
    get head() {
      return head;
    },
    get seq() {
      return seq;
    },
    create: async (epochs = 1) => {
      for (let i = 0; i < epochs; i++) await append([event('$epoch', { host: 'test' })], 0, 0);
      await append([event('SessionCreated', { user_id: owner, project_id: 'p', label: null, model: 'mock', agent_id: 'a', created_at_unix: 1 })], 0, 0);
    },
    write: (texts, mark) => {
      const list = typeof texts === 'number' ? Array.from({ length: texts }, (_, i) => `t${head + i + 1} `) : texts;
      const events = list.length === 0 ? [event('UserMessage', { content: 'x', user_id: owner })] : list.map((text) => event('TextDelta', { text, run_id: 'r', step: 1 }));
      return append(events, list.length, mark ?? head + list.length);
    },
  };
};

/** A fake connection: hands each frame to the viewers it is for, and counts. */
export class TestOutlet implements Outlet {
  full = false;
  /** Data frames sent. */
  frames = 0;
  readonly viewers = new Map<number, Viewer>();

  send(sinks: readonly { readonly id: number }[], texts: readonly Buffer[], bytes: number): void {
    this.frames += 1;
    assert.equal(bytes, texts.reduce((sum, text) => sum + text.length, 0));
    assert.equal(this.full, false, 'sent while full');
    for (const { id } of sinks) this.viewers.get(id)?.take(texts, bytes);
  }
}

let lastId = 0;

/** One watcher under test. */
export class Viewer implements Sink {
  readonly id = ++lastId;
  readonly peer: TestOutlet;
  credit: number;
  /** `seq_no` of the first and the last frame it got. */
  first: number | undefined;
  last: number;
  /** Texts of the TOKENs it got. */
  readonly texts: string[] = [];
  closed: { readonly code: number; readonly reason: string } | undefined;
  watch: Watch | undefined;
  /** Called after each delivery. */
  onTake: (bytes: number) => void = () => undefined;
  #waits: { readonly test: () => boolean; readonly resolve: () => void }[] = [];

  /** Without `from` the first frame may have any number. `credit` default: the link's initial credit. */
  constructor(peer: TestOutlet, options: { readonly credit?: number } = {}) {
    this.peer = peer;
    this.credit = options.credit ?? limits.linkInitialCreditBytes;
    this.last = -1;
    peer.viewers.set(this.id, this);
  }

  attach(hub: Hub, request: { org: string; sid: string; sub: string; lastSeqNo?: number }): this {
    if (request.lastSeqNo !== undefined) this.last = request.lastSeqNo;
    this.watch = hub.attach(request, this);
    return this;
  }

  room(bytes: number, texts: number): boolean {
    return bytes <= this.credit || (texts === 1 && this.credit >= limits.linkInitialCreditBytes);
  }

  take(texts: readonly Buffer[], bytes: number): void {
    assert.equal(this.closed, undefined, 'sent after the close');
    assert.ok(this.room(bytes, texts.length), `sent ${bytes} bytes against a credit of ${this.credit}`);
    this.credit -= bytes;
    for (const text of texts) {
      const frame = agentEvent.parse(JSON.parse(text.toString('utf8')));
      if (this.last >= 0) assert.equal(frame.seq_no, this.last + 1, 'not the next frame');
      assert.equal(frame.record.sequence, frame.seq_no);
      this.first ??= frame.seq_no;
      this.last = frame.seq_no;
      this.texts.push(String(frame.record.payload['text']));
    }
    this.onTake(bytes);
    this.#settle();
  }

  grant(bytes: number): void {
    this.credit += bytes;
    this.watch?.onRoom();
  }

  close(code: number, reason: string): void {
    assert.equal(this.closed, undefined, 'closed twice');
    this.closed = { code, reason };
    this.#settle();
  }

  /** Resolves when it has got the frame `seqNo`; rejects if it is closed before. */
  async reached(seqNo: number): Promise<void> {
    await this.#until(() => this.last >= seqNo || this.closed !== undefined);
    assert.equal(this.closed, undefined, `closed with ${this.closed?.code} at ${this.last}, before ${seqNo}`);
  }

  async ended(): Promise<{ readonly code: number; readonly reason: string }> {
    await this.#until(() => this.closed !== undefined);
    assert.ok(this.closed);
    return this.closed;
  }

  #until(test: () => boolean): Promise<void> {
    return test() ? Promise.resolve() : new Promise((resolve) => this.#waits.push({ test, resolve }));
  }

  #settle(): void {
    const due = this.#waits.filter((wait) => wait.test());
    this.#waits = this.#waits.filter((wait) => !due.includes(wait));
    for (const wait of due) wait.resolve();
  }
}
