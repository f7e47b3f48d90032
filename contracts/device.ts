/**
 * The device actor's contract: one device authorization (RFC 8628; interface 2.1, 3.1). Org token `platform`, key = SHA-256 of the
 * device code in hex, so that the code itself is stored nowhere. All commands are for the daemon.
 *
 * Guarantees: of all decisions exactly one counts, of all polls of a decided authorization exactly one learns it. Time is the actor's.
 */
import { z } from 'zod';
import { limits } from './limits.ts';
import { by } from './platform.ts';

/** Letters without I, L, O and digits without 0, 1 (interface 2.1). */
export const userCodeLetters = 'ABCDEFGHJKMNPQRSTUVWXYZ';
export const userCodeDigits = '23456789';
export const userCode = z.string().regex(new RegExp(`^[${userCodeLetters}]{4}-[${userCodeDigits}]{4}$`));

/**
 * As people type it: trimmed, upper-cased, hyphen optional. What cannot be one stays as it is and is not found: so does a code with a
 * look-alike of another script, some of which become plain letters when they are upper-cased.
 */
export const typedUserCode = z.string().max(64).transform((text) =>
  text.trim().replace(/^([A-Za-z]{4})-?([0-9]{4})$/, (_all, letters: string, digits: string) => `${letters.toUpperCase()}-${digits}`));

/** RFC 6749 appendix A.1: visible ASCII and spaces. */
export const clientId = z.string().min(1).max(limits.idMaxChars).regex(/^[ -~]+$/);

export const deviceCommands = {
  /** `conflict` if there is one already. */
  start: { input: z.strictObject({ user_code: userCode, client_id: clientId }), output: z.strictObject({ expires_in: z.int() }) },
  /** What is asked of a person. `not_found` unknown or decided; `device_expired` after its time. `expires_in`: seconds, rounded up. */
  describe: { input: z.strictObject({}), output: z.strictObject({ client_id: z.string(), user_code: z.string(), expires_in: z.int() }) },
  /** The person's word: `by.actor` is the user whose tokens an approval leads to. Errors as `describe`. */
  decide: {
    input: z.strictObject({ action: z.enum(['approve', 'deny']), by }),
    output: z.strictObject({ status: z.enum(['approved', 'denied']), client_id: z.string() }),
  },
  /** What a poll finds; changes nothing. A decided one is then redeemed. */
  poll: {
    input: z.strictObject({ client_id: z.string().optional() }),
    output: z.strictObject({ state: z.enum(['pending', 'approved', 'denied', 'expired', 'unknown', 'other_client']) }),
  },
  /** The same, and uses the record up when it is decided. */
  redeem: {
    input: z.strictObject({ client_id: z.string().optional() }),
    output: z.discriminatedUnion('state', [
      /** `approved_at`: Unix milliseconds. */
      z.strictObject({ state: z.literal('approved'), user_id: z.string(), client_id: z.string(), approved_at: z.int() }),
      z.strictObject({ state: z.enum(['pending', 'denied', 'expired', 'unknown', 'other_client']) }),
    ]),
  },
} as const;

export const deviceEvents = {
  /** `expires_at`: Unix milliseconds. */
  DeviceStarted: z.strictObject({ user_code: z.string(), client_id: z.string(), expires_at: z.int() }),
  DeviceApproved: z.strictObject({ user_id: z.string(), ip: z.string(), user_agent: z.string() }),
  DeviceDenied: z.strictObject({ user_id: z.string(), ip: z.string(), user_agent: z.string() }),
  DeviceExpired: z.strictObject({}),
  /** The poll that learnt the decision. */
  DeviceRedeemed: z.strictObject({}),
  DeviceForgotten: z.strictObject({}),
} as const;
