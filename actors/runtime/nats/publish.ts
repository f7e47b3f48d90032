/**
 * A publish into a stream that resolves when the stream has it, for messages without a fence.
 *
 * Silence is repeated until the deadline, so a message may be stored more than once: give it an id (Nats-Msg-Id) where
 * that matters and the stream's dedup window is long enough, or write where the last value wins.
 */
import type { MsgHdrs } from 'nats';
import { coded } from '../../../contracts/errors.ts';
import { limits } from '../../../contracts/limits.ts';
import { fullCodes, readAck, tooLargeCode } from './ack.ts';
import type { Lean } from './lean.ts';
import { untilAnswered } from './retry.ts';

/** Gives the stream sequence. Throws `overloaded` (the stream is full), `payload_too_large`, `journal_unavailable`. */
export const publishStored = (
  lean: Lean, subject: string, data: Uint8Array, headers?: MsgHdrs, ackMs: number = limits.appendAckMs, deadlineMs: number = ackMs * 3,
): Promise<number> =>
  untilAnswered(deadlineMs, ackMs, async (timeoutMs) => {
    const ack = readAck(await lean.request(subject, data, headers === undefined ? { timeoutMs } : { timeoutMs, headers }));
    if (ack.stored) return ack.seq;
    if (ack.errCode === tooLargeCode) throw coded('payload_too_large');
    if (fullCodes.has(ack.errCode)) throw new StreamFull(ack.description);
    throw coded('no_owner', `JetStream refused the message: ${ack.errCode} ${ack.description}`);
  }).catch((error: unknown) => {
    if (error instanceof StreamFull) throw coded('overloaded', undefined, { cause: error });
    throw error;
  });

/** The stream is full: not repeated, unlike the request path's own `overloaded`. */
class StreamFull extends Error {}
