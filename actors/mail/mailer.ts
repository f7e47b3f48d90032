/**
 * How mail leaves: one interface, two ways (smtp.ts, outbox.ts), and what every mail must fulfil before either gets it.
 *
 * Guarantees: one recipient a mail; nothing in a mail's fields can add a header, a recipient or a second mail (header injection); a repeat
 * under the same id has the same Message-ID, so that a mailbox or a person can tell. A mail is sent at least once, not exactly once:
 * SMTP has no such thing.
 */
import type { DaemonConfig } from '../../contracts/config.ts';
import { coded } from '../../contracts/errors.ts';
import { email } from '../../contracts/ids.ts';
import { limits } from '../../contracts/limits.ts';

export interface Mail {
  /** The effect's idempotency key: 1-128 of A-Z a-z 0-9 _ -. Becomes the Message-ID. */
  readonly id: string;
  /** One address, as `email` of contracts/ids.ts leaves it. */
  readonly to: string;
  readonly subject: string;
  readonly text: string;
  readonly html?: string;
}

export interface Mailer {
  /**
   * Resolves when the mail server (or the outbox) has taken the mail. Throws `mail_refused` (refusal: never again: the mail is malformed, or
   * the server refused it or its recipient for good), `mail_unavailable` (fault: try again later; it may have been sent), `aborted`.
   */
  send(mail: Mail, signal?: AbortSignal): Promise<void>;
  /** Ends its connections; what is under way fails with `mail_unavailable`. */
  close(): void;
}

type MailConfig = NonNullable<DaemonConfig['mail']>;

export interface Sender {
  /** Empty if the configuration names none. */
  readonly name: string;
  readonly address: string;
  readonly domain: string;
}

/** `mail.from` of the configuration, taken apart. */
export const senderOf = (from: MailConfig['from']): Sender => {
  const parts = /^(?:(?<name>.+) )?<?(?<address>[^\s<>@]+@(?<domain>[^\s<>@]+?))>?$/u.exec(from)?.groups;
  return { name: parts?.['name'] ?? '', address: parts?.['address'] ?? '', domain: parts?.['domain'] ?? '' };
};

/** With its angle brackets (RFC 5322 section 3.6.4). */
export const messageIdOf = (id: string, sender: Sender): string => `<${id}@${sender.domain}>`;

const plainId = /^[A-Za-z0-9_-]{1,128}$/;
// oxlint-disable-next-line no-control-regex
const control = /[\u0000-\u001f\u007f-\u009f\u2028\u2029]/;

/** Throws `mail_refused` for a mail that must not reach a server. */
export const checkMail = (mail: Mail): void => {
  const wrong = (what: string): never => { throw coded('mail_refused', `The mail's ${what} is malformed or too long.`); };
  if (!plainId.test(mail.id)) wrong('id');
  // As it is: what only becomes an address by trimming is not one here.
  if (email.safeParse(mail.to).data !== mail.to) wrong('recipient');
  if (mail.subject === '' || mail.subject.length > limits.mailSubjectMaxChars || control.test(mail.subject) || !mail.subject.isWellFormed()) wrong('subject');
  if (Buffer.byteLength(mail.text) > limits.mailTextMaxBytes) wrong('text');
  if (Buffer.byteLength(mail.html ?? '') > limits.mailTextMaxBytes) wrong('html');
};

/** The mailer of an installation without mail: everything waits for one. */
export const noMailer: Mailer = {
  send: async () => { throw coded('mail_unavailable', 'No mail server is configured.'); },
  close: () => undefined,
};
