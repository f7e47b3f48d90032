/**
 * The wallet actor's contract: the credits of one payer (decisions, Billing). Org token = key = the payer: an organization's id, or
 * `u-<userId>` of a personal workspace. For the daemon and other actors only (access `system`).
 *
 * 1 credit = 1 US cent of model cost, rounded up per turn. A period is a calendar month (UTC), for a payer with a subscription the time from one
 * paid invoice to the next; what is left of it is not carried on. A turn
 * needs a positive balance when it begins and is charged what it used when it ends: turns that began with a balance are all charged, so
 * `used` may exceed the month's credits by what was under way then. `remaining` is never below 0 and the next period begins anew.
 * Credits are usage units: nothing pays them out or moves them (BIL-019).
 */
import { z } from 'zod';
import { limits } from './limits.ts';

const credits = z.int().nonnegative();
const text = z.string().min(1).max(limits.idMaxChars);

/** One ended turn. */
export const turnCharge = z.strictObject({
  /** Of the turn, for ever its own: it is charged once however often it is told. */
  turn_id: text,
  cents: z.int().positive(),
  model: z.string(),
  /** Who asked: `usr_…` or `key_…`. */
  by: text,
  input_tokens: credits,
  output_tokens: credits,
  /** When it ended, Unix milliseconds: names the period. */
  at: z.int().nonnegative(),
});
export type TurnCharge = z.output<typeof turnCharge>;

export const balance = z.strictObject({
  remaining: credits, monthly: credits, used: credits,
  /** Of the running period, Unix milliseconds; the end is the next one's start. */
  period_start: z.int(), period_end: z.int(),
});
export type Balance = z.output<typeof balance>;

/** Shares of a month's credits, in percent, at which `usage.alert` goes to the organization's webhook (decisions, Small print). */
export const alertPercents = [80, 100] as const;

export const walletCommands = {
  /** `charged` false: this turn was charged before. */
  charge: { input: turnCharge, output: z.strictObject({ charged: z.boolean() }) },
  /** The plan's credits a month from now on; what was used stays used. A lower `revision` (ULID) than one taken before is late and changes nothing. */
  grant: { input: z.strictObject({ monthly: credits, revision: text }), output: z.strictObject({}) },
  /**
   * A paid invoice: a period begins with this, which only the next one or `lapse` ends. `until`: Unix milliseconds for which is paid, as the balance
   * shows it. `revision` as above, but of payments.
   */
  renew: { input: z.strictObject({ invoice: text, credits, until: z.int().nullable(), revision: text }), output: z.strictObject({}) },
  /** No subscription any more: periods are calendar months again; what was used since the last invoice stays used until the next month. */
  lapse: { input: z.strictObject({ revision: text }), output: z.strictObject({}) },
  /** Journals nothing. `monthly`: as the plan says it at this moment, where the asker knows; else as last granted. */
  balance: { input: z.strictObject({ monthly: credits.optional() }), output: balance },
} as const;

const { at: _at, ...charged } = turnCharge.shape;
/** `YYYY-MM`, or of an invoice the ISO time of its coming; they sort as text. */
const period = z.string();

export const walletEvents = {
  Charged: z.strictObject({ ...charged, period }),
  Granted: z.strictObject({ monthly: credits, revision: z.string() }),
  Renewed: z.strictObject({ period, invoice: z.string(), credits, until: z.int().nullable(), revision: z.string() }),
  /** `used`: what of the calendar month's credits counts as used from here on. */
  Lapsed: z.strictObject({ period, used: credits, revision: z.string() }),
  AlertRaised: z.strictObject({ period, percent: z.int() }),
} as const;
export type WalletEventKind = keyof typeof walletEvents;
