/**
 * Keeps a number of calls in flight for a time and counts them: each lane begins its next call when its last one ended.
 */

export interface Rate {
  readonly calls: number;
  readonly ms: number;
}

/** `call(lane)` once after the other in each lane, for `ms` milliseconds. Rejects with the first failure. */
export const callLanes = async (lanes: number, ms: number, call: (lane: number) => Promise<unknown>): Promise<Rate> => {
  const startedMs = performance.now();
  const endMs = startedMs + ms;
  let calls = 0;
  let yieldedMs = startedMs;
  let yielding: Promise<void> | undefined;
  const lane = async (n: number): Promise<void> => {
    for (let now = startedMs; now < endMs; now = performance.now()) {
      // Calls that need no event loop would starve timers and sockets for the whole sample.
      if (yielding === undefined && now - yieldedMs > 5) {
        yielding = new Promise((resolve) => {
          setImmediate(() => {
            yielding = undefined;
            yieldedMs = performance.now();
            resolve();
          });
        });
      }
      if (yielding !== undefined) await yielding;
      await call(n);
      calls += 1;
    }
  };
  await Promise.all(Array.from({ length: lanes }, (_, n) => lane(n)));
  return { calls, ms: performance.now() - startedMs };
};

/** The same for calls that answer by a callback: no promise, for floors. `begin(lane, next)` starts one; `next` ends it. */
export const callbackLanes = (lanes: number, ms: number, begin: (lane: number, next: () => void) => void): Promise<Rate> => new Promise((resolve) => {
  const startedMs = performance.now();
  const endMs = startedMs + ms;
  let calls = 0;
  let running = lanes;
  const nexts = Array.from({ length: lanes }, (_, n) => (): void => {
    calls += 1;
    if (performance.now() < endMs) {
      begin(n, nexts[n] ?? (() => undefined));
      return;
    }
    running -= 1;
    if (running === 0) resolve({ calls, ms: performance.now() - startedMs });
  });
  nexts.forEach((next, n) => begin(n, next));
});

export const perSec = ({ calls, ms }: Rate): number => calls / (ms / 1_000);
