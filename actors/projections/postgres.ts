/**
 * The one place that speaks to Postgres' client: how connections are made and what its errors mean here.
 *
 * Guarantees: a statement ends by itself (`statement_timeout`), a transaction that a paused process holds is ended by the server,
 * and so is a `lease` whose holder has not spoken for `limits.projectionLeaseMs`, with the advisory locks it held. Errors leave coded
 * and without the connection's URL, which holds a password. Needs Postgres 14 (idle_session_timeout).
 */
import postgres, { type Sql, type TransactionSql } from 'postgres';
import { coded, CodedError } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';

export type { Sql, TransactionSql } from 'postgres';

/** SQLSTATE of a lock that was not granted in time. */
export const lockTimedOut = '55P03';

export interface PostgresOptions {
  /** Shown in pg_stat_activity. */
  readonly name: string;
  /** Connections at most. */
  readonly max: number;
  /** The server ends a connection that is silent for `limits.projectionLeaseMs`. */
  readonly lease?: boolean;
  /** Asks nothing of the server beyond the statements themselves: to see whether it answers. */
  readonly bare?: boolean;
}

/** Nothing is dialled before the first statement. Throws `bad_request` for a URL that is none. */
export const openPostgres = (url: string, { name, max, lease = false, bare = false }: PostgresOptions): Sql => {
  try {
    return postgres(url, {
      max, connect_timeout: limits.postgresConnectMs / 1_000, onnotice: () => undefined, fetch_types: !bare,
      // Without it the client waits up to 20 s before it dials a server that came back.
      backoff: () => limits.storeRetryMaxMs / 1_000,
      connection: {
        application_name: name, search_path: 'pg_catalog', TimeZone: 'UTC', statement_timeout: limits.postgresStatementMs,
        idle_in_transaction_session_timeout: limits.projectionLeaseMs,
        ...(lease ? { idle_session_timeout: limits.projectionLeaseMs, lock_timeout: limits.projectionLockMs } : {}),
      },
    });
  } catch (cause) {
    throw coded('bad_request', 'The Postgres URL cannot be read.', { cause });
  }
};

/** Ends all connections at once; what runs on them is rejected. */
export const closePostgres = async (sql: Sql): Promise<void> => {
  await sql.end({ timeout: 0 });
};

const codeOf = (error: unknown): string =>
  (error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : '');

/** True for Postgres' error with this SQLSTATE. */
export const isSqlState = (error: unknown, state: string): boolean => error instanceof postgres.PostgresError && error.code === state;

/** True, of a coded error, if the schema was not there yet: undefined table, invalid schema name. */
export const isWithoutSchema = (error: unknown): boolean =>
  error instanceof CodedError && (isSqlState(error.cause, '42P01') || isSqlState(error.cause, '3F000'));

/** True, of a coded error, if the server answered that it has no connection or memory to spare (class 53). */
export const isFull = (error: unknown): boolean =>
  error instanceof CodedError && error.cause instanceof postgres.PostgresError && error.cause.code.startsWith('53');

/** Classes of SQLSTATE that speak of the server's condition, a schema still to be made included, not of the statement (PostgreSQL documentation, appendix A). */
const condition = /^(08|25P0[34]|28|3D|3F|40|42P01|53|55P03|57|58)/;

/** Any error of a statement as ours: coded ones stay, a server that is not there is `upstream_unavailable`, the rest are bugs. */
export const postgresError = (error: unknown): CodedError => {
  if (error instanceof CodedError) return error;
  const code = codeOf(error);
  if (error instanceof postgres.PostgresError && !condition.test(code)) {
    return coded('internal_error', `Postgres refused a statement (${code}): ${error.message}.`, { cause: error });
  }
  const why = error instanceof postgres.PostgresError ? `${code}: ${error.message}` : code;
  if (code !== '') return coded('upstream_unavailable', `Postgres does not serve (${why}).`, { cause: error });
  return coded('internal_error', undefined, { cause: error });
};

/** Runs statements with a deadline of the client's own, since a lost network answers nothing. Throws coded errors. */
export const answered = async <T>(work: Promise<T>, deadlineMs: number = limits.postgresStatementMs * 2): Promise<T> => {
  const late = Promise.withResolvers<never>();
  const timer = setTimeout(() => late.reject(coded('upstream_unavailable', 'Postgres does not answer.')), deadlineMs);
  try {
    return await Promise.race([work, late.promise]);
  } catch (error) {
    throw postgresError(error);
  } finally {
    clearTimeout(timer);
  }
};

const lostConnection = (): CodedError => coded('upstream_unavailable', 'The connection of a transaction was lost.');

/** True for an error that says that the connection is gone: one of the client's own or of the socket, not an answer of the server. */
const isLoss = (error: unknown): boolean => {
  const said = error instanceof CodedError && error.cause !== undefined ? error.cause : error;
  if (!(said instanceof Error) || said instanceof postgres.PostgresError) return false;
  return codeOf(said).startsWith('CONNECT') || 'syscall' in said;
};

/**
 * Runs `work` in a transaction: committed when it resolves, rolled back when it throws, gone with the connection when that is lost.
 * Throws what `work` throws, or the client's error for the loss.
 *
 * The client's own `begin` rolls back whatever was thrown. On a connection that the server has closed there is nothing to roll back and
 * nothing to write to: the client (3.4.9) then writes to a socket it does not have, from a timer, which ends the process
 * (porsager/postgres issues 1154 and 1208). So work that has lost its connection never comes to its end here, and no statement of it
 * follows; what the caller gets is the loss, which the client tells by itself.
 */
export const transaction = async <T>(sql: Sql, work: (tx: TransactionSql) => Promise<T>): Promise<T> => {
  let lost = false;
  const never = new Promise<never>(() => undefined);
  const told = Promise.withResolvers<T>();
  const begun = sql.begin(async (tx) => {
    const guarded = new Proxy(tx, {
      apply: (target, self, args) => {
        if (lost) throw lostConnection();
        return Reflect.apply(target, self, args) as unknown;
      },
    });
    try {
      told.resolve(await work(guarded));
    } catch (error) {
      if (lost || isLoss(error)) return never;
      throw error;
    }
    return lost ? never : undefined;
  });
  begun.catch(() => { lost = true; });
  await begun;
  return told.promise;
};
