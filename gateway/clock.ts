/**
 * Time as the gateway sees it, so that tests can move it.
 *
 * Two clocks: `wallMs` for what is written in tokens, `monotonicMs` for every duration (a step of the wall clock must not
 * fill a bucket or end a stream). Timers never fire early by more than the platform's resolution.
 */
export interface Clock {
  /** Unix time, milliseconds. */
  wallMs(): number;
  /** Milliseconds since some fixed moment; never goes back. */
  monotonicMs(): number;
  /** Calls once after `ms`; gives the way to call it off. */
  after(ms: number, call: () => void): () => void;
  /** Calls every `ms`; gives the way to stop. */
  every(ms: number, call: () => void): () => void;
}

/** Longest delay a Node timer takes (2^31 - 1 ms, 24.8 days); longer waits are cut to it by their caller. */
export const timerMaxMs = 2_147_483_647;

export const systemClock: Clock = {
  wallMs: () => Date.now(),
  monotonicMs: () => performance.now(),
  after: (ms, call) => {
    const timer = setTimeout(call, ms);
    return () => clearTimeout(timer);
  },
  every: (ms, call) => {
    const timer = setInterval(call, ms);
    return () => clearInterval(timer);
  },
};
