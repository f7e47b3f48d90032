/**
 * Gathers the link frames of one event-loop turn into few writes: a system call costs more than a hundred small frames.
 *
 * Guarantees: frames leave in the order they were added, no later than the end of the current event-loop turn; a frame of
 * `bigBytes` or more is written as it is (not copied), smaller neighbours are copied together into one write.
 * Does not bound itself: `bytes` says what waits here, and the owner adds what its socket still holds.
 */
const bigBytes = 64 * 1024;

export class FrameBatch {
  readonly #write: (bytes: Buffer) => void;
  #frames: Buffer[] = [];
  #bytes = 0;
  #scheduled = false;
  #stopped = false;

  /** `write` gets each finished run of frames, in order. */
  constructor(write: (bytes: Buffer) => void) {
    this.#write = write;
  }

  /** Bytes added and not yet written. */
  get bytes(): number {
    return this.#bytes;
  }

  add(frame: Buffer): void {
    if (this.#stopped) return;
    this.#frames.push(frame);
    this.#bytes += frame.length;
    if (this.#scheduled) return;
    this.#scheduled = true;
    setImmediate(this.#turnEnd);
  }

  /** Writes what waits now, without waiting for the end of the turn. */
  flush(): void {
    const frames = this.#frames;
    if (frames.length === 0) return;
    const total = this.#bytes;
    this.#frames = [];
    this.#bytes = 0;
    const first = frames[0];
    if (frames.length === 1 && first !== undefined) this.#write(first);
    else if (total < bigBytes) this.#write(Buffer.concat(frames, total));
    else this.#writeRuns(frames);
  }

  /** Forgets what waits; nothing is written any more. */
  stop(): void {
    this.#stopped = true;
    this.#frames = [];
    this.#bytes = 0;
  }

  readonly #turnEnd = (): void => {
    this.#scheduled = false;
    this.flush();
  };

  #writeRuns(frames: readonly Buffer[]): void {
    let run: Buffer[] = [];
    let runBytes = 0;
    const end = (): void => {
      if (run.length > 0) this.#write(run.length === 1 && run[0] !== undefined ? run[0] : Buffer.concat(run, runBytes));
      run = [];
      runBytes = 0;
    };
    for (const frame of frames) {
      if (frame.length >= bigBytes) {
        end();
        this.#write(frame);
        continue;
      }
      if (runBytes + frame.length > bigBytes) end();
      run.push(frame);
      runBytes += frame.length;
    }
    end();
  }
}
