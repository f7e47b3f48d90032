/**
 * How far a projection has come, per journal stream. The checkpoint moves by compare-and-set inside the transaction that writes
 * the rows: of two that read the same commits, one writes them and the other writes nothing.
 */
import { coded } from '../../contracts/errors.ts';
import type { Projection } from './projection.ts';
import { transaction, type Sql, type TransactionSql } from './postgres.ts';

/** Stream → sequence of the last commit whose rows are written. */
export type Positions = ReadonlyMap<string, number>;

export interface Checkpoint {
  readonly stream: string;
  readonly created: string;
  readonly seq: number;
}

export const readCheckpoints = async (sql: Sql | TransactionSql, name: string): Promise<readonly Checkpoint[]> => {
  const rows = await sql<{ stream: string; stream_created: string; seq: string }[]>`
    select stream, stream_created, seq from troupe.projection_checkpoints where projection = ${name}`;
  return rows.map((row) => ({ stream: row.stream, created: row.stream_created, seq: Number(row.seq) }));
};

export type StreamIdentity = Pick<Checkpoint, 'stream' | 'created'>;

const addCheckpoints = async (tx: TransactionSql, name: string, streams: readonly StreamIdentity[]): Promise<void> => {
  for (const { stream, created } of streams) {
    await tx`insert into troupe.projection_checkpoints (projection, stream, stream_created, seq) values (${name}, ${stream}, ${created}, 0)`;
  }
};

/** Begins a projection anew: no rows, every checkpoint at 0. */
export const restart = async (sql: Sql, projection: Projection, streams: readonly StreamIdentity[]): Promise<void> => {
  await transaction(sql, async (tx) => {
    // First, so that a batch under way either is committed before and deleted here, or finds no checkpoint and writes nothing.
    await forget(tx, projection.name);
    await projection.clear(tx);
    await addCheckpoints(tx, projection.name, streams);
  });
};

/** Deletes a projection's checkpoints: whoever runs it begins anew. The rows stay until then. */
export const forget = async (sql: Sql | TransactionSql, name: string): Promise<void> => {
  await sql`delete from troupe.projection_checkpoints where projection = ${name}`;
};

/** Moves a checkpoint. Throws `fenced` if it is not where it was, or if this is not the connection (`pid`) that holds the projection's lock. */
export const advance = async (tx: TransactionSql, name: string, move: { readonly stream: string; readonly from: number; readonly to: number; readonly pid: number }): Promise<void> => {
  const moved = await tx`
    update troupe.projection_checkpoints set seq = ${move.to}, updated_at = now()
    where projection = ${name} and stream = ${move.stream} and seq = ${move.from} and pg_backend_pid() = ${move.pid} returning seq`;
  if (moved.length === 0) throw coded('fenced', `The projection ${name} was moved by somebody else.`);
};
