/** The pace of a replay. Pure. */
import { limits } from '../../../../contracts/limits.ts';
import type { Envelope } from './services.ts';

/** How many times as fast as it was. */
export const speeds = ['1×', '4×', '16×', '64×'] as const;
export type Speed = (typeof speeds)[number];

/** What a screen shows at most in a step: events nearer to each other come together. */
const frameMs = 16;

/**
 * The next stop of a replay that shows `shown` events: how many then, after how many milliseconds. Undefined at the end. Pauses are those of
 * the events' times, divided by the speed, none longer than `limits.replayPauseMs`.
 */
export const nextStop = (events: readonly Pick<Envelope, 'timestamp'>[], shown: number, speed: Speed): { readonly shown: number; readonly afterMs: number } | undefined => {
  if (shown >= events.length) return undefined;
  const pause = (at: number): number => {
    const [before, next] = [events[at - 1], events[at]];
    return before === undefined || next === undefined ? 0 : Math.min(limits.replayPauseMs, Math.max(0, next.timestamp - before.timestamp) / Number.parseInt(speed, 10));
  };
  let [upTo, together] = [shown + 1, pause(shown + 1)];
  while (upTo < events.length && together < frameMs) {
    upTo += 1;
    together += pause(upTo);
  }
  return { shown: upTo, afterMs: pause(shown) };
};
