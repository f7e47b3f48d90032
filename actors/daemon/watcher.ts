/**
 * One watcher of a session: where it stands, and what it takes. No frames wait here: behind the head it is a cursor.
 */
import { limits } from '../../contracts/limits.ts';
import type { CommitFrames } from './frames.ts';
import { lastOf } from './frames.ts';

/** A connection that carries streams: one data frame reaches many of them. link-peer.ts is one. */
export interface Outlet {
  /** True while nothing should be read for its streams. */
  readonly full: boolean;
  send(sinks: readonly { readonly id: number }[], texts: readonly Buffer[], bytes: number): void;
}

/** A stream that frames go to. A stream of link-stream.ts is one. */
export interface Sink {
  readonly id: number;
  readonly peer: Outlet;
  readonly credit: number;
  /** True if the credit lets this many bytes in this many texts pass now. */
  room(bytes: number, texts: number): boolean;
  close(code: number, reason: string): void;
}

export class Watcher {
  readonly sink: Sink;
  /** The last `seq_no` it was sent (or came with). */
  at: number;
  /** A stream sequence after which every event beyond `at` lies; undefined = not looked up yet. */
  after: number | undefined = undefined;
  /** Bytes of the text that did not fit. */
  #need = 0;

  constructor(sink: Sink, at: number) {
    this.sink = sink;
    this.at = at;
  }

  /** True if a replay may go on: its connection takes bytes and there is credit worth a read. */
  get runnable(): boolean {
    if (this.sink.peer.full) return false;
    return this.sink.credit >= Math.min(limits.linkInitialCreditBytes, Math.max(limits.hubResumeBytes, this.#need));
  }

  /** True if the whole commit can be sent now and is the next. */
  takes(commit: CommitFrames): boolean {
    return this.at === commit.first - 1 && !this.sink.peer.full && this.sink.room(commit.bytes, commit.texts.length);
  }

  /** The commit was sent whole. */
  took(commit: CommitFrames): void {
    this.at = lastOf(commit);
    this.after = commit.seq;
    this.#need = 0;
  }

  /** Sends what fits of a commit that begins at or before its next event, text by text. False when something of it is left. */
  takePart(commit: CommitFrames): boolean {
    // Everything before this commit has been sent, so reading may begin at it.
    this.after = commit.seq - 1;
    for (let i = this.at + 1 - commit.first; i < commit.texts.length; i++) {
      const text = commit.texts[i];
      if (text === undefined) break;
      if (this.sink.peer.full || !this.sink.room(text.length, 1)) {
        this.#need = text.length;
        return false;
      }
      this.sink.peer.send([this.sink], [text], text.length);
      this.at += 1;
    }
    this.after = commit.seq;
    this.#need = 0;
    return true;
  }
}
