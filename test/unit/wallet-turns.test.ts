/** Turns that are paid for: charged once whatever is lost, refused without a balance, and an organization's webhook learns of a session's rest. */
import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { boundsOf, periodOf } from '../../actors/wallet/period.ts';
import { balance, type Balance } from '../../contracts/wallet.ts';
import { limits } from '../../contracts/limits.ts';
import type { StoredEvent } from '../../contracts/event.ts';
import { actorHost, type ActorHost } from '../harness/actor-host.ts';
import { chargedTurns, completionOf, meteredTurns, notified, paidDefinitions, paidOf, paidUser, sumOf } from '../harness/paid.ts';
import { draw, runSeed } from '../harness/seed.ts';
import { count, one, only } from '../harness/session.ts';

const org = 'org_01jd0000000000000000000002';
const sid = 'abcdefghijklmnopqrstuvwxyz';
const sessionOf = (of: string) => ({ org: of, type: 'session', key: sid });
const walletOf = (of: string) => ({ org: of, type: 'wallet', key: of });
const hookOf = (of: string) => ({ org: of, type: 'webhook', key: of });
const principal = (of: string) => ({ kind: 'user', sub: paidUser, org: of, scopes: [] }) as const;

const hostFor = async (t: TestContext, of: string, options: { idleMs?: number; model?: string } = {}): Promise<ActorHost> => {
  const host = actorHost(paidDefinitions(options));
  t.after(() => host.stop());
  await host.ask(sessionOf(of), 'create', { user_id: paidUser, project_id: 'p', ...(options.model === undefined ? {} : { model: options.model }) }, principal(of));
  return host;
};
const send = (host: ActorHost, of: string, content: string, id?: string): Promise<unknown> =>
  host.ask(sessionOf(of), 'send', { user_id: paidUser, content, ...(id === undefined ? {} : { message_id: id }) }, principal(of));
const ends = (host: ActorHost, of: string, runs: number): Promise<StoredEvent[]> =>
  host.until(sessionOf(of), (events) => count(events, 'RunFinished') + count(events, 'RunErrored') >= runs);
const balanceOf = async (host: ActorHost, of: string): Promise<Balance> => balance.parse(await host.ask(walletOf(of), 'balance', {}));
const charged = (host: ActorHost, of: string, turns: number): Promise<StoredEvent[]> =>
  host.until(walletOf(of), (events) => count(events, 'Charged') >= turns);
const toNextMonth = (host: ActorHost): void => host.advance(boundsOf(periodOf(host.now())).endMs - host.now() + 1_000);

test('paid turns - a session\'s turn starts with a positive balance only, is charged its cost in whole cents when it ends, and may be the last [BIL-020] [BIL-021] [BIL-023]', async (t) => {
  const host = await hostFor(t, org);
  toNextMonth(host);
  await host.ask(walletOf(org), 'grant', { monthly: 3, revision: '1' });
  await send(host, org, '/say hi');
  const first = one(await ends(host, org, 1), 'RunFinished')['usage'] as { input_tokens: number; output_tokens: number; cost_cents: number };
  // Micro-dollars: 1,000 a token in, 10,000 a token out; 10,000 are a cent.
  assert.equal(first.cost_cents, Math.ceil((first.input_tokens * 1_000 + first.output_tokens * 10_000) / 10_000));
  assert.ok(first.cost_cents > 3, 'it costs more than there is');
  await charged(host, org, 1);
  const { remaining, used } = await balanceOf(host, org);
  assert.deepEqual([remaining, used], [0, first.cost_cents]);

  await send(host, org, '/say more');
  const events = await ends(host, org, 2);
  const { code, usage } = one(events, 'RunErrored');
  assert.deepEqual([code, usage], ['credits_exhausted', { input_tokens: 0, output_tokens: 0, cost_cents: 0 }]);
  assert.deepEqual([...meteredTurns(events).values()], [first.cost_cents, 0], 'each turn has its metering event');
  assert.equal(sumOf(chargedTurns(await host.events(walletOf(org)))), first.cost_cents, 'nothing is charged for what was refused');

  toNextMonth(host);
  await send(host, org, '/say again');
  await ends(host, org, 3);
  assert.equal(count(await host.events(sessionOf(org)), 'RunFinished'), 2);
});

test('paid turns - a turn that has begun goes to its end, also when the balance ends and its host is lost meanwhile', async (t) => {
  const host = await hostFor(t, org);
  toNextMonth(host);
  await send(host, org, '/slow 20 12');
  await host.until(sessionOf(org), (events) => count(events, 'TextDelta') > 0);
  await host.ask(walletOf(org), 'charge', { turn_id: 'other', cents: 60, model: 'dear', by: paidUser, input_tokens: 1, output_tokens: 1, at: host.now() });
  host.crash();
  const events = await ends(host, org, 1);
  assert.equal(one(events, 'RunFinished')['finish_reason'], 'stop');
  assert.equal(only(events, 'TextDelta').map((d) => String(d['text'])).join(''), Array.from({ length: 12 }, (_, i) => `w${i + 1}`).join(' '));
});

test('paid turns - who is not ours pays nothing and has no metering event of credits', async (t) => {
  const host = await hostFor(t, 'acme');
  await send(host, 'acme', '/say hi');
  assert.equal(count(await ends(host, 'acme', 1), 'UsageMetered'), 0);
  assert.deepEqual(await host.events(walletOf('acme')), []);
});

const seed = runSeed();
test(`paid turns - metering events, charges and balance agree to the cent over any order of turns, cancels and lost hosts (TROUPE_SEED=${seed}) [BIL-022]`, { timeout: 120_000 }, async (t) => {
  for (let run = 0; run < 4; run++) {
    const d = draw(seed).fork(`run ${run}`);
    const of = d.pick([org, `u-${paidUser}`]);
    const host = await hostFor(t, of);
    toNextMonth(host);
    await host.ask(walletOf(of), 'grant', { monthly: d.pick([30, 100_000]), revision: '1' });
    const conversations = ['a', 'b'].map((key) => ({ org: of, type: 'completion', key }));
    let runs = 0;
    let completions = 0;
    for (let nth = 0; nth < 25; nth++) {
      const line = d.pick(['/say hi', '/long 30', '/fail', '/fail-after 5', '/slow 1 4', '/tool calculator {"expression":"1+1"}']);
      switch (d.pick(['send', 'send', 'complete', 'complete', 'cancel', 'crash', 'aim', 'aim', 'end'])) {
        case 'send': await send(host, of, line, `m${nth}`); runs += 1; break;
        case 'complete': await host.ask(d.pick(conversations), 'start', completionOf(`c${run}-${nth}`, line, d.pick(['dear', 'dear', 'free']))); completions += 1; break;
        case 'cancel': await host.ask(d.pick(conversations), 'cancel', { id: `c${run}-${nth - 1}` }); break;
        case 'crash': host.crash(); break;
        case 'aim': host.crashAt(d.int(1, 6), d.next() < 0.5); break;
        case 'end': await ends(host, of, runs); break;
      }
    }
    host.crashAt(Number.MAX_SAFE_INTEGER, true);
    // Reminders wake what a lost host left.
    host.advance(limits.turnWakeMs);
    await ends(host, of, runs);
    const all = async (): Promise<StoredEvent[]> => (await Promise.all([sessionOf(of), ...conversations].map((address) => host.events(address)))).flat();
    await Promise.all(conversations.map(async (address) => host.until(address, (events) => count(events, 'UsageMetered') === count(events, 'CompletionStarted'))));
    const metered = meteredTurns(await all());
    assert.equal(metered.size, runs + completions);
    host.advance(limits.turnWakeMs);
    await charged(host, of, paidOf(metered).size);
    host.crash();
    host.advance(limits.turnWakeMs);
    assert.deepEqual(paidOf(chargedTurns(await host.events(walletOf(of)))), paidOf(metered), `run ${run}`);
    assert.equal((await balanceOf(host, of)).used, sumOf(metered), `run ${run}`);
    host.stop();
  }
});

test('paid turns - a charge whose host is lost right after the turn\'s end is made by the next one, without anybody asking [BIL-022]', async (t) => {
  const host = await hostFor(t, org);
  await send(host, org, '/say hi');
  const before = await ends(host, org, 1);
  await charged(host, org, 1);
  // The second turn: the host is lost with the commit that ends it, for each of its appends in turn; only reminders go on.
  for (let n = 1; n <= 3; n++) {
    await send(host, org, `/say ${n}`);
    host.crashAt(n, true);
    host.advance(limits.turnWakeMs);
    await ends(host, org, n + 1);
    host.crashAt(Number.MAX_SAFE_INTEGER, true);
    host.advance(limits.turnWakeMs);
    await charged(host, org, n + 1);
  }
  assert.ok(before.length > 0);
  assert.deepEqual(paidOf(chargedTurns(await host.events(walletOf(org)))), paidOf(meteredTurns(await host.events(sessionOf(org)))));
});

test('session.finished - an organization\'s webhook is told when a session comes to rest: ids, turns and usage, once, nothing of what was said [AUD-012]', async (t) => {
  // The host is lost with each of the commits that may be the one of the rest, before anybody was told.
  for (const n of [1, 2, 3]) await restsOnce(t, n);
});

const restsOnce = async (t: TestContext, lostAt: number): Promise<void> => {
  const host = await hostFor(t, org, { idleMs: 60_000 });
  await send(host, org, '/say a secret plan');
  const { usage } = one(await ends(host, org, 1), 'RunFinished') as { usage: { input_tokens: number; output_tokens: number; cost_cents: number } };
  await charged(host, org, 1);
  host.crashAt(lostAt, true);
  let over = false;
  const told = host.until(hookOf(org), (events) => events.some(({ d }) => d['type'] === 'session.finished')).finally(() => { over = true; });
  // Only time passes: what wakes it is its own.
  for (let turns = 0; !over && turns < 50_000; turns++) {
    host.advance(30_000);
    await new Promise((resolve) => { setImmediate(resolve); });
  }
  assert.ok(over, `nobody was told (lost at ${lostAt})`);
  const notifications = await told;
  const data = only(notifications, 'Notified').map((d) => notified.parse(d)).filter(({ type }) => type === 'session.finished').map((event) => event.data);
  assert.deepEqual(data, [{
    sessionId: sid, userId: paidUser, agentId: `agent-${sid}`, projectId: 'p', turns: 1,
    usage: { inputTokens: usage.input_tokens, outputTokens: usage.output_tokens, costCents: usage.cost_cents },
  }]);
  assert.ok(!JSON.stringify(notifications).includes('secret plan'));
  assert.equal(count(await host.events(sessionOf(org)), 'SessionHibernated'), 1, 'waking to tell is no activity');
  host.stop();
};
