import assert from 'node:assert/strict';
import test from 'node:test';
import { name } from '../../actors/name/name.ts';
import { nameAddress } from '../../actors/name/address.ts';
import { nameCommands } from '../../contracts/name.ts';
import { limits } from '../../contracts/limits.ts';
import { codeOf, createCluster, createHost, domainOf, type Cluster, type Host } from '../harness/memory-host.ts';

const address = nameAddress('slug', 'acme');

const start = (cluster: Cluster = createCluster(), epoch = 1): { cluster: Cluster; host: Host } => ({ cluster, host: createHost(cluster, { definitions: [name()], epoch }) });
const claim = async (host: Host, holder: string, forMs?: number): Promise<{ holder: string; mine: boolean }> =>
  nameCommands.claim.output.parse(await host.ask(address, 'claim', forMs === undefined ? { holder } : { holder, forMs }));
const holderOf = async (host: Host): Promise<string | null> => nameCommands.holder.output.parse(await host.ask(address, 'holder')).holder;

test('name - of many claims at once exactly one is mine, and every other is told who holds it', async () => {
  const { host } = start();
  const answers = await Promise.all(Array.from({ length: 50 }, (_, i) => claim(host, `org-${i}`)));
  const mine = answers.filter((answer) => answer.mine);
  assert.equal(mine.length, 1);
  assert.ok(answers.every(({ holder }) => holder === mine[0]?.holder));
  assert.equal(await holderOf(host), mine[0]?.holder);
});

test('name - a free name has no holder, and looking journals nothing', async () => {
  const { cluster, host } = start();
  assert.equal(await holderOf(host), null);
  await host.ask(address, 'release', { holder: 'a' });
  assert.deepEqual(domainOf(cluster, address), []);
});

test('name - the holder\'s repeat is mine again and journals nothing once it is for good', async () => {
  const { cluster, host } = start();
  assert.deepEqual(await claim(host, 'a'), { holder: 'a', mine: true });
  assert.deepEqual(await claim(host, 'a'), { holder: 'a', mine: true });
  assert.deepEqual(await claim(host, 'a', 1_000), { holder: 'a', mine: true });
  assert.deepEqual(domainOf(cluster, address), ['NameClaimed {"holder":"a","until":null}']);
  await cluster.clock.advance(1_000);
  assert.deepEqual(await claim(host, 'b'), { holder: 'a', mine: false }, 'a claim for good does not become one that lapses');
});

test('name - an unconfirmed claim lapses at its time, not a millisecond before', async () => {
  const { cluster, host } = start();
  await claim(host, 'a', 1_000);
  await cluster.clock.advance(999);
  assert.deepEqual(await claim(host, 'b', 1_000), { holder: 'a', mine: false });
  assert.equal(await holderOf(host), 'a');
  await cluster.clock.advance(1);
  assert.equal(await holderOf(host), null);
  assert.deepEqual(await claim(host, 'b', 1_000), { holder: 'b', mine: true });
  assert.deepEqual(await claim(host, 'a'), { holder: 'b', mine: false });
});

test('name - claiming anew prolongs a claim, and without a time makes it one for good', async () => {
  const { cluster, host } = start();
  await claim(host, 'a', 1_000);
  await cluster.clock.advance(900);
  await claim(host, 'a', 1_000);
  await cluster.clock.advance(900);
  assert.equal(await holderOf(host), 'a');
  await claim(host, 'a');
  await cluster.clock.advance(limits.nameClaimMaxMs);
  assert.equal(await holderOf(host), 'a');
});

test('name - confirmed it never lapses; a lapsed claim nobody took may still be confirmed; a name of another may not', async () => {
  const { cluster, host } = start();
  await claim(host, 'a', 1_000);
  await cluster.clock.advance(5_000);
  await host.ask(address, 'confirm', { holder: 'a' });
  await host.ask(address, 'confirm', { holder: 'a' });
  assert.equal(domainOf(cluster, address).length, 2, 'the repeat changed nothing');
  await cluster.clock.advance(limits.nameClaimMaxMs);
  assert.deepEqual(await claim(host, 'b'), { holder: 'a', mine: false });
  assert.equal(await codeOf(host.ask(address, 'confirm', { holder: 'b' })), 'conflict');
});

test('name - a claim that lapsed and went to another is not confirmed for its first holder', async () => {
  const { cluster, host } = start();
  await claim(host, 'a', 1_000);
  await cluster.clock.advance(1_000);
  await claim(host, 'b');
  assert.equal(await codeOf(host.ask(address, 'confirm', { holder: 'a' })), 'conflict');
  assert.equal(await holderOf(host), 'b');
});

test('name - only its holder releases a name; then it is free, and a late confirmation does not take it back', async () => {
  const { host } = start();
  await claim(host, 'a', 1_000);
  await host.ask(address, 'release', { holder: 'b' });
  assert.equal(await holderOf(host), 'a');
  await host.ask(address, 'release', { holder: 'a' });
  assert.equal(await holderOf(host), null);
  assert.equal(await codeOf(host.ask(address, 'confirm', { holder: 'a' })), 'conflict');
  assert.deepEqual(await claim(host, 'b'), { holder: 'b', mine: true });
});

test('name - the next host knows the holder from the journal', async () => {
  const { cluster, host } = start();
  await claim(host, 'a', 60_000);
  host.engine.close();
  const { host: next } = start(cluster, 2);
  assert.deepEqual(await claim(next, 'b'), { holder: 'a', mine: false });
});

test('name - users and integrators reach none of its commands', async () => {
  const { host } = start();
  for (const command of Object.keys(nameCommands)) {
    const input = command === 'holder' ? {} : { holder: 'a' };
    assert.equal(await codeOf(host.ask(address, command, input, { principal: { kind: 'user', sub: 'a', org: 'platform', scopes: [] } })), 'forbidden');
    assert.equal(await codeOf(host.ask(address, command, input, { principal: { kind: 'integrator', org: 'platform' } })), 'forbidden');
  }
});

test('name - a claim without a holder, of a control character or beyond a day is refused', async () => {
  const { host } = start();
  for (const input of [{ holder: '' }, { holder: 'a\nb' }, { holder: 'a'.repeat(129) }, { holder: 'a', forMs: 0 }, { holder: 'a', forMs: limits.nameClaimMaxMs + 1 }, { holder: 'a', forMs: 1.5 }]) {
    assert.match(await codeOf(host.ask(address, 'claim', input)), /^(bad_request|validation_error)$/, JSON.stringify(input));
  }
  assert.equal(await holderOf(host), null);
});

test('name - addresses of kinds and texts differ, and what names a person is not in them', () => {
  const all = [nameAddress('slug', 'acme'), nameAddress('slug', 'acme2'), nameAddress('user-code', 'ABCD-2345'), nameAddress('email', 'acme'), nameAddress('identity', 'acme')];
  assert.equal(new Set(all.map(({ key }) => key)).size, all.length);
  assert.deepEqual(nameAddress('slug', 'acme'), { org: 'platform', type: 'name', key: 'slug:acme' });
  for (const kind of ['email', 'identity'] as const) assert.match(nameAddress(kind, 'ann@example.com').key, new RegExp(`^${kind}:[0-9a-f]{64}$`));
});
