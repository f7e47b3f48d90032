/**
 * What the runtime needs of the world's storage, as interfaces we own. `nats/` implements them over JetStream, `memory/`
 * in process; one conformance suite (test/conformance) keeps the two equal.
 *
 * Guarantees an implementation gives:
 * S1  `append` with an expectation that is not the subject's last sequence stores nothing and throws `fenced`.
 * S2  `append` resolves only after the store acknowledged; an ambiguous outcome (time-out, lost connection) is settled by
 *     reading the subject's last message before it resolves or throws. It throws `journal_unavailable` only when it could
 *     not be settled within the deadline: then the caller must treat the activation as lost.
 * S3  `last` is a leader read. `read` gives every message of the subject in (after, upTo], in order, or throws.
 */
export interface StoredMessage {
  readonly subject: string;
  /** Stream sequence. */
  readonly seq: number;
  /** Store time, Unix milliseconds. */
  readonly time: number;
  readonly data: Uint8Array;
}

export interface Journal {
  /** Erases the subject's messages up to and with a sequence, for good; later ones stay. Repeating it is safe. Throws `journal_unavailable`. */
  erase(subject: string, upTo: number): Promise<void>;
  /** Stores one commit; gives its stream sequence. `expectedSeq` = stream sequence of the subject's last message, 0 if none. */
  append(subject: string, data: Uint8Array, expectedSeq: number): Promise<number>;
  /** The subject's last message, or undefined. */
  last(subject: string): Promise<StoredMessage | undefined>;
  /** The first message of the subject with a stream sequence of at least `fromSeq`, or undefined. */
  firstFrom(subject: string, fromSeq: number): Promise<StoredMessage | undefined>;
  /**
   * Messages with after < seq ≤ upTo, in batches of at most `limits.replayBatchCommits`, in order. `batchBytes`: about so many bytes a
   * batch, at least one message; default and at most `limits.replayBatchMaxBytes`.
   */
  read(subject: string, after: number, upTo: number, batchBytes?: number): AsyncIterable<readonly StoredMessage[]>;
}

/** Last value per key; an optimisation (snapshots) or an index (reminders), never the truth. */
export interface LastValue {
  get(subject: string): Promise<StoredMessage | undefined>;
  put(subject: string, data: Uint8Array): Promise<void>;
  delete(subject: string): Promise<void>;
  /** Every value under a subject prefix such as `reminder.7.>`. */
  list(filter: string): Promise<readonly StoredMessage[]>;
}

/** Live messages of an actor's feed, as they were journaled (RePublish). At most once: holes show by sequence and are filled from the journal. */
export interface Feed {
  /**
   * `onCommit` gets the commit's bytes, its stream sequence and the one before it on the subject (0 if none). Resolves when the server has the subscription.
   * `onGap` is called after a lost connection is there again: commits may have been missed without a later one to show it, so look at the journal's last.
   */
  watch(subject: string, onCommit: (data: Uint8Array, seq: number, previousSeq: number) => void, onGap?: () => void): Promise<{ stop(): void }>;
}

/** Durable messages to actors: at least once. */
export interface Inbox {
  /** Stores a message; `id` makes a repeated send within the dedup window one message. */
  send(subject: string, id: string, data: Uint8Array): Promise<void>;
}

export interface Clock {
  /** Unix milliseconds. */
  now(): number;
  /** Milliseconds that never go back. */
  monotonic(): number;
}
export const systemClock: Clock = { now: () => Date.now(), monotonic: () => performance.now() };
