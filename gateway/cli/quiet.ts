/**
 * Tells when a replay is over. The stream has no marker for it, so it is over when the server has answered and nothing
 * more has come for `quietMs`, at the latest after `maxMs` of a stream that is never quiet (0 = no such bound).
 */
import type { Clock } from '../client/clock.ts';

export interface Quiet {
  /** Call on every event, and once when the connection has answered. */
  touch(): void;
  /** The connection is lost: silence says nothing until the next `touch`. */
  pause(): void;
  /** Resolves once, when the replay is over or `stop` was called. */
  readonly reached: Promise<void>;
  stop(): void;
}

export const createQuiet = (clock: Clock, quietMs: number, maxMs: number): Quiet => {
  const { promise, resolve } = Promise.withResolvers<undefined>();
  let disarm: (() => void) | undefined;
  let disarmMax: (() => void) | undefined;
  let over = false;
  const stop = (): void => {
    over = true;
    disarm?.();
    disarmMax?.();
    resolve(undefined);
  };
  return {
    touch: () => {
      if (over) return;
      disarm?.();
      disarm = clock.after(quietMs, stop);
      if (maxMs > 0) disarmMax ??= clock.after(maxMs, stop);
    },
    pause: () => {
      disarm?.();
      disarmMax?.();
      disarm = disarmMax = undefined;
    },
    reached: promise,
    stop,
  };
};
