/**
 * The projections of one daemon: their runners, what readers may ask of them, and how to make one anew.
 *
 * Guarantees: starting waits for nothing and fails for nothing: without Postgres the daemon serves all but lists, and `status` says
 * why. A reader who asks for a position gets rows that hold it, or `deadline_exceeded`; never older rows unknowingly. What readers
 * may have under way is bounded (`limits.projectionReadsMax`).
 */
import { coded } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import type { Log } from '../runtime/log.ts';
import { forget, readCheckpoints, type Positions } from './checkpoint.ts';
import type { JournalSource } from './journal.ts';
import { migrate, migrationsFolder, readMigrations } from './migrate.ts';
import { Pause } from './pause.ts';
import { isWithoutSchema, type Sql } from './postgres.ts';
import type { Position, Projection } from './projection.ts';
import { openReaders } from './readers.ts';
import { startRunner, type Runner } from './runner.ts';

export interface ProjectionsOptions {
  readonly postgresUrl: string;
  readonly source: JournalSource;
  readonly projections: readonly Projection[];
  readonly host: string;
  readonly log: Log;
}

export interface Projections {
  /** For readers: a pool; statements end by themselves after `limits.postgresStatementMs`. While Postgres is not there: `upstream_unavailable`, within two seconds at most (readers.ts). */
  read<T>(work: (sql: Sql) => Promise<T>): Promise<T>;
  /** Resolves when the rows hold a commit. Throws `deadline_exceeded`, `overloaded`, `upstream_unavailable`. */
  waitFor(name: string, position: Position, deadlineMs: number): Promise<void>;
  /** Resolves when the rows hold every commit that an organization's actors (all: undefined) have made until now. Throws as `waitFor`, and `journal_unavailable`. */
  caughtUp(name: string, org: string | undefined, deadlineMs: number): Promise<void>;
  /** Makes a projection's rows again from the journal, by whichever daemon runs it; the old ones show until that begins. Resolves when that is done up to now. Throws as `caughtUp`. */
  rebuild(name: string, deadlineMs: number): Promise<void>;
  /** Projection → `running`, `waiting` (another daemon runs it), `starting`, `closed`, or the code of what keeps it down. */
  status(): Readonly<Record<string, string>>;
  readonly runners: ReadonlyMap<string, Runner>;
  close(): Promise<void>;
}

/** Starts in the background. Throws `bad_request` for a URL that is none. */
export const startProjections = (options: ProjectionsOptions): Projections => {
  const { source, projections, host, log } = options;
  const readers = openReaders({ postgresUrl: options.postgresUrl, name: `troupe ${host} readers`, log });
  const progress = new Map(projections.map(({ name }) => [name, new Set<Pause>()]));
  const looks = new Map<string, Promise<Positions>>();
  let reads = 0;

  const runners = new Map(projections.map((projection): [string, Runner] => [projection.name, startRunner({
    projection, source, host, log, postgresUrl: options.postgresUrl,
    prepare: async (sql) => {
      const applied = await migrate(sql, await readMigrations(migrationsFolder));
      if (applied.length > 0) log.info({ applied }, 'the schema was brought up to date');
    },
    onProgress: () => {
      for (const pause of progress.get(projection.name) ?? []) pause.end();
    },
  })]));

  const known = (name: string): Projection => {
    const projection = projections.find((p) => p.name === name);
    if (projection === undefined) throw new TypeError(`There is no projection ${name}.`);
    return projection;
  };

  const bounded = async <T>(work: () => Promise<T>): Promise<T> => {
    if (reads >= limits.projectionReadsMax) throw coded('overloaded');
    reads += 1;
    try {
      return await work();
    } finally {
      reads -= 1;
    }
  };

  /** A new database has no tables until the first runner has made them: a read waits for that, as long as it would for a connection. */
  const whenMade = async <T>(work: () => Promise<T>): Promise<T> => {
    const deadlineAt = performance.now() + limits.postgresConnectMs;
    for (;;) {
      try {
        return await work();
      } catch (error) {
        if (!isWithoutSchema(error) || performance.now() >= deadlineAt) throw error;
      }
      await new Pause().wait(limits.projectionLookMs);
    }
  };

  const positionsOf = async (name: string): Promise<Positions> => {
    try {
      return new Map((await readers.run((sql) => readCheckpoints(sql, name))).map(({ stream, seq }) => [stream, seq]));
    } catch (error) {
      // A new database: the first runner is about to make the schema.
      if (isWithoutSchema(error)) return new Map();
      throw error;
    }
  };

  /** The checkpoints as they are; those who ask at the same time share one look. */
  const look = (name: string): Promise<Positions> => {
    const under = looks.get(name);
    if (under !== undefined) return under;
    const fresh = positionsOf(name).finally(() => looks.delete(name));
    looks.set(name, fresh);
    return fresh;
  };

  /** `looked` gives the checkpoints: they are asked of the database each time, since another process may have begun anew. */
  const waitForAll = async (name: string, positions: readonly Position[], deadlineMs: number, looked: () => Promise<Positions>): Promise<void> => {
    const deadlineAt = performance.now() + deadlineMs;
    const pause = new Pause();
    const waiters = progress.get(name);
    waiters?.add(pause);
    try {
      for (;;) {
        const at = await looked();
        if (positions.every(({ stream, seq }) => (at.get(stream) ?? 0) >= seq)) return;
        runners.get(name)?.poke();
        const left = deadlineAt - performance.now();
        if (left <= 0) throw coded('deadline_exceeded', `The projection ${name} is not there yet.`);
        await pause.wait(Math.min(left, limits.projectionLookMs));
      }
    } finally {
      waiters?.delete(pause);
    }
  };

  const heads = async (projection: Projection, org: string | undefined): Promise<readonly Position[]> =>
    Promise.all(source.streams.map(async (stream) => ({ stream, seq: await source.head(stream, projection.type, org) })));

  return {
    read: (work) => bounded(() => whenMade(() => readers.run(work))),
    waitFor: (name, position, deadlineMs) => bounded(() => waitForAll(known(name).name, [position], deadlineMs, () => look(name))),
    caughtUp: (name, org, deadlineMs) => bounded(async () => waitForAll(name, await heads(known(name), org), deadlineMs, () => look(name))),
    rebuild: async (name, deadlineMs) => {
      const projection = known(name);
      const head = await heads(projection, undefined);
      await readers.run((sql) => forget(sql, name));
      runners.get(name)?.recheck();
      // Not the shared look: one under way may be of the time before.
      await waitForAll(name, head, deadlineMs, () => positionsOf(name));
    },
    status: () => Object.fromEntries([...runners].map(([name, { state }]) => [name, state.name === 'down' ? state.code : state.name])),
    runners,
    close: async () => {
      await Promise.all([...runners.values()].map((runner) => runner.close()));
      await readers.close();
    },
  };
};
