/**
 * What an organization's payments remember, and how events change it: pure, total, and the same for every order of the same events.
 * Bounded: the last ids of events and invoices, the newest customers, and subscriptions of which the oldest ended ones are forgotten
 * (limits.payments*).
 */
import type { PlanName } from '../../contracts/organization.ts';
import type { PaymentsEvents } from '../../contracts/payments.ts';
import { limits } from '../../contracts/limits.ts';
import type { PayloadOf } from '../runtime/define.ts';

export interface Subscription {
  readonly id: string;
  readonly plan: PlanName | null;
  readonly status: 'live' | 'waiting' | 'ended';
  /** Unix seconds, as all times of the processor. */
  readonly since: number;
  /** Of its own newest event; 0 = there was none, only a checkout or an invoice spoke of it. */
  readonly at: number;
  readonly made: boolean;
  readonly event: string;
  /** End of the time that was paid last; 0 = none. */
  readonly paid_until: number;
}

/** A subscription that is to be cancelled. */
export interface Cancel {
  readonly subscription: string;
  readonly attempts: number;
  /** Unix milliseconds. */
  readonly due: number;
  readonly running: boolean;
}

/** `at`: of the newest event that names it. */
export interface Customer {
  readonly id: string;
  readonly at: number;
}

export interface PaymentsState {
  /** The newest first: that one is the organization's. */
  readonly customers: readonly Customer[];
  readonly subscriptions: readonly Subscription[];
  /** As the organization was told. */
  readonly plan: PlanName;
  /** Whether the wallet has a period of an invoice. */
  readonly paying: boolean;
  /** Ids that were taken, the oldest first. */
  readonly events: readonly string[];
  readonly invoices: readonly string[];
  readonly cancels: readonly Cancel[];
  readonly closed: boolean;
}

type Payload<K extends keyof PaymentsEvents> = PayloadOf<PaymentsEvents[K]>;

export const initialPayments = (): PaymentsState => ({ customers: [], subscriptions: [], plan: 'free', paying: false, events: [], invoices: [], cancels: [], closed: false });

const last = (all: readonly string[], next: string, max: number): readonly string[] => [...all.slice(-(max - 1)), next];

type Said = Pick<Subscription, 'status' | 'at' | 'made' | 'event'>;

/**
 * Whether what is said counts instead of what is known. Ended is for good; else the later second counts. Of one second, which the processor
 * does not order further: the news of the making counts least, then live more than waiting, then the greater id, so that every order of
 * arrival has the same end.
 */
export const outdates = (said: Said, known: Said): boolean => {
  if ((said.status === 'ended') !== (known.status === 'ended')) return said.status === 'ended';
  if (said.at !== known.at) return said.at > known.at;
  if (said.made !== known.made) return known.made;
  if (said.status !== known.status) return said.status === 'live';
  return said.event > known.event;
};

/** The subscription that gives the plan: of those that are live, the youngest. */
export const inForce = ({ subscriptions }: Pick<PaymentsState, 'subscriptions'>): Subscription | undefined => subscriptions
  .filter(({ status, plan }) => status === 'live' && plan !== null)
  .toSorted((a, b) => b.since - a.since || (a.id < b.id ? 1 : -1))[0];

/** Without the oldest that have ended beyond the bound. */
const bounded = (all: readonly Subscription[]): readonly Subscription[] => {
  let surplus = all.length - limits.paymentsSubscriptionsMax;
  return surplus <= 0 ? all : all.filter(({ status }) => status !== 'ended' || surplus-- <= 0);
};

const named = (all: readonly Customer[], id: string, at: number): readonly Customer[] => {
  const known = all.find((one) => one.id === id);
  return [...all.filter((one) => one !== known), { id, at: Math.max(at, known?.at ?? 0) }]
    .toSorted((a, b) => b.at - a.at || (a.id < b.id ? 1 : -1)).slice(0, limits.paymentsCustomersMax);
};

const cancel = (state: PaymentsState, id: string, change: (of: Cancel) => Cancel | undefined): PaymentsState =>
  ({ ...state, cancels: state.cancels.flatMap((one) => (one.subscription === id ? change(one) ?? [] : [one])) });

export const fold = {
  EventTaken: (state: PaymentsState, { event, at, customer }: Payload<'EventTaken'>): PaymentsState => ({
    ...state, events: last(state.events, event, limits.paymentsEventsMax),
    customers: customer === null || state.closed ? state.customers : named(state.customers, customer, at),
  }),
  SubscriptionSeen: (state: PaymentsState, { subscription: id, ...said }: Payload<'SubscriptionSeen'>): PaymentsState => {
    const known = state.subscriptions.find((one) => one.id === id);
    if (known === undefined) return { ...state, subscriptions: bounded([...state.subscriptions, { id, ...said, paid_until: 0 }]) };
    return { ...state, subscriptions: state.subscriptions.map((one) => (one.id === id ? { ...one, ...said } : one)) };
  },
  InvoicePaid: (state: PaymentsState, { invoice, subscription, until, granted }: Payload<'InvoicePaid'>): PaymentsState => ({
    ...state, paying: state.paying || granted,
    invoices: last(state.invoices, invoice, limits.paymentsInvoicesMax),
    subscriptions: state.subscriptions.map((one) => (one.id === subscription ? { ...one, paid_until: Math.max(one.paid_until, until ?? 0) } : one)),
  }),
  PlanTold: (state: PaymentsState, { plan }: Payload<'PlanTold'>): PaymentsState => ({ ...state, plan }),
  PeriodLapsed: (state: PaymentsState): PaymentsState => ({ ...state, paying: false }),
  CancelStarted: (state: PaymentsState, { subscription }: Payload<'CancelStarted'>): PaymentsState => {
    if (!state.cancels.some((one) => one.subscription === subscription)) return { ...state, cancels: [...state.cancels, { subscription, attempts: 0, due: 0, running: true }] };
    return cancel(state, subscription, (one) => ({ ...one, running: true }));
  },
  CancelFailed: (state: PaymentsState, { subscription, due }: Payload<'CancelFailed'>): PaymentsState =>
    cancel(state, subscription, (one) => ({ ...one, attempts: one.attempts + 1, due, running: false })),
  CancelDropped: (state: PaymentsState, { subscription }: Payload<'CancelDropped'>): PaymentsState => cancel(state, subscription, () => undefined),
  Cancelled: (state: PaymentsState, { subscription }: Payload<'Cancelled'>): PaymentsState => ({
    ...cancel(state, subscription, () => undefined),
    subscriptions: state.subscriptions.map((one) => (one.id === subscription ? { ...one, status: 'ended' } : one)),
  }),
  Closed: (state: PaymentsState): PaymentsState => ({ ...state, customers: [], closed: true }),
} as const;
