/**
 * The journal over JetStream: fenced appends on the lean path, and every ambiguous outcome settled.
 *
 * Why settling is safe: an append carries the stream sequence of the subject's last message, so of all appends with the
 * same expectation the stream admits at most one. Repeating an unanswered append therefore cannot store it twice. If the
 * repeat is refused, the subject's first message after the expectation decides: equal to ours, it was ours (the answer was
 * lost); another, somebody else was first. While there is none yet, a first try may still be under way, so we repeat.
 * After `journal_unavailable` a late arrival remains possible; the next activation's own fenced append finds it out.
 *
 * Guarantees S1-S3 of `store.ts`. It does not interpret what it stores.
 */
import type { Msg } from 'nats';
import { coded, CodedError } from '../../../contracts/errors.ts';
import { limits } from '../../../contracts/limits.ts';
import { streams } from '../../../contracts/subjects.ts';
import type { Journal, StoredMessage } from '../store.ts';
import { readAck, tooLargeCode } from './ack.ts';
import { HeaderLine } from './header.ts';
import type { Lean } from './lean.ts';
import { purge } from './purge.ts';
import { directGet, forward, leaderLast, leaderNext, type ReadTimes } from './read.ts';
import { isSilence, patience, type Patience } from './retry.ts';

export interface JournalOptions {
  /** Number of JOURNAL streams, 1 to 64. */
  readonly journalStreams: number;
  /** Milliseconds one try waits for its acknowledgement. Default `limits.appendAckMs`. */
  readonly ackMs?: number;
  /** Milliseconds after which an append or a read gives up with `journal_unavailable`. Default three times `ackMs`. */
  readonly deadlineMs?: number;
  /** Appends in flight; more wait. Default `limits.appendsMax`. */
  readonly appendsMax?: number;
}

const expectedHeader = 'Nats-Expected-Last-Subject-Sequence';

/** Journal stream of a subject `journal.<n>.…`. */
const streamOf = (subject: string, count: number): string => {
  const n = Number.parseInt(subject.slice(subject.indexOf('.') + 1), 10);
  if (!(n >= 0)) throw coded('internal_error', 'A journal subject names no partition.');
  return streams.journal(n, count);
};

const sameBytes = (a: Uint8Array, b: Uint8Array): boolean => Buffer.compare(a, b) === 0;

/** Makes the journal on a request path. Its streams must exist (`streams.ts`). */
export const createNatsJournal = (lean: Lean, options: JournalOptions): Journal => {
  const { journalStreams } = options;
  const ackMs = options.ackMs ?? limits.appendAckMs;
  const deadlineMs = options.deadlineMs ?? ackMs * 3;
  const appendsMax = options.appendsMax ?? limits.appendsMax;
  const times: ReadTimes = { attemptMs: ackMs, deadlineMs };
  let running = 0;
  // At most one per activation: an actor has one append in flight.
  const waiting: (() => void)[] = [];

  /**
   * What a refusal by the fence means: the sequence of our message, if a try before (`ambiguous`) stored it; undefined if
   * nothing is decided yet, because the subject still ends where we expect it. Throws `fenced` otherwise.
   */
  const settle = async (subject: string, data: Uint8Array, expectedSeq: number, ambiguous: boolean, patient: Patience): Promise<number | undefined> => {
    const stream = streamOf(subject, journalStreams);
    const within: ReadTimes = { attemptMs: ackMs, deadlineMs: Math.max(patient.left(), 1) };
    const decider = await leaderNext(lean, stream, subject, expectedSeq + 1, within);
    if (decider !== undefined) {
      if (ambiguous && sameBytes(decider.data, data)) return decider.seq;
      throw coded('fenced');
    }
    // Refused, yet nothing follows: another's append (or our own) is under way, or a new leader has not caught up.
    const last = await leaderLast(lean, stream, subject, within);
    if ((last?.seq ?? 0) === expectedSeq) return undefined;
    throw coded('fenced');
  };

  /** Tries until the outcome is known. `first`: the first try, which began `spentMs` ago. */
  const attempt = async (subject: string, data: Uint8Array, expectedSeq: number, first: Promise<Msg>, spentMs: number): Promise<number> => {
    const patient = patience(deadlineMs - spentMs);
    const headers = new HeaderLine(expectedHeader, expectedSeq);
    let ambiguous = false;
    for (let answer = first; ; answer = lean.request(subject, data, { headers, timeoutMs: Math.min(ackMs, Math.max(patient.left(), 1)) })) {
      let cause: unknown;
      try {
        const ack = readAck(await answer);
        if (ack.stored) return ack.seq;
        if (ack.errCode === tooLargeCode) throw coded('commit_too_large');
        if (ack.fenced) {
          const seq = await settle(subject, data, expectedSeq, ambiguous, patient);
          if (seq !== undefined) return seq;
        }
        cause = new Error(`JetStream refused the append: ${ack.errCode} ${ack.description}`);
        // A leader that answers with a fault may have proposed the message before it failed.
        if (!ack.fenced) ambiguous = true;
      } catch (error) {
        if (!(error instanceof CodedError)) throw error;
        if (error.code === 'payload_too_large') throw coded('commit_too_large', undefined, { cause: error });
        if (error.code === 'draining' || error.code === 'interrupted') throw coded('journal_unavailable', undefined, { cause: error });
        if (!isSilence(error)) throw error;
        if (error.code === 'deadline_exceeded') ambiguous = true;
        cause = error;
      }
      await patient.pause(cause);
    }
  };

  /** The place passes to the next in line, so the count stays; it falls when nobody waits. */
  const leave = (): void => {
    const next = waiting.shift();
    if (next === undefined) running--;
    else next();
  };

  /** The usual outcome, stored at the first try, costs two promises; every other is `attempt`'s. */
  const begin = (subject: string, data: Uint8Array, expectedSeq: number): Promise<number> => {
    const first = lean.request(subject, data, { headers: new HeaderLine(expectedHeader, expectedSeq), timeoutMs: Math.min(ackMs, deadlineMs) });
    const beganMs = performance.now();
    const slow = (): Promise<number> => attempt(subject, data, expectedSeq, first, performance.now() - beganMs).finally(leave);
    return first.then((message) => {
      const ack = readAck(message);
      if (!ack.stored) return slow();
      leave();
      return ack.seq;
    }, slow);
  };

  const append = (subject: string, data: Uint8Array, expectedSeq: number): Promise<number> => {
    if (running < appendsMax) {
      running++;
      return begin(subject, data, expectedSeq);
    }
    return new Promise<void>((resolve) => { waiting.push(resolve); }).then(() => begin(subject, data, expectedSeq));
  };

  const firstFrom = async (subject: string, fromSeq: number): Promise<StoredMessage | undefined> => {
    const stream = streamOf(subject, journalStreams);
    // A replica that has a message from there on has the first one; only "none" needs the leader.
    const found = await directGet(lean, stream, { next_by_subj: subject, seq: Math.max(fromSeq, 1) }, times);
    return found ?? leaderNext(lean, stream, subject, fromSeq, times);
  };

  return {
    append,
    last: (subject) => leaderLast(lean, streamOf(subject, journalStreams), subject, times),
    firstFrom,
    erase: async (subject, upTo) => { await purge(lean, streamOf(subject, journalStreams), subject, upTo); },
    read: (subject, after, upTo, batchBytes) => forward(lean, streamOf(subject, journalStreams), subject, after + 1, upTo, times, batchBytes),
  };
};
