/**
 * Live commits of an actor: a core subscription to what JetStream re-publishes from the journal (at most once, after the
 * store). No JetStream consumer per watcher. The server's headers name the stream sequence and the one before it on the
 * subject, so the watcher sees holes; a lost connection may end in a hole that no later commit shows, hence `onGap`.
 */
import { coded } from '../../../contracts/errors.ts';
import { limits } from '../../../contracts/limits.ts';
import type { Feed } from '../store.ts';
import { headerNumber, headerText } from './header.ts';
import type { Lean } from './lean.ts';

/** Thrown in a subscription's callback an error would end the connection's reader; here it surfaces as what it is, a bug. */
const surface = (error: unknown): void => { queueMicrotask(() => { throw error; }); };

/** Makes the feed. `watch` throws `deadline_exceeded` when the server does not confirm within three times `limits.appendAckMs`, `draining` when closed. */
export const createNatsFeed = (lean: Lean): Feed => ({
  watch: async (subject, onCommit, onGap) => {
    const subscription = lean.connection.subscribe(subject, {
      callback: (error, message) => {
        if (error !== null) { surface(coded('internal_error', 'The feed was refused by NATS.', { cause: error })); return; }
        const header = headerText(message);
        const seq = headerNumber(header, 'Nats-Sequence');
        // Anything else on the subject was not re-published by the journal.
        if (seq === undefined) return;
        try {
          onCommit(message.data, seq, headerNumber(header, 'Nats-Last-Sequence') ?? 0);
        } catch (cause) {
          surface(cause);
        }
      },
    });
    const forget = onGap === undefined ? undefined : lean.onReconnect(onGap);
    const stop = (): void => {
      forget?.();
      if (!subscription.isClosed()) subscription.unsubscribe();
    };
    try {
      await lean.settled(limits.appendAckMs * 3);
    } catch (error) {
      stop();
      throw error;
    }
    return { stop };
  },
});
