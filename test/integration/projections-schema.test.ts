/** Migrations of the schema: once, in order, by many at once, forward only. */
import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test, type TestContext } from 'node:test';
import type { Sql } from 'postgres';
import { migrate, migrationsFolder, readMigrations, type Migration } from '../../actors/projections/migrate.ts';
import { closePostgres, openPostgres } from '../../actors/projections/postgres.ts';
import { startPostgres, type PostgresServer } from '../harness/postgres.ts';

let server: PostgresServer;
let databases = 0;
before(async () => { server = await startPostgres(); });
after(() => server.stop());

/** A new database, and its URL. */
const database = async (t: TestContext): Promise<{ sql: Sql; connect: () => Sql }> => {
  databases += 1;
  const root = openPostgres(server.url, { name: 'test', max: 1 });
  await root.unsafe(`create database m${databases}`);
  await closePostgres(root);
  const url = server.url.replace(/\/[^/]*$/, `/m${databases}`);
  const open: Sql[] = [];
  const connect = (): Sql => {
    const sql = openPostgres(url, { name: 'test', max: 1 });
    open.push(sql);
    return sql;
  };
  t.after(() => Promise.all(open.map(closePostgres)));
  return { sql: connect(), connect };
};

const folderOf = async (t: TestContext, files: Readonly<Record<string, string>>): Promise<readonly Migration[]> => {
  const folder = await mkdtemp(join(tmpdir(), 'troupe-sql-'));
  t.after(() => rm(folder, { recursive: true }));
  for (const [name, text] of Object.entries(files)) await writeFile(join(folder, name), text);
  return readMigrations(folder);
};

const one = 'create table troupe.one (n integer);';
const two = 'create table troupe.two (n integer);\ninsert into troupe.one values (1);';

test('schema - the product\'s migrations apply once and then change nothing', { timeout: 60_000 }, async (t) => {
  const { sql } = await database(t);
  const migrations = await readMigrations(migrationsFolder);
  assert.ok(migrations.length >= 1);
  assert.deepEqual(await migrate(sql, migrations), migrations.map(({ number }) => number));
  assert.deepEqual(await migrate(sql, migrations), []);
  const rows = await sql`select number, name from troupe.migrations order by number`;
  assert.deepEqual(rows.map((row) => row['number']), migrations.map(({ number }) => number));
});

test('schema - many that start at once apply each file once', { timeout: 60_000 }, async (t) => {
  const { connect, sql } = await database(t);
  const migrations = await folderOf(t, { '0001_one.sql': one, '0002_two.sql': two });
  const applied = await Promise.all(Array.from({ length: 6 }, () => migrate(connect(), migrations)));
  assert.deepEqual(applied.flat().toSorted(), [1, 2]);
  assert.equal((await sql`select n from troupe.one`).length, 1);
});

test('schema - a further file is applied alone; one that fails leaves nothing of itself', { timeout: 60_000 }, async (t) => {
  const { sql } = await database(t);
  assert.deepEqual(await migrate(sql, await folderOf(t, { '0001_one.sql': one })), [1]);
  const broken = await folderOf(t, { '0001_one.sql': one, '0002_two.sql': `${two}\nselect nothing_of_that_name();` });
  await assert.rejects(migrate(sql, broken), { code: 'internal_error', message: /42883/ });
  assert.deepEqual((await sql`select to_regclass('troupe.two') as two`)[0]?.['two'], null);
  assert.deepEqual(await migrate(sql, await folderOf(t, { '0001_one.sql': one, '0002_two.sql': two })), [2]);
});

test('schema - a changed file, a newer schema and a gap are refused, and nothing is applied', { timeout: 60_000 }, async (t) => {
  const { sql } = await database(t);
  await migrate(sql, await folderOf(t, { '0001_one.sql': one, '0002_two.sql': two }));
  const three = 'create table troupe.three ();';
  const changed = await folderOf(t, { '0001_one.sql': `${one} `, '0002_two.sql': two, '0003_three.sql': three });
  await assert.rejects(migrate(sql, changed), { code: 'conflict', message: /Migration 1 \(one\) is not what was applied/ });
  await assert.rejects(migrate(sql, await folderOf(t, { '0001_one.sql': one })), { code: 'conflict', message: /has migration 2 \(two\), which this release does not know/ });
  assert.deepEqual((await sql`select to_regclass('troupe.three') as three`)[0]?.['three'], null);
  const misnamed: Readonly<Record<string, string>>[] = [{ '0002_one.sql': one }, { '0001_one.sql': one, '0003_three.sql': three }, { '0001_one.sql': one, 'two.sql': two }];
  for (const files of misnamed) {
    await assert.rejects(folderOf(t, files), { code: 'conflict' }, JSON.stringify(files));
  }
});
