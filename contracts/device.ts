/**
 * The device actor's contract: one device authorization (RFC 8628; interface 2.1, 3.1). Org token `platform`, key = SHA-256 of the
 * device code in hex, so that the code itself is stored nowhere. All commands are for the daemon.
 */
import { z } from 'zod';
import { by } from './platform.ts';

/** Letters without I, L, O and digits without 0, 1 (interface 2.1). */
export const userCodeLetters = 'ABCDEFGHJKMNPQRSTUVWXYZ';
export const userCodeDigits = '23456789';
export const userCode = z.string().regex(new RegExp(`^[${userCodeLetters}]{4}-[${userCodeDigits}]{4}$`));

/** As people type it: trimmed, upper-cased, hyphen optional. What cannot be one stays as it is and is not found. */
export const typedUserCode = z.string().max(64).transform((text) => text.trim().toUpperCase().replace(/^([A-Z]{4})-?([0-9]{4})$/, '$1-$2'));

export const deviceCommands = {
  start: { input: z.strictObject({ user_code: userCode, client_id: z.string(), scope: z.string().optional(), expires_at: z.int() }), output: z.strictObject({}) },
  /** `device_expired` after its time; `not_found` unknown or used. */
  describe: { input: z.strictObject({}), output: z.strictObject({ client_id: z.string(), user_code: z.string(), expires_at: z.int() }) },
  decide: {
    input: z.strictObject({ action: z.enum(['approve', 'deny']), user_id: z.string(), by }),
    output: z.strictObject({ status: z.enum(['approved', 'denied']), client_id: z.string() }),
  },
  /** Uses the record up when it is decided: of several polls at once exactly one is `approved`. */
  redeem: {
    input: z.strictObject({ client_id: z.string().optional() }),
    output: z.discriminatedUnion('state', [
      z.strictObject({ state: z.literal('approved'), user_id: z.string(), client_id: z.string() }),
      z.strictObject({ state: z.enum(['pending', 'denied', 'expired', 'unknown', 'other_client']) }),
    ]),
  },
} as const;
