/**
 * A mail in the outbox: what development keeps in place of sending (configuration `mail.outbox_path`). One JSON file per mail, for
 * `npm start` and tests to show. It holds sign-in codes and invitation links in the clear, so folder and files are the owner's alone.
 */
import { z } from 'zod';

export const outboxMail = z.strictObject({
  /** The mail's idempotency key; a repeat replaces the file. */
  id: z.string(),
  /** With its angle brackets, as SMTP would have sent it. */
  message_id: z.string(),
  /** Unix milliseconds. */
  at: z.int(),
  from: z.string(),
  to: z.string(),
  subject: z.string(),
  text: z.string(),
  html: z.string().optional(),
});
export type OutboxMail = z.infer<typeof outboxMail>;
