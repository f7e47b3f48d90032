/**
 * The payments actor: an organization's customer, subscriptions and invoices, and what follows from them. Contract: contracts/payments.ts.
 *
 * Guarantees
 * P1  An event is taken once by its id, and an invoice grants once by its own, whatever event brings it (BIL-049, BIL-050). Id, grant and plan
 *     are one commit; the organization and the wallet are told durably after it, in effect once.
 * P2  Order does not matter: state.ts. The organization is told the plan of the youngest live subscription, with an ascending revision, so that
 *     a word that overtakes another does no harm.
 * P3  An organization has one subscription: buying another cancels the one before. A deleted one has none (ORG-027): what is not ended
 *     is cancelled at the processor, and tried again until it is.
 * It knows no prices and verifies no signature: the daemon does, before it asks.
 */
import { z } from 'zod';
import { coded } from '../../contracts/errors.ts';
import { limits } from '../../contracts/limits.ts';
import { paymentsCommands, paymentsEvents, type PaymentEvent, type PaymentsEvents } from '../../contracts/payments.ts';
import { plans } from '../../contracts/plans.ts';
import { nameAddress } from '../name/address.ts';
import { defineActor, type Outcome, type PayloadOf, type Turn } from '../runtime/define.ts';
import { walletAddress } from '../wallet/address.ts';
import { fold, inForce, initialPayments, outdates, type PaymentsState } from './state.ts';

export interface PaymentsDeps {
  /** Ends a subscription at once; one that is not there any more is as good. Throws coded errors: it is tried again. */
  readonly cancel: (subscription: string, signal: AbortSignal) => Promise<void>;
}

const cancelInput = z.strictObject({ subscription: z.string() });

interface PaymentsTurn extends Pick<Turn<PaymentsState, PaymentsEvents, Record<never, never>>, 'state' | 'now' | 'self' | 'newId' | 'tell' | 'remind' | 'forget'> {
  emit<K extends keyof PaymentsEvents>(kind: K, payload: PayloadOf<PaymentsEvents[K]>): void;
  effect(name: 'cancel', input: z.output<typeof cancelInput>): string;
}
type Of<K extends PaymentEvent['kind']> = Extract<PaymentEvent, { kind: K }>;

/** What was told and not sent when the host was lost is sent by the activation that this makes. */
const wake = (turn: PaymentsTurn): void => turn.remind('tells', { inMs: limits.organizationWakeMs });

const tellOrganization = (turn: PaymentsTurn, command: 'set_plan' | 'payments_settled', input: Readonly<Record<string, unknown>>): void => {
  turn.tell({ org: turn.self.key, type: 'organization', key: turn.self.key }, command, input);
  wake(turn);
};

/** Tells the organization its plan, if it is another than it was told. */
const tellPlan = (turn: PaymentsTurn): void => {
  if (turn.state.closed) return;
  const subscription = inForce(turn.state);
  const plan = subscription?.plan ?? 'free';
  if (plan === turn.state.plan) return;
  turn.emit('PlanTold', { plan, subscription: subscription?.id ?? null });
  const reason = subscription === undefined ? 'no subscription is left' : `subscription ${subscription.id}`;
  tellOrganization(turn, 'set_plan', { plan, reason, revision: turn.newId() });
};

/** Tells the wallet that credits come with the calendar month again, once nothing is live and no time that was paid is left. */
const lapseOn = (turn: PaymentsTurn): void => {
  const { paying, subscriptions, closed } = turn.state;
  const goesOn = subscriptions.some(({ status, paid_until: until }) => status === 'live' || (status === 'waiting' && until * 1_000 > turn.now));
  const wallet = walletAddress(turn.self.key);
  if (!paying || goesOn || closed || wallet === undefined) return;
  turn.emit('PeriodLapsed', {});
  turn.tell(wallet, 'lapse', { revision: turn.newId() });
  wake(turn);
};

/** Subscriptions that must not go on. */
const unwanted = ({ closed, subscriptions }: PaymentsState): readonly string[] => {
  if (closed) return subscriptions.filter(({ status }) => status !== 'ended').map(({ id }) => id);
  const kept = inForce({ subscriptions });
  // Which of two is the younger is not known before both have said so themselves.
  if (kept === undefined || kept.at === 0) return [];
  return subscriptions.filter(({ id, status, at }) => id !== kept.id && status === 'live' && at > 0).map(({ id }) => id);
};

/** Begins to cancel what must not go on; tells a deleted organization when nothing is left. */
const cancelOn = (turn: PaymentsTurn): void => {
  const ending = unwanted(turn.state);
  for (const { subscription, running } of turn.state.cancels) {
    // It ended by itself, or is the one that is left.
    if (!running && !ending.includes(subscription)) turn.emit('CancelDropped', { subscription });
  }
  for (const subscription of ending) {
    const known = turn.state.cancels.find((one) => one.subscription === subscription);
    if (known !== undefined && (known.running || known.due > turn.now)) continue;
    turn.effect('cancel', { subscription });
    turn.emit('CancelStarted', { subscription });
  }
  if (turn.state.cancels.length === 0) {
    turn.forget('cancel');
    if (turn.state.closed) tellOrganization(turn, 'payments_settled', {});
    return;
  }
  // While one runs: only in case its host is lost.
  const wakeMs = turn.now + limits.organizationWakeMs;
  turn.remind('cancel', { atMs: Math.min(wakeMs, ...turn.state.cancels.filter(({ running }) => !running).map(({ due }) => due)) });
};

const cancelled = (turn: PaymentsTurn, outcome: Outcome<unknown>, { subscription }: z.output<typeof cancelInput>): void => {
  const known = turn.state.cancels.find((one) => one.subscription === subscription);
  if (known === undefined) return;
  if (outcome.ok) turn.emit('Cancelled', { subscription });
  else {
    const delay = Math.min(limits.paymentsRetryMs * 2 ** Math.min(known.attempts, 20), limits.paymentsRetryMaxMs);
    turn.emit('CancelFailed', { subscription, code: outcome.code, due: turn.now + delay });
  }
  tellPlan(turn);
  lapseOn(turn);
  cancelOn(turn);
};

/** Only others' word of a subscription: it counts until it says something itself. */
const hint = (turn: PaymentsTurn, subscription: string, hinted: Pick<PayloadOf<PaymentsEvents['SubscriptionSeen']>, 'status' | 'plan' | 'since'>): void =>
  turn.emit('SubscriptionSeen', { subscription, ...hinted, at: 0, made: true, event: '' });

const link = (turn: PaymentsTurn, { subscription, at }: Of<'linked'>): void => {
  if (subscription === null || turn.state.subscriptions.some(({ id }) => id === subscription)) return;
  hint(turn, subscription, { status: 'waiting', plan: null, since: at });
};

const subscribe = (turn: PaymentsTurn, said: Of<'subscription'>): void => {
  const { subscription, plan, status, since, at, made, event } = said;
  if (status === 'live' && plan === null && !turn.state.closed) throw coded('conflict', 'The price of this subscription is not configured.');
  const known = turn.state.subscriptions.find(({ id }) => id === subscription);
  if (known === undefined || outdates(said, known)) turn.emit('SubscriptionSeen', { subscription, plan, status, since, at, made, event });
};

const pay = (turn: PaymentsTurn, { invoice, subscription: id, plan: said, renews, at, until }: Of<'paid'>): void => {
  // A change within a period, or something else that was billed: what it changes has its own event.
  if (!renews || turn.state.invoices.includes(invoice)) return;
  const known = turn.state.subscriptions.find((one) => one.id === id);
  const plan = said ?? known?.plan ?? null;
  if (plan === null) throw coded('conflict', 'The price of this invoice is not configured.');
  // Money for a subscription that has not spoken yet: it is live, until any word of its own says otherwise.
  if (id !== null && (known === undefined || (known.at === 0 && known.status === 'waiting'))) hint(turn, id, { status: 'live', plan, since: known?.since ?? at });
  const late = until !== null && known !== undefined && until <= known.paid_until;
  const granted = !late && known?.status !== 'ended' && !turn.state.closed;
  turn.emit('InvoicePaid', { invoice, subscription: id, plan, until, granted });
  const wallet = walletAddress(turn.self.key);
  if (!granted || wallet === undefined) return;
  turn.tell(wallet, 'renew', { invoice, credits: plans[plan].limits.credits, until: until === null ? null : until * 1_000, revision: turn.newId() });
  wake(turn);
};

const releaseNames = (turn: PaymentsTurn, customers: readonly string[]): void => {
  for (const customer of customers) turn.tell(nameAddress('customer', customer), 'release', { holder: turn.self.key });
};

/** Notes the event, and lets go of customers that are too many to be remembered. */
const take = (turn: PaymentsTurn, { event, kind, at, customer }: PaymentEvent): void => {
  const before = turn.state.customers.map(({ id }) => id);
  turn.emit('EventTaken', { event, kind, at, customer });
  const kept = new Set(turn.state.customers.map(({ id }) => id));
  releaseNames(turn, [...new Set([...before, ...(customer === null ? [] : [customer])])].filter((id) => !kept.has(id)));
};

/** The payments actor's definition. */
export const payments = (deps: PaymentsDeps) => defineActor({
  type: 'payments',
  events: paymentsEvents,
  initial: initialPayments,
  apply: fold,
  stateVersion: 1,
  effects: (effect) => ({
    cancel: effect({
      input: cancelInput, output: z.strictObject({}), once: 'at-least',
      run: async ({ signal }, { subscription }) => {
        await deps.cancel(subscription, signal);
        return {};
      },
      done: cancelled,
    }),
  }),
  commands: (command) => ({
    receive: command({
      ...paymentsCommands.receive, access: 'system',
      handle: (turn, { event }) => {
        if (turn.state.events.includes(event.event)) return { taken: false };
        switch (event.kind) {
          case 'linked': link(turn, event); break;
          case 'subscription': subscribe(turn, event); break;
          case 'paid': pay(turn, event); break;
          case 'unpaid': break;
        }
        take(turn, event);
        tellPlan(turn);
        lapseOn(turn);
        cancelOn(turn);
        return { taken: true };
      },
    }),
    describe: command({ ...paymentsCommands.describe, access: 'system', handle: ({ state }) => ({ customer: state.customers[0]?.id ?? null }) }),
    close: command({
      ...paymentsCommands.close, access: 'system',
      handle: (turn) => {
        if (!turn.state.closed) {
          releaseNames(turn, turn.state.customers.map(({ id }) => id));
          turn.emit('Closed', {});
        }
        cancelOn(turn);
        return {};
      },
    }),
  }),
  reminders: { cancel: cancelOn, tells: () => undefined },
});
