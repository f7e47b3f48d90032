/**
 * Paid plans: what the payment processor's events come down to, the payments actor that acts on them, and the bodies of its routes
 * (interface 4.5; decisions, Billing). Org token = key = the organization's id; every command is for the daemon or other actors (`system`).
 *
 * Guarantee asked of the actor: events may come repeatedly, late and in any order. What an organization has is a fold over them in which
 * each has one place: a subscription is as its newest event says (ended = for good), an invoice grants once. Holds no secret and nothing
 * of a card or a person: ids of the processor only.
 */
import { z } from 'zod';
import { limits } from './limits.ts';
import { planName } from './organization.ts';

const anyId = z.string().min(1).max(limits.idMaxChars);
/** An id of the processor's (`cus_…`, `sub_…`, `in_…`, `evt_…`). */
const id = z.string().regex(/^[A-Za-z0-9_-]+$/).max(limits.idMaxChars);
/** Unix seconds, as the processor tells time. */
const seconds = z.int().nonnegative();
const status = z.enum(['live', 'waiting', 'ended']);

/** Bodies of the routes. `plan` may be any text: whether it can be bought is checked after who asks (decisions, Billing). */
export const paymentBodies = {
  checkout: z.strictObject({ organizationId: anyId, plan: anyId }),
  portal: z.strictObject({ organizationId: anyId }),
} as const;

/** `event`: its id; `at`: when it was made. */
const event = { event: id, at: seconds, customer: id.nullable() };
/** An event of the processor, without what does not count. `plan` null = a price that is none of ours. */
export const paymentEvent = z.discriminatedUnion('kind', [
  /** A finished checkout. */
  z.strictObject({ ...event, kind: z.literal('linked'), subscription: id.nullable() }),
  z.strictObject({
    ...event, kind: z.literal('subscription'), subscription: id, plan: planName.nullable(),
    /** `live`: paid for, on trial, or with a payment that is still tried. `ended`: for good. */
    status,
    /** When it was made: of several the youngest counts. */
    since: seconds,
    /** Whether it is the news of its making, which any other event of the same second comes after. */
    made: z.boolean(),
  }),
  z.strictObject({
    ...event, kind: z.literal('paid'), invoice: id, subscription: id.nullable(), plan: planName.nullable(),
    /** End of the time that is paid. */
    until: seconds.nullable(),
    /** Whether it begins a period; of a change within one the plan's credits are not given again. */
    renews: z.boolean(),
  }),
  z.strictObject({ ...event, kind: z.literal('unpaid'), invoice: id }),
]);
export type PaymentEvent = z.output<typeof paymentEvent>;

const nothing = z.strictObject({});

export const paymentsCommands = {
  /**
   * Takes an event. `taken` false: it was there before. `conflict` (nothing is taken: the processor is to send it again) for money or a live
   * subscription of a plan that cannot be told.
   */
  receive: { input: z.strictObject({ event: paymentEvent }), output: z.strictObject({ taken: z.boolean() }) },
  /** The customer that the organization is to the processor; null = none yet. Journals nothing. */
  describe: { input: nothing, output: z.strictObject({ customer: id.nullable() }) },
  /** Of a deleted organization: cancels what is not ended, now and whatever is still begun; then the organization is told `payments_settled`. */
  close: { input: nothing, output: nothing },
} as const;

export const paymentsEvents = {
  EventTaken: z.strictObject({ event: id, kind: z.string(), at: seconds, customer: id.nullable() }),
  /** `at` 0: no event of its own, but a checkout or an invoice speaks of it. `event`: which one says so; empty with `at` 0. */
  SubscriptionSeen: z.strictObject({ subscription: id, plan: planName.nullable(), status, since: seconds, at: seconds, made: z.boolean(), event: z.string() }),
  /** `granted`: whether the plan's credits were given for it. */
  InvoicePaid: z.strictObject({ invoice: id, subscription: id.nullable(), plan: planName, until: seconds.nullable(), granted: z.boolean() }),
  /** The plan that the organization was told. */
  PlanTold: z.strictObject({ plan: planName, subscription: id.nullable() }),
  /** The wallet was told that its period of an invoice is over. */
  PeriodLapsed: z.strictObject({}),
  CancelStarted: z.strictObject({ subscription: id }),
  /** `due`: Unix milliseconds of the next try. */
  CancelFailed: z.strictObject({ subscription: id, code: z.string(), due: z.int() }),
  Cancelled: z.strictObject({ subscription: id }),
  /** It is not to be cancelled any more. */
  CancelDropped: z.strictObject({ subscription: id }),
  Closed: z.strictObject({}),
} as const;
export type PaymentsEvents = typeof paymentsEvents;
