/**
 * The schema's migrations: numbered SQL files, applied in order, once, forward only.
 *
 * Guarantees: any number of daemons may run this at once (advisory lock); a file and the note that it was applied are one
 * transaction, so a crash leaves either both or neither; a file that changed after it was applied, a gap in the numbers, or a
 * schema newer than this code is refused with a sentence and nothing is changed.
 */
import { createHash } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { coded } from '../../contracts/errors.ts';
import { answered, transaction, type Sql } from './postgres.ts';

export interface Migration {
  readonly number: number;
  readonly name: string;
  readonly sha256: string;
  readonly text: string;
}

/** The folder of this product's migrations. */
export const migrationsFolder = join(import.meta.dirname, 'sql');

const fileName = /^(\d{4})_([a-z0-9_]+)\.sql$/;

/** Reads a folder's migrations in order. Throws `conflict` for a file that is not named like one, or a gap. */
export const readMigrations = async (folder: string): Promise<readonly Migration[]> => {
  const names = (await readdir(folder)).toSorted();
  return Promise.all(names.map(async (file, index) => {
    const [, number = '', name = ''] = fileName.exec(file) ?? [];
    if (Number(number) !== index + 1) throw coded('conflict', `Migration ${file} is not number ${index + 1}: the files of a schema are 0001_name.sql, 0002_name.sql and so on.`);
    const text = await readFile(join(folder, file), 'utf8');
    return { number: Number(number), name, text, sha256: createHash('sha256').update(text).digest('hex') };
  }));
};

/** Throws `conflict` if what was applied is not a beginning of `known`. */
const requireBeginning = (known: readonly Migration[], applied: readonly { readonly number: number; readonly name: string; readonly sha256: string }[]): void => {
  for (const [index, row] of applied.entries()) {
    const migration = known[index];
    if (migration === undefined) throw coded('conflict', `The database has migration ${row.number} (${row.name}), which this release does not know. Run the release that made it, or a later one.`);
    if (row.number !== migration.number || row.sha256 !== migration.sha256) {
      throw coded('conflict', `Migration ${migration.number} (${migration.name}) is not what was applied to the database. An applied migration never changes: write a further one.`);
    }
  }
};

/** Applies what is missing; gives the numbers it applied. Throws `conflict`, `upstream_unavailable`, `internal_error` (a file that Postgres refuses). */
export const migrate = async (sql: Sql, migrations: readonly Migration[]): Promise<readonly number[]> => {
  const done: number[] = [];
  for (;;) {
    const applied = await answered(transaction(sql, async (tx) => {
      // Of the transaction, so that it ends with it, however it ends.
      await tx`select pg_advisory_xact_lock(hashtextextended('troupe.migrations', 0))`;
      await tx`create schema if not exists troupe`;
      await tx`create table if not exists troupe.migrations (
        number integer primary key, name text not null, sha256 text not null, applied_at timestamptz not null default now())`;
      const rows = await tx<{ number: number; name: string; sha256: string }[]>`select number, name, sha256 from troupe.migrations order by number`;
      requireBeginning(migrations, rows);
      const next = migrations[rows.length];
      if (next === undefined) return undefined;
      await tx.unsafe(next.text).simple();
      await tx`insert into troupe.migrations (number, name, sha256) values (${next.number}, ${next.name}, ${next.sha256})`;
      return next.number;
    }));
    if (applied === undefined) return done;
    done.push(applied);
  }
};
