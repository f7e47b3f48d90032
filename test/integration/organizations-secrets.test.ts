/**
 * What organizations give out is stored nowhere: API keys, tokens of invitations, the webhook's secret (KEY-006, G7). Everything that a
 * running system has written is searched: the files of NATS and Postgres, and the output of every process.
 */
import assert from 'node:assert/strict';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import postgres from 'postgres';
import { z } from 'zod';
import { organizationClient } from '../harness/organization.ts';
import { answered, startPlatform } from '../harness/platform.ts';

/** Every byte under a folder, file by file, as latin1 so that nothing is lost. */
const contents = async (folder: string): Promise<string[]> => {
  const entries = (await readdir(folder, { recursive: true, withFileTypes: true })).filter((entry) => entry.isFile());
  return Promise.all(entries.map(async (entry) => readFile(join(entry.parentPath, entry.name), 'latin1')));
};

test('organization secrets - no API key, invitation token or webhook secret is in storage or in any output [KEY-003] [KEY-006] [G7]', { timeout: 240_000 }, async (t) => {
  const output: string[] = [];
  const platform = await startPlatform(t, { onLine: (_process, line) => output.push(line), daemon: { log_level: 'trace' } });
  const client = organizationClient(platform);
  const owner = await platform.signUp('owner@example.com');
  const marker = 'marker-of-this-organization';
  const { id: orgId } = await client.create(owner, marker);
  const { key } = await client.key(orgId, owner);
  assert.equal((await client.call('GET', '', key, { orgId })).status, 200);
  await client.call('PATCH', '', key, { orgId, name: 'By key' });
  for (const token of [`${key.slice(0, -2)}xx`, `${key}x`]) await client.call('GET', '', token, { orgId });
  const { token } = await client.invite(orgId, owner, 'invited@example.com');
  await platform.api('POST', '/api/organization/invitations/show', { json: { token } });
  await client.call('POST', '/invitations/accept', owner, { token });
  await client.call('PATCH', '', owner, { orgId, settings: { webhookUrl: 'https://127.0.0.1:1/' } });
  const { secret } = answered(await client.call('GET', '/webhook', owner, { orgId }), 200, z.object({ secret: z.string() }));
  assert.equal((await client.call('GET', '/audit', owner, { orgId, format: 'csv' })).status, 200);

  const sql = postgres(platform.postgres.url, { max: 1 });
  t.after(() => sql.end());
  const tables = await sql<{ name: string }[]>`select table_name as name from information_schema.tables where table_schema = 'troupe'`;
  assert.ok(tables.length >= 5);
  const rows = (await Promise.all(tables.map(({ name }) => sql`select * from ${sql(`troupe.${name}`)}`))).map((all) => JSON.stringify(all));
  const everything = [...await contents(platform.nats.dir), ...rows, ...output];
  assert.ok(everything.some((text) => text.includes(marker)) && rows.some((text) => text.includes(marker)), 'what is stored is found');
  const secrets = { key: key.slice(-43), token: token.split('.')[2] ?? '', secret: secret.slice('whsec_'.length) };
  for (const [name, text] of Object.entries(secrets)) {
    assert.ok(text.length === 43, name);
    // Whole or a good part of it, also as the hex of its bytes.
    for (const part of [text.slice(8, 32), Buffer.from(text, 'base64url').toString('hex').slice(8, 40), Buffer.from(text).toString('hex').slice(8, 40)]) {
      assert.ok(everything.every((stored) => !stored.includes(part)), `${name} is stored`);
    }
  }
});
