/**
 * The recent frames of one watched session, for those who join or fall behind a little: no read of the journal for them.
 *
 * Bounded by `limits.hubRingBytes`, and over all sessions by `limits.hubRingsBytes` (`Budget`): above it a ring keeps only its last commit.
 * Always a run without gap that ends at the session's head.
 */
import { limits } from '../../contracts/limits.ts';
import type { CommitFrames } from './frames.ts';

/** Bytes held by all rings of a hub. */
export interface Budget {
  bytes: number;
}

export class Ring {
  readonly #budget: Budget;
  #commits: CommitFrames[] = [];
  #bytes = 0;

  constructor(budget: Budget) {
    this.#budget = budget;
  }

  push(frames: CommitFrames): void {
    if (frames.texts.length === 0) return;
    this.#commits.push(frames);
    this.#count(frames.bytes);
    const most = this.#budget.bytes > limits.hubRingsBytes ? 0 : limits.hubRingBytes;
    while (this.#bytes > most && this.#commits.length > 1) {
      const oldest = this.#commits.shift();
      if (oldest !== undefined) this.#count(-oldest.bytes);
    }
  }

  /** The commits that hold the event `seqNo` and all later ones; undefined if the ring does not reach back so far. */
  from(seqNo: number): readonly CommitFrames[] | undefined {
    const oldest = this.#commits[0];
    if (oldest === undefined || seqNo < oldest.first) return undefined;
    let low = 0;
    let high = this.#commits.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      const commit = this.#commits[middle];
      if (commit !== undefined && commit.first <= seqNo) low = middle;
      else high = middle - 1;
    }
    return this.#commits.slice(low);
  }

  clear(): void {
    this.#count(-this.#bytes);
    this.#commits = [];
  }

  #count(bytes: number): void {
    this.#bytes += bytes;
    this.#budget.bytes += bytes;
  }
}
