/**
 * Payments under drawn schedules: the history of an organization's subscriptions as a processor tells it, in any order, repeatedly, with hosts lost
 * in between, has the same end as told once and in order. `TROUPE_SEED` repeats what was drawn.
 */
import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import type { PaymentsState } from '../../actors/payments/state.ts';
import { runtimeKinds, type StoredEvent } from '../../contracts/event.ts';
import { limits } from '../../contracts/limits.ts';
import type { PaymentEvent } from '../../contracts/payments.ts';
import { plans } from '../../contracts/plans.ts';
import { linked, live, month, organizationAt, paid, paymentsWorld, start, unpaid, walletAt, address } from '../harness/payments.ts';
import { draw, runSeed, type Draw } from '../harness/seed.ts';

type Plan = 'pro' | 'team' | 'enterprise';

/** One to three subscriptions after each other: made, paid, renewed, changed, in arrears, ended; the next one is sometimes bought before the end of the one before. */
const history = (d: Draw): PaymentEvent[] => {
  const events: PaymentEvent[] = [];
  let at = start;
  let invoices = 0;
  const pass = (): void => { at += d.pick([0, 1, 1, 60, month]); };
  const customers = d.pick([['cus_1'], ['cus_1', 'cus_2']]);
  const all = d.int(1, 3);
  for (let n = 1; n <= all; n++) {
    const subscription = `sub_${n}`;
    const customer = d.pick(customers);
    let plan: Plan = d.pick(['pro', 'team', 'enterprise']);
    const since = at += 1;
    let until = since + month;
    const word = (status: 'live' | 'waiting' | 'ended', made = false): void => { events.push(live(subscription, { customer, plan, status, since, at, made })); };
    const bill = (renews: boolean): void => {
      const invoice = `in_${invoices++}`;
      const event = paid(invoice, { customer, subscription, plan, at, until, renews });
      events.push(event);
      // The same invoice in two events.
      if (d.next() < 0.2) events.push({ ...event, event: `${event.event}_again` });
    };
    word(d.pick(['waiting', 'live']), true);
    bill(true);
    word('live');
    if (n > 1 && d.next() < 0.5) events.push(live(`sub_${n - 1}`, { customer, status: 'ended', since: start - 1, at }));
    pass();
    events.push(linked({ customer, subscription, at }));
    for (let steps = d.int(0, 4); steps > 0; steps--) {
      // A second of its own: what Stripe does not order has no order to keep.
      at += 1;
      switch (d.pick(['renew', 'renew', 'change', 'arrears', 'unpaid'])) {
        case 'renew': until += month; at += month; word('live'); bill(true); break;
        case 'change': plan = d.pick(['pro', 'team', 'enterprise']); word('live'); bill(false); break;
        case 'arrears': at += 1; word('waiting'); at += 1; word('live'); break;
        case 'unpaid': events.push({ ...unpaid(`in_${invoices++}`), customer, at }); break;
      }
    }
    at += 1;
    // A subscription that is followed by another has ended by itself or was replaced by it.
    if (n < all || d.next() < 0.5) word('ended');
  }
  return events;
};

const shuffled = <T>(items: readonly T[], d: Draw): T[] => {
  const all = [...items];
  for (let i = all.length - 1; i > 0; i--) {
    const j = d.int(0, i);
    [all[i], all[j]] = [all[j] as T, all[i] as T];
  }
  return all;
};

/** What must not depend on the order in which it was told. */
const orderless = (state: PaymentsState): unknown => ({
  ...state, events: state.events.toSorted(), invoices: state.invoices.toSorted(), subscriptions: state.subscriptions.toSorted((a, b) => (a.id < b.id ? -1 : 1)),
});

/** Nothing that was to be done or told is open. */
const settled = (events: readonly StoredEvent[]): boolean => {
  const ids = (kind: string): unknown[] => events.filter(({ k }) => k === kind).map(({ d }) => d['id']);
  const ended = new Set(ids(runtimeKinds.effectEnded));
  return ids(runtimeKinds.effectIntended).every((id) => ended.has(id));
};

interface End {
  readonly state: unknown;
  readonly plan: string;
  readonly monthly: number;
  readonly paid: boolean;
}

/** Tells everything, and gives what there is when nothing is under way any more. */
const told = async (t: TestContext, events: readonly PaymentEvent[], losses?: Draw): Promise<End> => {
  const w = await paymentsWorld(t);
  for (const event of events) {
    if (losses !== undefined && losses.next() < 0.1) w.host.crashAt(losses.int(1, 3), losses.next() < 0.5);
    await w.receive(event);
    if (losses !== undefined && losses.next() < 0.05) w.host.crash();
  }
  w.host.crashAt(Number.MAX_SAFE_INTEGER, true);
  // What was to be told when a host was lost is told by the activation that the reminder makes.
  w.host.advance(limits.organizationWakeMs);
  const journal = await w.host.until(address, settled);
  await w.host.until(organizationAt, settled);
  const granted = journal.filter(({ k, d }) => k === 'InvoicePaid' && d['granted'] === true).map(({ d }) => d['invoice']);
  assert.equal(new Set(granted).size, granted.length, 'an invoice grants once');
  const words = (await w.host.events(walletAt)).filter(({ k }) => k === 'Renewed' || k === 'Lapsed');
  const renewed = words.filter(({ k }) => k === 'Renewed').map(({ d }) => d['invoice']);
  assert.equal(new Set(renewed).size, renewed.length, 'a wallet renews for an invoice once');
  assert.ok(renewed.every((invoice) => granted.includes(invoice)));
  const state = await w.state();
  const { monthly } = await w.balance();
  const plan = await w.plan();
  assert.deepEqual([plan, monthly], [state.plan, plans[state.plan].limits.credits], 'organization and wallet have what they were told');
  w.host.stop();
  return { state: orderless(state), plan, monthly, paid: words.at(-1)?.k === 'Renewed' };
};

const seed = runSeed();
test(`payments schedules - every order of the same events, repeated and over lost hosts, has the same end (TROUPE_SEED=${seed}) [BIL-049] [BIL-050]`, { timeout: 300_000 }, async (t) => {
  for (let run = 0; run < 400; run++) {
    const d = draw(seed).fork(`run ${run}`);
    const events = history(d);
    const once = await told(t, events);
    for (let order = 0; order < 5; order++) {
      const again = await told(t, shuffled([...events, ...shuffled(events, d).slice(0, d.int(0, events.length))], d), d.fork(`losses ${order}`));
      assert.deepEqual(again, once, `run ${run}, order ${order}`);
    }
  }
});
