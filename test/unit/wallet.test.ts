/** The wallet on the real engine: a turn is charged once, in its month; alerts go out once; what is left is never below nothing. */
import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { boundsOf, periodOf } from '../../actors/wallet/period.ts';
import { walletAddress } from '../../actors/wallet/address.ts';
import { initialWallet, fold } from '../../actors/wallet/state.ts';
import { wallet } from '../../actors/wallet/wallet.ts';
import { limits } from '../../contracts/limits.ts';
import { walletCommands, type Balance, type TurnCharge } from '../../contracts/wallet.ts';
import { actorHost, type ActorHost } from '../harness/actor-host.ts';
import { codeOf } from '../harness/memory-host.ts';
import { keptWebhook, notified } from '../harness/paid.ts';

const org = 'org_01jd0000000000000000000001';
const personal = 'u-usr_01jd0000000000000000000001';

interface Purse {
  readonly host: ActorHost;
  charge(cents: number, more?: Partial<TurnCharge>): Promise<boolean>;
  grant(monthly: number, revision: string): Promise<unknown>;
  balance(monthly?: number): Promise<Balance>;
  /** Alerts once there are so many: percent and what was used. */
  alerts(count: number): Promise<unknown[]>;
}

const purse = (t: TestContext, of = org): Purse => {
  const host = actorHost([wallet(), keptWebhook]);
  t.after(() => host.stop());
  const address = walletAddress(of);
  assert.ok(address !== undefined);
  let nth = 0;
  return {
    host,
    charge: async (cents, more = {}) => walletCommands.charge.output.parse(await host.ask(address, 'charge', {
      turn_id: `turn_${nth++}`, cents, model: 'm', by: 'usr_a', input_tokens: 1, output_tokens: 1, at: host.now(), ...more,
    })).charged,
    grant: (monthly, revision) => host.ask(address, 'grant', { monthly, revision }),
    balance: async (monthly) => walletCommands.balance.output.parse(await host.ask(address, 'balance', monthly === undefined ? {} : { monthly })),
    alerts: async (count) => {
      const events = await host.until({ org: of, type: 'webhook', key: of }, (all) => all.filter(({ k }) => k === 'Notified').length >= count);
      return events.filter(({ k }) => k === 'Notified').map(({ d }) => notified.parse(d)).map(({ type, data }) => [type, data['percent'], data['used'], data['monthly']]);
    },
  };
};
/** Just after midnight of the first of a month, so that a test's minutes are in one period. */
const toNextMonth = (host: ActorHost): void => host.advance(boundsOf(periodOf(host.now())).endMs - host.now() + 1_000);

test('wallet - everybody begins with plan free\'s 50 credits; a turn lowers them; the balance shown ends at nothing and what was used is kept', async (t) => {
  const p = purse(t);
  toNextMonth(p.host);
  const { startMs, endMs } = boundsOf(periodOf(p.host.now()));
  assert.deepEqual(await p.balance(), { remaining: 50, monthly: 50, used: 0, period_start: startMs, period_end: endMs });
  await p.charge(49);
  assert.equal((await p.balance()).remaining, 1);
  await p.charge(30);
  const { remaining, used } = await p.balance();
  assert.deepEqual([remaining, used], [0, 79]);
  assert.equal((await p.balance(100)).remaining, 21, 'the plan of this moment');
  assert.equal(await codeOf(p.charge(0)), 'bad_request');
  assert.equal(await codeOf(p.charge(-5)), 'bad_request', 'nothing gives credits back');
});

test('wallet - a turn is charged once however often it is told, also over lost hosts and by many at once [BIL-022]', async (t) => {
  const p = purse(t);
  toNextMonth(p.host);
  await p.grant(1_000, '1');
  const told = await Promise.all(Array.from({ length: 60 }, (_, i) => p.charge(3, { turn_id: `t${i % 20}` })));
  assert.equal(told.filter(Boolean).length, 20);
  p.host.crash();
  assert.equal(await p.charge(3, { turn_id: 't7' }), false);
  assert.equal((await p.balance()).used, 60);
  // The append was stored, its host lost before it knew: the repeat finds it.
  for (const stored of [true, false]) {
    p.host.crashAt(1, stored);
    await p.charge(5, { turn_id: `lost ${stored}` });
  }
  assert.equal((await p.balance()).used, 70);
});

test('wallet - what is remembered of turns is bounded', () => {
  let state = initialWallet();
  for (let i = 0; i < limits.walletTurnsMax + 10; i++) {
    state = fold.Charged(state, { turn_id: `t${i}`, cents: 1, model: 'm', by: 'usr_a', input_tokens: 0, output_tokens: 0, period: '2026-01' });
  }
  assert.equal(state.turns.length, limits.walletTurnsMax);
  assert.equal(state.turns[0], 't10');
  assert.equal(state.used, limits.walletTurnsMax + 10);
});

test('wallet - a new month begins with all credits; a turn counts in the month in which it ended', async (t) => {
  const p = purse(t);
  toNextMonth(p.host);
  await p.charge(50);
  const ended = p.host.now();
  assert.equal((await p.balance()).remaining, 0);
  toNextMonth(p.host);
  assert.equal((await p.balance()).remaining, 50);
  await p.charge(10, { at: ended });
  assert.equal((await p.balance()).remaining, 50, 'told late: of the month before');
  await p.charge(7);
  await p.charge(10, { at: ended });
  assert.equal((await p.balance()).remaining, 43);
  // A clock that runs a year ahead does not empty this month, nor begin another.
  await p.charge(1, { at: p.host.now() + 366 * 86_400_000 });
  assert.equal((await p.balance()).remaining, 42);
});

test('wallet - the newest grant counts, whatever comes late', async (t) => {
  const p = purse(t);
  await p.grant(5_000, '01B');
  await p.grant(50, '01A');
  assert.equal((await p.balance()).monthly, 5_000);
  await p.grant(20_000, '01C');
  assert.equal((await p.balance()).monthly, 20_000);
});

test('wallet - usage.alert is told at 80 % and at 100 % of the credits, each once a period, whatever is lost [AUD-013]', async (t) => {
  const p = purse(t);
  toNextMonth(p.host);
  await p.grant(100, '1');
  await p.charge(79);
  p.host.crashAt(1, true);
  await p.charge(1);
  assert.deepEqual(await p.alerts(1), [['usage.alert', 80, 80, 100]]);
  p.host.crash();
  await p.charge(5);
  await p.charge(40);
  await p.charge(40);
  assert.deepEqual(await p.alerts(2), [['usage.alert', 80, 80, 100], ['usage.alert', 100, 125, 100]]);
  // More credits: a share of them is used up anew.
  await p.grant(400, '2');
  await p.charge(155);
  assert.deepEqual((await p.alerts(3)).at(-1), ['usage.alert', 80, 320, 400]);
  // One turn may reach both; a lower grant, too.
  toNextMonth(p.host);
  await p.charge(90);
  await p.grant(80, '3');
  const all = await p.alerts(5);
  assert.deepEqual(all.slice(3).toSorted(), [['usage.alert', 100, 90, 80], ['usage.alert', 80, 90, 80]]);
  assert.equal(all.length, 5);
});

test('wallet - an organization without credits is not alerted of a share of nothing; a personal workspace has nobody to tell', async (t) => {
  const none = purse(t);
  await none.grant(0, '1');
  await none.charge(5);
  const own = purse(t, personal);
  await own.charge(60);
  assert.deepEqual((await own.host.events({ org: personal, type: 'webhook', key: personal })), []);
  assert.deepEqual((await none.host.events({ org, type: 'webhook', key: org })), []);
  const journal = await own.host.events({ org: personal, type: 'wallet', key: personal });
  assert.deepEqual(journal.filter(({ k }) => k === 'AlertRaised').map(({ d }) => d['percent']), [80, 100]);
  assert.ok(!JSON.stringify(journal).includes('notify'));
});

test('wallet - only our organizations and people have one', () => {
  for (const foreign of ['acme', 'u-ann', 'org_x', 'usr_01jd0000000000000000000001', 'u-org_01jd0000000000000000000001', 'platform', '']) assert.equal(walletAddress(foreign), undefined, foreign);
  assert.deepEqual(walletAddress(personal), { org: personal, type: 'wallet', key: personal });
});
