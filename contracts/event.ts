/**
 * What a journal message holds (one message per commit) and what a reader sees of one event.
 *
 * Guarantees: events of an actor are numbered 1, 2, 3 … without gap (`n`); those of its kinds that form the public feed
 * (for a session: what a WebSocket shows) are numbered 1, 2, 3 … of their own (`f`, the `seq_no`); each commit names the
 * stream sequence and the hash of the commit before it on the same subject, so a watcher sees any hole and a changed
 * byte in the past is found. Keys are short because every commit carries them.
 */
import { z } from 'zod';

export interface StoredEvent {
  /** ULID, ascending within the actor. */
  readonly id: string;
  /** Kind; kinds that start with `$` belong to the runtime. */
  readonly k: string;
  /** Version of the payload's schema; absent = 1. Older versions are upcast when read. */
  readonly v?: number;
  /** Unix milliseconds of the event's turn; absent = the commit's `t`. */
  readonly t?: number;
  /** Payload. */
  readonly d: Readonly<Record<string, unknown>>;
}

export interface Commit {
  readonly v: 1;
  /** Epoch of the activation that wrote it (revision of the partition's lease). */
  readonly e: number;
  /** Number of the first event in `ev` (the next number, if `ev` is empty). */
  readonly n: number;
  /** Feed number of the first feed event in `ev` (the next number, if it holds none), and how many it holds. */
  readonly f: number;
  readonly c: number;
  /** Feed mark after this commit: a watcher without a position starts at `m` + 1 (start of the running turn, or the head). */
  readonly m: number;
  /** Stream sequence of the commit before it on this subject, 0 if it is the first; and SHA-256 of that message, hex, '' if first. */
  readonly p: number;
  readonly h: string;
  /** Unix time of the commit, milliseconds. */
  readonly t: number;
  readonly ev: readonly StoredEvent[];
}

/** One event as every reading surface shows it. `checksum` = SHA-256, hex, of the payload in canonical JSON (RFC 8785). */
export const eventEnvelope = z.strictObject({
  id: z.string(),
  stream_id: z.string(),
  kind: z.string(),
  timestamp: z.int(),
  payload: z.record(z.string(), z.unknown()),
  checksum: z.string(),
  metadata: z.record(z.string(), z.unknown()),
});
export type EventEnvelope = z.infer<typeof eventEnvelope>;

/** Runtime events, folded by the runtime beside the actor's own state. */
export const runtimeKinds = {
  /** {host} an activation began; written with every activation, fences the former owner. */
  epoch: '$epoch',
  /** {id, name, input} the intent of an effect. */
  effectIntended: '$effect.intended',
  /** {id, ok, code?} an effect ended (its result is in the domain events of the same commit). */
  effectEnded: '$effect.ended',
  /** {key, number} the first event of a fork: its state begins as that of the actor `key` (same organization and type) after its event `number`. */
  forked: '$forked',
  /** {id} an effect was told to stop; a crash between this and its end does not start it again. */
  effectAborted: '$effect.aborted',
  /** {name, at} a reminder was set. */
  reminderSet: '$reminder.set',
  /** {name} a reminder fired or was forgotten. */
  reminderGone: '$reminder.gone',
  /** {id, command, output?} a message with an id was handled; a repeat gets `output` and changes nothing, another command under the id is refused. */
  handled: '$handled',
  /** {} nothing happened for so long that the actor is as if it had never been; alone in its commit. What comes after it is a new journal: numbers from 1, no state of before. */
  forgotten: '$forgotten',
} as const;
