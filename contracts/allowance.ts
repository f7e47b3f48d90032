/**
 * The allowance actor's contract: requests counted in a minute and a day (interface 8.1, 8.2; decisions, Billing). Org token = the
 * organization, `u-<userId>` for a personal workspace, `platform` for endpoints that count per address; key from
 * `actors/allowance/address.ts`. For the daemon only (access `system`).
 *
 * Guarantees: what is granted is in the journal before it is answered, so no crash lets more pass than the limits allow. Minute windows
 * begin with their first request and last 60 s, day windows are UTC days. A grant ends with the windows it was counted in.
 *
 * Leases: a daemon may take grants ahead of its requests (`ahead`). All that are taken ahead and not known to be used are together at
 * most 1 % of each limit: so at most 1 % is refused early, whatever daemons die (decisions, Billing).
 */
import { z } from 'zod';
import { limits } from './limits.ts';

/** Requests a window allows; -1 = unlimited. */
const allowed = z.int().min(-1);
const count = z.int().nonnegative();

export const takeInput = z.strictObject({
  /** Requests that wait for the answer. */
  count: z.int().min(1).max(limits.allowanceCountMax),
  /** The limits in force for these requests: a changed plan counts from the next ask on. */
  perMinute: allowed,
  perDay: allowed,
  /** The asking process, and the number of its ask, which grows: a repeat of the last one takes nothing again. */
  by: z.string().min(1).max(limits.idMaxChars),
  ask: z.int().positive(),
  /** Grants wanted ahead. */
  ahead: count.max(limits.allowanceAheadMax).default(0),
  /** Grants taken ahead earlier that this process has used since its last ask. */
  used: count.default(0),
});
/** As it is sent; `Take` as the actor gets it. */
export type TakeInput = z.input<typeof takeInput>;
export type Take = z.output<typeof takeInput>;

export const takeOutput = z.strictObject({
  /** Of `count`: 0 to `count`. */
  granted: count,
  /** Granted ahead, beyond `count`; 0 unless all of `count` is granted. */
  ahead: count,
  /** The window that ran out, or the one with less left (of equals the one that ends later): its limit and what is left of it; -1 = unlimited. */
  limit: allowed,
  remaining: z.int().min(-1),
  /** Unix milliseconds at which that window ends, and milliseconds from the answer until then. */
  resetAtMs: z.int(),
  retryAfterMs: count,
  /** Milliseconds from the answer for which grants taken ahead are good: until the first of the windows ends. */
  goodForMs: count,
});
export type TakeOutput = z.output<typeof takeOutput>;

export const allowanceCommands = { take: { input: takeInput, output: takeOutput } } as const;

export const allowanceTaken = z.strictObject({
  by: z.string(), ask: z.int(), granted: count, ahead: count, used: count,
  /** Unix milliseconds at which the windows began that these are counted in. */
  minute: z.int(), day: z.int(),
});
export type AllowanceTaken = z.output<typeof allowanceTaken>;

export const allowanceEvents = { AllowanceTaken: allowanceTaken } as const;
