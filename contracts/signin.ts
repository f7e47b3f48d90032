/**
 * The signin actor's contract: one-time codes that are mailed to one e-mail address. Org token `platform`, key = SHA-256 (hex) of the
 * normalized address. All commands are for the daemon (access `system`).
 *
 * Guarantees: a code signs in once, of several tries at once exactly one; after `limits.signinCodeTtlMs` it never does. Codes stand beside
 * each other: none ends because another was asked for. From one address block at most `limits.signinTriesMax` wrong tries count for a code,
 * from all but the one it was asked for from `limits.signinTriesAllMax`: who guesses uses up his own tries, not those of the person who asked
 * for the code. From one block `limits.signinMailsPerBlockMax` codes are asked for in an hour: who asks for somebody else's address uses up his
 * own starts. The code is nowhere stored: it is derived from the attempt's id.
 * Whether the address has an account is unknown here, so nothing can tell.
 */
import { z } from 'zod';

/** Eight digits. */
export const signinCode = z.string().regex(/^\d{8}$/);

export const codePurpose = z.enum(['sign_in', 'verify']);
export type CodePurpose = z.infer<typeof codePurpose>;

export const signinCommands = {
  /**
   * Makes a new code and mails it; those before it stay good. `purpose` is what the mail says it is for: the code proves the address either
   * way. `from`: address block of who asks. `rate_limited` beyond `limits.signinMailsPerBlockMax` from there, `limits.signinMailsPerHourMax` in all.
   */
  start: { input: z.strictObject({ email: z.string(), purpose: codePurpose.default('sign_in'), from: z.string().max(64).default('') }), output: z.strictObject({}) },
  /** Tries a code against all that stand. A wrong one counts for each of them, which is committed; so it is an answer, not an error. */
  verify: {
    /** `from`: address block of who tries. */
    input: z.strictObject({ code: signinCode, from: z.string().max(64).default('') }), output: z.strictObject({ state: z.enum(['verified', 'refused']) }),
  },
} as const;

/** `at`, `expires_at`, `again_at`: Unix milliseconds. `from`: address block. */
export const signinEvents = {
  CodeIssued: z.strictObject({ id: z.string(), email: z.string(), from: z.string().optional(), at: z.int(), expires_at: z.int(), purpose: codePurpose.optional() }),
  CodeMailed: z.strictObject({ id: z.string() }),
  /** `code` of the error; without `again_at` it is not tried again. */
  MailFailed: z.strictObject({ id: z.string(), code: z.string(), again_at: z.int().optional() }),
  MailTriedAgain: z.strictObject({ id: z.string() }),
  CodeMissed: z.strictObject({ id: z.string(), from: z.string().optional() }),
  CodeUsed: z.strictObject({ id: z.string() }),
} as const;
