/**
 * The streams and buckets a cluster needs: made once, never changed here, read back and compared.
 *
 * Every host runs this at start. It only ever creates: concurrent equivalent updates of a stream can store a message more
 * than once (notes/jetstream 16), so a difference between what exists and what is asked is an error that names it, for a
 * person to decide. Reading back also finds settings an old server accepted and dropped (notes/jetstream 25).
 */
import type { StreamConfig } from '@nats-io/jetstream';
import type { NatsConnection } from 'nats';
import { coded } from '../../../contracts/errors.ts';
import { limits } from '../../../contracts/limits.ts';
import { buckets, republish, streams } from '../../../contracts/subjects.ts';
import { apiError } from './ack.ts';
import { createLean, type Lean } from './lean.ts';
import { untilAnswered } from './retry.ts';

export interface StreamPlan {
  /** Partitions of the cluster. */
  readonly partitions: number;
  /** JOURNAL streams; partition n is in stream n mod this. */
  readonly journalStreams: number;
  /** Copies of everything, 1, 3 or 5. */
  readonly replicas: number;
}

type Wanted = Partial<StreamConfig> & { readonly name: string; readonly subjects: string[] };
const nanos = 1_000_000;
const fixed = 'The number of partitions and of journal streams cannot change once a journal exists.';

/** The configuration of every stream of a plan. */
export const streamConfigs = ({ partitions, journalStreams, replicas }: StreamPlan): readonly Wanted[] => {
  const common = { storage: 'file', num_replicas: replicas, allow_direct: true, max_age: 0, max_bytes: -1 } as const;
  const journals = Array.from({ length: journalStreams }, (_, i): Wanted => ({
    ...common,
    name: streams.journal(i, journalStreams),
    subjects: Array.from({ length: partitions }, (_unused, n) => n).filter((n) => n % journalStreams === i).map((n) => `journal.${n}.>`),
    retention: 'limits', discard: 'new', max_msgs: -1, max_msgs_per_subject: -1,
    // History is only ever trimmed by purge behind a snapshot, never message by message.
    deny_delete: true, deny_purge: false, republish,
  }));
  return [
    ...journals,
    { ...common, name: streams.snapshot, subjects: ['snapshot.>'], retention: 'limits', discard: 'old', max_msgs: -1, max_msgs_per_subject: 1 },
    { ...common, name: streams.reminder, subjects: ['reminder.>'], retention: 'limits', discard: 'old', max_msgs: -1, max_msgs_per_subject: 1 },
    {
      ...common, name: streams.inbox, subjects: ['inbox.>'], retention: 'workqueue', discard: 'new', max_msgs: limits.inboxMessagesMax,
      max_msgs_per_subject: -1, duplicate_window: limits.inboxDedupMs * nanos,
    },
    {
      ...common, name: streams.deadLetter, subjects: ['deadletter.>'], retention: 'limits', discard: 'old', max_msgs: limits.deadLettersMax,
      max_msgs_per_subject: -1,
    },
    ...[buckets.hosts, buckets.partitions].map((bucket): Wanted => ({
      // The form of a key-value bucket with one revision a key (NATS ADR-8), so that standard tools show it as one.
      ...common, name: `KV_${bucket}`, subjects: [`$KV.${bucket}.>`], retention: 'limits', discard: 'new', max_msgs: -1,
      max_msgs_per_subject: 1, allow_rollup_hdrs: true, deny_delete: true, deny_purge: false,
    })),
    {
      // The form of an object store (NATS ADR-20).
      ...common, name: `OBJ_${buckets.blobs}`, subjects: [`$O.${buckets.blobs}.C.>`, `$O.${buckets.blobs}.M.>`], retention: 'limits', discard: 'new',
      max_msgs: -1, max_msgs_per_subject: -1, allow_rollup_hdrs: true,
    },
  ];
};

const shown = (value: unknown): string => {
  const text = JSON.stringify(value) ?? 'nothing';
  return text.length > 200 ? `${text.slice(0, 200)}…` : text;
};

/** Order of an object's keys, and of the subjects, means nothing. */
const canonical = (value: unknown): string => {
  if (Array.isArray(value)) return `[${value.map(canonical).toSorted().join()}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value) ?? 'undefined';
  const entries = Object.entries(value).filter(([, v]) => v !== undefined && v !== false).map(([k, v]) => `${k}:${canonical(v)}`);
  return `{${entries.toSorted().join()}}`;
};

/** The first difference between what is asked and what exists, as a sentence; undefined if there is none. */
export const streamProblem = (wanted: Wanted, found: Partial<StreamConfig>): string | undefined => {
  for (const [key, value] of Object.entries(wanted)) {
    const there = (found as Readonly<Record<string, unknown>>)[key];
    if (canonical(value) === canonical(there)) continue;
    const hint = key === 'subjects' ? ` ${fixed}` : '';
    return `Stream ${wanted.name} exists with ${key} = ${shown(there)}, but ${shown(value)} is configured.${hint}`;
  }
  return undefined;
};

const streamNotFound = 10059;
const streamExists = 10058;
const subjectsOverlap = 10065;
/** "no suitable peers for placement" and "not the leader": what a cluster that is just forming answers. */
const forming: ReadonlySet<number> = new Set([10005, 10009]);

interface ApiAnswer {
  readonly config?: Partial<StreamConfig>;
}

/** The way to the server, and the milliseconds that are left. */
interface Way {
  readonly lean: Lean;
  readonly leftMs: () => number;
}

/** Repeating is safe: looking changes nothing, and the same stream made twice is one. */
const api = ({ lean, leftMs }: Way, subject: string, body: string): Promise<{ readonly answer: ApiAnswer; readonly error: ReturnType<typeof apiError> }> =>
  untilAnswered(leftMs(), limits.appendAckMs, async (timeoutMs) => {
    const answer: unknown = JSON.parse((await lean.request(`$JS.API.${subject}`, body, { timeoutMs })).string());
    const error = apiError(answer);
    // JetStream, its leader or enough of its servers are not there yet.
    if (error !== undefined && (error.code === 503 || forming.has(error.errCode))) throw coded('no_owner', error.description);
    return { answer: answer as ApiAnswer, error };
  });

const refused = (name: string, description: string): Error => coded('journal_unavailable', `JetStream refused the stream ${name}: ${description}.`);

const configOf = async (way: Way, name: string): Promise<Partial<StreamConfig> | undefined> => {
  const { answer, error } = await api(way, `STREAM.INFO.${name}`, '');
  if (error?.errCode === streamNotFound) return undefined;
  if (error !== undefined) throw refused(name, error.description);
  return answer.config;
};

const ensure = async (way: Way, wanted: Wanted): Promise<void> => {
  let found = await configOf(way, wanted.name);
  if (found === undefined) {
    const { error } = await api(way, `STREAM.CREATE.${wanted.name}`, JSON.stringify(wanted));
    if (error?.errCode === subjectsOverlap) throw coded('conflict', `The subjects of stream ${wanted.name} belong to another stream already. ${fixed}`);
    // Exists: another host was first; what it made is compared below.
    if (error !== undefined && error.errCode !== streamExists) throw refused(wanted.name, error.description);
    found = await configOf(way, wanted.name);
  }
  const problem = found === undefined ? `Stream ${wanted.name} was made but cannot be found.` : streamProblem(wanted, found);
  if (problem !== undefined) throw coded('conflict', problem);
};

export interface EnsureOptions {
  /** The request path to use; stays open. Default one of its own. */
  readonly lean?: Lean;
  /** Milliseconds of patience with a NATS that is lost meanwhile, for all streams together. Default `limits.natsStartMs`. */
  readonly withinMs?: number;
}

/**
 * Makes what is missing and checks what exists, over losses of the connection. Throws `conflict`, as a sentence, for a difference;
 * `journal_unavailable` when JetStream refuses, or does not answer in time.
 */
export const ensureStreams = async (nc: NatsConnection, plan: StreamPlan, options: EnsureOptions = {}): Promise<void> => {
  if (plan.journalStreams > plan.partitions) {
    throw coded('conflict', `${plan.journalStreams} journal streams are configured for ${plan.partitions} partitions; there cannot be more streams than partitions.`);
  }
  const lean = options.lean ?? createLean(nc);
  const endMs = performance.now() + (options.withinMs ?? limits.natsStartMs);
  const way: Way = { lean, leftMs: () => endMs - performance.now() };
  try {
    // The first journal stream is compared before anything is made: another plan shows in its subjects.
    for (const wanted of streamConfigs(plan)) await ensure(way, wanted);
  } finally {
    if (options.lean === undefined) lean.close();
  }
};
