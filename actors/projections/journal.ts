/** The journal as projections read it: whole streams in order, by actor type, over all partitions. */
import { coded } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { streams, wildcards } from '../../contracts/subjects.ts';
import { apiError } from '../runtime/nats/ack.ts';
import type { Lean } from '../runtime/nats/lean.ts';
import { forward, leaderLast } from '../runtime/nats/read.ts';
import { untilAnswered } from '../runtime/nats/retry.ts';
import type { StoredMessage } from '../runtime/store.ts';

export interface JournalSource {
  readonly streams: readonly string[];
  /** When the stream was made (its identity) and its last sequence. Throws `journal_unavailable`. */
  describe(stream: string): Promise<{ readonly created: string; readonly lastSeq: number }>;
  /** The next commits of an actor type from a sequence on, in order: at most one batch, empty if there are none now. Throws `journal_unavailable`. */
  next(stream: string, type: string, fromSeq: number): Promise<readonly StoredMessage[]>;
  /** Stream sequence of the last commit of an actor type, of one organization or of all; 0 if none. A leader's answer. Throws `journal_unavailable`. */
  head(stream: string, type: string, org?: string): Promise<number>;
}

interface StreamInfo {
  readonly created?: string;
  readonly state?: { readonly last_seq?: number };
}

/** Reads over a host's request path. `journalStreams` as in the cluster's plan. */
export const natsJournalSource = (lean: Lean, journalStreams: number): JournalSource => ({
  streams: Array.from({ length: journalStreams }, (_, n) => streams.journal(n, journalStreams)),
  describe: (stream) => untilAnswered(limits.appendAckMs * 3, limits.appendAckMs, async (timeoutMs) => {
    const answer: unknown = JSON.parse((await lean.request(`$JS.API.STREAM.INFO.${stream}`, '', { timeoutMs })).string());
    const error = apiError(answer);
    if (error?.code === 503) throw coded('no_owner', error.description);
    if (error !== undefined) throw coded('journal_unavailable', `The stream ${stream} cannot be read: ${error.description}.`);
    const { created, state } = answer as StreamInfo;
    if (created === undefined || state?.last_seq === undefined) throw coded('journal_unavailable', `The stream ${stream} gave an answer without its state.`);
    return { created, lastSeq: state.last_seq };
  }),
  next: async (stream, type, fromSeq) => {
    for await (const batch of forward(lean, stream, wildcards.journals(type), fromSeq, Number.MAX_SAFE_INTEGER)) return batch;
    return [];
  },
  head: async (stream, type, org) => (await leaderLast(lean, stream, wildcards.journals(type, org)))?.seq ?? 0,
});
