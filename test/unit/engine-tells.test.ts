/** Durable tells and payments: what the bank account's effects promise through crashes. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { coded } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { defineBankAccount } from '../actors/bank-account/bank-account.ts';
import { codeOf, createCluster, createHost, eventsOf, type Cluster } from '../harness/memory-host.ts';

/** Lets everything that is ready run: the outcome is a message of the actor, so a read after it sees it. */
const quiet = async (cluster: Cluster): Promise<void> => {
  for (let i = 0; i < 4; i++) await cluster.clock.advance(0);
};

const account = (key: string) => ({ org: 'acme', type: 'bank-account', key });

test('[G4] engine tells - a transfer\'s tell survives the crash of its sender and takes effect once', async () => {
  const cluster = createCluster();
  const bank = defineBankAccount({ pay: () => Promise.reject(coded('upstream_unavailable')) });
  let broken = true;
  const first = createHost(cluster, { definitions: [bank], sender: { tell: () => (broken ? Promise.reject(coded('journal_unavailable')) : Promise.reject(coded('draining'))) } });
  await first.ask(account('a'), 'deposit', { cents: 100, from: 'cash' });
  await first.ask(account('a'), 'transfer', { cents: 30, to: 'b' });
  broken = false;
  first.engine.close();
  const next = createHost(cluster, { definitions: [bank], epoch: 2 });
  assert.deepEqual(await next.ask(account('a'), 'balance'), { balanceCents: 70, statements: 0 });
  await quiet(cluster);
  const [message] = cluster.stores.inbox.messages;
  assert.equal(await next.deliverTells(), 1);
  assert.deepEqual(await next.ask(account('b'), 'balance'), { balanceCents: 30, statements: 0 });
  // Delivered again, as an inbox may.
  await next.engine.deliver({ address: account('b'), command: 'deposit', input: { cents: 30, from: 'a' }, principal: { kind: 'system' }, id: message?.id ?? '' });
  assert.deepEqual(await next.ask(account('b'), 'balance'), { balanceCents: 30, statements: 0 });
  next.engine.close();
});

test('engine tells - a tell that cannot be stored is repeated until it is', async () => {
  const cluster = createCluster();
  const bank = defineBankAccount({ pay: () => Promise.reject(coded('upstream_unavailable')) });
  const ids: string[] = [];
  const host = createHost(cluster, {
    definitions: [bank],
    sender: {
      tell: async (_target, _command, _input, id) => {
        ids.push(id);
        if (ids.length < 3) throw coded('journal_unavailable');
      },
    },
  });
  await host.ask(account('a'), 'deposit', { cents: 100, from: 'cash' });
  await host.ask(account('a'), 'transfer', { cents: 30, to: 'b' });
  await cluster.clock.advance(limits.restartMaxMs);
  await quiet(cluster);
  assert.equal(ids.length, 3);
  assert.equal(new Set(ids).size, 1);
  assert.ok(eventsOf(cluster, account('a')).some((event) => event.k === '$effect.ended'));
  host.engine.close();
});

test('engine tells - a withdrawal interrupted by a crash is returned, never paid twice', async () => {
  const cluster = createCluster();
  const paid: string[] = [];
  const bank = defineBankAccount({
    pay: (_input, key) => {
      paid.push(key);
      return new Promise(() => undefined);
    },
  });
  const first = createHost(cluster, { definitions: [bank] });
  await first.ask(account('a'), 'deposit', { cents: 100, from: 'cash' });
  assert.deepEqual((await codeOf(first.ask(account('a'), 'withdraw', { cents: 500, to: 'x' }))), 'insufficient_funds');
  await first.ask(account('a'), 'withdraw', { cents: 40, to: 'x' });
  await quiet(cluster);
  assert.equal(paid.length, 1);
  first.engine.close();
  const next = createHost(cluster, { definitions: [bank], epoch: 2 });
  await next.ask(account('a'), 'balance');
  await quiet(cluster);
  assert.deepEqual(await next.ask(account('a'), 'balance'), { balanceCents: 100, statements: 0 });
  assert.equal(paid.length, 1);
  next.engine.close();
});
