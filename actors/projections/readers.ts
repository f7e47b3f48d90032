/**
 * The connections that readers share, and whether Postgres is there at all.
 *
 * Guarantees: while Postgres is known not to serve, a read is refused at once and no statement is made. A read that has waited for
 * `limits.postgresSuspectMs`, or has failed for want of a server, has it looked for, on a connection made for that; if nothing answers within
 * `limits.postgresProbeMs`, all that wait are refused together and the old connections are given up, since a dead network may leave them
 * waiting for ever. Then it is looked for again and again, until it answers. A server that is only slow keeps its readers waiting, as long
 * as a statement may take.
 */
import { coded, CodedError } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import type { Log } from '../runtime/log.ts';
import { Pause } from './pause.ts';
import { answered, closePostgres, isFull, isWithoutSchema, openPostgres, type Sql } from './postgres.ts';

export interface ReadersOptions {
  readonly postgresUrl: string;
  /** Shown in pg_stat_activity. */
  readonly name: string;
  readonly log: Log;
}

export interface Readers {
  /** Whether Postgres is taken to serve. */
  readonly up: boolean;
  /** Throws `upstream_unavailable`, at once while Postgres is known to be gone; the coded errors of the work. */
  run<T>(work: (sql: Sql) => Promise<T>): Promise<T>;
  close(): Promise<void>;
}

const unavailable = (): CodedError => coded('upstream_unavailable', 'Postgres cannot be reached.');

/** True for an error that may mean that nobody is there. */
const isSuspect = (error: unknown): boolean => error instanceof CodedError && error.code === 'upstream_unavailable' && !isWithoutSchema(error);

/** Dials nothing before the first read. Throws `bad_request` for a URL that is none. */
export const openReaders = ({ postgresUrl, name, log }: ReadersOptions): Readers => {
  const open = (): Sql => openPostgres(postgresUrl, { name, max: limits.postgresReadersMax });
  const waiting = new Set<(error: CodedError) => void>();
  const pause = new Pause();
  let pool = open();
  let up = true;
  let closed = false;
  let looking: Promise<void> | undefined;

  const isThere = async (): Promise<boolean> => {
    const sql = openPostgres(postgresUrl, { name: `${name} probe`, max: 1, bare: true });
    try {
      await answered(sql`select 1`, limits.postgresProbeMs);
      return true;
    } catch (error) {
      // A server without a connection to spare serves those who have one.
      return isFull(error);
    } finally {
      await closePostgres(sql);
    }
  };

  const lose = async (): Promise<void> => {
    log.warn({ readers: waiting.size }, 'Postgres cannot be reached: lists are refused until it answers');
    up = false;
    for (const reject of waiting) reject(unavailable());
    const lost = pool;
    pool = open();
    await closePostgres(lost);
  };

  const untilThere = async (): Promise<void> => {
    while (!closed && !await isThere()) {
      if (up) await lose();
      await pause.wait(limits.postgresLookMs);
    }
    if (!up && !closed) log.info({}, 'Postgres answers again');
    up = true;
  };

  /** One look at a time, whoever asks. */
  const look = (): void => {
    if (closed) return;
    looking ??= untilThere().finally(() => { looking = undefined; });
  };

  return {
    get up() {
      return up;
    },
    run: async (work) => {
      if (!up || closed) throw unavailable();
      const gone = Promise.withResolvers<never>();
      waiting.add(gone.reject);
      const suspicion = setTimeout(look, limits.postgresSuspectMs);
      try {
        return await Promise.race([answered(work(pool)), gone.promise]);
      } catch (error) {
        if (isSuspect(error)) look();
        throw error;
      } finally {
        clearTimeout(suspicion);
        waiting.delete(gone.reject);
      }
    },
    close: async () => {
      closed = true;
      pause.end();
      await looking;
      await closePostgres(pool);
    },
  };
};
