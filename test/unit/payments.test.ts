/** The payments actor on the real engine, with the organization and the wallet that it tells: what each event does, once, whatever comes twice, late or is lost. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { outdates } from '../../actors/payments/state.ts';
import { runtimeKinds } from '../../contracts/event.ts';
import { limits } from '../../contracts/limits.ts';
import { paymentsCommands } from '../../contracts/payments.ts';
import { codeOf } from '../harness/memory-host.ts';
import { address, linked, live, month, organizationAt, orgId, paid, paymentsWorld, start, unpaid, walletAt } from '../harness/payments.ts';

const kinds = (events: readonly { readonly k: string }[]): string[] => events.map(({ k }) => k).filter((k) => !k.startsWith('$'));

test('payments - there is a customer once an event names it; a finished checkout links it and its subscription [BIL-016] [BIL-043]', async (t) => {
  const w = await paymentsWorld(t);
  assert.equal(await w.customer(), null);
  assert.deepEqual(await w.host.events(address), [], 'looking leaves nothing');
  await w.receive(linked());
  assert.equal(await w.customer(), 'cus_1');
  assert.deepEqual((await w.state()).subscriptions.map(({ id, status }) => [id, status]), [['sub_1', 'waiting']]);
  assert.equal(await w.plan(), 'free', 'a checkout alone is no money');
  // Money for the linked subscription, before it has said a word itself.
  await w.receive(paid('in_1'));
  await w.seen(organizationAt, 'PlanSet');
  assert.equal(await w.plan(), 'pro');
});

test('payments - a subscription sets the plan when it is made and whenever it changes, and its end puts the organization back on free [BIL-044] [BIL-045]', async (t) => {
  const w = await paymentsWorld(t);
  await w.receive(live('sub_1', { status: 'waiting', made: true }));
  assert.equal(await w.plan(), 'free', 'not paid for yet');
  await w.receive(live('sub_1'));
  await w.seen(organizationAt, 'PlanSet', 1);
  assert.equal(await w.plan(), 'pro');
  await w.receive(live('sub_1', { plan: 'team', at: start + 10 }));
  await w.seen(organizationAt, 'PlanSet', 2);
  assert.equal(await w.plan(), 'team');
  await w.receive(live('sub_1', { status: 'waiting', plan: 'team', at: start + 20 }));
  await w.seen(organizationAt, 'PlanSet', 3);
  assert.equal(await w.plan(), 'free', 'given up on, not ended');
  await w.receive(live('sub_1', { plan: 'team', at: start + 30 }));
  await w.seen(organizationAt, 'PlanSet', 4);
  await w.receive(live('sub_1', { status: 'ended', at: start + 40 }));
  await w.seen(organizationAt, 'PlanSet', 5);
  assert.equal(await w.plan(), 'free');
  await w.receive(live('sub_1', { at: start + 50 }));
  assert.equal((await w.state()).plan, 'free', 'ended is for good');
});

test('payments - a paid invoice gives the plan\'s credits anew; one that failed gives none; the period is the one that is paid [BIL-046] [BIL-047]', async (t) => {
  const w = await paymentsWorld(t);
  const now = Math.floor(w.host.now() / 1_000);
  await w.receive(live('sub_1', { at: now, since: now }), paid('in_1', { at: now, until: now + month }));
  await w.seen(walletAt, 'Renewed');
  await w.seen(walletAt, 'Granted');
  await w.use(4_999);
  assert.deepEqual(await w.balance().then(({ remaining, monthly, period_end: end }) => [remaining, monthly, end]), [1, 5_000, (now + month) * 1_000]);
  await w.receive(unpaid('in_2'));
  assert.equal((await w.balance()).remaining, 1);
  // Over the end of the calendar month: the period is the invoice's.
  w.host.advance((month - 60) * 1_000);
  assert.equal((await w.balance()).remaining, 1);
  await w.receive(paid('in_2', { at: now + month, until: now + 2 * month }));
  await w.seen(walletAt, 'Renewed', 2);
  assert.deepEqual(await w.balance().then(({ remaining, used }) => [remaining, used]), [5_000, 0]);
  await w.use(10);
  await w.receive(paid('in_3', { renews: false, at: now + month + 5 }));
  assert.equal((await w.balance()).used, 10, 'what was billed within a period begins none');
});

test('payments - an event is taken once by its id, an invoice grants once whatever events bring it, over lost hosts too [BIL-049] [BIL-050]', async (t) => {
  const w = await paymentsWorld(t);
  const first = paid('in_1');
  const asked = Promise.all([first, first, { ...first, event: 'evt_other' }, first].map((event) => w.receive(event)));
  assert.deepEqual((await asked).flat().toSorted(), [false, false, true, true]);
  await w.seen(walletAt, 'Renewed');
  for (const [nth, stored] of [[1, true], [1, false], [2, true]] as const) {
    w.host.crashAt(nth, stored);
    await w.receive({ ...first, event: `evt_${nth}${stored}` });
    w.host.crash();
    await w.receive({ ...first, event: `evt_${nth}${stored}` });
  }
  const events = await w.host.events(address);
  assert.deepEqual(events.filter(({ k }) => k === 'InvoicePaid').map(({ d }) => d['granted']), [true]);
  assert.equal(kinds(await w.host.events(walletAt)).filter((k) => k === 'Renewed').length, 1);
  // Grant, plan and id are one commit: nothing of it is there without the rest.
  assert.deepEqual(kinds(events).slice(0, 4), ['SubscriptionSeen', 'InvoicePaid', 'EventTaken', 'PlanTold']);
});

test('payments - what a lost host had to tell is told by the next', async (t) => {
  const w = await paymentsWorld(t);
  // Lost in the moment of the commit, before any word of it was sent.
  w.host.crashAt(1, true);
  await w.receive(paid('in_1'));
  // A reminder in the same commit makes an activation, should nobody else.
  assert.ok((await w.host.events(address)).some(({ k, d }) => k === runtimeKinds.reminderSet && d['name'] === 'tells'));
  w.host.crash();
  const told = Promise.all([w.seen(walletAt, 'Renewed'), w.seen(organizationAt, 'PlanSet')]);
  w.host.advance(limits.organizationWakeMs);
  await told;
  assert.equal(await w.plan(), 'pro');
});

test('payments - an invoice that comes late, or for what has ended, is noted and gives nothing [BIL-046]', async (t) => {
  const w = await paymentsWorld(t);
  await w.receive(live('sub_1'), paid('in_2', { until: start + 2 * month, at: start + month }), paid('in_1'), live('sub_1', { status: 'ended', at: start + month + 9 }), paid('in_3', { until: start + 3 * month }));
  const granted = (await w.host.events(address)).filter(({ k }) => k === 'InvoicePaid').map(({ d }) => [d['invoice'], d['granted']]);
  assert.deepEqual(granted, [['in_2', true], ['in_1', false], ['in_3', false]]);
  await w.seen(walletAt, 'Lapsed');
  await w.seen(organizationAt, 'PlanSet', 2);
  assert.equal(await w.plan(), 'free');
  await w.seen(walletAt, 'Granted', 2);
  assert.equal((await w.balance()).monthly, 50);
});

test('payments - the end of a subscription leaves the month\'s credits of plan free, less what was used; a month before is not counted again', async (t) => {
  const w = await paymentsWorld(t);
  await w.use(30);
  // A whole calendar month later, on trial: no invoice ever began a period.
  w.host.advance(40 * 86_400_000);
  await w.receive(live('sub_1'), live('sub_1', { status: 'ended', at: start + 1 }));
  await w.seen(walletAt, 'Granted', 2);
  assert.deepEqual(await w.balance().then(({ used, remaining }) => [used, remaining]), [0, 50]);
  await w.receive(live('sub_2', { since: start + 5, at: start + 5 }), paid('in_1', { subscription: 'sub_2' }));
  await w.seen(walletAt, 'Renewed');
  await w.use(20);
  await w.receive(live('sub_2', { since: start + 5, at: start + 9, status: 'ended' }));
  await w.seen(walletAt, 'Granted', 4);
  await w.seen(walletAt, 'Lapsed');
  assert.deepEqual(await w.balance().then(({ used, remaining }) => [used, remaining]), [20, 30]);
});

test('payments - while a subscription is given up on, the time that was paid goes on, and no longer', async (t) => {
  const w = await paymentsWorld(t);
  const now = Math.floor(w.host.now() / 1_000);
  await w.receive(paid('in_1', { until: now + month }), live('sub_1'), live('sub_1', { status: 'waiting', at: start + 1 }));
  await w.seen(organizationAt, 'PlanSet', 2);
  assert.equal((await w.balance()).period_end, (now + month) * 1_000);
  w.host.advance((month + 1) * 1_000);
  await w.receive(unpaid('in_2'));
  await w.seen(walletAt, 'Lapsed');
  assert.notEqual((await w.balance()).period_end, (now + month) * 1_000);
});

test('payments - a price that is not ours is refused and not taken, until it is configured [BIL-044] [BIL-046]', async (t) => {
  const w = await paymentsWorld(t);
  const strange = live('sub_1', { plan: null });
  assert.equal(await codeOf(w.receive(strange)), 'conflict');
  assert.equal(await codeOf(w.receive(paid('in_1', { plan: null }))), 'conflict');
  assert.deepEqual(kinds(await w.host.events(address)), []);
  await w.receive({ ...strange, plan: 'pro' }, paid('in_1', { plan: null }));
  assert.equal((await w.state()).plan, 'pro');
});

test('payments - buying another plan cancels the subscription before it, until it is; which is the younger is not guessed', async (t) => {
  const w = await paymentsWorld(t);
  w.cancelFails = true;
  await w.receive(live('sub_1'));
  // An invoice alone says nothing about when its subscription was made.
  await w.receive(paid('in_1', { subscription: 'sub_2', plan: 'team', at: start + 60 }));
  assert.deepEqual(w.cancels, []);
  await w.receive(live('sub_2', { plan: 'team', since: start + 50, at: start + 50 }));
  await w.seen(address, 'CancelFailed');
  await w.seen(organizationAt, 'PlanSet', 2);
  assert.equal(await w.plan(), 'team');
  w.cancelFails = false;
  const ended = w.seen(address, 'Cancelled');
  w.host.advance(limits.paymentsRetryMs);
  await ended;
  assert.deepEqual(w.cancels, ['sub_1', 'sub_1']);
  await w.receive(live('sub_1', { status: 'ended', at: start + 70 }));
  assert.equal((await w.state()).plan, 'team');
  w.host.advance(limits.paymentsRetryMaxMs);
  assert.equal(w.cancels.length, 2);
});

test('payments - a subscription whose cancelling failed is left alone once it is the only one', async (t) => {
  const w = await paymentsWorld(t);
  w.cancelFails = true;
  await w.receive(live('sub_1'), live('sub_2', { since: start + 50, at: start + 50 }));
  await w.seen(address, 'CancelFailed');
  await w.receive(live('sub_2', { since: start + 50, at: start + 60, status: 'ended' }));
  assert.deepEqual((await w.state()).cancels, []);
  w.host.advance(limits.paymentsRetryMaxMs);
  assert.deepEqual([w.cancels, (await w.state()).plan], [['sub_1'], 'pro']);
});

test('payments - a deleted organization\'s subscription is cancelled, over failures and lost hosts, and what knows of it stays until it is [ORG-027]', async (t) => {
  const w = await paymentsWorld(t);
  await w.claim('cus_1');
  await w.receive(live('sub_1'), paid('in_1'), live('sub_0', { status: 'waiting', since: start - 5 }));
  await w.seen(organizationAt, 'PlanSet');
  w.cancelFails = true;
  await w.delete();
  await w.seen(address, 'CancelFailed', 2);
  assert.equal(await w.customer(), null);
  await w.seen(organizationAt, 'Erased');
  w.host.advance(limits.eraseAgainMs);
  await w.seen(address, 'CancelFailed', 4);
  assert.deepEqual(w.erased, [false], 'the last pass waits');
  w.host.crash();
  w.cancelFails = false;
  const settled = w.seen(organizationAt, 'PaymentsSettled');
  const erased = w.seen(organizationAt, 'Erased', 2);
  w.host.advance(limits.paymentsRetryMaxMs);
  await settled;
  await erased;
  assert.deepEqual(w.erased, [false, true]);
  assert.deepEqual((await w.state()).subscriptions.map(({ status }) => status), ['ended', 'ended']);
  assert.equal(await w.holder('cus_1'), null);
  // What begins after that is cancelled too, and no word goes to the organization.
  await w.receive(live('sub_9', { since: start + 99, at: start + 99, plan: null, customer: 'cus_9' }), paid('in_9', { subscription: 'sub_8' }));
  await w.seen(address, 'Cancelled', 4);
  assert.deepEqual(kinds(await w.host.events(organizationAt)).filter((k) => k === 'PlanSet'), ['PlanSet']);
});

test('payments - an organization that is deleted before its plan is told has its subscription cancelled all the same; one that bought nothing leaves no trace [ORG-027]', async (t) => {
  const w = await paymentsWorld(t);
  await w.delete();
  await w.seen(organizationAt, 'Erased');
  assert.deepEqual(await w.host.events(address), []);
  await w.receive(live('sub_1'));
  await w.seen(address, 'Cancelled');
  const erased = w.seen(organizationAt, 'Erased', 2);
  w.host.advance(limits.eraseAgainMs);
  await erased;
});

test('payments - a plan that is set by contract is not ended by payments; a late word of theirs changes nothing', async (t) => {
  const w = await paymentsWorld(t);
  const own = { perMinute: 1, perDay: 2, maxApiKeys: 3, maxMembers: 4, credits: 7 };
  const set = (input: object): Promise<unknown> => w.host.ask(organizationAt, 'set_plan', { reason: 'test', ...input });
  await set({ plan: 'pro', revision: '01B' });
  await set({ plan: 'team', revision: '01A' });
  assert.equal(await w.plan(), 'pro');
  await set({ plan: 'enterprise', limits: own });
  await w.receive(live('sub_1'), paid('in_1'), live('sub_1', { status: 'ended', at: start + 1 }));
  await w.seen(walletAt, 'Lapsed');
  assert.equal(await w.plan(), 'enterprise');
});

test('payments - what is remembered of customers is bounded: names of the oldest are let go', async (t) => {
  const w = await paymentsWorld(t);
  for (let n = 0; n <= limits.paymentsCustomersMax; n++) {
    await w.claim(`cus_${n}`);
    await w.receive(linked({ customer: `cus_${n}`, subscription: null, at: start + n }));
  }
  assert.equal(await w.customer(), `cus_${limits.paymentsCustomersMax}`);
  assert.equal((await w.state()).customers.length, limits.paymentsCustomersMax);
  await w.seen({ org: 'platform', type: 'name', key: 'customer:cus_0' }, 'NameReleased');
  assert.equal(await w.holder('cus_1'), orgId);
});

test('payments - of two words about a subscription one counts, whichever comes first', () => {
  const base = { status: 'live', at: 5, made: false, event: 'evt_5' } as const;
  const pairs = [
    [{ ...base, at: 6, event: 'a' }, base], [{ ...base, status: 'ended', at: 1 }, base], [base, { ...base, made: true, event: 'z' }],
    [base, { ...base, status: 'waiting', event: 'z' }], [{ ...base, event: 'z' }, base], [{ ...base, status: 'ended', at: 6 }, { ...base, status: 'ended' }],
  ] as const;
  for (const [counts, other] of pairs) {
    assert.equal(outdates(counts, other), true);
    assert.equal(outdates(other, counts), false);
  }
});

test('payments - its commands are the daemon\'s and other actors\' alone', async (t) => {
  const w = await paymentsWorld(t);
  for (const command of Object.keys(paymentsCommands)) {
    assert.equal(await codeOf(w.host.ask(address, command, { event: live('sub_1') }, { kind: 'user', sub: 'usr_a', org: orgId, scopes: [] })), 'forbidden', command);
  }
});
