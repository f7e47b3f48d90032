/**
 * Runs one projection: reads its journal streams in order and writes rows, as long as this process holds the projection's lock.
 *
 * Guarantees
 * P1  Exactly once in effect: rows and checkpoint are one transaction, and the checkpoint moves by compare-and-set. A crash, a lost
 *     answer to a commit or a second runner can repeat the reading, never the rows.
 * P2  One process runs it at a time: an advisory lock of the connection that also writes. When that process dies the lock is free at
 *     once; when it is paused or cut off, after `limits.projectionLeaseMs` (the server ends its silent connection); it writes nothing after.
 * P3  It never gives up: whatever fails is tried again with backoff, and `status` says what it was.
 * P4  Rows of another journal are not kept: when a stream was made anew, or ends before its checkpoint, the projection starts over. So it
 *     does when its checkpoints were deleted, which is how it is rebuilt.
 * A commit that cannot be read is left out, with an error in the log: one broken session must not hide all others.
 */
import { CodedError, coded } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { parseStateSubject } from '../../contracts/subjects.ts';
import { decodeCommit } from '../runtime/commit.ts';
import type { Log } from '../runtime/log.ts';
import type { StoredMessage } from '../runtime/store.ts';
import { advance, readCheckpoints, restart, type Positions } from './checkpoint.ts';
import type { JournalSource } from './journal.ts';
import { Pause } from './pause.ts';
import { answered, closePostgres, isSqlState, lockTimedOut, openPostgres, transaction, type Sql } from './postgres.ts';
import type { ProjectedCommit, Projection } from './projection.ts';

/** `waiting`: another process runs it. `down`: it cannot run now; it is tried again. */
export type RunnerState =
  | { readonly name: 'starting' | 'waiting' | 'running' | 'closed' }
  | { readonly name: 'down'; readonly code: string; readonly message: string };

export interface RunnerOptions {
  readonly projection: Projection;
  readonly postgresUrl: string;
  readonly source: JournalSource;
  readonly log: Log;
  /** Name of this host, shown in pg_stat_activity. */
  readonly host: string;
  /** This process has committed further rows. */
  readonly onProgress: () => void;
  /** Run before each time the lock is asked for; makes the schema. */
  readonly prepare: (sql: Sql) => Promise<void>;
}

export interface Runner {
  readonly state: RunnerState;
  /** Commits left out because they could not be read, since the start of this process. */
  readonly leftOut: number;
  /** Looks at the journal now. */
  poke(): void;
  /** Looks now whether the checkpoints are where this runner left them. */
  recheck(): void;
  close(): Promise<void>;
}

/** Starts at once, in the background; never throws. */
export const startRunner = (options: RunnerOptions): Runner => {
  const { projection, source, log } = options;
  const fields = { projection: projection.name };
  const pause = new Pause();
  let state: RunnerState = { name: 'starting' };
  let leftOut = 0;
  let closing = false;
  let session: Sql | undefined;
  /** When the checkpoints were last compared. */
  let beatAt = 0;

  const enter = (next: RunnerState): void => {
    const news = next.name !== state.name || (next.name === 'down' && state.name === 'down' && next.code !== state.code);
    state = next;
    if (!news) return;
    if (next.name === 'down') log.warn({ ...fields, code: next.code, reason: next.message }, 'a projection does not run; it is tried again');
    else log.info({ ...fields, state: next.name }, 'projection');
  };

  const decode = ({ subject, seq, data }: StoredMessage): ProjectedCommit | undefined => {
    try {
      return { address: parseStateSubject(subject), seq, commit: decodeCommit(data) };
    } catch (error) {
      leftOut += 1;
      log.error({ ...fields, subject, seq, err: error }, 'a commit cannot be read and is left out of a projection');
      return undefined;
    }
  };

  /** Waits for the lock; gives the connection's process id at the server. */
  const acquire = async (sql: Sql): Promise<number> => {
    const key = `troupe.projection.${projection.name}`;
    // Each one statement, so that lock and process id are of one connection.
    const [free] = await answered(sql<{ pid: number; got: boolean }[]>`
      select pg_backend_pid() as pid, pg_try_advisory_lock(hashtextextended(${key}, 0)) as got`);
    if (free?.got === true) return free.pid;
    enter({ name: 'waiting' });
    for (;;) {
      try {
        const [row] = await answered(sql<{ pid: number }[]>`select pg_backend_pid() as pid, pg_advisory_lock(hashtextextended(${key}, 0))`);
        if (row === undefined) throw new TypeError('Postgres answered without a row');
        return row.pid;
      } catch (error) {
        // Not granted in time: asked for again, so that a connection that is gone shows.
        if (!(error instanceof CodedError) || !isSqlState(error.cause, lockTimedOut) || closing) throw error;
      }
    }
  };

  /** Where each stream is to be read from. */
  const begin = async (sql: Sql): Promise<Map<string, number>> => {
    const streams = await Promise.all(source.streams.map(async (stream) => ({ stream, ...await source.describe(stream) })));
    const known = new Map((await answered(readCheckpoints(sql, projection.name))).map((checkpoint) => [checkpoint.stream, checkpoint]));
    const strange = streams.find(({ stream, created, lastSeq }) => {
      const checkpoint = known.get(stream);
      return checkpoint === undefined || checkpoint.created !== created || checkpoint.seq > lastSeq;
    });
    if (strange !== undefined) {
      if (known.size > 0) log.warn({ ...fields, stream: strange.stream }, 'the journal is not the one a projection was made of: it is made anew');
      await answered(restart(sql, projection, streams));
    }
    const from = new Map<string, number>();
    for (const { stream, seq } of await answered(readCheckpoints(sql, projection.name))) from.set(stream, seq);
    return from;
  };

  const write = async (sql: Sql, pid: number, at: Map<string, number>, stream: string, batch: readonly StoredMessage[]): Promise<void> => {
    const from = at.get(stream) ?? 0;
    const to = batch.at(-1)?.seq ?? from;
    const commits = batch.map(decode).filter((commit) => commit !== undefined);
    await answered(transaction(sql, async (tx) => {
      await advance(tx, projection.name, { stream, from, to, pid });
      if (commits.length > 0) await projection.apply(tx, commits);
    }));
    at.set(stream, to);
    options.onProgress();
  };

  /** Keeps the lease alive, and sees a rebuild that another process asked for. Throws `fenced` when the checkpoints are not ours any more. */
  const beat = async (sql: Sql, at: Positions): Promise<void> => {
    const found = new Map((await answered(readCheckpoints(sql, projection.name))).map(({ stream, seq }) => [stream, seq]));
    for (const [stream, seq] of at) {
      if (found.get(stream) !== seq) throw coded('fenced', `The projection ${projection.name} was moved by somebody else.`);
    }
  };

  const lead = async (sql: Sql): Promise<void> => {
    await options.prepare(sql);
    const pid = await acquire(sql);
    const at = await begin(sql);
    enter({ name: 'running' });
    options.onProgress();
    beatAt = performance.now();
    while (!closing) {
      let moved = false;
      for (const stream of source.streams) {
        const batch = await source.next(stream, projection.type, (at.get(stream) ?? 0) + 1);
        if (batch.length === 0 || closing) continue;
        await write(sql, pid, at, stream, batch);
        moved = true;
      }
      if (performance.now() - beatAt >= limits.projectionLeaseMs / 3) {
        await beat(sql, at);
        beatAt = performance.now();
      }
      if (!moved) await pause.wait(limits.projectionLookMs);
    }
  };

  const run = async (): Promise<void> => {
    let failures = 0;
    while (!closing) {
      const sql = openPostgres(options.postgresUrl, { name: `troupe ${options.host} ${projection.name}`, max: 1, lease: true });
      session = sql;
      const began = performance.now();
      try {
        await lead(sql);
      } catch (error) {
        if (closing) break;
        if (performance.now() - began > limits.projectionRetryMaxMs) failures = 0;
        failures += 1;
        // Somebody else's move is no fault: the checkpoints are read again at once.
        if (error instanceof CodedError && error.code === 'fenced') log.info({ ...fields }, 'a projection begins where its checkpoints are now');
        else enter(downBy(error, log));
      } finally {
        await closePostgres(sql);
      }
      const ceiling = Math.min(limits.projectionRetryBaseMs * 2 ** Math.min(failures, 10), limits.projectionRetryMaxMs);
      if (!closing) await pause.wait(ceiling * (0.5 + Math.random() / 2));
    }
    enter({ name: 'closed' });
  };
  const ended = run();

  return {
    get state() {
      return state;
    },
    get leftOut() {
      return leftOut;
    },
    poke: () => pause.end(),
    recheck: () => {
      beatAt = -Infinity;
      pause.end();
    },
    close: async () => {
      closing = true;
      pause.end();
      // A statement that waits (for the lock, for a server that is gone) is ended with its connection.
      if (session !== undefined) await closePostgres(session);
      await ended;
    },
  };
};

const downBy = (error: unknown, log: Log): RunnerState => {
  if (error instanceof CodedError && error.entry.kind !== 'bug') return { name: 'down', code: error.code, message: error.message };
  log.error({ err: error }, 'a projection failed on our side');
  return { name: 'down', code: 'internal_error', message: error instanceof CodedError ? error.message : 'Something went wrong on our side.' };
};
