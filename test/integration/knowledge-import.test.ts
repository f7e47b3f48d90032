/** `troupe knowledge` as a process against a whole Troupe: a vault is imported, imported again, stopped on the way; what it says of files that fail and of a wrong key. */
import assert from 'node:assert/strict';
import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, before, suite, test } from 'node:test';
import { z } from 'zod';
import { searchAnswer } from '../../contracts/knowledge.ts';
import { startDeployment, type TestDeployment } from '../harness/deployment.ts';
import { commandLine, type CommandLine } from '../harness/newcomer.ts';

const imported = z.strictObject({
  kind: z.literal('import'), folder: z.string(), files: z.int(), indexed: z.int(), known: z.int(), failed: z.array(z.strictObject({ path: z.string(), reason: z.string() })), interrupted: z.boolean(),
});

suite('troupe knowledge', { timeout: 300_000 }, () => {
  let on: TestDeployment;
  let command: CommandLine;
  let folder: string;
  const ends: (() => Promise<void>)[] = [];
  const env = (key = on.key): Readonly<Record<string, string>> => ({ TROUPE_DEPLOYMENT_URL: on.deploymentUrl, TROUPE_DEPLOYMENT_KEY: key });
  const write = async (files: Readonly<Record<string, string | Uint8Array>>): Promise<void> => {
    for (const [path, content] of Object.entries(files)) {
      await mkdir(dirname(join(folder, path)), { recursive: true });
      await writeFile(join(folder, path), content);
    }
  };
  const run = async (vault: string, key?: string) => command.json(['knowledge', 'import', join(folder, vault)], imported, { env: env(key) });

  before(async () => {
    on = await startDeployment(undefined);
    command = await commandLine({ after: (end) => void ends.push(end) }, on);
    folder = await mkdtemp(join(tmpdir(), 'troupe-vault-'));
  });
  after(async () => {
    for (const end of ends) await end();
    await rm(folder, { recursive: true, force: true });
    await on.stop();
  });

  test('troupe knowledge - a vault is imported once; again, only what has changed is sent', async () => {
    await write({
      'vault/Index.md': '---\ntitle: The index\n---\n[[Deep note]]', 'vault/a/b/Deep note.md': 'The narwhal swims.', 'vault/Ünï.markdown': 'narwhal too',
      'vault/.obsidian/hidden.md': 'narwhal', 'vault/node_modules/x/README.md': 'narwhal', 'vault/image.png': 'narwhal', 'outside.md': 'narwhal',
      ...Object.fromEntries(Array.from({ length: 150 }, (_, i) => [`vault/many/n${i}.md`, `number ${i}`])),
    });
    await symlink(join(folder, 'outside.md'), join(folder, 'vault', 'link.md'));
    const first = await run('vault');
    assert.deepEqual({ ...first, folder: '' }, { kind: 'import', folder: '', files: 153, indexed: 153, known: 0, failed: [], interrupted: false });
    const found = await command.json(['knowledge', 'search', 'narwhal'], searchAnswer, { env: env() });
    assert.deepEqual(found.results.map(({ id }) => id).toSorted(), ['a-b-deep-note', 'uni']);
    const again = await run('vault');
    assert.deepEqual([again.indexed, again.known], [0, 153]);
    await write({ 'vault/a/b/Deep note.md': 'The walrus swims.', 'vault/new.md': 'walrus' });
    const changed = await run('vault');
    assert.deepEqual([changed.files, changed.indexed, changed.known], [154, 2, 152]);
    const text = await command.run(['knowledge', 'search', 'walrus', 'swims'], { env: env() });
    assert.match(text.out, /^Deep note {2}\(a-b-deep-note, \d+\.\d\d\)\n {4}The walrus swims\.\n/);
  });

  test('troupe knowledge - files that are no documents are named, and hold up no other', async () => {
    await write({
      'mixed/good.md': 'pelican', 'mixed/latin.md': Buffer.from([0x63, 0xe9]), 'mixed/large.md': 'x'.repeat(1024 * 1024 + 1),
      // Six bytes each in JSON: no request holds it.
      'mixed/controls.md': '\u0001'.repeat(1024 * 1024), 'mixed/other.md': 'pelican',
    });
    const { code, out } = await command.run(['knowledge', 'import', join(folder, 'mixed'), '--json'], { env: env() });
    assert.equal(code, 1);
    const said = imported.parse(JSON.parse(out));
    assert.deepEqual([said.indexed, said.failed.map(({ path }) => path).toSorted()], [2, ['controls.md', 'large.md', 'latin.md']]);
    const plain = await command.run(['knowledge', 'import', join(folder, 'mixed')], { env: env() });
    assert.match(plain.out, /^Imported mixed: 5 documents, 0 new or changed, 2 known, 3 failed\.\n$/);
    assert.match(plain.err, /latin\.md is not UTF-8/);
  });

  test('troupe knowledge - stopped by Ctrl-C it says how far it came, and the same command goes on from there', async () => {
    const count = 3_000;
    await write(Object.fromEntries(Array.from({ length: count }, (_, i) => [`long/n${i}.md`, `entry ${i}`])));
    const running = command.start(['knowledge', 'import', join(folder, 'long')], { env: env() });
    await running.saw('importing long: ', 'err');
    running.interrupt();
    const stopped = await running.ended;
    assert.equal(stopped.code, 130, stopped.out + stopped.err);
    const sent = Number(/^Stopped: (\d+) new or changed, 0 known of 3000 documents\. The same command goes on from here\.\n$/.exec(stopped.out)?.[1]);
    assert.ok(sent > 0 && sent < count, stopped.out);
    const rest = await run('long');
    assert.equal(rest.indexed + rest.known, count);
    assert.ok(rest.known >= sent, `${rest.known} of ${sent}`);
    const found = await command.json(['knowledge', 'search', 'entry 2999'], searchAnswer, { env: env() });
    assert.equal(found.results[0]?.id, 'n2999');
  });

  test('troupe knowledge - a wrong key, no key and no folder are said as what they are', async () => {
    const wrong = await command.run(['knowledge', 'import', join(folder, 'vault')], { env: env('trp_dk_wrong') });
    assert.equal(wrong.code, 4);
    assert.match(wrong.err, /^troupe: bad_deployment_key: The deployment does not know this key/m);
    const none = await command.run(['knowledge', 'search', 'x'], { env: { TROUPE_DEPLOYMENT_URL: on.deploymentUrl } });
    assert.deepEqual([none.code, /No deployment key is known/.test(none.err)], [2, true]);
    const missing = await command.run(['knowledge', 'import', join(folder, 'nowhere')], { env: env() });
    assert.deepEqual([missing.code, /cannot be read \(ENOENT\)/.test(missing.err)], [2, true]);
  });
});
