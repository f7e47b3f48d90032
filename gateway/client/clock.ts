/** Time and chance as the client uses them, so that a test can hold both in its hand. Real by default, in Node and in a browser. */
export interface Clock {
  /** Milliseconds on a clock that never goes back. */
  now(): number;
  /** Calls `run` once after `ms`; the result calls it off. */
  after(ms: number, run: () => void): () => void;
  /** 0 (included) to 1 (excluded). */
  random(): number;
}

export const realClock: Clock = {
  now: () => performance.now(),
  after: (ms, run) => {
    const timer = setTimeout(run, ms);
    return () => { clearTimeout(timer); };
  },
  random: () => Math.random(),
};
