/**
 * The signin actor's contract: one-time codes that are mailed to one e-mail address. Org token `platform`, key = SHA-256 (hex) of the
 * normalized address. All commands are for the daemon (access `system`).
 *
 * Guarantees: a code signs in once, of several tries at once exactly one; after `limits.signinTriesAllMax` wrong tries, after
 * `limits.signinCodeTtlMs` or when a newer one was asked for it never does. From one address block at most `limits.signinTriesMax` tries
 * count: who guesses from one place uses up his own, not those of the person who got the code. The code is nowhere stored: it is derived from the attempt's id.
 * Whether the address has an account is unknown here, so nothing can tell.
 */
import { z } from 'zod';

/** Eight digits. */
export const signinCode = z.string().regex(/^\d{8}$/);

export const codePurpose = z.enum(['sign_in', 'verify']);
export type CodePurpose = z.infer<typeof codePurpose>;

export const signinCommands = {
  /** Makes a new code and mails it; the one before it is void. `purpose` is what the mail says it is for: the code proves the address either way. `rate_limited` beyond `limits.signinMailsPerHourMax`; then the one before stays good. */
  start: { input: z.strictObject({ email: z.string(), purpose: codePurpose.default('sign_in') }), output: z.strictObject({}) },
  /** Tries a code. A wrong one counts, which is committed; so it is an answer, not an error. */
  verify: {
    /** `from`: address block of who tries. */
    input: z.strictObject({ code: signinCode, from: z.string().max(64).default('') }), output: z.strictObject({ state: z.enum(['verified', 'refused']) }),
  },
} as const;

/** `at`, `expires_at`: Unix milliseconds. */
export const signinEvents = {
  CodeIssued: z.strictObject({ id: z.string(), email: z.string(), at: z.int(), expires_at: z.int(), purpose: codePurpose.optional() }),
  CodeMailed: z.strictObject({ id: z.string() }),
  /** `code` of the error. */
  MailFailed: z.strictObject({ id: z.string(), code: z.string() }),
  CodeMissed: z.strictObject({ id: z.string(), from: z.string().optional() }),
  CodeUsed: z.strictObject({ id: z.string() }),
} as const;
