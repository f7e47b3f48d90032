/**
 * Reading stored messages back, two ways (NATS ADR-8, ADR-31).
 *
 * - `leader…`: STREAM.MSG.GET, answered by the stream's leader only: true at the time it is read, costs a JSON answer.
 * - `forward`: batched DIRECT.GET, answered by any replica: fast, but a replica may lag. A batch is checked message by
 *   message (each names the one before it), so what is handed on has no hole; only its end may be too early, which
 *   `forward` settles with a leader read. A server without batches answers with one message: then it goes one by one.
 */
import type { Msg } from 'nats';
import { coded } from '../../../contracts/errors.ts';
import { limits } from '../../../contracts/limits.ts';
import type { StoredMessage } from '../store.ts';
import { apiError } from './ack.ts';
import { headerNumber, headerStatus, headerText, headerValue } from './header.ts';
import type { Lean } from './lean.ts';
import { untilAnswered } from './retry.ts';

/** How long one try and all tries of a read may take, milliseconds. */
export interface ReadTimes {
  readonly attemptMs: number;
  readonly deadlineMs: number;
}

/** `limits.appendAckMs` a try, three times that in all. */
export const readTimes: ReadTimes = { attemptMs: limits.appendAckMs, deadlineMs: limits.appendAckMs * 3 };

const noMessageCode = 10037;

interface LeaderAnswer {
  readonly message?: { readonly subject: string; readonly seq: number; readonly time: string; readonly data?: string };
}

const leaderGet = (lean: Lean, stream: string, query: Readonly<Record<string, unknown>>, times: ReadTimes): Promise<StoredMessage | undefined> =>
  untilAnswered(times.deadlineMs, times.attemptMs, async (timeoutMs) => {
    const answer = await lean.request(`$JS.API.STREAM.MSG.GET.${stream}`, JSON.stringify(query), { timeoutMs });
    const body: unknown = JSON.parse(answer.string());
    const error = apiError(body);
    if (error?.errCode === noMessageCode) return undefined;
    // 503: no leader or no quorum at the moment.
    if (error?.code === 503) throw coded('no_owner', error.description);
    if (error !== undefined) throw coded('journal_unavailable', `The stream ${stream} cannot be read: ${error.description}.`);
    const { message } = body as LeaderAnswer;
    if (message === undefined) throw coded('journal_unavailable', `The stream ${stream} gave an answer without a message.`);
    return { subject: message.subject, seq: message.seq, time: Date.parse(message.time), data: Buffer.from(message.data ?? '', 'base64') };
  });

/** The last message of a subject, from the leader. */
export const leaderLast = (lean: Lean, stream: string, subject: string, times: ReadTimes = readTimes): Promise<StoredMessage | undefined> =>
  leaderGet(lean, stream, { last_by_subj: subject }, times);

/** The first message of a subject (or filter) with at least that sequence, from the leader. */
export const leaderNext = (
  lean: Lean, stream: string, subject: string, fromSeq: number, times: ReadTimes = readTimes,
): Promise<StoredMessage | undefined> => leaderGet(lean, stream, { seq: Math.max(fromSeq, 1), next_by_subj: subject }, times);

/** Reads a direct answer; undefined for "no message". Throws `journal_unavailable` for a refusal. */
const directMessage = (message: Msg, header: string): StoredMessage | undefined => {
  const status = headerStatus(header);
  if (status === 404) return undefined;
  if (status !== 0) throw coded('journal_unavailable', `A direct read was refused with status ${status}.`);
  const subject = headerValue(header, 'Nats-Subject');
  const seq = headerNumber(header, 'Nats-Sequence');
  const time = headerValue(header, 'Nats-Time-Stamp');
  if (subject === undefined || seq === undefined || time === undefined) {
    throw coded('journal_unavailable', 'A stored message came without its headers.');
  }
  return { subject, seq, time: Date.parse(time), data: message.data };
};

/** One message by direct get: the subject's last, or its first from a sequence. Undefined may only mean that the replica lags. */
export const directGet = (
  lean: Lean, stream: string, query: { readonly last_by_subj: string } | { readonly next_by_subj: string; readonly seq: number },
  times: ReadTimes = readTimes,
): Promise<StoredMessage | undefined> =>
  untilAnswered(times.deadlineMs, times.attemptMs, async (timeoutMs) => {
    const message = await lean.request(`$JS.API.DIRECT.GET.${stream}`, JSON.stringify(query), { timeoutMs });
    return directMessage(message, headerText(message));
  });

/** One batch from any replica: what came without a hole, in order, possibly nothing. */
const directBatch = async (lean: Lean, stream: string, filter: string, fromSeq: number, count: number, maxBytes: number, times: ReadTimes): Promise<StoredMessage[]> =>
  untilAnswered(times.deadlineMs, times.attemptMs, async (timeoutMs) => {
    const batch: StoredMessage[] = [];
    let whole = true;
    const query = { seq: fromSeq, next_by_subj: filter, batch: count, max_bytes: maxBytes };
    await lean.requestMany(`$JS.API.DIRECT.GET.${stream}`, JSON.stringify(query), {
      timeoutMs,
      onMessage: (message) => {
        const header = headerText(message);
        if (headerStatus(header) === 204) return true;
        const stored = directMessage(message, header);
        if (stored === undefined) return true;
        const pending = headerNumber(header, 'Nats-Num-Pending');
        // A server that does not know batches sends just this one, without saying what is pending.
        if (pending === undefined) { batch.push(stored); return true; }
        // A message that names another than the one we hold as the one before it (0 for the first): something was lost on the way.
        if (headerNumber(header, 'Nats-Last-Sequence') !== (batch.at(-1)?.seq ?? 0)) whole = false;
        if (whole) batch.push(stored);
        return false;
      },
    });
    return batch;
  });

/**
 * Every message of a subject or filter with fromSeq ≤ seq ≤ upTo, in order, in batches of at most `limits.replayBatchCommits`
 * messages and about `batchBytes` (at most `limits.replayBatchMaxBytes`). Reads no further than one batch beyond what was taken.
 */
export async function* forward(
  lean: Lean, stream: string, filter: string, fromSeq: number, upTo: number, times: ReadTimes = readTimes,
  batchBytes: number = limits.replayBatchMaxBytes,
): AsyncGenerator<readonly StoredMessage[], void, undefined> {
  const maxBytes = Math.max(1, Math.min(batchBytes, limits.replayBatchMaxBytes));
  const read = (from: number): Promise<StoredMessage[]> => directBatch(lean, stream, filter, from, limits.replayBatchCommits, maxBytes, times);
  let next = Math.max(fromSeq, 1);
  let ahead: Promise<StoredMessage[]> | undefined;
  for (let taken = 0; next <= upTo; taken++) {
    const batch = await (ahead ?? read(next));
    let last = batch.at(-1);
    if (last === undefined) {
      // Nothing more, says a replica; the leader knows.
      last = await leaderNext(lean, stream, filter, next, times);
      if (last === undefined) return;
      batch.push(last);
    }
    next = last.seq + 1;
    // One replica's log is a prefix of the truth, so a sequence at or beyond upTo proves that nothing before it is missing.
    const wanted = last.seq <= upTo ? batch : batch.filter((message) => message.seq <= upTo);
    // Who came back for a second batch wants them all: the next one is fetched while this one is worked on.
    ahead = taken > 0 && next <= upTo ? read(next) : undefined;
    // Its failure is met when it is awaited; if the reader leaves before, nobody needs it.
    ahead?.catch(() => undefined);
    if (wanted.length > 0) yield wanted;
  }
}
