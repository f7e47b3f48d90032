/**
 * One way to repeat what NATS did not answer: exponential waits with jitter until a deadline, then `journal_unavailable`.
 *
 * Only silence is repeated (time-out, lost connection, no responder while a server starts or a leader is elected, a full
 * path); every other error passes through. The caller makes sure that repeating is safe.
 */
import { setTimeout as wait } from 'node:timers/promises';
import { coded, CodedError } from '../../../contracts/errors.ts';
import { limits } from '../../../contracts/limits.ts';

/** Codes of `lean.ts` after which asking again may succeed. */
const silent: ReadonlySet<string> = new Set(['deadline_exceeded', 'no_owner', 'overloaded']);

/** True for an error that means "no answer". */
export const isSilence = (error: unknown): error is CodedError => error instanceof CodedError && silent.has(error.code);

/** Waits before one try after another, until a deadline. */
export interface Patience {
  /** Milliseconds until the deadline. */
  left(): number;
  /** Waits; throws `journal_unavailable` with the cause when the deadline is before the next try. */
  pause(cause: unknown): Promise<void>;
}

/** Patience of `deadlineMs` from now. */
export const patience = (deadlineMs: number): Patience => {
  const deadlineAt = performance.now() + deadlineMs;
  let waitMs: number = limits.storeRetryBaseMs;
  return {
    left: () => deadlineAt - performance.now(),
    pause: async (cause) => {
      const ms = waitMs * (0.5 + Math.random() / 2);
      if (performance.now() + ms >= deadlineAt) throw coded('journal_unavailable', undefined, { cause });
      waitMs = Math.min(waitMs * 2, limits.storeRetryMaxMs);
      await wait(ms);
    },
  };
};

/** Runs `attempt` until it answers. `attempt` gets the milliseconds it may take. Throws `journal_unavailable` at the deadline, and when the connection is closed. */
export const untilAnswered = async <T>(deadlineMs: number, attemptMs: number, attempt: (timeoutMs: number) => Promise<T>): Promise<T> => {
  const patient = patience(deadlineMs);
  for (;;) {
    try {
      return await attempt(Math.min(attemptMs, Math.max(patient.left(), 1)));
    } catch (error) {
      if (error instanceof CodedError && (error.code === 'draining' || error.code === 'interrupted')) {
        throw coded('journal_unavailable', undefined, { cause: error });
      }
      if (!isSilence(error)) throw error;
      await patient.pause(error);
    }
  }
};
